/* Matrix products by oneDNN; see matmul.h.
 *
 * A weight is packed for the layout that oneDNN prefers at M = 1024, and that layout is then
 * prescribed for every M: it was found to depend on neither M nor the thread count.
 * A product with a given M is a primitive, kept in a table of fixed size: to find one in oneDNN's
 * own cache a descriptor has to be made first, 16 us where a product of 4 rows takes 10. run only
 * swaps the data pointers of the primitive's memory objects. The scratchpad is ours and shared,
 * because oneDNN's own may not be used by two primitives at once.
 *
 * Where oneDNN has no kernels for packed weights (f32 on AVX2), a weight is a plain matrix and its
 * products are those of dnnl_sgemm.c. */
#include "dnnl_matmul_priv.h"

#include <assert.h>
#include <string.h>

enum {
    NOMINAL_M = 1024,
    NONE = -1,
    WITH_BIAS = 1 << 8 /* among the KVF__MM_ flags in a key */
};

typedef kvf__mm_shape shape;
typedef kvf__mm_key prim_key;
typedef kvf__mm_prim prim;

kvf_status kvf__mm_fail(kvf_ctx *ctx, dnnl_status_t status, const char *what, int64_t M, int64_t K,
                        int64_t N)
{
    const char *why;
    kvf_status st = kvf__dnnl_failed(status, &why);
    return kvf__fail(ctx, st, "oneDNN: %s [%lld, %lld] x [%lld, %lld]: %s", what, (long long)M,
                     (long long)K, (long long)K, (long long)N, why);
}

/* ---- engine ---------------------------------------------------------------------------------- */

kvf_status kvf__mm_create(kvf_ctx *ctx, kvf__mm **out)
{
    kvf__mm *mm = NULL;

    KVF_TRY(kvf__alloc(ctx, sizeof *mm, &mm));
    mm->kernels = kvf__kernels_get();
    kvf_status st = kvf__dnnl_open(ctx, &mm->engine, &mm->stream);
    if (st)
        kvf__mm_free(mm);
    else
        *out = mm;
    return st;
}

static void prim_done(prim *p)
{
    dnnl_memory_destroy(p->src);
    dnnl_memory_destroy(p->dst);
    dnnl_memory_destroy(p->scratch);
    dnnl_primitive_destroy(p->primitive);
    *p = (prim){0};
}

void kvf__mm_free(kvf__mm *mm)
{
    if (!mm) return;
    for (int i = 0; i < mm->n_prims; i++)
        prim_done(&mm->prims[i]);
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

static dnnl_data_type_t dnnl_type(kvf__dtype dtype)
{
    switch (dtype) {
    case KVF__I8:
        return dnnl_s8;
    case KVF__I32:
        return dnnl_s32;
    case KVF__BF16:
        return dnnl_bf16;
    default:
        assert(dtype == KVF__F32);
        return dnnl_f32;
    }
}

static dnnl_status_t matrix_md(dnnl_memory_desc_t *md, int64_t rows, int64_t columns,
                               dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    const dnnl_dims_t dims = {rows, columns};
    return kvf__md_create(md, 2, dims, type, tag);
}

/* Descriptor of a product src [M, K] (act) x weights + bias -> dst [M, N]. */
static dnnl_status_t product_pd(const kvf__mm *mm, dnnl_primitive_desc_t *pd, const shape *s,
                                const dnnl_memory_desc_t *weights, int64_t M, kvf__dtype dst_type,
                                unsigned flags)
{
    dnnl_memory_desc_t src = {0}, dst = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t st;

    st = matrix_md(&src, M, s->K, s->act == KVF__I8 ? dnnl_u8 : dnnl_type(s->act), dnnl_ab);
    if (!st) st = matrix_md(&dst, M, s->N, dnnl_type(dst_type), dnnl_ab);
    if (!st) st = dnnl_primitive_attr_create(&attr);
    if (!st) st = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (!st) st = dnnl_post_ops_create(&ops);
    if (!st && flags & KVF__MM_ADD) st = kvf__append_sum(ops);
    if (!st && flags & KVF__MM_ADD) st = dnnl_primitive_attr_set_post_ops(attr, ops);
    if (!st)
        st = kvf__matmul_pd_create(pd, mm->engine, &src, weights,
                                   flags & WITH_BIAS ? &s->bias : NULL, &dst, attr);
    dnnl_post_ops_destroy(ops);
    dnnl_primitive_attr_destroy(attr);
    kvf__md_destroy(&src);
    kvf__md_destroy(&dst);
    return st;
}

/* The layout of [K, N] that oneDNN prefers. */
static dnnl_status_t choose_layout(const kvf__mm *mm, shape *s)
{
    dnnl_memory_desc_t any = {0};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st;

    if (s->act == KVF__F32 && kvf__cpu_best() == KVF__CPU_AVX2) {
        s->ld = kvf__sgemm_stride(s->N);
        return kvf__md_create_rows(&s->weights, s->K, s->N, s->ld);
    }
    st = matrix_md(&any, s->K, s->N, dnnl_type(s->act), dnnl_format_tag_any);
    if (!st) st = matrix_md(&s->bias, 1, s->N, dnnl_f32, dnnl_ab);
    if (!st) st = product_pd(mm, &pd, s, &any, NOMINAL_M, s->act == KVF__I8 ? KVF__I32 : s->act, 0);
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
    *s = (shape){.act = act, .K = K, .N = N, .prims = NONE};
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

/* Also rounds to the act type, and fills the padding of blocked layouts with zeros. */
static dnnl_status_t reorder(const kvf__mm *mm, const void *w, kvf__dtype type, bool transposed,
                             const shape *s, dnnl_memory_t to)
{
    dnnl_memory_desc_t plain = {0};
    dnnl_memory_t from = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_status_t st;

    st = matrix_md(&plain, s->K, s->N, dnnl_type(type), transposed ? dnnl_ba : dnnl_ab);
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

/* Memory of a packed weight. */
static kvf_status packed_init(kvf_ctx *ctx, const kvf__mm *mm, const shape *s, bool bias,
                              kvf__packed *packed)
{
    dnnl_status_t failed;

    packed->bytes = dnnl_memory_desc_get_size(KVF__MD(&s->weights));
    KVF_TRY(kvf__alloc(ctx, packed->bytes, &packed->data));
    failed = dnnl_memory_create(&packed->weights, KVF__MD(&s->weights), mm->engine, packed->data);
    if (s->act == KVF__I8) {
        KVF_TRY(kvf__alloc_array(ctx, (size_t)s->N, sizeof *packed->scale, &packed->scale));
        KVF_TRY(kvf__alloc_array(ctx, (size_t)s->N, sizeof *packed->zero, &packed->zero));
    }
    if (!failed && bias) {
        KVF_TRY(kvf__alloc_array(ctx, (size_t)s->N, sizeof *packed->bias_data, &packed->bias_data));
        if (s->act == KVF__I8) return KVF_OK; /* it comes after the scales */
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
    if (st)
        kvf__packed_free(packed);
    else
        *out = packed;
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

/* ---- primitives ------------------------------------------------------------------------------ */

static prim *find_prim(kvf__mm *mm, const prim_key *key)
{
    for (int32_t i = mm->shapes[key->shape].prims; i != NONE; i = mm->prims[i].next) {
        const prim_key *k = &mm->prims[i].key;
        if (k->M == key->M && k->dst_type == key->dst_type && k->flags == key->flags)
            return &mm->prims[i];
    }
    return NULL;
}

/* An empty slot, that of the least recently used primitive if need be. */
static int32_t free_slot(kvf__mm *mm)
{
    int32_t oldest = 0;
    if (mm->n_prims < KVF__MM_PRIMS) return mm->n_prims++;
    for (int32_t i = 1; i < KVF__MM_PRIMS; i++)
        if (mm->prims[i].used < mm->prims[oldest].used) oldest = i;

    int32_t *link = &mm->shapes[mm->prims[oldest].key.shape].prims;
    while (*link != oldest)
        link = &mm->prims[*link].next;
    *link = mm->prims[oldest].next;
    prim_done(&mm->prims[oldest]);
    return oldest;
}

/* Names that oneDNN 2.6 and 3 give: "brg:avx512_core_bf16", "brg_matmul:avx2", "gemm:jit",
 * "gemm:jit:f32"; the slow ones are "ref:any" and "gemm:ref", up to 1000 times slower. */
static bool is_fast(const char *implementation)
{
    return strncmp(implementation, "brg", 3) == 0 || strncmp(implementation, "gemm:jit", 8) == 0 ||
           strncmp(implementation, "jit", 3) == 0;
}

static kvf_status check_implementation(kvf_ctx *ctx, const_dnnl_primitive_desc_t pd, const shape *s,
                                       int64_t M)
{
    const char *name = "unknown";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    kvf__log(ctx, KVF_LOG_DEBUG, "product [%lld, %lld] x [%lld, %lld] %s: %s", (long long)M,
             (long long)s->K, (long long)s->K, (long long)s->N, kvf__dtype_name(s->act), name);
    if (is_fast(name) || kvf__cpu_best() == KVF__CPU_REF) return KVF_OK;
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "oneDNN has only \"%s\" for a %s product [%lld, %lld] x [%lld, %lld]", name,
                     kvf__dtype_name(s->act), (long long)M, (long long)s->K, (long long)s->K,
                     (long long)s->N);
}

kvf_status kvf__mm_reserve(kvf_ctx *ctx, kvf__mm_space *space, size_t bytes)
{
    void *grown = NULL;
    if (bytes <= space->bytes) return KVF_OK;
    KVF_TRY(kvf__alloc(ctx, bytes, &grown));
    kvf__free(space->data);
    *space = (kvf__mm_space){grown, bytes};
    return KVF_OK;
}

/* The primitive of pd with its memory objects, all without data yet. */
static dnnl_status_t prim_init(const kvf__mm *mm, prim *p, const_dnnl_primitive_desc_t pd)
{
    kvf__md_arg scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0),
                src = dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0),
                dst = dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0);
    KVF__DNNL_TRY(dnnl_primitive_create(&p->primitive, pd));
    KVF__DNNL_TRY(dnnl_memory_create(&p->src, src, mm->engine, DNNL_MEMORY_NONE));
    KVF__DNNL_TRY(dnnl_memory_create(&p->dst, dst, mm->engine, DNNL_MEMORY_NONE));
    p->scratch_bytes = dnnl_memory_desc_get_size(scratch);
    if (p->scratch_bytes == 0) return dnnl_success;
    return dnnl_memory_create(&p->scratch, scratch, mm->engine, DNNL_MEMORY_NONE);
}

/* An eight-bit product is run by one thread, on its own chunk of rows. */
static kvf_status make_prim(kvf_ctx *ctx, kvf__mm *mm, const prim_key *key, prim **out)
{
    const shape *s = &mm->shapes[key->shape];
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t failed;
    prim made = {.key = *key};
    kvf_status st = KVF_OK;

    KVF_TRY(kvf__dnnl_memory_allows(ctx));
    const int threads = s->act == KVF__I8 ? kvf__dnnl_threads(1) : 0;
    failed = product_pd(mm, &pd, s, &s->weights, key->M, (kvf__dtype)key->dst_type, key->flags);
    if (failed) goto out;
    st = check_implementation(ctx, pd, s, key->M);
    if (st) goto out;
    st = kvf__mm_reserve(
        ctx, &mm->scratch,
        dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0)));
    if (st) goto out;
    failed = prim_init(mm, &made, pd);
    if (failed) goto out;

    int32_t slot = free_slot(mm), *first = &mm->shapes[key->shape].prims;
    made.next = *first;
    *first = slot;
    mm->prims[slot] = made;
    *out = &mm->prims[slot];
    made = (prim){0};
out:
    if (threads) kvf__dnnl_threads(threads);
    prim_done(&made);
    dnnl_primitive_desc_destroy(pd);
    return failed ? kvf__mm_fail(ctx, failed, "product", key->M, s->K, s->N) : st;
}

kvf_status kvf__mm_prim_get(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M,
                            kvf__dtype dst_type, unsigned flags, prim **out)
{
    assert(dst_type == KVF__F32 || dst_type == w->act || (w->scale && dst_type == KVF__I32));
    const prim_key key = {.M = M,
                          .shape = w->shape,
                          .dst_type = (uint16_t)dst_type,
                          .flags = (uint16_t)(flags | (w->bias ? WITH_BIAS : 0))};
    prim *found = find_prim(mm, &key);
    if (!found) KVF_TRY(make_prim(ctx, mm, &key, &found));
    found->used = ++mm->tick;
    *out = found;
    return KVF_OK;
}

kvf_status kvf__mm_prepare(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M,
                           kvf__dtype dst_type, unsigned flags)
{
    prim *p;
    if (M && w->scale) return kvf__int8_prepare(ctx, mm, w, M);
    if (mm->shapes[w->shape].ld) return kvf__sgemm_prepare(ctx, mm, w, M);
    return M == 0 ? KVF_OK : kvf__mm_prim_get(ctx, mm, w, M, dst_type, flags, &p);
}

kvf_status kvf__mm_run(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M, const void *src,
                       void *dst, kvf__dtype dst_type, unsigned flags)
{
    prim *p;
    if (M == 0) return KVF_OK;
    if (w->scale) return kvf__int8_run(ctx, mm, w, M, src, dst, dst_type, flags);
    if (mm->shapes[w->shape].ld) return kvf__sgemm_run(ctx, mm, w, M, src, dst, flags);
    KVF_TRY(kvf__mm_prim_get(ctx, mm, w, M, dst_type, flags, &p));

    dnnl_exec_arg_t args[5] = {
        {DNNL_ARG_SRC, p->src}, {DNNL_ARG_WEIGHTS, w->weights}, {DNNL_ARG_DST, p->dst}};
    int n = 3;
    dnnl_memory_set_data_handle(p->src, (void *)src);
    dnnl_memory_set_data_handle(p->dst, dst);
    if (p->scratch) {
        dnnl_memory_set_data_handle(p->scratch, mm->scratch.data);
        args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, p->scratch};
    }
    if (w->bias) args[n++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, w->bias};

    dnnl_status_t failed = dnnl_primitive_execute(p->primitive, mm->stream, n, args);
    if (!failed) failed = dnnl_stream_wait(mm->stream);
    return failed ? kvf__mm_fail(ctx, failed, "product", M, w->K, w->N) : KVF_OK;
}

const char *kvf__mm_version(char buf[32])
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(buf, 32, "%d.%d.%d", version->major, version->minor, version->patch);
    return buf;
}
