/* Results of a comparison. Each method has mean, minimum and maximum over its runs, the difference
 * to the reference over runs of equal seeds, and the curve of its validations. Draws of rows also
 * have a standard deviation. A method has its share of all parameters: as in PEFT, trained values
 * over all values of the base and the method. */
#include "compare_hooks.h"
#include "hooks.h"

#include "artifact.h"
#include "json_pack.h"
#include "open_base.h"
#include "report_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const bool kvf__has_lab = true;

typedef struct compared_run {
    const kvf_json *row;
    const char *name; /* name of its row in the table */
    int64_t seed;
    double loss, score; /* of the best checkpoint; score NaN: the metric is the loss */
    int64_t of_base;    /* trained values that belong to the base */
} compared_run;

typedef struct comparison {
    kvf_ctx *ctx;
    size_t n;
    compared_run *runs;      /* [n] */
    kvf__history *histories; /* [n] histories of the runs */
    double *values;          /* [n] scratch */
    bool draws;              /* runs differ in their rows: also report standard deviations */
    int64_t base_parameters; /* of the model */
    int64_t n_steps;
    int64_t *steps; /* [n_steps] steps at which any run was validated, ascending */
} comparison;

/* ---- numbers over runs ----------------------------------------------------------------------- */

typedef struct spread {
    double mean, min, max;
    double sd; /* standard deviation of a sample; NaN: fewer than two values */
    size_t n;  /* number of finite values; 0: the others are NaN */
} spread;

/* Returns the standard deviation of the finite values around their mean. */
static double deviation(const double *x, size_t n, const spread *s)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i])) squares += (x[i] - s->mean) * (x[i] - s->mean);
    return s->n > 1 ? sqrt(squares / (double)(s->n - 1)) : NAN;
}

static spread spread_of(const double *x, size_t n)
{
    spread s = {.mean = 0, .min = INFINITY, .max = -INFINITY};
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) continue;
        s.mean += x[i];
        s.min = fmin(s.min, x[i]);
        s.max = fmax(s.max, x[i]);
        s.n++;
    }
    if (!s.n) return (spread){.mean = NAN, .min = NAN, .max = NAN, .sd = NAN};
    s.mean = fmin(fmax(s.mean / (double)s.n, s.min), s.max); /* keeps rounding errors inside the
                                                              * range */
    s.sd = deviation(x, n, &s);
    return s;
}

static kvf_json *spread_json(const comparison *c, spread s)
{
    if (!s.n) return kvf_json_new_null();
    kvf_json *object = kvf__json_of("mean:f min:f max:f", s.mean, s.min, s.max);
    if (c->draws) kvf__json_put(object, "sd:f", s.sd);
    return object;
}

static double score_of(const compared_run *run)
{
    return isnan(run->score) ? run->loss : run->score;
}

/* Returns the difference of the runs named `name` to those of the reference with the same seeds:
 * mean, and standard error of the mean, null for one pair. */
static kvf_json *difference_json(comparison *c, const char *name, const char *reference)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->n; k++)
            if (!strcmp(c->runs[i].name, name) && !strcmp(c->runs[k].name, reference) &&
                c->runs[i].seed == c->runs[k].seed)
                c->values[n++] = score_of(&c->runs[i]) - score_of(&c->runs[k]);
    const spread s = spread_of(c->values, n);
    if (!s.n || s.n < n) return kvf_json_new_null();
    return kvf__json_of("mean:f standard_error:f pairs:I", s.mean, s.sd / sqrt((double)n),
                        (int64_t)n);
}

/* ---- curves ---------------------------------------------------------------------------------- */

double kvf__history_at_step(const kvf__history *h, int column, int64_t step)
{
    for (int64_t i = 0; i < h->n; i++)
        if (h->step[i] == step) return kvf__history_at(h, column, i);
    return NAN;
}

/* Returns {"mean": [...], "min": [...], "max": [...]} over the comparison's steps. */
static kvf_json *curve_json(comparison *c, const char *name, int column)
{
    static const char *const KEYS[] = {"mean", "min", "max"};
    kvf_json *curve = kvf_json_object();
    for (int k = 0; k < 3; k++) {
        kvf_json *values = kvf_json_array();
        for (int64_t i = 0; i < c->n_steps; i++) {
            size_t n = 0;
            for (size_t r = 0; r < c->n; r++)
                if (!strcmp(c->runs[r].name, name))
                    c->values[n++] = kvf__history_at_step(&c->histories[r], column, c->steps[i]);
            const spread s = spread_of(c->values, n);
            kvf_json_add(values, kvf_json_new_real(k == 0 ? s.mean : k == 1 ? s.min : s.max));
        }
        kvf_json_set(curve, KEYS[k], values);
    }
    return curve;
}

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

kvf_status kvf__history_steps(kvf_ctx *ctx, const kvf__history *runs, size_t n, int column,
                              int64_t **steps, int64_t *n_steps)
{
    size_t all = 0, found = 0;
    int64_t *list = NULL;
    *n_steps = 0;
    for (size_t r = 0; r < n; r++)
        all += (size_t)runs[r].n;
    if (!all) return KVF_OK;
    KVF_TRY(kvf__alloc_array(ctx, all, sizeof *list, &list));
    for (size_t r = 0; r < n; r++)
        for (int64_t i = 0; i < runs[r].n; i++)
            if (isfinite(kvf__history_at(&runs[r], column, i))) list[found++] = runs[r].step[i];
    qsort(list, found, sizeof *list, ascending);
    for (size_t i = 0; i < found; i++)
        if (!i || list[i] != list[i - 1]) list[(*n_steps)++] = list[i];
    *steps = list;
    return KVF_OK;
}

/* ---- one method ------------------------------------------------------------------------------ */

/* Returns mean and range of a member over a method's runs. */
static spread member_spread(comparison *c, const char *name, const char *key)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->runs[i].name, name)) c->values[n++] = kvf__real_at(c->runs[i].row, key);
    return spread_of(c->values, n);
}

static void copy_member(kvf_json *to, const kvf_json *row, const char *key)
{
    const kvf_json *value = kvf_json_get(row, key);
    kvf_json_set(to, key, value ? kvf__json_copy(value) : kvf_json_new_null());
}

static void add_scores(comparison *c, const compared_run *first, const char *reference,
                       kvf_json *method)
{
    const char *name = first->name;
    const bool scored = !isnan(first->score);
    const spread score = member_spread(c, name, "best_value");
    kvf_json_set(method, "loss", spread_json(c, member_spread(c, name, "best_valid_loss")));
    if (scored) copy_member(method, first->row, "best_metric");
    kvf__json_put(method, "score:o difference:o",
                  scored ? spread_json(c, score) : kvf_json_new_null(),
                  reference && strcmp(name, reference) ? difference_json(c, name, reference)
                                                       : kvf_json_new_null());
    kvf_json *curves = kvf__json_of("loss:o", curve_json(c, name, KVF__COLUMN_valid_loss));
    if (scored) kvf_json_set(curves, "score", curve_json(c, name, KVF__COLUMN_valid_metric));
    kvf_json_set(method, "curves", curves);
}

static kvf_json *method_json(comparison *c, const compared_run *first, const char *reference)
{
    static const char *const KEYS[] = {"name", "method", "init", "bytes", "trainable_parameters"};
    const int64_t trained = kvf__int_at(first->row, "trainable_parameters");
    const int64_t all = c->base_parameters + trained - first->of_base;
    const spread loss = member_spread(c, first->name, "best_valid_loss");
    kvf_json *method = kvf_json_object();
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++)
        copy_member(method, first->row, KEYS[i]);
    kvf__json_put(method, "share:f runs:I tokens_per_second:f peak_rss_bytes:I",
                  all ? (double)trained / (double)all : NAN, (int64_t)loss.n,
                  member_spread(c, first->name, "tokens_per_second").mean,
                  (int64_t)fmax(0, member_spread(c, first->name, "peak_rss_bytes").max));
    add_scores(c, first, reference, method);
    return method;
}

static bool is_first(const comparison *c, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (!strcmp(c->runs[k].name, c->runs[i].name)) return false;
    return true;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static kvf_status read_run(comparison *c, const kvf_base *base, const kvf_json *row,
                           compared_run *run, kvf__history *history)
{
    const char *file = kvf_json_str(kvf_json_get(row, "file"), NULL);
    const char *metric = kvf_json_str(kvf_json_get(row, "best_metric"), NULL);
    kvf__artifact artifact = {0};
    const char *name = kvf_json_str(kvf_json_get(row, "name"), NULL);
    if (!file || !name)
        return kvf__fail(c->ctx, KVF_EUSAGE, "a run of a comparison needs \"name\" and \"file\"");
    *run = (compared_run){.row = row,
                          .name = name,
                          .seed = kvf__int_at(row, "seed"),
                          .loss = kvf__real_at(row, "best_valid_loss"),
                          .score = NAN};
    if (metric && strcmp(metric, "loss")) run->score = kvf__real_at(row, "best_value");
    KVF_TRY(kvf__artifact_read_all(c->ctx, file, KVF__KIND_RUN, &artifact));
    run->of_base = kvf__base_own_values(base, &artifact.values.params);
    *history = artifact.history;
    artifact.history = (kvf__history){0};
    kvf__artifact_done(&artifact);
    return KVF_OK;
}

static kvf_status read_runs(comparison *c, const char *base_path, const kvf_json *rows)
{
    const kvf_base_options mapped = {.stream_layers = true};
    kvf_base *base = NULL;
    KVF_TRY(kvf_base_open(c->ctx, base_path, &mapped, &base));
    c->base_parameters = kvf__base_parameters(base);
    kvf_status st = KVF_OK;
    for (; c->n < kvf_json_size(rows) && !st; c->n += !st)
        st = read_run(c, base, kvf_json_at(rows, c->n), &c->runs[c->n], &c->histories[c->n]);
    kvf_base_free(base);
    return st;
}

static void put_summary(comparison *c, kvf_json *object)
{
    const char *reference = kvf_json_str(kvf_json_get(object, "reference"), NULL);
    kvf_json *methods = kvf_json_array();
    for (size_t i = 0; i < c->n; i++)
        if (is_first(c, i)) kvf_json_add(methods, method_json(c, &c->runs[i], reference));
    kvf__json_put(object, "base_parameters:I methods:o curve_steps:o", c->base_parameters, methods,
                  kvf__json_ints(c->steps, c->n_steps));
}

kvf_status kvf__compare_summary(kvf_ctx *ctx, const char *base, kvf_json *object)
{
    const kvf_json *rows = kvf_json_get(object, "runs");
    const size_t n = kvf_json_size(rows);
    comparison c = {.ctx = ctx, .draws = kvf_json_get(object, "draws")};
    kvf_status st = kvf__alloc_array(ctx, n ? n : 1, sizeof *c.runs, &c.runs);
    if (!st) st = kvf__alloc_array(ctx, n ? n : 1, sizeof *c.histories, &c.histories);
    if (!st) st = kvf__alloc_array(ctx, n * n + 1, sizeof *c.values, &c.values);
    if (!st) st = read_runs(&c, base, rows);
    if (!st)
        st = kvf__history_steps(ctx, c.histories, c.n, KVF__COLUMN_valid_loss, &c.steps,
                                &c.n_steps);
    if (!st) put_summary(&c, object);
    for (size_t i = 0; i < c.n; i++)
        kvf__history_done(&c.histories[i]);
    kvf__free(c.runs);
    kvf__free(c.histories);
    kvf__free(c.values);
    kvf__free(c.steps);
    return st;
}
