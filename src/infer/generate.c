/* Completions of many prompts. Groups of up to batch_size rows are prefilled together, then decoded
 * together; a row leaves the batch when it ends. Every prompt has its own random stream, so
 * completions do not depend on other rows. With drafts (draft.c) a step accepts all correctly
 * guessed tokens of a row. With beams (beam.c) prompts run one after the other and use all rows.
 * kvf__generate_set, at the end, is the entry point. */
#include "generate.h"
#include "beam.h"
#include "draft.h"

#include <string.h>

enum {
    DEFAULT_GROUP = 16,
    LEAST_SHARED = 8, /* fewer tokens do not justify another pass */
    MOST_DRAFT = 64
};

/* A prompt in progress. */
typedef struct prompt_row {
    kvf__live_row row;
    struct generator *generator;
    int64_t like;   /* row of the group with a common beginning; -1: none */
    int64_t shared; /* tokens of the common beginning */
    int round;      /* prefill round, after that of row `like` */
    int64_t reach;  /* length of its next draft */
} prompt_row;

typedef struct generator {
    kvf_ctx *ctx;
    kvf_base *base;
    const kvf_generate_options *options;
    kvf__ends ends;
    const kvf_prefix **prefixes; /* [n_prefixes] prefixes of the ensemble */
    int64_t n_prefixes;
    bool infix;   /* the prefix is inside rows */
    bool stopped; /* stopped by the caller's callback */
    kvf__ensemble *session;
    prompt_row *rows; /* [n] */
    int64_t n, group; /* rows; rows that run together */
    int64_t beams;    /* rows of the session for each prompt */
    int64_t draft;    /* longest draft; 0: no drafts */
    int32_t *ids;     /* [1 + draft] a token and its draft */
    int64_t *kept;    /* [group] accepted tokens */
    kvf__row_batch batch;
    kvf_generate_stats stats;
} generator;

/* ---- one step -------------------------------------------------------------------------------- */

/* Adds a row's last token and a draft of the next ones, up to the remaining tokens. */
static void add_run(generator *g, prompt_row *r, int64_t slot)
{
    const kvf__completion *c = &r->row.completion;
    const int64_t left = c->limit - (int64_t)c->out.n - 1;
    g->ids[0] = r->row.token;
    const int64_t n = kvf__draft(&r->row, left < r->reach ? left : r->reach, g->ids + 1);
    kvf__row_batch_add(&g->batch, &r->row, slot, g->ids, 1 + n);
}

/* Fills the batch with the last token of every unfinished row; false: there is none. */
static bool batch_unfinished(generator *g, prompt_row *group, int64_t n)
{
    g->batch.tokens.n = 0;
    for (int64_t i = 0; i < n; i++) {
        kvf__live_row *row = &group[i].row;
        if (row->completion.finish) continue;
        if (g->draft)
            add_run(g, &group[i], i);
        else
            kvf__row_batch_add(&g->batch, row, i, &row->token, 1);
    }
    return g->batch.tokens.n > 0;
}

/* Feeds the batch and samples the next token of each row, with its text and end. */
static kvf_status step(generator *g, double *seconds)
{
    const float *logits = NULL;
    const double begin = kvf__clock();
    KVF_TRY(kvf__ensemble_feed(g->ctx, g->session, &g->batch.tokens, &logits));
    *seconds += kvf__clock() - begin;
    g->stats.new_tokens += g->batch.tokens.n;
    return kvf__row_batch_advance(g->ctx, &g->batch, logits);
}

/* Does the same with drafts. Rejected tokens are dropped from the cache, and the next draft is
 * twice as long as the accepted part: a rejected token costs a quarter of a step. */
static kvf_status step_runs(generator *g, prompt_row *group)
{
    const kvf__tokens *in = &g->batch.tokens;
    const float *logits = NULL;
    const double begin = kvf__clock();
    KVF_TRY(kvf__ensemble_feed_runs(g->ctx, g->session, in, &logits));
    g->stats.decode_seconds += kvf__clock() - begin;
    const kvf_status st = kvf__row_batch_follow(g->ctx, &g->batch, logits, g->kept);
    for (int64_t i = 0; i < in->n; i++) {
        const int64_t drafted = in->start[i + 1] - in->start[i] - 1, right = g->kept[i] - 1;
        prompt_row *r = &group[in->slots[i]];
        kvf__ensemble_drop(g->session, in->slots[i], drafted - right);
        if (drafted) r->reach = right ? 2 * right : 1;
        if (r->reach > g->draft) r->reach = g->draft;
        g->stats.new_tokens += g->kept[i];
    }
    return st;
}

/* ---- prefill --------------------------------------------------------------------------------- */

/* Returns the length of the common beginning of two prompts, less than all of b. With an infix it
 * is also less than all of a, because the last token of a attends to the infix. */
static int64_t common(const kvf__row_request *a, const kvf__row_request *b, bool infix)
{
    int64_t n = 0, of_a = a->n - infix;
    int64_t most = b->n - 1 < of_a ? b->n - 1 : of_a;
    while (n < most && a->prompt[n] == b->prompt[n])
        n++;
    return n;
}

/* Finds for each prompt the earlier one with the longest common beginning, if its keys and values
 * can be shared; returns the number of rounds. */
static int plan_rounds(prompt_row *group, int64_t n, bool infix, bool causal)
{
    int rounds = 1;
    for (int64_t i = 0; i < n; i++) {
        prompt_row *r = &group[i];
        r->like = -1;
        r->shared = LEAST_SHARED - 1;
        for (int64_t before = 0; before < i && causal; before++) {
            int64_t shared = common(&group[before].row.request, &r->row.request, infix);
            if (shared <= r->shared) continue;
            r->shared = shared;
            r->like = before;
            r->round = group[before].round + 1;
        }
        if (r->like < 0) r->shared = 0;
        if (r->round >= rounds) rounds = r->round + 1;
    }
    return rounds;
}

/* Reads the prompts of a group and samples their first tokens. A prompt copies the keys and values
 * of the beginning that it shares with an earlier one (on a causal base they are equal), so prompts
 * are read in rounds. */
static kvf_status prefill(generator *g, prompt_row *group, int64_t n)
{
    /* an encoder is separate from the prompt; a state is that of all its tokens */
    const kvf__desc *d = kvf__model_desc(g->base->model);
    const int rounds = plan_rounds(group, n, g->infix, !d->encoder && !d->mixer.kind);
    kvf__ensemble_reset(g->session);
    for (int round = 0; round < rounds; round++) {
        g->batch.tokens.n = 0;
        for (int64_t i = 0; i < n; i++) {
            prompt_row *r = &group[i];
            const kvf__row_request *ask = &r->row.request;
            if (r->round != round) continue;
            if (r->like >= 0) kvf__ensemble_copy(g->session, r->like, i, r->shared);
            kvf__row_batch_add(&g->batch, &r->row, i, ask->prompt + r->shared, ask->n - r->shared);
            g->stats.prompt_tokens += ask->n;
        }
        KVF_TRY(step(g, &g->stats.prefill_seconds));
    }
    return KVF_OK;
}

/* ---- what a run needs ------------------------------------------------------------------------ */

static kvf_status list_prefixes(generator *g, const kvf_prefix *prefix)
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
        g->infix |= g->prefixes[i]->file.id.infix;
    return KVF_OK;
}

/* Returns the most tokens of a row that every prefix allows. */
static int64_t longest_row(const generator *g)
{
    int64_t longest = kvf__row_capacity(g->base, g->n_prefixes ? g->prefixes[0] : NULL);
    for (int64_t i = 1; i < g->n_prefixes; i++) {
        int64_t tokens = kvf__row_capacity(g->base, g->prefixes[i]);
        if (tokens < longest) longest = tokens;
    }
    return longest;
}

/* Callback of a row: passes new text to the caller's callback. */
static void stream(void *user, const char *text, size_t n, int64_t new_tokens, kvf__finish finish)
{
    const prompt_row *r = user;
    generator *g = r->generator;
    const kvf_generate_options *o = g->options;
    (void)new_tokens;
    (void)finish;
    if (n && !g->stopped) g->stopped = !o->token(o->token_user, (size_t)(r - g->rows), text, n);
}

static kvf_status check_stopped(const generator *g)
{
    return g->stopped ? kvf__fail(g->ctx, KVF_ESTOPPED, "stopped by the token callback") : KVF_OK;
}

static kvf__sampling sampling_of(const kvf_generate_options *o)
{
    return (kvf__sampling){.temperature = o->temperature,
                           .top_p = o->top_p,
                           .min_p = o->min_p,
                           .top_k = o->top_k,
                           .penalties = {.bias = o->logit_bias,
                                         .n_bias = o->n_logit_bias,
                                         .repetition = o->repetition_penalty,
                                         .frequency = o->frequency_penalty,
                                         .presence = o->presence_penalty}};
}

/* Begins row i of the data set; *needs grows to the requirements of its group. */
static kvf_status begin_row(generator *g, const kvf__dataset *set, int64_t i, int64_t longest,
                            kvf__session_limits *needs)
{
    const kvf_generate_options *o = g->options;
    prompt_row *r = &g->rows[i];
    const kvf__row_request request = {
        .prompt = set->ids + set->start[i],
        .n = kvf__example_length(set, i),
        .max_tokens = o->max_tokens,
        .sampling = sampling_of(o),
        .seed = o->seed,
        .stream = (uint64_t)i,
        .stop = o->stop,
        .n_stop = o->n_stop,
        .ends = &g->ends,
        .text = o->token ? stream : NULL,
        .user = r,
    };
    if (request.n >= longest)
        return kvf__fail(
            g->ctx, KVF_EDATA,
            "prompt %lld has %lld tokens, more than the %lld that leave room for an answer",
            (long long)i + 1, (long long)request.n, (long long)longest - 1);
    *r = (prompt_row){.row = kvf__row_begin(&request, longest), .generator = g, .reach = g->draft};
    const int64_t capacity = request.n + r->row.completion.limit;
    if (capacity > needs->capacity) needs->capacity = capacity;
    return KVF_OK;
}

static kvf_status generator_init(generator *g, const kvf_prefix *prefix, const kvf__dataset *set)
{
    const int64_t slots = g->group * g->beams;
    kvf__session_limits needs = {.rows = slots, .run = g->draft ? 1 + g->draft : 0};
    KVF_TRY(list_prefixes(g, prefix));
    KVF_TRY(kvf__alloc_array(g->ctx, (size_t)g->draft + 1, sizeof *g->ids, &g->ids));
    KVF_TRY(kvf__alloc_array(g->ctx, (size_t)slots + 1, sizeof *g->kept, &g->kept));
    KVF_TRY(kvf__alloc_array(g->ctx, (size_t)set->n, sizeof *g->rows, &g->rows));
    const int64_t longest = longest_row(g);
    for (int64_t i = 0, sum = 0; i < set->n; i++) {
        KVF_TRY(begin_row(g, set, i, longest, &needs));
        sum = i % g->group ? sum + g->rows[i].row.request.n : g->rows[i].row.request.n;
        if (sum > needs.prompt_tokens) needs.prompt_tokens = sum;
    }
    if (g->infix) needs.prompt_tokens *= g->beams; /* each beam reads the prompt */
    const int64_t runs = slots * needs.run;
    const int64_t ids = needs.prompt_tokens > runs ? needs.prompt_tokens : runs;
    KVF_TRY(kvf__row_batch_init(g->ctx, g->base, slots, ids, &g->batch));
    return kvf__ensemble_create(g->ctx, g->base, g->prefixes, g->n_prefixes, &needs, &g->session);
}

static void generator_done(generator *g)
{
    for (int64_t i = 0; g->rows && i < g->n; i++)
        kvf__completion_done(&g->rows[i].row.completion);
    kvf__ensemble_free(g->session);
    kvf__row_batch_done(&g->batch);
    kvf__free((void *)g->prefixes);
    kvf__free(g->ids);
    kvf__free(g->kept);
    kvf__free(g->rows);
}

/* Makes all texts or none. */
static kvf_status make_texts(const generator *g, char **texts)
{
    const size_t n = (size_t)g->n;
    kvf_status st = KVF_OK;
    memset(texts, 0, n * sizeof *texts);
    for (size_t i = 0; !st && i < n; i++)
        st = kvf__text_make(g->ctx, &g->rows[i].row.completion.text, &texts[i]);
    if (!st) return KVF_OK;
    kvf_texts_free(texts, n);
    memset(texts, 0, n * sizeof *texts);
    return st;
}

/* ---- the whole of it ------------------------------------------------------------------------- */

/* Completes a group of prompts, from first tokens to ends. */
static kvf_status complete_group(generator *g, prompt_row *group, int64_t n)
{
    KVF_TRY(prefill(g, group, n)); /* prompts -> first tokens */
    KVF_TRY(check_stopped(g));
    while (batch_unfinished(g, group, n)) { /* tokens -> logits -> sample -> text, stop? */
        KVF_TRY(g->draft ? step_runs(g, group) : step(g, &g->stats.decode_seconds));
        KVF_TRY(check_stopped(g));
    }
    return KVF_OK;
}

static kvf_status search_beams(generator *g, prompt_row *r)
{
    kvf__beam_search search = {.base = g->base,
                               .session = g->session,
                               .batch = &g->batch,
                               .beams = g->beams,
                               .length_penalty = g->options->length_penalty,
                               .infix = g->infix,
                               .stats = g->stats};
    const kvf__completion *c = &r->row.completion;
    KVF_TRY(kvf__beam_complete(g->ctx, &search, &r->row));
    g->stats = search.stats;
    if (g->options->token) stream(r, c->text.data, c->text.n, (int64_t)c->out.n, c->finish);
    return check_stopped(g);
}

/* Checks options for drafts: these need greedy decoding and a single prefix. */
static kvf_status check_draft(kvf_ctx *ctx, const kvf_generate_options *o)
{
    const char *other = o->temperature > 0 ? "temperature above 0"
                        : o->beams > 1     ? "beams"
                        : o->n_more        ? "several prefixes"
                                           : NULL;
    if (o->draft < 0 || o->draft > MOST_DRAFT)
        return kvf__fail(ctx, KVF_EUSAGE, "drafts of %lld tokens, want 0 to %d",
                         (long long)o->draft, MOST_DRAFT);
    if (!o->draft || !other) return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE, "drafts: not with %s", other);
}

kvf_status kvf__generate_set(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             const kvf__dataset *set, const kvf__chat *chat,
                             const kvf_generate_options *options, char **texts,
                             kvf_generate_stats *stats)
{
    const int64_t beams = options->beams > 1 ? options->beams : 1;
    const int64_t most = options->batch_size > 0 ? options->batch_size : DEFAULT_GROUP;
    const int64_t group = beams > 1 ? 1 : most;
    generator g = {.ctx = ctx,
                   .base = base,
                   .options = options,
                   .ends = kvf__completion_ends(base, prefix, chat),
                   .n = set->n,
                   .group = group < set->n ? group : set->n,
                   .beams = beams,
                   .draft = options->draft};

    KVF_TRY(check_draft(ctx, options));
    kvf_status st = generator_init(&g, prefix, set); /* rows for the prompts, and a session */
    for (int64_t first = 0; !st && first < g.n; first += g.group) {
        const int64_t n = g.n - first < g.group ? g.n - first : g.group;
        st = beams > 1 ? search_beams(&g, g.rows + first) : complete_group(&g, g.rows + first, n);
    }
    if (!st) st = make_texts(&g, texts);

    if (!st && stats) *stats = g.stats;
    generator_done(&g);
    return st;
}
