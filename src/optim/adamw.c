/* AdamW in f32 with torch's order of operations, so that loss curves can be compared digit by
 * digit. Bias corrections are computed in f64. The loops are element-wise; memory bandwidth bounds
 * them. */
#include "optim_int.h"

#include <math.h>

static size_t padded(int64_t n)
{
    return ((size_t)n + 15) / 16 * 16;
}

kvf_status kvf__adamw_init(kvf_ctx *ctx, kvf__adamw *adamw, const kvf__params *params)
{
    size_t total = 0;
    for (size_t i = 0; i < params->n; i++)
        total += padded(params->item[i].n);
    float *memory = NULL;
    KVF_TRY(kvf__alloc_array(ctx, 2 * total, sizeof *memory, &memory));
    adamw->memory = memory;
    adamw->m = adamw->v = *params;
    adamw->t = 0;
    float *at = memory;
    for (size_t i = 0; i < params->n; i++) {
        adamw->m.item[i].value = at;
        adamw->v.item[i].value = at + total;
        adamw->m.item[i].grad = adamw->v.item[i].grad = NULL;
        at += padded(params->item[i].n);
    }
    return KVF_OK;
}

void kvf__adamw_done(kvf__adamw *adamw)
{
    kvf__free(adamw->memory);
    adamw->memory = NULL;
}

/* The numbers that all elements of one parameter share. */
typedef struct coefficients {
    float decay, beta1_rest, beta2, beta2_rest, step_size, root_correction, eps, grad_scale;
} coefficients;

static void update(const coefficients *c, float *w, float *m, float *v, const float *g, int64_t n)
{
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < n; i++) {
        float gradient = g[i] * c->grad_scale;
        m[i] += (gradient - m[i]) * c->beta1_rest;
        v[i] = v[i] * c->beta2 + gradient * gradient * c->beta2_rest;
        float denominator = sqrtf(v[i]) / c->root_correction + c->eps;
        w[i] = w[i] * c->decay - c->step_size * (m[i] / denominator);
    }
}

void kvf__adamw_step(kvf__adamw *adamw, kvf__params *params, double lr, double grad_scale)
{
    adamw->t++;
    double correction1 = 1 - pow(adamw->beta1, (double)adamw->t);
    double correction2 = 1 - pow(adamw->beta2, (double)adamw->t);
    for (size_t i = 0; i < params->n; i++) {
        kvf__param *param = &params->item[i];
        double rate = lr * param->lr_scale;
        coefficients c = {
            .decay = (float)(1 - rate * adamw->weight_decay),
            .beta1_rest = (float)(1 - adamw->beta1),
            .beta2 = (float)adamw->beta2,
            .beta2_rest = (float)(1 - adamw->beta2),
            .step_size = (float)(rate / correction1),
            .root_correction = (float)sqrt(correction2),
            .eps = (float)adamw->eps,
            .grad_scale = (float)grad_scale,
        };
        update(&c, param->value, adamw->m.item[i].value, adamw->v.item[i].value, param->grad,
               param->n);
    }
}
