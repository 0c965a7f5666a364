/* The scores of a comparison as one SVG without style sheet: a row for each method, a dot at the
 * mean over seeds and a bar from minimum to maximum. Used in the page, and as a separate file. */
#include "report_priv.h"

#include <math.h>
#include <string.h>

enum {
    ROW = 22,
    TOP = 34,
    LEFT = 12,
    LETTER = 7,
    PLOT = 420,
    VALUE = 60,
    BOTTOM = 30,
    MOST_LETTERS = 44
};

typedef struct range_list {
    const kvf_json *methods, *ensembles; /* one below the other */
    const char *key, *title;             /* "score" or "loss" */
    size_t n;                            /* rows of both */
    int name_width;
    kvf__axis axis;
} range_list;

static const kvf_json *row_at(const range_list *r, size_t i)
{
    const size_t n = kvf_json_size(r->methods);
    return i < n ? kvf_json_at(r->methods, i) : kvf_json_at(r->ensembles, i - n);
}

/* An ensemble has no loss; its score is in the metric of the methods. */
static const kvf_json *spread_at(const range_list *r, size_t i)
{
    return kvf_json_get(row_at(r, i), i < kvf_json_size(r->methods) ? r->key : "score");
}

/* Returns false if no method has a number. */
static bool measure(const kvf_json *object, range_list *r)
{
    double low = INFINITY, high = -INFINITY;
    size_t letters = 0;
    *r = (range_list){.methods = kvf_json_get(object, "methods"),
                      .ensembles = kvf_json_get(object, "ensembles"),
                      .key = "loss",
                      .title = "validation loss"};
    r->n = kvf_json_size(r->methods) + kvf_json_size(r->ensembles);
    for (size_t i = 0; i < kvf_json_size(r->methods); i++) {
        const char *metric = kvf__text_at(row_at(r, i), "best_metric");
        if (!*metric) continue;
        r->key = "score";
        r->title = metric;
    }
    for (size_t i = 0; i < r->n; i++) {
        const size_t n = strlen(kvf__text_at(row_at(r, i), "name"));
        letters = n > letters ? n : letters;
        if (!isfinite(kvf__real_at(spread_at(r, i), "mean"))) continue;
        low = fmin(low, kvf__real_at(spread_at(r, i), "min"));
        high = fmax(high, kvf__real_at(spread_at(r, i), "max"));
    }
    r->name_width = LEFT + LETTER * (int)(letters < MOST_LETTERS ? letters : MOST_LETTERS);
    if (low <= high) r->axis = kvf__axis_linear(low, high, 6);
    return low <= high;
}

static double x_of(const range_list *r, double value)
{
    return r->name_width + LEFT + PLOT * kvf__axis_at(&r->axis, value);
}

static void put_axis(kvf__html *h, const range_list *r)
{
    const int bottom = TOP + ROW * (int)r->n;
    for (int i = 0; i < r->axis.n; i++) {
        const double x = x_of(r, r->axis.tick[i]);
        kvf__html_printf(h,
                         "<path d=\"M%.1f %dV%d\" stroke=\"#8884\"/><text x=\"%.1f\" y=\"%d\" "
                         "text-anchor=\"middle\">%.10g</text>\n",
                         x, TOP - 6, bottom, x, bottom + 18, r->axis.tick[i]);
    }
}

static void put_row(kvf__html *h, const range_list *r, size_t i)
{
    const kvf_json *spread = spread_at(r, i);
    const double mean = kvf__real_at(spread, "mean"), y = TOP + ROW * ((double)i + 0.5);
    kvf__html_printf(h, "<text x=\"%d\" y=\"%.1f\">", LEFT, y + 4);
    kvf__html_text(h, kvf__text_at(row_at(r, i), "name"));
    kvf__html_put(h, "</text>");
    if (isfinite(mean))
        kvf__html_printf(
            h,
            "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#3b7dd8\" stroke-width=\"5\" "
            "stroke-opacity=\".45\" stroke-linecap=\"round\"/><circle cx=\"%.1f\" cy=\"%.1f\" "
            "r=\"4\" fill=\"#3b7dd8\"/><text x=\"%d\" y=\"%.1f\">%.4f</text>",
            x_of(r, kvf__real_at(spread, "min")), y, x_of(r, kvf__real_at(spread, "max")),
            x_of(r, mean), y, r->name_width + 2 * LEFT + PLOT, y + 4, mean);
    kvf__html_put(h, "\n");
}

void kvf__ranges_put(kvf__html *h, const kvf_json *object)
{
    range_list r;
    if (h->st || !measure(object, &r)) return;
    const int width = r.name_width + 2 * LEFT + PLOT + VALUE,
              height = TOP + ROW * (int)r.n + BOTTOM;
    kvf__html_printf(h,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                     "height=\"%d\" style=\"max-width:100%%\" role=\"img\" fill=\"#888\" "
                     "font-family=\"sans-serif\" font-size=\"12\">\n<title>",
                     width, height, width, height);
    kvf__html_text(h, r.title);
    kvf__html_printf(h, "</title>\n<text x=\"%d\" y=\"16\" font-weight=\"bold\">", LEFT);
    kvf__html_text(h, r.title);
    kvf__html_put(h, ": mean over seeds, from the least to the largest</text>\n");
    put_axis(h, &r);
    for (size_t i = 0; i < r.n; i++)
        put_row(h, &r, i);
    kvf__html_put(h, "</svg>\n");
}

kvf_status kvf__ranges_picture(kvf_ctx *ctx, const kvf_json *object, kvf__buf *out)
{
    kvf__html h = {.ctx = ctx};
    kvf__ranges_put(&h, object);
    return kvf__html_end(&h, out);
}
