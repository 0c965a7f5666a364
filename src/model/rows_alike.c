/* Does a row of a product have the same bits whatever other rows there are, and wherever it stands
 * among them? oneDNN promises nothing of the kind. It holds where its kernels go through K in one
 * order for every number of rows (f32 by AVX-512, bf16 by AVX512-BF16), and does not where the last
 * rows have a kernel of their own (AVX2). So it is tried, on the weights of layer 0 and the first
 * plane of the head, at every number of rows that a pass of so many tokens can have. */
#include "pass_priv.h"

#include <string.h>

typedef struct product {
    const kvf__packed *w;
    int64_t K, N;
    kvf__dtype dst;
    unsigned flags;
} product;

typedef struct trial {
    const kvf__model *model;
    int64_t most; /* rows */
    char *src, *all, *part;
} trial;

enum { MOST_PRODUCTS = 3 + 3 * KVF__MAX_PLANES };

static size_t list_products(const kvf__model *m, product *out)
{
    const kvf__desc *d = &m->desc;
    const kvf__layer *w = &m->layers[0];
    size_t n = 0;

    out[n++] = (product){w->qkv, d->C, (d->H + 2 * d->G) * d->D, m->act, 0};
    out[n++] = (product){w->out, d->H * d->D, d->C, KVF__F32, KVF__MM_ADD};
    for (int p = 0; p < m->ffn.n; p++) {
        const int64_t width = m->ffn.width[p];
        out[n++] = (product){w->up[p], d->C, width, m->act, 0};
        if (d->gated) out[n++] = (product){w->gate[p], d->C, width, m->act, 0};
        out[n++] = (product){w->down[p], width, d->C, KVF__F32, KVF__MM_ADD};
    }
    if (m->lm.packed) out[n++] = (product){m->lm.packed[0], d->C, KVF__VOCAB_PLANE, KVF__F32, 0};
    return n;
}

static void fill_source(trial *t, int64_t count)
{
    kvf__rng rng = kvf__rng_make(0, 1);

    for (int64_t i = 0; i < count; i++) {
        const float x = (float)(kvf__rng_uniform(&rng) - 0.5);
        kvf__from_f32(t->model->act, &x, kvf__act_row(t->model->act, t->src, i, 1), 1);
    }
}

static kvf_status alloc_memory(kvf_ctx *ctx, trial *t, const product *products, size_t n)
{
    size_t K = 0, N = 0, most = (size_t)t->most;

    for (size_t i = 0; i < n; i++) {
        if ((size_t)products[i].K > K) K = (size_t)products[i].K;
        if ((size_t)products[i].N > N) N = (size_t)products[i].N;
    }
    KVF_TRY(kvf__alloc_array(ctx, most * K, kvf__act_size(t->model->act), &t->src));
    fill_source(t, (int64_t)(most * K));
    KVF_TRY(kvf__alloc_array(ctx, most * N, sizeof(float), &t->all));
    return kvf__alloc_array(ctx, most * N, sizeof(float), &t->part);
}

/* M rows from `first` on, alone, beside the same of all. */
static kvf_status try_part(kvf_ctx *ctx, const trial *t, const product *p, int64_t first, int64_t M,
                           bool *alike)
{
    const size_t row = (size_t)p->N * kvf__act_size(p->dst);
    const void *src = kvf__act_row(t->model->act, t->src, first, p->K);

    memset(t->part, 0, (size_t)M * row);
    KVF_TRY(kvf__mm_run(ctx, t->model->mm, p->w, M, src, t->part, p->dst, p->flags));
    *alike = memcmp(t->part, t->all + (size_t)first * row, (size_t)M * row) == 0;
    return KVF_OK;
}

static kvf_status try_product(kvf_ctx *ctx, const trial *t, const product *p, bool *alike)
{
    memset(t->all, 0, (size_t)(t->most * p->N) * kvf__act_size(p->dst));
    KVF_TRY(kvf__mm_run(ctx, t->model->mm, p->w, t->most, t->src, t->all, p->dst, p->flags));
    for (int64_t n = 1, M = 0; *alike && n < t->most; n++) {
        if (kvf__pass_padded(t->model, n) == M) continue;
        M = kvf__pass_padded(t->model, n);
        if (M < t->most) KVF_TRY(try_part(ctx, t, p, t->most - M - 1, M, alike));
    }
    return KVF_OK;
}

kvf_status kvf__model_rows_alike(kvf_ctx *ctx, const kvf__model *model, int64_t most, bool *out)
{
    product products[MOST_PRODUCTS];
    trial t = {.model = model, .most = kvf__pass_padded(model, most)};
    bool alike = !model->store.late;
    kvf_status st = KVF_OK;

    if (alike) {
        const size_t n = list_products(model, products);
        st = alloc_memory(ctx, &t, products, n);
        for (size_t i = 0; !st && alike && i < n; i++)
            st = try_product(ctx, &t, &products[i], &alike);
    }
    kvf__free(t.src);
    kvf__free(t.all);
    kvf__free(t.part);
    if (!st) *out = alike;
    return st;
}
