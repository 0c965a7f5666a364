/* Private to src/pass: the two stacks of an encoder-decoder in one pass (pass_source.c). The
 * encoder runs on the source of a batch, then the decoder on the batch itself. Keys and values of
 * cross-attention are computed from the encoder's states. */
#ifndef KVF_PASS_SOURCE_H
#define KVF_PASS_SOURCE_H

#include "names.h"

#include "model_priv.h"

struct kvf__pass;
struct kvf__kvseg;

/* Carved from the pass's arena; Sx = padded limits.source_tokens. */
typedef struct kvf__pass_source {
    const kvf__batch *target; /* batch of the input; its source may be NULL */
    int64_t M;                /* padded rows of the source */
    bool wanted;              /* this backward pass needs the encoder's gradients */
    void *states;             /* act [Sx, C] the encoder's states, normed */
    float *rstd;              /* [Sx] rstd of that norm */
    float *dstates;           /* [Sx, C] their gradient */
    float *dkv;               /* [Sx, 2GD] gradient of keys and values of the current layer */
    void *dkv_act;            /* in the activation type; the same memory for f32 */
} kvf__pass_source;

/* EUSAGE, ESHAPE: the input's source does not fit this base, or exceeds the limits. */
kvf_status kvf__pass_check_source(kvf_ctx *ctx, const struct kvf__pass *pass,
                                  const kvf__input *input);
/* Return whether the current batch is the source; the embedding parameters of its stack. */
bool kvf__pass_in_encoder(const struct kvf__pass *pass);
const kvf__embed_stack *kvf__pass_embed(const struct kvf__pass *pass);
/* Returns the first layer of the input's forward pass. */
int64_t kvf__pass_first_layer(const struct kvf__pass *pass);
/* Switches stacks before layer l, the first of a stack in this pass: its rows become the batch, and
 * the encoder's states are complete. */
void kvf__pass_set_stack(struct kvf__pass *pass, int64_t l);
/* Cross-attention in layer l: computes keys and values, into the cache if there is one; returns the
 * segment of row r. gradient: into dkv. */
kvf_status kvf__pass_source_kv(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l);
struct kvf__kvseg kvf__pass_source_segment(const struct kvf__pass *pass, int64_t l, int64_t r,
                                           bool gradient);
/* Backward: begins a pass down to a layer; computes dstates from dkv of layer l; switches from the
 * decoder's first layer to the encoder's last. */
void kvf__pass_source_bwd_begin(struct kvf__pass *pass, int64_t lowest);
kvf_status kvf__pass_source_kv_bwd(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l);
void kvf__pass_leave_decoder(struct kvf__pass *pass);

/* Cache of a source. Replace the slots' keys and values of cross-attention in layer l, [tokens,
 * 2GD]; return the number of a slot's source tokens; return their segment. */
void kvf__cache_put_source(kvf__cache *cache, int64_t l, const kvf__batch *source,
                           const int32_t *slot, const void *kv);
int64_t kvf__cache_source(const kvf__cache *cache, int64_t slot);
struct kvf__kvseg kvf__cache_source_segment(const kvf__cache *cache, int64_t l, int64_t slot);

/* Returns the columns of a layer's qkv. */
static inline int64_t kvf__qkv_width(const kvf__desc *d, int64_t l)
{
    return kvf__shape_size(d, l, kvf__layer_place(d, l) == KVF__PLACE_CROSS ? "HD" : "J");
}

#endif
