/* Sections that are tables of names and values: attributes of the file, options, lineage,
 * tensors. */
#include "report_priv.h"

#include <math.h>

static void put_pairs(kvf__html *h, const kvf_json *facts, const char *key, const char *title)
{
    kvf_json *object = kvf_json_get(facts, key);

    if (!kvf_json_size(object)) return;
    kvf__html_printf(h,
                     "<section id=\"%s\">\n<h2>%s</h2>\n<div class=\"wide\"><table class=\"pairs\">"
                     "<tbody>\n",
                     key, title);
    for (void *it = kvf_json_iter(object); it; it = kvf_json_next(object, it)) {
        kvf__html_around(h, "<tr><th scope=\"row\">", kvf_json_iter_key(it), "</th><td>");
        const char *text = kvf_json_str(kvf_json_iter_value(it), NULL);
        if (text && !*text)
            kvf__html_put(h, "&ndash;");
        else
            kvf__html_value(h, kvf_json_iter_value(it));
        kvf__html_put(h, "</td></tr>\n");
    }
    kvf__html_put(h, "</tbody></table></div>\n</section>\n");
}

void kvf__bytes_put(kvf__html *h, int64_t bytes)
{
    static const char *const UNITS[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;

    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    kvf__html_printf(h, unit ? "%.1f&nbsp;%s" : "%.0f&nbsp;%s", value, UNITS[unit]);
}

static void put_tensor(kvf__html *h, const kvf_json *tensor)
{
    const kvf_json *shape = kvf_json_get(tensor, "shape");

    kvf__html_around(h, "<tr><th scope=\"row\">", kvf__text_at(tensor, "name"), "</th><td>");
    for (size_t i = 0; i < kvf_json_size(shape); i++)
        kvf__html_printf(h, "%s%lld", i ? " &times; " : "",
                         (long long)kvf_json_int(kvf_json_at(shape, i), 0));
    kvf__html_around(h, "</td><td>", kvf__text_at(tensor, "dtype"), "</td><td>");
    kvf__bytes_put(h, kvf__int_at(tensor, "bytes"));
    kvf__html_put(h, "</td><td>");
    kvf__html_number(h, "%.4g", kvf__real_at(tensor, "norm"));
    kvf__html_put(h, "</td></tr>\n");
}

static void put_tensors(kvf__html *h, const kvf_json *tensors)
{
    if (!kvf_json_size(tensors)) return;
    kvf__html_printf(h,
                     "<section id=\"tensors\">\n<h2>Tensors</h2>\n<details><summary>%zu tensors"
                     "</summary>\n<div class=\"wide\"><table class=\"tensors\"><thead><tr>",
                     kvf_json_size(tensors));
    kvf__html_put(h, "<th scope=\"col\">name</th><th scope=\"col\">shape</th><th scope=\"col\">type"
                     "</th><th scope=\"col\">size</th><th scope=\"col\">L2 norm</th></tr></thead>\n"
                     "<tbody>\n");
    for (size_t i = 0; i < kvf_json_size(tensors); i++)
        put_tensor(h, kvf_json_at(tensors, i));
    kvf__html_put(h, "</tbody></table></div></details>\n</section>\n");
}

void kvf__tables_put(kvf__html *h, const kvf_json *facts)
{
    put_pairs(h, facts, "options", "Options");
    put_pairs(h, facts, "lineage", "Lineage");
    put_pairs(h, facts, "attributes", "Attributes of the file");
    put_tensors(h, kvf_json_get(facts, "tensors"));
}
