/* What kvfold compare trains: the rows of its table, and which options each of them gets.
 *
 * The file of --options is a recipe of train and holds for all methods. A method gets those of it
 * that it has (kvf__train_option_applies); one that no method has is a mistake. */
#include "cli_compare.h"

#include <stdlib.h>
#include <string.h>

/* Train's options that compare itself gives. */
static bool is_ours(const char *name)
{
    static const char *const NAMES[] = {"base", "data",  "valid", "method",
                                        "out",  "steps", "seed",  "recipe"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (!strcmp(NAMES[i], name)) return true;
    return false;
}

/* ---- the options of a row -------------------------------------------------------------------- */

void cli_comparison_options(const cli_comparison *c, const cli_compared *row, cli_arguments *a)
{
    for (size_t i = 0; i < c->shared.n_given; i++) {
        const cli_given *g = &c->shared.given[i];
        if (!is_ours(g->name) && kvf__train_option_applies(g->name, row->method))
            cli_argument_option(a, cli_row_find(&cli_train, g->name), g->value);
    }
    for (size_t i = 0; i < row->n; i++)
        cli_argument_option(a, row->setting[i].row, row->setting[i].value);
    if (!row->init) return;
    cli_argument(a, "--init=%s", row->init);
    if (!strcmp(row->init, "text") && c->values->init_text)
        cli_argument(a, "--init-text=%s", c->values->init_text);
}

void cli_comparison_options_of(const cli_comparison *c, const cli_command *command,
                               cli_arguments *a)
{
    for (size_t i = 0; i < c->shared.n_given; i++) {
        const cli_given *g = &c->shared.given[i];
        const kvf__option_row *row = cli_row_find(command, g->name);
        if (row && !is_ours(g->name)) cli_argument_option(a, row, g->value);
    }
}

kvf_json *cli_comparison_shared(const cli_comparison *c)
{
    kvf_json *object = kvf_json_object();
    for (size_t i = 0; i < c->shared.n_given; i++)
        if (!is_ours(c->shared.given[i].name))
            kvf_json_set(object, c->shared.given[i].name,
                         kvf_json_new_str(c->shared.given[i].value));
    return object;
}

/* ---- the rows -------------------------------------------------------------------------------- */

static int set_one(cli_comparison *c, cli_compared *row, char *text)
{
    const cli_command *command = c->call->command;
    char *name, *value;
    if (!kvf__option_split(text, &name, &value) || !*value)
        return cli_misuse(command, "--methods: after %s want option=value, found \"%s\"",
                          row->method, text);
    const kvf__option_row *option = cli_row_find(&cli_train, name);
    if (!option || is_ours(option->name))
        return cli_misuse(command, "--methods: %s: \"%s\" is no option of train to vary",
                          row->method, name);
    if (!kvf__train_option_applies(option->name, row->method))
        return cli_misuse(command, "--methods: --%s: not for method %s", option->name, row->method);
    if (row->n == CLI_MOST_SETTINGS)
        return cli_misuse(command, "--methods: %s: want up to %d options", row->method,
                          (int)CLI_MOST_SETTINGS);
    row->setting[row->n].row = option;
    row->setting[row->n++].value = value;
    return CLI_OK;
}

/* "method:option=value:option=value". */
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

/* Appends " name=value" and "-name=value", in which a path has no slashes. */
static void name_setting(cli_compared *row, const char *name, const char *value)
{
    size_t at = strlen(row->name), file = strlen(row->file);
    snprintf(row->name + at, sizeof row->name - at, " %s=%s", name, value);
    snprintf(row->file + file, sizeof row->file - file, "-%s=%s", name, value);
    for (char *c = row->file + file; *c; c++)
        if (*c == '/') *c = '_';
}

static void name_row(cli_compared *row)
{
    snprintf(row->name, sizeof row->name, "%s", row->method);
    snprintf(row->file, sizeof row->file, "%s%s%s", row->method, row->init ? "-" : "",
             row->init ? row->init : "");
    if (row->init) snprintf(row->name, sizeof row->name, "%s init=%s", row->method, row->init);
    for (size_t i = 0; i < row->n; i++)
        name_setting(row, row->setting[i].row->name, row->setting[i].value);
}

static int add_row(cli_comparison *c, const cli_compared *row)
{
    cli_compared named = *row;
    name_row(&named);
    if (c->n == CLI_MOST_COMPARED)
        return cli_misuse(c->call->command, "want up to %d methods and starts",
                          (int)CLI_MOST_COMPARED);
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->row[i].file, named.file))
            return cli_misuse(c->call->command, "--methods: %s stands there twice", named.name);
    c->row[c->n++] = named;
    return CLI_OK;
}

/* A row for each start, or one where the method has none. */
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

/* ---- the lists ------------------------------------------------------------------------------- */

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
    if (c->inits && !c->n_inits) return cli_misuse(c->call->command, "--inits names nothing");
    if (c->values->init_text && !has_text)
        return cli_misuse(c->call->command, "--init-text is for text among --inits");
    return CLI_OK;
}

/* The head alone comes first, unless it is asked for or the task has none. */
static int add_head(cli_comparison *c)
{
    const cli_compared head = {.method = "head"};
    char list[1024], *rest = NULL;
    snprintf(list, sizeof list, "%s", c->values->methods);
    for (char *one = strtok_r(list, ",", &rest); one; one = strtok_r(NULL, ",", &rest))
        if (!strncmp(one, "head", 4) && strchr(":", one[4])) return CLI_OK;
    return strcmp(c->task, "lm") ? add_row(c, &head) : CLI_OK;
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
    if (c->n == before) return cli_misuse(c->call->command, "--methods names nothing");
    c->reference = c->row[before].name;
    return CLI_OK;
}

/* Every option of the file is one of some row's method. */
static int check_shared(const cli_comparison *c)
{
    for (size_t i = 0; i < c->shared.n_given; i++) {
        const cli_given *g = &c->shared.given[i];
        size_t r = 0;
        while (r < c->n && !kvf__train_option_applies(g->name, c->row[r].method))
            r++;
        if (r == c->n)
            return cli_misuse(c->call->command, "%s:%d: %s: not for the methods compared", g->file,
                              g->line, g->name);
    }
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
    if (!code && values->recipe) code = cli_recipe_load(&c->shared, values->recipe);
    c->task = cli_given_value(&c->shared, "task");
    if (!c->task) c->task = "lm";
    if (!code) code = split_inits(c);
    if (!code) code = add_head(c);
    if (!code) code = add_methods(c);
    return code ? code : check_shared(c);
}

void cli_comparison_done(cli_comparison *c)
{
    cli_call_done(&c->shared);
    free(c->methods);
    free(c->inits);
}
