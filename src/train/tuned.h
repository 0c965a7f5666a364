/* What a run trains: an encoder and what it emits, heads, weights of the base; as one list of
 * parameters that AdamW steps. */
#ifndef KVF_TUNED_H
#define KVF_TUNED_H

#include "dropout.h"
#include "encoder_int.h"
#include "renderer.h"
#include "train_rows.h"

typedef struct kvf__tuned {
    kvf__encoder *encoder; /* NULL: port block */
    kvf__params *base;     /* weights of the base that are trained; NULL: none */
    kvf__params params;    /* all: encoder, base, heads; owned */
    kvf__params steps;     /* what AdamW steps: as params, kvf__encoder_steps for the encoder */
    double lr_k;           /* kvf__encoder_lr_units */
    uint8_t *layer_mask;   /* [L] 0: this layer has no prefix */
    kvf__prefix prefix;    /* port kv: what the encoder emits */
    kvf__prefix dprefix;   /* and its gradient */
    kvf__vectors vectors;  /* port embed: the same */
    kvf__vectors dvectors;
    kvf__emitted emitted; /* those of the port */
    kvf__emitted gradient;
    kvf__params log_weight;   /* --log-weight: the prefix's, of which there is one; n = 0: none */
    kvf__prefix task_prefix;  /* --task-prefix low-rank: of rows.now; P = 0: tasks share one */
    kvf__prefix masked;       /* --prefix-dropout: under the step's mask; empty: none */
    kvf__condition condition; /* what the base sees in a step: of prefixes one of the three */
    kvf__row_dropout row_dropout, base_dropout;
} kvf__tuned;

/* params.c: encoder, weights of the base, what is emitted; without values. */
kvf_status kvf__tuned_make(kvf__run *run, kvf__tuned *tuned);
void kvf__tuned_done(kvf__tuned *tuned);

/* tuned.c: lists all parameters anew: the encoder's gradients move with each backward pass.
 * Allocates the first time only. */
kvf_status kvf__tuned_list(kvf_ctx *ctx, kvf__tuned *tuned, const kvf__train_rows *rows);
/* Values that training changes. */
int64_t kvf__tuned_values(const kvf__tuned *tuned);
/* How many of the list come before the heads'. */
size_t kvf__tuned_own_params(const kvf__tuned *tuned);
bool kvf__log_weight_trained(const kvf__tuned *tuned);
/* What a validation of the task measures: the emitted value and its head. */
kvf__subject kvf__tuned_subject(const kvf__tuned *tuned, const kvf__identity *id,
                                const kvf__train_task *task);
/* What the encoder emits. Processes that follow get the value from the first one. */
kvf_status kvf__tuned_emit(const kvf__run *run, kvf__tuned *tuned);
/* That as the rows of the step at hand see it (low-rank tasks, dropout); every gradient is zero. */
void kvf__tuned_show(const kvf__run *run, kvf__tuned *tuned, const kvf__train_rows *rows);
/* From the gradient of what the base saw back to every parameter. */
kvf_status kvf__tuned_bwd(const kvf__run *run, kvf__tuned *tuned, const kvf__train_rows *rows);

/* log_weight.c: --log-weight. The parameter, which the prefix owns. */
kvf_status kvf__log_weight_make(const kvf__run *run, kvf__tuned *tuned);
/* Those that a start brings, [L, G, P]; NULL: none. EUSAGE: the run has none, or --start-mass is
 * given; `where` names the source. */
kvf_status kvf__log_weight_from(const kvf__run *run, kvf__tuned *tuned, const char *where,
                                const float *values);
/* --start-mass, once files were read. EUSAGE: fixed at nothing. */
kvf_status kvf__log_weight_start(const kvf__run *run, kvf__tuned *tuned,
                                 const kvf__train_task *task);
/* A note: the loss of the start and of the bare base, on the first rows. */
kvf_status kvf__log_weight_note(kvf__run *run, kvf__tuned *tuned, const kvf__train_task *task);

/* prefix_dropout.c: memory; masks the prefix for the step at hand; and its gradient. */
kvf_status kvf__dropout_alloc(const kvf__run *run, kvf__tuned *tuned);
void kvf__dropout_fwd(const kvf__run *run, kvf__tuned *tuned);
void kvf__dropout_bwd(const kvf__run *run, kvf__tuned *tuned);
/* low_rank_task.c: --task-prefix low-rank, the task's prefix from the shared one. */
kvf_status kvf__low_rank_task_alloc(const kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows);
void kvf__low_rank_task_fwd(kvf__tuned *tuned, const kvf__train_task *task);
void kvf__low_rank_task_bwd(kvf__tuned *tuned, const kvf__train_task *task);

#endif
