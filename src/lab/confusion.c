/* Errors of a classifier on data: the confusion matrix, and wrong answers with high confidence. */
#include "report_priv.h"

static int64_t count_at(const kvf_json *row, size_t i)
{
    return kvf_json_int(kvf_json_at(row, i), 0);
}

static void put_label(kvf__html *h, const char *scope, const kvf_json *label)
{
    kvf__html_printf(h, "<th scope=\"%s\">", scope);
    kvf__html_text(h, kvf_json_str(label, NULL));
    kvf__html_put(h, "</th>");
}

/* A bar shows the share of its row. */
static void put_counts(kvf__html *h, const kvf_json *row, size_t label)
{
    int64_t sum = 0;
    for (size_t i = 0; i < kvf_json_size(row); i++)
        sum += count_at(row, i);
    for (size_t i = 0; i < kvf_json_size(row); i++) {
        kvf__html_printf(h, "<td%s>", i == label ? " class=\"right\"" : "");
        if (count_at(row, i))
            kvf__html_printf(h, "<span class=\"bar\" style=\"--part:%.3f\"></span>",
                             (double)count_at(row, i) / (double)sum);
        kvf__html_printf(h, "%lld</td>", (long long)count_at(row, i));
    }
}

static void put_matrix(kvf__html *h, const kvf_json *answers)
{
    const kvf_json *labels = kvf_json_get(answers, "labels");
    const kvf_json *counts = kvf_json_get(answers, "counts");
    kvf__html_printf(h,
                     "<figure class=\"whole\">\n<figcaption><h3>Confusion</h3> <span "
                     "class=\"unit\">%s by label (down) and prediction (across)</span>"
                     "</figcaption>\n<div class=\"wide\"><table class=\"confusion\"><thead><tr><td>"
                     "</td>",
                     kvf_json_str(kvf_json_get(answers, "unit"), NULL));
    for (size_t i = 0; i < kvf_json_size(labels); i++)
        put_label(h, "col", kvf_json_at(labels, i));
    kvf__html_put(h, "</tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < kvf_json_size(counts); i++) {
        kvf__html_put(h, "<tr>");
        put_label(h, "row", kvf_json_at(labels, i));
        put_counts(h, kvf_json_at(counts, i), i);
        kvf__html_put(h, "</tr>\n");
    }
    kvf__html_put(h, "</tbody></table></div>\n</figure>\n");
}

static void put_text_cell(kvf__html *h, const kvf_json *row, const char *key)
{
    kvf__html_around(h, "<td>", kvf__text_at(row, key), "</td>");
}

static void put_wrong(kvf__html *h, const kvf_json *wrong)
{
    const bool words = kvf_json_get(kvf_json_at(wrong, 0), "word") != NULL;
    if (!kvf_json_size(wrong)) return;
    kvf__html_printf(
        h,
        "<h3>Wrong answers, most confident first</h3>\n<div class=\"wide\"><table "
        "class=\"wrong\"><thead><tr><th scope=\"col\">text</th>%s<th scope=\"col\">label</th><th "
        "scope=\"col\">prediction</th><th scope=\"col\">probability</th></tr></thead>\n<tbody>\n",
        words ? "<th scope=\"col\">word</th>" : "");
    for (size_t i = 0; i < kvf_json_size(wrong); i++) {
        const kvf_json *row = kvf_json_at(wrong, i);
        kvf__html_put(h, "<tr>");
        put_text_cell(h, row, "text");
        if (words) put_text_cell(h, row, "word");
        put_text_cell(h, row, "label");
        put_text_cell(h, row, "predicted");
        kvf__html_printf(h, "<td>%.1f&nbsp;%%</td></tr>\n",
                         100 * kvf_json_real(kvf_json_get(row, "probability"), 0));
    }
    kvf__html_put(h, "</tbody></table></div>\n");
}

void kvf__confusion_put(kvf__html *h, const kvf_json *facts)
{
    const kvf_json *answers = kvf_json_get(facts, "answers");
    const int64_t n = kvf__int_at(answers, "n"), right = kvf__int_at(answers, "right");
    if (!n) return;
    kvf__html_printf(h,
                     "<section id=\"answers\">\n<h2>Answers</h2>\n<p><strong>%lld</strong> of "
                     "%lld %s (%.1f&nbsp;%%) of <code>",
                     (long long)right, (long long)n,
                     kvf_json_str(kvf_json_get(answers, "unit"), NULL),
                     100 * (double)right / (double)n);
    kvf__html_text(h, kvf__text_at(answers, "data"));
    kvf__html_put(h, "</code> have the right label.</p>\n");
    put_matrix(h, answers);
    put_wrong(h, kvf_json_get(answers, "wrong"));
    kvf__html_put(h, "</section>\n");
}
