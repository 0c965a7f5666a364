/* Adapters in a pass (adapter.h), between the products of a half and the residual sum.
 *
 * A serial adapter reads the half's output. The products then write to separate memory, which is
 * kept and added to the stream in the products' order. A zero or disabled adapter thus leaves the
 * bits of the base. A parallel adapter reads a copy of the products' input. In the last layer both
 * work on labelled rows only, like everything after its attention. */
#include "bottleneck.h"
#include "pass_priv.h"

#include <omp.h>
#include <string.h>

static bool is_serial(const kvf__pass *pass, kvf__half half)
{
    const kvf__adapters *adapters = pass->model->train.adapters;

    if (!adapters || !kvf__adapter_has(kvf__adapters_shape(adapters), half)) return false;
    return kvf__adapters_shape(adapters)->place != KVF__PLACE_PARALLEL;
}

static bool is_parallel(const kvf__pass *pass)
{
    const kvf__adapters *adapters = pass->model->train.adapters;

    return adapters && kvf__adapters_shape(adapters)->place == KVF__PLACE_PARALLEL;
}

bool kvf__pass_adapts(const kvf__pass *pass, kvf__half half)
{
    return is_serial(pass, half) || is_parallel(pass);
}

unsigned kvf__pass_out_flags(const kvf__pass *pass, kvf__half half, bool first)
{
    if (pass->model->layers[0].out_gamma[half]) return first ? 0 : KVF__MM_ADD;
    return is_serial(pass, half) ? 0 : KVF__MM_ADD;
}

/* ---- forward --------------------------------------------------------------------------------- */

static void add(float *x, const float *y, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > 1 << 14)
    for (int64_t i = 0; i < n; i++)
        x[i] += y[i];
}

kvf_status kvf__pass_out(kvf_ctx *ctx, kvf__pass *pass, int64_t l, kvf__half half,
                         const kvf__packed *w, const void *src, float *x, int64_t M, bool first)
{
    kvf__mm *mm = pass->model->mm;
    int64_t n = M * pass->model->desc.C;

    if (pass->drop.active || pass->model->layers[l].out_gamma[half])
        return kvf__mm_run(ctx, mm, w, M, src, pass->fwd.half, KVF__F32, first ? 0 : KVF__MM_ADD);
    if (!is_serial(pass, half))
        return kvf__mm_run(ctx, mm, w, M, src, x, KVF__F32, kvf__pass_out_flags(pass, half, first));
    float *in = pass->kept[l].adapt[half].in, *part = first ? in : pass->adapt.part;
    KVF_TRY(
        kvf__mm_run(ctx, mm, w, M, src, part, KVF__F32, kvf__pass_out_flags(pass, half, first)));
    add(x, part, n);
    if (!first) add(in, part, n);
    return KVF_OK;
}

void kvf__pass_add_half(kvf__pass *pass, int64_t l, kvf__half half, float *x, int64_t M)
{
    int64_t n = M * pass->model->desc.C;

    if (is_serial(pass, half))
        memcpy(pass->kept[l].adapt[half].in, pass->fwd.half, (size_t)n * sizeof *x);
    add(x, pass->fwd.half, n);
}

/* Sets in [M, C] to the input of the half's products; for the last layer's attention, its labelled
 * rows. */
static void copy_source(const kvf__pass *pass, int64_t l, kvf__half half, const void *src,
                        float *in, int64_t M)
{
    const kvf__model *m = pass->model;
    const kvf__batch *b = pass->batch;
    int64_t C = m->desc.C;

    if (half == KVF__HALF_FFN || l < m->desc.L - 1) {
        m->kernels->to_f32(m->act, in, src, M * C);
        return;
    }
    for (int64_t j = 0; j < b->n_labels; j++)
        kvf__to_f32(m->act, kvf__act_row(m->act, (void *)src, b->label_at[j], C), in + j * C, C);
    memset(in + b->n_labels * C, 0, (size_t)((M - b->n_labels) * C) * sizeof *in);
}

kvf_status kvf__pass_adapt_fwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, kvf__half half, float *x,
                               const void *src, int64_t M)
{
    const kvf__model *m = pass->model;
    const kvf__bottleneck *adapter = kvf__adapters_at(m->train.adapters, l, half);
    const kvf__bottleneck_kept *keep = &pass->kept[l].adapt[half];

    if (!adapter) return KVF_OK;
    if (is_parallel(pass)) copy_source(pass, l, half, src, keep->in, M);
    KVF_TRY(kvf__bottleneck_fwd(ctx, m->kernels, adapter, keep, x, M));
    kvf__pass_lap(pass, KVF__PART_ADAPTER);
    return KVF_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

kvf_status kvf__pass_adapt_bwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, kvf__half half,
                               const float *dx, const void *dx_act, int64_t M, const void **dy)
{
    const kvf__model *m = pass->model;
    const kvf__bottleneck *adapter = kvf__adapters_at(m->train.adapters, l, half);
    size_t n = (size_t)(M * m->desc.C);

    *dy = dx_act;
    if (!adapter) return KVF_OK;
    if (is_serial(pass, half)) /* x += y + A(y) */
        memcpy(pass->adapt.d, dx, n * sizeof *dx);
    else
        memset(pass->adapt.d, 0, n * sizeof *dx);
    KVF_TRY(kvf__bottleneck_bwd(ctx, m->kernels, adapter, &pass->kept[l].adapt[half], pass->adapt.d,
                                dx, pass->adapt.dh, M));
    if (is_serial(pass, half)) {
        *dy = pass->adapt.d_act;
        if (pass->adapt.d_act != (void *)pass->adapt.d)
            m->kernels->from_f32(m->act, pass->adapt.d_act, pass->adapt.d, (int64_t)n);
    }
    kvf__pass_lap(pass, KVF__PART_ADAPTER_BWD);
    return KVF_OK;
}

const float *kvf__pass_adapt_grad(const kvf__pass *pass, int64_t l, kvf__half half, const float *dx)
{
    const bool adapted = kvf__adapters_at(pass->model->train.adapters, l, half) != NULL;
    return adapted && is_serial(pass, half) ? pass->adapt.d : dx;
}

/* Moves rows to the tokens of their labels, the last first, so that none is overwritten before it
 * has moved. */
void kvf__pass_adapt_scatter(kvf__pass *pass)
{
    const kvf__batch *b = pass->batch;
    int64_t C = pass->model->desc.C, end = pass->M;

    if (!is_parallel(pass)) return;
    for (int64_t j = b->n_labels - 1; j >= 0; j--) {
        int64_t at = b->label_at[j];
        memmove(pass->adapt.d + at * C, pass->adapt.d + j * C, (size_t)C * sizeof(float));
        memset(pass->adapt.d + (at + 1) * C, 0, (size_t)((end - at - 1) * C) * sizeof(float));
        end = at;
    }
    memset(pass->adapt.d, 0, (size_t)(end * C) * sizeof(float));
}

void kvf__pass_add_rows(const kvf__pass *pass, void *to, int64_t first, int64_t n,
                        const float *rows)
{
    const kvf__model *m = pass->model;
    const int64_t C = m->desc.C;

    if (m->act == KVF__F32) {
        add(kvf__act_row(m->act, to, first, C), rows, n * C);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t i = 0; i < n; i++) {
        float *sum = pass->fwd.scratch + omp_get_thread_num() * C;
        void *at = kvf__act_row(m->act, to, first + i, C);
        kvf__to_f32(m->act, at, sum, C);
        for (int64_t c = 0; c < C; c++)
            sum[c] += rows[i * C + c];
        kvf__from_f32(m->act, sum, at, C);
    }
}

void kvf__pass_adapt_add(kvf__pass *pass, int64_t l, kvf__half half, int64_t M)
{
    if (!is_parallel(pass) || !kvf__adapters_at(pass->model->train.adapters, l, half)) return;
    kvf__pass_add_rows(pass, pass->bwd.dxhat, 0, M, pass->adapt.d);
    kvf__pass_lap(pass, KVF__PART_ADAPTER_BWD);
}
