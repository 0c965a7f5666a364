/* The product of matvec.h as plain loops. */
#include "kernels_int.h"
#include "matvec_int.h"

#include <string.h>

/* All types except those that dequant.c converts by parts. */
bool kvf__matvec_takes(kvf__dtype dtype)
{
    return dtype < KVF__Q2_K || dtype > KVF__MXFP4;
}

size_t kvf__matvec_row_bytes(kvf__dtype dtype, int64_t K)
{
    return (size_t)(K / kvf__dtype_block(dtype)) * kvf__dtype_block_bytes(dtype);
}

/* Returns the size of a panel of rows of W, and the rows of x. */
size_t kvf__matvec_scratch(int64_t M, int64_t K)
{
    return (size_t)((KVF__MATVEC_ROWS + M) * kvf__matvec_padded(K)) * sizeof(float);
}

static void run(const kvf__matvec_call *call)
{
    const size_t bytes = kvf__matvec_row_bytes(call->dtype, call->K);
    float *row = call->scratch;

    for (int64_t i = 0; i < call->n; i++) {
        kvf__to_f32(call->dtype, (const uint8_t *)call->w + (size_t)i * bytes, row, call->K);
        for (int64_t m = 0; m < call->M; m++) {
            float *y = call->y + m * call->ldy + i;
            double sum = call->add ? *y : 0;
            for (int64_t k = 0; k < call->K; k++)
                sum += (double)row[k] * (double)call->x[m * call->ldx + k];
            *y = (float)sum;
        }
    }
}

const kvf__matvec kvf__matvec_ref = {.name = "ref", .run = run};
