/* Private to src/pass: dropout of the base itself (pass_dropout.c). */
#ifndef KVF_PASS_DROPOUT_H
#define KVF_PASS_DROPOUT_H

#include "attention.h"
#include "dropout.h"
#include "model_priv.h"
#include "rng.h"

struct kvf__pass;

/* Carved from the pass's arena if its limits include it. */
typedef struct kvf__pass_dropout {
    kvf__rng *stream;      /* [limits.rows] stream of each row's masks */
    kvf__rng *attn_stream; /* [limits.rows] streams for attention */
    int32_t *row;          /* [Mx] row of each token */
    kvf__dropout rate;
    kvf__attn_drop attn; /* dropout of the current layer's attention */
    bool active;         /* active in this batch */
} kvf__pass_dropout;

/* Dropout of the base (pass_dropout.c). Takes it from the input. Adds a half under its mask to x.
 * Computes the gradient of a half's output, f32 and (*dy) in the activation type, from that of the
 * stream, which it equals without dropout. Masks x [tokens, C] for embeddings, and backward dx and
 * dxhat. */
kvf_status kvf__pass_set_base_dropout(kvf_ctx *ctx, struct kvf__pass *pass,
                                      const kvf__input *input);
void kvf__pass_drop_fwd(struct kvf__pass *pass, int64_t l, kvf__half half, float *x);
/* Returns the dropout of layer l's probabilities, valid until the next call; NULL: none. */
const kvf__attn_drop *kvf__pass_attn_drop(struct kvf__pass *pass, int64_t l);
const float *kvf__pass_drop_bwd(struct kvf__pass *pass, int64_t l, kvf__half half, const float *dx,
                                int64_t M, const void **dy);
void kvf__pass_drop_embedding(struct kvf__pass *pass);
void kvf__pass_drop_embedding_bwd(struct kvf__pass *pass);

#endif
