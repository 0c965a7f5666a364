/* Results of a comparison, which `compare` has from src/lab: one JSON object made from the objects
 * of its runs, and a page. */
#ifndef KVF_COMPARE_HOOKS_H
#define KVF_COMPARE_HOOKS_H

#include <kvfold/json.h>
#include <kvfold/train.h>

/* What the runs of a comparison come to. object has "runs", one for each run as `train --json`
 * prints it and with "name" (of the method, equal for runs that differ by their seed alone), "seed"
 * and "file" (the run file); and "reference", the name that differences are to, may be absent.
 * Added to it:
 *
 *   base_parameters   of the model
 *   curve_steps       [steps] at which any run was validated
 *   methods           for each name, in order: name, method, init, bytes, trainable_parameters;
 *                     share (of the base's and its own parameters), runs, tokens_per_second (mean),
 *                     peak_rss_bytes (largest); loss {mean, min, max} of the best checkpoints;
 *                     best_metric and score, the same, score null where the metric is the loss;
 *                     difference {mean, standard_error, pairs}: of the score, or the loss, to the
 *                     reference over equal seeds; curves {loss, score?}: {mean, min, max}, each
 *                     [steps], null where none of its runs was validated
 *
 * EUSAGE: a run without name or file. */
kvf_status kvf__compare_summary(kvf_ctx *ctx, const char *base, kvf_json *object);
/* One self-contained HTML page of such an object: the table and the curves. Of the object also
 * "title", "bare" {loss} or {reason}, "failed" [{name, seed, line}], "ensembles" [{name,
 * best_metric, score {mean, min, max}}], "options" and "about" {name: value}, each of which may be
 * absent. *bytes, may be NULL: its size. EEXIST. */
kvf_status kvf__compare_page(kvf_ctx *ctx, const kvf_json *object, const char *out, bool force,
                             int64_t *bytes);
/* Of the same object one SVG: the mean, the least and the largest score of each method. No file if
 * no method has one. EEXIST. */
kvf_status kvf__compare_picture(kvf_ctx *ctx, const kvf_json *object, const char *out, bool force);

#endif
