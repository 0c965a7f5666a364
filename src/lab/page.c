/* The whole page: head, summary, sections, foot. Style and script are inline, fonts are the
 * reader's, and the policy in the head forbids anything else, so the page makes no network
 * requests. No clock is read, so equal facts give equal bytes. */
#include "report_priv.h"

#include <math.h>
#include <string.h>

void kvf__page_begin(kvf__html *h, const char *title, const char *command)
{
    kvf__html_put(h, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                     "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                     "<meta name=\"color-scheme\" content=\"light dark\">\n"
                     "<meta name=\"generator\" content=\"kvfold " KVF_VERSION "\">\n"
                     "<link rel=\"icon\" href=\"data:,\">\n<title>");
    kvf__html_text(h, title);
    kvf__html_printf(h, " &ndash; kvfold %s</title>\n<style>\n", command);
    kvf__html_put(h, kvf__page_css);
    kvf__html_around(h, "</style>\n</head>\n<body>\n<header>\n<h1>", title, "</h1>\n");
}

kvf_status kvf__page_end(kvf__html *h, kvf__buf *out)
{
    kvf__html_put(h, "</main>\n<footer>Made by kvfold " KVF_VERSION
                     ". This page loads nothing from the network.</footer>\n<script>\n");
    kvf__html_put(h, kvf__page_js);
    kvf__html_put(h, "</script>\n</body>\n</html>\n");
    return kvf__html_end(h, out);
}

/* ---- summary --------------------------------------------------------------------------------- */

void kvf__card_put(kvf__html *h, const char *name, const kvf_json *value, const char *unit)
{
    if (kvf_json_typeof(value) == KVF_JSON_NONE) return;
    if (kvf_json_typeof(value) == KVF_JSON_STRING && !*kvf_json_str(value, NULL)) return;
    kvf__html_around(h, "<div><dt>", name, "</dt><dd>");
    if (kvf_json_typeof(value) == KVF_JSON_REAL)
        kvf__html_number(h, "%.5g", kvf_json_real(value, NAN));
    else
        kvf__html_value(h, value);
    kvf__html_printf(h, "%s%s%s</dd></div>\n", *unit ? " <small>" : "", unit,
                     *unit ? "</small>" : "");
}

static void put_shape(kvf__html *h, const kvf_json *attributes)
{
    const kvf_json *P = kvf_json_get(attributes, "P");

    if (kvf_json_int(P, 0) < 1) return;
    if (kvf_json_typeof(kvf_json_get(attributes, "G")) == KVF_JSON_ARRAY) {
        kvf__card_put(h, "layers (heads differ)", kvf_json_get(attributes, "L"), "");
        return;
    }
    kvf__html_printf(h,
                     "<div><dt>layers &times; heads &times; size</dt><dd>%lld &times; %lld &times; "
                     "%lld</dd></div>\n",
                     kvf__int_at(attributes, "L"), kvf__int_at(attributes, "G"),
                     kvf__int_at(attributes, "D"));
}

typedef struct card {
    const char *name, *part, *key, *unit;
} card;

static void put_cards(kvf__html *h, const kvf_json *facts, const card *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        kvf__card_put(h, list[i].name, kvf_json_get(kvf_json_get(facts, list[i].part), list[i].key),
                      list[i].unit);
}

/* Writes what a reader in a hurry wants: what was trained, from which loss, to which. */
static void put_summary(kvf__html *h, const kvf_json *facts)
{
    static const card RESULTS[] = {{"base", "attributes", "base_name", ""},
                                   {"method", "attributes", "method", ""},
                                   {"task", "attributes", "task", ""},
                                   {"virtual neurons", "attributes", "neurons", ""},
                                   {"bare base", "lineage", "bare_loss", "nats"},
                                   {"start", "lineage", "start_loss", "nats"},
                                   {"always the largest class", "lineage", "largest_class", ""},
                                   {"steps", "history", "steps", ""},
                                   {"last valid loss", "history", "last_valid_loss", "nats"},
                                   {"first train loss", "history", "first_train_loss", "nats"},
                                   {"last train loss", "history", "last_train_loss", "nats"}};

    const kvf_json *P = kvf_json_get(kvf_json_get(facts, "attributes"), "P"),
                   *history = kvf_json_get(facts, "history");
    char best[64];

    kvf__html_put(h, "<dl class=\"cards\">\n");
    put_cards(h, facts, RESULTS, 1);
    if (kvf_json_int(P, 0) > 0) kvf__card_put(h, "virtual tokens", P, "");
    put_cards(h, facts, RESULTS + 1, sizeof RESULTS / sizeof RESULTS[0] - 1);
    snprintf(best, sizeof best, "best %s, at step %lld", kvf__text_at(history, "best_metric"),
             kvf__int_at(history, "best_step"));
    kvf__card_put(h, best, kvf_json_get(history, "best_value"), "");
    kvf__html_put(h, "</dl>\n");
}

static void put_about(kvf__html *h, const kvf_json *facts)
{
    static const card ABOUT[] = {{"architecture", "attributes", "base_architecture", ""},
                                 {"tokens trained on", "history", "tokens", ""},
                                 {"seed", "options", "seed", ""},
                                 {"by kvfold", "attributes", "kvfold_version", ""}};

    kvf__html_put(h, "<dl class=\"cards\">\n");
    kvf__card_put(h, "file", kvf_json_get(facts, "kind"), "");
    kvf__card_put(h, "written", kvf_json_get(facts, "written"), "");
    put_shape(h, kvf_json_get(facts, "attributes"));
    put_cards(h, facts, ABOUT, sizeof ABOUT / sizeof ABOUT[0]);
    kvf__html_put(h, "</dl>\n");
}

static void put_notes(kvf__html *h, const kvf_json *notes)
{
    if (!kvf_json_size(notes)) return;
    kvf__html_put(h, "<ul class=\"notes\">\n");
    for (size_t i = 0; i < kvf_json_size(notes); i++)
        kvf__html_around(h, "<li>", kvf_json_str(kvf_json_at(notes, i), NULL), "</li>\n");
    kvf__html_put(h, "</ul>\n");
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Writes links to the sections that will follow. */
static void put_contents(kvf__html *h, const kvf_json *facts, bool curves)
{
    static const struct {
        const char *fact, *id, *title;
    } SECTIONS[] = {
        {"answers", "answers", "Answers"},       {"samples", "samples", "Before and after"},
        {"history", "curves", "Curves"},         {"prefix", "norms", "Norms"},
        {"virtual", "norms", "Norms"},           {"neurons", "neurons", "Neurons"},
        {"attention", "attention", "Attention"}, {"words", "words", "Words"},
        {"options", "options", "Options"},       {"lineage", "lineage", "Lineage"},
        {"attributes", "attributes", "File"},    {"tensors", "tensors", "Tensors"}};

    kvf__html_put(h, "<nav aria-label=\"Sections\"><ul>\n");
    for (size_t i = 0; i < sizeof SECTIONS / sizeof SECTIONS[0]; i++)
        if (kvf_json_size(kvf_json_get(facts, SECTIONS[i].fact)) &&
            (curves || strcmp(SECTIONS[i].id, "curves") != 0))
            kvf__html_printf(h, "<li><a href=\"#%s\">%s</a></li>\n", SECTIONS[i].id,
                             SECTIONS[i].title);
    kvf__html_put(h, "</ul></nav>\n");
}

kvf_status kvf__report_page(kvf_ctx *ctx, const kvf_json *facts, const kvf__history *history,
                            kvf__buf *out)
{
    kvf__html h = {.ctx = ctx};

    kvf__page_begin(&h, kvf__text_at(facts, "title"), "report");
    put_summary(&h, facts);
    put_contents(&h, facts, history && history->n > 0);
    put_notes(&h, kvf_json_get(facts, "notes"));
    kvf__html_put(&h, "</header>\n<main>\n");
    kvf__confusion_put(&h, facts);
    kvf__samples_put(&h, facts);
    kvf__curves_put(&h, facts, history);
    kvf__html_put(&h, "<details class=\"inside\"><summary>Look inside: norms, attention, words, "
                      "options, tensors</summary>\n");
    put_about(&h, facts);
    kvf__norms_put(&h, facts);
    kvf__attention_put(&h, facts);
    kvf__words_put(&h, facts);
    kvf__tables_put(&h, facts);
    kvf__html_put(&h, "</details>\n");
    return kvf__page_end(&h, out);
}
