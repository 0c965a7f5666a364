/* AdamW in f32 with torch's order of operations, so that loss curves can be compared digit by
 * digit. Bias corrections are computed in f64. The loops of wide.h are limited by memory
 * bandwidth. */
#include "arena.h"
#include "optim_int.h"

#include <math.h>

/* Lays out all of m, then all of v. Interleaved moments of a large matrix would often be a multiple
 * of 4096 bytes apart, and loads of one would stall on stores to the other (4K aliasing). */
static void lay(void *object, kvf__carver *carver)
{
    kvf__adamw *adamw = object;
    kvf__params *moments[] = {&adamw->m, &adamw->v};
    int64_t scratch = 0;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < moments[k]->n; i++) {
            kvf__param *p = &moments[k]->item[i];
            p->value = kvf__carve(carver, p->n, 1, sizeof *p->value);
            p->grad = NULL;
            if (kvf__muon_floats(p) > scratch) scratch = kvf__muon_floats(p);
        }
    adamw->scratch = kvf__carve(carver, scratch, 1, sizeof *adamw->scratch);
}

kvf_status kvf__adamw_init(kvf_ctx *ctx, kvf__adamw *adamw, const kvf__params *params)
{
    adamw->memory = NULL;
    adamw->m = adamw->v = (kvf__params){0};
    adamw->t = 0;
    KVF_TRY(kvf__params_append(ctx, &adamw->m, params));
    KVF_TRY(kvf__params_append(ctx, &adamw->v, params));
    return kvf__carve_block(ctx, lay, adamw, &adamw->memory);
}

void kvf__adamw_done(kvf__adamw *adamw)
{
    kvf__params_done(&adamw->m);
    kvf__params_done(&adamw->v);
    kvf__free(adamw->memory);
    adamw->memory = NULL;
}

void kvf__adamw_step(kvf__adamw *adamw, kvf__params *params, double lr, double grad_scale)
{
    const kvf__wide *wide = kvf__wide_get();
    adamw->t++;
    double correction1 = 1 - pow(adamw->beta1, (double)adamw->t);
    double correction2 = 1 - pow(adamw->beta2, (double)adamw->t);
    for (size_t i = 0; i < params->n; i++) {
        kvf__param *param = &params->item[i];
        double rate = lr * param->lr_scale;
        const kvf__adamw_rates rates = {
            .decay = (float)(1 - rate * adamw->weight_decay),
            .beta1_rest = (float)(1 - adamw->beta1),
            .beta2 = (float)adamw->beta2,
            .beta2_rest = (float)(1 - adamw->beta2),
            .step_size = (float)(rate / correction1),
            .root_correction = (float)sqrt(correction2),
            .eps = (float)adamw->eps,
            .grad_scale = (float)grad_scale,
        };
        float *m = adamw->m.item[i].value, *v = adamw->v.item[i].value;
        if (param->muon_heads)
            kvf__muon_step(&rates, rate, param, m, v, adamw->scratch);
        else if (param->outer)
            wide->adamw_outer(&rates, param->value, m, v, param->left, param->right, param->outer,
                              param->dim[0], param->dim[1]);
        else
            wide->adamw(&rates, param->value, m, v, param->grad, param->n);
    }
}
