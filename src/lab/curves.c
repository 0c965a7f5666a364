/* Charts of a run's history: four to seven charts and one table of numbers. A long run is thinned
 * to at most MOST_POINTS rows of `every` steps. Measured values (train loss, gradient norm) become
 * means; of the others (learning rate, prefix norm, validation, retention set) the last value is
 * kept. The smoothed curve is computed before thinning. */
#include "arena.h"
#include "report_priv.h"

#include <math.h>
#include <string.h>

enum { MOST_POINTS = 400, SMOOTH_PART = 25, LEAST_TO_SMOOTH = 20 };

/* Columns of the history, and two derived ones. */
enum {
    STEP = KVF__COLUMN_step,
    TRAIN = KVF__COLUMN_train_loss,
    VALID = KVF__COLUMN_valid_loss,
    METRIC = KVF__COLUMN_valid_metric,
    RETENTION = KVF__COLUMN_retention_loss,
    KL = KVF__COLUMN_kl_to_base,
    LR = KVF__COLUMN_lr,
    GRAD = KVF__COLUMN_grad_norm,
    NORM = KVF__COLUMN_prefix_norm,
    SMOOTH = KVF__COLUMNS,
    BARE,
    COLUMNS
};

static const char *key_of(int column)
{
    return column < KVF__COLUMNS ? kvf__columns[column].name : column == SMOOTH ? "smooth" : "bare";
}

static const char *title_of(int column)
{
    if (column < KVF__COLUMNS) return kvf__columns[column].title;
    return column == SMOOTH ? "smoothed" : "bare base";
}

typedef struct series {
    int64_t n, every;    /* rows; steps in each */
    int64_t horizon;     /* steps of the exponential mean; 0: not smoothed */
    double *at[COLUMNS]; /* [n] */
    int64_t steps;       /* steps in the history */
    double *smoothed;    /* [steps] */
    void *memory;        /* owner of the arrays */
} series;

/* Computes the exponential mean of x [n] over about `horizon` steps, without the bias towards 0 at
 * its start (Kingma and Ba 2014, section 3). */
static void smooth(const double *x, int64_t n, int64_t horizon, double *out)
{
    double keep = 1 - 1 / (double)horizon, sum = 0, weight = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(x[i])) {
            sum = keep * sum + (1 - keep) * x[i];
            weight = keep * weight + (1 - keep);
        }
        out[i] = weight > 0 ? sum / weight : NAN;
    }
}

/* Reduces a column of the history over the steps first .. first + n - 1. */
static double column_of(const kvf__history *history, int column, int64_t first, int64_t n)
{
    double sum = 0, last = NAN;
    int64_t count = 0;
    for (int64_t row = first; row < first + n; row++) {
        const double value = kvf__history_at(history, column, row);
        if (!isfinite(value)) continue;
        sum += value;
        last = value;
        count++;
    }
    return count && kvf__columns[column].mean ? sum / (double)count : last;
}

static double last_of(const double *x, int64_t n)
{
    while (n > 0 && !isfinite(x[n - 1]))
        n--;
    return n > 0 ? x[n - 1] : NAN;
}

/* base_loss: loss of the bare base on the retention set, drawn as a horizontal line. */
static void thin(const kvf__history *history, double base_loss, series *s)
{
    for (int64_t row = 0; row < s->n; row++) {
        int64_t first = row * s->every;
        int64_t n = history->n - first < s->every ? history->n - first : s->every;
        for (int c = 0; c < KVF__COLUMNS; c++)
            s->at[c][row] = column_of(history, c, first, n);
        s->at[SMOOTH][row] = s->horizon ? last_of(s->smoothed + first, n) : NAN;
        s->at[BARE][row] = isfinite(s->at[RETENTION][row]) ? base_loss : NAN;
    }
}

static void lay_series(void *object, kvf__carver *carver)
{
    series *s = object;
    for (int c = 0; c < COLUMNS; c++)
        s->at[c] = kvf__carve(carver, s->n, 1, sizeof(double));
    s->smoothed = kvf__carve(carver, s->steps, 1, sizeof(double));
}

static kvf_status make_series(kvf_ctx *ctx, const kvf_json *facts, const kvf__history *history,
                              series *s)
{
    const kvf_json *lineage = kvf_json_get(facts, "lineage");
    const double base_loss = kvf__real_at(lineage, "retention_base_loss");

    *s = (series){.every = (history->n + MOST_POINTS - 1) / MOST_POINTS, .steps = history->n};
    s->n = (s->steps + s->every - 1) / s->every;
    if (s->steps >= LEAST_TO_SMOOTH)
        s->horizon = s->steps / SMOOTH_PART > 2 ? s->steps / SMOOTH_PART : 2;
    KVF_TRY(kvf__carve_block(ctx, lay_series, s, &s->memory));
    if (s->horizon) smooth(history->train_loss, s->steps, s->horizon, s->smoothed);
    thin(history, base_loss, s);
    return KVF_OK;
}

/* ---- charts ---------------------------------------------------------------------------------- */

enum { LOSS_CHART, METRIC_CHART, RETENTION_CHART, KL_CHART };
enum { LR_CHART = KL_CHART + 1, GRAD_CHART, NORM_CHART, CHARTS };

/* marked: column in which the best step is marked; STEP: none. */
static const struct {
    const char *id, *title, *unit, *label;
    int marked;
} ROWS[CHARTS] = {
    {"loss", "Loss", "nats per label",
     "Train and valid loss by step; the table below has the numbers", VALID},
    {"metric", "Validation metric", "", "Validation metric by step", METRIC},
    {"retention", "Retention", "nats per label",
     "Loss on the retained text by step, with that of the bare base", STEP},
    {"kl", "KL to the base", "nats per label", "KL(base || run) by step", STEP},
    {"lr", "Learning rate", "learning rate", "Learning rate by step", STEP},
    {"grad", "Gradient norm", "L2 norm, before clipping", "Gradient norm by step", STEP},
    {"norm", "Prefix norm", "L2 norm", "Norm of the emitted prefix by step", STEP},
};

enum { NEVER, ALONE, ALWAYS }; /* dots; ALONE: only for a single point */

/* The curves of the charts. A curve that is not the first of its chart is omitted without values.
 */
static const struct {
    int chart, column;
    const char *name, *look; /* name NULL: title of the column */
    int dots;
} CURVES[] = {
    {LOSS_CHART, TRAIN, "train", "raw", ALONE},
    {LOSS_CHART, SMOOTH, "smoothed", "smooth", NEVER},
    {LOSS_CHART, VALID, "valid", "valid", ALWAYS},
    {METRIC_CHART, METRIC, "metric", "valid", ALWAYS},
    {RETENTION_CHART, RETENTION, "retention", "smooth", ALWAYS},
    {RETENTION_CHART, BARE, NULL, "valid", NEVER},
    {KL_CHART, KL, NULL, "smooth", ALONE},
    {LR_CHART, LR, NULL, "smooth", ALONE},
    {GRAD_CHART, GRAD, NULL, "smooth", ALONE},
    {NORM_CHART, NORM, NULL, "smooth", ALONE},
};

/* Marks the best step and its value in this column. */
static void mark_best(const kvf_json *facts, const kvf__history *history, int column,
                      kvf__chart *chart)
{
    int64_t best = kvf_json_int(kvf_json_get(kvf_json_get(facts, "history"), "best_step"), -1);
    for (int64_t i = 0; i < history->n; i++) {
        const double value = kvf__history_at(history, column, i);
        if (history->step[i] != best || !isfinite(value)) continue;
        chart->mark_x = (double)best;
        chart->mark_y = value;
    }
}

/* Returns the name of the metric that selects the best step; NULL: the loss. */
static const char *metric_name(const kvf_json *facts)
{
    const char *name = kvf_json_str(kvf_json_get(kvf_json_get(facts, "history"), "best_metric"),
                                    NULL);
    return name && strcmp(name, "valid_loss") ? name : NULL;
}

static void add_curve(const series *s, size_t i, kvf__chart *chart)
{
    const int column = CURVES[i].column, dots = CURVES[i].dots;
    const char *name = CURVES[i].name ? CURVES[i].name : title_of(column);

    if (chart->n_curves && !isfinite(last_of(s->at[column], s->n))) return;
    chart->curve[chart->n_curves++] = (kvf__curve){.column = key_of(column),
                                                   .name = name,
                                                   .look = CURVES[i].look,
                                                   .y = s->at[column],
                                                   .dots = dots == ALWAYS || (dots && s->n == 1)};
}

static void put_chart(kvf__html *h, const kvf_json *facts, const kvf__history *history,
                      const series *s, int which)
{
    kvf__chart chart = {.id = ROWS[which].id,
                        .title = ROWS[which].title,
                        .unit = ROWS[which].unit,
                        .label = ROWS[which].label,
                        .name = which == METRIC_CHART ? metric_name(facts) : NULL,
                        .table = "steps",
                        .n = s->n,
                        .x = s->at[STEP],
                        .mark_x = NAN,
                        .mark_y = NAN,
                        .mark = "best",
                        .prefer_log = which == GRAD_CHART};

    if (which == METRIC_CHART && !chart.name) return;
    for (size_t i = 0; i < sizeof CURVES / sizeof CURVES[0]; i++)
        if (CURVES[i].chart == which) add_curve(s, i, &chart);
    if (ROWS[which].marked != STEP) mark_best(facts, history, ROWS[which].marked, &chart);
    kvf__chart_put(h, &chart);
}

/* ---- the table ------------------------------------------------------------------------------- */

static bool has_column(const kvf_json *facts, const series *s, int column)
{
    if (column == METRIC && !metric_name(facts)) return false;
    if (column != METRIC && !title_of(column)) return false;
    return column == STEP || isfinite(last_of(s->at[column], s->n));
}

/* Lists the shown columns in order; a derived column follows its source. */
static int list_columns(const kvf_json *facts, const series *s, int out[COLUMNS])
{
    int n = 0;
    for (int c = 0; c < KVF__COLUMNS; c++) {
        const int made = c == TRAIN ? SMOOTH : c == RETENTION ? BARE : c;
        if (has_column(facts, s, c)) out[n++] = c;
        if (made != c && has_column(facts, s, made)) out[n++] = made;
    }
    return n;
}

static void put_title(kvf__html *h, const kvf_json *facts, int column)
{
    kvf__html_printf(h, "<th scope=\"col\" data-key=\"%s\">", key_of(column));
    if (title_of(column))
        kvf__html_put(h, title_of(column));
    else /* the metric has its own name */
        kvf__html_text(h, kvf__text_at(kvf_json_get(facts, "history"), "best_metric"));
    kvf__html_put(h, "</th>");
}

static void put_table(kvf__html *h, const kvf_json *facts, const series *s)
{
    int shown[COLUMNS];
    const int n = list_columns(facts, s, shown);

    kvf__html_put(h, "<details><summary>Numbers of the curves</summary>\n<div class=\"wide\">"
                     "<table id=\"steps\">\n<thead><tr>");
    for (int i = 0; i < n; i++)
        put_title(h, facts, shown[i]);
    kvf__html_put(h, "</tr></thead>\n<tbody>\n");
    for (int64_t row = 0; row < s->n; row++) {
        kvf__html_put(h, "<tr>");
        for (int i = 0; i < n; i++) {
            const double value = s->at[shown[i]][row];
            kvf__html_put(h, "<td>");
            if (isfinite(value)) kvf__html_printf(h, shown[i] == STEP ? "%.0f" : "%.6g", value);
            kvf__html_put(h, "</td>");
        }
        kvf__html_put(h, "</tr>\n");
    }
    kvf__html_put(h, "</tbody></table></div></details>\n");
}

static void put_best(kvf__html *h, const kvf_json *facts)
{
    const kvf_json *history = kvf_json_get(facts, "history");
    if (!kvf_json_get(history, "best_step")) return;
    kvf__html_printf(h, "<p>Best step: <strong>%lld</strong>, ", kvf__int_at(history, "best_step"));
    kvf__html_text(h, kvf__text_at(history, "best_metric"));
    kvf__html_put(h, " <strong>");
    kvf__html_number(h, "%.6g", kvf__real_at(history, "best_value"));
    kvf__html_put(h, "</strong>.</p>\n");
}

static void put_how(kvf__html *h, const series *s)
{
    kvf__html_put(h, "<p class=\"note\">");
    if (s->every > 1)
        kvf__html_printf(h,
                         "Each point covers %lld steps: the mean of train loss and gradient norm, "
                         "the last value of the others. ",
                         (long long)s->every);
    if (s->horizon)
        kvf__html_printf(h, "Smoothed: exponential mean of the train loss over about %lld steps.",
                         (long long)s->horizon);
    kvf__html_put(h, "</p>\n");
}

void kvf__curves_put(kvf__html *h, const kvf_json *facts, const kvf__history *history)
{
    series s = {0};

    if (h->st || !history || history->n < 1) return;
    h->st = make_series(h->ctx, facts, history, &s);
    if (!h->st) {
        kvf__html_put(h, "<section id=\"curves\">\n<h2>Curves</h2>\n");
        put_best(h, facts);
        kvf__html_put(h, "<div class=\"charts\">\n");
        for (int i = 0; i < CHARTS; i++)
            put_chart(h, facts, history, &s, i);
        kvf__html_put(h, "</div>\n");
        if (s.every > 1 || s.horizon) put_how(h, &s);
        put_table(h, facts, &s);
        kvf__html_put(h, "</section>\n");
    }
    kvf__free(s.memory);
}
