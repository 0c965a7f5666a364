/* Completions of many prompts: groups of up to batch_size rows are prefilled at once, then decoded
 * together; a row leaves the batch when it ends. A prompt that begins like an earlier one of its
 * group takes keys and values of what they share from there (the base is causal, so they are the
 * same), which is why a group is prefilled in rounds. Every prompt has its own random stream, so a
 * completion does not depend on its neighbours' draws. */
#include "infer_int.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_SHARED = 8 }; /* fewer tokens are not worth another pass */

/* One prompt on its way. */
typedef struct row {
    const int32_t *prompt;
    int64_t prompt_len;
    kvf__answer answer;
    int64_t common,
        shared; /* the prompt of this group it begins like, and in how many tokens; -1 */
    int round;  /* in which it is prefilled: one after its common prefix */
} row;

typedef struct generator {
    kvf_ctx *ctx;
    kvf_base *base;
    const kvf_generate_options *options;
    kvf__sampling sampling;
    const kvf_prefix **prefixes; /* [n_prefixes] that answer as one */
    int64_t n_prefixes;
    kvf__ensemble *session;
    bool infix; /* a prefix stands inside rows */
    kvf__candidate *scratch;
    row *rows;
    int32_t *slots, *ids;
    int64_t *start;
    kvf__ends ends; /* tokens that end a completion */
    kvf_generate_stats stats;
} generator;

kvf_generate_options kvf_generate_defaults(void)
{
    return (kvf_generate_options){.max_tokens = 64, .top_p = 1};
}

static kvf_status check_options(kvf_ctx *ctx, const kvf_generate_options *o)
{
    if (o->max_tokens < 1) return kvf__fail(ctx, KVF_EUSAGE, "max-tokens must be at least 1");
    if (!(o->temperature >= 0))
        return kvf__fail(ctx, KVF_EUSAGE, "temperature must not be negative");
    if (o->top_k < 0) return kvf__fail(ctx, KVF_EUSAGE, "top-k must not be negative");
    if (!(o->top_p > 0 && o->top_p <= 1))
        return kvf__fail(ctx, KVF_EUSAGE, "top-p must be above 0 and at most 1");
    for (size_t i = 0; i < o->n_stop; i++)
        KVF_TRY(kvf__utf8_check(ctx, "--stop", o->stop[i], strlen(o->stop[i]), false));
    return KVF_OK;
}

static void stream(const generator *g, size_t index, kvf__answer *answer)
{
    size_t ready = kvf__answer_ready(answer);
    if (!g->options->token || ready <= answer->streamed) return;
    g->options->token(g->options->token_user, index, answer->text.data + answer->streamed,
                      ready - answer->streamed);
    answer->streamed = ready;
}

/* Chooses the row's next token and decides whether it goes on. */
static kvf_status advance(generator *g, size_t index, row *r, const float *logits)
{
    int32_t token = kvf__sample(&g->sampling, logits, kvf__model_desc(g->base->model)->V,
                                &r->answer.rng, g->scratch);
    g->stats.new_tokens++;
    KVF_TRY(kvf__answer_add(g->ctx, g->base, &r->answer, token));
    stream(g, index, &r->answer);
    return KVF_OK;
}

static kvf_status advance_all(generator *g, size_t first, int64_t n, const float *logits)
{
    int64_t V = kvf__model_desc(g->base->model)->V;
    for (int64_t i = 0; i < n; i++) {
        size_t index = first + (size_t)g->slots[i];
        KVF_TRY(advance(g, index, &g->rows[index], logits + i * V));
    }
    return KVF_OK;
}

/* Tokens that two prompts begin with, less than all of b; with an infix less than all of a too,
 * whose last token sees it. */
static int64_t common_length(const row *a, const row *b, bool infix)
{
    int64_t n = 0, of_a = a->prompt_len - infix;
    int64_t most = b->prompt_len - 1 < of_a ? b->prompt_len - 1 : of_a;
    while (n < most && a->prompt[n] == b->prompt[n])
        n++;
    return n;
}

/* Finds the common prefixes of a group; returns the number of rounds. */
static int find_common_rows(row *rows, int64_t n, bool infix)
{
    int rounds = 1;
    for (int64_t i = 0; i < n; i++) {
        row *r = &rows[i];
        r->common = -1;
        r->shared = LEAST_SHARED - 1;
        r->round = 0;
        for (int64_t before = 0; before < i; before++) {
            int64_t shared = common_length(&rows[before], r, infix);
            if (shared <= r->shared) continue;
            r->shared = shared;
            r->common = before;
            r->round = rows[before].round + 1;
        }
        if (r->common < 0) r->shared = 0;
        if (r->round >= rounds) rounds = r->round + 1;
    }
    return rounds;
}

static kvf_status prefill_round(generator *g, size_t first, int64_t group, int round)
{
    const float *logits = NULL;
    int64_t n = 0, at = 0;
    for (int64_t i = 0; i < group; i++) {
        const row *r = &g->rows[first + (size_t)i];
        if (r->round != round) continue;
        if (r->common >= 0) kvf__ensemble_copy(g->session, r->common, i, r->shared);
        g->slots[n] = (int32_t)i;
        g->start[n++] = at;
        memcpy(g->ids + at, r->prompt + r->shared,
               (size_t)(r->prompt_len - r->shared) * sizeof *g->ids);
        at += r->prompt_len - r->shared;
    }
    g->start[n] = at;
    double begin = kvf__clock();
    KVF_TRY(kvf__ensemble_feed(g->ctx, g->session, g->slots, g->start, g->ids, n, &logits));
    g->stats.prefill_seconds += kvf__clock() - begin;
    return advance_all(g, first, n, logits);
}

static kvf_status prefill(generator *g, size_t first, int64_t n)
{
    int rounds = find_common_rows(g->rows + first, n, g->infix);
    for (int64_t i = 0; i < n; i++)
        g->stats.prompt_tokens += g->rows[first + (size_t)i].prompt_len;
    for (int round = 0; round < rounds; round++)
        KVF_TRY(prefill_round(g, first, n, round));
    return KVF_OK;
}

/* One token for every row that goes on; *n = how many did. */
static kvf_status decode(generator *g, size_t first, int64_t group, int64_t *n)
{
    const float *logits = NULL;
    *n = 0;
    for (int64_t i = 0; i < group; i++) {
        const row *r = &g->rows[first + (size_t)i];
        if (r->answer.finish) continue;
        g->slots[*n] = (int32_t)i;
        g->start[*n] = *n;
        g->ids[(*n)++] = r->answer.out.data[r->answer.out.n - 1];
    }
    g->start[*n] = *n;
    if (!*n) return KVF_OK;
    double begin = kvf__clock();
    KVF_TRY(kvf__ensemble_feed(g->ctx, g->session, g->slots, g->start, g->ids, *n, &logits));
    g->stats.decode_seconds += kvf__clock() - begin;
    return advance_all(g, first, *n, logits);
}

static kvf_status run_group(generator *g, size_t first, int64_t n)
{
    int64_t active = n;
    kvf__ensemble_reset(g->session);
    KVF_TRY(prefill(g, first, n));
    while (active)
        KVF_TRY(decode(g, first, n, &active));
    return KVF_OK;
}

/* Tokens that fit behind every prefix. */
static int64_t longest_row(const generator *g)
{
    int64_t longest = kvf__row_capacity(g->base, g->n_prefixes ? g->prefixes[0] : NULL);
    for (int64_t i = 1; i < g->n_prefixes; i++) {
        int64_t capacity = kvf__row_capacity(g->base, g->prefixes[i]);
        if (capacity < longest) longest = capacity;
    }
    return longest;
}

/* Fills the rows and finds the largest group: *tokens prompt tokens, *capacity tokens in a row. */
static kvf_status plan_rows(generator *g, const kvf__dataset *set, int64_t group, int64_t *tokens,
                            int64_t *capacity)
{
    int64_t longest = longest_row(g);
    *tokens = *capacity = 0;
    for (int64_t i = 0, sum = 0; i < set->n; i++) {
        row *r = &g->rows[i];
        r->prompt = set->ids + set->start[i];
        r->prompt_len = kvf__example_length(set, i);
        r->answer = (kvf__answer){.rng = kvf__rng_make(g->options->seed, (uint64_t)i),
                                  .stop = g->options->stop,
                                  .n_stop = g->options->n_stop,
                                  .ends = &g->ends};
        int64_t left = longest - r->prompt_len;
        if (left < 1)
            return kvf__fail(g->ctx, KVF_EDATA,
                             "prompt %lld has %lld tokens, at most %lld leave room for an answer",
                             (long long)i + 1, (long long)r->prompt_len, (long long)longest - 1);
        r->answer.limit = left < g->options->max_tokens ? left : g->options->max_tokens;
        sum = i % group ? sum + r->prompt_len : r->prompt_len;
        if (sum > *tokens) *tokens = sum;
        if (r->prompt_len + r->answer.limit > *capacity)
            *capacity = r->prompt_len + r->answer.limit;
    }
    return KVF_OK;
}

static kvf_status take_prefixes(generator *g, const kvf_prefix *prefix)
{
    const size_t n_more = g->options->n_more;
    if (n_more && !prefix)
        return kvf__fail(g->ctx, KVF_EUSAGE, "several prefixes: the first is missing");
    if (!prefix) return KVF_OK;
    KVF_TRY(kvf__alloc_array(g->ctx, n_more + 1, sizeof(kvf_prefix *), &g->prefixes));
    g->prefixes[0] = prefix;
    for (size_t i = 0; i < n_more; i++)
        g->prefixes[i + 1] = g->options->more[i];
    g->n_prefixes = (int64_t)n_more + 1;
    for (int64_t i = 0; i < g->n_prefixes; i++)
        g->infix |= g->prefixes[i]->id.infix;
    return KVF_OK;
}

static kvf_status alloc_memory(generator *g, const kvf_prefix *prefix, const kvf__dataset *set,
                               int64_t group)
{
    int64_t tokens = 0, capacity = 0;
    KVF_TRY(kvf__alloc_array(g->ctx, (size_t)set->n, sizeof *g->rows, &g->rows));
    KVF_TRY(take_prefixes(g, prefix));
    KVF_TRY(plan_rows(g, set, group, &tokens, &capacity));
    KVF_TRY(kvf__alloc_array(g->ctx, (size_t)kvf__model_desc(g->base->model)->V, sizeof *g->scratch,
                             &g->scratch));
    KVF_TRY(kvf__alloc_array(g->ctx, (size_t)group, sizeof *g->slots, &g->slots));
    KVF_TRY(kvf__alloc_array(g->ctx, (size_t)group + 1, sizeof *g->start, &g->start));
    KVF_TRY(kvf__alloc_array(g->ctx, (size_t)(tokens > group ? tokens : group), sizeof *g->ids,
                             &g->ids));
    const kvf__session_limits limits = {group, capacity, tokens};
    return kvf__ensemble_create(g->ctx, g->base, g->prefixes, g->n_prefixes, &limits,
                                &g->session);
}

static void generator_done(generator *g, size_t n)
{
    for (size_t i = 0; g->rows && i < n; i++)
        kvf__answer_done(&g->rows[i].answer);
    kvf__ensemble_free(g->session);
    kvf__free((void *)g->prefixes);
    kvf__free(g->rows);
    kvf__free(g->scratch);
    kvf__free(g->slots);
    kvf__free(g->start);
    kvf__free(g->ids);
}

/* Its length stands before it. */
kvf_status kvf__text_make(kvf_ctx *ctx, const kvf__buf *text, char **out)
{
    const size_t n = text->n;
    char *block = NULL;
    KVF_TRY(kvf__alloc(ctx, sizeof n + n + 1, &block)); /* zeroed */
    memcpy(block, &n, sizeof n);
    if (n) memcpy(block + sizeof n, text->data, n);
    *out = block + sizeof n;
    return KVF_OK;
}

size_t kvf_text_bytes(const char *text)
{
    size_t n;
    memcpy(&n, text - sizeof n, sizeof n);
    return n;
}

static kvf_status take_texts(generator *g, size_t n, char **texts)
{
    for (size_t i = 0; i < n; i++)
        texts[i] = NULL;
    for (size_t i = 0; i < n; i++) {
        kvf_status st = kvf__text_make(g->ctx, &g->rows[i].answer.text, &texts[i]);
        if (st) {
            kvf_texts_free(texts, i);
            return st;
        }
    }
    return KVF_OK;
}

kvf_status kvf__generate_set(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             const kvf__dataset *set, const kvf__chat *chat,
                             const kvf_generate_options *options, char **texts,
                             kvf_generate_stats *stats)
{
    generator g = {
        .ctx = ctx, .base = base, .options = options, .ends = kvf__answer_ends(base, prefix, chat)};
    int64_t group = options->batch_size > 0 ? options->batch_size : 16;
    if (group > set->n) group = set->n;
    g.sampling = (kvf__sampling){options->temperature, options->top_p, options->top_k};
    kvf_status st = alloc_memory(&g, prefix, set, group);
    for (int64_t first = 0; !st && first < set->n; first += group)
        st = run_group(&g, (size_t)first, set->n - first < group ? set->n - first : group);
    if (!st) st = take_texts(&g, (size_t)set->n, texts);
    if (!st && stats) *stats = g.stats;
    generator_done(&g, (size_t)set->n);
    return st;
}

/* number 0: the only one. */
static kvf_status check_prompt(kvf_ctx *ctx, const char *prompt, size_t number)
{
    char where[40] = "--prompt";
    if (number) snprintf(where, sizeof where, "prompt %zu", number);
    return kvf__utf8_check(ctx, where, prompt, strlen(prompt), false);
}

/* The prompts as a data set whose rows are prompts. */
static kvf_status render_prompts(kvf_ctx *ctx, const kvf__render *render,
                                 const char *const *prompts, size_t n, kvf__dataset *out)
{
    kvf__ids ids = {0};
    kvf__dataset set = {.n = (int64_t)n};
    kvf_status st = kvf__alloc_array(ctx, n + 1, sizeof *set.start, &set.start);
    for (size_t i = 0; !st && i < n; i++) {
        st = check_prompt(ctx, prompts[i], n > 1 ? i + 1 : 0);
        if (!st) st = kvf__render_prompt(ctx, render, prompts[i], strlen(prompts[i]), &ids);
        if (st) break;
        set.start[i + 1] = (int64_t)ids.n;
        if (set.start[i + 1] == set.start[i])
            st = kvf__fail(ctx, KVF_EDATA,
                           "prompt %zu has no tokens: the base cannot begin without one", i + 1);
    }
    if (st) {
        kvf__free(set.start);
        kvf__ids_done(&ids);
        return st;
    }
    set.ids = ids.data;
    *out = set;
    return KVF_OK;
}

kvf_status kvf_generate(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                        const char *const *prompts, size_t n, const kvf_generate_options *options,
                        char **texts, kvf_generate_stats *stats)
{
    kvf__renderer renderer;
    kvf__dataset set = {0};
    if (!n) return KVF_OK;
    KVF_TRY(check_options(ctx, options));
    KVF_TRY(kvf__renderer_for(ctx, base, prefix, options->chat_template, NULL, &renderer));
    kvf_status st = render_prompts(ctx, &renderer.render, prompts, n, &set);
    if (!st) st = kvf__generate_set(ctx, base, prefix, &set, &renderer.chat, options, texts, stats);
    kvf__dataset_done(&set);
    kvf__renderer_done(&renderer);
    return st;
}

kvf_status kvf_generate_file(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             const char *path, const char *map, const kvf_generate_options *options,
                             char ***texts, size_t *n, kvf_generate_stats *stats)
{
    kvf__renderer renderer;
    kvf__dataset set = {0};
    char **list = NULL;
    KVF_TRY(check_options(ctx, options));
    KVF_TRY(kvf__renderer_for(ctx, base, prefix, options->chat_template, map, &renderer));
    kvf__dataset_options load = {
        .render = renderer.render,
        .max_length = kvf__text_capacity(base, prefix),
        .overlong = KVF__OVERLONG_STOP,
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

void kvf_texts_free(char **texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (texts[i]) kvf__free(texts[i] - sizeof(size_t));
}

void kvf_text_list_free(char **texts, size_t n)
{
    if (!texts) return;
    kvf_texts_free(texts, n);
    kvf__free(texts);
}
