/* Opening oneDNN, see dnnl_engine.h. Its instruction sets are capped before it first detects the
 * CPU. */
#include "dnnl_engine.h"

#include "kernels_int.h"

#include <omp.h>

/* Each kernel has a code buffer of 256 or 320 KB. A product has up to 16 kernels, dnnl_sgemm 24 in
 * total. The rest is for what oneDNN, OpenMP and HDF5 allocate besides. */
enum { CODE_BYTES = 10 << 20 };

kvf_status kvf__dnnl_cap(kvf_ctx *ctx)
{
    static const dnnl_cpu_isa_t caps[] = {dnnl_cpu_isa_sse41, dnnl_cpu_isa_avx2,
                                          dnnl_cpu_isa_avx512_core, dnnl_cpu_isa_avx512_core_bf16,
                                          dnnl_cpu_isa_avx512_core_amx};
    if (!KVF__HAVE_X86 || !kvf__cpu_is_capped()) return KVF_OK;

    dnnl_cpu_isa_t most = caps[kvf__cpu_best()];
    dnnl_set_max_cpu_isa(most);
    if ((unsigned)dnnl_get_effective_cpu_isa() & ~(unsigned)most)
        return kvf__fail(
            ctx, KVF_EUSAGE,
            "KVF_CPU=%s has no effect after oneDNN's first use in this process: set it earlier",
            kvf__cpu_level());
    return KVF_OK;
}

kvf_status kvf__dnnl_memory_allows(kvf_ctx *ctx)
{
    if (kvf__memory_allows(CODE_BYTES)) return KVF_OK;
    return kvf__fail(ctx, KVF_ENOMEM,
                     "out of memory: less than the %d MB are left that oneDNN may need for code",
                     CODE_BYTES >> 20);
}

kvf_status kvf__dnnl_open(kvf_ctx *ctx, dnnl_engine_t *engine, dnnl_stream_t *stream)
{
    KVF_TRY(kvf__dnnl_cap(ctx));
    KVF_TRY(kvf__dnnl_memory_allows(ctx));
    if (dnnl_engine_create(engine, dnnl_cpu, 0) ||
        dnnl_stream_create(stream, *engine, dnnl_stream_default_flags))
        return kvf__fail(ctx, KVF_EINTERNAL, "oneDNN: cannot make a CPU engine");
    return KVF_OK;
}

int kvf__dnnl_threads(int threads)
{
    const int before = omp_get_max_threads();
    omp_set_num_threads(threads);
    return before;
}

kvf_status kvf__dnnl_failed(dnnl_status_t status, const char **why)
{
    switch (status) {
    case dnnl_out_of_memory:
        *why = "out of memory";
        return KVF_ENOMEM;
    case dnnl_unimplemented:
        *why = "not implemented for this CPU";
        return KVF_EUNSUPPORTED;
    default:
        *why = "failed";
        return KVF_EINTERNAL;
    }
}

dnnl_status_t kvf__reorder_create(dnnl_engine_t engine, kvf__md_arg from, kvf__md_arg to,
                                  dnnl_primitive_t *out)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, NULL);
    if (!st) st = dnnl_primitive_create(out, pd);
    dnnl_primitive_desc_destroy(pd);
    return st;
}

dnnl_status_t kvf__reorder_run(dnnl_stream_t stream, dnnl_primitive_t reorder, dnnl_memory_t from,
                               dnnl_memory_t to)
{
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return dnnl_primitive_execute(reorder, stream, 2, args);
}
