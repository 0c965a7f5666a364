/* What a run trains: an encoder and what it emits, heads, weights of the base; as one list of
 * parameters that AdamW steps. */
#ifndef KVF_TUNED_H
#define KVF_TUNED_H

#include "dropout.h"
#include "encoder_int.h"
#include "method.h"
#include "renderer.h"
#include "train_rows.h"

typedef struct kvf__tuned {
    const kvf__method *method;
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

/* params.c: what of the base's own a method trains. EUSAGE. */
kvf_status kvf__trainer_form(const struct kvf__trainer *trainer, kvf__train *out);
/* Encoder, heads and the list, without values; then, once the number of steps is known, AdamW and
 * history, and starting values or those of the resumed run. */
kvf_status kvf__trainer_make(struct kvf__trainer *trainer);
kvf_status kvf__trainer_parameters(struct kvf__trainer *trainer);
/* Lists all parameters anew: the encoder's gradients move with each backward pass. Allocates the
 * first time only. */
kvf_status kvf__trainer_list_params(struct kvf__trainer *trainer);
/* Values that training changes. */
int64_t kvf__trainer_trained_values(const struct kvf__trainer *trainer);
/* How many of the list come before the heads'. */
size_t kvf__trainer_own_params(const struct kvf__trainer *trainer);
/* task_heads.c: makes the heads of all tasks, with their low-rank vectors; lists their parameters
 * after those of *out; those of one, NULL where it has no head. */
kvf_status kvf__tasks_make_heads(struct kvf__trainer *trainer);
kvf_status kvf__tasks_list_params(struct kvf__trainer *trainer, kvf__params *out);
kvf__params *kvf__task_head_params(const kvf__train_task *task);
/* start.c: chooses --init where it is not given, and checks it; sets the starting values. */
kvf_status kvf__start_decide(struct kvf__trainer *trainer);
kvf_status kvf__trainer_start_values(struct kvf__trainer *trainer);
/* --init match without a feed that has a start of its own (match_rows.c): *target, zeros so far,
 * becomes what rows of the only task's data are as a context. They have too few tokens: EUSAGE, or
 * options.init becomes vocab where it was left open, and *target is as it was. */
kvf_status kvf__match_rows(struct kvf__trainer *trainer, kvf__prefix *target);
/* --init centroids (centroids.c): *target becomes a prefix whose keys lie at centroids of what rows
 * of the only task's data ask, for text behind it at the run's positions. */
kvf_status kvf__centroids(struct kvf__trainer *trainer, kvf__prefix *target);
/* What a validation of the task measures: the emitted value and its head. */
kvf__subject kvf__trainer_subject(const struct kvf__trainer *trainer, const kvf__train_task *task);

/* tuned.c: the prefix of the step at hand, here and for the processes that follow: what the
 * encoder emits, as the step's rows see it (low-rank tasks, dropout); every gradient is zero. */
kvf_status kvf__tuned_fwd(struct kvf__trainer *trainer);
/* From the gradient of what the base saw back to every parameter. */
kvf_status kvf__tuned_bwd(struct kvf__trainer *trainer);

/* log_weight.c: --log-weight. The parameter, which the prefix owns. */
kvf_status kvf__log_weight_make(struct kvf__trainer *trainer);
bool kvf__log_weight_trained(const struct kvf__trainer *trainer);
/* Those that a start brings, [L, G, P]; NULL: none. EUSAGE: the run has none, or --start-mass is
 * given; `where` names the source. */
kvf_status kvf__log_weight_from(struct kvf__trainer *trainer, const char *where,
                                const float *values);
/* --start-mass, once files were read. EUSAGE: fixed at nothing. */
kvf_status kvf__log_weight_start(struct kvf__trainer *trainer);
/* A note: the loss of the start and of the bare base, on the first rows. */
kvf_status kvf__log_weight_note(struct kvf__trainer *trainer);

/* prefix_dropout.c: memory; masks the prefix for the step at hand; and its gradient. */
kvf_status kvf__dropout_alloc(struct kvf__trainer *trainer);
void kvf__dropout_fwd(struct kvf__trainer *trainer);
void kvf__dropout_bwd(struct kvf__trainer *trainer);
/* low_rank_task.c: --task-prefix low-rank, the task's prefix from the shared one. */
kvf_status kvf__low_rank_task_alloc(struct kvf__trainer *trainer);
void kvf__low_rank_task_fwd(struct kvf__trainer *trainer, const kvf__train_task *task);
void kvf__low_rank_task_bwd(struct kvf__trainer *trainer, const kvf__train_task *task);

#endif
