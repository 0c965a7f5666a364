/* The page of a comparison: table, curves of the methods, and common facts of all runs, from the
 * object of kvf__compare_summary(). A curve is the mean over a method's runs; the band around it
 * covers minimum to maximum. */
#include "arena.h"
#include "report_priv.h"

#include <math.h>
#include <string.h>

enum {
    MOST_METHODS = KVF__CURVES - 1,
    MOST_KEY = 24,
    LOOKS = 8
}; /* the bare base is a curve too */
typedef enum measure { SCORE, LOSS, MEASURES } measure;
typedef enum part { MEAN, LOW, HIGH, PARTS } part;

static const char *const MEASURE_KEYS[] = {"score", "loss"};
static const char *const PART_KEYS[] = {"mean", "min", "max"};

/* The numbers of one method at the steps of the comparison. */
typedef struct line {
    const kvf_json *method;
    char look[16], key[MEASURES][PARTS][MOST_KEY];
    double *at[MEASURES][PARTS]; /* [steps] */
} line;

typedef struct drawing {
    const kvf_json *object;
    int64_t n_steps;
    double *steps, *bare; /* [n_steps] */
    size_t n;
    line lines[MOST_METHODS];
    void *memory;
} drawing;

static const kvf_json *methods_of(const kvf_json *object)
{
    return kvf_json_get(object, "methods");
}

/* Returns the name of the score; NULL: all methods have only a loss. */
static const char *metric_of(const kvf_json *object)
{
    for (size_t i = 0; i < kvf_json_size(methods_of(object)); i++) {
        const char *name = kvf__text_at(kvf_json_at(methods_of(object), i), "best_metric");
        if (*name) return name;
    }
    return NULL;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void put_bytes_cell(kvf__html *h, const kvf_json *object, const char *key)
{
    const int64_t bytes = kvf__int_at(object, key);
    kvf__html_put(h, bytes ? "<td>" : "<td>&ndash;");
    if (bytes) kvf__bytes_put(h, bytes);
    kvf__html_put(h, "</td>");
}

/* Writes the mean, and for draws the standard deviation, else the range if runs differ. */
static void put_spread(kvf__html *h, const kvf_json *spread)
{
    const double low = kvf__real_at(spread, "min"), high = kvf__real_at(spread, "max"),
                 sd = kvf__real_at(spread, "sd");
    kvf__html_put(h, "<td>");
    kvf__html_number(h, "%.4f", kvf__real_at(spread, "mean"));
    if (isfinite(sd))
        kvf__html_printf(h, " <small>sd %.4f</small>", sd);
    else if (high > low)
        kvf__html_printf(h, " <small>%.4f to %.4f</small>", low, high);
    kvf__html_put(h, "</td>");
}

static void put_difference(kvf__html *h, const kvf_json *difference)
{
    const double error = kvf__real_at(difference, "standard_error");
    kvf__html_put(h, "<td>");
    kvf__html_number(h, "%+.4f", kvf__real_at(difference, "mean"));
    if (isfinite(error)) kvf__html_printf(h, " <small>&plusmn; %.4f</small>", error);
    kvf__html_put(h, "</td>");
}

static void put_method(kvf__html *h, const kvf_json *method, bool scored)
{
    kvf__html_around(h, "<tr><th scope=\"row\">", kvf__text_at(method, "name"), "</th>");
    kvf__html_cell(h, "%.0f", kvf__real_at(method, "trainable_parameters"));
    kvf__html_cell(h, "%.3f&nbsp;%%", 100 * kvf__real_at(method, "share"));
    put_bytes_cell(h, method, "bytes");
    kvf__html_cell(h, "%.0f", kvf__real_at(method, "tokens_per_second"));
    put_bytes_cell(h, method, "peak_rss_bytes");
    kvf__html_cell(h, "%.0f", kvf__real_at(method, "runs"));
    put_spread(h, kvf_json_get(method, "loss"));
    if (scored) put_spread(h, kvf_json_get(method, "score"));
    put_difference(h, kvf_json_get(method, "difference"));
    kvf__html_put(h, "</tr>\n");
}

static void put_bare(kvf__html *h, const kvf_json *bare, bool scored)
{
    const double loss = kvf__real_at(bare, "loss");
    if (!bare) return;
    kvf__html_put(h, "<tr><th scope=\"row\">bare base</th>");
    if (isfinite(loss)) {
        kvf__html_printf(h, "<td>0</td><td>0&nbsp;%%</td><td colspan=\"4\"></td><td>%.4f</td>%s",
                         loss, scored ? "<td></td>" : "");
        kvf__html_put(h, "<td></td>");
    } else {
        kvf__html_printf(h, "<td>0</td><td>0&nbsp;%%</td><td colspan=\"%d\">", scored ? 7 : 6);
        kvf__html_text(h, kvf__text_at(bare, "reason"));
        kvf__html_put(h, "</td>");
    }
    kvf__html_put(h, "</tr>\n");
}

/* Writes a table row for each failed run, with the reason. columns: of the table. */
static void put_failed(kvf__html *h, const kvf_json *failed, int columns)
{
    for (size_t i = 0; i < kvf_json_size(failed); i++) {
        const kvf_json *run = kvf_json_at(failed, i);
        kvf__html_put(h, "<tr><th scope=\"row\">");
        kvf__html_text(h, kvf__text_at(run, "name"));
        kvf__html_printf(h, "</th><td colspan=\"%d\">seed %.0f failed: ", columns - 1,
                         kvf__real_at(run, "seed"));
        kvf__html_text(h, kvf__text_at(run, "line"));
        kvf__html_put(h, "</td></tr>\n");
    }
}

static void put_ensembles(kvf__html *h, const kvf_json *ensembles)
{
    if (!kvf_json_size(ensembles)) return;
    kvf__html_around(h, "<table>\n<thead><tr><th scope=\"col\">ensemble</th><th scope=\"col\">",
                     kvf__text_at(kvf_json_at(ensembles, 0), "best_metric"),
                     "</th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < kvf_json_size(ensembles); i++) {
        const kvf_json *one = kvf_json_at(ensembles, i);
        kvf__html_around(h, "<tr><th scope=\"row\">", kvf__text_at(one, "name"), "</th>");
        put_spread(h, kvf_json_get(one, "score"));
        kvf__html_put(h, "</tr>\n");
    }
    kvf__html_put(h, "</tbody></table>\n");
}

static void put_heading(kvf__html *h, const char *text)
{
    kvf__html_around(h, "<th scope=\"col\">", text, "</th>");
}

static void put_titles(kvf__html *h, const kvf_json *object, const char *metric)
{
    static const char *const TITLES[] = {"method",   "trained", "share", "stored",
                                         "tokens/s", "memory",  "runs",  "validation loss"};
    for (size_t i = 0; i < sizeof TITLES / sizeof TITLES[0]; i++)
        put_heading(h, TITLES[i]);
    if (metric) put_heading(h, metric);
    kvf__html_around(h, "<th scope=\"col\">to ", kvf__text_at(object, "reference"), "</th>");
}

static void put_table(kvf__html *h, const kvf_json *object)
{
    const char *metric = metric_of(object);
    kvf__html_put(h, "<section id=\"methods\">\n<h2>Methods</h2>\n<div class=\"wide\">"
                     "<table>\n<thead><tr>");
    put_titles(h, object, metric);
    kvf__html_put(h, "</tr></thead>\n<tbody>\n");
    put_bare(h, kvf_json_get(object, "bare"), metric != NULL);
    for (size_t i = 0; i < kvf_json_size(methods_of(object)); i++)
        put_method(h, kvf_json_at(methods_of(object), i), metric != NULL);
    put_failed(h, kvf_json_get(object, "failed"), metric ? 10 : 9);
    kvf__html_put(h, "</tbody></table></div>\n<p class=\"note\">Loss and score are those of the "
                     "best checkpoints: the mean over seeds, and the range; over draws (sd) the "
                     "standard deviation. Share is relative to "
                     "the parameters of base and method together. The last column is the mean "
                     "difference over equal seeds with its standard error.</p>\n");
    put_ensembles(h, kvf_json_get(object, "ensembles"));
    kvf__ranges_put(h, object);
    kvf__html_put(h, "</section>\n");
}

/* ---- curves ---------------------------------------------------------------------------------- */

static void lay_drawing(void *object, kvf__carver *carver)
{
    drawing *d = object;
    d->steps = kvf__carve(carver, d->n_steps, 1, sizeof(double));
    d->bare = kvf__carve(carver, d->n_steps, 1, sizeof(double));
    for (size_t i = 0; i < d->n; i++)
        for (int m = 0; m < MEASURES; m++)
            for (int p = 0; p < PARTS; p++)
                d->lines[i].at[m][p] = kvf__carve(carver, d->n_steps, 1, sizeof(double));
}

static void fill_line(const drawing *d, size_t i, line *l)
{
    l->method = kvf_json_at(methods_of(d->object), i);
    snprintf(l->look, sizeof l->look, "c%zu%s", i % LOOKS, i >= LOOKS ? " second" : "");
    for (int m = 0; m < MEASURES; m++)
        for (int p = 0; p < PARTS; p++) {
            const kvf_json *curves = kvf_json_get(l->method, "curves");
            const kvf_json *values = kvf_json_get(kvf_json_get(curves, MEASURE_KEYS[m]),
                                                  PART_KEYS[p]);
            snprintf(l->key[m][p], MOST_KEY, "%s-%s-%zu", MEASURE_KEYS[m], PART_KEYS[p], i);
            for (int64_t s = 0; s < d->n_steps; s++)
                l->at[m][p][s] = kvf_json_real(kvf_json_at(values, (size_t)s), NAN);
        }
}

static kvf_status make_drawing(kvf_ctx *ctx, const kvf_json *object, drawing *d)
{
    const kvf_json *steps = kvf_json_get(object, "curve_steps");
    const size_t n = kvf_json_size(methods_of(object));
    *d = (drawing){.object = object,
                   .n_steps = (int64_t)kvf_json_size(steps),
                   .n = n < MOST_METHODS ? n : MOST_METHODS};
    KVF_TRY(kvf__carve_block(ctx, lay_drawing, d, &d->memory));
    for (int64_t s = 0; s < d->n_steps; s++) {
        d->steps[s] = kvf_json_real(kvf_json_at(steps, (size_t)s), NAN);
        d->bare[s] = kvf__real_at(kvf_json_get(object, "bare"), "loss");
    }
    for (size_t i = 0; i < d->n; i++)
        fill_line(d, i, &d->lines[i]);
    return KVF_OK;
}

static bool has_values(const drawing *d, const double *y)
{
    for (int64_t s = 0; s < d->n_steps; s++)
        if (isfinite(y[s])) return true;
    return false;
}

/* One of two constants. */
static const char *loss_title(const kvf_json *object)
{
    return strcmp(kvf__text_at(object, "loss"), "Training loss") ? "Validation loss"
                                                                 : "Training loss";
}

static void put_chart(kvf__html *h, const drawing *d, measure m)
{
    const bool score = m == SCORE;
    kvf__chart chart = {.id = MEASURE_KEYS[m],
                        .title = score ? "Validation score" : loss_title(d->object),
                        .unit = score ? "" : "nats per label",
                        .name = score ? metric_of(d->object) : NULL,
                        .label = score ? "Score of each method or run by step"
                                       : "Loss of each method or run by step",
                        .table = "steps",
                        .n = d->n_steps,
                        .x = d->steps,
                        .mark_x = NAN,
                        .mark_y = NAN};
    for (size_t i = 0; i < d->n; i++) {
        const line *l = &d->lines[i];
        const bool banded = has_values(d, l->at[m][LOW]);
        if (!has_values(d, l->at[m][MEAN])) continue;
        chart.curve[chart.n_curves++] = (kvf__curve){.column = l->key[m][MEAN],
                                                     .name = kvf__text_at(l->method, "name"),
                                                     .look = l->look,
                                                     .y = l->at[m][MEAN],
                                                     .dots = true,
                                                     .low = banded ? l->at[m][LOW] : NULL,
                                                     .high = banded ? l->at[m][HIGH] : NULL};
    }
    if (!score && chart.n_curves && has_values(d, d->bare))
        chart.curve[chart.n_curves++] = (kvf__curve){
            .column = "bare", .name = "bare base", .look = "bare", .y = d->bare};
    kvf__chart_put(h, &chart);
}

/* ---- numbers of the curves ------------------------------------------------------------------- */

/* Calls put for each column of numbers in order: the cell of a step, or the heading if step is -1.
 */
static void put_row(kvf__html *h, const drawing *d, int64_t step)
{
    const bool bare = has_values(d, d->bare);
    for (int m = 0; m < MEASURES; m++)
        for (size_t i = 0; i < d->n; i++)
            for (int p = 0; p < PARTS; p++) {
                const line *l = &d->lines[i];
                if (!has_values(d, l->at[m][p])) continue;
                if (step < 0) {
                    kvf__html_printf(h, "<th scope=\"col\" data-key=\"%s\">%s ", l->key[m][p],
                                     MEASURE_KEYS[m]);
                    kvf__html_text(h, kvf__text_at(l->method, "name"));
                    kvf__html_printf(h, "%s%s</th>", p ? ", " : "", p ? PART_KEYS[p] : "");
                    continue;
                }
                kvf__html_put(h, "<td>");
                if (isfinite(l->at[m][p][step])) kvf__html_printf(h, "%.6g", l->at[m][p][step]);
                kvf__html_put(h, "</td>");
            }
    if (bare && step < 0)
        kvf__html_put(h, "<th scope=\"col\" data-key=\"bare\">loss bare base</th>");
    else if (bare)
        kvf__html_printf(h, "<td>%.6g</td>", d->bare[step]);
}

static void put_numbers(kvf__html *h, const drawing *d)
{
    kvf__html_put(h, "<details><summary>Numbers of the curves</summary>\n<div class=\"wide\">"
                     "<table id=\"steps\">\n<thead><tr><th scope=\"col\" data-key=\"step\">step"
                     "</th>");
    put_row(h, d, -1);
    kvf__html_put(h, "</tr></thead>\n<tbody>\n");
    for (int64_t s = 0; s < d->n_steps; s++) {
        kvf__html_printf(h, "<tr><td>%.0f</td>", d->steps[s]);
        put_row(h, d, s);
        kvf__html_put(h, "</tr>\n");
    }
    kvf__html_put(h, "</tbody></table></div></details>\n");
}

/* about: explanation of the lines. */
static void put_curves(kvf__html *h, const kvf_json *object, const char *about)
{
    const size_t n = kvf_json_size(methods_of(object));
    drawing *d = NULL;
    if (h->st || !kvf_json_size(kvf_json_get(object, "curve_steps"))) return;
    h->st = kvf__alloc(h->ctx, sizeof *d, &d);
    if (!h->st) h->st = make_drawing(h->ctx, object, d);
    if (!h->st) {
        kvf__html_put(h, "<section id=\"curves\">\n<h2>Curves</h2>\n<div class=\"charts\">\n");
        put_chart(h, d, SCORE);
        put_chart(h, d, LOSS);
        kvf__html_put(h, "</div>\n<p class=\"note\">");
        kvf__html_put(h, about);
        if (n > MOST_METHODS)
            kvf__html_printf(h, " The first %d of %zu are drawn.", MOST_METHODS, n);
        kvf__html_put(h, "</p>\n");
        put_numbers(h, d);
        kvf__html_put(h, "</section>\n");
    }
    if (d) kvf__free(d->memory);
    kvf__free(d);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void put_about(kvf__html *h, const kvf_json *object)
{
    kvf_json *about = kvf_json_get(object, "about");
    kvf__html_put(h, "<dl class=\"cards\">\n");
    for (void *it = kvf_json_iter(about); it; it = kvf_json_next(about, it))
        kvf__card_put(h, kvf_json_iter_key(it), kvf_json_iter_value(it), "");
    kvf__card_put(h, "parameters of the base", kvf_json_get(object, "base_parameters"), "");
    kvf__html_put(h, "</dl>\n");
}

kvf_status kvf__comparison_page(kvf_ctx *ctx, const kvf_json *object, kvf__buf *out)
{
    const char *title = kvf__text_at(object, "title");
    kvf__html h = {.ctx = ctx};
    kvf__page_begin(&h, *title ? title : "Comparison", "compare");
    put_about(&h, object);
    kvf__html_put(&h, "</header>\n<main>\n");
    put_table(&h, object);
    put_curves(&h, object, "Lines are means over seeds, bands show the range.");
    kvf__tables_put(&h, object);
    return kvf__page_end(&h, out);
}

/* ---- a sweep --------------------------------------------------------------------------------- */

static void put_run(kvf__html *h, const kvf_json *names, const kvf_json *run)
{
    kvf__html_around(h, "<tr><th scope=\"row\">", kvf__text_at(run, "name"), "</th>");
    for (size_t i = 0; i < kvf_json_size(names); i++)
        kvf__html_around(
            h, "<td>",
            kvf__text_at(kvf_json_get(run, "options"), kvf_json_str(kvf_json_at(names, i), NULL)),
            "</td>");
    kvf__html_cell(h, "%.4f", kvf__real_at(run, "value"));
    kvf__html_cell(h, "%.0f", kvf__real_at(run, "best_step"));
    kvf__html_cell(h, "%.4f", kvf__real_at(run, "best_valid_loss"));
    kvf__html_cell(h, "%.4f", kvf__real_at(run, "train_loss"));
    kvf__html_cell(h, "%.0f", kvf__real_at(run, "steps"));
    kvf__html_cell(h, "%.1f", kvf__real_at(run, "seconds"));
    kvf__html_around(h, "<td>", kvf__text_at(run, "status"), "</td></tr>\n");
}

static void put_runs(kvf__html *h, const kvf_json *report)
{
    static const char *const TITLES[] = {"best step", "valid loss", "train loss",
                                         "steps",     "seconds",    "status"};
    const kvf_json *names = kvf_json_get(report, "options"), *runs = kvf_json_get(report, "runs");
    kvf__html_put(h, "<section id=\"methods\">\n<h2>Runs, best first</h2>\n<div "
                     "class=\"wide\"><table>\n<thead><tr><th scope=\"col\">run</th>");
    for (size_t i = 0; i < kvf_json_size(names); i++)
        put_heading(h, kvf_json_str(kvf_json_at(names, i), NULL));
    put_heading(h, kvf__text_at(report, "metric"));
    for (size_t i = 0; i < sizeof TITLES / sizeof TITLES[0]; i++)
        put_heading(h, TITLES[i]);
    kvf__html_put(h, "</tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < kvf_json_size(runs); i++)
        put_run(h, names, kvf_json_at(runs, i));
    kvf__html_put(h, "</tbody></table></div>\n</section>\n");
}

static void put_seeds(kvf__html *h, const kvf_json *report)
{
    const kvf_json *groups = kvf_json_get(report, "over_seeds");
    if (!kvf_json_size(groups)) return;
    kvf__html_put(h, "<section id=\"seeds\">\n<h2>Over seeds</h2>\n<div class=\"wide\"><table>\n"
                     "<thead><tr><th scope=\"col\">runs with</th><th scope=\"col\">runs</th>");
    put_heading(h, kvf__text_at(report, "metric"));
    kvf__html_put(h, "</tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < kvf_json_size(groups); i++) {
        const kvf_json *group = kvf_json_at(groups, i);
        kvf__html_around(h, "<tr><th scope=\"row\">", kvf__text_at(group, "name"), "</th>");
        kvf__html_cell(h, "%.0f", kvf__real_at(group, "runs"));
        put_spread(h, group);
        kvf__html_put(h, "</tr>\n");
    }
    kvf__html_put(h, "</tbody></table></div>\n</section>\n");
}

kvf_status kvf__sweep_page(kvf_ctx *ctx, const kvf_json *report, const kvf_json *drawn,
                           kvf__buf *out)
{
    const kvf_json *runs = kvf_json_get(report, "runs");
    kvf__html h = {.ctx = ctx};
    kvf__page_begin(&h, kvf__text_at(report, "out"), "sweep");
    kvf__html_printf(&h, "<dl class=\"cards\">\n<div><dt>runs</dt><dd>%zu</dd></div>\n",
                     kvf_json_size(runs));
    kvf__card_put(&h, "ranked by", kvf_json_get(report, "metric"), "");
    kvf__card_put(&h, "best run", kvf_json_get(kvf_json_at(runs, 0), "name"), "");
    kvf__card_put(&h, "its value", kvf_json_get(kvf_json_at(runs, 0), "value"), "");
    kvf__card_put(&h, "failed", kvf_json_get(report, "failed"), "");
    kvf__html_put(&h, "</dl>\n</header>\n<main>\n");
    put_runs(&h, report);
    put_seeds(&h, report);
    put_curves(&h, drawn, "Lines are runs, in the order of the table.");
    return kvf__page_end(&h, out);
}
