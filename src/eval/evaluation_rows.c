/* Rows of an evaluation, rendered and truncated as in training, as stored with the prefix, unless
 * options override it. */
#include "evaluation.h"
#include "options.h"
#include "verbalizer.h"

static int64_t trained_with(const kvf_prefix *prefix, const char *option)
{
    return kvf_json_int(kvf_json_get(prefix->file.options, option), 0);
}

static int64_t longest_row(const kvf_base *base, const kvf_prefix *prefix, int64_t asked)
{
    int64_t longest = kvf__text_capacity(base, prefix);
    if (!asked && prefix && prefix->task != KVF__TASK_LM)
        asked = trained_with(prefix, "max-length");
    return asked && asked < longest ? asked : longest;
}

/* Returns how the run handled overlong rows. */
static kvf_overlong overlong_of(const kvf_prefix *prefix)
{
    const kvf__option *option = kvf__option_of(offsetof(kvf_train_options, overlong));
    const char *word = kvf_json_str(kvf_json_get(prefix->file.options, option->row.name), NULL);
    return (kvf_overlong)(1 + kvf__choice_index(option->row.argument, word ? word : ""));
}

kvf_status kvf__eval_rows(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                          const kvf_eval_options *options, kvf__renderer *renderer,
                          kvf__dataset_options *out)
{
    KVF_TRY(KVF__CHECK_RESERVED(ctx, kvf_eval_options, options));
    kvf__dataset_options load = {
        .max_length = longest_row(base, prefix, options->max_length),
        .vocab = (int32_t)kvf__model_desc(base->model)->V,
        .format = options->format,
        .no_header = options->no_header,
        .columns = options->columns,
        .delimiter = options->delimiter,
        .split_text = options->split_text,
        .limit = options->limit,
        .overlong = options->overlong,
    };
    if (!load.overlong && prefix) load.overlong = overlong_of(prefix);
    KVF_TRY(kvf__renderer_for(ctx, base, prefix, options->chat_template, options->map, renderer));
    kvf__renderer_follow(renderer, prefix, options->chat_template);
    load.render = renderer->render;
    *out = load;
    return KVF_OK;
}

kvf_status kvf__evaluation_rows(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                                const kvf_eval_options *options, bool unlabeled, kvf__evaluation *e)
{
    kvf__label_set labels = {0};
    kvf__phrases tokens = {0};
    kvf__dataset_options load;
    KVF_TRY(kvf__eval_rows(ctx, base, prefix, options, &e->renderer, &load));
    load.task = e->task;
    load.most_tokens = e->most_tokens;
    load.causal = kvf__model_desc(base->model)->block.causal;
    load.pooled = kvf__model_desc(base->model)->mean_pooled;
    load.unlabeled = unlabeled;
    load.render.no_eos = unlabeled; /* lm: scores are for the given text only */
    if (prefix) {
        labels = (kvf__label_set){prefix->file.head.n_labels, prefix->file.head.labels};
        load.regression = prefix->file.head.regression;
        load.label_set = labels.n ? &labels : NULL;
        load.doc_stride = trained_with(prefix, "doc-stride");
        load.windows = unlabeled && e->task == KVF__TASK_TOKEN_CLS &&
                       options->overlong != KVF_OVERLONG_STOP &&
                       options->overlong != KVF_OVERLONG_SKIP;
    }
    if (prefix) KVF_TRY(kvf__verbalizer_rows(ctx, base, prefix, &tokens, &load));
    kvf_status st = kvf__dataset_load(ctx, options->data, &load, &e->set);
    kvf__phrases_done(&tokens);
    if (st) return st;
    if (*e->set.said) kvf__log(ctx, KVF_LOG_WARN, "%s", e->set.said);
    const char *option = kvf__table_option(&load);
    if (option && !e->set.delimited)
        return kvf__fail(ctx, KVF_EUSAGE, "--%s is for TSV, CSV and CoNLL files, not for %s",
                         option, options->data);
    return prefix && prefix->file.id.infix ? kvf__infix_check_rows(ctx, options->data, &e->set)
                                           : KVF_OK;
}
