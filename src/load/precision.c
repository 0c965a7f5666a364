/* The precision of a run. `auto` is a fixed rule, so that equal commands give equal files under any
 * load: it depends on the CPU's flags (kvf__cpu_bf16_is_faster) and the width of the base. It
 * chooses bf16 where a whole training step is at least 1.25 times as fast as with f32. The table
 * shows the speed of bf16 relative to f32 on Zen 4, for steps of 8 rows of 64 tokens and of 2 rows
 * of 32. One thread, four layers, V = 4096; medians of nine pairs.
 *
 *   C               32    48    64    96   128   192   256   384   512
 *   8 x 64        1.28  1.31  1.54  1.63  1.91  1.66  1.74  1.86  1.92
 *   2 x 32        1.18  1.17  1.26  1.35  1.51  1.62  1.69  1.75  1.81
 *
 * oneDNN 2.6 and 3.2 multiply at the same rates, so its version does not matter. */
#include "kernels.h"
#include "open_base.h"

#include <string.h>

#define BF16_WIDTH 64 /* least C */

/* Names of precisions and weight types. */
static const char *const NAMES[] = {"auto", "f32", "bf16", "int8"};

const char *kvf__precision_name(kvf_precision precision)
{
    return NAMES[precision];
}

const char *kvf__weight_dtype_name(kvf_weight_dtype dtype)
{
    return NAMES[dtype];
}

kvf_status kvf__precision_resolve(kvf_ctx *ctx, kvf_precision wanted, const kvf__desc *desc,
                                  kvf_precision *out)
{
    bool pays = kvf__cpu_bf16_is_faster() && desc->C >= BF16_WIDTH;
    if (wanted == KVF_PRECISION_BF16 && !kvf__cpu_has_bf16())
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "precision bf16: this CPU (%s) has no bf16 products; use f32",
                         kvf__cpu_level());
    if (wanted == KVF_PRECISION_INT8 && !kvf__cpu_has_int8())
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "precision int8: this CPU (%s) has no eight-bit dot products "
                         "(AVX512-VNNI); use %s",
                         kvf__cpu_level(), kvf__cpu_has_bf16() ? "bf16 or f32" : "f32");
    *out = wanted != KVF_PRECISION_AUTO ? wanted : pays ? KVF_PRECISION_BF16 : KVF_PRECISION_F32;
    return KVF_OK;
}
