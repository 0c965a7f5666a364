/* The lab: studies of runs and files. In a build with -Dlab=disabled its functions return
 * EUNSUPPORTED.
 *
 *     kvf_words_result found;
 *     kvf_words_options options;
 *     memset(&options, 0, sizeof options);
 *     options.top = 5;
 *     if (kvf_words(ctx, base, prefix, &options, &found, NULL)) return 1;
 *     printf("the first virtual token's first key is nearest to \"%s\"\n", found.words[0].text);
 *     kvf_words_result_done(&found);
 *
 * Functions return their results as a struct, whose texts and arrays live until its _done(), and as
 * JSON, which the caller frees. Either may be NULL. */
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
    int64_t top;   /* items named per vector; 0: 5 */
    int64_t chunk; /* vocabulary items per batch; 0: 512 */
    /* called after each chunk; may be NULL */
    void (*progress)(void *user, int64_t done, int64_t items);
    void *user;
} kvf_words_options;

/* A vocabulary item near a vector. */
typedef struct kvf_near_word {
    int32_t id;       /* -1: none, because the layer has no prefix or the vocabulary is too small */
    float cosine;     /* larger is nearer */
    const char *text; /* text of the item alone; "" if there is none */
} kvf_near_word;

typedef struct kvf_words_result {
    int64_t P, L, sides, top;   /* virtual tokens, layers, sides (key, value), words per vector;
                                   virtual tokens at the input have L and sides 1 */
    const kvf_near_word *words; /* [P, L, sides, top], nearest first */
    void *memory;
} kvf_words_result;
void kvf_words_result_done(kvf_words_result *result);

/* Finds the vocabulary items nearest to a prefix. For each layer and virtual token, keys and values
 * are compared by cosine with those that the base computes for the item alone as a row. Keys are
 * compared without rope, as tokens at position 0. Virtual tokens at the input are compared with the
 * token embeddings. *json: {"kind", "top", "layers": [{"layer", "tokens": [{"key": [{"text", "id",
 * "cosine"}], "value": [...]}]}]} or {"kind", "top", "tokens": [{"nearest": [...]}]}. EUSAGE: the
 * file has neither a prefix nor virtual tokens. */
kvf_status kvf_words(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                     const kvf_words_options *options, kvf_words_result *result, kvf_json **json);

/* Contents of a page. Only path and out are required; the page then shows the file alone. */
typedef struct kvf_report_options {
    const char *path; /* a run, prefix, embeddings or adapter file */
    const char *out;
    bool force;
    kvf_checkpoint checkpoint; /* runs: the state whose prefix is shown */
    const char *head;          /* runs of several tasks: the task to show */

    const char *base; /* NULL: no words, attention shares or samples */
    const char *lora; /* LoRA folder, as in kvf_base_options; NULL: none */
    kvf_precision precision;
    bool allow_other_base;
    int64_t words; /* vocabulary items named per virtual token; 0: none */

    const char *data; /* needs base; NULL: no attention shares or samples */
    const char *format, *columns, *delimiter, *map; /* format of data, as in kvf_eval_options */
    kvf_overlong overlong;
    bool no_header;
    int64_t max_length;
    int64_t rows;       /* number of first rows over which attention shares are averaged; 0: none */
    int64_t samples;    /* number of first prompts completed without and with the prefix; 0: none */
    int64_t max_tokens; /* maximum tokens of a completion; 0: 48 */
} kvf_report_options;
/* Returns the defaults: f32, 3 words, 32 rows, 4 samples, 48 tokens. */
kvf_report_options kvf_report_defaults(void);

/* Writes one self-contained HTML page about a run or a folded file: curves of its history, norms by
 * layer and virtual token, options and lineage. With a base it adds the words nearest to the
 * virtual tokens. With data it adds the attention share of the virtual tokens by layer and head,
 * and sample completions beside the references. Classifiers and taggers get a confusion table over
 * all rows and their most confident mistakes instead. The page is written whole or not at all.
 * Equal inputs, including file times, give equal bytes. *bytes, may be NULL, is its size. EFORMAT:
 * another kind of file. EUSAGE: data without a base. EEXIST. */
kvf_status kvf_report(kvf_ctx *ctx, const kvf_report_options *options, int64_t *bytes);

typedef enum kvf_prune_score { KVF_PRUNE_LEAVE_ONE_OUT, KVF_PRUNE_GRADIENT } kvf_prune_score;

typedef struct kvf_prune_options {
    const char *prefix, *base, *out; /* prefix or run file; model; prefix file to write */
    const char *lora;                /* LoRA folder, as in kvf_base_options; NULL: none */
    const char *curve;               /* CSV file of the curve; NULL: none */
    kvf_eval_options eval;           /* data file and its format */
    kvf_precision precision;         /* the zero is AUTO */
    int64_t keep; /* number of virtual tokens (neurons) to keep, from 1; 0: by max_loss_rise */
    double max_loss_rise; /* with keep 0: largest allowed rise over the loss of the whole prefix */
    kvf_prune_score score;
    kvf_dtype dtype;
    kvf_checkpoint checkpoint;
    const char *head; /* several tasks: the task to keep */
    bool allow_other_base, force;
    bool neurons; /* virtual neurons are dropped, not tokens; implied without tokens */
    /* Called after each loss; items is the maximum number of losses. May be NULL. */
    void (*progress)(void *user, int64_t done, int64_t items);
    void *user;
} kvf_prune_options;

typedef struct kvf_prune_point {
    int64_t length; /* remaining virtual tokens; 0: no such point */
    /* virtual token dropped last, as an index into the whole prefix; -1: none yet */
    int64_t dropped;
    double loss;
} kvf_prune_point;

typedef struct kvf_prune_result {
    double loss_before, loss_after;
    int64_t P;            /* length of the whole prefix, or its neurons in a layer */
    const double *scores; /* [P] initial score of each token or place of neurons */
    size_t n_kept;
    const int64_t *kept; /* [n_kept] indices of the kept ones, ascending */
    size_t n_points;
    const kvf_prune_point *curve; /* [n_points] points, the whole prefix first */
    kvf_prune_point next;         /* the first drop that exceeded max_loss_rise */
    int64_t shape[6];             /* shape of the new file's prefix, [L, 2, 1, G, P, D] */
    int64_t position_start, bytes;
    void *memory;
} kvf_prune_result;
void kvf_prune_result_done(kvf_prune_result *result);

/* Drops the least needed virtual tokens one by one, and writes the rest as a prefix. The keys keep
 * their rotation and position_start its value, so the positions of the text are unchanged.
 *
 * leave-one-out: each drop computes the loss without each remaining token, and drops the token
 * whose absence costs least. gradient: the score is |gradient x value|, summed over a token's keys
 * and values and computed once; the loss is computed after each drop.
 *
 * Neurons of each layer are first ordered by |gradient x value| of their values, the largest first.
 * Index i then stands for the i-th neuron of every layer, and is dropped in all of them.
 *
 * *json: {"score", "loss_before", "loss_after", "scores": [initial score of each token], "kept":
 * [indices], "curve": [{"length", "dropped", "loss"}], "next": {...} (the rejected drop, or null),
 * "shape", "position_start", "bytes", "of": "tokens" or "neurons"}. EUSAGE: options; EUNSUPPORTED:
 * no prefix before rows; EDATA: rows without labels. */
kvf_status kvf_prune(kvf_ctx *ctx, const kvf_prune_options *options, kvf_prune_result *result,
                     kvf_json **json);

typedef void (*kvf_sweep_event_fn)(void *user, const char *run, const kvf_event *event);

typedef struct kvf_sweep_options {
    const char *grid; /* file that lists the runs */
    const char *out;  /* folder for run files, sweep.csv and sweep.html; created if missing */
    int64_t max_runs; /* runs trained at a time; 0: all */
    kvf_train_options train;  /* options shared by all runs; out and event are not used */
    kvf_sweep_event_fn event; /* NULL: none */
    void *event_user;
} kvf_sweep_options;

/* Result of one run. */
typedef struct kvf_sweep_run {
    int64_t rank;               /* from 1; 0: the run has no value */
    const char *name, *file;    /* name: of the run; file: its run file */
    const char *status;         /* "done", "stopped", "failed", "waiting" */
    const char *line;           /* reason of a failure, or NULL */
    const char *const *options; /* [n_options] values as in the grid file */
    double value;               /* value of the sweep's metric; NaN: none */
    double last_train_loss;     /* mean over the last steps */
    kvf_train_result result;    /* steps 0: not started */
} kvf_sweep_run;

typedef struct kvf_sweep_result {
    const char *metric; /* metric that ranks the runs */
    size_t n;
    const kvf_sweep_run *runs; /* [n], best first */
    size_t n_options;
    const char *const *options; /* [n_options] names of the options that vary */
    int64_t failed;             /* numbers of runs */
    int64_t passes;
    double step_seconds, seconds;
    void *memory;
} kvf_sweep_result;
void kvf_sweep_result_done(kvf_sweep_result *result);

/* Trains the runs of a grid file in common passes over one frozen base. Each product of a step
 * covers the rows of all runs. Each run has its own prefix, encoder, head, optimizer, data and
 * order, and an ordinary run file OUT/NAME.h5. Its gradients differ from those of a separate run
 * only in the order of f32 sums.
 *
 * *json: {"out", "runs": [{"rank", "name", "file", "options", "status", "line", "metric", "value",
 * "steps", ...}], best first, "options": [names that differ], "failed", "passes", "step_seconds",
 * "seconds"}. A run with non-finite numbers fails alone, with an error line. ESTOPPED: on request;
 * everything is saved, *result and *json are set, and train.resume continues. */
kvf_status kvf_sweep(kvf_ctx *ctx, const kvf_sweep_options *options, kvf_sweep_result *result,
                     kvf_json **json);

#ifdef __cplusplus
}
#endif
#endif
