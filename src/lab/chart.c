/* Charts of curves over steps, as SVG with HTML labels. If values span a wide range, a chart has a
 * linear and a logarithmic view. Two radio buttons switch between them by CSS alone, so the page
 * works without its script. */
#include "report_priv.h"

#include <math.h>

enum { SIDE = 1000 }; /* side of the square that is drawn in */

static void find_range(const kvf__chart *chart, double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (int c = 0; c < chart->n_curves; c++)
        for (int64_t i = 0; i < chart->n; i++) {
            const kvf__curve *curve = &chart->curve[c];
            if (!isfinite(curve->y[i])) continue;
            *low = fmin(*low, curve->low ? curve->low[i] : curve->y[i]);
            *high = fmax(*high, curve->high ? curve->high[i] : curve->y[i]);
        }
    if (!isfinite(chart->mark_y)) return;
    *low = fmin(*low, chart->mark_y);
    *high = fmax(*high, chart->mark_y);
}

static void put_grid(kvf__html *h, const kvf__axis *x, const kvf__axis *y)
{
    kvf__html_put(h, "<path class=\"grid\" d=\"");
    for (int i = 0; i < y->n; i++)
        kvf__html_printf(h, "M0 %.1fH%d", SIDE * (1 - kvf__axis_at(y, y->tick[i])), SIDE);
    for (int i = 0; i < x->n; i++)
        kvf__html_printf(h, "M%.1f 0V%d", SIDE * kvf__axis_at(x, x->tick[i]), SIDE);
    kvf__html_put(h, "\"/>");
}

/* Draws one edge of a band, forward or backward. */
static bool put_edge(kvf__html *h, const kvf__chart *chart, const kvf__curve *curve, bool back,
                     const kvf__axis *x, const kvf__axis *y)
{
    bool begun = back;
    for (int64_t k = 0; k < chart->n; k++) {
        const int64_t i = back ? chart->n - 1 - k : k;
        const double value = (back ? curve->low : curve->high)[i];
        if (!isfinite(curve->y[i]) || (y->log && value <= 0)) continue;
        kvf__html_printf(h, "%s%.1f %.1f", begun ? "L" : "M", SIDE * kvf__axis_at(x, chart->x[i]),
                         SIDE * (1 - kvf__axis_at(y, value)));
        begun = true;
    }
    return begun;
}

static void put_band(kvf__html *h, const kvf__chart *chart, const kvf__curve *curve,
                     const kvf__axis *x, const kvf__axis *y)
{
    kvf__html_printf(h, "<path class=\"band %s\" d=\"", curve->look);
    if (put_edge(h, chart, curve, false, x, y)) {
        put_edge(h, chart, curve, true, x, y);
        kvf__html_put(h, "Z");
    }
    kvf__html_put(h, "\"/>");
}

/* Dots are lines of zero length with round ends, because circles would be stretched with the
 * square. */
static void put_curve(kvf__html *h, const kvf__chart *chart, const kvf__curve *curve,
                      const kvf__axis *x, const kvf__axis *y, bool dots)
{
    bool begun = false;

    kvf__html_printf(h, "<path class=\"%s %s\" d=\"", dots ? "dots" : "line", curve->look);
    for (int64_t i = 0; i < chart->n; i++) {
        double value = curve->y[i];
        if (!isfinite(value) || (y->log && value <= 0)) continue;
        kvf__html_printf(h, "%s%.1f %.1f%s", dots || !begun ? "M" : "L",
                         SIDE * kvf__axis_at(x, chart->x[i]), SIDE * (1 - kvf__axis_at(y, value)),
                         dots ? "h0" : "");
        begun = true;
    }
    kvf__html_put(h, "\"/>");
}

static void put_labels(kvf__html *h, const kvf__axis *x, const kvf__axis *y)
{
    for (int i = 0; i < y->n; i++)
        kvf__html_printf(h, "<span class=\"y\" style=\"bottom:%.2f%%\">%.10g</span>",
                         100 * kvf__axis_at(y, y->tick[i]), y->tick[i]);
    for (int i = 0; i < x->n; i++)
        kvf__html_printf(h, "<span class=\"x\" style=\"left:%.2f%%\">%.10g</span>",
                         100 * kvf__axis_at(x, x->tick[i]), x->tick[i]);
}

static void put_mark(kvf__html *h, const kvf__chart *chart, const kvf__axis *x, const kvf__axis *y)
{
    if (!isfinite(chart->mark_y) || (y->log && chart->mark_y <= 0)) return;
    double left = 100 * kvf__axis_at(x, chart->mark_x);
    kvf__html_printf(h, "<span class=\"mark%s\" style=\"left:%.2f%%;bottom:%.2f%%\">%s</span>",
                     left > 60 ? " leftward" : "", left, 100 * kvf__axis_at(y, chart->mark_y),
                     chart->mark);
}

static void put_view(kvf__html *h, const kvf__chart *chart, const kvf__axis *x, const kvf__axis *y)
{
    kvf__html_printf(h, "<div class=\"view %s\" data-low=\"%.17g\" data-high=\"%.17g\">",
                     y->log ? "log" : "linear", y->low, y->high);
    kvf__html_printf(h,
                     "<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" "
                     "aria-hidden=\"true\">",
                     SIDE, SIDE);
    put_grid(h, x, y);
    for (int c = 0; c < chart->n_curves; c++)
        if (chart->curve[c].low) put_band(h, chart, &chart->curve[c], x, y);
    for (int c = 0; c < chart->n_curves; c++) {
        put_curve(h, chart, &chart->curve[c], x, y, false);
        if (chart->curve[c].dots) put_curve(h, chart, &chart->curve[c], x, y, true);
    }
    kvf__html_put(h, "</svg>");
    put_labels(h, x, y);
    put_mark(h, chart, x, y);
    kvf__html_put(h, "</div>\n");
}

static void put_switch(kvf__html *h, const kvf__chart *chart)
{
    static const char *const NAMES[] = {"linear", "log"};
    for (int i = 0; i < 2; i++)
        kvf__html_printf(h,
                         "<input type=\"radio\" class=\"%s-on\" name=\"%s-scale\" id=\"%s-%s\"%s>"
                         "<label for=\"%s-%s\">%s</label>\n",
                         NAMES[i], chart->id, chart->id, NAMES[i],
                         i == chart->prefer_log ? " checked" : "", chart->id, NAMES[i], NAMES[i]);
}

static void put_legend(kvf__html *h, const kvf__chart *chart)
{
    /* used by the script; hidden for a single curve */
    kvf__html_printf(h, "<ul class=\"legend\"%s>", chart->n_curves > 1 ? "" : " hidden");
    for (int c = 0; c < chart->n_curves; c++) {
        kvf__html_printf(h, "<li class=\"%s\" data-column=\"%s\">", chart->curve[c].look,
                         chart->curve[c].column);
        kvf__html_text(h, chart->curve[c].name);
        kvf__html_put(h, "</li>");
    }
    kvf__html_put(h, "</ul>\n");
}

/* Writes the titles of the two axes. */
static void put_titles(kvf__html *h, const kvf__chart *chart)
{
    kvf__html_printf(h, "<span class=\"axis y\">%s", chart->unit);
    kvf__html_text(h, chart->name);
    kvf__html_put(h, "</span><span class=\"axis x\">step</span>\n");
}

/* Returns the axis from the first step to the last, with ticks at whole steps. */
static kvf__axis steps_axis(const kvf__chart *chart)
{
    kvf__axis x = kvf__axis_linear(chart->x[0], chart->x[chart->n - 1], 6);
    int n = 0;

    x.low = chart->x[0];
    x.high = chart->x[chart->n - 1];
    if (x.low == x.high) x.high = x.low + 1;
    for (int i = 0; i < x.n; i++) {
        double tick = x.tick[i];
        if (tick >= x.low && tick <= x.high && tick == floor(tick)) x.tick[n++] = tick;
    }
    x.n = n;
    return x;
}

void kvf__chart_put(kvf__html *h, const kvf__chart *chart)
{
    double low, high;

    find_range(chart, &low, &high);
    if (!chart->n || low > high) return;
    const kvf__axis x = steps_axis(chart);
    const kvf__axis linear = kvf__axis_linear(low, high, 4);
    bool has_log = low > 0 && high / low >= 3;

    kvf__html_printf(h,
                     "<figure class=\"chart\" id=\"%s\" data-table=\"%s\">\n<figcaption><h3>%s"
                     "</h3></figcaption>\n",
                     chart->id, chart->table, chart->title);
    if (has_log) put_switch(h, chart);
    kvf__html_printf(h,
                     "<div class=\"plot\" role=\"img\" tabindex=\"0\" aria-label=\"%s\" "
                     "data-from=\"%.17g\" data-to=\"%.17g\">\n",
                     chart->label, x.low, x.high);
    put_titles(h, chart);
    put_view(h, chart, &x, &linear);
    if (has_log) {
        const kvf__axis log = kvf__axis_log(low, high);
        put_view(h, chart, &x, &log);
    }
    kvf__html_put(h, "</div>\n");
    put_legend(h, chart);
    kvf__html_put(h, "</figure>\n");
}
