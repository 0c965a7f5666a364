/* Gates on attention's output (Qwen3.5): out(att * sigmoid(gate)), with the gates [H, D] of a token
 * after its values in qkv. The kernels of attention need att itself, so the product is separate. */
#include "pass_mixer.h"
#include "pass_priv.h"

#include <omp.h>

/* One token in f32, in a thread's scratch memory: [HD] each. */
typedef struct token {
    float *gate, *att, *d; /* gate: its sigmoid */
} token;

/* Returns the gates of token i in rows like qkv. */
static void *gate_at(const kvf__pass *pass, int64_t l, void *qkv, int64_t i, int64_t HD)
{
    const int64_t J = kvf__qkv_width(&pass->model->desc, l);
    return kvf__act_row(pass->model->act, qkv, (i + 1) * J - HD, 1);
}

static token read_token(const kvf__pass *pass, int64_t l, int64_t i, int64_t HD)
{
    const kvf__kept *keep = &pass->kept[l];
    float *own = pass->mixer.token + omp_get_thread_num() * 3 * HD;
    const token t = {own, own + HD, own + 2 * HD};

    kvf__to_f32(pass->model->act, gate_at(pass, l, keep->qkv, i, HD), t.gate, HD);
    kvf__to_f32(pass->model->act, kvf__act_row(pass->model->act, keep->att, i, HD), t.att, HD);
    for (int64_t c = 0; c < HD; c++)
        t.gate[c] = kvf__sigmoid(t.gate[c]);
    return t;
}

const void *kvf__pass_gate_fwd(kvf__pass *pass, int64_t l)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__dtype act = pass->model->act;
    const int64_t HD = d->H * d->D, N = pass->batch->n_tokens;

    if (!d->block.out_gate || kvf__layer_mixes(d, l)) return pass->kept[l].att;
#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t i = 0; i < N; i++) {
        const token t = read_token(pass, l, i, HD);
        for (int64_t c = 0; c < HD; c++)
            t.att[c] *= t.gate[c];
        kvf__from_f32(act, t.att, kvf__act_row(act, pass->mixer.gated, i, HD), HD);
    }
    kvf__pass_clear_padding(pass, pass->mixer.gated, HD);
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
        const token t = read_token(pass, l, i, HD);
        void *datt = kvf__act_row(act, pass->bwd.datt, i, HD);
        kvf__to_f32(act, datt, t.d, HD);
        for (int64_t c = 0; c < HD; c++) {
            t.att[c] *= t.d[c] * t.gate[c] * (1 - t.gate[c]);
            t.d[c] *= t.gate[c];
        }
        kvf__from_f32(act, t.d, datt, HD);
        if (gates) kvf__from_f32(act, t.att, gate_at(pass, l, pass->bwd.dqkv, i, HD), HD);
    }
    kvf__pass_lap(pass, KVF__PART_ATTN_BWD);
}
