/* The parts of the page: the writer that escapes, axes, charts, heat maps, tables. Private to
 * src/lab.
 *
 * Pictures are drawn in a square of 1000 x 1000 that is stretched to the space there is, with lines
 * that keep their width; labels are HTML around it, so that they stay legible on a phone. All
 * numbers that a picture shows are in a table as well, which the script reads for its hover
 * texts. */
#ifndef KVF_REPORT_PRIV_H
#define KVF_REPORT_PRIV_H

#include "report_int.h"

/* page.css and page.js, made C arrays when the library is built; NUL-terminated. */
extern const char kvf__page_css[], kvf__page_js[];

/* ---- writing --------------------------------------------------------------------------------- */

/* The first failure stays in st, and what is put afterwards goes nowhere. */
typedef struct kvf__html {
    kvf_ctx *ctx;
    kvf__buf out;
    kvf_status st;
} kvf__html;
/* Markup as it is: constants of this folder alone. */
void kvf__html_put(kvf__html *h, const char *markup);
void kvf__html_printf(kvf__html *h, const char *fmt, ...) KVF__PRINTF(2, 3);
/* Anybody's text, for elements and for attributes in double quotes: what HTML would read is
 * escaped, what is no UTF-8, no character of HTML, or turns the direction of writing, becomes
 * U+FFFD. NULL: nothing. */
void kvf__html_text(kvf__html *h, const char *text);
/* The same between two pieces of markup. */
void kvf__html_around(kvf__html *h, const char *before, const char *text, const char *after);
/* A text as it is, other values as JSON; and a text as JSON too, whose quotes show white space. */
void kvf__html_value(kvf__html *h, const kvf_json *value);
void kvf__html_quoted(kvf__html *h, const kvf_json *value);
/* A number by a format of one, or a dash where it is none; and as a cell of a table. */
void kvf__html_number(kvf__html *h, const char *format, double value);
void kvf__html_cell(kvf__html *h, const char *format, double value);
/* From the doctype to the heading; the end of what is in <main>, and the foot, after which *out has
 * the page. command: "report". */
void kvf__page_begin(kvf__html *h, const char *title, const char *command);
kvf_status kvf__page_end(kvf__html *h, kvf__buf *out);
/* What was written becomes *out, or is freed after a failure, whose status it returns. */
kvf_status kvf__html_end(kvf__html *h, kvf__buf *out);
/* One of the facts at the head of the page, by anybody's name, in a list of class "cards"; nothing
 * where it is absent.
 */
void kvf__card_put(kvf__html *h, const char *name, const kvf_json *value, const char *unit);
/* "1.5 MiB". */
void kvf__bytes_put(kvf__html *h, int64_t bytes);

/* ---- axes ------------------------------------------------------------------------------------ */

enum { KVF__TICKS = 24 };
/* low < high, both of them ticks or beyond. */
typedef struct kvf__axis {
    double low, high;
    bool log;
    double tick[KVF__TICKS];
    int n;
} kvf__axis;
/* Steps of 1, 2 or 5 times a power of ten, about `about` of them, around [low, high]. */
kvf__axis kvf__axis_linear(double low, double high, int about);
/* 0 < low. Powers of ten, with twos and fives where there are few. */
kvf__axis kvf__axis_log(double low, double high);
/* From 0 (low) to 1 (high). */
double kvf__axis_at(const kvf__axis *axis, double value);

/* ---- pictures -------------------------------------------------------------------------------- */

typedef struct kvf__curve {
    const char *column; /* of the table that has its numbers */
    const char *name;   /* anybody's text */
    const char *look;   /* class of its line: "raw", "smooth", "valid", "bare", "c0" to "c7" */
    const double *y;    /* [n]; what is not finite is passed over */
    bool dots;
    const double *low, *high; /* [n] a band around it; NULL: none */
} kvf__curve;

enum { KVF__CURVES = 17 };
typedef struct kvf__chart {
    const char *id, *title, *unit, *label; /* label: read out in place of the picture */
    const char *name;                      /* anybody's text after the unit; NULL: none */
    const char *table;                     /* id of the table */
    int64_t n;
    const double *x;
    kvf__curve curve[KVF__CURVES];
    int n_curves;
    double mark_x, mark_y; /* a point to be marked; NaN: none */
    const char *mark;
    bool prefer_log;
} kvf__chart;
/* Draws nothing if no value is finite. */
void kvf__chart_put(kvf__html *h, const kvf__chart *chart);

typedef struct kvf__heat {
    const char *id, *title, *unit, *label;
    const char *row_name, *column_name; /* "layer", "token" */
    const kvf_json *rows;               /* [rows][columns]; null: no such row */
    bool share;                         /* values are parts of 1: from 0, in percent */
} kvf__heat;
void kvf__heat_put(kvf__html *h, const kvf__heat *heat);

/* The scores, or the losses, of a comparison's methods, as an SVG with its own style. Nothing if
 * there are none. */
void kvf__ranges_put(kvf__html *h, const kvf_json *object);

/* ---- sections -------------------------------------------------------------------------------- */

void kvf__curves_put(kvf__html *h, const kvf_json *facts, const kvf__history *history);
void kvf__norms_put(kvf__html *h, const kvf_json *facts);
void kvf__attention_put(kvf__html *h, const kvf_json *facts);
void kvf__samples_put(kvf__html *h, const kvf_json *facts);
void kvf__confusion_put(kvf__html *h, const kvf_json *facts);
void kvf__words_put(kvf__html *h, const kvf_json *facts);
/* Options, lineage, attributes, tensors. */
void kvf__tables_put(kvf__html *h, const kvf_json *facts);

#endif
