/* The grid file of a sweep: which runs there are.
 *
 *     # lines before the first section: every combination is a run
 *     lr = 0.01, 0.03
 *     prefix-length = 10, 20
 *     [long]             # a run of its own, with these values alone
 *     lr = 0.02
 *     steps = 400
 *
 * Lines are those of a recipe. In a section a value runs to the end of its line; above, values are
 * separated by commas, and one with commas in it is written in double quotes. Runs of the product
 * are named after what differs: lr-0.01_prefix-length-10. */
#include "sweep_int.h"

#include <ctype.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20, MOST_RUNS = 1024, MOST_NAME = 160 };

/* A line before the sections. */
typedef struct axis {
    const char *name;
    int line;
    size_t n;
    kvf__setting *values; /* [n] into grid_parser.values */
} axis;

typedef struct grid_parser {
    kvf_ctx *ctx;
    const char *path;
    kvf__grid *grid;
    int line;
    axis *axes; /* [n_axes] */
    size_t n_axes;
    kvf__setting *values; /* [n_values] of all axes */
    size_t n_values;
    kvf__grid_run *section; /* section of the current line; NULL: none yet */
} grid_parser;

#define BAD(p, fmt, ...)                                                                           \
    kvf__fail((p)->ctx, KVF_EUSAGE, "%s:%d: " fmt, (p)->path, (p)->line, __VA_ARGS__)

/* ---- values ---------------------------------------------------------------------------------- */

/* Validates a value like the options of `train`. */
static kvf_status check_value(grid_parser *p, const char *name, const char *value)
{
    kvf_train_options scratch = kvf_train_defaults();
    kvf_status st = kvf_train_set(p->ctx, &scratch, name, value);
    if (st) return kvf__fail_prefix(p->ctx, st, "%s:%d", p->path, p->line);
    if (scratch.named_data.n || scratch.named_valid.n || scratch.named_task.n)
        return BAD(p, "%s = %.60s: a sweep does not support runs on several tasks", name, value);
    return KVF_OK;
}

static kvf_status check_name(grid_parser *p, const char *name)
{
    const kvf__option_row *row;
    if (kvf__option_shared(name))
        return BAD(p, "%s cannot differ between the runs of a sweep: %s", name,
                   kvf__option_shared(name));
    if (kvf__sweep_refusal(name)) return BAD(p, "--%s: %s", name, kvf__sweep_refusal(name));
    for (size_t i = 0; (row = kvf__sweep_option_row(i)) != NULL; i++)
        if (!strcmp(name, row->name)) return KVF_OK;
    return BAD(p, "option \"%.60s\" is not known", name);
}

/* Adds to the options of the file, each once. */
static void list_option(kvf__grid *grid, const char *name)
{
    for (size_t i = 0; i < grid->n_options; i++)
        if (!strcmp(grid->options[i], name)) return;
    grid->options[grid->n_options++] = name;
}

static kvf_status add_axis(grid_parser *p, const char *name, char *list)
{
    axis *a = &p->axes[p->n_axes];
    for (size_t i = 0; i < p->n_axes; i++)
        if (!strcmp(p->axes[i].name, name))
            return BAD(p, "%s is already set on line %d", name, p->axes[i].line);
    *a = (axis){.name = name, .line = p->line, .values = p->values + p->n_values};
    while (list) {
        char *value;
        const char *wrong = kvf__option_cut(&list, &value);
        if (wrong) return BAD(p, "%s%s", name, wrong);
        KVF_TRY(check_value(p, name, value));
        for (size_t i = 0; i < a->n; i++)
            if (!strcmp(a->values[i].value, value))
                return BAD(p, "%s has the value %.60s twice", name, value);
        a->values[a->n++] = (kvf__setting){name, value, p->line};
    }
    p->n_values += a->n;
    p->n_axes++;
    return KVF_OK;
}

static kvf_status add_setting(grid_parser *p, kvf__grid_run *run, const kvf__setting *setting)
{
    KVF_TRY(kvf__grow(p->ctx, &run->settings, run->n * sizeof *setting,
                      (run->n + 1) * sizeof *setting));
    run->settings[run->n++] = *setting;
    return KVF_OK;
}

static kvf_status add_to_section(grid_parser *p, const char *name, const char *value)
{
    const kvf__setting setting = {name, value, p->line};
    for (size_t i = 0; i < p->section->n; i++)
        if (!strcmp(p->section->settings[i].name, name))
            return BAD(p, "%s is already set on line %d", name, p->section->settings[i].line);
    KVF_TRY(check_value(p, name, value));
    return add_setting(p, p->section, &setting);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static bool in_names(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("._+-", c));
}

/* Adds a run; the grid takes over the name. */
static kvf_status add_run(grid_parser *p, char *name, kvf__grid_run **out)
{
    kvf__grid *grid = p->grid;
    for (size_t i = 0; i < grid->n; i++)
        if (!strcmp(grid->runs[i].name, name)) {
            BAD(p, "run \"%s\" is already defined on line %d", name, grid->runs[i].line);
            kvf__free(name);
            return KVF_EUSAGE;
        }
    kvf_status st = grid->n < MOST_RUNS ? KVF_OK : BAD(p, "more than %d runs", MOST_RUNS);
    if (!st)
        st = kvf__grow(p->ctx, &grid->runs, grid->n * sizeof *grid->runs,
                       (grid->n + 1) * sizeof *grid->runs);
    if (st) {
        kvf__free(name);
        return st;
    }
    grid->runs[grid->n] = (kvf__grid_run){.name = name, .line = p->line};
    *out = &grid->runs[grid->n++];
    return KVF_OK;
}

/* Appends a value's part to the name of a run. */
static kvf_status extend_name(grid_parser *p, kvf__buf *name, const kvf__setting *s)
{
    KVF_TRY(kvf__buf_printf(p->ctx, name, "%s%s-", name->n ? "_" : "", s->name));
    for (const char *c = s->value; *c; c++)
        KVF_TRY(kvf__buf_addc(p->ctx, name, in_names(*c) ? *c : '-'));
    if (name->n <= MOST_NAME) return KVF_OK;
    return BAD(p,
               "the name of the run would have more than %d letters: give it a name in [brackets]",
               MOST_NAME);
}

/* Sets the values of combination `index`, the last axis fastest. */
static kvf_status combine(grid_parser *p, size_t index)
{
    kvf__buf name = {0};
    kvf__grid_run *run = NULL;
    char *own = NULL;
    size_t below = 1, at[64];
    kvf_status st = KVF_OK;
    for (size_t a = p->n_axes; a-- > 0; below *= p->axes[a].n)
        at[a] = index / below % p->axes[a].n;
    for (size_t a = 0; a < p->n_axes && !st; a++) {
        p->line = p->axes[a].line;
        if (p->axes[a].n > 1) st = extend_name(p, &name, &p->axes[a].values[at[a]]);
    }
    if (!st) st = kvf__strdup(p->ctx, name.n ? name.data : "run", &own);
    kvf__buf_done(&name);
    if (!st) st = add_run(p, own, &run);
    for (size_t a = 0; a < p->n_axes && !st; a++)
        st = add_setting(p, run, &p->axes[a].values[at[a]]);
    return st;
}

static kvf_status make_product(grid_parser *p)
{
    size_t n = 1;
    for (size_t a = 0; a < p->n_axes; a++) {
        p->line = p->axes[a].line;
        if (a == 64 || !kvf__mul(n, p->axes[a].n, &n) || n > MOST_RUNS)
            return BAD(p, "more than %d runs", MOST_RUNS);
    }
    for (size_t i = 0; p->n_axes && i < n; i++)
        KVF_TRY(combine(p, i));
    return KVF_OK;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static kvf_status open_section(grid_parser *p, char *line)
{
    char *name = kvf__trim(line + 1), *own = NULL;
    size_t n = strlen(name);
    if (!n || name[n - 1] != ']') return BAD(p, "want [NAME], found \"%.60s\"", line);
    name[n - 1] = 0;
    name = kvf__trim(name);
    for (n = 0; in_names(name[n]);)
        n++;
    if (!n || name[n] || *name == '.' || n > MOST_NAME)
        return BAD(p, "run name \"%.60s\": want letters, digits and . _ + -", name);
    if (!p->section) {
        int line_before = p->line;
        KVF_TRY(make_product(p)); /* the names of the product come first */
        p->line = line_before;
    }
    KVF_TRY(kvf__strdup(p->ctx, name, &own));
    return add_run(p, own, &p->section);
}

static kvf_status read_line(grid_parser *p, char *line)
{
    if (*line == '[') return open_section(p, line);
    char *name, *value;
    if (!kvf__option_split(line, &name, &value))
        return BAD(p, "want \"option = value\" or \"[NAME]\", found \"%.60s\"", line);
    KVF_TRY(check_name(p, name));
    if (!*value) return BAD(p, "%s has no value", name);
    list_option(p->grid, name);
    return p->section ? add_to_section(p, name, value) : add_axis(p, name, value);
}

static kvf_status read_lines(grid_parser *p)
{
    char *text = p->grid->text.data;
    for (char *line; (line = kvf__option_line(&text, &p->line)) != NULL;)
        KVF_TRY(read_line(p, line));
    return p->section ? KVF_OK : make_product(p);
}

/* Returns an upper bound of the numbers of lines and values. */
static size_t count_marks(const kvf__buf *text)
{
    size_t n = 1;
    for (size_t i = 0; i < text->n; i++)
        n += text->data[i] == '\n' || text->data[i] == ',';
    return n;
}

kvf_status kvf__grid_load(kvf_ctx *ctx, const char *path, kvf__grid *out)
{
    kvf__grid grid = {0};
    grid_parser p = {.ctx = ctx, .path = path, .grid = &grid};
    kvf_status st = kvf__read_file(ctx, path, MOST_BYTES, &grid.text);
    size_t n = count_marks(&grid.text);
    if (!st && grid.text.n && memchr(grid.text.data, 0, grid.text.n))
        st = kvf__fail(ctx, KVF_EUSAGE, "%s: is not a text file, because it contains a zero byte",
                       path);
    if (!st) st = kvf__alloc_array(ctx, n, sizeof *p.axes, &p.axes);
    if (!st) st = kvf__alloc_array(ctx, n, sizeof *p.values, &p.values);
    if (!st) st = kvf__alloc_array(ctx, n, sizeof *grid.options, &grid.options);
    if (!st) st = read_lines(&p);
    if (!st && !grid.n) st = kvf__fail(ctx, KVF_EUSAGE, "%s: defines no runs", path);
    kvf__free(p.axes);
    kvf__free(p.values);
    KVF__GIVE(st, out, grid, kvf__grid_done(&grid));
    return st;
}

void kvf__grid_done(kvf__grid *grid)
{
    for (size_t i = 0; i < grid->n; i++) {
        kvf__free(grid->runs[i].name);
        kvf__free(grid->runs[i].settings);
    }
    kvf__free(grid->runs);
    kvf__free(grid->options);
    kvf__buf_done(&grid->text);
    *grid = (kvf__grid){0};
}
