/* The rows of kvfold compare's table and the options of each. compare_sections.c reads rows that
 * are sections of a file. Shared options come from --options FILE, a recipe of train, and from the
 * command line or the head of an experiment file. A method gets those that it supports
 * (kvf__train_option_applies); an option that no method supports is an error. An option of one row,
 * from --methods or a section, must be supported by its method. */
#include "cli_compare.h"
#include "compare_hooks.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* True for options of a train recipe that compare sets itself. */
static bool is_ours(const char *name)
{
    static const char *const NAMES[] = {"base", "lora",  "data", "valid", "method",
                                        "out",  "steps", "seed", "recipe"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (!strcmp(NAMES[i], name)) return true;
    return false;
}

/* True for options that another command gets from elsewhere. */
static bool is_place(const char *name)
{
    return !strcmp(name, "base") || !strcmp(name, "lora") || !strcmp(name, "data") ||
           !strcmp(name, "valid");
}

static bool is_for_all(const char *name)
{
    const kvf__option_row *row;
    for (size_t i = 0; (row = kvf__compare_option_row(i)) != NULL; i++)
        if (!strcmp(row->name, name)) return true;
    return false;
}

/* ---- the options of a row -------------------------------------------------------------------- */

/* --init-text and --init-kv apply only to rows that start from them. */
static bool starts_elsewhere(const cli_compared *row, const char *name)
{
    if (!row->init) return false;
    return (!strcmp(name, "init-text") && strcmp(row->init, "text")) ||
           (!strcmp(name, "init-kv") && strcmp(row->init, "kv"));
}

static bool has_shared(const cli_comparison *c, const cli_compared *row, const cli_given *g)
{
    if (!strcmp(g->name, "eval-every") && c->values->eval_every) return false;
    return kvf__train_option_applies(g->name, row->method) && !starts_elsewhere(row, g->name);
}

void cli_comparison_options(const cli_comparison *c, const cli_compared *row, cli_arguments *a)
{
    for (size_t i = 0; i < c->shared.n_given; i++) {
        const cli_given *g = &c->shared.given[i];
        if (has_shared(c, row, g))
            cli_argument_option(a, cli_row_find(&cli_train, g->name), g->value);
    }
    for (size_t i = 0; i < row->n; i++)
        cli_argument_option(a, cli_row_find(&cli_train, row->setting[i].name),
                            row->setting[i].value);
    if (row->init) cli_argument(a, "--init=%s", row->init);
}

bool cli_comparison_unfreezes(const cli_comparison *c, const cli_compared *row)
{
    const bool has = kvf__train_option_applies("unfreeze", row->method);
    const char *value = has ? cli_given_value(&c->shared, "unfreeze") : NULL;
    for (size_t i = 0; i < row->n; i++)
        if (!strcmp(row->setting[i].name, "unfreeze")) value = row->setting[i].value;
    return value && !strcmp(value, "base");
}

void cli_comparison_options_of(const cli_comparison *c, const cli_command *command,
                               cli_arguments *a)
{
    for (size_t i = 0; i < c->shared.n_given; i++) {
        const cli_given *g = &c->shared.given[i];
        const kvf__option_row *row = cli_row_find(command, g->name);
        if (row && !is_place(g->name)) cli_argument_option(a, row, g->value);
    }
}

kvf_json *cli_comparison_shared(const cli_comparison *c)
{
    kvf_json *object = kvf_json_object();
    for (size_t i = 0; i < c->shared.n_given; i++) {
        const cli_given *g = &c->shared.given[i];
        if (!is_place(g->name))
            kvf_json_set(object, g->name, kvf_json_new_str(g->value ? g->value : "true"));
    }
    return object;
}

/* ---- the rows -------------------------------------------------------------------------------- */

int cli_compared_set(cli_comparison *c, cli_compared *row, const cli_given *given)
{
    if (row->n == CLI_MOST_SETTINGS)
        return cli_misuse(c->call->command, "%s: want up to %d options", row->method,
                          (int)CLI_MOST_SETTINGS);
    row->setting[row->n++] = *given;
    return CLI_OK;
}

/* Parses "option=value" of --methods. */
static int set_one(cli_comparison *c, cli_compared *row, char *text)
{
    const cli_command *command = c->call->command;
    char *name, *value;
    if (!kvf__option_split(text, &name, &value) || !*value)
        return cli_misuse(command, "--methods: after %s want option=value, found \"%s\"",
                          row->method, text);
    const kvf__option_row *option = cli_row_find(&cli_train, name);
    if (!option || is_ours(option->name))
        return cli_misuse(command, "--methods: %s: \"%s\" is not an option of train that can vary",
                          row->method, name);
    if (!kvf__train_option_applies(option->name, row->method))
        return cli_misuse(command, "--methods: --%s is not for method %s", option->name,
                          row->method);
    return cli_compared_set(c, row, &(cli_given){.name = option->name, .value = value});
}

/* Parses "method:option=value:option=value". */
static int parse_row(cli_comparison *c, char *text, cli_compared *row)
{
    const kvf__option_row *methods = cli_row_find(&cli_train, "method");
    char *rest = NULL;
    *row = (cli_compared){.method = strtok_r(text, ":", &rest)};
    if (!row->method || kvf__choice_index(methods->argument, row->method) < 0)
        return cli_misuse(c->call->command, "--methods \"%s\": want %s",
                          row->method ? row->method : "", methods->argument);
    int code = CLI_OK;
    for (char *one; !code && (one = strtok_r(NULL, ":", &rest)) != NULL;)
        code = set_one(c, row, one);
    return code;
}

/* Replaces slashes and white space in a file name. */
void cli_compared_clean(char *name)
{
    for (; *name; name++)
        if (*name == '/' || isspace((unsigned char)*name)) *name = '_';
}

/* Appends " name=value" and "-name=value". */
void cli_compared_name(cli_compared *row, const char *name, const char *value)
{
    size_t at = strlen(row->name), file = strlen(row->file);
    snprintf(row->name + at, sizeof row->name - at, " %s=%s", name, value);
    snprintf(row->file + file, sizeof row->file - file, "-%s=%s", name, value);
    cli_compared_clean(row->file + file);
}

static void name_row(cli_compared *row)
{
    snprintf(row->name, sizeof row->name, "%s", row->method);
    snprintf(row->file, sizeof row->file, "%s%s%s", row->method, row->init ? "-" : "",
             row->init ? row->init : "");
    if (row->init) snprintf(row->name, sizeof row->name, "%s init=%s", row->method, row->init);
    for (size_t i = 0; i < row->n; i++)
        cli_compared_name(row, row->setting[i].name, row->setting[i].value);
}

/* Reports an error in a row, at its line of the experiment or of the command line. */
static int bad_row(const cli_comparison *c, const cli_compared *row, const cli_given *at,
                   const char *line)
{
    if (at && at->file) return cli_misuse_at(c->call->command, at, "%s", line);
    if (row->section) return cli_misuse_at(c->call->command, row->section, "%s", line);
    return cli_misuse(c->call->command, "%s: %s", row->name, line);
}

int cli_compared_keep(cli_comparison *c, const cli_compared *row)
{
    const cli_command *command = c->call->command;
    if (c->n == CLI_MOST_COMPARED)
        return cli_misuse(command, "want up to %d methods and starts", (int)CLI_MOST_COMPARED);
    for (size_t i = 0; i < c->n; i++) {
        if (strcmp(c->row[i].file, row->file)) continue;
        if (row->section)
            return cli_misuse_at(command, row->section, "%s is listed twice", row->name);
        return cli_misuse(command, "--methods: %s is listed twice", row->name);
    }
    c->row[c->n++] = *row;
    return CLI_OK;
}

/* ---- the lists ------------------------------------------------------------------------------- */

static int add_row(cli_comparison *c, cli_compared *row)
{
    name_row(row);
    return cli_compared_combine(c, row, 0);
}

/* Adds a row for each --init, or one if the method has none. */
static int add_starts(cli_comparison *c, cli_compared *row)
{
    int code = CLI_OK;
    if (!c->n_inits || !kvf__train_option_applies("init", row->method)) return add_row(c, row);
    for (size_t i = 0; i < c->n_inits && !code; i++) {
        row->init = c->init[i];
        code = add_row(c, row);
    }
    return code;
}

static int split_inits(cli_comparison *c)
{
    const char *known = cli_row_find(&cli_train, "init")->argument;
    char *rest = NULL;
    bool has_text = false;
    for (char *one = c->inits ? strtok_r(c->inits, ",", &rest) : NULL; one;
         one = strtok_r(NULL, ",", &rest)) {
        if (kvf__choice_index(known, one) < 0)
            return cli_misuse(c->call->command, "--inits \"%s\": want %s", one, known);
        if (c->n_inits == CLI_MOST_COMPARED)
            return cli_misuse(c->call->command, "--inits: want up to %d", (int)CLI_MOST_COMPARED);
        has_text |= !strcmp(one, "text");
        c->init[c->n_inits++] = one;
    }
    if (c->inits && !c->n_inits) return cli_misuse(c->call->command, "--inits is empty");
    if (c->inits && cli_given_value(c->call, "init-text") && !has_text)
        return cli_misuse(c->call->command, "--init-text needs text among --inits");
    return CLI_OK;
}

/* Adds the head alone as the first row, unless it was requested, the task has no head, several
 * tasks share a prefix, or time is short (--quick). */
static int add_head(cli_comparison *c)
{
    cli_compared head = {.method = "head"};
    char list[1024], *rest = NULL;
    snprintf(list, sizeof list, "%s", c->values->methods);
    for (char *one = strtok_r(list, ",", &rest); one; one = strtok_r(NULL, ",", &rest))
        if (!strncmp(one, "head", 4) && strchr(":", one[4])) return CLI_OK;
    if (!strcmp(c->task, "lm") || cli_given_value(&c->shared, "verbalizer")) return CLI_OK;
    if (c->values->train.named_data.n || c->values->quick) return CLI_OK;
    name_row(&head);
    return cli_compared_keep(c, &head);
}

static int add_methods(cli_comparison *c)
{
    char *rest = NULL;
    const size_t before = c->n;
    int code = CLI_OK;
    for (char *one = strtok_r(c->methods, ",", &rest); one && !code;
         one = strtok_r(NULL, ",", &rest)) {
        cli_compared row;
        code = parse_row(c, one, &row);
        if (!code) code = add_starts(c, &row);
    }
    if (code) return code;
    if (c->n == before) return cli_misuse(c->call->command, "--methods is empty");
    c->reference = c->row[before].name;
    return CLI_OK;
}

/* Adds the rows: sections of the file, or the lists. */
static int add_rows(cli_comparison *c)
{
    const cli_given *section = cli_sections_first(c->call);
    const char *list = cli_given_value(c->call, "methods") ? "methods" : c->inits ? "inits" : NULL;
    int code = cli_sections_read_axes(c);
    if (code) return code;
    if (!section) {
        code = add_head(c);
        return code ? code : add_methods(c);
    }
    if (list)
        return cli_misuse_at(
            c->call->command, section,
            "--%s and sections exclude each other, because the sections are the rows", list);
    code = cli_sections_add(c);
    c->reference = c->row[0].name;
    return code;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Checks that each shared option is supported by some row's method. */
static int check_shared(const cli_comparison *c)
{
    for (size_t i = 0; i < c->shared.n_given; i++) {
        const cli_given *g = &c->shared.given[i];
        size_t r = 0;
        while (r < c->n && !kvf__train_option_applies(g->name, c->row[r].method))
            r++;
        if (r < c->n) continue;
        return cli_misuse_at(c->call->command, g,
                             "%s%s: none of the compared methods has this option",
                             g->file ? "" : "--", g->name);
    }
    return CLI_OK;
}

/* Returns the row's option with which an error line begins, as "--NAME"; NULL: none. */
static const cli_given *named_in(const cli_comparison *c, const cli_compared *row, const char *line)
{
    if (strncmp(line, "--", 2)) return NULL;
    const size_t n = strcspn(line + 2, " :,");
    for (size_t i = row->n; i-- > 0;)
        if (strlen(row->setting[i].name) == n && !strncmp(row->setting[i].name, line + 2, n))
            return &row->setting[i];
    for (size_t i = c->shared.n_given; i-- > 0;)
        if (strlen(c->shared.given[i].name) == n && !strncmp(c->shared.given[i].name, line + 2, n))
            return &c->shared.given[i];
    return NULL;
}

static int check_row(const cli_comparison *c, const cli_compared *row)
{
    kvf_train_options o = kvf_train_defaults();
    kvf_ctx *ctx = c->call->ctx;
    const cli_given *at = NULL;
    kvf_status st = kvf_train_set(ctx, &o, "method", row->method);
    o.out = c->values->out;
    for (size_t i = 0; i < c->shared.n_given && !st; i++)
        if (has_shared(c, row, at = &c->shared.given[i]))
            st = kvf_train_set(ctx, &o, at->name, at->value);
    for (size_t i = 0; i < row->n && !st; i++) {
        at = &row->setting[i];
        st = kvf_train_set(ctx, &o, at->name, at->value);
    }
    if (!st && row->init) st = kvf_train_set(ctx, &o, "init", row->init);
    if (!st) {
        st = kvf__train_options_check(ctx, &o);
        at = st ? named_in(c, row, kvf_ctx_error(ctx)) : NULL;
    }
    return st ? bad_row(c, row, at, kvf_ctx_error(ctx)) : CLI_OK;
}

/* ---- options for all ------------------------------------------------------------------------- */

/* Gathers the shared options: those of --options FILE, except compare's own, then the call's. */
static int gather_shared(cli_comparison *c)
{
    cli_call *shared = &c->shared;
    const cli_call *call = c->call;
    size_t n = 0;
    for (size_t i = 0; i < shared->n_given; i++)
        if (!is_ours(shared->given[i].name)) shared->given[n++] = shared->given[i];
    cli_given *list = realloc(shared->given, (n + call->n_given + 1) * sizeof *list);
    if (!list) return cli_fail(call->command, "out of memory");
    for (size_t i = 0; i < call->n_given; i++)
        if (is_for_all(call->given[i].name)) list[n++] = call->given[i];
    shared->given = list;
    shared->n_given = n;
    return CLI_OK;
}

int cli_comparison_init(cli_comparison *c, const cli_call *call, const cli_compare_values *values)
{
    *c = (cli_comparison){.call = call,
                          .values = values,
                          .shared = {.command = &cli_train, .ctx = call->ctx},
                          .methods = strdup(values->methods),
                          .inits = values->inits ? strdup(values->inits) : NULL};
    int code = CLI_OK;
    if (!c->methods || (values->inits && !c->inits))
        code = cli_fail(call->command, "out of memory");
    if (!code && values->options) code = cli_recipe_load(&c->shared, values->options);
    if (!code) code = gather_shared(c);
    c->task = cli_given_value(&c->shared, "task");
    if (!c->task) c->task = "lm";
    if (!code) code = split_inits(c);
    if (!code) code = add_rows(c);
    if (!code) code = check_shared(c);
    for (size_t i = 0; i < c->n && !code; i++)
        code = check_row(c, &c->row[i]);
    return code;
}

void cli_comparison_done(cli_comparison *c)
{
    cli_call_done(&c->shared);
    free(c->methods);
    free(c->inits);
}
