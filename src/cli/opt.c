/* The command line against a command's tables. Long options only, `--name value` and
 * `--name=value`, besides -h. First half: what was given (cli_parse); second half, when a context
 * exists: values into fields (cli_set_values). */
#include "cli_int.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const cli_option COMMON[] = {
    {{"threads", "N", "all cores", "threads to compute with"},
     CLI_COUNT,
     offsetof(cli_common, threads)},
    {{"json", NULL, "", "print one JSON object instead of text"},
     CLI_FLAG,
     offsetof(cli_common, json)},
    {{"quiet", NULL, "", "no progress, no warnings"}, CLI_FLAG, offsetof(cli_common, quiet)},
    {{"help", NULL, "", "print this text, also -h"}, CLI_FLAG, 0},
};
enum { N_SET = 3, N_COMMON = 4 }; /* help is no field */

/* ---- rows ------------------------------------------------------------------------------------ */

const kvf_option_row *cli_row(const cli_command *command, size_t index)
{
    size_t n = 0;
    while (command->library_row && command->library_row(n)) {
        if (n == index) return command->library_row(n);
        n++;
    }
    index -= n;
    if (index < command->n_options) return &command->options[index].row;
    index -= command->n_options;
    return index < N_COMMON ? &COMMON[index].row : NULL;
}

const kvf_option_row *cli_row_find(const cli_command *command, const char *name)
{
    const kvf_option_row *row;
    for (size_t i = 0; (row = cli_row(command, i)) != NULL; i++)
        if (!strcmp(row->name, name)) return row;
    return NULL;
}

/* The row of "name" or "name=value" (n bytes of name). */
static const kvf_option_row *find_prefix(const cli_command *command, const char *name, size_t n)
{
    const kvf_option_row *row;
    for (size_t i = 0; (row = cli_row(command, i)) != NULL; i++)
        if (strlen(row->name) == n && !memcmp(row->name, name, n)) return row;
    return NULL;
}

/* ---- names that are not known ---------------------------------------------------------------- */

enum { LONGEST_NAME = 31 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Letters to insert, remove, change or swap with the next to come from a[n] to b (Damerau). */
static int distance(const char *a, size_t n, const char *b)
{
    int rows[3][LONGEST_NAME + 1], *before = rows[0], *last = rows[1], *row = rows[2];
    const size_t m = strlen(b);
    for (size_t k = 0; k <= m; k++)
        row[k] = (int)k;
    for (size_t i = 1; i <= n; i++) {
        int *free_row = before;
        before = last;
        last = row;
        row = free_row;
        row[0] = (int)i;
        for (size_t k = 1; k <= m; k++) {
            row[k] = least(least(last[k], row[k - 1]) + 1, last[k - 1] + (a[i - 1] != b[k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                row[k] = least(row[k], before[k - 2] + 1);
        }
    }
    return row[m];
}

void cli_nearest_try(cli_nearest *nearest, const char *name)
{
    size_t n = nearest->n;
    if (!n || n > LONGEST_NAME || strlen(name) > LONGEST_NAME) return;
    int far = distance(nearest->word, n, name);
    if (!far || far > 1 + (int)n / 4 || (nearest->name && far >= nearest->far)) return;
    nearest->name = name;
    nearest->far = far;
}

static const char *nearest_option(const cli_command *command, const char *name, size_t n)
{
    const kvf_option_row *row;
    cli_nearest nearest = {.word = name, .n = n};
    for (size_t i = 0; (row = cli_row(command, i)) != NULL; i++)
        cli_nearest_try(&nearest, row->name);
    return nearest.name;
}

int cli_unknown_option(const cli_command *command, const cli_given *given, const char *name,
                       size_t n)
{
    char line[256], word[64], near[64] = "";
    const char *dashes = given->file ? "" : "--", *quote = given->file ? "\"" : "";
    snprintf(word, sizeof word, "%.*s", (int)n, name);
    const char *why = command->refusal ? command->refusal(word) : NULL;
    const char *nearest = nearest_option(command, name, n);
    if (nearest) snprintf(near, sizeof near, ", the nearest is %s%s", dashes, nearest);
    if (why)
        snprintf(line, sizeof line, "--%s: %s", word, why);
    else
        snprintf(line, sizeof line, "option %s%s%s%s is not known%s", dashes, quote, word, quote,
                 near);
    return cli_misuse_at(command, given, line);
}

/* ---- what was given -------------------------------------------------------------------------- */

/* One option at argv[*i], and its value, which may be argv[*i + 1]. */
static int parse_option(cli_call *call, int argc, char **argv, int *i)
{
    const char *name = argv[*i] + 2, *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    const kvf_option_row *row = find_prefix(call->command, name, n);
    if (!row) return cli_unknown_option(call->command, &(cli_given){0}, name, n);
    if (!strcmp(row->name, "help") && !equals) {
        call->help = true;
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

const char *cli_given_value(const cli_call *call, const char *name)
{
    for (size_t i = call->n_given; i > 0; i--)
        if (!strcmp(call->given[i - 1].name, name)) return call->given[i - 1].value;
    return NULL;
}

static bool is_given(const cli_call *call, const char *name)
{
    for (size_t i = 0; i < call->n_given; i++)
        if (!strcmp(call->given[i].name, name)) return true;
    return false;
}

int cli_check_needs(const cli_call *call, const cli_need *needs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_given(call, needs[i].option) && !is_given(call, needs[i].needs))
            return cli_misuse(call->command, "--%s needs --%s", needs[i].option, needs[i].needs);
    return CLI_OK;
}

static int check_required(const cli_call *call)
{
    char name[32];
    const char *at = call->command->required;
    for (size_t n; at && *at; at += n + (at[n] == ' ')) {
        n = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        const kvf_option_row *row = cli_row_find(call->command, name);
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
        const char *word = command->synopsis; /* synopses begin with the operands */
        for (size_t i = 0; i < call->n_operands; i++)
            word += strcspn(word, " ") + 1;
        return cli_misuse(command, "%.*s is missing", (int)strcspn(word, " "), word);
    }
    return check_required(call);
}

/* ---- values ---------------------------------------------------------------------------------- */

static int bad_value(const cli_call *call, const cli_given *given, const char *want)
{
    char line[512];
    snprintf(line, sizeof line, "--%s \"%s\": want %s", given->name,
             given->value ? given->value : "", want);
    return cli_misuse_at(call->command, given, line);
}

static bool is_choice(const char *choices, const char *value)
{
    size_t n = strlen(value);
    for (const char *at = choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (n && !strncmp(at, value, n) && (at[n] == '|' || !at[n])) return true;
    return false;
}

/* A whole number from 0 to max; false if the text is none. */
static bool read_whole(const char *text, uint64_t max, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || errno || *end || number > max) return false;
    *out = number;
    return true;
}

static int set_number(const cli_call *call, const cli_given *given, cli_kind kind, void *at)
{
    uint64_t whole = 0;
    char *end = NULL;
    if (kind == CLI_REAL) {
        double real = strtod(given->value, &end);
        if (end == given->value || *end || !isfinite(real))
            return bad_value(call, given, "a number");
        *(double *)at = real;
        return CLI_OK;
    }
    bool seed = kind == CLI_SEED, positive = kind == CLI_POSITIVE;
    if (!read_whole(given->value, seed ? INT64_MAX : INT32_MAX, &whole) || (positive && !whole))
        return bad_value(call, given,
                         seed       ? "a whole number from 0 to 9223372036854775807"
                         : positive ? "a whole number from 1 to 2147483647"
                                    : "a whole number from 0 to 2147483647");
    if (seed)
        *(uint64_t *)at = whole;
    else
        *(int64_t *)at = (int64_t)whole;
    return CLI_OK;
}

/* A flag has a value only in a recipe. */
static int set_flag(const cli_call *call, const cli_given *given, bool *at)
{
    bool on = !given->value || !strcmp(given->value, "true");
    if (!on && strcmp(given->value, "false")) return bad_value(call, given, "true or false");
    *at = on;
    return CLI_OK;
}

static int set_value(const cli_call *call, const cli_given *given, const cli_option *option,
                     void *at)
{
    cli_texts *texts = at;
    switch (option->kind) {
    case CLI_FLAG:
        return set_flag(call, given, at);
    case CLI_TEXTS:
        texts->at[texts->n++] = given->value;
        return CLI_OK;
    case CLI_CHOICE:
        if (!is_choice(option->row.argument, given->value))
            return bad_value(call, given, option->row.argument);
        /* fall through */
    case CLI_TEXT:
        *(const char **)at = given->value;
        return CLI_OK;
    default:
        return set_number(call, given, option->kind, at);
    }
}

int cli_set_values(const cli_call *call, const cli_option *options, size_t n, void *values)
{
    for (size_t i = 0; i < call->n_given; i++)
        for (size_t k = 0; k < n; k++) {
            if (strcmp(call->given[i].name, options[k].row.name)) continue;
            int code = set_value(call, &call->given[i], &options[k],
                                 (char *)values + options[k].offset);
            if (code) return code;
        }
    return CLI_OK;
}

int cli_set_common(cli_call *call)
{
    return cli_set_values(call, COMMON, N_SET, &call->common);
}

bool cli_texts_init(const cli_call *call, cli_texts *texts)
{
    *texts = (cli_texts){.at = calloc(call->n_given + 1, sizeof *texts->at)};
    if (!texts->at) cli_fail(call->command, "out of memory");
    return texts->at != NULL;
}

void cli_texts_done(cli_texts *texts)
{
    free(texts->at);
    *texts = (cli_texts){0};
}
