/* The pages of `kvfold report` and `kvfold compare`: one self-contained HTML file each.
 *
 * These files only draw. report_page.c and compare.c gather the data: JSON with the names of
 * kvf_inspect(), and the history of a run. Every text in it may be hostile: names of files and
 * tensors, options, words, generations. Equal data give equal bytes. */
#ifndef KVF_REPORT_INT_H
#define KVF_REPORT_INT_H

#include "base_int.h"
#include "history.h"

/* Writes the page of a run or prefix. facts; all but title and kind are optional:
 *
 *   title, kind         of the file
 *   written             time, as a text
 *   attributes, options, lineage, history, tensors   as kvf_inspect() gives them
 *   prefix {keys, values}  [L][P] L2 norms over heads; a masked layer is null
 *   neurons {key or gate, up?, value, bias?}  [L][N] L2 norms, likewise
 *   virtual             [P] L2 norms of vectors at the input
 *   attention {share [L][H], labels, rows, data, before?, after?}    shares in 0 .. 1; losses of
 *                       these rows without and with the prefix, in nats
 *   words               as kvf_words() gives them
 *   answers {data, unit, n, right, labels [N], counts [N][N],
 *            wrong [{text, word?, label, predicted, probability}]}
 *                       of a classifier; counts by label, then by prediction
 *   samples {data, max_tokens, rows [{prompt, before, after, references? [text]}]}
 *   notes               [text] missing parts, with the reason
 *
 * history NULL or empty: no curves. The caller frees *out. */
kvf_status kvf__report_page(kvf_ctx *ctx, const kvf_json *facts, const kvf__history *history,
                            kvf__buf *out);
/* Writes the page of a sweep. report: as of kvf_sweep(). drawn: {methods [{name, curves,
 * best_metric}], curve_steps, loss}, with curves as in a comparison; loss is the title of the loss
 * chart. */
kvf_status kvf__sweep_page(kvf_ctx *ctx, const kvf_json *report, const kvf_json *drawn,
                           kvf__buf *out);
/* Writes the chart of a comparison's scores as an SVG file; empty if there are no scores. */
kvf_status kvf__ranges_picture(kvf_ctx *ctx, const kvf_json *object, kvf__buf *out);
/* Writes the page of a comparison, from the object of kvf__compare_page(). */
kvf_status kvf__comparison_page(kvf_ctx *ctx, const kvf_json *object, kvf__buf *out);

/* Returns the steps [*n_steps], ascending, at which any of n runs has a value in a column; the
 * caller frees them (compare.c). kvf__history_at_step() returns the value of one run there; NaN:
 * none. */
kvf_status kvf__history_steps(kvf_ctx *ctx, const kvf__history *runs, size_t n, int column,
                              int64_t **steps, int64_t *n_steps);
double kvf__history_at_step(const kvf__history *history, int column, int64_t step);

#endif
