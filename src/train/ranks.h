/* A run with several processes (mpirun -n N kvfold train). Rank 0 has encoder, optimizer and
 * output; the others compute rows. With one process each function does nothing. */
#ifndef KVF_RANKS_H
#define KVF_RANKS_H

#include "evaluator.h"

#include <kvfold/train.h>

struct kvf__run;
struct kvf__step_rows;
struct kvf__train_rows;
struct kvf__tuned;
typedef struct kvf__ranks kvf__ranks;

/* Joins the other processes. *out stays NULL if there are none. The run owns *out. */
kvf_status kvf__ranks_join(kvf_ctx *ctx, kvf__ranks **out);
void kvf__ranks_free(kvf__ranks *ranks);
/* True for a rank without encoder, optimizer and output, which computes for rank 0. */
bool kvf__ranks_follows(const kvf__ranks *ranks);
int kvf__ranks_size(const kvf__ranks *ranks);
/* Returns the signal that asked any rank to stop; 0: none. */
int kvf__ranks_signal(const kvf_ctx *ctx, const kvf__ranks *ranks);
void kvf__ranks_result(const kvf_ctx *ctx, const kvf__ranks *ranks, kvf_train_result *result);

/* Distributes the decisions of rank 0: options of the run file and precision. Rank 0 sends them as
 * soon as they are known. */
kvf_status kvf__ranks_begin(struct kvf__run *run);
kvf_status kvf__ranks_decided(struct kvf__run *run);
/* Hashes of the rows that all ranks must have. */
typedef struct kvf__rows_hashes {
    const char *data, *valid, *retention;
} kvf__rows_hashes;
/* Lets all ranks continue, or none. Sets *finished to the value of rank 0. */
kvf_status kvf__ranks_agree(struct kvf__run *run, const kvf__rows_hashes *hashes, kvf_status status,
                            bool *finished);
/* Ends the run on all ranks with the status of rank 0. */
kvf_status kvf__ranks_end(struct kvf__run *run, kvf_status status);

/* Orders of rank 0 to the others. */
typedef enum kvf__order_kind {
    KVF__ORDER_STEP,
    KVF__ORDER_VALIDATE,
    KVF__ORDER_RETENTION,
    KVF__ORDER_END
} kvf__order_kind;
/* ---- steps (ranks_step.c) -------------------------------------------------------------------- */

/* Allocates memory for steps of at most `rows` rows. */
kvf_status kvf__ranks_prepare(kvf_ctx *ctx, kvf__ranks *ranks, int64_t rows,
                              const kvf__prefix *gradient);
/* Selects this rank's rows of a step, and returns the number of tokens in the rows of the others.
 */
void kvf__ranks_rows(kvf__ranks *ranks, const kvf__dataset *set, const int64_t **examples,
                     int64_t *n);
int64_t kvf__ranks_other_tokens(const kvf__ranks *ranks);
/* Starts a step on the other ranks: rank 0 sends the encoder's output. A trained base there takes
 * the received values. A failure reaches rank 0 in kvf__ranks_sum(). */
kvf_status kvf__ranks_send(struct kvf__run *run, const struct kvf__tuned *tuned);
kvf_status kvf__ranks_refresh(struct kvf__run *run, const struct kvf__tuned *tuned);
/* Divides validation and the retention set (NULL: none) among the ranks from now on. Before rank 0
 * measures, it makes the others measure with the same encoder output. */
kvf_status kvf__ranks_divide(struct kvf__run *run, const struct kvf__train_rows *rows,
                             kvf__evaluator *retention);
kvf_status kvf__ranks_measure(struct kvf__run *run, const struct kvf__tuned *tuned,
                              kvf__order_kind what);
/* Lets the last backward pass of a step send the gradients of finished layers early. */
void kvf__ranks_watch(kvf__ranks *ranks, bool last, kvf__grads *grads);
/* Sums gradients and loss of all ranks on rank 0. Returns the first failure of any rank. */
kvf_status kvf__ranks_sum(struct kvf__run *run, const struct kvf__tuned *tuned,
                          struct kvf__step_rows *rows, kvf_status status);

/* Receives the next order and its values; at the end, the final status of the run. */
kvf_status kvf__ranks_next(struct kvf__run *run, const struct kvf__tuned *tuned,
                           kvf__order_kind *kind);

#endif
