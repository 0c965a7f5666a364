/* Public functions for generation: prompts, as texts or rows of a data file, become ids, and
 * completions become texts. */
#include "generate.h"
#include "penalties.h"

#include <string.h>

kvf_generate_options kvf_generate_defaults(void)
{
    return (kvf_generate_options){
        .max_tokens = 64, .top_p = 1, .repetition_penalty = 1, .beams = 1, .length_penalty = 1};
}

/* Checks ranges: those of OpenAI, and for values that transformers only requires to be positive,
 * ranges that keep logits finite. */
static kvf_status check_sampling(kvf_ctx *ctx, const kvf_generate_options *o)
{
    const struct {
        const char *name;
        double value, least, most;
    } rows[] = {{"min-p", o->min_p, 0, 1},
                {"repetition-penalty", o->repetition_penalty, 0, 100},
                {"presence-penalty", o->presence_penalty, -2, 2},
                {"frequency-penalty", o->frequency_penalty, -2, 2},
                {"beams", (double)o->beams, 0, 1024},
                {"length-penalty", o->length_penalty, -100, 100}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!(rows[i].value >= rows[i].least && rows[i].value <= rows[i].most))
            return kvf__fail(ctx, KVF_EUSAGE, "%s %g: want a number from %g to %g", rows[i].name,
                             rows[i].value, rows[i].least, rows[i].most);
    if (o->beams > 1 && o->temperature > 0)
        return kvf__fail(ctx, KVF_EUSAGE, "beams and a temperature exclude each other");
    return KVF_OK;
}

static kvf_status check_options(kvf_ctx *ctx, const kvf_base *base, const kvf_generate_options *o)
{
    const kvf__penalties biases = {.bias = o->logit_bias, .n_bias = o->n_logit_bias};
    KVF_TRY(KVF__CHECK_RESERVED(ctx, kvf_generate_options, o));
    if (o->n_logit_bias) KVF_TRY(KVF__NEED(ctx, o->logit_bias));
    if (o->n_stop) KVF_TRY(KVF__NEED(ctx, o->stop));
    if (o->n_more) KVF_TRY(KVF__NEED(ctx, o->more));
    for (size_t i = 0; i < o->n_stop; i++)
        KVF_TRY(KVF__NEED(ctx, o->stop[i]));
    for (size_t i = 0; i < o->n_more; i++)
        KVF_TRY(KVF__NEED(ctx, o->more[i]));
    if (o->max_tokens < 1) return kvf__fail(ctx, KVF_EUSAGE, "max-tokens must be at least 1");
    if (!(o->temperature >= 0))
        return kvf__fail(ctx, KVF_EUSAGE, "temperature must not be negative");
    if (o->top_k < 0) return kvf__fail(ctx, KVF_EUSAGE, "top-k must not be negative");
    if (!(o->top_p > 0 && o->top_p <= 1))
        return kvf__fail(ctx, KVF_EUSAGE, "top-p must be above 0 and at most 1");
    KVF_TRY(check_sampling(ctx, o));
    KVF_TRY(kvf__penalties_check(ctx, &biases, kvf__model_desc(base->model)->V));
    for (size_t i = 0; i < o->n_stop; i++)
        KVF_TRY(kvf__utf8_check(ctx, "--stop", o->stop[i], strlen(o->stop[i]), false));
    return KVF_OK;
}

/* number 0: there is only one prompt. */
static kvf_status check_prompt(kvf_ctx *ctx, const char *prompt, size_t number)
{
    char where[40] = "--prompt";
    if (number) snprintf(where, sizeof where, "prompt %zu", number);
    return kvf__utf8_check(ctx, where, prompt, strlen(prompt), false);
}

/* Renders prompts as a data set of rows without labels. The caller frees its start and ids, the
 * only parts used, even after a failure. */
static kvf_status render_prompts(kvf_ctx *ctx, const kvf__render *render,
                                 const char *const *prompts, size_t n, kvf__dataset *out)
{
    kvf__ids ids = {0};
    out->n = (int64_t)n;
    kvf_status st = kvf__alloc_array(ctx, n + 1, sizeof *out->start, &out->start);
    for (size_t i = 0; !st && i < n; i++) {
        st = check_prompt(ctx, prompts[i], n > 1 ? i + 1 : 0);
        if (!st) st = kvf__render_prompt(ctx, render, prompts[i], strlen(prompts[i]), &ids);
        out->start[i + 1] = (int64_t)ids.n;
        if (!st && out->start[i + 1] == out->start[i])
            st = kvf__fail(ctx, KVF_EDATA,
                           "prompt %zu has no tokens, and this base needs at least one", i + 1);
    }
    out->ids = ids.data;
    return st;
}

/* Renders a row given as JSON in the same way. */
static kvf_status render_row(kvf_ctx *ctx, const kvf__render *render, const kvf_json *row,
                             kvf__dataset *out)
{
    kvf__render own = *render;
    kvf__ids ids = {0}, labels = {0};
    own.map = NULL; /* the row has kvfold's names */
    out->n = 1;
    KVF_TRY(kvf__alloc_array(ctx, 2, sizeof *out->start, &out->start));
    kvf_status st = kvf__render_row(ctx, &own, "row", row, true, &ids, &labels);
    out->start[1] = (int64_t)ids.n;
    out->ids = ids.data;
    kvf__ids_done(&labels);
    return st;
}

/* row: replaces the prompts; NULL: none. */
static kvf_status generate(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                           const char *const *prompts, size_t n, const kvf_json *row,
                           const kvf_generate_options *options, char **texts,
                           kvf_generate_stats *stats)
{
    kvf__renderer renderer;
    kvf__dataset set = {0};
    if (!n) return KVF_OK;
    KVF_TRY(check_options(ctx, base, options));
    KVF_TRY(kvf__renderer_for(ctx, base, prefix, options->chat_template, NULL, &renderer));
    kvf__renderer_follow(&renderer, prefix, options->chat_template);
    kvf_status st = row ? render_row(ctx, &renderer.render, row, &set)
                        : render_prompts(ctx, &renderer.render, prompts, n, &set);
    if (!st) st = kvf__generate_set(ctx, base, prefix, &set, &renderer.chat, options, texts, stats);
    kvf__free(set.start);
    kvf__free(set.ids);
    kvf__renderer_done(&renderer);
    return st;
}

kvf_status kvf_generate(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                        const char *const *prompts, size_t n, const kvf_generate_options *options,
                        char **texts, kvf_generate_stats *stats)
{
    KVF_TRY(KVF__NEED(ctx, base, options));
    if (n) KVF_TRY(KVF__NEED(ctx, prompts, texts));
    for (size_t i = 0; i < n; i++)
        KVF_TRY(KVF__NEED(ctx, prompts[i]));
    KVF__RETURN(ctx, generate(ctx, base, prefix, prompts, n, NULL, options, texts, stats));
}

static kvf_status generate_file(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                                const char *path, const char *map,
                                const kvf_generate_options *options, char ***texts, size_t *n,
                                kvf_generate_stats *stats)
{
    kvf__renderer renderer;
    kvf__dataset set = {0};
    char **list = NULL;
    KVF_TRY(check_options(ctx, base, options));
    KVF_TRY(kvf__renderer_for(ctx, base, prefix, options->chat_template, map, &renderer));
    kvf__renderer_follow(&renderer, prefix, options->chat_template);
    kvf__dataset_options load = {
        .render = renderer.render,
        .max_length = kvf__text_capacity(base, prefix),
        .overlong = KVF_OVERLONG_STOP,
        .prompt_only = true,
        .vocab = (int32_t)kvf__model_desc(base->model)->V,
    };
    kvf_status st = kvf__dataset_load(ctx, path, &load, &set);
    if (!st) st = kvf__alloc_array(ctx, (size_t)set.n, sizeof *list, &list);
    if (!st) st = kvf__generate_set(ctx, base, prefix, &set, &renderer.chat, options, list, stats);
    if (!st) {
        *texts = list;
        *n = (size_t)set.n;
        list = NULL;
    }
    kvf__free(list);
    kvf__dataset_done(&set);
    kvf__renderer_done(&renderer);
    return st;
}

kvf_status kvf_generate_file(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             const char *path, const char *map, const kvf_generate_options *options,
                             char ***texts, size_t *n, kvf_generate_stats *stats)
{
    KVF_TRY(KVF__NEED(ctx, base, path, options, texts, n));
    KVF__RETURN(ctx, generate_file(ctx, base, prefix, path, map, options, texts, n, stats));
}

kvf_status kvf__generate_row(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             const kvf_json *row, const kvf_generate_options *options, char **text,
                             kvf_generate_stats *stats)
{
    KVF__RETURN(ctx, generate(ctx, base, prefix, NULL, 1, row, options, text, stats));
}

kvf_status kvf__prompts_are_chats(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                                  const char *chat_template, bool *out)
{
    kvf__renderer renderer;
    KVF_TRY(kvf__renderer_for(ctx, base, prefix, chat_template, NULL, &renderer));
    kvf__renderer_follow(&renderer, prefix, chat_template);
    *out = renderer.render.wrap_prompts;
    kvf__renderer_done(&renderer);
    return KVF_OK;
}
