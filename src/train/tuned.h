/* Trained values of a run: an encoder and its output, heads, weights of the base, as one list of
 * parameters that AdamW updates. */
#ifndef KVF_TUNED_H
#define KVF_TUNED_H

#include "dropout.h"
#include "encoder_int.h"
#include "renderer.h"
#include "train_rows.h"

typedef struct kvf__tuned {
    kvf__encoder *encoder; /* NULL: port block */
    kvf__params *base;     /* trained weights of the base; NULL: none */
    kvf__params params;    /* all parameters: encoder, base, heads; owned */
    kvf__params steps;     /* values that AdamW updates: like params, with kvf__encoder_steps for
                            * the encoder */
    double lr_k[2];        /* kvf__encoder_lr_units */
    uint8_t *layer_mask;   /* [L] 0: no prefix in this layer */
    kvf__prefix prefix;    /* port kv: output of the encoder */
    kvf__prefix dprefix;   /* gradient of prefix */
    bool neurons_begun;    /* a file gave the initial neurons */
    kvf__vectors vectors;  /* port embed: output and gradient */
    kvf__vectors dvectors;
    kvf__emitted emitted; /* view of the port's output */
    kvf__emitted gradient;
    kvf__params log_weight;   /* --log-weight of the prefix, one parameter; n = 0: none */
    kvf__params state;        /* --state-lr: the prefix's state, one parameter; n = 0: fixed */
    kvf__prefix task_prefix;  /* --task-prefix low-rank: prefix of rows.now; P = 0: shared */
    kvf__prefix masked;       /* --prefix-dropout: prefix under the step's mask; empty: none */
    kvf__condition condition; /* input of the base in a step; one of these prefixes */
    kvf__prefix *backward;    /* gradient of condition.prefix */
    const kvf__prefix *alone; /* condition.prefix of steps without a prefix beside it */
    kvf__prefix both, dboth;  /* memory of steps with one; empty: none */
    kvf__prefix wide, dwide;  /* views of it for the current step */
    kvf__row_dropout row_dropout, base_dropout;
} kvf__tuned;

/* params.c: creates encoder, trained weights of the base and the emitted value, without values. */
kvf_status kvf__tuned_make(kvf__run *run, kvf__tuned *tuned);
void kvf__tuned_done(kvf__tuned *tuned);

/* tuned.c: updates the list of all parameters, because the encoder's gradients move with each
 * backward pass. Allocates only the first time. */
kvf_status kvf__tuned_list(kvf_ctx *ctx, kvf__tuned *tuned, const kvf__train_rows *rows);
/* Returns the number of trained values. */
int64_t kvf__tuned_values(const kvf__tuned *tuned);
/* Returns the number of parameters before the heads'. */
size_t kvf__tuned_own_params(const kvf__tuned *tuned);
bool kvf__log_weight_trained(const kvf__tuned *tuned);
/* Returns the subject of a task's validation: the emitted value and the task's head. */
kvf__subject kvf__tuned_subject(const kvf__tuned *tuned, const kvf__identity *id,
                                const kvf__train_task *task);
/* Runs the encoder forward. Other ranks receive the value from rank 0. */
kvf_status kvf__tuned_emit(const kvf__run *run, kvf__tuned *tuned);
/* Applies low-rank tasks and dropout for the rows of the current step, and zeroes all gradients. */
void kvf__tuned_show(const kvf__run *run, kvf__tuned *tuned, const kvf__train_rows *rows);
/* Computes the gradient of every parameter from that of the base's input. */
kvf_status kvf__tuned_bwd(const kvf__run *run, kvf__tuned *tuned, const kvf__train_rows *rows);

/* log_weight.c: --log-weight. Lists the parameter, whose memory the prefix owns. */
kvf_status kvf__log_weight_make(const kvf__run *run, kvf__tuned *tuned);
/* Takes log-weights [L, G, P] from the initial prefix; NULL: none. EUSAGE: the run has none, or
 * --start-mass is given. `where` names the source. */
kvf_status kvf__log_weight_from(const kvf__run *run, kvf__tuned *tuned, const char *where,
                                const float *values);
/* Applies --start-mass, after files were read. EUSAGE: fixed log-weights are all 0. */
kvf_status kvf__log_weight_start(const kvf__run *run, kvf__tuned *tuned,
                                 const kvf__train_task *task);
/* Reports the initial loss and the bare base's, on the first rows. */
kvf_status kvf__log_weight_note(kvf__run *run, kvf__tuned *tuned, const kvf__train_task *task);

/* prefix_dropout.c: allocates memory; masks the prefix for the current step; masks its gradient. */
kvf_status kvf__dropout_alloc(const kvf__run *run, kvf__tuned *tuned);
void kvf__dropout_fwd(const kvf__run *run, kvf__tuned *tuned);
void kvf__dropout_bwd(const kvf__run *run, kvf__tuned *tuned);
/* beside.c: allocates memory; sets condition and backward for the current step; moves the gradient
 * back to the trained prefix. */
kvf_status kvf__beside_alloc(const kvf__run *run, kvf__tuned *tuned, const kvf__train_rows *rows);
void kvf__beside_fwd(const kvf__run *run, kvf__tuned *tuned, const kvf__train_rows *rows);
void kvf__beside_bwd(kvf__tuned *tuned);
/* low_rank_task.c: --task-prefix low-rank, the task's prefix from the shared one. */
kvf_status kvf__low_rank_task_alloc(const kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows);
void kvf__low_rank_task_fwd(kvf__tuned *tuned, const kvf__train_task *task);
void kvf__low_rank_task_bwd(kvf__tuned *tuned, const kvf__train_task *task);

#endif
