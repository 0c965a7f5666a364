/* kvfold completion: prints completion scripts for shells, made from the tables of options. An
 * option's argument determines its completion: alternatives ("f32|bf16"), a path (FILE, PATH, DIR,
 * a name with a dot), or nothing. Formats: bash's programmable completion (compgen, COMPREPLY),
 * zsh's _arguments, fish's complete. */
#include "cli_int.h"

#include <ctype.h>
#include <string.h>

typedef enum guess { GUESS_NONE, GUESS_WORDS, GUESS_PATH } guess;

/* True if an alternative is a literal word, not the name of a number. */
static bool is_word(const char *at, size_t n)
{
    return n && !(at[0] == 'N' && (n == 1 || !isalpha((unsigned char)at[1]))) &&
           !memchr(at, '=', n) && !memchr(at, ':', n);
}

static guess guess_of(const char *argument)
{
    static const char *const PATHS[] = {"FILE", "PATH", "DIR", "."};
    if (!argument) return GUESS_NONE;
    if (strchr(argument, '|')) return GUESS_WORDS;
    for (size_t i = 0; i < sizeof PATHS / sizeof PATHS[0]; i++)
        if (strstr(argument, PATHS[i]) && !strstr(argument, "...")) return GUESS_PATH;
    return GUESS_NONE;
}

/* Prints the alternatives of "a|b|c" separated by spaces. */
static void print_words(const char *argument)
{
    const char *gap = "";
    for (const char *at = argument; *at;) {
        size_t n = strcspn(at, "|");
        if (is_word(at, n)) {
            printf("%s%.*s", gap, (int)n, at);
            gap = " ";
        }
        at += n + (at[n] == '|');
    }
}

/* Completion of an option's value: alternatives, a path, or anything else. */
typedef struct value_form {
    const char *before, *after, *path, *other;
} value_form;

static void print_value(const value_form *form, const char *argument)
{
    const guess kind = guess_of(argument);
    fputs(kind == GUESS_WORDS  ? form->before
          : kind == GUESS_PATH ? form->path
                               : form->other,
          stdout);
    if (kind != GUESS_WORDS) return;
    print_words(argument);
    fputs(form->after, stdout);
}

/* Prints text for single quotes of a shell, with the format's special characters escaped by `mark`.
 */
static void print_quoted(const char *text, const char *special, char mark)
{
    for (; *text; text++) {
        if (*text == '\'') {
            fputs("'\\''", stdout);
            continue;
        }
        if (strchr(special, *text)) putchar(mark);
        putchar(*text);
    }
}

/* Returns the alternatives of a command's operand, from the first word of its synopsis. NULL: a
 * file. */
static const char *operand_words(const cli_command *command, char buf[64])
{
    size_t n = strcspn(command->synopsis, " ");
    snprintf(buf, 64, "%.*s", (int)n, command->synopsis);
    return command->operands && guess_of(buf) == GUESS_WORDS ? buf : NULL;
}

static void print_commands(void)
{
    const cli_command *command;
    for (size_t i = 0; (command = cli_command_at(i)) != NULL; i++)
        printf("%s ", command->name);
    fputs("help", stdout);
}

static void print_topics(void)
{
    const char *name;
    for (size_t i = 0; cli_topic(i, &name); i++)
        printf(" %s", name);
}

/* ---- bash ------------------------------------------------------------------------------------ */

static void bash_command(const cli_command *command)
{
    static const value_form BASH = {"COMPREPLY=($(compgen -W '", "' -- \"$word\")); return ;;\n",
                                    "COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n",
                                    "return ;;\n"};
    const kvf__option_row *row;
    char buf[64];
    const char *words = operand_words(command, buf);
    printf("    %s)\n        case $before in\n", command->name);
    for (size_t i = 0; (row = cli_row(command, i)) != NULL; i++) {
        if (!row->argument) continue;
        printf("        --%s) ", row->name);
        print_value(&BASH, row->argument);
    }
    printf("        esac\n        options='");
    for (size_t i = 0; (row = cli_row(command, i)) != NULL; i++)
        printf("%s--%s", i ? " " : "", row->name);
    if (words) {
        printf("'\n        words='");
        print_words(words);
    }
    printf("' ;;\n");
}

static void print_bash(void)
{
    const cli_command *command;
    printf("# bash completion for kvfold; made by `kvfold completion bash`\n"
           "_kvfold()\n{\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options= "
           "words=\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "        COMPREPLY=($(compgen -W '");
    print_commands();
    printf(" --help --version' -- \"$word\"))\n        return\n    fi\n"
           "    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; (command = cli_command_at(i)) != NULL; i++)
        bash_command(command);
    printf("    help) COMPREPLY=($(compgen -W '");
    print_commands();
    print_topics();
    printf("' -- \"$word\")); return ;;\n"
           "    esac\n"
           "    case $word in\n"
           "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
           "    *) if [ -n \"$words\" ]; then COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
           "       else COMPREPLY=($(compgen -f -- \"$word\")); fi ;;\n"
           "    esac\n}\n"
           "complete -o filenames -F _kvfold kvfold\n");
}

/* ---- zsh ------------------------------------------------------------------------------------- */

static void zsh_option(const kvf__option_row *row)
{
    static const value_form ZSH = {"(", ")", "_files", ""};
    printf(" \\\n            '--%s[", row->name);
    print_quoted(row->help, "[]:\\", '\\');
    putchar(']');
    if (row->argument) {
        putchar(':');
        print_quoted(row->argument, ":\\", '\\');
        putchar(':');
        print_value(&ZSH, row->argument);
    }
    putchar('\'');
}

static void zsh_command(const cli_command *command)
{
    const kvf__option_row *row;
    char buf[64];
    const char *words = operand_words(command, buf);
    printf("        %s)\n            _arguments", command->name);
    for (size_t i = 0; (row = cli_row(command, i)) != NULL; i++)
        zsh_option(row);
    fputs(words ? " \\\n            '*:which:(" : " \\\n            '*:file:_files' ;;\n", stdout);
    if (!words) return;
    print_words(words);
    fputs(")' ;;\n", stdout);
}

static void print_zsh(void)
{
    const cli_command *command;
    printf("#compdef kvfold\n# zsh completion for kvfold; made by `kvfold completion zsh`\n"
           "_kvfold()\n{\n    local -a commands=(\n");
    for (size_t i = 0; (command = cli_command_at(i)) != NULL; i++) {
        printf("        '%s:", command->name);
        print_quoted(command->summary, ":\\", '\\');
        printf("'\n");
    }
    printf("        'help:glossary, files, methods and the options of a command'\n    )\n"
           "    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n"
           "    fi\n    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n"
           "    case $command in\n");
    for (size_t i = 0; (command = cli_command_at(i)) != NULL; i++)
        zsh_command(command);
    printf("        help)\n            _arguments '1:topic:(");
    print_commands();
    print_topics();
    printf(")' ;;\n    esac\n}\n_kvfold \"$@\"\n");
}

/* ---- fish ------------------------------------------------------------------------------------ */

static void fish_option(const cli_command *command, const kvf__option_row *row)
{
    static const value_form FISH = {" -x -a '", "'", " -r -F", " -x"};
    printf("complete -c kvfold -n '__fish_seen_subcommand_from %s' -l %s", command->name,
           row->name);
    if (row->argument) print_value(&FISH, row->argument);
    fputs(" -d '", stdout);
    for (const char *at = row->help; *at; at++) {
        if (strchr("'\\", *at)) putchar('\\');
        putchar(*at);
    }
    puts("'");
}

static void print_fish(void)
{
    const cli_command *command;
    const kvf__option_row *row;
    char buf[64];
    printf("# fish completion for kvfold; made by `kvfold completion fish`\n"
           "complete -c kvfold -n __fish_use_subcommand -f -a '");
    print_commands();
    printf("'\ncomplete -c kvfold -n '__fish_seen_subcommand_from help' -f -a '");
    print_commands();
    print_topics();
    printf("'\n");
    for (size_t i = 0; (command = cli_command_at(i)) != NULL; i++) {
        const char *words = operand_words(command, buf);
        if (words) {
            printf("complete -c kvfold -n '__fish_seen_subcommand_from %s' -f -a '", command->name);
            print_words(words);
            puts("'");
        }
        for (size_t k = 0; (row = cli_row(command, k)) != NULL; k++)
            fish_option(command, row);
    }
}

/* ---- the command ----------------------------------------------------------------------------- */

static int run(cli_call *call)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } SHELLS[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < sizeof SHELLS / sizeof SHELLS[0]; i++)
        if (!strcmp(call->operands[0], SHELLS[i].name)) {
            SHELLS[i].print();
            return CLI_OK;
        }
    return cli_misuse(call->command, "shell \"%s\": want bash, zsh or fish", call->operands[0]);
}

const cli_command cli_completion = {
    .name = "completion",
    .group = CLI_PROGRAM,
    .synopsis = "bash|zsh|fish",
    .summary = "Prints a script that completes kvfold's commands and options in a shell.",
    .notes = "examples:\n"
             "  kvfold completion bash > ~/.local/share/bash-completion/completions/kvfold\n"
             "  kvfold completion zsh > ~/.zfunc/_kvfold\n"
             "  kvfold completion fish > ~/.config/fish/completions/kvfold.fish\n",
    .operands = 1,
    .run = run,
};
