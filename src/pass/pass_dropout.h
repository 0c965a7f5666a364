/* Inside src/pass: dropout of the base itself (pass_dropout.c). */
#ifndef KVF_PASS_DROPOUT_H
#define KVF_PASS_DROPOUT_H

#include "attention.h"
#include "dropout.h"
#include "model_priv.h"
#include "rng.h"

struct kvf__pass;

/* Carved from the pass's arena, if its limits ask for it. */
typedef struct kvf__pass_dropout {
    kvf__rng *stream;      /* [limits.rows] where each row's masks are drawn from */
    kvf__rng *attn_stream; /* and those of its attention */
    int32_t *row;          /* [Mx] row of each token */
    kvf__dropout rate;
    kvf__attn_drop attn; /* of the layer at hand */
    bool active;         /* this batch has it */
} kvf__pass_dropout;

/* Dropout of the base (pass_dropout.c): takes it from the input; x += half under its mask; the
 * gradient of what a half added, f32 and (*dy) in the act type, given that of the stream, which it
 * is without dropout; x [tokens, C] under the mask of embeddings, and back on dx and dxhat. */
kvf_status kvf__pass_set_base_dropout(kvf_ctx *ctx, struct kvf__pass *pass,
                                      const kvf__input *input);
void kvf__pass_drop_fwd(struct kvf__pass *pass, int64_t l, kvf__half half, float *x);
/* Of layer l's probabilities, until the next call; NULL: they stay whole. */
const kvf__attn_drop *kvf__pass_attn_drop(struct kvf__pass *pass, int64_t l);
const float *kvf__pass_drop_bwd(struct kvf__pass *pass, int64_t l, kvf__half half, const float *dx,
                                int64_t M, const void **dy);
void kvf__pass_drop_embedding(struct kvf__pass *pass);
void kvf__pass_drop_embedding_bwd(struct kvf__pass *pass);

#endif
