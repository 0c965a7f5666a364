/* Gates on attention's output (Qwen3.5): out(att * sigmoid(gate)), with the gates [H, D] of a token
 * after its values in qkv. The kernels of attention need att itself, so the product is separate. */
#include "pass_mixer.h"
#include "pass_priv.h"

#include <math.h>
#include <string.h>

/* One token's arrays. */
typedef struct token {
    char *gate, *att;
} token;

static token token_at(const kvf__pass *pass, int64_t l, void *qkv, int64_t i)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__dtype act = pass->model->act;
    const int64_t J = kvf__qkv_width(d, l), HD = d->H * d->D;

    return (token){kvf__act_row(act, qkv, i * J + J - HD, 1),
                   kvf__act_row(act, pass->kept[l].att, i, HD)};
}

static float get(kvf__dtype act, const char *at, int64_t i)
{
    float value;

    kvf__to_f32(act, at + (size_t)i * kvf__act_size(act), &value, 1);
    return value;
}

static void set(kvf__dtype act, char *at, int64_t i, float value)
{
    kvf__from_f32(act, &value, at + (size_t)i * kvf__act_size(act), 1);
}

const void *kvf__pass_gate_fwd(kvf__pass *pass, int64_t l)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__dtype act = pass->model->act;
    const int64_t HD = d->H * d->D, N = pass->batch->n_tokens;

    if (!d->block.out_gate || kvf__layer_mixes(d, l)) return pass->kept[l].att;
#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t i = 0; i < N; i++) {
        const token at = token_at(pass, l, pass->kept[l].qkv, i);
        char *out = kvf__act_row(act, pass->mixer.gated, i, HD);
        for (int64_t c = 0; c < HD; c++)
            set(act, out, c, get(act, at.att, c) / (1 + expf(-get(act, at.gate, c))));
    }
    memset(kvf__act_row(act, pass->mixer.gated, N, HD), 0,
           (size_t)((pass->M - N) * HD) * kvf__act_size(act));
    kvf__pass_lap(pass, KVF__PART_ATTN);
    return pass->mixer.gated;
}

void kvf__pass_gate_bwd(kvf__pass *pass, int64_t l, bool gates)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__dtype act = pass->model->act;
    const int64_t HD = d->H * d->D;

    if (!d->block.out_gate || kvf__layer_mixes(d, l)) return;
#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t i = 0; i < pass->batch->n_tokens; i++) {
        const token at = token_at(pass, l, pass->kept[l].qkv, i);
        const token d_at = token_at(pass, l, pass->bwd.dqkv, i);
        char *datt = kvf__act_row(act, pass->bwd.datt, i, HD);
        for (int64_t c = 0; c < HD; c++) {
            const float s = 1 / (1 + expf(-get(act, at.gate, c))), dy = get(act, datt, c);
            if (gates) set(act, d_at.gate, c, dy * get(act, at.att, c) * s * (1 - s));
            set(act, datt, c, dy * s);
        }
    }
    kvf__pass_lap(pass, KVF__PART_ATTN_BWD);
}
