/* What kvfold compare trains: the rows of its table, and which options each of them gets.
 *
 * Options for all rows are those of --options FILE, a recipe of train, and train's on the command
 * line or at the head of an experiment file. A method gets those of them that it has
 * (kvf__train_option_applies); one that no method has is a mistake. What is said of one row, in
 * --methods or in a section of the file, must be an option of its method. */
#include "cli_compare.h"
#include "compare_hooks.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Of a recipe of train: what compare itself gives. */
static bool is_ours(const char *name)
{
    static const char *const NAMES[] = {"base", "lora",  "data", "valid", "method",
                                        "out",  "steps", "seed", "recipe"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (!strcmp(NAMES[i], name)) return true;
    return false;
}

/* Another command has them from elsewhere. */
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

/* A text or file to start from is for the rows that start from it. */
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

static int keep_setting(cli_comparison *c, cli_compared *row, const cli_given *given)
{
    if (row->n == CLI_MOST_SETTINGS)
        return cli_misuse(c->call->command, "%s: want up to %d options", row->method,
                          (int)CLI_MOST_SETTINGS);
    row->setting[row->n++] = *given;
    return CLI_OK;
}

/* "option=value" of --methods. */
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
    return keep_setting(c, row, &(cli_given){.name = option->name, .value = value});
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

/* Names of files: a path has no slashes, and white space is none. */
static void clean_file_name(char *name)
{
    for (; *name; name++)
        if (*name == '/' || isspace((unsigned char)*name)) *name = '_';
}

/* Appends " name=value" and "-name=value". */
static void name_setting(cli_compared *row, const char *name, const char *value)
{
    size_t at = strlen(row->name), file = strlen(row->file);
    snprintf(row->name + at, sizeof row->name - at, " %s=%s", name, value);
    snprintf(row->file + file, sizeof row->file - file, "-%s=%s", name, value);
    clean_file_name(row->file + file);
}

static void name_row(cli_compared *row)
{
    snprintf(row->name, sizeof row->name, "%s", row->method);
    snprintf(row->file, sizeof row->file, "%s%s%s", row->method, row->init ? "-" : "",
             row->init ? row->init : "");
    if (row->init) snprintf(row->name, sizeof row->name, "%s init=%s", row->method, row->init);
    for (size_t i = 0; i < row->n; i++)
        name_setting(row, row->setting[i].name, row->setting[i].value);
}

/* A mistake in a row: at the line of the experiment that has it, else of the command line. */
static int bad_row(const cli_comparison *c, const cli_compared *row, const cli_given *at,
                   const char *line)
{
    char text[CLI_LINE_BYTES];
    if (at && at->file) return cli_misuse_at(c->call->command, at, line);
    if (row->section) return cli_misuse_at(c->call->command, row->section, line);
    snprintf(text, sizeof text, "%s: %s", row->name, line);
    return cli_misuse(c->call->command, "%s", text);
}

static int keep_row(cli_comparison *c, const cli_compared *row)
{
    char line[CLI_LINE_BYTES];
    if (c->n == CLI_MOST_COMPARED)
        return cli_misuse(c->call->command, "want up to %d methods and starts",
                          (int)CLI_MOST_COMPARED);
    for (size_t i = 0; i < c->n; i++) {
        if (strcmp(c->row[i].file, row->file)) continue;
        snprintf(line, sizeof line, "%s stands there twice", row->name);
        if (row->section) return bad_row(c, row, NULL, line);
        return cli_misuse(c->call->command, "--methods: %s", line);
    }
    c->row[c->n++] = *row;
    return CLI_OK;
}

/* ---- axes ------------------------------------------------------------------------------------ */

/* Sets what a line of the experiment says of a row. */
static int set_line(cli_comparison *c, cli_compared *row, const cli_given *given)
{
    char line[CLI_LINE_BYTES];
    if (!strcmp(given->name, "init")) {
        row->init = given->value;
    } else if (strcmp(given->name, "method") != 0) {
        return keep_setting(c, row, given);
    } else {
        const char *known = cli_row_find(&cli_train, "method")->argument;
        row->method = given->value;
        if (kvf__choice_index(known, given->value) >= 0) return CLI_OK;
        snprintf(line, sizeof line, "method \"%.60s\": want %s", given->value, known);
        return cli_misuse_at(c->call->command, given, line);
    }
    return CLI_OK;
}

/* The row with every combination of the values from this axis on; of an axis that its method has
 * not, once without. */
static int add_combinations(cli_comparison *c, const cli_compared *row, size_t axis)
{
    int code = CLI_OK;
    if (axis == c->n_axes) return keep_row(c, row);
    cli_given given = *c->axis[axis].line;
    if (strcmp(given.name, "method") && !kvf__train_option_applies(given.name, row->method))
        return add_combinations(c, row, axis + 1);
    for (size_t i = 0; i < c->axis[axis].n && !code; i++) {
        cli_compared one = *row;
        given.value = c->axis_value[c->axis[axis].first + i];
        code = set_line(c, &one, &given);
        name_setting(&one, given.name, given.value);
        if (!code) code = add_combinations(c, &one, axis + 1);
    }
    return code;
}

static int add_axis(cli_comparison *c, const cli_given *line)
{
    char *list = (char *)line->value, *value, text[CLI_LINE_BYTES];
    const char *wrong = c->n_axes == CLI_MOST_SETTINGS ? ": too many axes" : NULL;
    const size_t first = c->n_axis_values;
    while (list && !wrong) {
        wrong = kvf__option_cut(&list, &value);
        if (!wrong && c->n_axis_values == CLI_MOST_COMPARED) wrong = ": too many values";
        if (!wrong) c->axis_value[c->n_axis_values++] = value;
    }
    if (wrong) {
        snprintf(text, sizeof text, "%s%s", line->name, wrong);
        return cli_misuse_at(c->call->command, line, text);
    }
    c->axis[c->n_axes].line = line;
    c->axis[c->n_axes].first = first;
    c->axis[c->n_axes++].n = c->n_axis_values - first;
    return CLI_OK;
}

/* ---- sections of the experiment -------------------------------------------------------------- */

/* Options whose values are one for all rows. */
static int check_varies(const cli_comparison *c, const cli_given *given)
{
    static const char *const NAMES[] = {"base",     "out", "force",       "resume", "dry-run",
                                        "forecast", "log", "tensorboard", "seed"};
    char line[CLI_LINE_BYTES];
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (strcmp(NAMES[i], given->name) != 0) continue;
        const char *why = kvf__compare_refusal(given->name);
        snprintf(line, sizeof line, "%s: %s", given->name, why ? why : "it holds for all rows");
        return cli_misuse_at(c->call->command, given, line);
    }
    return CLI_OK;
}

static bool is_axes(const cli_given *section)
{
    return !strcmp(section->name, "*");
}

/* Of the lines behind a section: their number. */
static size_t lines_of(const cli_call *call, size_t section)
{
    size_t n = 0;
    while (section + 1 + n < call->n_sections && !call->sections[section + 1 + n].section)
        n++;
    return n;
}

static int read_axes(cli_comparison *c)
{
    const cli_call *call = c->call;
    int code = CLI_OK;
    for (size_t i = 0; i < call->n_sections && !code; i++) {
        if (!call->sections[i].section || !is_axes(&call->sections[i])) continue;
        for (size_t k = 1; k <= lines_of(call, i) && !code; k++) {
            code = check_varies(c, &call->sections[i + k]);
            if (!code) code = add_axis(c, &call->sections[i + k]);
        }
    }
    return code;
}

static int name_section(const cli_comparison *c, const cli_given *section, cli_compared *row)
{
    const size_t n = strlen(section->name);
    char line[CLI_LINE_BYTES];
    size_t i = 0;
    while (isalnum((unsigned char)section->name[i]) ||
           (section->name[i] && strchr(" ._+-=", section->name[i])))
        i++;
    if (!n || i < n || section->name[0] == '.' || n >= sizeof row->name / 2) {
        snprintf(line, sizeof line,
                 "section \"%.60s\": want letters, digits, spaces and . _ + - =, or * for axes",
                 section->name);
        return cli_misuse_at(c->call->command, section, line);
    }
    snprintf(row->name, sizeof row->name, "%s", section->name);
    snprintf(row->file, sizeof row->file, "%s", section->name);
    clean_file_name(row->file);
    return CLI_OK;
}

static int add_sections(cli_comparison *c)
{
    const cli_call *call = c->call;
    int code = CLI_OK;
    for (size_t i = 0; i < call->n_sections && !code; i++) {
        cli_compared row = {.method = "mlp", .section = &call->sections[i]};
        if (!row.section->section || is_axes(row.section)) continue;
        code = name_section(c, row.section, &row);
        for (size_t k = 1; k <= lines_of(call, i) && !code; k++) {
            code = check_varies(c, &call->sections[i + k]);
            if (!code) code = set_line(c, &row, &call->sections[i + k]);
        }
        if (!code) code = add_combinations(c, &row, 0);
    }
    return code;
}

/* Is there a section that is a row? */
static const cli_given *first_section(const cli_call *call)
{
    for (size_t i = 0; i < call->n_sections; i++)
        if (call->sections[i].section && !is_axes(&call->sections[i])) return &call->sections[i];
    return NULL;
}

/* ---- the lists ------------------------------------------------------------------------------- */

static int add_row(cli_comparison *c, cli_compared *row)
{
    name_row(row);
    return add_combinations(c, row, 0);
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
    if (c->inits && cli_given_value(c->call, "init-text") && !has_text)
        return cli_misuse(c->call->command, "--init-text is for text among --inits");
    return CLI_OK;
}

/* The head alone comes first, unless it is asked for or the task has none. */
static int add_head(cli_comparison *c)
{
    cli_compared head = {.method = "head"};
    char list[1024], *rest = NULL;
    snprintf(list, sizeof list, "%s", c->values->methods);
    for (char *one = strtok_r(list, ",", &rest); one; one = strtok_r(NULL, ",", &rest))
        if (!strncmp(one, "head", 4) && strchr(":", one[4])) return CLI_OK;
    if (!strcmp(c->task, "lm") || cli_given_value(&c->shared, "verbalizer")) return CLI_OK;
    name_row(&head);
    return keep_row(c, &head);
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

/* Sections are the rows of their file, which then has no lists. */
static int add_rows(cli_comparison *c)
{
    const cli_given *section = first_section(c->call);
    const char *list = cli_given_value(c->call, "methods") ? "methods" : c->inits ? "inits" : NULL;
    char line[CLI_LINE_BYTES];
    int code = read_axes(c);
    if (code) return code;
    if (!section) {
        code = add_head(c);
        return code ? code : add_methods(c);
    }
    if (list) {
        snprintf(line, sizeof line, "sections are the rows, so --%s has no place", list);
        return cli_misuse_at(c->call->command, section, line);
    }
    code = add_sections(c);
    c->reference = c->row[0].name;
    return code;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Every option for all is one of some row's method. */
static int check_shared(const cli_comparison *c)
{
    char line[CLI_LINE_BYTES];
    for (size_t i = 0; i < c->shared.n_given; i++) {
        const cli_given *g = &c->shared.given[i];
        size_t r = 0;
        while (r < c->n && !kvf__train_option_applies(g->name, c->row[r].method))
            r++;
        if (r < c->n) continue;
        snprintf(line, sizeof line, "%s%s: not for the methods compared", g->file ? "" : "--",
                 g->name);
        return cli_misuse_at(c->call->command, g, line);
    }
    return CLI_OK;
}

/* The option of the row that an error line begins with, as "--NAME"; NULL: none. */
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
        st = kvf__compare_check(ctx, &o);
        at = st ? named_in(c, row, kvf_ctx_error(ctx)) : NULL;
    }
    return st ? bad_row(c, row, at, kvf_ctx_error(ctx)) : CLI_OK;
}

/* ---- options for all ------------------------------------------------------------------------- */

/* Behind those of --options FILE, without what is compare's own, come the call's. */
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
