/* Compares generated texts with references: completes every prompt of a file greedily, and computes
 * the text metrics. References of rows with the same prompt are merged, as for E2E's test set. */
#include "evaluation.h"
#include "generate.h"

#include <math.h>
#include <string.h>

/* Loads the prompts of the file, each with its references as sources. */
static kvf_status load_prompts(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                               const kvf_eval_options *options, kvf__renderer *renderer,
                               kvf__dataset *out)
{
    kvf__dataset_options load;
    KVF_TRY(kvf__eval_rows(ctx, base, prefix, options, renderer, &load));
    load.prompt_only = true;
    load.references = true;
    KVF_TRY(kvf__dataset_load(ctx, options->data, &load, out));
    for (int64_t i = 0; i < out->n; i++)
        if (!out->sources->group[i].n)
            return kvf__fail(ctx, KVF_EDATA, "%s:%lld: no \"references\" and no \"completion\"",
                             options->data, (long long)out->sources->group[i].line);
    return KVF_OK;
}

/* Computes the metrics that compare texts. */
static kvf_status score_texts(kvf_ctx *ctx, const kvf__text_rows *texts, kvf_eval_result *result)
{
    static const char *const NAMES[] = {"bleu", "rouge_l"};
    const kvf__metric_input in = {.texts = *texts};
    for (size_t i = 0; i < 2; i++) {
        const kvf__metric *metric = kvf__metric_find(KVF__TASK_LM, false, NAMES[i]);
        kvf_metric *score = &result->scores[result->n_scores++];
        score->name = metric->name;
        KVF_TRY(kvf__metric_score(ctx, metric, &in, &score->value));
    }
    return KVF_OK;
}

static kvf_status compare(kvf_ctx *ctx, const kvf__dataset *set, char *const *texts,
                          kvf_eval_result *result)
{
    int64_t *start = NULL, total = 0;
    const char **references = NULL;
    size_t *bytes = NULL, *found = NULL;

    kvf_status st = kvf__alloc_array(ctx, (size_t)set->n + 1, sizeof *start, &start);
    for (int64_t i = 0; !st && i < set->n; i++)
        start[i + 1] = total += set->sources->group[i].n;
    if (!st) st = kvf__alloc_array(ctx, (size_t)total, sizeof *references, &references);
    if (!st) st = kvf__alloc_array(ctx, (size_t)total, sizeof *bytes, &bytes);
    if (!st) st = kvf__alloc_array(ctx, (size_t)set->n, sizeof *found, &found);
    if (st) goto out;
    for (int64_t i = 0; i < set->n; i++) {
        found[i] = kvf_text_bytes(texts[i]);
        for (int64_t r = start[i]; r < start[i + 1]; r++) {
            references[r] = set->sources->group[i].items[r - start[i]];
            bytes[r] = kvf__source_item_bytes(&set->sources->group[i], r - start[i]);
        }
    }
    const kvf__text_rows rows = {.n = set->n,
                                 .predicted = (const char *const *)texts,
                                 .start = start,
                                 .references = references,
                                 .predicted_bytes = found,
                                 .reference_bytes = bytes};
    st = score_texts(ctx, &rows, result);
out:
    kvf__free(start);
    kvf__free((void *)references);
    kvf__free(bytes);
    kvf__free(found);
    return st;
}

kvf_status kvf__evaluate_texts(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                               const kvf_eval_options *options, kvf_eval_result *result)
{
    const kvf_prefix *prefix = n ? prefixes[0] : NULL;
    kvf__renderer renderer = {0};
    kvf__dataset set = {0};
    char **texts = NULL;
    kvf_generate_options generate = kvf_generate_defaults();
    generate.max_tokens = options->generate;
    if (n > 1) generate.more = (const kvf_prefix *const *)prefixes + 1;
    if (n > 1) generate.n_more = n - 1;
    kvf_status st = load_prompts(ctx, base, prefix, options, &renderer, &set);
    if (!st) st = kvf__alloc_array(ctx, (size_t)set.n, sizeof *texts, &texts);
    if (!st)
        st = kvf__generate_set(ctx, base, prefix, &set, &renderer.chat, &generate, texts, NULL);
    if (!st) {
        st = compare(ctx, &set, texts, result);
        kvf_texts_free(texts, (size_t)set.n);
    }
    kvf__free(texts);
    kvf__dataset_done(&set);
    kvf__renderer_done(&renderer);
    return st;
}
