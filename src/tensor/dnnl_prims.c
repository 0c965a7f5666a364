/* Primitives of products, in a table of fixed size. A lookup in oneDNN's own cache needs a new
 * descriptor, 16 us where a product of 4 rows takes 10. The scratchpad is ours and shared, because
 * two primitives may not use oneDNN's own at once. */
#include "dnnl_matmul_priv.h"

#include <assert.h>
#include <string.h>

enum {
    WITH_BIAS = 1 << 8, /* a flag besides KVF__MM_ in a key */
    LONG_K = 960 /* with AMX: longest inner dimension of which no product differed, for 1 to 8
                    threads */
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

kvf_status kvf__mm_reserve(kvf_ctx *ctx, kvf__mm_space *space, size_t bytes)
{
    void *grown = NULL;
    if (bytes <= space->bytes) return KVF_OK;
    KVF_TRY(kvf__alloc(ctx, bytes, &grown));
    kvf__free(space->data);
    *space = (kvf__mm_space){grown, bytes};
    return KVF_OK;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

dnnl_data_type_t kvf__dnnl_type(kvf__dtype dtype)
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

dnnl_status_t kvf__md_matrix(dnnl_memory_desc_t *md, int64_t rows, int64_t columns,
                             dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    const dnnl_dims_t dims = {rows, columns};
    return kvf__md_create(md, 2, dims, type, tag);
}

dnnl_status_t kvf__mm_product_pd(const kvf__mm *mm, dnnl_primitive_desc_t *pd, const shape *s,
                                 const dnnl_memory_desc_t *weights, int64_t M, kvf__dtype dst_type,
                                 unsigned flags)
{
    dnnl_memory_desc_t src = {0}, dst = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;

    dnnl_status_t st = kvf__md_matrix(
        &src, M, s->K, s->act == KVF__I8 ? dnnl_u8 : kvf__dnnl_type(s->act), dnnl_ab);
    if (!st) st = kvf__md_matrix(&dst, M, s->N, kvf__dnnl_type(dst_type), dnnl_ab);
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

/* ---- the table ------------------------------------------------------------------------------- */

void kvf__mm_prim_done(prim *p)
{
    dnnl_memory_destroy(p->src);
    dnnl_memory_destroy(p->dst);
    dnnl_memory_destroy(p->scratch);
    dnnl_primitive_destroy(p->primitive);
    *p = (prim){0};
}

static prim *find_prim(kvf__mm *mm, const prim_key *key)
{
    for (int32_t i = mm->shapes[key->shape].prims; i != KVF__MM_NONE; i = mm->prims[i].next) {
        const prim_key *k = &mm->prims[i].key;
        if (k->M == key->M && k->dst_type == key->dst_type && k->flags == key->flags)
            return &mm->prims[i];
    }
    return NULL;
}

/* Returns an empty slot, if necessary that of the least recently used primitive. */
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
    kvf__mm_prim_done(&mm->prims[oldest]);
    return oldest;
}

/* Returns whether an implementation is fast. Names in oneDNN 2.6 and 3: "brg:avx512_core_bf16",
 * "brg_matmul:avx2", "gemm:jit", "gemm:jit:f32". The slow ones, "ref:any" and "gemm:ref", take up
 * to 1000 times as long. */
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

bool kvf__mm_by_rows(const kvf__mm_shape *s)
{
    return s->act == KVF__BF16 && s->K > LONG_K && kvf__cpu_best() == KVF__CPU_AMX;
}

/* Makes the primitive of pd with its memory objects, all without data. */
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

/* Makes a primitive. That of a product in chunks of rows is run by one thread. */
static kvf_status make_prim(kvf_ctx *ctx, kvf__mm *mm, const prim_key *key, prim **out)
{
    const shape *s = &mm->shapes[key->shape];
    dnnl_primitive_desc_t pd = NULL;
    prim made = {.key = *key};
    kvf_status st = KVF_OK;

    KVF_TRY(kvf__dnnl_memory_allows(ctx));
    const bool chunks = s->act == KVF__I8 || kvf__mm_by_rows(s);
    const int threads = chunks ? kvf__dnnl_threads(1) : 0;
    dnnl_status_t failed = kvf__mm_product_pd(mm, &pd, s, &s->weights, key->M,
                                              (kvf__dtype)key->dst_type, key->flags);
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
    kvf__mm_prim_done(&made);
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

dnnl_status_t kvf__mm_execute(const kvf__mm *mm, const prim *p, const kvf__packed *w,
                              dnnl_memory_t src, dnnl_memory_t dst, dnnl_memory_t scratch)
{
    dnnl_exec_arg_t args[5] = {
        {DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, w->weights}, {DNNL_ARG_DST, dst}};
    int n = 3;

    if (scratch) args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, scratch};
    if (w->bias) args[n++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, w->bias};
    KVF__DNNL_TRY(dnnl_primitive_execute(p->primitive, mm->stream, n, args));
    return dnnl_stream_wait(mm->stream);
}
