/* The page of `kvfold eval --drop-spans`: heat maps of the loss and score without the adapters of
 * each span of layers, and the relative size of each adapter. */
#include "report_priv.h"

#include <math.h>
#include <string.h>

/* Returns [L][L] by first and last layer: the span's value minus that with all adapters; null below
 * the diagonal. */
static kvf_json *field_of(const kvf_json *object, const char *key)
{
    const kvf_json *spans = kvf_json_get(object, "spans");
    const int64_t L = kvf__int_at(object, "layers");
    const double whole = kvf__real_at(object, key);
    kvf_json *rows = kvf_json_array();
    size_t at = 0;

    for (int64_t first = 0; first < L; first++) {
        kvf_json *row = kvf_json_array();
        for (int64_t last = 0; last < L; last++) {
            double value = last < first ? NAN : kvf__real_at(kvf_json_at(spans, at++), key);
            kvf_json_add(row,
                         isfinite(value) ? kvf_json_new_real(value - whole) : kvf_json_new_null());
        }
        kvf_json_add(rows, row);
    }
    return rows;
}

static void put_heat(kvf__html *h, const kvf_json *object, const char *key, const char *title,
                     const char *unit)
{
    kvf_json *rows = field_of(object, key);
    const kvf__heat heat = {.id = key,
                            .title = title,
                            .unit = unit,
                            .label = "heat map: what is lost without the adapters of a span",
                            .row_name = "first layer",
                            .column_name = "last layer",
                            .rows = rows};
    kvf__heat_put(h, &heat);
    kvf_json_free(rows);
}

static void put_added(kvf__html *h, const kvf_json *layers)
{
    static const char *const HALVES[] = {"attn", "ffn"};

    kvf__html_put(h, "<section><h2>What adapters add</h2>\n<p>Norm of what an adapter adds over "
                     "that of what it reads; 0 is the identity.</p>\n<div class=\"wide\"><table>\n"
                     "<thead><tr><th scope=\"col\">layer</th><th scope=\"col\">attention</th><th "
                     "scope=\"col\">feed-forward</th></tr></thead>\n<tbody>\n");
    for (size_t l = 0; l < kvf_json_size(layers); l++) {
        kvf__html_printf(h, "<tr><th scope=\"row\">%zu</th>", l);
        for (int i = 0; i < 2; i++)
            kvf__html_cell(h, "%.4g", kvf__real_at(kvf_json_at(layers, l), HALVES[i]));
        kvf__html_put(h, "</tr>\n");
    }
    kvf__html_put(h, "</tbody></table></div></section>\n");
}

kvf_status kvf__spans_page(kvf_ctx *ctx, const kvf_json *object, kvf__buf *out)
{
    const char *metric = kvf_json_str(kvf_json_get(object, "metric"), NULL);
    kvf__html h = {.ctx = ctx};

    kvf__page_begin(&h, "Without the adapters of a span", "eval");
    kvf__html_put(&h, "<dl class=\"cards\">\n");
    kvf__card_put(&h, "loss with all", kvf_json_get(object, "loss"), "nats");
    if (metric && strcmp(metric, "loss"))
        kvf__card_put(&h, metric, kvf_json_get(object, "value"), "");
    kvf__card_put(&h, "layers", kvf_json_get(object, "layers"), "");
    kvf__html_put(&h, "</dl>\n</header>\n<main>\n<section><h2>Spans</h2>\n");
    put_heat(&h, object, "loss", "Change of the loss", "nats");
    if (metric && strcmp(metric, "loss"))
        put_heat(&h, object, "value", "Change of the score", metric);
    kvf__html_put(&h, "</section>\n");
    put_added(&h, kvf_json_get(object, "added"));
    return kvf__page_end(&h, out);
}
