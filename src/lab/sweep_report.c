/* The results of a sweep: its runs, best first, as one JSON object, as a struct and as
 * DIR/sweep.csv. Runs are ranked by their metric if all have the same, else by best validation
 * loss. Without validation they are ranked by the mean training loss of their last steps, because
 * the loss of one small batch is too noisy. */
#include "arena.h"
#include "merge_int.h"
#include "sweep_int.h"

#include <math.h>
#include <string.h>

/* ---- ranking --------------------------------------------------------------------------------- */

typedef struct ranking {
    const char *metric;
    bool larger;      /* larger values are better */
    bool by_loss;     /* by best validation loss */
    bool by_training; /* by last training losses */
} ranking;

static bool counts(const kvf__sweep_run *run)
{
    return run->state != KVF__RUN_WAITS && run->state != KVF__RUN_FAILED && run->result.steps > 0;
}

static ranking ranking_of(const kvf__sweep *s)
{
    ranking r = {.metric = NULL};
    for (size_t i = 0; i < s->grid.n; i++) {
        const kvf__sweep_run *run = &s->runs[i];
        if (!counts(run)) continue;
        if (!run->result.best_step) r.by_training = true;
        if (r.metric && strcmp(r.metric, run->result.best.name)) r.by_loss = true;
        r.metric = run->result.best.name;
        r.larger = run->larger;
    }
    if (r.by_loss || r.by_training || !r.metric) r.larger = false;
    if (r.by_loss) r.metric = "valid_loss";
    if (r.by_training || !r.metric) r.metric = "last_train_loss";
    return r;
}

static double value_of(const ranking *r, const kvf__sweep_run *run)
{
    if (!counts(run)) return NAN;
    if (r->by_training) return run->last_losses;
    return r->by_loss ? run->result.best_valid_loss : run->result.best.value;
}

/* True if a is better than b. NaN is worse than any value. */
static bool is_better(double a, double b, bool larger)
{
    if (isnan(a) || isnan(b)) return !isnan(a) && isnan(b);
    return larger ? a > b : a < b;
}

/* True if run a ranks before b. A tie goes to the lower loss of the saved state. */
static bool ranks_before(const ranking *r, const kvf__sweep_run *a, const kvf__sweep_run *b)
{
    double x = value_of(r, a), y = value_of(r, b);
    if (is_better(x, y, r->larger)) return true;
    return x == y && !r->by_training &&
           is_better(a->result.best_valid_loss, b->result.best_valid_loss, false);
}

/* Sorts the indices of runs, best first; equal ones in the order of the file. */
static void sort_runs(const kvf__sweep *s, const ranking *r, size_t *order)
{
    for (size_t i = 0; i < s->grid.n; i++) {
        size_t at = i;
        while (at && ranks_before(r, &s->runs[i], &s->runs[order[at - 1]])) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
}

/* ---- options --------------------------------------------------------------------------------- */

/* Returns an option as written in the grid, else as a run file stores it. Owned by the caller. */
static kvf_json *option_of(const kvf__sweep_run *run, const char *name)
{
    for (size_t i = 0; i < run->row->n; i++)
        if (!strcmp(run->row->settings[i].name, name))
            return kvf_json_new_str(run->row->settings[i].value);
    const kvf_json *value = kvf_json_get(run->shown, name);
    const char *text = kvf_json_str(value, NULL);
    char *number = value && !text ? kvf_json_text(value, KVF_JSON_COMPACT) : NULL;
    kvf_json *out = kvf_json_new_str(text ? text : number ? number : "");
    kvf_json_text_free(number);
    return out;
}

static bool differs(const kvf__sweep *s, const char *name)
{
    kvf_json *first = option_of(&s->runs[0], name);
    bool found = false;
    for (size_t i = 1; i < s->grid.n && !found; i++) {
        kvf_json *other = option_of(&s->runs[i], name);
        const char *a = kvf_json_str(first, NULL), *b = kvf_json_str(other, NULL);
        found = a && b && strcmp(a, b);
        kvf_json_free(other);
    }
    kvf_json_free(first);
    return found;
}

/* Lists the options that differ, without --steps, since the steps taken have their own column. */
static kvf_json *differing(const kvf__sweep *s)
{
    kvf_json *names = kvf_json_array();
    for (size_t i = 0; i < s->grid.n_options; i++)
        if (strcmp(s->grid.options[i], "steps") && differs(s, s->grid.options[i]))
            kvf_json_add(names, kvf_json_new_str(s->grid.options[i]));
    return names;
}

/* ---- over seeds ------------------------------------------------------------------------------ */

/* Names the differing options of a run except its seed, "lr=0.01 steps=40"; "all" if there are
 * none. */
static kvf_status label_of(const kvf__sweep *s, const kvf__sweep_run *run, kvf__buf *label)
{
    label->n = 0;
    for (size_t i = 0; i < s->grid.n_options; i++) {
        const char *name = s->grid.options[i];
        if (!strcmp(name, "seed") || !differs(s, name)) continue;
        kvf_json *value = option_of(run, name);
        kvf_status st = kvf__buf_printf(s->ctx, label, "%s%s=%s", label->n ? " " : "", name,
                                        kvf_json_str(value, NULL));
        kvf_json_free(value);
        KVF_TRY(st);
    }
    return label->n ? KVF_OK : kvf__buf_printf(s->ctx, label, "all");
}

/* Adds the value of a run to its group: the members sum, min, max and runs. */
static void add_value_of(kvf_json *groups, const char *label, double value)
{
    kvf_json *group = NULL;
    for (size_t i = 0; i < kvf_json_size(groups) && !group; i++)
        if (!strcmp(kvf_json_str(kvf_json_get(kvf_json_at(groups, i), "name"), NULL), label))
            group = kvf_json_at(groups, i);
    if (!group) {
        group = kvf__json_of("name:s", label);
        kvf_json_add(groups, group);
    }
    if (!isfinite(value)) return;
    const int64_t n = kvf__int_at(group, "runs");
    const double mean = n ? kvf_json_real(kvf_json_get(group, "mean"), 0) : 0;
    const double low = n ? kvf_json_real(kvf_json_get(group, "min"), value) : value;
    const double high = n ? kvf_json_real(kvf_json_get(group, "max"), value) : value;
    kvf__json_put(group, "runs:I mean:f min:f max:f", n + 1,
                  mean + (value - mean) / (double)(n + 1), fmin(low, value), fmax(high, value));
}

/* Makes [{name, runs, mean, min, max}] of runs that differ only in the seed, in the order of the
 * best of each; NULL: the grid has one seed. */
static kvf_status over_seeds(const kvf__sweep *s, const ranking *r, const size_t *order,
                             kvf_json **out)
{
    kvf__buf label = {0};
    kvf_status st = KVF_OK;
    *out = NULL;
    if (!differs(s, "seed")) return KVF_OK;
    *out = kvf_json_array();
    for (size_t i = 0; i < s->grid.n && !st; i++) {
        const kvf__sweep_run *run = &s->runs[order[i]];
        st = label_of(s, run, &label);
        if (!st) add_value_of(*out, label.data, value_of(r, run));
    }
    kvf__buf_done(&label);
    return st;
}

/* ---- the object ------------------------------------------------------------------------------ */

static const char *status_of(const kvf__sweep_run *run)
{
    static const char *const NAMES[] = {
        [KVF__RUN_WAITS] = "waiting",   [KVF__RUN_GOES] = "running",  [KVF__RUN_DONE] = "done",
        [KVF__RUN_STOPPED] = "stopped", [KVF__RUN_FAILED] = "failed",
    };
    return NAMES[run->state];
}

static void add_result(kvf_json *row, const kvf__sweep_run *run)
{
    const kvf_train_result *r = &run->result;
    const bool ran = r->steps > 0;
    kvf__json_put(row, "steps:I best_step:I valid_loss:f best_valid_loss:f train_loss:f", r->steps,
                  r->best_step, ran ? r->valid_loss : NAN, ran ? r->best_valid_loss : NAN,
                  ran ? r->train_loss : NAN);
    kvf__json_put(row, "last_train_loss:f tokens:I computed_tokens:I trainable_parameters:I",
                  run->last_losses, r->tokens, r->computed_tokens, r->trainable_parameters);
    kvf__json_put(row, "stopped_early:b finished_before:b seconds:f", r->stopped_early,
                  r->finished_before, r->seconds);
}

static kvf_json *row_of(const kvf__sweep_run *run, const kvf_json *names, int64_t rank,
                        const ranking *r)
{
    kvf_json *options = kvf_json_object();
    for (size_t i = 0; i < kvf_json_size(names); i++) {
        const char *name = kvf_json_str(kvf_json_at(names, i), NULL);
        kvf_json_set(options, name, option_of(run, name));
    }
    kvf_json *row = kvf__json_of("rank:o name:s options:o metric:s value:f",
                                 counts(run) ? kvf_json_new_int(rank) : kvf_json_new_null(),
                                 run->row->name, options, r->metric, value_of(r, run));
    add_result(row, run);
    kvf__json_put(row, "status:s line:o file:s notes:o", status_of(run),
                  *run->line ? kvf_json_new_str(run->line) : kvf_json_new_null(), run->out,
                  kvf__json_copy(run->notes));
    return row;
}

kvf_status kvf__sweep_report(kvf__sweep *s, kvf_json **out)
{
    const ranking r = ranking_of(s);
    kvf_json *object = kvf_json_object(), *rows = kvf_json_array(), *names = differing(s);
    kvf_json *seeds = NULL;
    size_t *order = NULL;
    int64_t failed = 0;
    kvf_status st = kvf__alloc_array(s->ctx, s->grid.n, sizeof *order, &order);
    if (!st && !(object && rows && names)) st = kvf__fail(s->ctx, KVF_ENOMEM, "out of memory");
    if (!st) {
        sort_runs(s, &r, order);
        st = over_seeds(s, &r, order, &seeds);
    }
    if (st) {
        kvf_json_free(seeds);
        kvf_json_free(object);
        kvf_json_free(rows);
        kvf_json_free(names);
        kvf__free(order);
        return st;
    }
    for (size_t i = 0; i < s->grid.n; i++) {
        const kvf__sweep_run *run = &s->runs[order[i]];
        kvf_json_add(rows, row_of(run, names, (int64_t)i + 1, &r));
        failed += run->state == KVF__RUN_FAILED;
    }
    kvf__free(order);
    kvf__json_put(object, "out:s metric:s options:o runs:o", s->options->out, r.metric, names,
                  rows);
    if (seeds) kvf_json_set(object, "over_seeds", seeds);
    kvf__json_put(object, "failed:I passes:I step_seconds:f seconds:f peak_rss_bytes:I", failed,
                  s->passes, s->step_seconds, kvf__clock() - s->begin, kvf__peak_rss_bytes());
    *out = object;
    return KVF_OK;
}

/* ---- the struct ------------------------------------------------------------------------------ */

typedef struct sweep_memory {
    size_t n, n_options;
    kvf_json *report;      /* texts are views of it */
    kvf_sweep_run *runs;   /* [n] */
    const char **names;    /* [n_options] */
    const char **settings; /* [n, n_options] */
} sweep_memory;

static void lay_result(void *object, kvf__carver *carve)
{
    sweep_memory *m = object;
    m->runs = kvf__carve(carve, (int64_t)m->n, 1, sizeof *m->runs);
    m->names = kvf__carve(carve, (int64_t)m->n_options, 1, sizeof *m->names);
    m->settings = kvf__carve(carve, (int64_t)m->n, (int64_t)m->n_options, sizeof *m->settings);
}

static const char *text_of(const kvf_json *object, const char *key)
{
    return kvf_json_str(kvf_json_get(object, key), NULL);
}

static const kvf__sweep_run *run_named(const kvf__sweep *s, const char *name)
{
    for (size_t i = 0; i < s->grid.n; i++)
        if (!strcmp(s->runs[i].row->name, name)) return &s->runs[i];
    return NULL;
}

static void fill_run(const kvf__sweep *s, const kvf_json *row, sweep_memory *m, size_t i)
{
    const kvf_json *options = kvf_json_get(row, "options");
    const char *name = text_of(row, "name"), **settings = m->settings + i * m->n_options;
    const kvf__sweep_run *run = run_named(s, name);
    for (size_t k = 0; k < m->n_options; k++)
        settings[k] = text_of(options, m->names[k]);
    m->runs[i] = (kvf_sweep_run){.rank = kvf__int_at(row, "rank"),
                                 .name = name,
                                 .file = text_of(row, "file"),
                                 .status = text_of(row, "status"),
                                 .line = text_of(row, "line"),
                                 .options = settings,
                                 .value = kvf__real_at(row, "value"),
                                 .last_train_loss = kvf__real_at(row, "last_train_loss"),
                                 .result = run->result};
}

kvf_status kvf__sweep_result(const kvf__sweep *s, const kvf_json *report, kvf_sweep_result *out)
{
    sweep_memory made = {.n = s->grid.n,
                         .n_options = kvf_json_size(kvf_json_get(report, "options"))};
    sweep_memory *m = NULL;
    KVF_TRY(kvf__carve_object(s->ctx, lay_result, &made, sizeof made, &m));
    m->report = kvf__json_copy(report);
    if (!m->report) {
        kvf__free(m);
        return kvf__fail(s->ctx, KVF_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < m->n_options; i++)
        m->names[i] = kvf_json_str(kvf_json_at(kvf_json_get(m->report, "options"), i), NULL);
    for (size_t i = 0; i < m->n; i++)
        fill_run(s, kvf_json_at(kvf_json_get(m->report, "runs"), i), m, i);
    *out = (kvf_sweep_result){.metric = text_of(m->report, "metric"),
                              .n = m->n,
                              .runs = m->runs,
                              .n_options = m->n_options,
                              .options = m->names,
                              .failed = kvf__int_at(report, "failed"),
                              .passes = s->passes,
                              .step_seconds = s->step_seconds,
                              .seconds = kvf_json_real(kvf_json_get(report, "seconds"), 0),
                              .memory = m};
    return KVF_OK;
}

void kvf_sweep_result_done(kvf_sweep_result *result)
{
    if (!result) return;
    sweep_memory *m = result->memory;
    if (m) kvf_json_free(m->report);
    kvf__free(m);
    *result = (kvf_sweep_result){0};
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Quotes fields with a comma, a quote or a newline (RFC 4180). */
static kvf_status add_text(kvf_ctx *ctx, kvf__buf *buf, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) return kvf__buf_add(ctx, buf, text, strlen(text));
    KVF_TRY(kvf__buf_addc(ctx, buf, '"'));
    for (; *text; text++) {
        if (*text == '"') KVF_TRY(kvf__buf_addc(ctx, buf, '"'));
        KVF_TRY(kvf__buf_addc(ctx, buf, *text));
    }
    return kvf__buf_addc(ctx, buf, '"');
}

/* null gives an empty field. */
static kvf_status add_value(kvf_ctx *ctx, kvf__buf *buf, const kvf_json *value)
{
    const char *text = kvf_json_str(value, NULL);
    if (text) return add_text(ctx, buf, text);
    if (!value || kvf_json_typeof(value) == KVF_JSON_NULL) return KVF_OK;
    char *number = kvf_json_text(value, KVF_JSON_COMPACT);
    kvf_status st = add_text(ctx, buf, number ? number : "");
    kvf_json_text_free(number);
    return st;
}

static const char *const BEFORE[] = {"rank", "name"};
static const char *const BEHIND[] = {"metric",     "value", "best_step", "best_valid_loss",
                                     "train_loss", "steps", "tokens",    "seconds",
                                     "status",     "file"};
enum { N_BEFORE = sizeof BEFORE / sizeof BEFORE[0], N_BEHIND = sizeof BEHIND / sizeof BEHIND[0] };

/* row NULL: the heading. */
static kvf_status add_row(kvf_ctx *ctx, kvf__buf *buf, const kvf_json *names, const kvf_json *row)
{
    size_t n = kvf_json_size(names);
    for (size_t i = 0; i < N_BEFORE + n + N_BEHIND; i++) {
        bool option = i >= N_BEFORE && i < N_BEFORE + n;
        const char *key = option         ? kvf_json_str(kvf_json_at(names, i - N_BEFORE), NULL)
                          : i < N_BEFORE ? BEFORE[i]
                                         : BEHIND[i - N_BEFORE - n];
        const kvf_json *in = option ? kvf_json_get(row, "options") : row;
        if (i) KVF_TRY(kvf__buf_addc(ctx, buf, ','));
        KVF_TRY(row ? add_value(ctx, buf, kvf_json_get(in, key)) : add_text(ctx, buf, key));
    }
    return kvf__buf_addc(ctx, buf, '\n');
}

kvf_status kvf__sweep_csv(kvf__sweep *s, const kvf_json *report)
{
    const kvf_json *names = kvf_json_get(report, "options"), *rows = kvf_json_get(report, "runs");
    kvf__buf buf = {0};
    char *path = NULL;
    kvf_status st = add_row(s->ctx, &buf, names, NULL);
    for (size_t i = 0; i < kvf_json_size(rows) && !st; i++)
        st = add_row(s->ctx, &buf, names, kvf_json_at(rows, i));
    if (!st) st = kvf__path_join(s->ctx, s->options->out, KVF__SWEEP_CSV, &path);
    if (!st) st = kvf__write_file(s->ctx, path, true, buf.data, buf.n);
    kvf__free(path);
    kvf__buf_done(&buf);
    return st;
}
