/* Parts of the page: the escaping writer, axes, charts, heat maps, tables. Private to src/lab.
 *
 * Charts are drawn in a square of 1000 x 1000 that is stretched to the available space, with lines
 * of constant width. Labels are HTML around it, so that they stay legible on a phone. All numbers
 * of a chart are also in a table, which the script reads for its tooltips. */
#ifndef KVF_REPORT_PRIV_H
#define KVF_REPORT_PRIV_H

#include "report_int.h"

/* page.css and page.js as C arrays made by the build; NUL-terminated. */
extern const char kvf__page_css[], kvf__page_js[];

/* ---- writing --------------------------------------------------------------------------------- */

/* The first failure stays in st, and later writes are ignored. */
typedef struct kvf__html {
    kvf_ctx *ctx;
    kvf__buf out;
    kvf_status st;
} kvf__html;
/* Writes markup unchanged: only constants of this folder. */
void kvf__html_put(kvf__html *h, const char *markup);
void kvf__html_printf(kvf__html *h, const char *fmt, ...) KVF__PRINTF(2, 3);
/* Writes arbitrary text, for elements and double-quoted attributes. Special characters are escaped;
 * invalid UTF-8, characters not allowed in HTML, and those that change the writing direction become
 * U+FFFD. NULL: nothing. */
void kvf__html_text(kvf__html *h, const char *text);
/* Writes text between two pieces of markup. */
void kvf__html_around(kvf__html *h, const char *before, const char *text, const char *after);
/* Writes a text unchanged and other values as JSON; or a text also as JSON, whose quotes show white
 * space. */
void kvf__html_value(kvf__html *h, const kvf_json *value);
void kvf__html_quoted(kvf__html *h, const kvf_json *value);
/* Writes a number by a format, or a dash for NaN; and as a table cell. */
void kvf__html_number(kvf__html *h, const char *format, double value);
void kvf__html_cell(kvf__html *h, const char *format, double value);
/* Writes everything from the doctype to the heading; ends <main>; writes the foot and returns the
 * page in *out. command: "report". */
void kvf__page_begin(kvf__html *h, const char *title, const char *command);
kvf_status kvf__page_end(kvf__html *h, kvf__buf *out);
/* Moves the output to *out, or frees it after a failure, and returns the status. */
kvf_status kvf__html_end(kvf__html *h, kvf__buf *out);
/* Writes a fact at the head of the page, under an arbitrary name, in a list of class "cards";
 * nothing if it is absent. */
void kvf__card_put(kvf__html *h, const char *name, const kvf_json *value, const char *unit);
/* Formats "1.5 MiB". */
void kvf__bytes_put(kvf__html *h, int64_t bytes);

/* ---- axes ------------------------------------------------------------------------------------ */

enum { KVF__TICKS = 24 };
/* low < high; both are ticks or beyond. */
typedef struct kvf__axis {
    double low, high;
    bool log;
    double tick[KVF__TICKS];
    int n;
} kvf__axis;
/* Returns an axis with steps of 1, 2 or 5 times a power of ten, about `about` of them, around [low,
 * high]. */
kvf__axis kvf__axis_linear(double low, double high, int about);
/* Returns a logarithmic axis, 0 < low, with ticks at powers of ten, plus twos and fives if there
 * are few. */
kvf__axis kvf__axis_log(double low, double high);
/* Returns the position of a value, from 0 (low) to 1 (high). */
double kvf__axis_at(const kvf__axis *axis, double value);

/* ---- pictures -------------------------------------------------------------------------------- */

typedef struct kvf__curve {
    const char *column; /* column of the table that has its numbers */
    const char *name;   /* arbitrary text */
    const char *look;   /* CSS class of its line: "raw", "smooth", "valid", "bare", "c0" to "c7" */
    const double *y;    /* [n] values; those that are not finite are skipped */
    bool dots;
    const double *low, *high; /* [n] band around it; NULL: none */
} kvf__curve;

enum { KVF__CURVES = 17 };
typedef struct kvf__chart {
    const char *id, *title, *unit, *label; /* label: text alternative of the chart */
    const char *name;                      /* arbitrary text after the unit; NULL: none */
    const char *table;                     /* id of the table */
    int64_t n;
    const double *x;
    kvf__curve curve[KVF__CURVES];
    int n_curves;
    double mark_x, mark_y; /* marked point; NaN: none */
    const char *mark;
    bool prefer_log;
} kvf__chart;
/* Draws nothing if no value is finite. */
void kvf__chart_put(kvf__html *h, const kvf__chart *chart);

typedef struct kvf__heat {
    const char *id, *title, *unit, *label;
    const char *row_name, *column_name; /* names of the dimensions, "layer", "token" */
    const kvf_json *rows;               /* [rows][columns]; null: missing row */
    bool share;                         /* values from 0 to 1, shown in percent */
} kvf__heat;
void kvf__heat_put(kvf__html *h, const kvf__heat *heat);

/* Writes the scores, or losses, of a comparison's methods as an SVG with its own style. Nothing if
 * there are none. */
void kvf__ranges_put(kvf__html *h, const kvf_json *object);

/* ---- sections -------------------------------------------------------------------------------- */

void kvf__curves_put(kvf__html *h, const kvf_json *facts, const kvf__history *history);
void kvf__norms_put(kvf__html *h, const kvf_json *facts);
void kvf__attention_put(kvf__html *h, const kvf_json *facts);
void kvf__samples_put(kvf__html *h, const kvf_json *facts);
void kvf__confusion_put(kvf__html *h, const kvf_json *facts);
void kvf__words_put(kvf__html *h, const kvf_json *facts);
/* Writes options, lineage, attributes and tensors. */
void kvf__tables_put(kvf__html *h, const kvf_json *facts);

#endif
