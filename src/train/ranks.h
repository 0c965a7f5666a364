/* A run over several processes (mpirun -n N kvfold train): rank 0 has encoder, optimizer and
 * output, the others compute rows. Each function does nothing where there is one process. */
#ifndef KVF_RANKS_H
#define KVF_RANKS_H

#include "evaluator.h"

#include <kvfold/train.h>

struct kvf__run;
struct kvf__step_rows;
struct kvf__train_rows;
struct kvf__tuned;
typedef struct kvf__ranks kvf__ranks;

/* Joins the others; *out stays NULL alone. The run that gets it frees it. */
kvf_status kvf__ranks_join(kvf_ctx *ctx, kvf__ranks **out);
void kvf__ranks_free(kvf__ranks *ranks);
/* Is this a rank that computes for another one, without encoder, optimizer and output of its own?
 */
bool kvf__ranks_follows(const kvf__ranks *ranks);
int kvf__ranks_size(const kvf__ranks *ranks);
/* The signal that asked any rank to stop; 0: none. */
int kvf__ranks_signal(const kvf_ctx *ctx, const kvf__ranks *ranks);
void kvf__ranks_result(const kvf_ctx *ctx, const kvf__ranks *ranks, kvf_train_result *result);

/* The others receive what rank 0 decided: its run file's options, its precision. Rank 0 sends it
 * as soon as it is known. */
kvf_status kvf__ranks_begin(struct kvf__run *run);
kvf_status kvf__ranks_decided(struct kvf__run *run);
/* Hashes of the rows that all ranks must have. */
typedef struct kvf__rows_hashes {
    const char *data, *valid, *retention;
} kvf__rows_hashes;
/* All go on, or none does; *finished as rank 0 has it. */
kvf_status kvf__ranks_agree(struct kvf__run *run, const kvf__rows_hashes *hashes, kvf_status status,
                            bool *finished);
/* Rank 0 ends the run on all with the status that it ends with. */
kvf_status kvf__ranks_end(struct kvf__run *run, kvf_status status);

/* What rank 0 has the others do next. */
typedef enum kvf__order_kind {
    KVF__ORDER_STEP,
    KVF__ORDER_VALIDATE,
    KVF__ORDER_RETENTION,
    KVF__ORDER_END
} kvf__order_kind;
/* ---- steps (ranks_step.c) -------------------------------------------------------------------- */

/* Memory, for steps of at most so many rows. */
kvf_status kvf__ranks_prepare(kvf_ctx *ctx, kvf__ranks *ranks, int64_t rows,
                              const kvf__prefix *gradient);
/* Of a step's rows this rank's; and then how many tokens the others' have. */
void kvf__ranks_rows(kvf__ranks *ranks, const kvf__dataset *set, const int64_t **examples,
                     int64_t *n);
int64_t kvf__ranks_other_tokens(const kvf__ranks *ranks);
/* Rank 0 begins a step on the others with what its encoder emitted. There the base, if it is
 * trained, takes the values that came; a failure is rank 0's to know, by kvf__ranks_sum(). */
kvf_status kvf__ranks_send(struct kvf__run *run, const struct kvf__tuned *tuned);
kvf_status kvf__ranks_refresh(struct kvf__run *run, const struct kvf__tuned *tuned);
/* Validation and the retention set (NULL: none) are divided among the ranks from here on. Rank 0
 * has the others measure what its encoder emitted, just before it does so itself. */
kvf_status kvf__ranks_divide(struct kvf__run *run, const struct kvf__train_rows *rows,
                             kvf__evaluator *retention);
kvf_status kvf__ranks_measure(struct kvf__run *run, const struct kvf__tuned *tuned,
                              kvf__order_kind what);
/* Lets a backward pass send on layers that are whole, if it is the last of its step. */
void kvf__ranks_watch(kvf__ranks *ranks, bool last, kvf__grads *grads);
/* Gradients and loss become those of all ranks, on rank 0; returns the first failure of any. */
kvf_status kvf__ranks_sum(struct kvf__run *run, const struct kvf__tuned *tuned,
                          struct kvf__step_rows *rows, kvf_status status);

/* The next order to a rank that follows, and the values that come with it; of the end, the status
 * that the run ends with. */
kvf_status kvf__ranks_next(struct kvf__run *run, const struct kvf__tuned *tuned,
                           kvf__order_kind *kind);

#endif
