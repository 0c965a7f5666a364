/* oneDNN's engine and stream, made under the cap of KVF_CPU, its reorders and its failures: for the
 * other dnnl_ files alone. */
#ifndef KVF_DNNL_ENGINE_H
#define KVF_DNNL_ENGINE_H

#include "base_int.h"
#include "dnnl_compat.h"

/* Takes effect before oneDNN's first look at the CPU only; later it must at least have been obeyed
 * (EUSAGE). For what needs no engine. */
kvf_status kvf__dnnl_cap(kvf_ctx *ctx);
/* ENOMEM where the system would refuse what oneDNN takes next for the code it writes, which it does
 * not survive: before a primitive is made that it does not know yet, and before the first
 * dnnl_sgemm. */
kvf_status kvf__dnnl_memory_allows(kvf_ctx *ctx);
/* A CPU engine and a stream on it, the caller's; capped. */
kvf_status kvf__dnnl_open(kvf_ctx *ctx, dnnl_engine_t *engine, dnnl_stream_t *stream);

/* Sets for how many threads oneDNN divides what it makes and runs; the number before. */
int kvf__dnnl_threads(int threads);

/* oneDNN's status as ours, and why in a word or two. */
kvf_status kvf__dnnl_failed(dnnl_status_t status, const char **why);

/* Copies what one layout holds into another. run does not wait. */
dnnl_status_t kvf__reorder_create(dnnl_engine_t engine, kvf__md_arg from, kvf__md_arg to,
                                  dnnl_primitive_t *out);
dnnl_status_t kvf__reorder_run(dnnl_stream_t stream, dnnl_primitive_t reorder, dnnl_memory_t from,
                               dnnl_memory_t to);

/* For functions of a dnnl_status_t that hold nothing: the first failure ends them. */
#define KVF__DNNL_TRY(call)                                                                        \
    do {                                                                                           \
        dnnl_status_t status_ = (call);                                                            \
        if (status_) return status_;                                                               \
    } while (0)

#endif
