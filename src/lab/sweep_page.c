/* DIR/sweep.html: the ranked runs of a sweep and their curves on one page, drawn like a comparison.
 * Curves come from the run files. */
#include "artifact.h"
#include "json_pack.h"
#include "outfile.h"
#include "report_int.h"
#include "sweep_int.h"

#include <math.h>
#include <string.h>

enum { MOST_STEPS = 400 };

/* Curves of all runs: validations, or training losses if a run has no validation. */
typedef struct run_curves {
    size_t n;
    kvf__history *run; /* [n] in the order of the report; empty: none */
    int loss;          /* column of the history */
    int64_t *step;     /* [n_steps] steps at which any run has a value, ascending */
    int64_t n_steps;
} run_curves;

static bool has_any(const kvf__history *history, int column)
{
    for (int64_t i = 0; i < history->n; i++)
        if (isfinite(kvf__history_at(history, column, i))) return true;
    return false;
}

/* Thins the steps to a number that can be drawn, at equal distances. */
static void thin(run_curves *c)
{
    const int64_t every = (c->n_steps + MOST_STEPS - 1) / MOST_STEPS;
    int64_t n = 0;
    for (int64_t i = 0; i < c->n_steps; i += every)
        c->step[n++] = c->step[i];
    c->n_steps = n;
}

static kvf_status read_curves(kvf_ctx *ctx, const kvf_json *rows, run_curves *c)
{
    c->n = kvf_json_size(rows);
    c->loss = KVF__COLUMN_valid_loss;
    KVF_TRY(kvf__alloc_array(ctx, c->n, sizeof *c->run, &c->run));
    for (size_t i = 0; i < c->n; i++) {
        const kvf_json *row = kvf_json_at(rows, i);
        const char *status = kvf_json_str(kvf_json_get(row, "status"), NULL);
        if (!status || (strcmp(status, "done") && strcmp(status, "stopped"))) continue;
        KVF_TRY(
            kvf__artifact_history(ctx, kvf_json_str(kvf_json_get(row, "file"), NULL), &c->run[i]));
        if (!has_any(&c->run[i], c->loss)) c->loss = KVF__COLUMN_train_loss;
    }
    KVF_TRY(kvf__history_steps(ctx, c->run, c->n, c->loss, &c->step, &c->n_steps));
    thin(c);
    return KVF_OK;
}

static void curves_done(run_curves *c)
{
    for (size_t i = 0; c->run && i < c->n; i++)
        kvf__history_done(&c->run[i]);
    kvf__free(c->run);
    kvf__free(c->step);
}

/* Returns {"mean": a value for each step, or null}, the form of a curve in a comparison. */
static kvf_json *curve_of(const run_curves *c, const kvf__history *history, int column)
{
    kvf_json *values = kvf_json_array();
    for (int64_t i = 0; i < c->n_steps; i++)
        kvf_json_add(values, kvf_json_new_real(kvf__history_at_step(history, column, c->step[i])));
    return kvf__json_of("mean:o", values);
}

static kvf_json *line_of(const run_curves *c, size_t i, const kvf_json *row)
{
    const char *metric = kvf_json_str(kvf_json_get(row, "metric"), NULL);
    const bool scored = metric && !strstr(metric, "loss");
    kvf_json *curves = kvf__json_of("loss:o", curve_of(c, &c->run[i], c->loss));
    if (scored) kvf_json_set(curves, "score", curve_of(c, &c->run[i], KVF__COLUMN_valid_metric));
    return kvf__json_of("name:s curves:o best_metric:s", kvf__text_at(row, "name"), curves,
                        scored ? metric : "");
}

kvf_status kvf__sweep_html(kvf__sweep *s, const kvf_json *report)
{
    const kvf_json *rows = kvf_json_get(report, "runs");
    run_curves c = {.n = 0};
    kvf__buf page = {0};
    char *path = NULL;
    kvf_status st = read_curves(s->ctx, rows, &c);
    kvf_json *lines = kvf_json_array();
    for (size_t i = 0; i < c.n && !st; i++)
        kvf_json_add(lines, line_of(&c, i, kvf_json_at(rows, i)));
    kvf_json *drawn = kvf__json_of(
        "methods:o curve_steps:o loss:s", lines, kvf__json_ints(c.step, c.n_steps),
        c.loss == KVF__COLUMN_train_loss ? "Training loss" : "Validation loss");
    if (!st && !drawn) st = kvf__fail(s->ctx, KVF_ENOMEM, "out of memory");
    if (!st) st = kvf__sweep_page(s->ctx, report, drawn, &page);
    if (!st) st = kvf__path_join(s->ctx, s->options->out, KVF__SWEEP_HTML, &path);
    if (!st) st = kvf__write_file(s->ctx, path, true, page.data, page.n);
    kvf_json_free(drawn);
    kvf__free(path);
    kvf__buf_done(&page);
    curves_done(&c);
    return st;
}
