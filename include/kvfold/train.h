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
    KVF_EVENT_START, /* everything is loaded; steps, examples known */
    KVF_EVENT_STEP,
    KVF_EVENT_EVAL,
    KVF_EVENT_SAVE,
    KVF_EVENT_NOTE,      /* `text` is for a person */
    KVF_EVENT_RETENTION, /* the retention set was read */
    KVF_EVENT_FORECAST   /* before the first step, where one is asked for */
} kvf_event_kind;

/* One number of a metric; the name lives as long as the library. */
typedef struct kvf_metric {
    const char *name; /* "loss", "accuracy", "f1", "exact_match", ... */
    double value;     /* NaN: not defined on this data */
} kvf_metric;
#define KVF_MAX_SCORES 24

/* What a run will take, from a few steps of its own batches that leave no trace on its bits. */
typedef struct kvf_forecast {
    int64_t steps, validations; /* still to do; steps 0: there is no forecast */
    double seconds_per_step, seconds_per_validation, seconds_per_save;
    double seconds;         /* of the whole call; of a dry run: of the call that is no dry run */
    double probe_seconds;   /* what the forecast itself took */
    int64_t peak_rss_bytes; /* largest resident memory */
    int64_t tokens;         /* to train on */
    int64_t trainable_parameters;
    int64_t file_bytes; /* of the run file, about */
    uint64_t reserved[8];
} kvf_forecast;

typedef struct kvf_event {
    kvf_event_kind kind;
    int64_t step, steps;                        /* steps done, and in all */
    double train_loss;                          /* of this step, nats per label token */
    double valid_loss;                          /* EVAL */
    kvf_metric metric;                          /* EVAL: what best checkpoints are chosen by */
    bool best;                                  /* EVAL: the best so far */
    double retention_loss, retention_base_loss; /* RETENTION: under the prefix, of the bare base */
    double lr, grad_norm;
    double prefix_norm;           /* STEP: of what the base saw */
    int64_t tokens;               /* trained on, all steps */
    double tokens_per_second;     /* of this step */
    double seconds;               /* since the start of this call */
    double seconds_left;          /* about, to the end of the run; NaN: not known */
    const char *text;             /* NOTE, SAVE (path) */
    const kvf_forecast *forecast; /* FORECAST */
    bool detail;                  /* NOTE: of how a start was found and the like */
    uint64_t reserved[7];
} kvf_event;
typedef void (*kvf_event_fn)(void *user, const kvf_event *event);

typedef enum kvf_schedule {
    KVF_SCHEDULE_LINEAR,
    KVF_SCHEDULE_COSINE,
    KVF_SCHEDULE_CONSTANT
} kvf_schedule;

/* What happens to rows that are longer than allowed. */
typedef enum kvf_overlong {
    KVF_OVERLONG_UNSET,        /* where a prefix is used: as in its training; else STOP */
    KVF_OVERLONG_STOP,         /* they are an error */
    KVF_OVERLONG_TRUNCATE,     /* the prompt is cut at its left, then the end */
    KVF_OVERLONG_TRUNCATE_END, /* the end is cut */
    KVF_OVERLONG_SKIP          /* they are left out */
} kvf_overlong;

typedef enum kvf_forecast_mode {
    KVF_FORECAST_AUTO, /* for a dry run */
    KVF_FORECAST_ON,
    KVF_FORECAST_OFF
} kvf_forecast_mode;

/* Log-weights of the virtual tokens, [L, G, P], added to the scores of attention. */
typedef enum kvf_log_weight {
    KVF_LOG_WEIGHT_OFF,
    KVF_LOG_WEIGHT_FIXED, /* kept as they start */
    KVF_LOG_WEIGHT_TRAIN
} kvf_log_weight;

#define KVF_MAX_TRAIN_OPTIONS 128 /* most options that kvf_train_option() has */

/* "NAME=VALUE" each, of options that name a task of several. */
#define KVF_MAX_TASKS 16
typedef struct kvf_named {
    size_t n;
    const char *item[KVF_MAX_TASKS];
} kvf_named;

/* Every field has a kvf_train_option() with its long name, default and help. Texts are
 * borrowed. */
typedef struct kvf_train_options {
    const char *base, *data, *valid, *out;
    bool resume, force, dry_run, allow_other_base;

    /* What is trained. */
    const char *method;    /* mlp, direct, projected, prompt, p-tuning, adapter, full, head */
    const char *task;      /* lm, seq-cls, token-cls, qa, multiple-choice */
    int64_t prefix_length; /* 0: by method and task */
    int64_t encoder_hidden;
    const char *layers;         /* "0,2,4-7": layers that have a prefix; NULL or "": all */
    bool infix;                 /* lm: the prefix is inside rows */
    const char *position_start; /* "P", or the position of a row's first token */
    const char *p_encoder;      /* lstm, mlp: of p-tuning */
    const char *p_template;     /* NULL or "": virtual tokens lead the row */
    const char *verbalizer; /* "label=word,...": seq-cls at [MASK] by a masked model's own head */
    bool train_head;        /* lm: the base's head is trained too */
    bool unfreeze_base;     /* p-tuning trains the base's weights too, at base_lr */
    int64_t adapter_size;   /* width of the bottleneck, for method adapter */
    const char *adapter_activation; /* gelu, relu, tanh */
    const char *adapter_placement;  /* serial, parallel, attn, ffn */

    /* Several tasks at once, a shared prefix and a head each: --data NAME=FILE, once for every
     * task, in place of data; --valid NAME=FILE and --labels NAME=A,B,...; --task NAME=KIND for
     * those that differ from `task`. */
    kvf_named named_data, named_valid, named_task, named_labels;
    bool low_rank_tasks; /* each task has the shared prefix times u v^T of its own */
    bool equal_mix;      /* steps are of each task as often, not by its rows */

    /* Where it starts. */
    /* init NULL: what suits method, task and base */
    const char *init, *init_text, *init_kv, *init_encoder, *init_from;
    bool init_ptuning_v2; /* random weights are N(0, 0.02) */
    bool approximate;     /* a start that the encoder emits only to a residual above 1e-2 will do */
    uint64_t seed;

    /* Data and rows. */
    const char *format; /* auto, jsonl, json, tsv, csv, conll, squad, superglue, text */
    bool no_header;
    const char *columns;       /* NULL or "": the header's */
    const char *map;           /* "prompt=question,completion=answer" */
    const char *chat_template; /* as --chat-template */
    int64_t split_text; /* lm: data files are plain text, rows of so many tokens; 0: they are not */
    int64_t limit;      /* rows of data that are read; 0: all */
    int64_t max_length; /* 0: the model's positions less the prefix */
    kvf_overlong overlong;
    const char *labels; /* "a,b,c" or "@FILE", one a line: classes or tags in the order of their
                           ids; NULL: those of the training data, sorted */
    bool regression;    /* seq-cls: labels are numbers */
    int64_t doc_stride; /* qa */

    /* Steps. */
    int64_t steps, epochs; /* steps 0: epochs decide, unless kvf_train_set gave it */
    int64_t batch_size, batch_tokens, grad_accum; /* batch_tokens -1: chosen by shapes */
    bool shuffle;
    bool group_by_prefix; /* rows that begin alike come into the same steps */
    bool share_off;       /* tokens that rows of a step begin with are computed for each row */
    double lr;            /* 0: by method and task */
    double base_lr;
    double head_lr, head_dropout; /* 0: by task; < 0: the config's */
    bool lr_per_parameter; /* one rate for all parameters, not by how far they move the prefix */
    kvf_schedule schedule;
    int64_t schedule_steps;                       /* 0: steps */
    const char *warmup;                           /* "5%" or a number of steps */
    double weight_decay, beta1, beta2, eps, clip; /* beta1 below 0: by method */
    bool optimizer_adamw;   /* mlp: moments of each parameter, not of the prefix */
    bool values_muon;       /* mlp, direct: values of the prefix step by Muon, keys by AdamW */
    int64_t skip_nonfinite; /* steps that may be left out because they are not finite */
    double spike_guard;     /* a loss above so many times the last steps' mean; 0: no guard */
    double prefix_dropout;  /* 0: none; below 1 */
    bool prefix_dropout_per_row;
    double base_dropout; /* of embeddings, of what each half of a block adds, and of attention's
                            probabilities where the config has a rate for them; 0: none; below 1 */

    /* How the base is computed. */
    kvf_precision precision;
    kvf_weight_dtype weight_dtype; /* of frozen weights, as kvf_base_options has it */
    bool stream_layers;            /* the same; sets recompute unless that was given */
    bool recompute;                /* the same bits with less memory, in more time */

    /* Validation and saves. */
    double valid_split;             /* fraction of data's rows that validation takes; 0: none */
    int64_t eval_every, save_every; /* steps; 0: each epoch and the end */
    const char *metric;             /* what the best checkpoint is best in; NULL or "": by task */
    int64_t early_stop;             /* validations without a better one; 0: never */
    const char *retention;          /* lm: text that is to stay as it is; NULL: none */
    double kl_to_base; /* weight of KL(base || with the prefix) on that text's rows; 0: none */

    /* Reports. */
    const char *log;         /* JSONL, a line an event; NULL or "": none */
    const char *tensorboard; /* folder for an event file; the same */
    kvf_forecast_mode forecast;

    /* Row i was set by kvf_train_set, even if to its default (--resume asks). */
    bool given[KVF_MAX_TRAIN_OPTIONS];
    kvf_event_fn event; /* NULL: none */
    void *event_user;
    kvf_base *open_base; /* as of kvf_train_set_base(); NULL: none */
    void *texts;         /* of kvf_train_options_create(), else NULL */
    const char *lora;    /* of base, as kvf_base_options has it; NULL or "": none */
    kvf_log_weight log_weight;
    double start_mass;       /* log of the prefix's attention mass over the text's, at the start */
    double log_weight_lr;    /* with KVF_LOG_WEIGHT_TRAIN */
    bool adapter_norms_off;  /* method adapter leaves the norms as they are */
    const char *keep_states; /* "2G": what enters the lowest layer with a prefix is computed once
                                for each row, `valid` too, and kept in so much memory, then in a
                                file without a name beside `out`; NULL, "" or "off": computed in
                                each step */
    const char *places;      /* "encoder,decoder,cross": where the prefix of an encoder-decoder is
                                attended to; "peft": as PEFT has it, in the decoder, where T5's
                                relative bias counts the prefix; NULL or "": everywhere */
    const char *class_weights; /* "balanced", or a file of names and weights: times which the loss
                                  of each class or tag counts in training; NULL or "": once */
    const char *delimiter; /* of TSV and CSV: one character, or "\\t"; NULL or "": a tab, a comma */
    uint64_t reserved[24];
} kvf_train_options;

/* Options on the heap, at their defaults, for programs that set them by name and do not look
 * inside: texts that are set are copied, and a later library may have more of them. */
kvf_status kvf_train_options_create(kvf_ctx *ctx, kvf_train_options **out);
void kvf_train_options_free(kvf_train_options *options); /* NULL is fine */
/* Options in a struct of the caller. */
kvf_train_options kvf_train_defaults(void);

/* An option by index, for programs that list them; false past the last. */
typedef struct kvf_option {
    const char *name;     /* long name without dashes */
    const char *argument; /* "FILE", "N", "on|off"; NULL: a flag */
    const char *initial;  /* default as text, "" if none */
    const char *help;
} kvf_option;
bool kvf_train_option(size_t index, kvf_option *out);
/* Sets an option by its long name from text ("true" or NULL for flags),
 * checking the value. EUSAGE: the value is none of it, or there is no such option; the line then
 * names the nearest one. `value` is borrowed, but by options of kvf_train_options_create() copied.
 */
kvf_status kvf_train_set(kvf_ctx *ctx, kvf_train_options *options, const char *name,
                         const char *value);
/* In place of "base": one that is open, which stays as it is and must outlive the call. Its files
 * are not opened again. Where it was opened without `backward`, its weights are also packed for
 * backward passes, and kept so. A run that changes the base (methods adapter and full, --unfreeze
 * base) gets a model of its own, in the same precision, packed from the same mapped weights, as
 * large as another base while it trains.
 * EUSAGE too where it was opened for a prefix that changes it. NULL: none. */
void kvf_train_set_base(kvf_train_options *options, kvf_base *base);
/* Who hears of steps, validations and saves, in the thread that trains. NULL: nobody. */
void kvf_train_set_event(kvf_train_options *options, kvf_event_fn event, void *user);

typedef struct kvf_train_result {
    int64_t steps;
    double train_loss;                  /* of the last step */
    double valid_loss, best_valid_loss; /* of the last and of the best state; NaN: no validation */
    kvf_metric best;                    /* of the best checkpoint, by its metric; of equal ones
                                          that of the lowest loss is kept */
    int64_t best_step;                  /* 0: no validation ran */
    bool stopped_early;
    /* On the retention set's text: now, at step 0, of the bare base; NaN without one. */
    double retention_loss, retention_start_loss, retention_base_loss;
    int64_t tokens;          /* trained on, all steps */
    int64_t computed_tokens; /* of this call: what trimming and shared common prefixes left to do */
    double tokens_per_second, seconds; /* of this call */
    double step_seconds;               /* of this call, steps alone */
    int64_t peak_rss_bytes;
    int64_t trainable_parameters;
    int64_t label_tokens, examples;
    const char *precision; /* "f32", "bf16" or "int8" */
    bool finished_before;  /* --resume of a finished run: nothing was done */
    int64_t ranks;         /* processes that trained together */
    double wait_seconds;   /* of this call, in which this one waited for others */
    int signal;            /* that stopped it, on any of them; 0: none */
    kvf_forecast forecast; /* as reported before the first step */
    int64_t parameters;    /* all: the base's and the trainable ones that are not among them */
    /* What the validation is held against; NaN: not measured. The loss of the bare base and of the
     * start, where a forward pass over the held-out rows is at most 2 % of the run; the metric of
     * always giving the training data's largest class (seq-cls, token-cls). */
    double bare_loss, start_loss, largest_class;
    uint64_t reserved[4];
} kvf_train_result;

/* Which process this is of those that train together since a kvf_train with this context; 0: the
 * first, or alone, or not yet. */
int kvf_train_rank(const kvf_ctx *ctx);

/* Trains and writes options->out. ESTOPPED: stopped by kvf_ctx_set_stop(), everything saved,
 * *result filled.
 *
 * Processes that a launcher started together train one run: all call this with equal options, base
 * and data, and stay connected until their contexts are freed. The first one reports events, writes
 * and has a *result of use; a failure on any of them is one on all, whose line the first one has.
 */
kvf_status kvf_train(kvf_ctx *ctx, const kvf_train_options *options, kvf_train_result *result);

typedef struct kvf_eval_options {
    const char *data;
    const char *format, *columns; /* as in training; NULL: auto, the header's */
    bool no_header;
    int64_t max_length; /* 0: that of training for tasks with a head, else the model's positions
                           less   the prefix */
    int64_t split_text; /* lm: the data file is plain text, rows of so many tokens; 0: it is not */
    int64_t limit;      /* rows that are read; 0: all */
    kvf_overlong overlong;
    const char *chat_template; /* NULL: the prefix's own, else auto */
    const char *map;
    int64_t batch_tokens; /* rows are packed up to so many tokens; 0: 2048 */
    bool share_off;
    int64_t generate; /* lm: also complete every prompt, greedily, by at most so many tokens, and
                         compare with its references (bleu, rouge_l); 0: no */
    /* qa: an answer is refused where the log odds of none against it are above; at most so many
     * tokens, of so many best starts and ends (0: 30, 20) */
    double no_answer_above;
    int64_t max_answer, n_best;
    bool per_class; /* seq-cls, token-cls: also the scores of each class or tag and entity type */
    /* seq-cls, token-cls, multiple-choice: n prefixes vote, and the mean of their probabilities
     * decides between equal votes: probabilities are (votes + mean) / (n + 1). Else they are the
     * mean. */
    bool majority;
    const char *delimiter; /* as in training */
    uint64_t reserved[7];
} kvf_eval_options;

/* Precision, recall and F1, 0 where a denominator is 0; support: how often the data has it. */
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
    int64_t without_label; /* of the truncated rows: no label is left */
    size_t n_scores;       /* metrics of the task, the loss among them */
    kvf_metric scores[KVF_MAX_SCORES];
    /* With per_class, in memory that kvf_eval_result_done frees: classes or tags in the order of
     * the head's outputs, and of token-cls the types of entities by name. Else empty. */
    kvf_class_scores classes, entity_types;
    double seconds;
    uint64_t reserved[8];
} kvf_eval_result;
void kvf_eval_result_done(kvf_eval_result *result);

/* Loss and metrics on a data file, by the task of the prefixes. n prefixes average their
 * probabilities; n = 0: the bare base. */
kvf_status kvf_eval(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                    const kvf_eval_options *options, kvf_eval_result *result);

typedef enum kvf_predict_format {
    KVF_PREDICT_BY_NAME, /* of the output; else JSONL */
    KVF_PREDICT_JSONL,
    KVF_PREDICT_CONLL
} kvf_predict_format;

typedef struct kvf_predict_options {
    kvf_eval_options eval; /* rows may lack their labels */
    const char *out;       /* file, whole or not at all; NULL: none */
    kvf_predict_format out_format;
    bool force;
    /* takes the text in place of a file at `out`, which is then a name alone; NULL: none */
    void (*write)(void *user, const char *text, size_t n);
    void *user;
    uint64_t reserved[8];
} kvf_predict_options;

/* What was decided of a row: views, as long as the result that they are of. */
typedef struct kvf_prediction {
    const char *id;     /* the row's "id" or "idx"; NULL: it has none */
    bool skipped;       /* by overlong; nothing is decided then */
    int64_t best;       /* seq-cls: the class, multiple-choice: the choice, from 0; else -1 */
    const char *label;  /* seq-cls: name of the class; qa: the answer, "" if there is none; else
                           NULL */
    size_t label_bytes; /* of it, as an answer may hold U+0000 */
    double value;       /* of a regression; else NaN */
    double probability; /* of what was decided; NaN: of a regression, and of token-cls, where each
                           word has its own */
    double no_answer_probability; /* qa, where a question may have no answer; else NaN */
    int64_t start, end;           /* qa: characters [start, end) of the context; -1: no answer */
    size_t n;                     /* classes, choices or words; else 0 */
    const double *probabilities;  /* [n], of words those of their tags */
    const char *const *tags;      /* token-cls [n]; NULL, and a probability of NaN: no token of the
                                     word is in a row */
    uint64_t reserved[4];
} kvf_prediction;

typedef struct kvf_predict_result {
    const char *task;
    int64_t examples, skipped, truncated;
    double seconds;
    size_t n;                   /* examples + skipped */
    const kvf_prediction *rows; /* [n] in the order of the data */
    size_t n_labels;
    const char *const *labels; /* names of the head's classes or tags, [n_labels] */
    void *memory;              /* of all that */
    uint64_t reserved[8];
} kvf_predict_result;
void kvf_predict_result_done(kvf_predict_result *result);

/* Predictions of prefixes with a head, with their probabilities, in the order of the data:
 * examples + skipped in all, those that --overlong skip leaves out with nothing decided, in the
 * file with null for an answer. Long sentences of token-cls are read in windows that overlap,
 * unless eval.overlong is stop or skip. *result, may be NULL, is released with
 * kvf_predict_result_done(). EUSAGE: the task is lm. */
kvf_status kvf_predict(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                       const kvf_predict_options *options, kvf_predict_result *result);

/* A token of a row that has a label. */
typedef struct kvf_token_score {
    int32_t id;
    bool greedy;   /* no other is likelier there, and of equally likely ones none has a lower id */
    float logprob; /* natural logarithm of its probability, given all before it */
} kvf_token_score;

typedef struct kvf_row_score {
    bool skipped;         /* by overlong; the rest is zero then */
    double loglikelihood; /* sum of the logprobs, 0 of a row without a label */
    size_t n;
    const kvf_token_score *tokens; /* [n] */
    uint64_t reserved[2];
} kvf_row_score;

typedef struct kvf_score_options {
    kvf_eval_options eval; /* data, and how its rows are read */
    const char *out;       /* file of JSON lines, whole or not at all; NULL: none */
    bool force;
    /* takes the text in place of a file at `out`, which is then a name alone; NULL: none */
    void (*write)(void *user, const char *text, size_t n);
    void *user;
    uint64_t reserved[8];
} kvf_score_options;

typedef struct kvf_score_result {
    size_t n;
    kvf_row_score *rows; /* [n] in the order of the data */
    int64_t tokens, skipped, truncated;
    double seconds;
    void *memory; /* of the tokens */
    uint64_t reserved[8];
} kvf_score_result;
void kvf_score_result_done(kvf_score_result *result);

/* Log-likelihoods of what rows are to say: the tokens of completions, of a text all but the first,
 * of messages the assistant's; the end token that training appends is not among them. Each row is
 * computed alone, so that its bits are those of any other file or request with that row. prefix
 * NULL: the bare base. A line of `out` is {"loglikelihood", "tokens" (their number), "ids",
 * "logprobs", "greedy"}, the last three lists of so many; of a row that --overlong skip leaves out
 * {"loglikelihood": null}. EUSAGE: a base or prefix of another task than lm; EDATA: no row has a
 * label. *result, may be NULL, is released with kvf_score_result_done(). */
kvf_status kvf_score(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                     const kvf_score_options *options, kvf_score_result *result);

#ifdef __cplusplus
}
#endif
#endif
