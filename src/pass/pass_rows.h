/* Inside src/pass: a prefix that each row sees in its own way, under a mask of its own
 * (pass_row_prefix.c) or rotated to its place inside the row (pass_infix.c). */
#ifndef KVF_PASS_ROWS_H
#define KVF_PASS_ROWS_H

#include "dropout.h"
#include "model_priv.h"
#include "rng.h"

struct kvf__pass;
struct kvf__kvseg;

/* Carved from the pass's arena, if its limits ask for dropout by rows or infix. */
typedef struct kvf__pass_rows {
    float *kv;        /* [limits.rows, 2, G, P, D] a layer's prefix as each row sees it */
    float *dkv;       /* its gradient, backward only */
    kvf__rng *stream; /* [limits.rows] where each row's masks are drawn from */
    kvf__dropout rate;
    bool drops;   /* this batch has dropout by rows */
    bool rotates; /* this batch has a prefix inside its rows, which rope turns for each */
} kvf__pass_rows;

/* The prefix inside rows (pass_infix.c): takes it from the input; fills row_kv for layer l of it
 * (and zeroes row_dkv); adds the rows' gradients to dprefix. */
kvf_status kvf__pass_set_infix(kvf_ctx *ctx, struct kvf__pass *pass, const kvf__input *input);
void kvf__pass_rotate_rows(struct kvf__pass *pass, int64_t l, bool gradient);
void kvf__pass_collect_rotated(struct kvf__pass *pass, int64_t l, kvf__prefix *dprefix);
/* Positions by which the prefix inside row r moves its tokens. */
int64_t kvf__infix_shift(const kvf__batch *batch, const kvf__prefix *prefix, int64_t r);

/* Dropout by rows (pass_row_prefix.c): takes it from the input; fills row_kv for layer l (and
 * zeroes row_dkv); the prefix segment of row r, given that of all; adds the rows' gradients to
 * dprefix. */
kvf_status kvf__pass_set_row_dropout(kvf_ctx *ctx, struct kvf__pass *pass, const kvf__input *input);
void kvf__pass_mask_rows(struct kvf__pass *pass, int64_t l, bool gradient);
struct kvf__kvseg kvf__pass_row_segment(const struct kvf__pass *pass, struct kvf__kvseg prefix,
                                        int64_t l, int64_t r);
void kvf__pass_collect_rows(struct kvf__pass *pass, int64_t l, kvf__prefix *dprefix);

#endif
