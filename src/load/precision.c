/* Which type a run computes in. Whether bf16 pays depends on the machine, not on its flags
 * (COMPUTE.md: 4.6x faster with AMX, 1.8x on Zen 4, slower than f32 on an AMX machine capped to
 * AVX512_BF16), so `auto` times both. */
#include "kernels.h"
#include "load_int.h"
#include "matmul.h"

#include <string.h>

#define PROBE_M      256
#define PROBE_K      768
#define PROBE_N      1536
#define PROBE_ROUNDS 5
#define PROBE_GAIN   1.25

kvf_status kvf__precision_parse(kvf_ctx *ctx, const char *name, kvf_precision *out)
{
    static const char *const NAMES[] = {"auto", "f32", "bf16"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, NAMES[i])) {
            *out = (kvf_precision)i;
            return KVF_OK;
        }
    return kvf__fail(ctx, KVF_EUSAGE, "precision \"%s\" is not known; known: auto, f32, bf16",
                     name);
}

const char *kvf__precision_name(kvf_precision precision)
{
    return precision == KVF_PRECISION_F32    ? "f32"
           : precision == KVF_PRECISION_BF16 ? "bf16"
                                             : "auto";
}

kvf_status kvf__weight_dtype_parse(kvf_ctx *ctx, const char *name, kvf_weight_dtype *out)
{
    static const char *const NAMES[] = {"auto", "f32", "bf16", "int8"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, NAMES[i])) {
            *out = (kvf_weight_dtype)i;
            return KVF_OK;
        }
    return kvf__fail(ctx, KVF_EUSAGE,
                     "weight-dtype \"%s\" is not known; known: auto, f32, bf16, int8", name);
}

/* Best time of a product in one type, after a warm-up. */
static kvf_status time_product(kvf_ctx *ctx, kvf__mm *mm, kvf__dtype act, const float *weight,
                               const float *src, float *dst, double *seconds)
{
    kvf__packed *packed = NULL;
    KVF_TRY(kvf__pack(ctx, mm, act, weight, false, PROBE_K, PROBE_N, NULL, &packed));
    kvf_status st = KVF_OK;
    double best = 1e30;
    for (int round = 0; !st && round <= PROBE_ROUNDS; round++) {
        double begin = kvf__clock();
        st = kvf__mm_run(ctx, mm, packed, PROBE_M, src, dst, KVF__F32, 0);
        double took = kvf__clock() - begin;
        if (round && took < best) best = took;
    }
    kvf__packed_free(packed);
    if (!st) *seconds = best;
    return st;
}

static kvf_status probe(kvf_ctx *ctx, double *gain)
{
    kvf__mm *mm = NULL;
    float *weight = NULL, *src = NULL, *dst = NULL;
    double f32 = 0, bf16 = 0;
    kvf_status st;

    st = kvf__mm_create(ctx, &mm);
    if (st) goto out;
    st = kvf__alloc_array(ctx, (size_t)PROBE_K * PROBE_N, sizeof *weight, &weight);
    if (st) goto out;
    st = kvf__alloc_array(ctx, (size_t)PROBE_M * PROBE_K, sizeof *src, &src);
    if (st) goto out;
    st = kvf__alloc_array(ctx, (size_t)PROBE_M * PROBE_N, sizeof *dst, &dst);
    if (st) goto out;
    st = time_product(ctx, mm, KVF__F32, weight, src, dst, &f32);
    if (st) goto out;
    st = time_product(ctx, mm, KVF__BF16, weight, src, dst, &bf16);
    if (st) goto out;
    *gain = f32 / bf16;
out:
    kvf__free(weight);
    kvf__free(src);
    kvf__free(dst);
    kvf__mm_free(mm);
    return st;
}

kvf_status kvf__precision_resolve(kvf_ctx *ctx, kvf_precision wanted, kvf_precision *out)
{
    if (wanted == KVF_PRECISION_BF16 && !kvf__cpu_has_bf16())
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "precision bf16: this CPU (%s) has no bf16 products; use f32",
                         kvf__cpu_level());
    kvf_precision result = wanted;
    if (wanted == KVF_PRECISION_AUTO) {
        double gain = 0;
        if (kvf__cpu_has_bf16()) KVF_TRY(probe(ctx, &gain));
        result = gain >= PROBE_GAIN ? KVF_PRECISION_BF16 : KVF_PRECISION_F32;
        kvf__log(ctx, KVF_LOG_DEBUG, "precision %s: bf16 products run at %.2fx the f32 rate",
                 kvf__precision_name(result), gain);
    }
    *out = result;
    return KVF_OK;
}
