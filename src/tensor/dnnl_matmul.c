/* Matrix products by oneDNN; see matmul.h.
 *
 * A weight is packed in the layout that oneDNN prefers at M = 1024, which is then prescribed for
 * every M. The layout was found to depend on neither M nor the thread count. A product with a given
 * M is a primitive (dnnl_prims.c); a run only sets the data pointers of its memory objects.
 *
 * If oneDNN has no kernels for packed weights (f32 on AVX2), a weight is a plain matrix, and
 * dnnl_sgemm.c computes its products. */
#include "dnnl_matmul_priv.h"

#include <assert.h>
#include <string.h>

enum { NOMINAL_M = 1024 };

typedef kvf__mm_shape shape;
typedef kvf__mm_prim prim;

/* ---- engine ---------------------------------------------------------------------------------- */

kvf_status kvf__mm_create(kvf_ctx *ctx, kvf__mm **out)
{
    kvf__mm *mm = NULL;

    KVF_TRY(kvf__alloc(ctx, sizeof *mm, &mm));
    mm->kernels = kvf__kernels_get();
    kvf_status st = kvf__dnnl_open(ctx, &mm->engine, &mm->stream);
    KVF__GIVE(st, out, mm, kvf__mm_free(mm));
    return st;
}

void kvf__mm_free(kvf__mm *mm)
{
    if (!mm) return;
    for (int i = 0; i < mm->n_prims; i++)
        kvf__mm_prim_done(&mm->prims[i]);
    for (int i = 0; i < mm->n_shapes; i++) {
        kvf__md_destroy(&mm->shapes[i].weights);
        kvf__md_destroy(&mm->shapes[i].bias);
    }
    dnnl_stream_destroy(mm->stream);
    dnnl_engine_destroy(mm->engine);
    kvf__free(mm->scratch.data);
    kvf__free(mm->own.data);
    kvf__free(mm->packing.data);
    kvf__free(mm);
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Chooses the layout of [K, N] that oneDNN prefers. */
static dnnl_status_t choose_layout(const kvf__mm *mm, shape *s)
{
    dnnl_memory_desc_t any = {0};
    dnnl_primitive_desc_t pd = NULL;

    if (s->act == KVF__F32 && kvf__cpu_best() == KVF__CPU_AVX2) {
        s->ld = kvf__sgemm_stride(s->N);
        return kvf__md_create_rows(&s->weights, s->K, s->N, s->ld);
    }
    dnnl_status_t st = kvf__md_matrix(&any, s->K, s->N, kvf__dnnl_type(s->act),
                                      dnnl_format_tag_any);
    if (!st) st = kvf__md_matrix(&s->bias, 1, s->N, dnnl_f32, dnnl_ab);
    if (!st)
        st = kvf__mm_product_pd(mm, &pd, s, &any, NOMINAL_M, s->act == KVF__I8 ? KVF__I32 : s->act,
                                0);
    if (!st)
        st = kvf__md_clone(&s->weights, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0));
    dnnl_primitive_desc_destroy(pd);
    kvf__md_destroy(&any);
    return st;
}

static kvf_status find_shape(kvf_ctx *ctx, kvf__mm *mm, kvf__dtype act, int64_t K, int64_t N,
                             int *out)
{
    for (int i = 0; i < mm->n_shapes; i++)
        if (mm->shapes[i].act == act && mm->shapes[i].K == K && mm->shapes[i].N == N) {
            *out = i;
            return KVF_OK;
        }
    if (mm->n_shapes == KVF__MM_SHAPES)
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "more than %d different shapes of weights",
                         (int)KVF__MM_SHAPES);

    shape *s = &mm->shapes[mm->n_shapes];
    *s = (shape){.act = act, .K = K, .N = N, .prims = KVF__MM_NONE};
    dnnl_status_t failed = choose_layout(mm, s);
    if (failed) {
        kvf__md_destroy(&s->weights);
        kvf__md_destroy(&s->bias);
        return kvf__mm_fail(ctx, failed,
                            act == KVF__BF16 ? "bf16 product"
                            : act == KVF__I8 ? "int8 product"
                                             : "f32 product",
                            NOMINAL_M, K, N);
    }
    *out = mm->n_shapes++;
    return KVF_OK;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Copies w to a layout; also rounds to the activation type, and zeroes the padding of blocked
 * layouts. */
static dnnl_status_t reorder(const kvf__mm *mm, const void *w, kvf__dtype type, bool transposed,
                             const shape *s, dnnl_memory_t to)
{
    dnnl_memory_desc_t plain = {0};
    dnnl_memory_t from = NULL;
    dnnl_primitive_t primitive = NULL;

    dnnl_status_t st = kvf__md_matrix(&plain, s->K, s->N, kvf__dnnl_type(type),
                                      transposed ? dnnl_ba : dnnl_ab);
    if (!st) st = dnnl_memory_create(&from, KVF__MD(&plain), mm->engine, (void *)w);
    if (!st)
        st = kvf__reorder_create(mm->engine, KVF__MD(&plain), KVF__MD(&s->weights), &primitive);
    if (!st) st = kvf__reorder_run(mm->stream, primitive, from, to);
    if (!st) st = dnnl_stream_wait(mm->stream);
    dnnl_primitive_destroy(primitive);
    dnnl_memory_destroy(from);
    kvf__md_destroy(&plain);
    return st;
}

static kvf_status fail_packing(kvf_ctx *ctx, dnnl_status_t failed, const kvf__packed *packed)
{
    return failed
               ? kvf__mm_fail(ctx, failed, "packing for a product", NOMINAL_M, packed->K, packed->N)
               : KVF_OK;
}

kvf_status kvf__repack(kvf_ctx *ctx, kvf__mm *mm, const float *w, bool transposed,
                       const float *bias, kvf__packed *packed)
{
    shape *s = &mm->shapes[packed->shape];
    const void *from = w;
    assert(!bias == !packed->bias_data);
    if (!s->reordered[transposed]) KVF_TRY(kvf__dnnl_memory_allows(ctx));
    s->reordered[transposed] = true;
    if (bias) memcpy(packed->bias_data, bias, (size_t)packed->N * sizeof *bias);
    if (packed->scale) {
        KVF_TRY(kvf__int8_weights(ctx, mm, w, transposed, packed));
        from = mm->packing.data;
    }
    return fail_packing(
        ctx, reorder(mm, from, packed->scale ? KVF__I8 : KVF__F32, transposed, s, packed->weights),
        packed);
}

/* Allocates a packed weight. */
static kvf_status packed_init(kvf_ctx *ctx, const kvf__mm *mm, const shape *s, bool bias,
                              kvf__packed *packed)
{
    packed->bytes = dnnl_memory_desc_get_size(KVF__MD(&s->weights));
    KVF_TRY(kvf__alloc(ctx, packed->bytes, &packed->data));
    dnnl_status_t failed = dnnl_memory_create(&packed->weights, KVF__MD(&s->weights), mm->engine,
                                              packed->data);
    if (s->act == KVF__I8) {
        KVF_TRY(kvf__alloc_array(ctx, (size_t)s->N, sizeof *packed->scale, &packed->scale));
        KVF_TRY(kvf__alloc_array(ctx, (size_t)s->N, sizeof *packed->zero, &packed->zero));
    }
    if (!failed && bias) {
        KVF_TRY(kvf__alloc_array(ctx, (size_t)s->N, sizeof *packed->bias_data, &packed->bias_data));
        if (s->act == KVF__I8) return KVF_OK; /* with eight bits it is added after the scales */
        failed = dnnl_memory_create(&packed->bias, KVF__MD(&s->bias), mm->engine,
                                    packed->bias_data);
    }
    return fail_packing(ctx, failed, packed);
}

kvf_status kvf__pack(kvf_ctx *ctx, kvf__mm *mm, kvf__dtype act, const float *w, bool transposed,
                     int64_t K, int64_t N, const float *bias, kvf__packed **out)
{
    kvf__packed *packed = NULL;
    int index = 0;

    if (act == KVF__I8 && !kvf__cpu_has_int8())
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "this CPU (%s) has no eight-bit dot products",
                         kvf__cpu_level());
    KVF_TRY(find_shape(ctx, mm, act, K, N, &index));
    KVF_TRY(kvf__alloc(ctx, sizeof *packed, &packed));
    *packed = (kvf__packed){.shape = index, .K = K, .N = N, .act = act};
    kvf_status st = packed_init(ctx, mm, &mm->shapes[index], bias, packed);
    if (!st) st = kvf__repack(ctx, mm, w, transposed, bias, packed);
    KVF__GIVE(st, out, packed, kvf__packed_free(packed));
    return st;
}

bool kvf__packed_is(const kvf__packed *packed, int64_t K, int64_t N)
{
    return packed->K == K && packed->N == N;
}

void kvf__packed_free(kvf__packed *packed)
{
    if (!packed) return;
    dnnl_memory_destroy(packed->weights);
    dnnl_memory_destroy(packed->bias);
    kvf__free(packed->scale);
    kvf__free(packed->zero);
    kvf__free(packed->bias_data);
    kvf__free(packed->data);
    kvf__free(packed);
}

size_t kvf__packed_bytes(const kvf__packed *packed)
{
    const int vectors = !!packed->bias_data + (packed->scale ? 2 : 0);
    return packed->bytes + (size_t)(vectors * packed->N) * sizeof(float);
}

/* ---- running --------------------------------------------------------------------------------- */

/* Returns the number of rows up to which fewer ones are padded with zeros; 0: none are. Alone, f32
 * rows would be summed in another order than among others: on AVX2 up to three of them
 * (dnnl_sgemm.c), on AVX-512 with oneDNN 3.12 a single one. */
static int64_t least_rows(const kvf__mm *mm, const kvf__packed *w)
{
    if (mm->shapes[w->shape].ld) return 4;
    return w->act == KVF__F32 && kvf__cpu_best() > KVF__CPU_AVX2 ? 2 : 0;
}

static size_t padded_bytes(const kvf__mm *mm, const kvf__packed *w)
{
    return (size_t)(least_rows(mm, w) * (w->K + w->N)) * sizeof(float);
}

kvf_status kvf__mm_prepare(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M,
                           kvf__dtype dst_type, unsigned flags)
{
    prim *p;
    if (M && w->scale) return kvf__int8_prepare(ctx, mm, w, M);
    if (M < least_rows(mm, w)) {
        KVF_TRY(kvf__mm_reserve(ctx, &mm->own, padded_bytes(mm, w)));
        M = M ? least_rows(mm, w) : 0;
    }
    if (mm->shapes[w->shape].ld) return KVF_OK;
    if (kvf__mm_by_rows(&mm->shapes[w->shape]))
        return kvf__rows_prepare(ctx, mm, w, M, dst_type, flags);
    return M == 0 ? KVF_OK : kvf__mm_prim_get(ctx, mm, w, M, dst_type, flags, &p);
}

static kvf_status run_padded(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M,
                             const float *src, float *dst, unsigned flags)
{
    const int64_t least = least_rows(mm, w);
    const size_t in = (size_t)(M * w->K), out = (size_t)(M * w->N);

    KVF_TRY(kvf__mm_reserve(ctx, &mm->own, padded_bytes(mm, w)));
    float *rows = mm->own.data, *sums = rows + least * w->K;
    memset(rows, 0, padded_bytes(mm, w));
    memcpy(rows, src, in * sizeof *rows);
    if (flags & KVF__MM_ADD) memcpy(sums, dst, out * sizeof *sums);
    KVF_TRY(kvf__mm_run(ctx, mm, w, least, rows, sums, KVF__F32, flags));
    memcpy(dst, sums, out * sizeof *dst);
    return KVF_OK;
}

kvf_status kvf__mm_run(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M, const void *src,
                       void *dst, kvf__dtype dst_type, unsigned flags)
{
    prim *p;
    if (M == 0) return KVF_OK;
    if (w->scale) return kvf__int8_run(ctx, mm, w, M, src, dst, dst_type, flags);
    if (M < least_rows(mm, w)) return run_padded(ctx, mm, w, M, src, dst, flags);
    if (mm->shapes[w->shape].ld) return kvf__sgemm_run(ctx, mm, w, M, src, dst, flags);
    if (kvf__mm_by_rows(&mm->shapes[w->shape]))
        return kvf__rows_run(ctx, mm, w, M, src, dst, dst_type, flags);
    KVF_TRY(kvf__mm_prim_get(ctx, mm, w, M, dst_type, flags, &p));

    dnnl_memory_set_data_handle(p->src, (void *)src);
    dnnl_memory_set_data_handle(p->dst, dst);
    if (p->scratch) dnnl_memory_set_data_handle(p->scratch, mm->scratch.data);
    const dnnl_status_t failed = kvf__mm_execute(mm, p, w, p->src, p->dst, p->scratch);
    return failed ? kvf__mm_fail(ctx, failed, "product", M, w->K, w->N) : KVF_OK;
}

const char *kvf__mm_version(char buf[32])
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(buf, 32, "%d.%d.%d", version->major, version->minor, version->patch);
    return buf;
}
