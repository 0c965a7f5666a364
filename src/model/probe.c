/* How fast oneDNN multiplies what a step multiplies: the yardstick that bench holds a step against.
 *
 * The products of a forward pass, each alone and hot, so that the rate is what this machine gives
 * for these shapes at this moment, and nothing of the pass is in it. A product counts as often as a
 * forward pass runs it, so the rate is the harmonic mean weighted by operations; the backward pass
 * has the same products transposed. Clocks move by tens of percent over minutes, so
 * bench runs this between its steps. */
#include "probe.h"
#include "pass_priv.h"

#include <string.h>

#define REFERENCE_M 512 /* the product that machines are compared by */
#define REFERENCE_K 768
#define REFERENCE_N 3072
#define MOST_ROWS   1024 /* more change no rate, and would not stay hot */
#define REPEATS     2

typedef struct item {
    const kvf__packed *w;
    int64_t M, K, N;
    int64_t times; /* in a forward pass */
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
    double C = (double)d->C, heads = (double)((2 * d->H + 2 * d->G) * d->D);
    double layer = heads * C + (d->gated ? 3 : 2) * C * (double)d->F;
    double head = model->lm.packed ? (double)d->V * C : 0;

    return 4 * layer * (double)d->L * (double)tokens + 4 * head * (double)labels;
}

static void add(kvf__probe *probe, const kvf__packed *w, int64_t M, int64_t K, int64_t N,
                int64_t times)
{
    if (w && M) probe->items[probe->n++] = (item){.w = w, .M = M, .K = K, .N = N, .times = times};
}

static void list_products(kvf__probe *probe, int64_t M, int64_t head_rows)
{
    const kvf__model *m = probe->model;
    const kvf__desc *d = &m->desc;
    const kvf__layer *w = &m->layers[0];

    add(probe, w->qkv, M, d->C, (d->H + 2 * d->G) * d->D, d->L);
    add(probe, w->out, M, d->H * d->D, d->C, d->L);
    for (int p = 0; p < m->ffn.n; p++) {
        add(probe, w->up[p], M, d->C, m->ffn.width[p], d->L);
        add(probe, w->gate[p], M, d->C, m->ffn.width[p], d->L);
        add(probe, w->down[p], M, m->ffn.width[p], d->C, d->L);
    }
    if (m->lm.packed) add(probe, m->lm.packed[0], head_rows, d->C, KVF__VOCAB_PLANE, m->lm.n);
}

static kvf_status pack_reference(kvf_ctx *ctx, kvf__probe *probe)
{
    kvf__rng rng = kvf__rng_make(0, 0);
    float *w = NULL;

    KVF_TRY(kvf__alloc_array(ctx, REFERENCE_K * REFERENCE_N, sizeof *w, &w));
    for (int64_t i = 0; i < REFERENCE_K * REFERENCE_N; i++)
        w[i] = (float)(kvf__rng_uniform(&rng) - 0.5);
    kvf_status st = kvf__pack(ctx, probe->model->mm, probe->model->act, w, false, REFERENCE_K,
                              REFERENCE_N, NULL, &probe->reference);
    kvf__free(w);
    return st;
}

/* Random numbers, because a multiplier that sees zeros only runs cooler. */
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

kvf_status kvf__probe_create(kvf_ctx *ctx, const kvf__model *model, int64_t tokens, int64_t labels,
                             kvf__probe **out)
{
    kvf__probe *probe = NULL;
    kvf__rates rates;
    int64_t M = kvf__pass_padded(model, tokens), head_rows = kvf__pass_padded(model, labels);
    size_t most = 3 * (size_t)model->ffn.n + 3;
    kvf_status st;

    st = kvf__alloc(ctx, sizeof *probe, &probe);
    if (st) goto out;
    probe->model = model;
    st = kvf__alloc_array(ctx, most, sizeof *probe->items, &probe->items);
    if (st) goto out;
    list_products(probe, M < MOST_ROWS ? M : MOST_ROWS,
                  head_rows < KVF__HEAD_ROWS ? head_rows : KVF__HEAD_ROWS);
    st = pack_reference(ctx, probe);
    if (st) goto out;
    st = alloc_memory(ctx, probe);
    if (st) goto out;
    st = kvf__probe_run(ctx, probe, &rates); /* makes the primitives */
    if (st) goto out;

    *out = probe;
    probe = NULL;
out:
    kvf__probe_free(probe);
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

/* Seconds of one run, after one that makes it hot. */
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
