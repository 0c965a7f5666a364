/* Work over whole runs and files.
 *
 *     kvf_json *found = NULL;
 *     kvf_words_options options;
 *     memset(&options, 0, sizeof options);
 *     options.top = 5;
 *     if (kvf_words(ctx, base, prefix, &options, &found)) return 1;
 *     printf("%zu layers\n", kvf_json_size(kvf_json_get(found, "layers")));
 *     kvf_json_free(found); */
#ifndef KVFOLD_STUDY_H
#define KVFOLD_STUDY_H

#ifndef KVF_EXPERIMENTAL
#error "kvfold/study.h may change in every release; to use it, define KVF_EXPERIMENTAL first"
#endif

#include <kvfold/json.h>
#include <kvfold/train.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvf_words_options {
    int64_t top;   /* items named for each; 0: 5 */
    int64_t chunk; /* vocabulary items run at once; 0: 512 */
    void (*progress)(void *user, int64_t done, int64_t items); /* after each chunk; may be NULL */
    void *user;
} kvf_words_options;

/* Words near a prefix: for each layer and virtual token the vocabulary items whose own key, and
 * whose own value, is nearest by cosine, as the base computes them for the item alone as a row.
 * Keys are compared without rope, those of tokens at position 0. Of virtual tokens at the input:
 * the nearest token embeddings. *out, the caller's: {"kind", "top", "layers": [{"layer", "tokens":
 * [{"key":
 * [{"text", "id", "cosine"}], "value": [...]}]}]} or {"kind", "top", "tokens": [{"nearest":
 * [...]}]}. EUSAGE: the file holds neither. */
kvf_status kvf_words(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                     const kvf_words_options *options, kvf_json **out);

/* What a page is made of. All zero but path and out: what the file alone shows. */
typedef struct kvf_report_options {
    const char *path; /* a run, prefix, embeddings or adapter file */
    const char *out;
    bool force;
    kvf_checkpoint checkpoint; /* of a run: whose prefix is looked at */
    const char *head;          /* of a run of several tasks: the one to look at */

    const char *base; /* NULL: no words, shares, samples */
    kvf_precision precision;
    bool allow_other_base;
    int64_t words; /* vocabulary items named for each virtual token; 0: none */

    const char *data;                   /* needs base; NULL: no shares, no samples */
    const char *format, *columns, *map; /* of data, as in kvf_eval_options */
    kvf_overlong overlong;
    bool no_header;
    int64_t max_length;
    int64_t rows;       /* first rows over which shares of attention are means; 0: none */
    int64_t samples;    /* first prompts completed, without and with; 0: none */
    int64_t max_tokens; /* of a completion; 0: 48 */
} kvf_report_options;
kvf_report_options kvf_report_defaults(void); /* f32, 3 words, 32 rows, 4 samples, 48 tokens */

/* Writes one self-contained HTML page about a run or what it folded to: curves of its history,
 * norms by layer and virtual token, options and lineage; on a base the words nearest to the virtual
 * tokens; on data also the share of attention they take by layer and head, and completions without
 * and with them. Whole or not at all; equal inputs give equal bytes. *bytes, may be NULL: its size.
 * EFORMAT: another kind of file. EUSAGE: data without a base. EEXIST. */
kvf_status kvf_report(kvf_ctx *ctx, const kvf_report_options *options, int64_t *bytes);

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
kvf_status kvf_compare_summary(kvf_ctx *ctx, const char *base, kvf_json *object);
/* One self-contained HTML page of such an object: the table and the curves. Of the object also
 * "title", "bare" {loss} or {reason}, "options" and "about" {name: value}, each of which may be
 * absent. *bytes, may be NULL: its size. EEXIST. */
kvf_status kvf_compare_page(kvf_ctx *ctx, const kvf_json *object, const char *out, bool force,
                            int64_t *bytes);

typedef enum kvf_prune_score { KVF_PRUNE_LEAVE_ONE_OUT, KVF_PRUNE_GRADIENT } kvf_prune_score;

typedef struct kvf_prune_options {
    const char *prefix, *base, *out; /* prefix or run file; model; prefix file to write */
    const char *curve;               /* CSV file to write too; NULL: none */
    kvf_eval_options eval;           /* data, and how its rows are read */
    kvf_precision precision;         /* as everywhere, AUTO is the zero */
    int64_t keep;         /* virtual tokens that stay, from 1; 0: as many as max_loss_rise wants */
    double max_loss_rise; /* with keep 0: drop while the loss is above that of all by no more */
    kvf_prune_score score;
    kvf_dtype dtype;
    kvf_checkpoint checkpoint;
    const char *head; /* of several tasks: the one to keep */
    bool allow_other_base, force;
    /* After each loss; items: the most there will be. May be NULL. */
    void (*progress)(void *user, int64_t done, int64_t items);
    void *user;
} kvf_prune_options;

/* Drops virtual tokens, the least needed first, and writes those that stay as a prefix. Keys stay
 * where they were rotated to and position_start stays, so the text keeps its positions.
 *
 * leave-one-out: before each drop the loss is computed without each of those left, and the token
 * whose absence costs least goes. gradient: |gradient x value|, summed over a token's keys and
 * values, once for all; the loss is then computed after each drop.
 *
 * *out, the caller's: {"score", "loss_before", "loss_after", "scores": [of each token at first],
 * "kept": [indices], "curve": [{"length", "dropped", "loss"}], "next": {...} (the drop that would
 * have cost too much; or null), "shape", "position_start", "bytes"}. EUSAGE: options; EUNSUPPORTED:
 * no prefix before rows; EDATA: rows without labels. */
kvf_status kvf_prune(kvf_ctx *ctx, const kvf_prune_options *options, kvf_json **out);

typedef struct kvf_distill_options {
    kvf_train_options train; /* of the run; method direct and 200 steps unless set. data: rows about
                                the document, NULL: made from it; valid: rows to measure by, NULL:
                                one in eight of those; init NULL or as by default: the document's
                                own keys and values */
    const char *document;    /* path of a text in UTF-8 */
    int64_t top_k;           /* items of the teacher at each label, at most 256; 0: 20 */
    int64_t self_study;    /* prompts that the base answers with the document in context; -1: 96, or
                              0 with data */
    int64_t answer_tokens; /* most in such an answer; 0: 64 */
    double temperature;    /* at which they are drawn */
    int64_t chunk; /* tokens of the pieces of the document that are rows too; 0: none; -1: 128, or
                      none with data */
} kvf_distill_options;
kvf_distill_options kvf_distill_defaults(void);

typedef struct kvf_distill_result {
    kvf_train_result train;
    int64_t document_tokens, prefix_length;
    int64_t held_out_rows, held_out_labels;
    double teacher_seconds; /* the document, the rows and the teacher's targets */
    /* On the held-out rows, nats per label token: of the bare base, with the prefix (the best
     * checkpoint), with the document in context; and KL to the last of the other two over the
     * teacher's items. NaN: dry run, or stopped. */
    double loss_base, loss_prefix, loss_document;
    double kl_base, kl_prefix;
} kvf_distill_result;

/* Trains a prefix that replaces a document, and writes an ordinary run to train.out. EUSAGE: an
 * option that this has no use for; EDATA, ESHAPE: the document is no text or leaves no positions.
 * ESTOPPED as kvf_train. */
kvf_status kvf_distill(kvf_ctx *ctx, const kvf_distill_options *options,
                       kvf_distill_result *result);

typedef void (*kvf_sweep_event_fn)(void *user, const char *run, const kvf_event *event);

typedef struct kvf_sweep_options {
    const char *grid;         /* file that lists the runs */
    const char *out;          /* folder for their files and sweep.csv, made if there is none */
    int64_t max_runs;         /* trained at a time; 0: all */
    kvf_train_options train;  /* what the runs have in common; its out and event are not used */
    kvf_sweep_event_fn event; /* NULL: none */
    void *event_user;
} kvf_sweep_options;

/* Trains the runs of a grid file in common passes over one frozen base: rows of all runs share
 * every product of a step, each run with its own prefix, encoder, head, optimizer, data and order,
 * and with its own file OUT/NAME.h5, like any other run's. A run's gradients are those it has
 * alone, but for the order of f32 sums.
 *
 * *out, the caller's: {"out", "runs": [{"rank", "name", "file", "options", "status", "line",
 * "metric", "value", "steps", ...}], best first, "options": [names that differ], "failed",
 * "passes", "step_seconds", "seconds"}. A run whose numbers go bad fails alone, with its line.
 * ESTOPPED: on request, all saved and *out set; train.resume continues. */
kvf_status kvf_sweep(kvf_ctx *ctx, const kvf_sweep_options *options, kvf_json **out);

#ifdef __cplusplus
}
#endif
#endif
