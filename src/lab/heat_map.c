/* Heat maps: a grid of [rows, columns] colored by value, its scale, and its numbers as a table.
 * Colors are viridis (van der Walt and Smith 2015), which is perceptually uniform, also in gray and
 * for color-blind readers. Cells of one shade are one path, which keeps a map of 10,000 cells below
 * 200 KB. */
#include "report_priv.h"

#include <math.h>

enum { SHADES = 64, MOST_LABELS = 16 };

/* Ten evenly spaced colors, between which others are interpolated. page.css has the same. */
static const unsigned char RAMP[][3] = {
    {68, 1, 84},    {72, 40, 120},  {62, 73, 137},  {49, 104, 142}, {38, 130, 142},
    {31, 158, 137}, {53, 183, 121}, {110, 206, 88}, {181, 222, 43}, {253, 231, 37}};
enum { LAST = sizeof RAMP / sizeof RAMP[0] - 1 };

typedef struct field {
    const kvf__heat *heat;
    size_t rows, columns;
    double low, high;
} field;

static double value_at(const field *f, size_t row, size_t column)
{
    return kvf_json_real(kvf_json_at(kvf_json_at(f->heat->rows, row), column), NAN);
}

static field measure(const kvf__heat *heat)
{
    field f = {heat, kvf_json_size(heat->rows), 0, INFINITY, -INFINITY};

    for (size_t r = 0; r < f.rows; r++) {
        size_t n = kvf_json_size(kvf_json_at(heat->rows, r));
        if (n > f.columns) f.columns = n;
        for (size_t c = 0; c < n; c++) {
            double value = value_at(&f, r, c);
            if (!isfinite(value)) continue;
            f.low = fmin(f.low, value);
            f.high = fmax(f.high, value);
        }
    }
    if (heat->share) f.low = 0;
    return f;
}

static int shade_of(const field *f, double value)
{
    if (!isfinite(value)) return -1;
    if (f->high <= f->low) return SHADES / 2;
    int shade = (int)(SHADES * (value - f->low) / (f->high - f->low));
    return shade < SHADES ? shade : SHADES - 1;
}

static void put_colour(kvf__html *h, int shade)
{
    double at = (double)shade / (SHADES - 1) * LAST;
    int i = (int)at < LAST ? (int)at : LAST - 1;
    int rgb[3];

    for (int c = 0; c < 3; c++)
        rgb[c] = (int)lround(RAMP[i][c] + (at - i) * (RAMP[i + 1][c] - RAMP[i][c]));
    kvf__html_printf(h, "#%02x%02x%02x", (unsigned)rgb[0], (unsigned)rgb[1], (unsigned)rgb[2]);
}

/* shade [rows, columns]: shade of each cell; -1: not drawn. */
static void put_cells(kvf__html *h, const field *f, const signed char *shade)
{
    for (int s = 0; s < SHADES; s++) {
        bool any = false;
        for (size_t i = 0; i < f->rows * f->columns; i++) {
            if (shade[i] != s) continue;
            if (!any) {
                kvf__html_put(h, "<path fill=\"");
                put_colour(h, s);
                kvf__html_put(h, "\" d=\"");
            }
            any = true;
            kvf__html_printf(h, "M%zu %zuh1v1h-1z", i % f->columns, i / f->columns);
        }
        if (any) kvf__html_put(h, "\"/>");
    }
}

static void put_picture(kvf__html *h, const field *f)
{
    signed char *shade = NULL;

    if (h->st) return;
    h->st = kvf__alloc_array(h->ctx, f->rows, f->columns, &shade);
    if (h->st) return;
    for (size_t i = 0; i < f->rows * f->columns; i++)
        shade[i] = (signed char)shade_of(f, value_at(f, i / f->columns, i % f->columns));
    kvf__html_printf(h,
                     "<svg viewBox=\"0 0 %zu %zu\" preserveAspectRatio=\"none\" "
                     "aria-hidden=\"true\">",
                     f->columns, f->rows);
    put_cells(h, f, shade);
    kvf__html_put(h, "</svg>");
    kvf__free(shade);
}

static void put_labels(kvf__html *h, const char *look, const char *side, size_t n)
{
    const size_t most = n > 100 ? MOST_LABELS / 2 : MOST_LABELS; /* three digits are wide */
    const size_t stride = (n + most - 1) / most;
    for (size_t i = 0; i < n; i += stride)
        kvf__html_printf(h, "<span class=\"%s\" style=\"%s:%.2f%%\">%zu</span>", look, side,
                         100 * ((double)i + 0.5) / (double)n, i);
}

static void put_number(kvf__html *h, const field *f, double value)
{
    if (f->heat->share)
        kvf__html_number(h, "%.1f&nbsp;%%", 100 * value);
    else
        kvf__html_number(h, "%.4g", value);
}

static void put_table(kvf__html *h, const field *f)
{
    kvf__html_printf(h,
                     "<details><summary>Numbers</summary>\n<div class=\"wide\"><table "
                     "id=\"%s-numbers\">\n<thead><tr><th scope=\"col\">%s</th>",
                     f->heat->id, f->heat->row_name);
    for (size_t c = 0; c < f->columns; c++)
        kvf__html_printf(h, "<th scope=\"col\">%s %zu</th>", f->heat->column_name, c);
    kvf__html_put(h, "</tr></thead>\n<tbody>\n");
    for (size_t r = 0; r < f->rows; r++) {
        kvf__html_printf(h, "<tr><th scope=\"row\">%zu</th>", r);
        for (size_t c = 0; c < f->columns; c++) {
            kvf__html_put(h, "<td>");
            put_number(h, f, value_at(f, r, c));
            kvf__html_put(h, "</td>");
        }
        kvf__html_put(h, "</tr>\n");
    }
    kvf__html_put(h, "</tbody></table></div></details>\n");
}

void kvf__heat_put(kvf__html *h, const kvf__heat *heat)
{
    const field f = measure(heat);

    if (!f.rows || !f.columns || f.low > f.high) return;
    kvf__html_printf(h,
                     "<figure class=\"heat\" id=\"%s\" data-table=\"%s-numbers\" data-row=\"%s\" "
                     "data-column=\"%s\">\n<figcaption><h3>%s</h3> <span class=\"unit\">%s</span>"
                     "</figcaption>\n",
                     heat->id, heat->id, heat->row_name, heat->column_name, heat->title,
                     heat->unit);
    kvf__html_printf(h,
                     "<div class=\"field\" role=\"img\" tabindex=\"0\" aria-label=\"%s\" "
                     "style=\"--rows:%zu\">\n",
                     heat->label, f.rows);
    put_picture(h, &f);
    put_labels(h, "y", "top", f.rows);
    put_labels(h, "x", "left", f.columns);
    kvf__html_printf(h,
                     "</div>\n<p class=\"axes\">%s downwards, %s to the right</p>\n"
                     "<p class=\"ramp\"><span>",
                     heat->row_name, heat->column_name);
    put_number(h, &f, f.low);
    kvf__html_put(h, "</span><i></i><span>");
    put_number(h, &f, f.high);
    kvf__html_put(h, "</span></p>\n");
    put_table(h, &f);
    kvf__html_put(h, "</figure>\n");
}
