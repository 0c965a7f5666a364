/* --infix: rows are [x][prefix][y], the ablation of Li & Liang 2021, section 7.4. x is everything
 * before the first position with a label, the prompt without its last token. That token follows the
 * prefix, as the separator does in their code. It predicts the first token of the completion,
 * because a prefix of keys and values has no output of its own. Positions run through: x from 0 on,
 * then P virtual tokens, then y. */
#include "evaluator.h"

kvf_status kvf__infix_check_rows(kvf_ctx *ctx, const char *path, const kvf__dataset *set)
{
    for (int64_t r = 0; r < set->n; r++) {
        const int32_t *labels = set->labels + set->start[r];
        int64_t n = kvf__example_length(set, r), first = 1;
        while (first < n && labels[first] == KVF__NO_LABEL)
            first++;
        if (first < n && first < 2)
            return kvf__fail(
                ctx, KVF_EDATA,
                "%s: row %lld has no prompt, which a prefix inside rows (--infix) must follow",
                path, (long long)r + 1);
    }
    return KVF_OK;
}

void kvf__infix_identity(const kvf_train_options *options, const kvf_base *base, kvf__identity *id)
{
    if (!options->infix) return;
    id->infix = true;
    id->pre_rope = kvf__model_desc(base->model)->position.kind == KVF__POS_ROPE;
    id->position_start = 0;
}
