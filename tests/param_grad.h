/* Forms the gradient of a parameter if the encoder stores it as two factors. */
#ifndef KVF_PARAM_GRAD_H
#define KVF_PARAM_GRAD_H

#include "param.h"

#include <string.h>

/* out [n] */
static inline void param_grad(const kvf__param *param, float *out)
{
    if (!param->outer) {
        memcpy(out, param->grad, (size_t)param->n * sizeof *out);
        return;
    }
    int64_t rows = param->dim[0], columns = param->dim[1];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            double sum = 0;
            for (int64_t p = 0; p < param->outer; p++)
                sum += (double)param->left[p * rows + r] * (double)param->right[p * columns + c];
            out[r * columns + c] = (float)sum;
        }
}

#endif
