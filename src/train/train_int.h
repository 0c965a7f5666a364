/* One training run. run.c sets it up, step.c draws the two lines of calls (forward and backward),
 * loop.c repeats them, state.c makes a run file of it and back.
 *
 * Measuring, in training and after it, is one path: evaluator.c runs a data set in fixed batches,
 * scores.c makes probabilities of what the head says, answers.c decides, measure.c compares. */
#ifndef KVF_TRAIN_INT_H
#define KVF_TRAIN_INT_H

#include <kvfold/train.h>

#include "dropout.h"
#include "encoder_int.h"
#include "forecast.h"
#include "journal.h"
#include "load_int.h"
#include "method.h"
#include "metric_int.h"
#include "optim_int.h"
#include "pace.h"

/* ---- options --------------------------------------------------------------------------------- */

/* Are the paths there that a run needs? EUSAGE. */
kvf_status kvf__train_options_require(kvf_ctx *ctx, const kvf_train_options *options);
/* Checks values against each other and fills what depends on others (lr by method). EUSAGE. */
kvf_status kvf__train_options_check(kvf_ctx *ctx, kvf_train_options *options);
/* --init-text and --init-kv of a run that begins imply --init, and want no other. EUSAGE. */
kvf_status kvf__train_options_imply(kvf_ctx *ctx, kvf_train_options *options);
/* Options as stored in a run: an object of scalars, without paths and what does not decide the
 * result. */
kvf_status kvf__train_options_store(kvf_ctx *ctx, const kvf_train_options *options, kvf_json **out);
/* For --resume: takes over stored values the caller left at their defaults; EUSAGE names the first
 * one that was given and differs. Texts are borrowed from `stored`. */
kvf_status kvf__train_options_resume(kvf_ctx *ctx, const char *path, kvf_train_options *options,
                                     const kvf_json *stored);

/* Was the option set by kvf_train_set? */
bool kvf__train_option_given(const kvf_train_options *options, const char *name);
/* Is the row with this index one of distill's options, too? */
bool kvf__train_option_distills(size_t index);

/* ---- measuring ------------------------------------------------------------------------------- */

/* What is measured on a base. */
typedef struct kvf__subject {
    const kvf__prefix *prefix;   /* NULL: none; neither it nor vectors: the bare base */
    const kvf__vectors *vectors; /* NULL: none */
    int64_t position_start;
    kvf__head *head; /* NULL: the base's own */
    double *share;   /* [L, H] as of kvf__input; NULL: not wanted */
} kvf__subject;
/* prefix NULL: the bare base. */
kvf__subject kvf__subject_of(const kvf_prefix *prefix, kvf__head *head);

/* A data set under a subject, in batches fixed by the data alone. */
typedef struct kvf__evaluator kvf__evaluator;
typedef struct kvf__evaluator_options {
    int64_t P;            /* of the longest prefix */
    int64_t batch_tokens; /* most in a batch; 0: 2048 */
    bool share_prefixes;
    bool infix;    /* prefixes stand inside rows */
    int64_t soft;  /* most items of a teacher, for who visits its batches; 0: none */
    bool backward; /* who visits its batches goes back through them; the base was opened for it */
} kvf__evaluator_options;
kvf_status kvf__evaluator_create(kvf_ctx *ctx, kvf_base *base, const kvf__dataset *dataset,
                                 const kvf__evaluator_options *options, kvf__evaluator **out);
void kvf__evaluator_free(kvf__evaluator *evaluator);
/* *loss: mean over the terms of the task's loss (lm: label tokens), in nats; NaN where rows lack
 * their gold. each, may be NULL: for lm the loss of each label [n_labels], in the batches' order,
 * which is the same at every call; with a head its outputs [n_labels, width] in the order of the
 * rows. */
kvf_status kvf__evaluator_run(kvf_ctx *ctx, kvf__evaluator *evaluator, const kvf__subject *subject,
                              double *loss, float *each);
/* From now on runs are those of all ranks together, which call them at the same time with equal
 * arguments (each: with a head only): every rank computes some of the batches, and rank 0 gets what
 * one process gets. Elsewhere what a run returns means nothing. */
struct kvf__dist;
kvf_status kvf__evaluator_divide(kvf_ctx *ctx, kvf__evaluator *evaluator, struct kvf__dist *dist);
/* Is this another rank than 0 of an evaluator that was divided? */
bool kvf__evaluator_helps(const kvf__evaluator *evaluator);
/* A run that the other ranks count on cannot be. */
void kvf__evaluator_give_up(const kvf__evaluator *evaluator);

/* Every batch with labels, in an order that is the same at every call, after its forward pass under
 * the subject; stops at the first status that is not KVF_OK. */
typedef kvf_status kvf__visit_fn(void *user, kvf__pass *pass, const kvf__batch *batch);
kvf_status kvf__evaluator_walk(kvf_ctx *ctx, kvf__evaluator *evaluator, const kvf__subject *subject,
                               kvf__visit_fn *visit, void *user);

/* What a teacher says at every label of a data set of task lm (teacher.c), and a batch's part of
 * it: a view for kvf__pass_lm_soft, valid until the next one is taken. */
typedef struct kvf__teacher {
    int64_t k;
    int64_t *first;   /* [rows + 1] first label of each row */
    int32_t *ids;     /* [labels, k], by rows */
    float *logp;      /* [labels, k + 1] */
    int64_t capacity; /* labels that the memory for a batch can hold */
    int32_t *batch_ids;
    float *batch_logp;
} kvf__teacher;
/* Runs the teacher over the data set. ESHAPE: k is not below the vocabulary. */
kvf_status kvf__teacher_make(kvf_ctx *ctx, kvf_base *base, const kvf__dataset *dataset,
                             const kvf__subject *teacher, int64_t k, kvf__teacher *out);
void kvf__teacher_done(kvf__teacher *set);
/* Memory for batches of so many labels. */
kvf_status kvf__teacher_reserve(kvf_ctx *ctx, kvf__teacher *set, int64_t labels);
kvf__soft_targets kvf__teacher_targets(kvf__teacher *set, const kvf__batch *batch);
/* Mean over the labels of KL(teacher || subject), in nats; the evaluator's data set is the set's,
 * its options allow k. */
kvf_status kvf__teacher_loss(kvf_ctx *ctx, kvf__teacher *set, kvf__evaluator *evaluator,
                             const kvf__subject *subject, double *loss);
/* *seconds: about what a run takes, from the last of so many times of one batch of so many tokens,
 * or more. */
kvf_status kvf__evaluator_probe(kvf_ctx *ctx, kvf__evaluator *evaluator,
                                const kvf__subject *subject, int64_t tokens, int times,
                                double *seconds);

/* Probabilities of a data set's labels by a head, or their mean over several heads. Classes and
 * tags share 1 at each label; choices share it over their question; starts and ends of answers each
 * over all windows of their question. Of a regression: the numbers themselves. */
typedef struct kvf__scores {
    const kvf__dataset *set;
    int64_t width;  /* outputs of the head */
    int64_t *first; /* [rows + 1] first label of each row */
    double *p;      /* [n_labels, width] */
} kvf__scores;
kvf_status kvf__scores_init(kvf_ctx *ctx, kvf__scores *scores, const kvf__dataset *set,
                            int64_t width);
void kvf__scores_done(kvf__scores *scores);
/* Adds share times what the logits [n_labels, width] say. */
void kvf__scores_add(kvf__scores *scores, const float *logits, double share);
/* The task's loss of the probabilities. */
double kvf__scores_loss(const kvf__scores *scores);

/* How answers are found in scores: qa. */
enum { KVF__MOST_BEST = 64 }; /* n_best */
typedef struct kvf__answer_rules {
    bool no_answer;         /* a question may have none */
    double no_answer_above; /* none, if its log odds against the best span are above */
    int64_t n_best,
        max_tokens; /* starts and ends that are paired; tokens of an answer; 0: 20, 30 */
} kvf__answer_rules;

/* What a head decided, by groups of the data set; texts are views into it, or `owned`. */
typedef struct kvf__answers {
    const kvf__dataset *set;
    int64_t n;                /* groups */
    int32_t *gold, *best;     /* seq-cls, multiple-choice [n]; token-cls by words [start[n]] */
    double *numbers, *wanted; /* regression [n] */
    double *p;                /* of what was decided: [n], token-cls [start[n]] */
    double *p_none;           /* qa [n]: of no answer */
    int64_t *start;           /* [n + 1] token-cls: words; qa: references */
    const char **gold_tags, **tags;       /* [start[n]] token-cls */
    const char **texts, **references;     /* qa [n], [start[n]] */
    int64_t *spans;                       /* qa [n, 2]: bytes of the context; -1: no answer */
    size_t *text_bytes, *reference_bytes; /* of them, as they may hold U+0000 */
    char *owned;                          /* memory of texts */
} kvf__answers;
kvf_status kvf__answers_init(kvf_ctx *ctx, kvf__answers *answers, const kvf__scores *scores,
                             const kvf__answer_rules *rules);
void kvf__answers_done(kvf__answers *answers);
/* The part of qa (answers_span.c). */
kvf_status kvf__answers_spans(kvf_ctx *ctx, kvf__answers *answers, const kvf__scores *scores,
                              const kvf__answer_rules *rules);

/* Every metric of the task; one that does not apply is NaN. *n of at most KVF_MAX_SCORES. */
kvf_status kvf__measure(kvf_ctx *ctx, const kvf__answers *answers, double loss, kvf_score *out,
                        size_t *n);
/* Of seq-cls and token-cls each class, tag and entity type. On failure *out is still to be freed.
 */
kvf_status kvf__measure_each(kvf_ctx *ctx, const kvf__answers *answers, kvf_eval_result *out);
/* Evaluates and measures; metric NULL: the loss alone, and *value is it. */
kvf_status kvf__measure_subject(kvf_ctx *ctx, kvf__evaluator *evaluator, const kvf__dataset *set,
                                const kvf__subject *subject, const kvf__metric *metric,
                                double *loss, double *value);
bool kvf__has_impossible(const kvf__dataset *set); /* qa: a question without an answer */

/* A data file under n prefixes (0: the bare base), from paths to answers. */
typedef struct kvf__evaluation {
    kvf__task task;
    kvf__renderer renderer;
    kvf__dataset set;
    kvf__evaluator *evaluator;
    kvf__scores scores;   /* empty for lm */
    kvf__answers answers; /* the same */
    double loss;          /* NaN: rows lack their gold */
} kvf__evaluation;
/* The address of *out must not change afterwards. unlabeled: rows may lack their gold. */
kvf_status kvf__evaluation_run(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                               const kvf_eval_options *options, bool unlabeled,
                               kvf__evaluation *out);
void kvf__evaluation_done(kvf__evaluation *trial);
/* Its first part alone: rows of options->data for the trial's task, which is set. */
kvf_status kvf__evaluation_rows(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                                const kvf_eval_options *options, bool unlabeled,
                                kvf__evaluation *trial);

/* How rows are rendered and cut: as the options say, where they are silent as in training. Renders
 * through *renderer ({0} or what init left, freed by the caller), which must not move. */
kvf_status kvf__eval_rows(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                          const kvf_eval_options *options, kvf__renderer *renderer,
                          kvf__dataset_options *out);

/* lm: completes the prompts of options->data and adds what texts score to *result. */
kvf_status kvf__evaluate_texts(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                               const kvf_eval_options *options, kvf_eval_result *result);

/* --infix (infix.c): each row must have a prompt for the prefix to stand behind. EDATA. */
kvf_status kvf__infix_check_rows(kvf_ctx *ctx, const char *path, const kvf__dataset *set);
/* Which runs may have it, and what their files say then. EUSAGE. */
kvf_status kvf__infix_identity(kvf_ctx *ctx, const kvf_train_options *options, const kvf_base *base,
                               kvf__identity *id);

/* Limits of a pass for batches of at most these sizes. */
kvf__pass_limits kvf__limits_for(const kvf__batch_sizes *sizes, int64_t P, bool backward);

/* ---- the run --------------------------------------------------------------------------------- */

/* Parts of a step outside the pass, in the order of kvf__trainer_timings. */
#define KVF__STEP_PART_LIST(X)                                                                     \
    X(BATCH, "batch")                                                                              \
    X(ENCODER, "encoder")                                                                          \
    X(ENCODER_BWD, "encoder_bwd")                                                                  \
    X(CLIP, "clip")                                                                                \
    X(ADAMW, "adamw")

typedef enum kvf__step_part {
#define KVF__STEP_PART_ENUM(name, text) KVF__STEP_##name,
    KVF__STEP_PART_LIST(KVF__STEP_PART_ENUM)
#undef KVF__STEP_PART_ENUM
        KVF__STEP_PARTS
} kvf__step_part;

/* Rows that no file holds: fills data and valid of a trainer whose base and renderer are open, and
 * soft where a teacher says what is to be learnt. `user` outlives the trainer. */
struct kvf__trainer;
typedef struct kvf__feed {
    kvf_status (*open)(void *user, struct kvf__trainer *trainer);
    void (*lineage)(void *user, kvf_json *lineage); /* adds what the rows came from */
    void *user;
} kvf__feed;

/* Rows that several runs on one base have in common (read_once.c): a file is read and made into ids
 * once for all options that make the same rows of it. */
typedef struct kvf__reads kvf__reads;
kvf_status kvf__reads_create(kvf_ctx *ctx, kvf__reads **out);
void kvf__reads_free(kvf__reads *reads);
/* As kvf__dataset_load, for the trainer's run. */
kvf_status kvf__reads_load(struct kvf__trainer *trainer, const char *path,
                           const kvf__dataset_options *options, kvf__dataset *out);

/* --retention set and --kl-to-base (retention set.c, KL term.c): which runs may have them; the
 * retention set's rows; what the base says of them, once steps are known; the loss under the prefix
 * now. Without a retention set they do nothing, but for `measure`. */
typedef struct kvf__retention kvf__retention;
kvf_status kvf__retention_check(kvf_ctx *ctx, const kvf_train_options *options);
kvf_status kvf__retention_open(struct kvf__trainer *trainer);
kvf_status kvf__retention_prepare(struct kvf__trainer *trainer);
kvf_status kvf__retention_measure(struct kvf__trainer *trainer);
kvf__evaluator *kvf__retention_evaluator(struct kvf__trainer *trainer); /* NULL: none */
kvf_status
kvf__retention_run(struct kvf__trainer *trainer); /* the same of what is emitted already */
void kvf__retention_lineage(const struct kvf__trainer *trainer, kvf_json *lineage);
void kvf__retention_result(const struct kvf__trainer *trainer, kvf_train_result *result);
const char *kvf__retention_hash(const struct kvf__trainer *trainer); /* "": none */
void kvf__retention_free(kvf__retention *retention);
/* What --kl-to-base adds to a step's gradient; a step that failed (st, which is returned) takes its
 * rows all the same. Moves its rows to the step that comes next. */
kvf_status kvf__base_kl_step(struct kvf__trainer *trainer, kvf_status st);
void kvf__base_kl_seek_step(struct kvf__trainer *trainer);
double kvf__base_kl_kl(const struct kvf__trainer *trainer); /* of the last step; NaN: none */

/* One of several tasks: what a step or a validation of it puts in the trainer's place of the same
 * name. */
typedef struct kvf__job {
    char *name;
    const char *path; /* of its data */
    kvf__task task;
    kvf__dataset data, valid;
    kvf__evaluator *evaluator;
    const kvf__metric *metric;
    kvf__sampler sampler;
    kvf__head *head;   /* NULL: lm */
    char **names;      /* "NAME/parameter" of the head's, owned */
    kvf__param low[2]; /* --task-prefix low-rank: u, v; owned; value NULL: none */
} kvf__job;

typedef struct kvf__ranks kvf__ranks;

typedef struct kvf__trainer {
    kvf_ctx *ctx;
    kvf__ranks *ranks; /* NULL: alone; owned */
    kvf_train_options options;
    kvf_base *base;
    bool borrows_base; /* it is not this trainer's to free */
    kvf__renderer renderer;
    const kvf__feed *feed;     /* NULL: data and valid come from the options' files */
    kvf__reads *reads;         /* shared with other runs; NULL: none */
    kvf__dataset data, valid;  /* valid.n = 0: none */
    kvf__teacher soft;         /* k = 0: labels say what is to be learnt */
    kvf__evaluator *evaluator; /* NULL: none */
    kvf__retention *retention; /* --retention set; NULL: none */

    kvf__task task;
    const kvf__method *method;
    kvf__encoder *encoder;          /* NULL: port block */
    kvf__head *head;                /* a task's, or --train-head's; NULL: the base's own */
    char **words;                   /* --verbalizer: by label; NULL: none; owned */
    kvf__params params;             /* the encoder's, then the head's: what AdamW steps; owned */
    kvf__prefix prefix, dprefix;    /* port kv: the prefix, forward and backward */
    kvf__vectors vectors, dvectors; /* port embed: the same */
    kvf__emitted emitted, gradient; /* those of the port */
    kvf__job *jobs; /* [n_jobs], 0: one task. data and valid are then sums over them, and head
                       and evaluator stay NULL outside of their turns */
    size_t n_jobs;
    kvf__prefix
        task_prefix;     /* --task-prefix low-rank: of the task in turn; P = 0: they share one */
    kvf__job *turn;      /* whose step it is; NULL between steps */
    int64_t epoch_steps; /* of an epoch; of all jobs */
    uint8_t *layer_mask; /* [L] 0: this layer has no prefix */
    kvf__prefix masked;  /* the prefix under the step's dropout; empty: there is none */
    const kvf__prefix *shown; /* what the base sees while training: prefix or masked; or NULL */
    kvf__row_dropout row_dropout, base_dropout;
    kvf__pass *pass;
    kvf__adamw adamw;
    kvf__schedule schedule;
    double lr_k; /* kvf__encoder_lr_units */
    kvf__sampler sampler;
    kvf__batcher batcher;

    kvf__identity id;
    int64_t steps;             /* in all */
    int64_t step;              /* done */
    int64_t tokens;            /* trained on */
    int64_t computed_tokens;   /* in this process: tokens of its batches */
    bool epoch_end;            /* the last step ended an epoch */
    kvf__history history;      /* room for all steps */
    const kvf__metric *metric; /* what best is best in */
    float *best_values;        /* copies of the parameters at best_step */
    kvf__params best;          /* n = 0 until a validation ran; owned */
    int64_t best_step;
    int64_t skipped; /* steps left out because they were not finite */
    int64_t stale;   /* validations since the best one */
    bool stopped_early;
    double best_value, valid_loss, train_loss;
    double best_loss;    /* valid_loss at best_step */
    double metric_value; /* of the last validation */
    double grad_norm, lr;
    double begin, step_seconds;          /* clock at the start; time spent in steps */
    double spent[KVF__STEP_PARTS], mark; /* seconds by part; clock at the end of the last one */
    kvf__pace pace;
    kvf_forecast forecast; /* steps = 0: none was made */
    kvf__journal journal;
    kvf__outlock lock;     /* on options.out; none for a dry run */
    kvf__run_file resumed; /* what --resume read; owns texts that options borrow */
    bool is_resumed;
    bool finished_before; /* --resume has nothing to do */
} kvf__trainer;

/* Opens everything: base, data, encoder, optimizer; restores a run for --resume. */
kvf_status kvf__trainer_init(kvf_ctx *ctx, const kvf_train_options *options, kvf__trainer *out);
void kvf__trainer_done(kvf__trainer *trainer);
/* The same on a base that is open already, for backward passes, and must outlive the trainer; NULL:
 * it opens its own. For methods that leave the base as it is. reads, NULL for none: of runs on this
 * base. */
kvf_status kvf__trainer_init_on(kvf_ctx *ctx, const kvf_train_options *options, kvf_base *base,
                                kvf__reads *reads, kvf__trainer *out);
/* The same on rows of a feed (NULL: none); options->data and valid are what the feed makes of
 * them. */
kvf_status kvf__trainer_init_fed(kvf_ctx *ctx, const kvf_train_options *options, kvf_base *base,
                                 const kvf__feed *feed, kvf__trainer *out);
/* Trains to the end, the stop or, for a dry run, to before the first step; begin: the clock when
 * the call began. */
kvf_status kvf__trainer_run(kvf__trainer *trainer, double begin, kvf_train_result *result);
/* The same on a base and examples in memory, which it takes over (and empties), ready to step: for
 * bench. Paths in the options are ignored, nothing is read or written, and the trainer may step
 * past options->steps. */
kvf_status kvf__trainer_init_memory(kvf_ctx *ctx, const kvf_train_options *options, kvf_base **base,
                                    kvf__dataset *data, kvf__trainer *out);
/* lengths.c: how many steps, and the schedule over them. */
kvf_status kvf__trainer_lengths(kvf__trainer *trainer);
/* params.c: the encoder, the head and all that is as large as they are. */
kvf_status kvf__trainer_parameters(kvf__trainer *trainer);
/* task_prefix.c: --task-prefix low-rank, between encoder and base. Memory; the task's prefix from
 * the shared one; and the gradient back. */
kvf_status kvf__task_prefix_alloc(kvf__trainer *trainer);
void kvf__task_prefix_fwd(kvf__trainer *trainer, const kvf__job *job);
void kvf__task_prefix_bwd(kvf__trainer *trainer, const kvf__job *job);
void kvf__task_prefix_done(kvf__trainer *trainer);

/* jobs.c: several tasks with a prefix in common. Names and kinds in options; are there tasks of a
 * kind; data; samplers; heads. */
size_t kvf__task_name_length(const char *text); /* of the name that it begins with */
kvf_status kvf__jobs_check(kvf_ctx *ctx, const kvf_train_options *options);
bool kvf__jobs_have(const kvf_train_options *options, const char *task);
kvf_status kvf__jobs_open(kvf__trainer *trainer);
/* A view of the labels that the resumed run has, of several tasks those of the last one opened. */
kvf__label_set kvf__jobs_stored_labels(const kvf__trainer *trainer);
kvf_status kvf__jobs_samplers(kvf__trainer *trainer);
kvf_status kvf__jobs_heads(kvf__trainer *trainer);
kvf_status kvf__jobs_join(kvf__trainer *trainer);
void kvf__jobs_clear(kvf__trainer *trainer);                         /* the heads' gradients */
kvf_status kvf__jobs_prepare(kvf__trainer *trainer, int64_t labels); /* the heads' memory */
void kvf__jobs_rewind(kvf__trainer *trainer);
/* The job of a step takes its place in the trainer, and gives it back. With one task nothing. */
void kvf__jobs_enter(kvf__trainer *trainer, int64_t step);
void kvf__jobs_leave(kvf__trainer *trainer, int64_t step);
/* Every task's validation; the means become the run's. */
kvf_status kvf__jobs_validate(kvf__trainer *trainer);
/* The heads as a run file lists them: *out views all but the array of tasks. */
kvf_status kvf__jobs_describe(kvf__trainer *trainer, kvf__head_values *out);
kvf_status kvf__jobs_same(kvf__trainer *trainer, const kvf__head_values *stored);
void kvf__jobs_done(kvf__trainer *trainer);
/* run.c: one data set of the trainer's task, and its checks. */
kvf_status kvf__trainer_load_set(kvf__trainer *trainer, const char *path, kvf__dataset *out);
/* t->valid, for t->data that `data` gave: the file, or with --valid-split a share of t->data; none
 * where neither is asked for. */
kvf_status kvf__trainer_load_valid(kvf__trainer *t, const char *data, const char *valid);
kvf_status kvf__trainer_decide_task(kvf__trainer *trainer);
/* params.c: a head for the trainer's task and data, to learn at --head-lr. */
kvf_status kvf__trainer_make_head(kvf__trainer *trainer, kvf__head **out);
/* own_head.c: --train-head; and the parameters of the run's head of either kind, NULL if it has
 * none. */
kvf_status kvf__trainer_make_own_head(kvf__trainer *trainer);
kvf__params *kvf__trainer_head_params(const kvf__trainer *trainer);
/* The list that the method trains: the encoder's, or what the model publishes (port block). */
kvf__params *kvf__trainer_published(const kvf__trainer *trainer);
/* Are weights of the base trained: by port block, or beside an encoder (--unfreeze base)? */
bool kvf__trainer_trains_base(const kvf__trainer *trainer);
/* How many parameters stand before the head's. */
size_t kvf__trainer_own_params(const kvf__trainer *trainer);
/* What of the base's own a method trains. EUSAGE. */
kvf_status kvf__trainer_form(const kvf__trainer *trainer, kvf__train *out);
/* Lists encoder and head anew: the encoder's gradients move with each backward pass. Allocates the
 * first time only. */
kvf_status kvf__trainer_join(kvf__trainer *trainer);
/* What a validation measures: the emitted value and the head; and the measuring itself, which sets
 * valid_loss and metric_value. */
kvf__subject kvf__trainer_subject(const kvf__trainer *trainer);
kvf_status kvf__trainer_measure(kvf__trainer *trainer);
/* Makes what only steps need, by the sizes of those to come: the batcher, the pass, its primitives.
 */
kvf_status kvf__trainer_prepare(kvf__trainer *trainer);
/* Of these the part that several runs with one pass in common have each: batcher, head. *limits: of
 * a pass for the run alone. */
kvf_status kvf__trainer_prepare_batches(kvf__trainer *trainer, kvf__pass_limits *limits);
/* Moves the sampler to the step that comes next. */
void kvf__trainer_seek_step(kvf__trainer *trainer);
/* Prefix dropout (prefix_dropout.c): memory; masks t->prefix as the step at hand has it; and its
 * gradient. */
kvf_status kvf__trainer_alloc_dropout(kvf__trainer *trainer);
void kvf__trainer_mask(kvf__trainer *trainer);
void kvf__trainer_mask_gradient(kvf__trainer *trainer);
/* Starting values of the encoder, by --init and its kin (init.c). */
kvf_status kvf__trainer_start_values(kvf__trainer *trainer);
/* One optimizer step; sets train_loss, lr, grad_norm, step, tokens. ENUMERIC names step and tensor.
 */
kvf_status kvf__trainer_step(kvf__trainer *trainer);
/* The same in pieces, for what runs several trainers in one pass: draws the rows and emits the
 * prefix; fills the batcher with the next part, false if there is none; takes the step, given the
 * status of its parts. */
typedef struct kvf__drawn {
    const int64_t *examples; /* [n] rows of the step */
    int64_t n, done, part;   /* of them, rows in parts so far; in the last part */
    int64_t terms;           /* what the loss is a mean of */
    float scale;             /* 1 / terms */
    double loss_sum;         /* over the parts so far: the caller adds */
} kvf__drawn;
kvf_status kvf__trainer_step_begin(kvf__trainer *trainer, kvf__drawn *drawn);
bool kvf__trainer_step_part(kvf__trainer *trainer, kvf__drawn *drawn);
/* The same for a look ahead: nothing is counted. */
bool kvf__trainer_fill_part(kvf__trainer *trainer, kvf__drawn *drawn);
kvf_status kvf__trainer_step_end(kvf__trainer *trainer, const kvf__drawn *drawn, kvf_status status);
/* step_guard.c: ENUMERIC names the parameter whose gradient is not finite; whether the step at
 * hand, computed with status st, is taken: not where --skip-nonfinite or --spike-guard leave it
 * out. */
kvf_status kvf__trainer_check_gradient(kvf__trainer *trainer);
kvf_status kvf__trainer_guard(kvf__trainer *trainer, kvf_status st, bool *take);
/* Seconds by component since the trainer was prepared: the pass's, then those of the step around
 * it. Returns how many there are. */
size_t kvf__trainer_timings(const kvf__trainer *trainer, kvf__timing *out, size_t max);
/* Runs to the last step or the stop request, with evaluations and saves. */
kvf_status kvf__trainer_loop(kvf__trainer *trainer);
/* The loop in pieces: its first event; then what follows each step (history, validation, saves).
 * *over: that was the last one. ESTOPPED as in the loop. */
void kvf__trainer_start(kvf__trainer *trainer);
kvf_status kvf__trainer_after_step(kvf__trainer *trainer, double seconds, int64_t tokens_before,
                                   bool *over);
/* ranks.c, ranks_step.c: a run over several processes. Each does nothing where there is one.
 *
 * Joins the others; *out stays NULL alone. The trainer that gets it frees it. */
kvf_status kvf__ranks_join(kvf_ctx *ctx, kvf__ranks **out);
void kvf__ranks_free(kvf__ranks *ranks);
/* Is this a rank that computes for another one, without encoder, optimizer and output of its own?
 */
bool kvf__ranks_follows(const kvf__trainer *trainer);
/* Those that follow hear what rank 0 decided: its run file's options, its precision. Rank 0 tells
 * them as soon as that is known. */
kvf_status kvf__ranks_begin(kvf__trainer *trainer);
kvf_status kvf__ranks_decided(kvf__trainer *trainer);
/* All go on, or none does; *finished as rank 0 has it. */
kvf_status kvf__ranks_agree(kvf__trainer *trainer, kvf_status status, bool *finished);
kvf_status kvf__ranks_prepare(kvf__trainer *trainer); /* memory */
/* Of a step's rows this rank's; and then how many tokens the others' have. */
void kvf__ranks_rows(kvf__trainer *trainer, const int64_t **examples, int64_t *n);
int64_t kvf__ranks_other_tokens(const kvf__trainer *trainer);
/* Rank 0 begins a step on the others with what its encoder emitted; they read weights anew. */
kvf_status kvf__ranks_send(kvf__trainer *trainer);
kvf_status kvf__ranks_refresh(kvf__trainer *trainer);
/* ranks_measure.c: validation and the retention set are divided among the ranks from here on. Rank
 * 0 has the others measure what its encoder emitted, just before it does so itself. */
kvf_status kvf__ranks_divide(kvf__trainer *trainer);
kvf_status kvf__ranks_validate(kvf__trainer *trainer);
kvf_status kvf__ranks_retention(kvf__trainer *trainer);
/* Lets a backward pass send on layers that are whole, if it is the last of its step. */
void kvf__ranks_watch(kvf__trainer *trainer, bool last, kvf__grads *grads);
/* Gradients and loss become those of all ranks, on rank 0; returns the first failure of any. */
kvf_status kvf__ranks_sum(kvf__trainer *trainer, kvf__drawn *drawn, kvf_status status);
/* Steps as rank 0 says, until it ends the run (which it does with the status it ends with). */
kvf_status kvf__ranks_follow(kvf__trainer *trainer);
kvf_status kvf__ranks_end(kvf__trainer *trainer, kvf_status status);
int kvf__ranks_signal(const kvf__trainer *trainer); /* that asked any rank to stop; 0: none */
int kvf__ranks_size(const kvf__trainer *trainer);
void kvf__ranks_result(const kvf__trainer *trainer, kvf_train_result *result);

/* What a call did that began at this time and count of tokens. */
void kvf__trainer_result(const kvf__trainer *trainer, double begin, int64_t tokens_before,
                         kvf_train_result *out);
/* --early-stop: as many validations without a better one as it allows. */
bool kvf__trainer_patience_over(const kvf__trainer *trainer);
/* Whether what is done every so many steps (0: at the end of an epoch), and at the end, is done
 * after the step that is done. */
bool kvf__trainer_is_due(const kvf__trainer *trainer, int64_t every);
/* state.c: writes the run file; restores parameters, moments, history and counters from
 * trainer->resumed. */
kvf_status kvf__trainer_save(kvf__trainer *trainer, bool force);
kvf_status kvf__trainer_restore(kvf__trainer *trainer);
/* Reports to the caller. */
void kvf__trainer_note(kvf__trainer *trainer, const char *fmt, ...) KVF__PRINTF(2, 3);

#endif
