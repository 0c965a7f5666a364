/* Layers that read the keys and values of an earlier one (Gemma 4's num_kv_shared_layers).
 *
 * The rotated keys and values of the earlier layer are kept separately, [N, 2 G D], because layers
 * may share memory. A layer that reads them gets them copied to its own place, so attention needs
 * no special case. Backward, the gradients of all readers are summed in f32 in descending order of
 * layers, and passed to the layer that owns the keys and values. */
#include "pass_priv.h"

#include <string.h>

/* Offset of the keys in a token's qkv, and the number of key and value channels. */
typedef struct part {
    int64_t width, first, n;
} part;

static part part_of(const kvf__pass *pass, int64_t l)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__layer_shape layer = kvf__desc_layer(d, l);
    const int64_t n = 2 * layer.G * layer.D, first = d->H * layer.D;

    return (part){first + n, first, n};
}

static bool is_read(const kvf__desc *d, int64_t l)
{
    for (int64_t later = l + 1; d->by_layer.shape && later < d->L; later++)
        if (d->by_layer.shape[later].from == l) return true;
    return false;
}

void kvf__pass_lay_shared(kvf__pass *pass, kvf__carver *carve, int64_t M)
{
    const kvf__desc *d = &pass->model->desc;
    kvf__pass_shared *shared = &pass->shared;

    if (!d->by_layer.shape) return;
    shared->kv = kvf__carve(carve, d->L, 1, sizeof *shared->kv);
    shared->dkv = kvf__carve(carve, d->L, 1, sizeof *shared->dkv);
    for (int64_t l = 0; l < d->L; l++) {
        if (!is_read(d, l)) continue;
        const int64_t n = part_of(pass, l).n;
        void *kv = kvf__carve(carve, M, n, kvf__act_size(pass->model->act));
        float *dkv = pass->limits.backward ? kvf__carve(carve, M, n, sizeof(float)) : NULL;
        if (!shared->kv) continue;
        shared->kv[l] = kv;
        shared->dkv[l] = dkv;
    }
}

void kvf__pass_shared_fwd(kvf__pass *pass, int64_t l)
{
    const kvf__dtype act = pass->model->act;
    const int64_t from = kvf__desc_layer(&pass->model->desc, l).from;
    const part p = part_of(pass, l);
    void *kv = pass->shared.kv ? pass->shared.kv[from] : NULL;

    for (int64_t i = 0; kv && i < pass->batch->n_tokens; i++) {
        void *own = kvf__act_row(act, pass->kept[l].qkv, i * p.width + p.first, 1);
        void *other = kvf__act_row(act, kv, i, p.n);
        memcpy(from == l ? other : own, from == l ? own : other, (size_t)p.n * kvf__act_size(act));
    }
}

void kvf__pass_shared_begin_bwd(kvf__pass *pass)
{
    for (int64_t l = 0; pass->shared.kv && l < pass->model->desc.L; l++)
        if (pass->shared.kv[l])
            memset(pass->shared.dkv[l], 0,
                   (size_t)(pass->batch->n_tokens * part_of(pass, l).n) * sizeof(float));
}

void kvf__pass_shared_bwd(kvf__pass *pass, int64_t l)
{
    const kvf__dtype act = pass->model->act;
    const int64_t from = kvf__desc_layer(&pass->model->desc, l).from;
    const part p = part_of(pass, l);
    float *sum = pass->shared.kv ? pass->shared.dkv[from] : NULL;

    for (int64_t i = 0; sum && i < pass->batch->n_tokens; i++) {
        char *own = kvf__act_row(act, pass->bwd.dqkv, i * p.width + p.first, 1);
        for (int64_t c = 0; c < p.n; c++) {
            float d;
            kvf__to_f32(act, own + (size_t)c * kvf__act_size(act), &d, 1);
            sum[i * p.n + c] += d;
        }
        if (from == l) kvf__from_f32(act, sum + i * p.n, own, p.n);
    }
}
