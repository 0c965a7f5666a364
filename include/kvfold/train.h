/* Training a prefix, and measuring one on data.
 *
 *     kvf_train_options *options = NULL;
 *     kvf_train_result result;
 *     if (kvf_train_options_create(ctx, &options) ||
 *         kvf_train_set(ctx, options, "base", "model.gguf") ||
 *         kvf_train_set(ctx, options, "data", "train.jsonl") ||
 *         kvf_train_set(ctx, options, "out", "run.h5") ||
 *         kvf_train_set(ctx, options, "lr", "0.03") || kvf_train(ctx, options, &result))
 *         fprintf(stderr, "%s\n", kvf_ctx_error(ctx));
 *     kvf_train_options_free(options);
 *
 * Method: Li & Liang 2021 (prefix-tuning), Liu et al. 2022 (P-tuning v2). */
#ifndef KVFOLD_TRAIN_H
#define KVFOLD_TRAIN_H

#include <kvfold/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kvf_event_kind {
    KVF_EVENT_START, /* data and base are loaded; steps and examples are set */
    KVF_EVENT_STEP,
    KVF_EVENT_EVAL,
    KVF_EVENT_SAVE,
    KVF_EVENT_NOTE,      /* `text` is a message for the user */
    KVF_EVENT_RETENTION, /* the loss on the retention set is known */
    KVF_EVENT_FORECAST   /* before the first step, if requested */
} kvf_event_kind;

/* A metric's value. The name is a static text. */
typedef struct kvf_metric {
    const char *name; /* "loss", "accuracy", "f1", "exact_match", ... */
    double value;     /* NaN: undefined on this data */
} kvf_metric;
#define KVF_MAX_SCORES 24

/* Estimated cost of a run, measured on a few of its own batches without changing its results. */
typedef struct kvf_forecast {
    int64_t steps, validations; /* remaining; steps 0: no forecast */
    double seconds_per_step, seconds_per_validation, seconds_per_save;
    double seconds;       /* time of the whole call; of a dry run: of the corresponding real call */
    double probe_seconds; /* time of the forecast itself */
    int64_t peak_rss_bytes; /* peak resident memory */
    int64_t tokens;         /* tokens to train on */
    int64_t trainable_parameters;
    int64_t file_bytes; /* approximate size of the run file */
    uint64_t reserved[8];
} kvf_forecast;

typedef struct kvf_event {
    kvf_event_kind kind;
    int64_t step, steps; /* steps done, and total */
    double train_loss;   /* loss of this step, nats per label token */
    double valid_loss;   /* EVAL */
    kvf_metric metric;   /* EVAL: the metric that selects the best checkpoint */
    bool best;           /* EVAL: the best so far */
    /* RETENTION: loss with the prefix, and of the bare base */
    double retention_loss, retention_base_loss;
    double lr, grad_norm;
    double prefix_norm;           /* STEP: norm of the emitted prefix */
    int64_t tokens;               /* trained on in all steps */
    double tokens_per_second;     /* rate of this step */
    double seconds;               /* since the start of this call */
    double seconds_left;          /* estimated time to the end of the run; NaN: unknown */
    const char *text;             /* NOTE, SAVE (path) */
    const kvf_forecast *forecast; /* FORECAST */
    bool detail;                  /* NOTE: a detail for --verbose */
    uint64_t reserved[7];
} kvf_event;
typedef void (*kvf_event_fn)(void *user, const kvf_event *event);

typedef enum kvf_schedule {
    KVF_SCHEDULE_LINEAR,
    KVF_SCHEDULE_COSINE,
    KVF_SCHEDULE_CONSTANT
} kvf_schedule;

/* Treatment of rows that are longer than allowed. */
typedef enum kvf_overlong {
    KVF_OVERLONG_UNSET,        /* the setting of the prefix's training, without a prefix STOP */
    KVF_OVERLONG_STOP,         /* they are an error */
    KVF_OVERLONG_TRUNCATE,     /* the prompt is cut at its start, then the row at its end */
    KVF_OVERLONG_TRUNCATE_END, /* the end is cut */
    KVF_OVERLONG_SKIP          /* they are left out */
} kvf_overlong;

typedef enum kvf_forecast_mode {
    KVF_FORECAST_AUTO, /* on for a dry run */
    KVF_FORECAST_ON,
    KVF_FORECAST_OFF
} kvf_forecast_mode;

/* Log-weights of the virtual tokens, [L, G, P], added to the attention scores. */
typedef enum kvf_log_weight {
    KVF_LOG_WEIGHT_OFF,
    KVF_LOG_WEIGHT_FIXED, /* constant at their initial values */
    KVF_LOG_WEIGHT_TRAIN
} kvf_log_weight;

#define KVF_MAX_TRAIN_OPTIONS 128 /* maximum number of options of kvf_train_option() */

/* Values "NAME=VALUE" of options that name one of several tasks. */
#define KVF_MAX_TASKS 16
typedef struct kvf_named {
    size_t n;
    const char *item[KVF_MAX_TASKS];
} kvf_named;

/* Options of training. kvf_train_option() gives the long name, default and help of every field.
 * Texts are borrowed. */
typedef struct kvf_train_options {
    const char *base, *data, *valid, *out;
    bool resume, force, dry_run, allow_other_base;

    /* Method and task. */
    const char *method;    /* mlp, direct, projected, prompt, p-tuning, adapter, full, head */
    const char *task;      /* lm, seq-cls, token-cls, qa, multiple-choice */
    int64_t prefix_length; /* 0: depends on method and task */
    int64_t encoder_hidden;
    int64_t ffn_length; /* mlp, direct: virtual neurons of each feed-forward block; 0: none */
    double ffn_lr;      /* learning rate of the neurons */
    const char *layers; /* "0,2,4-7": layers that have a prefix; NULL or "": all */
    bool infix;         /* lm: the prefix stands inside rows */
    const char *position_start; /* "P", or the position of a row's first token */
    const char *p_encoder;      /* p-tuning: lstm, mlp */
    const char *p_template;     /* NULL or "": virtual tokens lead the row */
    /* "label=word,...": seq-cls at [MASK] by the head of a masked language model */
    const char *verbalizer;
    bool train_head;                /* lm: also train the base's head */
    bool unfreeze_base;             /* p-tuning: also train the base's weights, at base_lr */
    int64_t adapter_size;           /* adapter: width of the bottleneck */
    const char *adapter_activation; /* gelu, relu, tanh */
    const char *adapter_placement;  /* serial, parallel, attn, ffn */

    /* Several tasks at once with a shared prefix and a head each. --data NAME=FILE, once for every
     * task, replaces data; --valid NAME=FILE and --labels NAME=A,B,... follow it. --task NAME=KIND
     * is for tasks that differ from `task`. */
    kvf_named named_data, named_valid, named_task, named_labels;
    bool low_rank_tasks; /* each task multiplies the shared prefix by its own u v^T */
    bool equal_mix;      /* tasks take turns equally instead of by their numbers of rows */

    /* Initial values. */
    /* init NULL: depends on method, task and base */
    const char *init, *init_text, *init_kv, *init_encoder, *init_from;
    bool init_ptuning_v2; /* random weights are N(0, 0.02) */
    bool approximate; /* accept a start that the encoder reproduces with a residual above 1e-2 */
    uint64_t seed;

    /* Data and rows. */
    const char *format; /* auto, jsonl, json, tsv, csv, conll, squad, superglue, text */
    bool no_header;
    const char *columns;       /* NULL or "": from the file's header */
    const char *map;           /* "prompt=question,completion=answer" */
    const char *chat_template; /* as --chat-template */
    /* lm: data files are plain text, cut into rows of this many tokens; 0: off */
    int64_t split_text;
    int64_t limit;      /* number of rows of data to read; 0: all */
    int64_t max_length; /* 0: the model's positions minus the prefix */
    kvf_overlong overlong;
    const char *labels; /* "a,b,c" or "@FILE" (one per line): classes or tags in the order of their
                           ids; NULL: those of the training data, sorted */
    bool regression;    /* seq-cls: labels are numbers */
    int64_t doc_stride; /* qa: overlap of windows in tokens */

    /* Steps. */
    int64_t steps, epochs; /* steps 0: given by epochs, unless kvf_train_set set it */
    int64_t batch_size, batch_tokens, grad_accum; /* batch_tokens -1: derived from the shapes */
    bool shuffle;
    bool group_by_prefix; /* put rows with a common beginning into the same steps */
    bool share_off;       /* compute the common beginning of a step's rows for each row */
    double lr;            /* 0: depends on method and task */
    double base_lr;
    double head_lr, head_dropout; /* lr 0: depends on the task; dropout < 0: the config's */
    bool lr_per_parameter; /* one rate for all parameters instead of scaling it by the prefix's
                              change */
    kvf_schedule schedule;
    int64_t schedule_steps;                       /* length of the schedule; 0: steps */
    const char *warmup;                           /* "5%" or a number of steps */
    double weight_decay, beta1, beta2, eps, clip; /* beta1 below 0: depends on the method */
    bool optimizer_adamw;   /* mlp: AdamW moments per parameter instead of in prefix space */
    bool values_muon;       /* mlp, direct: update values with Muon, keys with AdamW */
    int64_t skip_nonfinite; /* number of non-finite steps that may be skipped */
    double spike_guard;     /* loss limit as a multiple of the mean of the last steps; 0: off */
    double prefix_dropout;  /* rate below 1; 0: none */
    bool prefix_dropout_per_row;
    double base_dropout; /* rate below 1 for embeddings, outputs of block halves, and attention
                            probabilities where the config has such a rate; 0: none */

    /* Computation of the base. */
    kvf_precision precision;
    kvf_weight_dtype weight_dtype; /* storage of frozen weights, as in kvf_base_options */
    bool stream_layers; /* as in kvf_base_options; also sets recompute unless that was given */
    bool recompute; /* recompute activations in the backward pass: same bits, less memory, more time
                     */

    /* Validation and saves. */
    double valid_split;             /* fraction of data's rows used for validation; 0: none */
    int64_t eval_every, save_every; /* in steps; 0: after each epoch and at the end */
    /* metric that selects the best checkpoint; NULL or "": depends on the task */
    const char *metric;
    int64_t early_stop; /* validations without improvement before the run stops; 0: never */
    /* lm: text on which the base's behaviour is measured and kept; NULL: none; "prompts": the text
     * without loss of up to 128 rows of the data */
    const char *retention;
    double kl_to_base; /* weight of KL(base || with the prefix) on the retention text; 0: none */

    /* Reports. */
    const char *log;         /* JSONL file with a line for each event; NULL or "": none */
    const char *tensorboard; /* folder for an event file; NULL or "": none */
    kvf_forecast_mode forecast;

    /* Row i was set by kvf_train_set, even if to its default (needed by --resume). */
    bool given[KVF_MAX_TRAIN_OPTIONS];
    kvf_event_fn event; /* NULL: none */
    void *event_user;
    kvf_base *open_base; /* set by kvf_train_set_base(); NULL: none */
    void *texts;         /* owned texts of kvf_train_options_create(), else NULL */
    const char *lora;    /* LoRA folder, as in kvf_base_options; NULL or "": none */
    kvf_log_weight log_weight;
    double start_mass;      /* log of the prefix's initial attention mass relative to the text's */
    double log_weight_lr;   /* rate with KVF_LOG_WEIGHT_TRAIN */
    bool adapter_norms_off; /* adapter: keep the norms frozen */
    /* Cache size such as "2G". Inputs of the first layer with a prefix are then computed once for
     * each row, validation rows included. The cache lies in memory, then in an unnamed file in the
     * folder of `out`. NULL, "" or "off": computed in each step. */
    const char *keep_states;
    const char *places; /* "encoder,decoder,cross": places of an encoder-decoder that attend to the
                           prefix; "peft": as in PEFT, in the decoder, where T5's relative bias
                           counts the prefix; NULL or "": everywhere */
    const char *class_weights; /* "balanced", or a file of names and weights: factor of each class
                                  or tag in the training loss; NULL or "": 1 */
    const char *delimiter; /* TSV and CSV: one character, or "\\t"; NULL or "": a tab, a comma */
    int64_t rows;          /* number of rows of data to train on, drawn by seed; 0: all */
    /* Rate of the state with which layers without attention begin rows; 0: it is fixed. */
    double state_lr;
    uint64_t reserved[22];
} kvf_train_options;

/* Creates options on the heap at their defaults, for programs that set them by name only. Texts are
 * copied. A later library may have more options. */
kvf_status kvf_train_options_create(kvf_ctx *ctx, kvf_train_options **out);
void kvf_train_options_free(kvf_train_options *options); /* options may be NULL. */
/* Returns default options in a struct of the caller. */
kvf_train_options kvf_train_defaults(void);

/* Describes an option by index; false past the last. */
typedef struct kvf_option {
    const char *name;     /* long name without dashes */
    const char *argument; /* "FILE", "N", "on|off"; NULL: a flag */
    const char *initial;  /* default as text, "" if none */
    const char *help;
} kvf_option;
bool kvf_train_option(size_t index, kvf_option *out);
/* Sets an option by its long name from text ("true" or NULL for flags) and checks the value.
 * EUSAGE: the value is invalid, or there is no such option; the line then names the nearest one.
 * `value` is borrowed, but copied into options of kvf_train_options_create(). */
kvf_status kvf_train_set(kvf_ctx *ctx, kvf_train_options *options, const char *name,
                         const char *value);
/* Sets an open base instead of the option "base"; NULL: none. The base is unchanged and must
 * outlive the call; its files are not opened again. If it was opened without `backward`, its
 * weights are also packed for backward passes, and stay so. A run that changes the base (methods
 * adapter and full, --unfreeze base) builds its own model from the mapped weights, in the same
 * precision. It takes as much memory as a second base while it trains. EUSAGE: also if the base was
 * opened for a prefix that changes it. */
void kvf_train_set_base(kvf_train_options *options, kvf_base *base);
/* Sets the callback for steps, validations and saves, called in the training thread. NULL: none. */
void kvf_train_set_event(kvf_train_options *options, kvf_event_fn event, void *user);

typedef struct kvf_train_result {
    int64_t steps;
    double train_loss; /* loss of the last step */
    /* losses of the last and of the best state; NaN: no validation */
    double valid_loss, best_valid_loss;
    kvf_metric best; /* best checkpoint by its metric; equal values are decided by the lower loss */
    int64_t best_step; /* 0: no validation ran */
    bool stopped_early;
    /* Loss on the retention text: at the end, at step 0, and of the bare base. NaN without a
     * retention text. */
    double retention_loss, retention_start_loss, retention_base_loss;
    int64_t tokens;          /* trained on in all steps */
    int64_t computed_tokens; /* tokens computed in this call, after trimming and sharing of common
                                prefixes */
    double tokens_per_second, seconds; /* values of this call */
    double step_seconds;               /* time of the steps of this call */
    int64_t peak_rss_bytes;
    int64_t trainable_parameters;
    int64_t label_tokens, examples;
    const char *precision; /* "f32", "bf16" or "int8" */
    bool finished_before;  /* --resume of a finished run: nothing to do */
    int64_t ranks;         /* number of processes that trained together */
    double wait_seconds;   /* time in this call that this process waited for others */
    int signal;            /* signal that stopped any of the processes; 0: none */
    kvf_forecast forecast; /* forecast reported before the first step */
    int64_t parameters;    /* total number: parameters of the base, and trainable ones outside it */
    /* Reference values for the validation; NaN: not measured. Losses of the bare base and of the
     * initial state, where a forward pass over the held-out rows costs at most 2 % of the run. The
     * metric of always predicting the largest class of the training data (seq-cls, token-cls). */
    double bare_loss, start_loss, largest_class;
    int64_t truncated; /* rows of the training data that were cut to max_length */
    uint64_t reserved[3];
} kvf_train_result;

/* Returns this process's rank among those that train together since a kvf_train with this context;
 * 0: the first, alone, or not yet known. */
int kvf_train_rank(const kvf_ctx *ctx);

/* Trains and writes options->out. ESTOPPED: stopped by kvf_ctx_set_stop(); everything is saved and
 * *result filled.
 *
 * Processes started together by a launcher train one run. All call this function with equal
 * options, base and data, and stay connected until their contexts are freed. Only the first reports
 * events, writes files and has a valid *result. A failure on any process fails all of them, and the
 * first has the error line. */
kvf_status kvf_train(kvf_ctx *ctx, const kvf_train_options *options, kvf_train_result *result);
/* Trains without a run file: options->out is not set. *out is the prefix that kvf_prefix_open gives
 * for the file of such a run, with the values that kvf_merge stores; free it with kvf_prefix_free.
 * ESTOPPED also sets it. For one task and methods of prefixes and virtual tokens (others EUSAGE);
 * each process of a launcher trains its own. */
kvf_status kvf_train_prefix(kvf_ctx *ctx, const kvf_train_options *options,
                            kvf_checkpoint checkpoint, kvf_train_result *result, kvf_prefix **out);

typedef struct kvf_eval_options {
    const char *data;
    const char *format, *columns; /* as in training; NULL: auto, the file's header */
    bool no_header;
    int64_t max_length; /* 0: that of training for tasks with a head, else the model's positions
                           minus the prefix */
    /* lm: the data file is plain text, cut into rows of this many tokens; 0: off */
    int64_t split_text;
    int64_t limit; /* number of rows to read; 0: all */
    kvf_overlong overlong;
    const char *chat_template; /* NULL: the template of the prefix, else auto */
    const char *map;
    int64_t batch_tokens; /* maximum tokens of a packed batch; 0: 2048 */
    bool share_off;
    int64_t generate; /* lm: maximum tokens of a greedy completion of every prompt, which is
                         compared with its references (bleu, rouge_l); 0: none */
    /* qa: threshold of the log odds of "no answer" above which an answer is rejected. Maximum
     * tokens of an answer, 0: 30. Number of best starts and ends that are combined, 0: 20. */
    double no_answer_above;
    int64_t max_answer, n_best;
    bool per_class; /* seq-cls, token-cls: also score each class, tag and entity type */
    /* seq-cls, token-cls, multiple-choice: n prefixes vote, and their mean probabilities decide
     * between equal votes. Reported probabilities are (votes + mean) / (n + 1); without this flag
     * they are the mean. */
    bool majority;
    const char *delimiter; /* as in training */
    uint64_t reserved[7];
} kvf_eval_options;

/* Precision, recall and F1, 0 where a denominator is 0. support: number of occurrences in the
 * data. */
typedef struct kvf_class_score {
    char *name;
    double precision, recall, f1;
    int64_t support;
} kvf_class_score;

typedef struct kvf_class_scores {
    size_t n;
    kvf_class_score *item; /* [n] */
} kvf_class_scores;

typedef struct kvf_eval_result {
    const char *task;
    double loss, perplexity; /* nats per label token or term; exp(loss) */
    int64_t label_tokens, examples, skipped, truncated;
    int64_t without_label; /* number of truncated rows that lost all labels */
    size_t n_scores;       /* metrics of the task, including the loss */
    kvf_metric scores[KVF_MAX_SCORES];
    /* With per_class: classes or tags in the order of the head's outputs; for token-cls also entity
     * types by name. Freed by kvf_eval_result_done. Else empty. */
    kvf_class_scores classes, entity_types;
    double seconds;
    uint64_t reserved[8];
} kvf_eval_result;
void kvf_eval_result_done(kvf_eval_result *result);

/* Computes loss and metrics on a data file, for the task of the prefixes. n prefixes average their
 * probabilities; n = 0: the bare base. */
kvf_status kvf_eval(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                    const kvf_eval_options *options, kvf_eval_result *result);

typedef enum kvf_predict_format {
    KVF_PREDICT_BY_NAME, /* chosen by the name of the output file; else JSONL */
    KVF_PREDICT_JSONL,
    KVF_PREDICT_CONLL
} kvf_predict_format;

typedef struct kvf_predict_options {
    kvf_eval_options eval; /* rows may lack their labels */
    const char *out;       /* output file, written whole or not at all; NULL: none */
    kvf_predict_format out_format;
    bool force;
    /* Receives the text instead of a file at `out`, which is then only a name. NULL: none. */
    void (*write)(void *user, const char *text, size_t n);
    void *user;
    uint64_t reserved[8];
} kvf_predict_options;

/* Prediction for a row. Its views live as long as the result. */
typedef struct kvf_prediction {
    const char *id;     /* the row's "id" or "idx"; NULL: none */
    bool skipped;       /* omitted because of overlong; all else is empty then */
    int64_t best;       /* seq-cls: index of the class; multiple-choice: of the choice; else -1 */
    const char *label;  /* seq-cls: name of the class; qa: the answer, "" for none; else NULL */
    size_t label_bytes; /* bytes of label; an answer may contain U+0000 */
    double value;       /* regression: the value; else NaN */
    double probability; /* probability of the prediction; NaN for a regression and for token-cls,
                           where each word has its own */
    double no_answer_probability; /* qa with unanswerable questions; else NaN */
    int64_t start, end; /* qa: character range [start, end) in the context; -1: no answer */
    size_t n;           /* number of classes, choices or words; else 0 */
    const double *probabilities; /* [n]; for words, the probabilities of their tags */
    /* token-cls [n]; NULL, with probability NaN: the row has no token of the word */
    const char *const *tags;
    uint64_t reserved[4];
} kvf_prediction;

typedef struct kvf_predict_result {
    const char *task;
    int64_t examples, skipped, truncated;
    double seconds;
    size_t n;                   /* examples + skipped */
    const kvf_prediction *rows; /* [n] in the order of the data */
    size_t n_labels;
    const char *const *labels; /* [n_labels] names of the head's classes or tags */
    void *memory;              /* memory of all views */
    uint64_t reserved[8];
} kvf_predict_result;
void kvf_predict_result_done(kvf_predict_result *result);

/* Predicts the rows of a data file with prefixes that have a head, in the order of the data. The
 * result has examples + skipped rows; those omitted by --overlong skip have no prediction, and null
 * in the file. Long sentences of token-cls are read in overlapping windows unless eval.overlong is
 * stop or skip. *result, may be NULL, is released with kvf_predict_result_done(). EUSAGE: the task
 * is lm. */
kvf_status kvf_predict(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                       const kvf_predict_options *options, kvf_predict_result *result);

/* Score of a token that has a label. */
typedef struct kvf_token_score {
    int32_t id;
    bool greedy;   /* no token is more likely, and no equally likely one has a lower id */
    float logprob; /* natural logarithm of its probability, given all tokens before it */
} kvf_token_score;

typedef struct kvf_row_score {
    bool skipped;         /* omitted because of overlong; the other fields are zero */
    double loglikelihood; /* sum of the logprobs; 0 for a row without labels */
    size_t n;
    const kvf_token_score *tokens; /* [n] */
    uint64_t reserved[2];
} kvf_row_score;

typedef struct kvf_score_options {
    kvf_eval_options eval; /* data file and its format */
    const char *out;       /* file of JSON lines, written whole or not at all; NULL: none */
    bool force;
    /* Receives the text instead of a file at `out`, which is then only a name. NULL: none. */
    void (*write)(void *user, const char *text, size_t n);
    void *user;
    uint64_t reserved[8];
} kvf_score_options;

typedef struct kvf_score_result {
    size_t n;
    kvf_row_score *rows; /* [n] in the order of the data */
    int64_t tokens, skipped, truncated;
    double seconds;
    void *memory; /* memory of the tokens */
    uint64_t reserved[8];
} kvf_score_result;
void kvf_score_result_done(kvf_score_result *result);

/* Computes log-likelihoods of the labelled tokens of rows: those of completions, of a text all but
 * the first, of messages the assistant's. The end token that training appends is not scored. Each
 * row is computed alone, so its bits do not depend on other rows. prefix NULL: the bare base. A
 * line of `out` is {"loglikelihood", "tokens" (number of tokens), "ids", "logprobs", "greedy"},
 * with lists of that length; for a row omitted by --overlong skip it is {"loglikelihood": null}.
 * *result, may be NULL, is released with kvf_score_result_done(). EUSAGE: base or prefix is not of
 * task lm; EDATA: no row has a label. */
kvf_status kvf_score(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                     const kvf_score_options *options, kvf_score_result *result);

#ifdef __cplusplus
}
#endif
#endif
