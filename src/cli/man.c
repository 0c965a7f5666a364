/* Prints the manual: kvfold(1), and kvfold-COMMAND(1) of each command, from the tables of the
 * parser and --help. Installation runs `kvfold --man` and `kvfold --man COMMAND`. Language:
 * mdoc(7). */
#include "cli_int.h"

#include <ctype.h>
#include <string.h>

enum { WIDTH = 60 }; /* column at which source lines are broken */

/* Prints text with mdoc requests and escapes quoted. filled: lines may be broken, and end after a
 * sentence. */
static void print_text(const char *text, bool filled)
{
    int column = 0;
    char last = 0;
    for (; *text; last = *text++) {
        bool ends = column > WIDTH || last == '.';
        bool breaks = *text == '\n' || (filled && *text == ' ' && ends);
        if (!column && (*text == '.' || *text == '\'')) fputs("\\&", stdout);
        fputs(*text == '\\' ? "\\e" : (char[2]){breaks ? '\n' : *text, 0}, stdout);
        column = breaks ? 0 : column + 1;
    }
}

/* Prints a quoted macro argument, so that spaces and macro names have no effect. */
static void print_argument(const char *text)
{
    putchar('"');
    for (; *text; text++)
        fputs(*text == '"' ? "\"\"" : *text == '\\' ? "\\e" : (char[2]){*text, 0}, stdout);
    putchar('"');
}

static void print_upper(const char *text)
{
    for (; *text; text++)
        putchar(toupper((unsigned char)*text));
}

static void print_literal(const char *text)
{
    printf(".Bd -literal\n");
    print_text(text, false);
    printf(".Ed\n");
}

static void print_option(const kvf__option_row *row)
{
    printf(".It Fl -%s", row->name);
    if (row->argument) {
        printf(" Ar ");
        print_argument(row->argument);
    }
    putchar('\n');
    print_text(row->help, true);
    if (row->initial && *row->initial) {
        fputs("\n(default: ", stdout);
        print_text(row->initial, true);
        putchar(')');
    }
    putchar('\n');
}

/* Prints the rows of a command from an index on. */
static void print_options(const cli_command *command, size_t from)
{
    const kvf__option_row *row;
    printf(".Bl -tag -width Ds\n");
    for (size_t i = from; (row = cli_row(command, i)) != NULL; i++)
        print_option(row);
    printf(".El\n");
}

/* Prints everything up to the text of the first section. command NULL: the program. */
static void print_head(const cli_command *command, const char *description)
{
    printf(".Dd November 22, 2026\n.Dt KVFOLD%s", command ? "-" : "");
    print_upper(command ? command->name : "");
    printf(" 1\n.Os\n.Sh NAME\n.Nm kvfold%s%s\n.Nd ", command ? "-" : "",
           command ? command->name : "");
    print_argument(description);
    printf("\n.Sh SYNOPSIS\n");
}

/* ---- kvfold-COMMAND(1) ----------------------------------------------------------------------- */

/* Lists kvfold(1) and the other commands of the group. */
static void print_see_also(const cli_command *command)
{
    const cli_command *other;
    printf(".Sh SEE ALSO\n.Xr kvfold 1");
    for (size_t i = 0; (other = cli_command_at(i)) != NULL; i++)
        if (other != command && other->group == command->group)
            printf(" ,\n.Xr kvfold-%s 1", other->name);
    putchar('\n');
}

static void print_command(const cli_command *command)
{
    print_head(command, command->summary);
    printf(".Nm kvfold %s\n", command->name);
    print_text(command->synopsis, true);
    printf("\n.Sh OPTIONS\n");
    print_options(command, 0);
    if (command->notes) {
        printf(".Sh NOTES\n");
        print_literal(command->notes);
    }
    print_see_also(command);
}

/* ---- kvfold(1) ------------------------------------------------------------------------------- */

static void print_commands(void)
{
    const cli_command *command;
    printf(".Sh COMMANDS\nThe commands are, to\n");
    for (int group = 0; group < CLI_GROUPS; group++) {
        printf(".Ss %s\n.Bl -tag -width Ds\n", cli_group_titles[group]);
        for (size_t i = 0; (command = cli_command_at(i)) != NULL; i++) {
            if ((int)command->group != group) continue;
            printf(".It Xr kvfold-%s 1\n", command->name);
            print_text(command->summary, true);
            putchar('\n');
        }
        printf(".El\n");
    }
}

static void print_common_options(void)
{
    const cli_command *command = cli_command_at(0);
    size_t own = 0;
    while (cli_row(command, own) && strcmp(cli_row(command, own)->name, "threads"))
        own++;
    printf(".Sh OPTIONS\nEvery command has these besides its own:\n");
    print_options(command, own);
}

static void print_program(void)
{
    const char *name, *text;
    print_head(NULL, "train key/value prefixes for frozen transformers, and fold them");
    printf(".Nm\n.Ar command\n.Op Ar options\n.Nm\n.Cm help\n.Op Ar command | topic\n"
           ".Nm\n.Fl -version\n.Sh DESCRIPTION\n");
    print_text(cli_description, true);
    putchar('\n');
    print_commands();
    print_common_options();
    printf(".Sh TOPICS\n");
    for (size_t i = 0; (text = cli_topic(i, &name)) != NULL; i++) {
        printf(".Ss %s\n", name);
        print_literal(text);
    }
    printf(".Sh EXIT STATUS\n");
    print_text(cli_exit_status, true);
    putchar('\n');
    printf(".Sh EXAMPLES\n");
    print_literal(cli_examples);
    printf(".Sh SEE ALSO\n"
           "X. L. Li and P. Liang,\n" /* not .Rs: groff 1.22 warns about every .%A */
           ".Em Prefix-Tuning: Optimizing Continuous Prompts for Generation ,\n2021.\n.Pp\n"
           "X. Liu,\n.Em P-Tuning v2 ,\n2022.\n");
}

int cli_man(const char *name)
{
    const cli_command *command = name ? cli_command_find(name) : NULL;
    if (name && !command) return cli_misuse(NULL, "--man: command \"%s\" is not known", name);
    if (command)
        print_command(command);
    else
        print_program();
    return CLI_OK;
}
