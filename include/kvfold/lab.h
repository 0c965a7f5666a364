/* The lab: what studies runs and files. A build with -Dlab=disabled lacks it; its functions then
 * give EUNSUPPORTED.
 *
 *     kvf_words_result found;
 *     kvf_words_options options;
 *     memset(&options, 0, sizeof options);
 *     options.top = 5;
 *     if (kvf_words(ctx, base, prefix, &options, &found, NULL)) return 1;
 *     printf("the first virtual token's first key is nearest to \"%s\"\n", found.words[0].text);
 *     kvf_words_result_done(&found);
 *
 * Functions that find something out give it as a struct, whose texts and arrays are views that live
 * until its _done(), and as JSON, which the caller frees; each may be NULL. */
#ifndef KVFOLD_LAB_H
#define KVFOLD_LAB_H

#ifndef KVF_EXPERIMENTAL
#error "kvfold/lab.h may change in every release; to use it, define KVF_EXPERIMENTAL first"
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

/* A vocabulary item near a vector. */
typedef struct kvf_near_word {
    int32_t id;       /* -1: there is none, the layer has no prefix or the vocabulary ends */
    float cosine;     /* the larger the nearer */
    const char *text; /* of the item alone; "" where there is none */
} kvf_near_word;

typedef struct kvf_words_result {
    int64_t P, L, sides,
        top; /* virtual tokens, layers, [key, value]; at the input L and sides: 1 */
    const kvf_near_word *words; /* [P, L, sides, top], the nearest first */
    void *memory;
} kvf_words_result;
void kvf_words_result_done(kvf_words_result *result);

/* Words near a prefix: for each layer and virtual token the vocabulary items whose own key, and
 * whose own value, is nearest by cosine, as the base computes them for the item alone as a row.
 * Keys are compared without rope, those of tokens at position 0. Of virtual tokens at the input:
 * the nearest token embeddings. *json: {"kind", "top", "layers": [{"layer", "tokens": [{"key":
 * [{"text", "id", "cosine"}], "value": [...]}]}]} or {"kind", "top", "tokens": [{"nearest":
 * [...]}]}. EUSAGE: the file holds neither. */
kvf_status kvf_words(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                     const kvf_words_options *options, kvf_words_result *result, kvf_json **json);

typedef struct kvf_drop_spans_options {
    kvf_eval_options eval; /* what each span is measured on */
    const char *out;       /* page with heat maps, HTML */
    bool force;
    void (*progress)(void *user, int64_t done, int64_t spans); /* may be NULL */
    void *user;
    uint64_t reserved[8];
} kvf_drop_spans_options;
/* A base with adapters (kvf_base_open_for), measured without those of every span of layers. *json:
 * {"layers", "loss", "value", "metric", "spans": [{"first", "last", "loss", "value"}], "added":
 * [{"layer", "attn", "ffn"}]}: with all adapters, without those of layers first to last, and of
 * each adapter the norm of what it adds over that of what it reads, on the same rows. Layers that
 * were left out before count again. EUSAGE: the base carries none; EEXIST. */
kvf_status kvf_drop_spans(kvf_ctx *ctx, kvf_base *base, kvf_prefix *prefix,
                          const kvf_drop_spans_options *options, kvf_json **json);

/* What a page is made of. All zero but path and out: what the file alone shows. */
typedef struct kvf_report_options {
    const char *path; /* a run, prefix, embeddings or adapter file */
    const char *out;
    bool force;
    kvf_checkpoint checkpoint; /* of a run: whose prefix is looked at */
    const char *head;          /* of a run of several tasks: the one to look at */

    const char *base; /* NULL: no words, shares, samples */
    const char *lora; /* of base, as kvf_base_options has it; NULL: none */
    kvf_precision precision;
    bool allow_other_base;
    int64_t words; /* vocabulary items named for each virtual token; 0: none */

    const char *data;                   /* needs base; NULL: no shares, no samples */
    const char *format, *columns, *delimiter, *map; /* of data, as in kvf_eval_options */
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
 * and with them and the data's own, or of classifiers and taggers a table of labels by predictions
 * over all rows and their surest mistakes. Whole or not at all; equal inputs, times of files among
 * them, give equal bytes. *bytes, may be NULL: its size.
 * EFORMAT: another kind of file. EUSAGE: data without a base. EEXIST. */
kvf_status kvf_report(kvf_ctx *ctx, const kvf_report_options *options, int64_t *bytes);

typedef enum kvf_prune_score { KVF_PRUNE_LEAVE_ONE_OUT, KVF_PRUNE_GRADIENT } kvf_prune_score;

typedef struct kvf_prune_options {
    const char *prefix, *base, *out; /* prefix or run file; model; prefix file to write */
    const char *lora;                /* of base, as kvf_base_options has it; NULL: none */
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

typedef struct kvf_prune_point {
    int64_t length;  /* virtual tokens left; 0: no such point */
    int64_t dropped; /* which went last, counted in the whole prefix; -1: none yet */
    double loss;
} kvf_prune_point;

typedef struct kvf_prune_result {
    double loss_before, loss_after;
    int64_t P;            /* of the whole prefix */
    const double *scores; /* [P] of each token at first */
    size_t n_kept;
    const int64_t *kept; /* [n_kept] those that stay, rising */
    size_t n_points;
    const kvf_prune_point *curve; /* [n_points] the whole prefix first */
    kvf_prune_point next;         /* the drop that would have cost too much */
    int64_t shape[6];             /* of the new file, [L, 2, 1, G, n_kept, D] */
    int64_t position_start, bytes;
    void *memory;
} kvf_prune_result;
void kvf_prune_result_done(kvf_prune_result *result);

/* Drops virtual tokens, the least needed first, and writes those that stay as a prefix. Keys stay
 * where they were rotated to and position_start stays, so the text keeps its positions.
 *
 * leave-one-out: before each drop the loss is computed without each of those left, and the token
 * whose absence costs least goes. gradient: |gradient x value|, summed over a token's keys and
 * values, once for all; the loss is then computed after each drop.
 *
 * *json: {"score", "loss_before", "loss_after", "scores": [of each token at first],
 * "kept": [indices], "curve": [{"length", "dropped", "loss"}], "next": {...} (the drop that would
 * have cost too much; or null), "shape", "position_start", "bytes"}. EUSAGE: options; EUNSUPPORTED:
 * no prefix before rows; EDATA: rows without labels. */
kvf_status kvf_prune(kvf_ctx *ctx, const kvf_prune_options *options, kvf_prune_result *result,
                     kvf_json **json);

typedef void (*kvf_sweep_event_fn)(void *user, const char *run, const kvf_event *event);

typedef struct kvf_sweep_options {
    const char *grid; /* file that lists the runs */
    const char *out;  /* folder for their files, sweep.csv and sweep.html, made if there is none */
    int64_t max_runs; /* trained at a time; 0: all */
    kvf_train_options train;  /* what the runs have in common; its out and event are not used */
    kvf_sweep_event_fn event; /* NULL: none */
    void *event_user;
} kvf_sweep_options;

/* What came of one run. */
typedef struct kvf_sweep_run {
    int64_t rank;               /* from 1; 0: it has no value */
    const char *name, *file;    /* of its run file */
    const char *status;         /* "done", "stopped", "failed", "waiting" */
    const char *line;           /* why it failed; NULL */
    const char *const *options; /* [n_options] as the grid has them */
    double value;               /* of the sweep's metric; NaN: none */
    double last_train_loss;     /* mean of the last steps' */
    kvf_train_result result;    /* steps 0: it never began */
} kvf_sweep_run;

typedef struct kvf_sweep_result {
    const char *metric; /* that runs are ranked by */
    size_t n;
    const kvf_sweep_run *runs; /* [n], the best first */
    size_t n_options;
    const char *const *options; /* [n_options] names of those in which runs differ */
    int64_t failed;             /* runs */
    int64_t passes;
    double step_seconds, seconds;
    void *memory;
} kvf_sweep_result;
void kvf_sweep_result_done(kvf_sweep_result *result);

/* Trains the runs of a grid file in common passes over one frozen base: rows of all runs share
 * every product of a step, each run with its own prefix, encoder, head, optimizer, data and order,
 * and with its own file OUT/NAME.h5, like any other run's. A run's gradients are those it has
 * alone, but for the order of f32 sums.
 *
 * *json: {"out", "runs": [{"rank", "name", "file", "options", "status", "line",
 * "metric", "value", "steps", ...}], best first, "options": [names that differ], "failed",
 * "passes", "step_seconds", "seconds"}. A run whose numbers go bad fails alone, with its line.
 * ESTOPPED: on request, all saved, *result and *json set; train.resume continues. */
kvf_status kvf_sweep(kvf_ctx *ctx, const kvf_sweep_options *options, kvf_sweep_result *result,
                     kvf_json **json);

#ifdef __cplusplus
}
#endif
#endif
