/* Inside attention: the plan's contents, and what ref and the fast kernels share.
 *
 * Threads are numbered by the plan, not by OpenMP: a team smaller than the plan's count walks
 * several plan threads each, so which sums go to which accumulator never depends on how many
 * threads the runtime grants. */
#ifndef KVF_ATTENTION_INT_H
#define KVF_ATTENTION_INT_H

#include "attention.h"

#define KVF__ATTN_QUERIES 64 /* queries of a block at most: rows of scratch */
#define KVF__ATTN_KEYS    64 /* keys of a block in the backward pass */
#define KVF__ATTN_PAD     32 /* D and key counts are padded to this in scratch: a vector of bf16 */

typedef struct kvf__attn_item {
    int32_t row, head; /* row of the batch, key/value head */
    int32_t thread;
    int64_t cost;
} kvf__attn_item;

struct kvf__attn_plan {
    kvf__attn_limits limits;
    int threads;
    const kvf__attn_row *rows; /* of the last set */
    const kvf__kvseg *segs;    /* lengths only: pointers come with the call */
    int64_t n_rows, n_segs;
    kvf__attn_item *items; /* [limits.rows * G], longest first */
    int64_t n_items;
    int64_t *load; /* [threads] cost dealt so far */
    char *scratch; /* [threads][scratch_bytes], 64-byte aligned */
    size_t scratch_bytes;
    float *grads;      /* [threads][grad_count]; NULL unless backward */
    size_t grad_count; /* 2 * G * grad_len * D */
};

/* Bytes that dropout's kernel needs of a thread's scratch. */
size_t kvf__attn_drop_scratch(int64_t D, int64_t keys);

/* Sum of the lengths of a row's shared segments. */
int64_t kvf__attn_shared_len(const kvf__attn *attn, const kvf__attn_row *row);

/* Accumulator of segment `seg` for one thread, [2, G, len, D] (0 = key, 1 = value); NULL if its
 * gradient is not wanted. */
float *kvf__attn_grad(const kvf__attn *attn, int thread, int32_t seg);

/* Scratch of a plan thread. */
static inline char *kvf__attn_scratch(const kvf__attn_plan *plan, int thread)
{
    return plan->scratch + plan->scratch_bytes * (size_t)thread;
}

/* Calls item() for the items of each plan thread, in order, in parallel over plan threads. With
 * grads, accumulators are zeroed before and added to the segments' dk and dv, in thread order,
 * after. */
typedef void kvf__attn_item_fn(const kvf__attn *attn, const kvf__attn_item *item);
void kvf__attn_run(const kvf__attn *attn, kvf__attn_item_fn *item, bool grads);

#endif
