/* A run over several processes (mpirun -n N kvfold train): rank 0 has encoder, optimizer and
 * output, the others compute rows. Each function does nothing where there is one process. */
#ifndef KVF_RANKS_H
#define KVF_RANKS_H

#include "step.h"

struct kvf__trainer;
typedef struct kvf__ranks kvf__ranks;

/* Joins the others; *out stays NULL alone. The trainer that gets it frees it. */
kvf_status kvf__ranks_join(kvf_ctx *ctx, kvf__ranks **out);
void kvf__ranks_free(kvf__ranks *ranks);
/* Is this a rank that computes for another one, without encoder, optimizer and output of its own?
 */
bool kvf__ranks_follows(const struct kvf__trainer *trainer);
/* The others receive what rank 0 decided: its run file's options, its precision. Rank 0 sends it
 * as soon as it is known. */
kvf_status kvf__ranks_begin(struct kvf__trainer *trainer);
kvf_status kvf__ranks_decided(struct kvf__trainer *trainer);
/* All go on, or none does; *finished as rank 0 has it. */
kvf_status kvf__ranks_agree(struct kvf__trainer *trainer, kvf_status status, bool *finished);
kvf_status kvf__ranks_prepare(struct kvf__trainer *trainer); /* memory */
/* Of a step's rows this rank's; and then how many tokens the others' have. */
void kvf__ranks_rows(struct kvf__trainer *trainer, const int64_t **examples, int64_t *n);
int64_t kvf__ranks_other_tokens(const struct kvf__trainer *trainer);
/* Rank 0 begins a step on the others with what its encoder emitted. There the base, if it is
 * trained, takes the values that came; a failure is rank 0's to know, by kvf__ranks_sum(). */
kvf_status kvf__ranks_send(struct kvf__trainer *trainer);
kvf_status kvf__ranks_refresh(struct kvf__trainer *trainer);
/* ranks_measure.c: validation and the retention set are divided among the ranks from here on. Rank
 * 0 has the others measure what its encoder emitted, just before it does so itself. */
kvf_status kvf__ranks_divide(struct kvf__trainer *trainer);
kvf_status kvf__ranks_validate(struct kvf__trainer *trainer);
kvf_status kvf__ranks_retention(struct kvf__trainer *trainer);
/* Lets a backward pass send on layers that are whole, if it is the last of its step. */
void kvf__ranks_watch(struct kvf__trainer *trainer, bool last, kvf__grads *grads);
/* Gradients and loss become those of all ranks, on rank 0; returns the first failure of any. */
kvf_status kvf__ranks_sum(struct kvf__trainer *trainer, kvf__step_rows *rows, kvf_status status);
/* Steps as rank 0 orders, until it ends the run (which it does with the status it ends with). */
kvf_status kvf__ranks_follow(struct kvf__trainer *trainer);
kvf_status kvf__ranks_end(struct kvf__trainer *trainer, kvf_status status);
int kvf__ranks_signal(
    const struct kvf__trainer *trainer); /* that asked any rank to stop; 0: none */
int kvf__ranks_size(const struct kvf__trainer *trainer);
void kvf__ranks_result(const struct kvf__trainer *trainer, kvf_train_result *result);

#endif
