/* Memory of the vectors of port `embed`; see vectors.h. */
#include "vectors.h"

kvf_status kvf__vectors_init(kvf_ctx *ctx, kvf__vectors *out, int64_t P, int64_t C)
{
    float *x = NULL;
    size_t n;
    if (P < 0 || C < 0 || !kvf__mul((size_t)P, (size_t)C, &n))
        return kvf__fail(ctx, KVF_ESHAPE, "vectors: [%lld, %lld] is not a valid shape",
                         (long long)P, (long long)C);
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *x, &x));
    *out = (kvf__vectors){P, C, x};
    return KVF_OK;
}

void kvf__vectors_done(kvf__vectors *vectors)
{
    kvf__free(vectors->x);
    *vectors = (kvf__vectors){0};
}
