/* oneDNN's engine and stream, made under the cap of KVF_CPU: for the other dnnl_ files alone. */
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

#endif
