/* Shared by the base's own head and a trained one: the running softmax of labelled rows, and checks
 * around a walk over the vocabulary. */
#include "arena.h"
#include "head_lm.h"

#include <math.h>

kvf__vocab_sums kvf__vocab_sums_lay(kvf__carver *carve, int64_t rows)
{
    return (kvf__vocab_sums){
        .logits = kvf__carve(carve, rows, KVF__VOCAB_PLANE, sizeof(float)),
        .max = kvf__carve(carve, rows, 1, sizeof(float)),
        .sum = kvf__carve(carve, rows, 1, sizeof(float)),
        .target_logit = kvf__carve(carve, rows, 1, sizeof(float)),
        .target = kvf__carve(carve, rows, 1, sizeof(int32_t)),
    };
}

void kvf__vocab_sums_begin(const kvf__vocab_sums *sums, int64_t rows)
{
    for (int64_t j = 0; j < rows; j++) {
        sums->max[j] = -INFINITY;
        sums->sum[j] = 0;
        sums->target_logit[j] = 0;
    }
}

double kvf__vocab_label_loss(const kvf__vocab_sums *sums, int64_t j)
{
    return log((double)sums->sum[j]) + (double)sums->max[j] - (double)sums->target_logit[j];
}

kvf_status kvf__no_lm_head(kvf_ctx *ctx, const kvf__model *model)
{
    return kvf__fail(
        ctx, KVF_EUNSUPPORTED,
        model->desc.headless && model->desc.block.causal
            ? "this %s has no language-model head, because the class in its config has a task head"
            : "architecture %s is an encoder and has no language-model head",
        model->desc.arch_name);
}

kvf_status kvf__vocab_check_labels(kvf_ctx *ctx, const kvf__batch *batch, int64_t V)
{
    for (int64_t j = 0; j < batch->n_labels; j++)
        if (batch->label_id[j] < 0 || batch->label_id[j] >= V)
            return kvf__fail(ctx, KVF_ESHAPE,
                             "batch: label %lld has id %ld, the vocabulary ends at %lld",
                             (long long)j, (long)batch->label_id[j], (long long)V - 1);
    return KVF_OK;
}

kvf_status kvf__vocab_check_sum(kvf_ctx *ctx, double loss_sum)
{
    if (isfinite(loss_sum)) return KVF_OK;
    return kvf__fail(ctx, KVF_ENUMERIC, "loss of the batch is %g, expected a finite number",
                     loss_sum);
}
