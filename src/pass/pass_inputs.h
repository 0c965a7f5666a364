/* Inside src/pass: what a layer reads of a token besides the stream, and the scale of what it
 * leaves (pass_inputs.c). */
#ifndef KVF_PASS_INPUTS_H
#define KVF_PASS_INPUTS_H

#include "model_priv.h"

struct kvf__pass;

/* Of every token and layer, [Mx, L, I], carved from the pass's arena; NULL: there are none. */
typedef struct kvf__pass_inputs {
    float *all;
} kvf__pass_inputs;

/* One layer's input of a token: to [I], which is the projection of its embedding; of_token: its
 * layer's part of the table's row. */
void kvf__finish_input(const kvf__model *model, float *to, const float *of_token);
/* Makes them of the embeddings, which are in fwd.x. */
kvf_status kvf__pass_make_inputs(kvf_ctx *ctx, struct kvf__pass *pass);
/* x [M, C] += norm(down(act(gate(x)) * input)), then x *= scale; each where the base has it. */
kvf_status kvf__pass_input_fwd(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l, float *x,
                               int64_t M);
/* Undoes it for dx and its copy; inputs are frozen. */
kvf_status kvf__pass_input_bwd(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l, float *dx,
                               void *dx_act, int64_t M);

#endif
