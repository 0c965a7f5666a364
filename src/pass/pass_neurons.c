/* Virtual neurons in a pass (neurons.h): plain f32 products beside those of the block.
 *
 * They are a few percent of a layer, and their values change in every step, so they are not packed.
 * Each section of a batch has neurons of its own. In frozen pre-norm blocks the products read xhat,
 * so gamma and beta of the norm are folded into the keys here as they are into the block's matrix
 * (pack.c). */
#include "pass_neurons.h"
#include "matmul.h"
#include "pass_priv.h"

#include <string.h>

enum { STRIP = 64, PARALLEL = 1 << 14 };

/* The neurons of a section in one layer, and its rows. */
typedef struct part {
    kvf__neurons_layer own;
    int64_t N, first, n;
    int keys; /* number of keys of a neuron: 1, with a gate 2 */
    float *fac1, *fac2, *g;
    const float *bias[2]; /* NULL: none */
} part;

/* ---- sections -------------------------------------------------------------------------------- */

static bool section_has(const kvf__pass_section *s, int64_t l)
{
    return s->neurons && s->neurons->layer_mask[l];
}

bool kvf__pass_has_neurons(const kvf__pass *pass, int64_t l)
{
    for (int64_t i = 0; i < pass->sections.n; i++)
        if (section_has(&pass->sections.at[i], l)) return true;
    return false;
}

/* Sets the rows of a section in layer l: tokens, or labels of the last layer. */
static void set_rows(const kvf__pass *pass, int64_t l, const kvf__pass_section *s, part *p)
{
    const kvf__batch *b = pass->batch;
    int64_t first = b->start[s->first], end = b->start[s->end];

    if (l == pass->model->desc.L - 1) {
        int64_t from = 0, to;
        while (from < b->n_labels && b->label_at[from] < first)
            from++;
        for (to = from; to < b->n_labels && b->label_at[to] < end;)
            to++;
        first = from;
        end = to;
    }
    p->first = first;
    p->n = end - first;
}

static part part_of(const kvf__pass *pass, int64_t l, const kvf__pass_section *s)
{
    const kvf__neurons_kept *kept = &pass->kept[l].neurons;
    part p = {.own = kvf__neurons_at(s->neurons, l), .N = s->neurons->shape.N};

    set_rows(pass, l, s, &p);
    const int64_t at = p.first * pass->limits.neurons;
    p.keys = p.own.up ? 2 : 1;
    p.fac1 = kept->fac1 + at;
    p.fac2 = p.own.up ? kept->fac2 + at : NULL;
    p.g = kept->g + at;
    return p;
}

/* ---- keys with a folded norm ----------------------------------------------------------------- */

/* Replaces the keys of a part by those that act on the products' input. */
static void fold_keys(kvf__pass *pass, int64_t l, part *p)
{
    const kvf__layer *layer = &pass->model->layers[l];
    const float *gamma = layer->folded_gamma, *beta = layer->folded_beta;
    const int64_t C = pass->model->desc.C;
    float *keys = pass->neurons.keys, *bias = pass->neurons.bias;

    p->bias[0] = p->own.bias;
    if (!gamma) return;
    for (int64_t i = 0; i < p->keys * p->N; i++) {
        const float *from = i < p->N ? p->own.key + i * C : p->own.up + (i - p->N) * C;
        double sum = p->own.bias ? (double)p->own.bias[i] : 0;
        for (int64_t c = 0; c < C; c++)
            keys[i * C + c] = from[c] * gamma[c];
        for (int64_t c = 0; beta && c < C; c++)
            sum += (double)from[c] * (double)beta[c];
        bias[i] = (float)sum;
    }
    p->own.key = keys;
    if (p->own.up) p->own.up = keys + p->N * C;
    for (int i = 0; beta && i < p->keys; i++)
        p->bias[i] = bias + i * p->N;
}

/* Adds the gradients of keys that act on the products' input, dkeys and dh [n, N], to those of the
 * keys. */
static void unfold_gradient(const kvf__pass *pass, int64_t l, const float *dkeys,
                            const double *dbias, float *into, int64_t N)
{
    const kvf__layer *layer = &pass->model->layers[l];
    const float *gamma = layer->folded_gamma, *beta = layer->folded_beta;
    const int64_t C = pass->model->desc.C;

    for (int64_t i = 0; i < N; i++)
        for (int64_t c = 0; c < C; c++)
            into[i * C + c] += dkeys[i * C + c] * (gamma ? gamma[c] : 1) +
                               (beta ? (float)(dbias[i] * (double)beta[c]) : 0);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Sets h [n, N] = src key^T + bias. */
static kvf_status product(kvf_ctx *ctx, const part *p, const float *src, const float *key,
                          const float *bias, int64_t C, float *h)
{
    for (int64_t i = 0; bias && i < p->n; i++)
        memcpy(h + i * p->N, bias, (size_t)p->N * sizeof *h);
    return kvf__sgemm(ctx, false, true, p->n, p->N, C, src, C, key, C, bias ? 1 : 0, h, p->N);
}

/* Returns the kept input of the feed-forward products. */
static const void *kept_input(const kvf__pass *pass, int64_t l)
{
    return kvf__neurons_fold(pass->model, l) ? pass->kept[l].xhat2 : pass->kept[l].in2;
}

/* Returns rows of the products' input in f32. */
static const float *input_rows(const kvf__pass *pass, const void *src, const part *p)
{
    const kvf__model *m = pass->model;
    const int64_t C = m->desc.C;
    const void *from = kvf__act_row(m->act, (void *)src, p->first, C);

    if (m->act == KVF__F32) return from;
    m->kernels->to_f32(m->act, pass->neurons.src, from, p->n * C);
    return pass->neurons.src;
}

static kvf_status part_fwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, part *p, const void *src,
                           float *to)
{
    const kvf__model *m = pass->model;
    const int64_t C = m->desc.C;

    fold_keys(pass, l, p);
    const float *x = input_rows(pass, src, p);
    KVF_TRY(product(ctx, p, x, p->own.key, p->bias[0], C, p->fac1));
    if (p->own.up) KVF_TRY(product(ctx, p, x, p->own.up, p->bias[1], C, p->fac2));
    kvf__model_activate(m, KVF__F32, p->fac1, p->fac2, p->g, p->n * p->N);
    if (!to) return KVF_OK;
    return kvf__sgemm(ctx, false, false, p->n, C, p->N, p->g, p->N, p->own.value, C, 1,
                      to + p->first * C, C);
}

kvf_status kvf__pass_neurons_fwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, const void *src,
                                 float *x)
{
    const bool apart = pass->drop.active || pass->model->layers[l].out_gamma[KVF__HALF_FFN];
    const bool ends = pass->again.now && !pass->model->desc.block.post_norm && !apart;

    if (!kvf__pass_has_neurons(pass, l)) return KVF_OK;
    for (int64_t i = 0; i < pass->sections.n; i++) {
        if (!section_has(&pass->sections.at[i], l)) continue;
        part p = part_of(pass, l, &pass->sections.at[i]);
        if (p.n) KVF_TRY(part_fwd(ctx, pass, l, &p, src, ends ? NULL : apart ? pass->fwd.half : x));
    }
    kvf__pass_lap(pass, KVF__PART_FFN);
    return KVF_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Sets sums [N] to the sums over rows of d [n, N]. */
static void sum_rows(const part *p, const float *d, double *sums)
{
#pragma omp parallel for schedule(static) if (p->n * p->N > PARALLEL)
    for (int64_t from = 0; from < p->N; from += STRIP) {
        const int64_t width = p->N - from < STRIP ? p->N - from : STRIP;
        memset(sums + from, 0, (size_t)width * sizeof *sums);
        for (int64_t i = 0; i < p->n; i++)
            for (int64_t j = from; j < from + width; j++)
                sums[j] += (double)d[i * p->N + j];
    }
}

/* Adds the gradients of a key and its bias (dbias NULL: none). d [n, N]: that of their product. */
static kvf_status key_gradient(kvf_ctx *ctx, const kvf__pass *pass, int64_t l, const part *p,
                               const float *src, const float *d, float *dkey, float *dbias)
{
    const int64_t C = pass->model->desc.C;
    float *sum = pass->neurons.dkeys;
    double *sums = pass->neurons.sums;

    sum_rows(p, d, sums);
    KVF_TRY(kvf__sgemm(ctx, true, false, p->N, C, p->n, d, p->N, src, C, 0, sum, C));
    unfold_gradient(pass, l, sum, sums, dkey, p->N);
    for (int64_t i = 0; dbias && i < p->N; i++)
        dbias[i] += (float)sums[i];
    return KVF_OK;
}

/* Adds the gradient of the products' input; dh: those of the products with the keys. */
static kvf_status input_gradient(kvf_ctx *ctx, kvf__pass *pass, const part *p,
                                 const float *const dh[2])
{
    const kvf__model *m = pass->model;
    const int64_t C = m->desc.C;
    const bool f32 = m->act == KVF__F32;
    float *d = f32 ? (float *)pass->bwd.dxhat + p->first * C : pass->neurons.src;
    const float *const keys[] = {p->own.key, p->own.up};

    for (int i = 0; i < p->keys; i++)
        KVF_TRY(kvf__sgemm(ctx, false, false, p->n, C, p->N, dh[i], p->N, keys[i], C,
                           f32 || i ? 1 : 0, d, C));
    if (!f32) kvf__pass_add_rows(pass, pass->bwd.dxhat, p->first, p->n, d);
    return KVF_OK;
}

static kvf_status part_bwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, part *p, const float *dy,
                           kvf__neurons *into)
{
    const kvf__model *m = pass->model;
    const int64_t C = m->desc.C, n = p->n * p->N;
    const void *input = kept_input(pass, l);
    float *da = pass->neurons.dg, *dh = da + n, *du = dh + n;

    dy += p->first * C;
    fold_keys(pass, l, p);
    KVF_TRY(kvf__sgemm(ctx, false, true, p->n, p->N, C, dy, C, p->own.value, C, 0, da, p->N));
    if (p->own.up) {
        m->kernels->glu_bwd(KVF__F32, dh, du, da, p->fac1, p->fac2, n);
    } else {
        m->kernels->mul(KVF__F32, da, p->fac1, n);
        dh = da;
    }
    if (into) {
        const kvf__neurons_layer d = kvf__neurons_at(into, l);
        const float *src = input_rows(pass, input, p);
        KVF_TRY(kvf__sgemm(ctx, true, false, p->N, C, p->n, p->g, p->N, dy, C, 1, d.value, C));
        KVF_TRY(key_gradient(ctx, pass, l, p, src, dh, d.key, d.bias));
        if (d.up) KVF_TRY(key_gradient(ctx, pass, l, p, src, du, d.up, NULL));
    }
    return input_gradient(ctx, pass, p, (const float *[]){dh, du});
}

kvf_status kvf__pass_neurons_bwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, const float *dy)
{
    if (!kvf__pass_has_neurons(pass, l)) return KVF_OK;
    for (int64_t i = 0; i < pass->sections.n; i++) {
        const kvf__pass_section *s = &pass->sections.at[i];
        if (!section_has(s, l)) continue;
        part p = part_of(pass, l, s);
        if (p.n) KVF_TRY(part_bwd(ctx, pass, l, &p, dy, s->dneurons));
    }
    kvf__pass_lap(pass, KVF__PART_FFN_BWD);
    return KVF_OK;
}
