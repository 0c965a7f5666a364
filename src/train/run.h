/* State shared by all parts of a run: options, base, identity, other processes, progress and
 * output. A part with functions of its own (rows, tuned parameters, stepper) is passed beside it.
 * trainer.h joins them all. */
#ifndef KVF_RUN_H
#define KVF_RUN_H

#include "journal.h"
#include "method.h"
#include "metric_int.h"
#include "open_base.h"
#include "options.h"
#include "ranks.h"

/* The best validation so far. */
typedef struct kvf__best {
    kvf__params params; /* n = 0 until a validation ran; owned */
    float *values;      /* copies of all parameters at `step` */
    int64_t step;
    double value, loss; /* metric; validation loss */
} kvf__best;

/* Running means in seconds (pace.c); 0: not measured yet. */
typedef struct kvf__pace {
    double step, validation, save;
} kvf__pace;

/* Reference values for the validation (baselines.c); NaN: not measured. */
typedef struct kvf__baselines {
    double bare_loss, start_loss; /* loss of the bare base; loss before the first step */
    double largest_class;         /* metric of predicting the largest class for every row */
} kvf__baselines;

typedef struct kvf__progress {
    int64_t steps, step;       /* total; done */
    int64_t tokens;            /* tokens trained on */
    int64_t computed_tokens;   /* tokens of the batches of this process */
    double train_loss;         /* training loss of the last step */
    double kl_to_base;         /* --kl-to-base: mean KL over the last step's labels; NaN: none */
    kvf__history history;      /* memory for all steps */
    const kvf__metric *metric; /* metric that selects the best checkpoint */
    double valid_loss, metric_value; /* results of the last validation */
    kvf__baselines baselines;
    kvf__best best;
    int64_t stale; /* validations since the best one */
    bool stopped_early;
    double begin, step_seconds; /* clock at the start; seconds spent in steps */
    kvf__pace pace;
    kvf_forecast forecast; /* steps = 0: none was made */
} kvf__progress;

typedef struct kvf__output {
    kvf__outlock lock; /* lock of options.out; none for a dry run */
    bool in_memory;    /* there is no run file */
    kvf__journal journal;
    kvf__artifact resumed; /* contents of the resumed run file; owns texts that options borrow */
    bool is_resumed;
    bool finished_before; /* --resume found a finished run */
} kvf__output;

typedef struct kvf__run {
    kvf_ctx *ctx;
    kvf_train_options options;
    const kvf__method *method; /* row of options.method */
    kvf_base *base;
    bool borrows_base; /* the run does not own the base */
    kvf__identity id;
    kvf__ranks *ranks; /* NULL: one process; owned */
    kvf__progress progress;
    kvf__output output;
} kvf__run;

/* ---- run.c, in the order in which a run opens ------------------------------------------------ */

/* Locks the output and checks that it may be written. With --resume, reads the run file. */
kvf_status kvf__run_open_output(kvf__run *run);
/* Checks that the input files can be read, before the base is loaded. */
kvf_status kvf__run_check_inputs(const kvf__run *run);
kvf_status kvf__run_open_base(kvf__run *run);
/* Sets the number of virtual tokens, by --p-template or the default of the base. */
kvf_status kvf__run_decide_length(kvf__run *run);
/* Sets and checks --value-optimizer. */
kvf_status kvf__run_decide_values(kvf__run *run);
/* Fills the identity from base and options. */
kvf_status kvf__run_identify(kvf__run *run);
/* True once --early-stop validations in a row were not better. */
bool kvf__run_patience_over(const kvf__run *run);

/* ---- places.c -------------------------------------------------------------------------------- */

/* Refuses methods, tasks and options that an encoder-decoder does not support. fed: rows come from
 * a feed. */
kvf_status kvf__places_check(kvf__run *run, bool fed);
bool kvf__places_near(const kvf_train_options *options, const kvf__desc *desc); /* see prefix.h */
/* Applies --places to the layer mask [L]. */
kvf_status kvf__places_mask(kvf__run *run, uint8_t *layer_mask);

#endif
