/* Parses the command line by a command's tables. Only long options, `--name value` and
 * `--name=value`, besides -h. First part: which options were given (cli_parse). Second part, once a
 * context exists: values to fields (cli_set_values). */
#include "cli_int.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(cli_common, field)
static const kvf__option_row COMMON[] = {
    {"threads", "N", "all cores", KVF_COUNT, AT(threads), "number of threads"},
    {"json", NULL, "", KVF_FLAG, AT(json), "print one JSON object instead of text"},
    {"quiet", NULL, "", KVF_FLAG, AT(quiet), "print no progress and no warnings"},
    {"help", NULL, "", KVF_NO_FIELD, 0, "print this help, also -h; --help all: every option"},
};
enum { N_COMMON = sizeof COMMON / sizeof COMMON[0] };

/* ---- rows ------------------------------------------------------------------------------------ */

const kvf__option_row *cli_row(const cli_command *command, size_t index)
{
    if (index < command->n_options) return &command->options[index];
    index -= command->n_options;
    for (size_t n = 0; command->train_row && command->train_row(n); n++)
        if (!index--) return command->train_row(n);
    return index < N_COMMON ? &COMMON[index] : NULL;
}

const kvf__option_row *cli_row_find(const cli_command *command, const char *name)
{
    const kvf__option_row *row;
    for (size_t i = 0; (row = cli_row(command, i)) != NULL; i++)
        if (!strcmp(row->name, name)) return row;
    return NULL;
}

/* Finds the row of "name" or "name=value" (n bytes of name). */
static const kvf__option_row *find_start(const cli_command *command, const char *name, size_t n)
{
    char copy[64];
    if (n >= sizeof copy) return NULL;
    snprintf(copy, sizeof copy, "%.*s", (int)n, name);
    return cli_row_find(command, copy);
}

/* ---- what was given -------------------------------------------------------------------------- */

/* Parses the option at argv[*i]; its value may be argv[*i + 1]. */
static int parse_option(cli_call *call, int argc, char **argv, int *i)
{
    const char *name = argv[*i] + 2, *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    const kvf__option_row *row = find_start(call->command, name, n);
    if (!row) return cli_unknown_option(call->command, &(cli_given){0}, name, n);
    if (!strcmp(row->name, "help") && !equals) {
        call->help = true;
        call->help_all = *i + 1 < argc && !strcmp(argv[*i + 1], "all");
        return CLI_OK;
    }
    const char *value = NULL;
    if (!row->argument && equals)
        return cli_misuse(call->command, "--%s takes no value", row->name);
    if (row->argument) {
        if (!equals && *i + 1 >= argc)
            return cli_misuse(call->command, "--%s needs a value: %s", row->name, row->argument);
        value = equals ? equals + 1 : argv[++*i];
    }
    call->given[call->n_given++] = (cli_given){.name = row->name, .value = value};
    return CLI_OK;
}

int cli_parse(cli_call *call, int argc, char **argv)
{
    bool operands_only = false;
    call->given = calloc((size_t)argc + 1, sizeof *call->given);
    call->operands = calloc((size_t)argc + 1, sizeof *call->operands);
    if (!call->given || !call->operands) return cli_fail(call->command, "out of memory");
    for (int i = 0; i < argc && !call->help; i++) {
        const char *arg = argv[i];
        int code = CLI_OK;
        if (operands_only || arg[0] != '-' || !arg[1])
            call->operands[call->n_operands++] = arg;
        else if (!strcmp(arg, "--"))
            operands_only = true;
        else if (!strcmp(arg, "-h"))
            call->help = true;
        else if (arg[1] == '-')
            code = parse_option(call, argc, argv, &i);
        else
            code = cli_misuse(call->command, "option %s is not known", arg);
        if (code) return code;
    }
    return CLI_OK;
}

void cli_call_done(cli_call *call)
{
    free(call->given);
    free(call->sections);
    free(call->operands);
    free(call->texts);
    free(call->recipe);
}

const char *cli_given_value(const cli_call *call, const char *name)
{
    for (size_t i = call->n_given; i > 0; i--)
        if (!strcmp(call->given[i - 1].name, name)) return call->given[i - 1].value;
    return NULL;
}

bool cli_is_given(const cli_call *call, const char *name)
{
    for (size_t i = 0; i < call->n_given; i++)
        if (!strcmp(call->given[i].name, name)) return true;
    return false;
}

/* Takes the next word of *list; false at its end. */
static bool next_word(const char **list, char word[64])
{
    if (!*list || !**list) return false;
    const size_t n = strcspn(*list, " ");
    snprintf(word, 64, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ' ');
    return true;
}

static int check_needs(const cli_call *call)
{
    const char *list = call->command->needs;
    char word[64];
    while (next_word(&list, word)) {
        char *other = strchr(word, '>');
        *other++ = 0;
        if (cli_is_given(call, word) && !cli_is_given(call, other))
            return cli_misuse(call->command, "--%s needs --%s", word, other);
    }
    return CLI_OK;
}

static int check_required(const cli_call *call)
{
    const char *list = call->command->required;
    char name[64];
    while (next_word(&list, name)) {
        const kvf__option_row *row = cli_row_find(call->command, name);
        if (row && !cli_given_value(call, name))
            return cli_misuse(call->command, "--%s %s is needed", name, row->argument);
    }
    return CLI_OK;
}

int cli_check_given(const cli_call *call)
{
    const cli_command *command = call->command;
    if (call->n_operands > command->operands && !command->more_operands)
        return cli_misuse(command, "unexpected argument \"%s\"", call->operands[command->operands]);
    if (call->n_operands < command->operands) {
        const char *word = command->synopsis; /* a synopsis begins with the operands */
        for (size_t i = 0; i < call->n_operands; i++)
            word += strcspn(word, " ") + 1;
        return cli_misuse(command, "%.*s is missing", (int)strcspn(word, " "), word);
    }
    return check_required(call);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Gathers all values of a list, so that they are contiguous. */
static void gather_texts(cli_call *call, const kvf__option_row *row, kvf__strings *list)
{
    if (list->n) return;
    list->item = call->texts + call->n_texts;
    for (size_t i = 0; i < call->n_given; i++)
        if (!strcmp(call->given[i].name, row->name)) list->item[list->n++] = call->given[i].value;
    call->n_texts += list->n;
}

static int set_value(cli_call *call, const cli_given *given, const kvf__option_row *row,
                     void *values)
{
    if (row->kind == KVF_TEXTS) {
        gather_texts(call, row, (kvf__strings *)((char *)values + row->offset));
        return CLI_OK;
    }
    const char *want = kvf__option_set(row, given->value, values);
    if (!want) return CLI_OK;
    return cli_misuse_at(call->command, given, "--%s \"%s\": want %s", given->name,
                         given->value ? given->value : "", want);
}

/* Sets the given options that are among rows[n]. */
static int set_rows(cli_call *call, const kvf__option_row *rows, size_t n, void *values)
{
    for (size_t i = 0; i < call->n_given; i++)
        for (size_t k = 0; k < n; k++) {
            if (strcmp(call->given[i].name, rows[k].name)) continue;
            int code = set_value(call, &call->given[i], &rows[k], values);
            if (code) return code;
        }
    return CLI_OK;
}

/* Sets the given options of train, whose values the library checks. */
static int set_train_options(const cli_call *call, kvf_train_options *options)
{
    const kvf__option_row *row;
    for (size_t i = 0; i < call->n_given; i++)
        for (size_t k = 0; (row = call->command->train_row(k)) != NULL; k++) {
            const cli_given *given = &call->given[i];
            if (strcmp(row->name, given->name)) continue;
            if (kvf_train_set(call->ctx, options, given->name, given->value))
                return cli_misuse_at(call->command, given, "%s", kvf_ctx_error(call->ctx));
        }
    return CLI_OK;
}

int cli_set_common(cli_call *call)
{
    return set_rows(call, COMMON, N_COMMON, &call->common);
}

int cli_set_values(cli_call *call, void *values)
{
    const cli_command *command = call->command;
    call->texts = calloc(call->n_given + 1, sizeof *call->texts);
    if (!call->texts) return cli_fail(command, "out of memory");
    int code = set_rows(call, command->options, command->n_options, values);
    if (!code && command->train_row)
        code = set_train_options(call,
                                 (kvf_train_options *)((char *)values + command->train_offset));
    return code ? code : check_needs(call);
}
