/* Continuous batching: rows are added and removed between steps. A step first reads a bounded
 * number of prompt tokens of waiting rows, so that running rows are not delayed, then decodes one
 * token for every running row. A long prompt is read in parts, one per step, and short prompts need
 * not wait for it. A completion does not depend on other rows: the session computes each row as if
 * it were alone, and each row has its own random stream. */
#include "engine.h"
#include "row.h"

#include <assert.h>

/* Prompt tokens per step, besides those of the row that has waited longest. */
enum { PROMPT_BUDGET = 256 };

typedef enum slot_state { SLOT_FREE, SLOT_WAITS, SLOT_DECODES } slot_state;

/* A slot of the session. */
typedef struct engine_slot {
    slot_state state;
    int64_t ticket;    /* waiting rows are read in ticket order */
    int64_t read;      /* prompt tokens read so far */
    kvf__part_key key; /* of the parts read so far */
    kvf__live_row row;
} engine_slot;

struct kvf__engine {
    kvf_base *base;
    kvf__session *session;
    kvf__prompt_cache *kept; /* NULL: prompts are not kept */
    int64_t n_slots, capacity, next_ticket;
    engine_slot *slots; /* [n_slots] */
    kvf__row_batch batch;
    kvf__engine_stats stats;
};

static kvf_status alloc_all(kvf_ctx *ctx, kvf__engine *e)
{
    const kvf__session_limits limits = {.rows = e->n_slots, .capacity = e->capacity, .mixed = true};
    KVF_TRY(kvf__session_create(ctx, e->base, NULL, &limits, &e->session));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)e->n_slots, sizeof *e->slots, &e->slots));
    return kvf__row_batch_init(ctx, e->base, e->n_slots, KVF__PROMPT_PART + PROMPT_BUDGET,
                               &e->batch);
}

kvf_status kvf__engine_create(kvf_ctx *ctx, kvf_base *base, int64_t rows, int64_t capacity,
                              kvf__engine **out)
{
    kvf__engine *engine = NULL;
    KVF_TRY(kvf__alloc(ctx, sizeof *engine, &engine));
    engine->base = base;
    engine->n_slots = rows;
    engine->capacity = capacity;
    kvf_status st = alloc_all(ctx, engine);
    KVF__GIVE(st, out, engine, kvf__engine_free(engine));
    return st;
}

void kvf__engine_free(kvf__engine *engine)
{
    if (!engine) return;
    for (int64_t i = 0; engine->slots && i < engine->n_slots; i++)
        kvf__completion_done(&engine->slots[i].row.completion);
    kvf__session_free(engine->session);
    kvf__prompt_cache_free(engine->kept);
    kvf__row_batch_done(&engine->batch);
    kvf__free(engine->slots);
    kvf__free(engine);
}

kvf_status kvf__engine_keep(kvf_ctx *ctx, kvf__engine *engine, size_t bytes)
{
    const size_t part = kvf__session_bytes(engine->session, KVF__PROMPT_PART);
    if (kvf__model_desc(engine->base->model)->encoder) return KVF_OK;
    return kvf__prompt_cache_create(ctx, part, bytes, &engine->kept);
}

/* ---- rows come and go ------------------------------------------------------------------------ */

static int64_t free_slot(const kvf__engine *e)
{
    for (int64_t i = 0; i < e->n_slots; i++)
        if (e->slots[i].state == SLOT_FREE) return i;
    return -1;
}

bool kvf__engine_full(const kvf__engine *engine)
{
    return free_slot(engine) < 0;
}

int64_t kvf__engine_capacity(const kvf__engine *engine, const kvf_prefix *prefix)
{
    const int64_t longest = kvf__row_capacity(engine->base, prefix);
    return longest < engine->capacity ? longest : engine->capacity;
}

/* Checks a prompt of n tokens for a row of at most `longest`. */
static kvf_status check_prompt(kvf_ctx *ctx, int64_t n, int64_t longest)
{
    if (n < 1) return kvf__fail(ctx, KVF_EDATA, "the prompt has no tokens");
    if (n < longest) return KVF_OK;
    return kvf__fail(ctx, KVF_EDATA,
                     "the prompt has %lld tokens, more than the %lld that leave room for an answer",
                     (long long)n, (long long)longest - 1);
}

kvf_status kvf__engine_check(kvf_ctx *ctx, const kvf__engine *engine, const kvf_prefix *prefix,
                             const kvf__ids *prompts, int64_t n)
{
    const int64_t longest = kvf__engine_capacity(engine, prefix);
    for (int64_t i = 0; i < n; i++)
        KVF_TRY(check_prompt(ctx, (int64_t)prompts[i].n, longest));
    return KVF_OK;
}

kvf_status kvf__engine_add(kvf_ctx *ctx, kvf__engine *engine, const kvf__row_request *request,
                           int64_t *out)
{
    const int64_t at = free_slot(engine);
    const int64_t longest = kvf__engine_capacity(engine, request->prefix);
    assert(at >= 0 && request->max_tokens > 0);
    KVF_TRY(check_prompt(ctx, request->n, longest));
    const kvf__live_row row = kvf__row_begin(request, longest);
    KVF_TRY(kvf__session_open(ctx, engine->session, at, request->prefix, request->head,
                              request->n + row.completion.limit));
    engine->slots[at] = (engine_slot){
        .state = SLOT_WAITS, .ticket = engine->next_ticket++, .key = request->origin, .row = row};
    *out = at;
    return KVF_OK;
}

void kvf__engine_remove(kvf_ctx *ctx, kvf__engine *engine, int64_t at)
{
    engine_slot *s = &engine->slots[at];
    if (s->state == SLOT_FREE) return;
    kvf__session_close(ctx, engine->session, at);
    kvf__completion_done(&s->row.completion);
    *s = (engine_slot){0};
}

static void fail_slot(kvf_ctx *ctx, kvf__engine *e, int64_t at)
{
    if (e->slots[at].state == SLOT_FREE) return;
    kvf__row_fail(&e->slots[at].row);
    kvf__engine_remove(ctx, e, at);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Feeds the batch and samples the next token of each of its rows. Rows that end leave the engine.
 */
static kvf_status feed(kvf_ctx *ctx, kvf__engine *e)
{
    const kvf__tokens *tokens = &e->batch.tokens;
    const float *logits = NULL;
    KVF_TRY(kvf__session_feed(ctx, e->session, tokens, &logits));
    kvf__row_batch_advance(ctx, &e->batch, logits); /* a failed row has ended */
    e->stats.new_tokens += tokens->n;
    for (int64_t i = 0; i < tokens->n; i++)
        if (e->batch.rows[i]->completion.finish) kvf__engine_remove(ctx, e, tokens->slots[i]);
    return KVF_OK;
}

static int64_t unread(const engine_slot *s)
{
    return s->row.request.n - s->read;
}

/* Returns the slot that has waited longest among those with at most this many unread tokens; -1:
 * none. */
static int64_t next_waiting(const kvf__engine *e, int64_t most)
{
    int64_t first = -1;
    for (int64_t i = 0; i < e->n_slots; i++)
        if (e->slots[i].state == SLOT_WAITS && unread(&e->slots[i]) <= most &&
            (first < 0 || e->slots[i].ticket < e->slots[first].ticket))
            first = i;
    return first;
}

/* Adds n more prompt tokens to the batch. */
static void add_prompt(kvf__engine *e, int64_t at, int64_t n)
{
    engine_slot *s = &e->slots[at];
    kvf__row_batch_add(&e->batch, &s->row, at, s->row.request.prompt + s->read, n);
    s->read += n;
    e->stats.prompt_tokens += n;
    if (!unread(s)) s->state = SLOT_DECODES;
}

static bool keeps(const kvf__engine *e, const engine_slot *s)
{
    return e->kept && s->state == SLOT_WAITS;
}

/* Takes the next parts of a prompt from the cache, except the last one. */
static void take_kept(kvf__engine *e, int64_t at)
{
    engine_slot *s = &e->slots[at];
    const kvf__row_request *request = &s->row.request;
    while (keeps(e, s) && unread(s) > KVF__PROMPT_PART) {
        const kvf__part_key next = kvf__part_after(&s->key, request->prompt + s->read);
        const void *part = kvf__prompt_cache_find(e->kept, &next, s->ticket);
        if (!part) return;
        kvf__session_restore(e->session, at, KVF__PROMPT_PART, part);
        s->key = next;
        s->read += KVF__PROMPT_PART;
        if (request->cached) *request->cached += KVF__PROMPT_PART;
        e->stats.cached_tokens += KVF__PROMPT_PART;
    }
}

/* Keeps the part that was read last. */
static void keep_part(kvf__engine *e, int64_t at)
{
    engine_slot *s = &e->slots[at];
    const int64_t first = s->read - KVF__PROMPT_PART;
    if (!keeps(e, s)) return;
    s->key = kvf__part_after(&s->key, s->row.request.prompt + first);
    void *part = kvf__prompt_cache_add(e->kept, &s->key, s->ticket, first / KVF__PROMPT_PART);
    if (part) kvf__session_save(e->session, at, first, KVF__PROMPT_PART, part);
}

/* Reads a part of a prompt that does not end in this step. */
static void read_part(kvf_ctx *ctx, kvf__engine *e, int64_t at)
{
    add_prompt(e, at, KVF__PROMPT_PART);
    if (kvf__session_feed(ctx, e->session, &e->batch.tokens, NULL))
        fail_slot(ctx, e, at);
    else
        keep_part(e, at);
    e->batch.tokens.n = 0;
}

/* Reads a part of the prompt that has waited longest, and short prompts completely; these fail
 * together. */
static void read_prompts(kvf_ctx *ctx, kvf__engine *e)
{
    const double begin = kvf__clock();
    int64_t budget = PROMPT_BUDGET;
    for (int64_t i = 0; i < e->n_slots; i++)
        take_kept(e, i);
    int64_t at = next_waiting(e, INT64_MAX);
    if (at < 0) return;
    e->batch.tokens.n = 0;
    const bool whole = kvf__model_desc(e->base->model)->encoder > 0;
    if (whole || unread(&e->slots[at]) <= KVF__PROMPT_PART)
        add_prompt(e, at, unread(&e->slots[at]));
    else
        read_part(ctx, e, at);
    while ((at = next_waiting(e, budget)) >= 0) {
        budget -= unread(&e->slots[at]);
        add_prompt(e, at, unread(&e->slots[at]));
    }
    if (e->batch.tokens.n && feed(ctx, e))
        for (int64_t i = 0; i < e->batch.tokens.n; i++)
            fail_slot(ctx, e, e->batch.tokens.slots[i]);
    e->stats.prefill_seconds += kvf__clock() - begin;
}

static kvf_status decode(kvf_ctx *ctx, kvf__engine *e)
{
    const double begin = kvf__clock();
    e->batch.tokens.n = 0;
    for (int64_t i = 0; i < e->n_slots; i++) {
        kvf__live_row *row = &e->slots[i].row;
        if (e->slots[i].state == SLOT_DECODES)
            kvf__row_batch_add(&e->batch, row, i, &row->token, 1);
    }
    if (!e->batch.tokens.n) return KVF_OK;
    KVF_TRY(feed(ctx, e));
    e->stats.steps++;
    e->stats.step_rows += e->batch.tokens.n;
    e->stats.decode_seconds += kvf__clock() - begin;
    return KVF_OK;
}

kvf_status kvf__engine_step(kvf_ctx *ctx, kvf__engine *engine)
{
    read_prompts(ctx, engine);
    kvf_status st = decode(ctx, engine);
    for (int64_t i = 0; st && i < engine->n_slots; i++)
        fail_slot(ctx, engine, i);
    return st;
}

kvf__engine_stats kvf__engine_stats_of(const kvf__engine *engine)
{
    kvf__engine_stats stats = engine->stats;
    if (engine->kept) stats.cached_bytes = (int64_t)kvf__prompt_cache_bytes(engine->kept);
    for (int64_t i = 0; i < engine->n_slots; i++) {
        stats.rows += engine->slots[i].state == SLOT_DECODES;
        stats.waiting += engine->slots[i].state == SLOT_WAITS;
    }
    return stats;
}
