/* Private to src/pass: virtual neurons in a pass (pass_neurons.c). */
#ifndef KVF_PASS_NEURONS_H
#define KVF_PASS_NEURONS_H

#include "model_priv.h"

struct kvf__pass;

/* Values that a layer keeps for its backward pass, f32 [M, limits.neurons]; last layer: labelled
 * rows only. NULL: none. */
typedef struct kvf__neurons_kept {
    float *fac1, *fac2; /* fn'(h), or the two factors of glu_fwd */
    float *g;           /* output of the activation */
} kvf__neurons_kept;

/* Working memory, carved from the pass's arena; N = limits.neurons. */
typedef struct kvf__pass_neurons {
    float *keys;  /* [2 N, C] keys with a folded norm's gamma */
    float *bias;  /* [2 N] the biases, with a folded norm's beta */
    float *dkeys; /* [N, C] */
    double *sums; /* [N] */
    float *dg;    /* [3, Rx, N] gradients of g and of both keys' products; [Rx, N] without gate */
    float *src;   /* [Rx, C] f32 copy of the products' input, then its gradient; NULL for f32 */
} kvf__pass_neurons;

/* True if layer l has neurons for any row. */
bool kvf__pass_has_neurons(const struct kvf__pass *pass, int64_t l);
/* True if the norm before the feed-forward products of layer l is folded into them. */
static inline bool kvf__neurons_fold(const kvf__model *model, int64_t l)
{
    return model->layers[l].folded_gamma != NULL;
}
/* Adds the neurons' output for src, the input of the feed-forward products, to that of the block's
 * own. x: the stream. */
kvf_status kvf__pass_neurons_fwd(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l, const void *src,
                                 float *x);
/* Adds the neurons' gradients, and that of their input to bwd.dxhat. dy [M, C]: gradient of the
 * output. */
kvf_status kvf__pass_neurons_bwd(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l, const float *dy);

#endif
