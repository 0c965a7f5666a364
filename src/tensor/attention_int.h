/* Private to attention: contents of the plan, and functions shared by ref and the fast kernels.
 *
 * Threads are numbered by the plan, not by OpenMP. A smaller team runs several plan threads per
 * thread, so the assignment of sums to accumulators does not depend on the number of granted
 * threads. */
#ifndef KVF_ATTENTION_INT_H
#define KVF_ATTENTION_INT_H

#include "attention.h"

#include <stdatomic.h>

#define KVF__ATTN_QUERIES 64   /* maximum queries of a block: rows of scratch */
#define KVF__ATTN_KEYS    64   /* keys of a block in the backward pass */
#define KVF__ATTN_PAD     32   /* padding of D and key counts in scratch: a vector of bf16 */
#define KVF__ATTN_STATE   1024 /* bytes of scratch for a kernel's state of an item */

/* Target number of concurrent chains, each with accumulators of its own. The number of parts
 * follows from it and the key/value heads. */
enum { KVF__ATTN_CHAINS = 12 };

/* When a thread computes an item: the first items of a cut chain before all others, its last ones
 * after them. */
typedef enum kvf__attn_turn { KVF__ATTN_FIRST, KVF__ATTN_BETWEEN, KVF__ATTN_LAST } kvf__attn_turn;

/* A row and key/value head, or one of the two block ranges of a cut pair. */
typedef struct kvf__attn_item {
    int32_t row, head; /* row of the batch, key/value head */
    int32_t part;      /* index of its gradient accumulators; the same for all heads of a row */
    int32_t thread;
    kvf__attn_turn turn;
    int32_t slot;       /* scratch slot; both items of a cut pair share it */
    int32_t after;      /* number of items of the next thread that must be done before */
    int64_t begin, end; /* range of blocks of its query heads, one head after the other */
    int64_t cost;       /* cost of all of its blocks; set by kvf__attn_deal */
} kvf__attn_item;

struct kvf__attn_plan {
    kvf__attn_limits limits;
    int64_t G; /* key/value heads of the next calls */
    int threads;
    const kvf__attn_row *rows; /* rows of the last set */
    const kvf__kvseg *segs;    /* lengths only; pointers are given with each call */
    int64_t n_rows, n_segs;
    kvf__attn_item *items; /* [limits.rows * G + threads - 1], by thread and turn, longest first */
    int64_t n_items;
    int64_t *start;     /* [threads + 1] first item of each thread, and the end */
    atomic_int *done;   /* [threads] number of computed items */
    int parts;          /* depends on the limits only */
    int64_t *load;      /* [threads] assigned cost */
    int64_t *part_load; /* [parts] assigned cost of rows */
    int32_t *part;      /* [limits.rows] part of each row */
    int32_t *chain;     /* [parts][G] thread that begins the chain */
    char *scratch; /* [2 threads - 1][scratch_bytes], 64-byte aligned: scratch of each thread, then
                      of cut items */
    size_t scratch_bytes;
    float *grads;      /* [parts][grad_count] */
    size_t grad_count; /* G * grad_len * (2 * D + 1); 0 unless backward */
};

/* ---- where things are ------------------------------------------------------------------------ */

/* Rows of D elements; row i starts at element at + i * stride of base. Rows of outputs are written
 * through it. */
typedef struct kvf__attn_rows {
    void *base;
    kvf__dtype dtype;
    int64_t at, stride;
} kvf__attn_rows;

/* Returns rows from own token i on in qkv or dqkv. slot: a query head, or H + g for keys, H + G + g
 * for values. */
static inline kvf__attn_rows kvf__attn_in_qkv(const kvf__attn *a, const kvf__attn_row *row,
                                              const void *base, int64_t slot, int64_t i)
{
    return (kvf__attn_rows){(void *)base, a->act, (row->start + i) * a->ld + slot * a->D, a->ld};
}

/* Returns rows from own token i on in out or dout. */
static inline kvf__attn_rows kvf__attn_in_out(const kvf__attn *a, const kvf__attn_row *row,
                                              const void *base, int64_t head, int64_t i)
{
    return (kvf__attn_rows){(void *)base, a->act, ((row->start + i) * a->H + head) * a->D,
                            a->H * a->D};
}

/* Returns keys or values (which = 1) of head g in shared segment s of a row, or of its own tokens
 * (s = n_segs). */
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

/* Returns log-weights of head g's keys in shared segment s of a row; NULL: none, as for own
 * tokens. */
static inline const float *kvf__attn_log_weights(const kvf__attn *a, const kvf__attn_row *row,
                                                 int64_t g, int32_t s)
{
    if (s == row->n_segs) return NULL;
    const kvf__kvseg *seg = &a->segs[row->seg[s]];
    return seg->log_weight ? seg->log_weight + g * seg->len : NULL;
}

/* Returns the number of a row's keys up to the end of its last segment with log-weights; 0:
 * none. */
int64_t kvf__attn_weighted(const kvf__attn *attn, const kvf__attn_row *row);
/* Collects the log-weights of head g for these keys, 0 in segments without: out
 * [kvf__attn_weighted]. */
void kvf__attn_gather_log_weights(const kvf__attn *attn, const kvf__attn_row *row, int64_t g,
                                  float *out);

/* Returns the number of keys up to the last visible to query i: for a causal one those up to
 * itself. */
static inline int64_t kvf__attn_visible(const kvf__attn *a, const kvf__attn_row *row,
                                        int64_t shared, int64_t i)
{
    if (a->crosses) return shared;
    return shared + (a->causal ? i + 1 : row->len);
}

/* Returns the first visible key: earlier ones are outside the window. */
static inline int64_t kvf__attn_first_visible(const kvf__attn *a, int64_t shared, int64_t i)
{
    const int64_t first = shared + i + 1 - a->window;
    return a->causal && a->window && first > 0 ? first : 0;
}

/* Returns whether visible key j is outside the two-sided window of query i. */
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

/* Returns the number of tokens in the last segments that directly precede the row's own. */
static inline int64_t kvf__attn_near(const kvf__attn *a, const kvf__attn_row *row)
{
    int64_t n = 0;
    for (int32_t s = row->n_segs; s > 0 && a->segs[row->seg[s - 1]].near; s--)
        n += a->segs[row->seg[s - 1]].len;
    return n;
}

/* Returns the bias of a head for a distance i - j. */
static inline float kvf__attn_bias(const kvf__attn *a, int64_t head, int64_t distance)
{
    const int64_t far = a->relative->most - 1;
    const int64_t d = distance > far ? far : distance < -far ? -far : distance;
    return a->relative->bias[a->relative->bucket[far + d] * a->H + head];
}

/* Returns the total length of a row's shared segments. */
int64_t kvf__attn_shared_len(const kvf__attn *attn, const kvf__attn_row *row);

/* Returns a part's gradient accumulator of segment `seg`, [2, G, len, D] (0 = key, 1 = value); NULL
 * if it is not wanted. */
float *kvf__attn_grad(const kvf__attn *attn, int part, int32_t seg);
/* Returns the accumulator of its log-weights, [G, len]. */
float *kvf__attn_log_weight_grad(const kvf__attn *attn, int part, int32_t seg);
/* Adds an item's gradients of log-weights, d [kvf__attn_weighted] of head g, to a part's
 * accumulators. */
void kvf__attn_add_log_weight_grads(const kvf__attn *attn, const kvf__attn_row *row, int64_t g,
                                    int part, const float *d);

/* ---- scratch and work ------------------------------------------------------------------------ */

static inline int64_t kvf__round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* Returns a slot of scratch. */
static inline char *kvf__attn_scratch(const kvf__attn_plan *plan, int slot)
{
    return plan->scratch + plan->scratch_bytes * (size_t)slot;
}

/* Returns the total length of a row's shared segments. */
static inline int64_t kvf__attn_row_shared(const kvf__attn_plan *plan, const kvf__attn_row *row)
{
    int64_t n = 0;
    for (int32_t s = 0; s < row->n_segs; s++)
        n += plan->segs[row->seg[s]].len;
    return n;
}

/* Assigns whole items to threads, cut where necessary. */
void kvf__attn_deal(kvf__attn_plan *plan);

/* Returns the number of blocks of a row's wanted queries per head. */
static inline int64_t kvf__attn_blocks(const kvf__attn_row *row)
{
    return (row->len - row->first + KVF__ATTN_QUERIES - 1) / KVF__ATTN_QUERIES;
}

/* Takes the next n floats of scratch. */
static inline float *kvf__attn_alloc(char **at, int64_t n)
{
    float *out = (float *)(void *)*at;
    *at += kvf__round_up(n * (int64_t)sizeof(float), 64);
    return out;
}

/* Calls item() for the items of each plan thread in order, in parallel over plan threads. For a
 * cut item the call for its last blocks follows the other's return, with the same scratch. With
 * grads, accumulators are zeroed before and added to the segments' dk and dv in the order of
 * parts after. */
typedef void kvf__attn_item_fn(const kvf__attn *attn, const kvf__attn_item *item);
void kvf__attn_run(const kvf__attn *attn, kvf__attn_item_fn *item, bool grads);

#endif
