/* Inside attention: the plan's contents, and what ref and the fast kernels share.
 *
 * Threads are numbered by the plan, not by OpenMP: a team smaller than the plan's count walks
 * several plan threads each, so which sums go to which accumulator never depends on how many
 * threads the runtime grants. */
#ifndef KVF_ATTENTION_INT_H
#define KVF_ATTENTION_INT_H

#include "attention.h"

#include <stdatomic.h>

#define KVF__ATTN_QUERIES 64 /* queries of a block at most: rows of scratch */
#define KVF__ATTN_KEYS    64 /* keys of a block in the backward pass */
#define KVF__ATTN_PAD     32 /* D and key counts are padded to this in scratch: a vector of bf16 */
#define KVF__ATTN_STATE   1024 /* bytes of scratch for what a kernel knows of an item */

/* Accumulators of gradients: so many for each key/value head that about this number of chains of
 * items, each adding to its own, can go on at once. */
enum { KVF__ATTN_CHAINS = 12 };

/* When a thread computes an item: a cut chain's first items before all others, its last after them.
 */
typedef enum kvf__attn_turn { KVF__ATTN_FIRST, KVF__ATTN_BETWEEN, KVF__ATTN_LAST } kvf__attn_turn;

/* A row and key/value head, or of a cut one the blocks of queries before or after the cut. */
typedef struct kvf__attn_item {
    int32_t row, head; /* row of the batch, key/value head */
    int32_t part;      /* whose accumulators its gradients go to; the same for all heads of a row */
    int32_t thread;
    kvf__attn_turn turn;
    int32_t slot;       /* whose scratch; both items of a cut one have the same */
    int32_t after;      /* so many items of the next thread come before it */
    int64_t begin, end; /* blocks of its query heads, one head after the other */
    int64_t cost;       /* of all of its blocks; set by kvf__attn_deal */
} kvf__attn_item;

struct kvf__attn_plan {
    kvf__attn_limits limits;
    int64_t G; /* of the calls that come */
    int threads;
    const kvf__attn_row *rows; /* of the last set */
    const kvf__kvseg *segs;    /* lengths only: pointers come with the call */
    int64_t n_rows, n_segs;
    kvf__attn_item *items; /* [limits.rows * G + threads - 1], by thread and turn, longest first */
    int64_t n_items;
    int64_t *start;     /* [threads + 1] the first item of each thread; the end */
    atomic_int *done;   /* [threads] items of each that are computed */
    int parts;          /* by limits alone */
    int64_t *load;      /* [threads] cost dealt so far */
    int64_t *part_load; /* [parts] the same, of rows */
    int32_t *part;      /* [limits.rows] of each row */
    int32_t *chain;     /* [parts][G] the thread that begins it */
    char *scratch;      /* [2 threads - 1][scratch_bytes], 64-byte aligned: of each thread, then of
                           items cut between two */
    size_t scratch_bytes;
    float *grads;      /* [parts][grad_count] */
    size_t grad_count; /* G * grad_len * (2 * D + 1); 0 unless backward */
};

/* ---- where things are ------------------------------------------------------------------------ */

/* Rows of D elements; row i starts at element at + i * stride of base. Only rows of what a call
 * writes are written through it. */
typedef struct kvf__attn_rows {
    void *base;
    kvf__dtype dtype;
    int64_t at, stride;
} kvf__attn_rows;

/* From own token i on in qkv or dqkv. slot: a query head, or H + g for keys, H + G + g for values.
 */
static inline kvf__attn_rows kvf__attn_in_qkv(const kvf__attn *a, const kvf__attn_row *row,
                                              const void *base, int64_t slot, int64_t i)
{
    return (kvf__attn_rows){(void *)base, a->act, (row->start + i) * a->ld + slot * a->D, a->ld};
}

/* The same in out or dout. */
static inline kvf__attn_rows kvf__attn_in_out(const kvf__attn *a, const kvf__attn_row *row,
                                              const void *base, int64_t head, int64_t i)
{
    return (kvf__attn_rows){(void *)base, a->act, ((row->start + i) * a->H + head) * a->D,
                            a->H * a->D};
}

/* Keys or values (which = 1) of head g in shared segment s of a row, or of the row itself (s =
 * n_segs). */
static inline kvf__attn_rows kvf__attn_keys(const kvf__attn *a, const kvf__attn_row *row, int64_t g,
                                            int32_t s, int which)
{
    if (s == row->n_segs) return kvf__attn_in_qkv(a, row, a->qkv, a->H + which * a->G + g, 0);
    const kvf__kvseg *seg = &a->segs[row->seg[s]];
    return (kvf__attn_rows){(void *)(which ? seg->v : seg->k), seg->dtype, g * seg->head_stride,
                            seg->token_stride};
}

static inline int64_t kvf__attn_keys_len(const kvf__attn *a, const kvf__attn_row *row, int32_t s)
{
    if (s == row->n_segs) return a->crosses ? 0 : row->len;
    return a->segs[row->seg[s]].len;
}

/* Log-weights of head g's keys in shared segment s of a row (of its own: none); NULL: none. */
static inline const float *kvf__attn_log_weights(const kvf__attn *a, const kvf__attn_row *row,
                                                 int64_t g, int32_t s)
{
    if (s == row->n_segs) return NULL;
    const kvf__kvseg *seg = &a->segs[row->seg[s]];
    return seg->log_weight ? seg->log_weight + g * seg->len : NULL;
}

/* Keys of a row up to the end of its last segment with log-weights; 0: no segment has them. */
int64_t kvf__attn_weighted(const kvf__attn *attn, const kvf__attn_row *row);
/* Those of head g of these keys in one row, 0 in segments without: out [kvf__attn_weighted]. */
void kvf__attn_gather_log_weights(const kvf__attn *attn, const kvf__attn_row *row, int64_t g,
                                  float *out);

/* Keys that query i sees of `shared` and its row's own: a causal one its row up to itself. */
static inline int64_t kvf__attn_visible(const kvf__attn *a, const kvf__attn_row *row,
                                        int64_t shared, int64_t i)
{
    if (a->crosses) return shared;
    return shared + (a->causal ? i + 1 : row->len);
}

/* The first of them: those before it are outside its window. */
static inline int64_t kvf__attn_first_visible(const kvf__attn *a, int64_t shared, int64_t i)
{
    const int64_t first = shared + i + 1 - a->window;
    return a->causal && a->window && first > 0 ? first : 0;
}

/* Is key j among these, but too far from query i on either side? */
static inline bool kvf__attn_is_far(const kvf__attn *a, int64_t shared, int64_t i, int64_t j)
{
    const int64_t away = j - shared - i;
    return !a->causal && a->window && j >= shared && (away >= a->window || -away >= a->window);
}

static inline float *kvf__attn_lse(const kvf__attn *a, const kvf__attn_row *row, int64_t head,
                                   int64_t i)
{
    return &a->lse[head * a->N + row->start + i];
}

/* Tokens of the last segments, as far as those come right before the row's own. */
static inline int64_t kvf__attn_near(const kvf__attn *a, const kvf__attn_row *row)
{
    int64_t n = 0;
    for (int32_t s = row->n_segs; s > 0 && a->segs[row->seg[s - 1]].near; s--)
        n += a->segs[row->seg[s - 1]].len;
    return n;
}

/* What a distance i - j adds to the scores of a head. */
static inline float kvf__attn_bias(const kvf__attn *a, int64_t head, int64_t distance)
{
    const int64_t far = a->relative->most - 1;
    const int64_t d = distance > far ? far : distance < -far ? -far : distance;
    return a->relative->bias[a->relative->bucket[far + d] * a->H + head];
}

/* Sum of the lengths of a row's shared segments. */
int64_t kvf__attn_shared_len(const kvf__attn *attn, const kvf__attn_row *row);

/* Accumulator of segment `seg` for one part, [2, G, len, D] (0 = key, 1 = value); NULL if its
 * gradient is not wanted. */
float *kvf__attn_grad(const kvf__attn *attn, int part, int32_t seg);
/* The same of its log-weights, [G, len]. */
float *kvf__attn_log_weight_grad(const kvf__attn *attn, int part, int32_t seg);
/* Adds what an item found, d [kvf__attn_weighted] of head g, to a part's accumulators. */
void kvf__attn_add_log_weight_grads(const kvf__attn *attn, const kvf__attn_row *row, int64_t g,
                                    int part, const float *d);

/* ---- scratch and work ------------------------------------------------------------------------ */

static inline int64_t kvf__round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* A slot of scratch. */
static inline char *kvf__attn_scratch(const kvf__attn_plan *plan, int slot)
{
    return plan->scratch + plan->scratch_bytes * (size_t)slot;
}

/* Sum of the lengths of a row's shared segments. */
static inline int64_t kvf__attn_row_shared(const kvf__attn_plan *plan, const kvf__attn_row *row)
{
    int64_t n = 0;
    for (int32_t s = 0; s < row->n_segs; s++)
        n += plan->segs[row->seg[s]].len;
    return n;
}

/* Whole items to threads, cut where need be. */
void kvf__attn_deal(kvf__attn_plan *plan);

/* Blocks of the queries that are wanted of a row, for each head. */
static inline int64_t kvf__attn_blocks(const kvf__attn_row *row)
{
    return (row->len - row->first + KVF__ATTN_QUERIES - 1) / KVF__ATTN_QUERIES;
}

/* The next n floats of it. */
static inline float *kvf__attn_alloc(char **at, int64_t n)
{
    float *out = (float *)(void *)*at;
    *at += kvf__round_up(n * (int64_t)sizeof(float), 64);
    return out;
}

/* Calls item() for the items of each plan thread, in order, in parallel over plan threads. Of a cut
 * item the call for its last blocks comes after the other has returned, in the same scratch. With
 * grads, accumulators are zeroed before and added to the segments' dk and dv, in the order of
 * parts, after. */
typedef void kvf__attn_item_fn(const kvf__attn *attn, const kvf__attn_item *item);
void kvf__attn_run(const kvf__attn *attn, kvf__attn_item_fn *item, bool grads);

#endif
