/* Private to src/pass: inputs of layers besides the stream, and the scale of their output
 * (pass_inputs.c). */
#ifndef KVF_PASS_INPUTS_H
#define KVF_PASS_INPUTS_H

#include "model_priv.h"

struct kvf__pass;

/* Inputs of every token and layer, [Mx, L, I], carved from the pass's arena; NULL: none. */
typedef struct kvf__pass_inputs {
    float *all;
} kvf__pass_inputs;

/* Completes one layer's input of a token. to [I]: the projection of its embedding on entry;
 * of_token: the layer's part of the table row. */
void kvf__finish_input(const kvf__model *model, float *to, const float *of_token);
/* Computes the inputs from the embeddings in fwd.x. */
kvf_status kvf__pass_make_inputs(kvf_ctx *ctx, struct kvf__pass *pass);
/* Computes x [M, C] += norm(down(act(gate(x)) * input)), then x *= scale, each if the base has
 * it. */
kvf_status kvf__pass_input_fwd(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l, float *x,
                               int64_t M);
/* Backward for dx and its copy; inputs are frozen. */
kvf_status kvf__pass_input_bwd(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l, float *dx,
                               void *dx_act, int64_t M);

#endif
