/* Private to src/pass: per-row copies of the prefix, under a mask (pass_row_prefix.c) or rotated to
 * its place inside the row (pass_infix.c). */
#ifndef KVF_PASS_ROWS_H
#define KVF_PASS_ROWS_H

#include "dropout.h"
#include "model_priv.h"
#include "rng.h"

struct kvf__pass;
struct kvf__kvseg;

/* Carved from the pass's arena, if its limits include row dropout or infix. */
typedef struct kvf__pass_rows {
    float *kv;        /* [limits.rows, 2, G, P, D] copies of a layer's prefix */
    float *dkv;       /* their gradient, backward only */
    kvf__rng *stream; /* [limits.rows] stream of each row's masks */
    kvf__dropout rate;
    bool drops;   /* this batch has row dropout */
    bool rotates; /* this batch has a prefix inside its rows, rotated for each by rope */
} kvf__pass_rows;

/* The prefix inside rows (pass_infix.c): takes it from the input; fills row_kv for layer l (and
 * zeroes row_dkv); adds the rows' gradients to dprefix. */
kvf_status kvf__pass_set_infix(kvf_ctx *ctx, struct kvf__pass *pass, const kvf__input *input);
void kvf__pass_rotate_rows(struct kvf__pass *pass, int64_t l, bool gradient);
void kvf__pass_collect_rotated(struct kvf__pass *pass, int64_t l, kvf__prefix *dprefix);
/* Returns the positions by which the prefix inside row r moves its tokens. */
int64_t kvf__infix_shift(const kvf__batch *batch, const kvf__prefix *prefix, int64_t r);

/* Row dropout (pass_row_prefix.c). Takes it from the input. Fills row_kv for layer l (and zeroes
 * row_dkv). Returns the prefix segment of row r, given that of all. Adds the rows' gradients to
 * dprefix. */
kvf_status kvf__pass_set_row_dropout(kvf_ctx *ctx, struct kvf__pass *pass, const kvf__input *input);
void kvf__pass_mask_rows(struct kvf__pass *pass, int64_t l, bool gradient);
struct kvf__kvseg kvf__pass_row_segment(const struct kvf__pass *pass, struct kvf__kvseg prefix,
                                        int64_t l, int64_t r);
void kvf__pass_collect_rows(struct kvf__pass *pass, int64_t l, kvf__prefix *dprefix);

#endif
