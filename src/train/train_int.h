/* One training run. run.c sets it up, step.c draws the two lines of calls (forward and backward),
 * loop.c repeats them, state.c makes a run file of it and back, evaluate.c measures. */
#ifndef KVF_TRAIN_INT_H
#define KVF_TRAIN_INT_H

#include <kvfold/train.h>

#include "encoder_int.h"
#include "load_int.h"
#include "optim_int.h"

/* ---- options --------------------------------------------------------------------------------- */

/* Are the paths there that a run needs? EUSAGE. */
kvf_status kvf__train_options_require(kvf_ctx *ctx, const kvf_train_options *options);
/* Checks values against each other and fills what depends on others (lr by method). EUSAGE. */
kvf_status kvf__train_options_check(kvf_ctx *ctx, kvf_train_options *options);
/* Options as stored in a run: an object of scalars, without paths and what does not decide the
 * result. */
kvf_status kvf__train_options_store(kvf_ctx *ctx, const kvf_train_options *options, kvf_json **out);
/* For --resume: takes over stored values the caller left at their defaults; EUSAGE names the first
 * one that was given and differs. Texts are borrowed from `stored`. */
kvf_status kvf__train_options_resume(kvf_ctx *ctx, const char *path, kvf_train_options *options,
                                     const kvf_json *stored);

/* ---- measuring ------------------------------------------------------------------------------- */

/* Losses of a data set under a prefix, in batches fixed by the data alone. */
typedef struct kvf__evaluator kvf__evaluator;
kvf_status kvf__evaluator_create(kvf_ctx *ctx, kvf_base *base, const kvf__dataset *dataset,
                                 int64_t P, int64_t batch_tokens, bool share_leads,
                                 kvf__evaluator **out);
void kvf__evaluator_free(kvf__evaluator *evaluator);
/* *loss: mean over label tokens, in nats. prefix NULL: the bare base. token_loss [n_labels], or
 * NULL: in the batches' order, which is the same at every call. */
kvf_status kvf__evaluator_run(kvf_ctx *ctx, kvf__evaluator *evaluator, const kvf__prefix *prefix,
                              int64_t position_start, double *loss, float *token_loss);

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

typedef struct kvf__trainer {
    kvf_ctx *ctx;
    kvf_train_options options;
    kvf_base *base;
    kvf__renderer renderer;
    kvf__dataset data, valid;  /* valid.n = 0: none */
    kvf__evaluator *evaluator; /* NULL: none */

    kvf__encoder *encoder;
    kvf__prefix prefix, dprefix; /* the waist, forward and backward */
    kvf__pass *pass;
    kvf__adamw adamw;
    kvf__schedule schedule;
    double lr_k; /* kvf__encoder_lr_units */
    kvf__sampler sampler;
    kvf__batcher batcher;

    kvf__identity id;
    int64_t steps;        /* in all */
    int64_t step;         /* done */
    int64_t tokens;       /* trained on */
    bool epoch_end;       /* the last step ended an epoch */
    kvf__history history; /* room for all steps */
    float *best_values;   /* copies of the parameters at best_step */
    kvf__params best;     /* n = 0 until a validation ran */
    int64_t best_step;
    double best_value, valid_loss, train_loss;
    double grad_norm, lr;
    double begin, step_seconds;          /* clock at the start of the loop; time spent in steps */
    double spent[KVF__STEP_PARTS], mark; /* seconds by part; clock at the end of the last one */
    kvf__run_file resumed;               /* what --resume read; owns texts that options borrow */
    bool is_resumed;
} kvf__trainer;

/* Opens everything: base, data, encoder, optimizer; restores a run for --resume. */
kvf_status kvf__trainer_init(kvf_ctx *ctx, const kvf_train_options *options, kvf__trainer *out);
void kvf__trainer_done(kvf__trainer *trainer);
/* The same on a base and examples in memory, which it takes over (and empties), ready to step: for
 * bench. Paths in the options are ignored, nothing is read or written, and the trainer may step
 * past options->steps. */
kvf_status kvf__trainer_init_memory(kvf_ctx *ctx, const kvf_train_options *options, kvf_base **base,
                                    kvf__dataset *data, kvf__trainer *out);
/* Makes what only steps need, by the sizes of those to come: the batcher, the pass, its primitives.
 */
kvf_status kvf__trainer_prepare(kvf__trainer *trainer);
/* Starting values of the encoder, by --init and its kin (init.c). */
kvf_status kvf__trainer_start_values(kvf__trainer *trainer);
/* One optimizer step; sets train_loss, lr, grad_norm, step, tokens. ENUMERIC names step and tensor.
 */
kvf_status kvf__trainer_step(kvf__trainer *trainer);
/* Seconds by component since the trainer was prepared: the pass's, then those of the step around
 * it. Returns how many there are. */
size_t kvf__trainer_timings(const kvf__trainer *trainer, kvf__timing *out, size_t max);
/* Runs to the last step or the stop request, with evaluations and saves. */
kvf_status kvf__trainer_loop(kvf__trainer *trainer);
/* state.c: writes the run file; restores parameters, moments, history and counters from
 * trainer->resumed. */
kvf_status kvf__trainer_save(kvf__trainer *trainer, bool force);
kvf_status kvf__trainer_restore(kvf__trainer *trainer);
/* Reports to the caller. */
void kvf__trainer_note(kvf__trainer *trainer, const char *fmt, ...) KVF__PRINTF(2, 3);

#endif
