/* Sections of an experiment: rows, and in [*] axes with values for every row. */
#include "cli_compare.h"
#include "compare_hooks.h"

#include <ctype.h>
#include <string.h>

/* ---- axes ------------------------------------------------------------------------------------ */

/* Sets an option of a row from a line of the experiment. */
static int set_line(cli_comparison *c, cli_compared *row, const cli_given *given)
{
    const char *known = cli_row_find(&cli_train, "method")->argument;
    if (!strcmp(given->name, "init")) {
        row->init = given->value;
        return CLI_OK;
    }
    if (strcmp(given->name, "method") != 0) return cli_compared_set(c, row, given);
    row->method = given->value;
    if (kvf__choice_index(known, given->value) >= 0) return CLI_OK;
    return cli_misuse_at(c->call->command, given, "method \"%.60s\": want %s", given->value, known);
}

/* Adds the row with every combination of values from this axis on; once for an axis that its method
 * does not support. */
int cli_compared_combine(cli_comparison *c, const cli_compared *row, size_t axis)
{
    int code = CLI_OK;
    if (axis == c->n_axes) return cli_compared_keep(c, row);
    cli_given given = *c->axis[axis].line;
    if (strcmp(given.name, "method") && !kvf__train_option_applies(given.name, row->method))
        return cli_compared_combine(c, row, axis + 1);
    for (size_t i = 0; i < c->axis[axis].n && !code; i++) {
        cli_compared one = *row;
        given.value = c->axis_value[c->axis[axis].first + i];
        code = set_line(c, &one, &given);
        cli_compared_name(&one, given.name, given.value);
        if (!code) code = cli_compared_combine(c, &one, axis + 1);
    }
    return code;
}

static int add_axis(cli_comparison *c, const cli_given *line)
{
    char *list = (char *)line->value, *value;
    const char *wrong = c->n_axes == CLI_MOST_SETTINGS ? ": too many axes" : NULL;
    const size_t first = c->n_axis_values;
    while (list && !wrong) {
        wrong = kvf__option_cut(&list, &value);
        if (!wrong && c->n_axis_values == CLI_MOST_COMPARED) wrong = ": too many values";
        if (!wrong) c->axis_value[c->n_axis_values++] = value;
    }
    if (wrong) return cli_misuse_at(c->call->command, line, "%s%s", line->name, wrong);
    c->axis[c->n_axes].line = line;
    c->axis[c->n_axes].first = first;
    c->axis[c->n_axes++].n = c->n_axis_values - first;
    return CLI_OK;
}

/* ---- sections of the experiment -------------------------------------------------------------- */

/* Refuses options that must be the same for all rows. */
static int check_varies(const cli_comparison *c, const cli_given *given)
{
    static const char *const NAMES[] = {"base",     "out", "force",       "resume", "dry-run",
                                        "forecast", "log", "tensorboard", "seed"};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (strcmp(NAMES[i], given->name) != 0) continue;
        const char *why = kvf__compare_refusal(given->name);
        return cli_misuse_at(c->call->command, given, "%s: %s", given->name,
                             why ? why : "it applies to all rows");
    }
    return CLI_OK;
}

static bool is_axes(const cli_given *section)
{
    return !strcmp(section->name, "*");
}

/* Returns the number of lines in a section. */
static size_t lines_of(const cli_call *call, size_t section)
{
    size_t n = 0;
    while (section + 1 + n < call->n_sections && !call->sections[section + 1 + n].section)
        n++;
    return n;
}

int cli_sections_read_axes(cli_comparison *c)
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
    size_t i = 0;
    while (isalnum((unsigned char)section->name[i]) ||
           (section->name[i] && strchr(" ._+-=", section->name[i])))
        i++;
    if (!n || i < n || section->name[0] == '.' || n >= sizeof row->name / 2)
        return cli_misuse_at(
            c->call->command, section,
            "section \"%.60s\": want letters, digits, spaces and . _ + - =, or * for axes",
            section->name);
    snprintf(row->name, sizeof row->name, "%s", section->name);
    snprintf(row->file, sizeof row->file, "%s", section->name);
    cli_compared_clean(row->file);
    return CLI_OK;
}

int cli_sections_add(cli_comparison *c)
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
        if (!code) code = cli_compared_combine(c, &row, 0);
    }
    return code;
}

/* Returns the first section that is a row, or NULL. */
const cli_given *cli_sections_first(const cli_call *call)
{
    for (size_t i = 0; i < call->n_sections; i++)
        if (call->sections[i].section && !is_axes(&call->sections[i])) return &call->sections[i];
    return NULL;
}
