/* oneDNN's engine and stream under the cap of KVF_CPU, its reorders and errors, for the dnnl_ files
 * only. */
#ifndef KVF_DNNL_ENGINE_H
#define KVF_DNNL_ENGINE_H

#include "base_int.h"
#include "dnnl_compat.h"

/* Applies the cap of KVF_CPU, which works only before oneDNN first detects the CPU. Later it must
 * already match (EUSAGE). For functions without an engine. */
kvf_status kvf__dnnl_cap(kvf_ctx *ctx);
/* ENOMEM: the system would refuse the memory for oneDNN's next generated code, which oneDNN does
 * not survive. Called before a new primitive is made, and before the first dnnl_sgemm. */
kvf_status kvf__dnnl_memory_allows(kvf_ctx *ctx);
/* Creates a CPU engine and a stream, capped, owned by the caller. */
kvf_status kvf__dnnl_open(kvf_ctx *ctx, dnnl_engine_t *engine, dnnl_stream_t *stream);

/* Sets the number of threads for which oneDNN makes and runs primitives; returns the former
 * number. */
int kvf__dnnl_threads(int threads);

/* Converts oneDNN's status; *why: a short reason. */
kvf_status kvf__dnnl_failed(dnnl_status_t status, const char **why);

/* Creates or runs a copy from one layout to another. run does not wait. */
dnnl_status_t kvf__reorder_create(dnnl_engine_t engine, kvf__md_arg from, kvf__md_arg to,
                                  dnnl_primitive_t *out);
dnnl_status_t kvf__reorder_run(dnnl_stream_t stream, dnnl_primitive_t reorder, dnnl_memory_t from,
                               dnnl_memory_t to);

/* Returns at the first failure, in functions that return a dnnl_status_t and own nothing. */
#define KVF__DNNL_TRY(call)                                                                        \
    do {                                                                                           \
        dnnl_status_t status_ = (call);                                                            \
        if (status_) return status_;                                                               \
    } while (0)

#endif
