/* Sections about a prefix: norms by layer and token, share of attention, nearest words, and text
 * generated without and with it. */
#include "report_priv.h"

#include <math.h>

/* ---- norms ----------------------------------------------------------------------------------- */

/* Returns the L2 norm of a row of norms; NaN: no row. */
static double row_norm(const kvf_json *row)
{
    double sum = 0;
    for (size_t i = 0; i < kvf_json_size(row); i++) {
        double x = kvf_json_real(kvf_json_at(row, i), NAN);
        sum += x * x;
    }
    return kvf_json_size(row) ? sqrt(sum) : NAN;
}

static double largest(const kvf_json *rows)
{
    double most = 0;
    for (size_t r = 0; r < kvf_json_size(rows); r++)
        most = fmax(most, row_norm(kvf_json_at(rows, r)));
    return most;
}

static void put_bar(kvf__html *h, double value, double most)
{
    kvf__html_put(h, "<td>");
    if (isfinite(value) && most > 0)
        kvf__html_printf(h, "<span class=\"bar\" style=\"--part:%.3f\"></span>", value / most);
    kvf__html_number(h, "%.4g", value);
    kvf__html_put(h, "</td>");
}

/* Writes a table of norms by layer, with a column for each part that `norms` has. */
static void put_layers(kvf__html *h, const kvf_json *norms, const char *title, const char *unit)
{
    static const char *const PARTS[] = {"keys", "values", "key", "gate", "up", "value", "bias"};
    enum { N_PARTS = sizeof PARTS / sizeof PARTS[0] };
    const kvf_json *part[N_PARTS];
    double most[N_PARTS];
    int n = 0;

    kvf__html_printf(h,
                     "<figure class=\"whole\">\n<figcaption><h3>%s</h3> <span class=\"unit\">L2 "
                     "norm over all virtual %s</span></figcaption>\n<table class=\"bars\"><thead>"
                     "<tr><th scope=\"col\">layer</th>",
                     title, unit);
    for (int i = 0; i < N_PARTS; i++) {
        if (!(part[n] = kvf_json_get(norms, PARTS[i]))) continue;
        most[n] = largest(part[n]);
        n++;
        kvf__html_printf(h, "<th scope=\"col\">%s</th>", PARTS[i]);
    }
    kvf__html_put(h, "</tr></thead>\n<tbody>\n");
    for (size_t l = 0; n && l < kvf_json_size(part[0]); l++) {
        kvf__html_printf(h, "<tr><th scope=\"row\">%zu</th>", l);
        for (int i = 0; i < n; i++)
            put_bar(h, row_norm(kvf_json_at(part[i], l)), most[i]);
        kvf__html_put(h, "</tr>\n");
    }
    kvf__html_put(h, "</tbody></table>\n</figure>\n");
}

static void put_virtual(kvf__html *h, const kvf_json *norms)
{
    double most = 0;

    for (size_t p = 0; p < kvf_json_size(norms); p++)
        most = fmax(most, kvf_json_real(kvf_json_at(norms, p), 0));
    kvf__html_put(h, "<table class=\"bars\"><thead><tr><th scope=\"col\">token</th>"
                     "<th scope=\"col\">L2 norm</th></tr></thead>\n<tbody>\n");
    for (size_t p = 0; p < kvf_json_size(norms); p++) {
        kvf__html_printf(h, "<tr><th scope=\"row\">%zu</th>", p);
        put_bar(h, kvf_json_real(kvf_json_at(norms, p), NAN), most);
        kvf__html_put(h, "</tr>\n");
    }
    kvf__html_put(h, "</tbody></table>\n");
}

void kvf__norms_put(kvf__html *h, const kvf_json *facts)
{
    const kvf_json *prefix = kvf_json_get(facts, "prefix");
    const kvf_json *neurons = kvf_json_get(facts, "neurons");
    const kvf_json *norms = kvf_json_get(facts, "virtual");
    const kvf__heat maps[] = {
        {"keys", "Keys", "L2 norm", "Norm of the prefix's keys by layer and virtual token", "layer",
         "token", kvf_json_get(prefix, "keys"), false},
        {"values", "Values", "L2 norm", "Norm of the prefix's values by layer and virtual token",
         "layer", "token", kvf_json_get(prefix, "values"), false},
        {"neurons", "Values of the virtual neurons", "L2 norm; training begins at 0",
         "Norm of the virtual neurons' values by layer and neuron", "layer", "neuron",
         kvf_json_get(neurons, "value"), false}};

    if (!prefix && !norms && !neurons) return;
    kvf__html_put(h, "<section id=\"norms\">\n<h2>Norms of the trained values</h2>\n");
    if (norms) put_virtual(h, norms);
    kvf__html_put(h, "<div class=\"charts\">\n");
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++)
        kvf__heat_put(h, &maps[i]);
    if (prefix) put_layers(h, prefix, "By layer", "tokens");
    if (neurons) put_layers(h, neurons, "Virtual neurons by layer", "neurons");
    kvf__html_put(h, "</div>\n</section>\n");
}

/* ---- attention ------------------------------------------------------------------------------- */

static void put_losses(kvf__html *h, const kvf_json *attention)
{
    double before = kvf__real_at(attention, "before");
    double after = kvf__real_at(attention, "after");

    if (isfinite(before) && isfinite(after))
        kvf__html_printf(h,
                         "<p>Loss of these rows: <strong>%.4f</strong> nats per label without the "
                         "prefix, <strong>%.4f</strong> with it.</p>\n",
                         before, after);
}

void kvf__attention_put(kvf__html *h, const kvf_json *facts)
{
    const kvf_json *attention = kvf_json_get(facts, "attention");
    const kvf__heat map = {.id = "share",
                           .title = "Share of attention",
                           .unit = "mean over labels",
                           .label = "Share of attention on the virtual tokens by layer and head",
                           .row_name = "layer",
                           .column_name = "head",
                           .rows = kvf_json_get(attention, "share"),
                           .share = true};

    if (!attention) return;
    kvf__html_printf(
        h,
        "<section id=\"attention\">\n<h2>Attention on the virtual tokens</h2>\n<p>Share of the "
        "softmax on the keys of the virtual tokens, at tokens that predict a label: the mean over "
        "%lld labels in %lld rows of <code>",
        kvf__int_at(attention, "labels"), kvf__int_at(attention, "rows"));
    kvf__html_text(h, kvf__text_at(attention, "data"));
    kvf__html_put(h, "</code>.</p>\n");
    put_losses(h, attention);
    kvf__heat_put(h, &map);
    kvf__html_put(h, "</section>\n");
}

/* ---- samples --------------------------------------------------------------------------------- */

static void put_said(kvf__html *h, const kvf_json *row, const char *key, const char *title)
{
    const char *text = kvf_json_str(kvf_json_get(row, key), NULL);
    kvf__html_printf(h, "<div class=\"%s\"><h4>%s</h4>", key, title);
    if (text && *text) {
        kvf__html_put(h, "<pre>\n"); /* HTML parsers drop one newline there */
        kvf__html_text(h, text);
        kvf__html_put(h, "</pre>");
    } else {
        kvf__html_put(h, "<p class=\"note\">nothing</p>");
    }
    kvf__html_put(h, "</div>\n");
}

/* Writes the references of the data, if any. */
static void put_references(kvf__html *h, const kvf_json *references)
{
    if (!kvf_json_size(references)) return;
    kvf__html_put(h, "<div class=\"prompt\"><h4>In the data</h4>");
    for (size_t i = 0; i < kvf_json_size(references); i++)
        kvf__html_around(h, "<pre>", kvf_json_str(kvf_json_at(references, i), NULL), "</pre>");
    kvf__html_put(h, "</div>\n");
}

void kvf__samples_put(kvf__html *h, const kvf_json *facts)
{
    const kvf_json *samples = kvf_json_get(facts, "samples");
    const kvf_json *rows = kvf_json_get(samples, "rows");

    if (!kvf_json_size(rows)) return;
    kvf__html_printf(h,
                     "<section id=\"samples\">\n<h2>Before and after</h2>\n"
                     "<p>Greedy completions of at most %lld tokens, of the first prompts of <code>",
                     kvf__int_at(samples, "max_tokens"));
    kvf__html_text(h, kvf__text_at(samples, "data"));
    kvf__html_put(h, "</code>.</p>\n");
    for (size_t i = 0; i < kvf_json_size(rows); i++) {
        const kvf_json *row = kvf_json_at(rows, i);
        kvf__html_put(h, "<article class=\"sample\">\n");
        put_said(h, row, "prompt", "Prompt");
        put_said(h, row, "before", "The bare base");
        put_said(h, row, "after", "After training");
        put_references(h, kvf_json_get(row, "references"));
        kvf__html_put(h, "</article>\n");
    }
    kvf__html_put(h, "</section>\n");
}

/* ---- words ----------------------------------------------------------------------------------- */

static void put_list(kvf__html *h, const kvf_json *list)
{
    kvf__html_put(h, "<td>");
    for (size_t i = 0; i < kvf_json_size(list); i++) {
        const kvf_json *item = kvf_json_at(list, i);
        kvf__html_put(h, "<span class=\"word\"><code>");
        kvf__html_quoted(h, kvf_json_get(item, "text"));
        kvf__html_printf(h, "</code> <small>%.3f</small></span> ",
                         kvf_json_real(kvf_json_get(item, "cosine"), 0));
    }
    kvf__html_put(h, "</td>");
}

static void put_tokens(kvf__html *h, const kvf_json *tokens)
{
    bool at_input = kvf_json_get(kvf_json_at(tokens, 0), "nearest") != NULL;

    kvf__html_put(h, "<div class=\"wide\"><table class=\"words\"><thead><tr><th scope=\"col\">"
                     "token</th>");
    kvf__html_put(h, at_input ? "<th scope=\"col\">nearest embeddings</th>"
                              : "<th scope=\"col\">nearest keys</th><th scope=\"col\">nearest "
                                "values</th>");
    kvf__html_put(h, "</tr></thead>\n<tbody>\n");
    for (size_t p = 0; p < kvf_json_size(tokens); p++) {
        const kvf_json *token = kvf_json_at(tokens, p);
        kvf__html_printf(h, "<tr><th scope=\"row\">%zu</th>", p);
        put_list(h, kvf_json_get(token, at_input ? "nearest" : "key"));
        if (!at_input) put_list(h, kvf_json_get(token, "value"));
        kvf__html_put(h, "</tr>\n");
    }
    kvf__html_put(h, "</tbody></table></div>\n");
}

void kvf__words_put(kvf__html *h, const kvf_json *facts)
{
    const kvf_json *words = kvf_json_get(facts, "words"), *layers = kvf_json_get(words, "layers");

    if (!words) return;
    kvf__html_put(h, "<section id=\"words\">\n<h2>Nearest words</h2>\n<p>Ranked by cosine to the "
                     "vocabulary items, each computed alone by the base; keys without rope.</p>\n");
    if (!layers) put_tokens(h, kvf_json_get(words, "tokens"));
    for (size_t l = 0; l < kvf_json_size(layers); l++) {
        const kvf_json *layer = kvf_json_at(layers, l);
        kvf__html_printf(h, "<details%s><summary>Layer %lld</summary>\n", l ? "" : " open",
                         kvf__int_at(layer, "layer"));
        put_tokens(h, kvf_json_get(layer, "tokens"));
        kvf__html_put(h, "</details>\n");
    }
    kvf__html_put(h, "</section>\n");
}
