/* Manual pages of single commands, kvfold-COMMAND(1), out of the tables that the parser reads; made
 * by `kvfold --man COMMAND` when kvfold is built. kvfold(1) is written by hand and says more.
 * Language: mdoc(7). */
#include "cli_int.h"

#include <ctype.h>
#include <string.h>

enum { WIDTH = 60 }; /* where lines of the source are broken */

/* Text of mdoc: what begins a request or an escape is neither. filled: lines may be broken. */
static void print_text(const char *text, bool filled)
{
    int column = 0;
    for (; *text; text++) {
        bool breaks = *text == '\n' || (filled && *text == ' ' && column > WIDTH);
        if (!column && (*text == '.' || *text == '\'')) fputs("\\&", stdout);
        fputs(*text == '\\' ? "\\e" : (char[2]){breaks ? '\n' : *text, 0}, stdout);
        column = breaks ? 0 : column + 1;
    }
}

/* An argument of a macro: quoted, so that neither spaces nor names of macros count. */
static void print_argument(const char *text)
{
    putchar('"');
    for (; *text; text++)
        fputs(*text == '"' ? "\"\"" : *text == '\\' ? "\\e" : (char[2]){*text, 0}, stdout);
    putchar('"');
}

static void print_option(const kvf_option_row *row)
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

/* kvfold(1), and the other commands that are for the same. */
static void print_see_also(const cli_command *command)
{
    const cli_command *other;
    printf(".Sh SEE ALSO\n.Xr kvfold 1");
    for (size_t i = 0; (other = cli_command_at(i)) != NULL; i++)
        if (other != command && other->group == command->group)
            printf(" ,\n.Xr kvfold-%s 1", other->name);
    putchar('\n');
}

int cli_man(const char *name)
{
    const kvf_option_row *row;
    const cli_command *command = cli_command_find(name);
    if (!command) return cli_misuse(NULL, "--man: command \"%s\" is not known", name);
    printf(".Dd November 21, 2026\n.Dt KVFOLD-");
    for (const char *c = name; *c; c++)
        putchar(toupper((unsigned char)*c));
    printf(" 1\n.Os\n.Sh NAME\n.Nm kvfold-%s\n.Nd ", name);
    print_argument(command->summary);
    printf("\n.Sh SYNOPSIS\n.Nm kvfold %s\n", name);
    print_text(command->synopsis, true);
    printf("\n.Sh OPTIONS\n.Bl -tag -width Ds\n");
    for (size_t i = 0; (row = cli_row(command, i)) != NULL; i++)
        print_option(row);
    printf(".El\n");
    if (command->notes) {
        printf(".Sh NOTES\n.Bd -literal\n");
        print_text(command->notes, false);
        printf(".Ed\n");
    }
    print_see_also(command);
    return CLI_OK;
}
