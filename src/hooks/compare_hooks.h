/* Results of a comparison, made by src/lab for `compare`: one JSON object from the objects of its
 * runs, and a page. */
#ifndef KVF_COMPARE_HOOKS_H
#define KVF_COMPARE_HOOKS_H

#include <kvfold/json.h>
#include <kvfold/train.h>

/* Summarises the runs of a comparison. object has "runs": one object for each run, as `train
 * --json` prints it, with "name", "seed" and "file" (the run file). "name" is that of the method,
 * equal for runs that differ by their seed alone. Optional members: "reference", the name that
 * differences are relative to; "draws", if the seeds also choose the rows: loss and score then have
 * "sd", the standard deviation over the runs. The summary adds to object:
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
/* Writes one self-contained HTML page of such an object, with the table and the curves. Optional
 * members of the object are also "title", "bare" {loss} or {reason}, "failed" [{name, seed, line}],
 * "ensembles" [{name, best_metric, score {mean, min, max}}], "options" and "about" {name: value}.
 * *bytes, may be NULL: its size. EEXIST. */
kvf_status kvf__compare_page(kvf_ctx *ctx, const kvf_json *object, const char *out, bool force,
                             int64_t *bytes);
/* Writes an SVG of the same object: mean, minimum and maximum score of each method. Writes no file
 * if no method has a score. EEXIST. */
kvf_status kvf__compare_picture(kvf_ctx *ctx, const kvf_json *object, const char *out, bool force);

#endif
