/* Prints help from the tables of the parser, wrapped at 80 columns, with defaults. */
#include "cli_int.h"

#include <string.h>

enum { WIDTH = 80, COLUMN = 26 };

/* Prints the words of `text` from column `at` on, broken at WIDTH, continued at `indent`. */
static void print_wrapped(const char *text, size_t at, size_t indent)
{
    for (size_t n; *text; text += n + (text[n] == ' ')) {
        n = strcspn(text, " ");
        if (at > indent && at + 1 + n > WIDTH) {
            printf("\n%*s", (int)indent, "");
            at = indent;
        } else if (at > indent) {
            putchar(' ');
            at++;
        }
        printf("%.*s", (int)n, text);
        at += n;
    }
    putchar('\n');
}

/* Breaks a name with more alternatives than fit on a line. Returns the rest for the last line. */
static const char *print_full_lines(const char *left)
{
    while (strlen(left) > WIDTH) {
        size_t n = WIDTH;
        while (n > 1 && left[n - 1] != '|')
            n--;
        printf("%.*s\n      ", (int)n, left);
        left += n;
    }
    return left;
}

static void print_option(const kvf__option_row *row)
{
    char left[128], text[512];
    snprintf(left, sizeof left, "  --%s%s%s", row->name, row->argument ? " " : "",
             row->argument ? row->argument : "");
    const char *initial = row->initial ? row->initial : "";
    snprintf(text, sizeof text, *initial ? "%s (default: %s)" : "%s", row->help, initial);
    if (strlen(left) + 2 > COLUMN)
        printf("%s\n%*s", print_full_lines(left), COLUMN, "");
    else
        printf("%-*s", COLUMN, left);
    print_wrapped(text, COLUMN, COLUMN);
}

/* Prints paragraphs, one per line; a line that begins with a space is printed unchanged. */
static void print_notes(const char *text)
{
    char line[2048];
    putchar('\n');
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        if (*line == ' ')
            puts(line);
        else
            print_wrapped(line, 0, 0);
    }
}

/* Prints the groups of usual options, the examples, and the number of other options. */
static void print_usual(const cli_command *command)
{
    char name[64];
    size_t shown = 0, all = 0;
    for (const char *at = command->usual; *at; at++) {
        const size_t title = strcspn(at, ":");
        printf("\n%.*s:\n", (int)title, at);
        for (at += title + 1; *at == ' '; shown++) {
            const size_t n = strcspn(++at, " \n");
            snprintf(name, sizeof name, "%.*s", (int)n, at);
            print_option(cli_row_find(command, name));
            at += n;
        }
    }
    while (cli_row(command, all))
        all++;
    printf("\nexamples:\n%s\n`kvfold %s --help all` shows the other %zu options.\n",
           command->examples, command->name, all - shown);
}

void cli_help_command(const cli_command *command, bool all)
{
    const kvf__option_row *row;
    size_t indent = (size_t)printf("usage: kvfold %s ", command->name);
    print_wrapped(command->synopsis, indent, indent);
    putchar('\n');
    print_wrapped(command->summary, 0, 0);
    if (command->usual && !all) {
        print_usual(command);
        return;
    }
    printf("\noptions:\n");
    for (size_t i = 0; (row = cli_row(command, i)) != NULL; i++)
        print_option(row);
    if (command->notes) print_notes(command->notes);
}

const char *const cli_group_titles[CLI_GROUPS] = {"train", "use what was trained",
                                                  "convert and edit files", "look inside",
                                                  "set up and measure kvfold"};

static void print_group(cli_group group, size_t column)
{
    const cli_command *command;
    printf("\ncommands to %s:\n", cli_group_titles[group]);
    for (size_t i = 0; (command = cli_command_at(i)) != NULL; i++) {
        if (command->group != group) continue;
        printf("  %-*s", (int)column - 2, command->name);
        print_wrapped(command->summary, column, column);
    }
}

void cli_help_program(void)
{
    const cli_command *command;
    const char *name;
    size_t column = 12; /* column of the summaries */
    for (size_t i = 0; (command = cli_command_at(i)) != NULL; i++)
        if (strlen(command->name) + 4 > column) column = strlen(command->name) + 4;
    printf("usage: kvfold COMMAND [options]\n\n");
    print_wrapped(cli_description, 0, 0);
    for (int group = 0; group < CLI_GROUPS; group++)
        print_group((cli_group)group, column);
    char topics[256] = "Show this text, the options of a command, or a topic:";
    for (size_t i = 0; cli_topic(i, &name); i++)
        snprintf(topics + strlen(topics), sizeof topics - strlen(topics), "%s %s", i ? "," : "",
                 name);
    printf("  %-*s", (int)column - 2, "help");
    print_wrapped(topics, column, column);
    printf("\n`kvfold COMMAND --help` lists the options of a command and their "
           "defaults.\n`kvfold --version` prints the versions of kvfold, oneDNN and "
           "HDF5.\n\nexit status:");
    print_wrapped(cli_exit_status, strlen("exit status:"), 0);
    printf("\nexamples:\n%s", cli_examples);
}

int cli_help_topic(const char *topic)
{
    const char *name, *text;
    const cli_command *command = cli_command_find(topic);
    if (command) {
        cli_help_command(command, false);
        return CLI_OK;
    }
    for (size_t i = 0; (text = cli_topic(i, &name)) != NULL; i++)
        if (!strcmp(name, topic)) {
            fputs(text, stdout);
            return CLI_OK;
        }
    kvf__nearest nearest = {.word = topic, .n = strlen(topic)};
    for (size_t i = 0; (command = cli_command_at(i)) != NULL; i++)
        kvf__nearest_try(&nearest, command->name);
    for (size_t i = 0; cli_topic(i, &name); i++)
        kvf__nearest_try(&nearest, name);
    return cli_misuse(NULL, "help: topic \"%s\" is not known%s%s", topic,
                      nearest.name ? ", the nearest is " : "", nearest.name ? nearest.name : "");
}
