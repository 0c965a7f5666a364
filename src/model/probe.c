/* Measurements of oneDNN on a model's own products: their speed, with which bench compares a step,
 * and whether equal rows get equal bits.
 *
 * The products of a forward pass are timed one by one with warm caches. The rate is thus that of
 * this machine for these shapes, without other parts of the pass. A product counts as often as a
 * forward pass runs it, so the rate is a harmonic mean weighted by operations; the backward pass
 * has the same products transposed. Clock rates vary by tens of percent over minutes, so bench
 * measures between its steps. */
#include "probe.h"
#include "products.h"

#include <string.h>

#define REFERENCE_M 512 /* a product for comparing machines */
#define REFERENCE_K 768
#define REFERENCE_N 3072
#define MOST_ROWS   1024 /* more rows do not change the rate, and would not stay in the cache */
#define REPEATS     2

typedef struct item {
    const kvf__packed *w;
    int64_t M, K, N;
    int64_t times; /* times in a forward pass */
} item;

struct kvf__probe {
    const kvf__model *model;
    item *items;
    size_t n;
    kvf__packed *reference;
    void *src, *dst;
};

double kvf__model_floor_flops(const kvf__model *model, int64_t tokens, int64_t labels)
{
    const kvf__desc *d = &model->desc;
    double layers = 0, head = model->lm.n ? (double)d->V * (double)d->C : 0;
    kvf__product p;

    for (int64_t l = 0; l < d->L; l++)
        for (size_t i = 0; kvf__product_at(d, l, i, &p); i++)
            layers += (double)p.k * (double)p.n;
    return 4 * layers * (double)tokens + 4 * head * (double)labels;
}

/* Returns the products of layer 0, as representatives of all layers, then plane 0 of the head;
 * false past the last. */
static bool product_at(const kvf__model *m, size_t i, kvf__product *out)
{
    const size_t n = kvf__products_of_layer(&m->desc, 0);

    if (i < n) return kvf__product_at(&m->desc, 0, i, out);
    return m->lm.n && kvf__product_at(&m->desc, m->desc.L, i - n, out);
}

static kvf_status list_products(kvf_ctx *ctx, kvf__probe *probe, int64_t M, int64_t head_rows)
{
    const kvf__model *m = probe->model;
    kvf__product p;

    KVF_TRY(kvf__alloc_array(ctx, kvf__products_of_layer(&m->desc, 0) + 1, sizeof *probe->items,
                             &probe->items));
    for (size_t i = 0; product_at(m, i, &p); i++) {
        const bool head = p.kind == KVF__PRODUCT_HEAD;
        const item it = {.w = kvf__product_packed(m, &p)->fwd,
                         .M = head ? head_rows : M,
                         .K = p.k,
                         .N = p.n_padded,
                         .times = head ? m->lm.n : m->desc.L};
        if (it.M) probe->items[probe->n++] = it;
    }
    return KVF_OK;
}

static kvf_status pack_reference(kvf_ctx *ctx, kvf__probe *probe)
{
    kvf__rng rng = kvf__rng_make(0, 0);
    const kvf__dtype type = probe->model->int8 ? KVF__I8 : probe->model->act;
    float *w = NULL;

    KVF_TRY(kvf__alloc_array(ctx, REFERENCE_K * REFERENCE_N, sizeof *w, &w));
    for (int64_t i = 0; i < REFERENCE_K * REFERENCE_N; i++)
        w[i] = (float)(kvf__rng_uniform(&rng) - 0.5);
    kvf_status st = kvf__pack(ctx, probe->model->mm, type, w, false, REFERENCE_K, REFERENCE_N, NULL,
                              &probe->reference);
    kvf__free(w);
    return st;
}

/* Random numbers, because a multiplier with only zeros runs cooler and faster. */
static kvf_status fill_source(kvf_ctx *ctx, kvf__probe *probe, size_t n)
{
    kvf__rng rng = kvf__rng_make(0, 1);
    float row[1024];
    size_t size = kvf__act_size(probe->model->act);

    for (int i = 0; i < 1024; i++)
        row[i] = (float)(kvf__rng_uniform(&rng) - 0.5);
    KVF_TRY(kvf__alloc_array(ctx, n, size, &probe->src));
    for (size_t at = 0; at < n; at += 1024) {
        size_t count = n - at < 1024 ? n - at : 1024;
        kvf__from_f32(probe->model->act, row, (char *)probe->src + at * size, (int64_t)count);
    }
    return KVF_OK;
}

static kvf_status alloc_memory(kvf_ctx *ctx, kvf__probe *probe)
{
    int64_t src = REFERENCE_M * REFERENCE_K, dst = REFERENCE_M * REFERENCE_N;

    for (size_t i = 0; i < probe->n; i++) {
        const item *it = &probe->items[i];
        if (it->M * it->K > src) src = it->M * it->K;
        if (it->M * it->N > dst) dst = it->M * it->N;
    }
    KVF_TRY(fill_source(ctx, probe, (size_t)src));
    return kvf__alloc_array(ctx, (size_t)dst, kvf__act_size(probe->model->act), &probe->dst);
}

static kvf_status prepare(kvf_ctx *ctx, kvf__probe *probe)
{
    const kvf__model *m = probe->model;

    for (size_t i = 0; i < probe->n; i++)
        KVF_TRY(kvf__mm_prepare(ctx, m->mm, probe->items[i].w, probe->items[i].M, m->act, 0));
    return kvf__mm_prepare(ctx, m->mm, probe->reference, REFERENCE_M, m->act, 0);
}

kvf_status kvf__probe_create(kvf_ctx *ctx, const kvf__model *model, int64_t tokens, int64_t labels,
                             kvf__probe **out)
{
    kvf__probe *probe = NULL;
    int64_t M = kvf__padded_rows(model, tokens), head_rows = kvf__padded_rows(model, labels);

    KVF_TRY(kvf__alloc(ctx, sizeof *probe, &probe));
    probe->model = model;
    kvf_status st = list_products(ctx, probe, M < MOST_ROWS ? M : MOST_ROWS,
                                  head_rows < KVF__HEAD_ROWS ? head_rows : KVF__HEAD_ROWS);
    if (!st) st = pack_reference(ctx, probe);
    if (!st) st = alloc_memory(ctx, probe);
    if (!st) st = prepare(ctx, probe);
    KVF__GIVE(st, out, probe, kvf__probe_free(probe));
    return st;
}

void kvf__probe_free(kvf__probe *probe)
{
    if (!probe) return;
    kvf__packed_free(probe->reference);
    kvf__free(probe->items);
    kvf__free(probe->src);
    kvf__free(probe->dst);
    kvf__free(probe);
}

/* Returns the seconds of one run after a warm-up run. */
static kvf_status time_item(kvf_ctx *ctx, kvf__probe *probe, const item *it, double *seconds)
{
    const kvf__model *m = probe->model;
    double best = 0;

    for (int round = 0; round <= REPEATS; round++) {
        double begin = kvf__clock();
        KVF_TRY(kvf__mm_run(ctx, m->mm, it->w, it->M, probe->src, probe->dst, m->act, 0));
        double took = kvf__clock() - begin;
        if (round == 1 || (round && took < best)) best = took;
    }
    *seconds = best;
    return KVF_OK;
}

static double operations(const item *it)
{
    return 2 * (double)it->M * (double)it->K * (double)it->N;
}

kvf_status kvf__probe_run(kvf_ctx *ctx, kvf__probe *probe, kvf__rates *out)
{
    const item reference = {.w = probe->reference, REFERENCE_M, REFERENCE_K, REFERENCE_N, 1};
    double all = 0, spent = 0, seconds = 0;

    for (size_t i = 0; i < probe->n; i++) {
        const item *it = &probe->items[i];
        KVF_TRY(time_item(ctx, probe, it, &seconds));
        all += (double)it->times * operations(it);
        spent += (double)it->times * seconds;
    }
    KVF_TRY(time_item(ctx, probe, &reference, &seconds));
    *out = (kvf__rates){.step = all / spent, .reference = operations(&reference) / seconds};
    return KVF_OK;
}

/* ---- equal rows ------------------------------------------------------------------------------ */

/* Tests whether a row of a product has the same bits for any other rows and any position among
 * them. oneDNN does not guarantee it. Its brgemm sums K in one order for any number of rows (f32
 * with AVX-512, bf16 with AVX512-BF16). dnnl_sgemm.c cuts f32 products on AVX2 accordingly. bf16
 * with plain AVX-512 fails. So every number of rows that a pass of so many tokens can have is
 * tried. */
typedef struct trial {
    const kvf__model *model;
    int64_t most; /* maximum rows */
    char *src, *all, *part;
} trial;

static kvf_status alloc_trial(kvf_ctx *ctx, trial *t)
{
    kvf__rng rng = kvf__rng_make(0, 1);
    int64_t K = 0, N = 0;
    kvf__product p;

    for (size_t i = 0; product_at(t->model, i, &p); i++) {
        if (p.k > K) K = p.k;
        if (p.n_padded > N) N = p.n_padded;
    }
    KVF_TRY(kvf__alloc_array(ctx, (size_t)(t->most * K), kvf__act_size(t->model->act), &t->src));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)(t->most * N), sizeof(float), &t->all));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)(t->most * N), sizeof(float), &t->part));
    for (int64_t i = 0; i < t->most * K; i++) {
        const float x = (float)(kvf__rng_uniform(&rng) - 0.5);
        kvf__from_f32(t->model->act, &x, kvf__act_row(t->model->act, t->src, i, 1), 1);
    }
    return KVF_OK;
}

/* Multiplies M rows from `first` on into dst. */
static kvf_status multiply_rows(kvf_ctx *ctx, const trial *t, const kvf__product *p, int64_t first,
                                int64_t M, char *dst)
{
    const kvf__dtype type = kvf__product_dst(t->model, p);
    const void *src = kvf__act_row(t->model->act, t->src, first, p->k);

    memset(dst, 0, (size_t)(M * p->n_padded) * kvf__act_size(type));
    return kvf__mm_run(ctx, t->model->mm, kvf__product_packed(t->model, p)->fwd, M, src, dst, type,
                       p->adds ? KVF__MM_ADD : 0);
}

/* Compares the same rows for several counts with those for the largest. */
static kvf_status try_product(kvf_ctx *ctx, const trial *t, const kvf__product *p, bool *alike)
{
    const size_t row = (size_t)p->n_padded * kvf__act_size(kvf__product_dst(t->model, p));

    KVF_TRY(multiply_rows(ctx, t, p, 0, t->most, t->all));
    for (int64_t n = 1, M = 0; *alike && n < t->most; n++) {
        if (kvf__padded_rows(t->model, n) == M) continue;
        M = kvf__padded_rows(t->model, n);
        const int64_t first = t->most - M - 1;
        if (first < 0) continue;
        KVF_TRY(multiply_rows(ctx, t, p, first, M, t->part));
        *alike = memcmp(t->part, t->all + (size_t)first * row, (size_t)M * row) == 0;
    }
    return KVF_OK;
}

kvf_status kvf__model_rows_alike(kvf_ctx *ctx, const kvf__model *model, int64_t most, bool *out)
{
    trial t = {.model = model, .most = kvf__padded_rows(model, most)};
    bool alike = !model->store.late;
    kvf_status st = alike ? alloc_trial(ctx, &t) : KVF_OK;
    kvf__product p;

    for (size_t i = 0; !st && alike && product_at(model, i, &p); i++)
        st = try_product(ctx, &t, &p, &alike);
    kvf__free(t.src);
    kvf__free(t.all);
    kvf__free(t.part);
    if (!st) *out = alike;
    return st;
}
