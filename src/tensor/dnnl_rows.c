/* bf16 products with AMX and a long inner dimension, in chunks of rows that one thread computes
 * each. oneDNN's own division cuts sums of about 1000 terms or more by the number of threads, so
 * bits would depend on it. The chunks depend on the number of rows alone. */
#include "dnnl_matmul_priv.h"

#include <omp.h>

enum {
    CHUNKS = 8, /* about as many chunks of many rows */
    UNIT = 64,  /* chunks have a multiple of so many rows */
    MOST = 256, /* rows of a chunk */
    LINE = 64   /* bytes */
};

dnnl_status_t kvf__mm_run_over(const kvf__mm *mm, const kvf__mm_prim *p, const kvf__packed *w,
                               const void *src, void *dst, void *scratch)
{
    dnnl_memory_t memory[3] = {0};
    void *const data[] = {(void *)src, dst, scratch};
    const dnnl_memory_t like[] = {p->src, p->dst, p->scratch};
    dnnl_status_t st = dnnl_success;

    for (int i = 0; i < 3 && !st; i++) {
        kvf__md_arg md;
        if (!like[i]) continue;
        st = dnnl_memory_get_memory_desc(like[i], &md);
        if (!st) st = dnnl_memory_create(&memory[i], md, mm->engine, data[i]);
    }
    if (!st) st = kvf__mm_execute(mm, p, w, memory[0], memory[1], memory[2]);
    for (int i = 0; i < 3; i++)
        dnnl_memory_destroy(memory[i]);
    return st;
}

/* Primitives for the rows of a chunk and of the last one, and the scratch of a thread in mm->own.
 */
typedef struct plan {
    int64_t rows;
    kvf__mm_prim *whole, *last;
    size_t bytes;
} plan;

static kvf_status find_prim(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, const kvf__mm_key *key,
                            plan *p, kvf__mm_prim **out)
{
    if (!key->M) return KVF_OK;
    KVF_TRY(kvf__mm_prim_get(ctx, mm, w, key->M, (kvf__dtype)key->dst_type, key->flags, out));
    const size_t bytes = ((*out)->scratch_bytes + LINE - 1) / LINE * LINE;
    if (bytes > p->bytes) p->bytes = bytes;
    return KVF_OK;
}

static kvf_status make_plan(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, const kvf__mm_key *of,
                            plan *p)
{
    const int64_t even = (of->M / CHUNKS + UNIT - 1) / UNIT * UNIT;
    kvf__mm_key key = *of;

    *p = (plan){.rows = even < UNIT ? UNIT : even > MOST ? MOST : even};
    key.M = of->M < p->rows ? 0 : p->rows;
    KVF_TRY(find_prim(ctx, mm, w, &key, p, &p->whole));
    key.M = of->M % p->rows;
    KVF_TRY(find_prim(ctx, mm, w, &key, p, &p->last));
    return kvf__mm_reserve(ctx, &mm->own, p->bytes * (size_t)omp_get_max_threads());
}

static kvf__mm_key key_of(int64_t M, kvf__dtype dst_type, unsigned flags)
{
    return (kvf__mm_key){.M = M, .dst_type = (uint16_t)dst_type, .flags = (uint16_t)flags};
}

kvf_status kvf__rows_prepare(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M,
                             kvf__dtype dst_type, unsigned flags)
{
    const kvf__mm_key key = key_of(M, dst_type, flags);
    plan p;
    return make_plan(ctx, mm, w, &key, &p);
}

kvf_status kvf__rows_run(kvf_ctx *ctx, kvf__mm *mm, const kvf__packed *w, int64_t M,
                         const void *src, void *dst, kvf__dtype dst_type, unsigned flags)
{
    const kvf__mm_key key = key_of(M, dst_type, flags);
    const size_t out = kvf__dtype_block_bytes(dst_type) * (size_t)w->N;
    const size_t in = kvf__dtype_block_bytes(w->act) * (size_t)w->K;
    dnnl_status_t failed = dnnl_success;
    plan p;

    KVF_TRY(make_plan(ctx, mm, w, &key, &p));
#pragma omp parallel for schedule(static, 1)
    for (int64_t first = 0; first < M; first += p.rows) {
        char *scratch = (char *)mm->own.data + (size_t)omp_get_thread_num() * p.bytes;
        const dnnl_status_t st = kvf__mm_run_over(mm, first + p.rows <= M ? p.whole : p.last, w,
                                                  (const char *)src + (size_t)first * in,
                                                  (char *)dst + (size_t)first * out, scratch);
        if (st) {
#pragma omp critical(kvf_rows)
            failed = st;
        }
    }
    return failed ? kvf__mm_fail(ctx, failed, "product", M, w->K, w->N) : KVF_OK;
}
