/* Inside src/pass: the two stacks of an encoder-decoder in one pass (pass_source.c). The encoder
 * runs on the source of a batch, then the decoder on the batch itself; cross-attention's keys and
 * values are made of the encoder's states. */
#ifndef KVF_PASS_SOURCE_H
#define KVF_PASS_SOURCE_H

#include "model_priv.h"

struct kvf__pass;
struct kvf__kvseg;

/* Carved from the pass's arena; Sx = padded limits.source_tokens. */
typedef struct kvf__pass_source {
    const kvf__batch *target; /* of the input; its source may be NULL */
    int64_t M;                /* padded rows of the source */
    bool wanted;              /* in this backward pass: the encoder's gradients */
    void *states;             /* act [Sx, C] the encoder's, normed */
    float *rstd;              /* [Sx] of that norm */
    float *dstates;           /* [Sx, C] their gradient */
    float *dkv;               /* [Sx, 2GD] that of keys and values of the layer at hand */
    void *dkv_act;            /* the same in the act type; the same memory where that is f32 */
} kvf__pass_source;

/* EUSAGE, ESHAPE: the input's source is not one for this base, or over the limits. */
kvf_status kvf__pass_check_source(kvf_ctx *ctx, const struct kvf__pass *pass,
                                  const kvf__input *input);
/* Is the batch at hand the source? What its stack does with embeddings. */
bool kvf__pass_in_encoder(const struct kvf__pass *pass);
const kvf__embed_stack *kvf__pass_embed(const struct kvf__pass *pass);
/* The layer with which the input's forward pass begins. */
int64_t kvf__pass_first_layer(const struct kvf__pass *pass);
/* Before layer l, the first of a stack in this pass: its rows become the batch; the encoder's
 * states are then complete. */
void kvf__pass_set_stack(struct kvf__pass *pass, int64_t l);
/* Keys and values of cross-attention in layer l, which go to the cache where there is one; the
 * segment of row r. gradient: into dkv. */
kvf_status kvf__pass_source_kv(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l);
struct kvf__kvseg kvf__pass_source_segment(const struct kvf__pass *pass, int64_t l, int64_t r,
                                           bool gradient);
/* Back: begins a pass down to a layer; dkv of layer l to dstates; from the decoder's first layer to
 * the encoder's last. */
void kvf__pass_source_bwd_begin(struct kvf__pass *pass, int64_t lowest);
kvf_status kvf__pass_source_kv_bwd(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l);
void kvf__pass_leave_decoder(struct kvf__pass *pass);

/* Of a cache: keys and values of a source, [tokens, 2GD] of cross-attention in layer l, in place of
 * what the slots had; how many tokens a slot has of one; and what attention reads of it. */
void kvf__cache_put_source(kvf__cache *cache, int64_t l, const kvf__batch *source,
                           const int32_t *slot, const void *kv);
int64_t kvf__cache_source(const kvf__cache *cache, int64_t slot);
struct kvf__kvseg kvf__cache_source_segment(const kvf__cache *cache, int64_t l, int64_t slot);

/* Columns of a layer's qkv. */
static inline int64_t kvf__qkv_width(const kvf__desc *d, int64_t l)
{
    const kvf__layer_shape layer = kvf__desc_layer(d, l);
    const bool cross = kvf__layer_place(d, l) == KVF__PLACE_CROSS;
    return (cross ? d->H : d->H + 2 * layer.G) * layer.D;
}

#endif
