/* Continuous batching: rows join and leave between steps. A step first reads prompts of rows that
 * wait, a bounded number of tokens so that those that have begun do not stand still, then decodes
 * one token for all that have begun. A long prompt is read in parts, one a step, and short ones do
 * not wait until it ends.
 *
 * What a row answers depends on nothing beside it: the session feeds rows as if they were alone,
 * and each draws from its own random stream, that of the first prompt of a `generate`. */
#include "infer_int.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

enum { PROMPT_BUDGET = 256 }; /* tokens of prompts in a step, beside the one that waits longest */

typedef enum row_state { ROW_FREE, ROW_WAITS, ROW_READS, ROW_GOES } row_state;

typedef struct row {
    row_state state;
    int64_t ticket; /* rows wait in this order */
    int64_t read;   /* tokens of the prompt so far */
    kvf__order order;
    kvf__answer answer;
} row;

struct kvf__engine {
    kvf_base *base;
    kvf__session *session;
    int64_t n_rows, capacity, next_ticket;
    row *rows;
    kvf__candidate *scratch; /* [threads, V] */
    int threads;
    int32_t *slots, *ids, *tokens; /* [rows] of a step */
    int32_t *prompts; /* [KVF__PROMPT_PART + PROMPT_BUDGET] of those that end in a step */
    int64_t *start;   /* [rows + 1] */
    kvf__engine_stats stats;
};

static kvf_status alloc_memory(kvf_ctx *ctx, kvf__engine *e)
{
    size_t V = (size_t)kvf__model_desc(e->base->model)->V, rows = (size_t)e->n_rows;
    KVF_TRY(kvf__session_create_mixed(ctx, e->base, e->n_rows, e->capacity, 0, &e->session));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *e->rows, &e->rows));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)e->threads * V, sizeof *e->scratch, &e->scratch));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *e->slots, &e->slots));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *e->ids, &e->ids));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *e->tokens, &e->tokens));
    KVF_TRY(
        kvf__alloc_array(ctx, KVF__PROMPT_PART + PROMPT_BUDGET, sizeof *e->prompts, &e->prompts));
    return kvf__alloc_array(ctx, rows + 1, sizeof *e->start, &e->start);
}

kvf_status kvf__engine_create(kvf_ctx *ctx, kvf_base *base, int64_t rows, int64_t capacity,
                              kvf__engine **out)
{
    kvf__engine *engine = NULL;
    KVF_TRY(kvf__alloc(ctx, sizeof *engine, &engine));
    engine->base = base;
    engine->n_rows = rows;
    engine->capacity = capacity;
    engine->threads = kvf_ctx_threads(ctx);
    kvf_status st = alloc_memory(ctx, engine);
    if (st)
        kvf__engine_free(engine);
    else
        *out = engine;
    return st;
}

void kvf__engine_free(kvf__engine *engine)
{
    if (!engine) return;
    for (int64_t i = 0; engine->rows && i < engine->n_rows; i++)
        kvf__answer_done(&engine->rows[i].answer);
    kvf__session_free(engine->session);
    kvf__free(engine->rows);
    kvf__free(engine->scratch);
    kvf__free(engine->slots);
    kvf__free(engine->ids);
    kvf__free(engine->tokens);
    kvf__free(engine->prompts);
    kvf__free(engine->start);
    kvf__free(engine);
}

/* ---- coming and going ------------------------------------------------------------------------ */

static int64_t free_row(const kvf__engine *e)
{
    for (int64_t i = 0; i < e->n_rows; i++)
        if (e->rows[i].state == ROW_FREE) return i;
    return -1;
}

bool kvf__engine_full(const kvf__engine *engine)
{
    return free_row(engine) < 0;
}

int64_t kvf__engine_capacity(const kvf__engine *engine, const kvf_prefix *prefix)
{
    const int64_t longest = kvf__row_capacity(engine->base, prefix);
    return longest < engine->capacity ? longest : engine->capacity;
}

/* Tokens that a row may have behind a prefix; EDATA if a prompt of n leaves none for an answer. */
static kvf_status check_prompt(kvf_ctx *ctx, const kvf__engine *e, const kvf_prefix *prefix,
                               int64_t n, int64_t *longest)
{
    *longest = kvf__engine_capacity(e, prefix);
    if (n < 1) return kvf__fail(ctx, KVF_EDATA, "the prompt has no tokens");
    if (n < *longest) return KVF_OK;
    return kvf__fail(ctx, KVF_EDATA,
                     "the prompt has %lld tokens, at most %lld leave room for an answer",
                     (long long)n, (long long)*longest - 1);
}

kvf_status kvf__engine_check(kvf_ctx *ctx, const kvf__engine *engine, const kvf_prefix *prefix,
                             const kvf__ids *prompts, int64_t n)
{
    int64_t longest;
    for (int64_t i = 0; i < n; i++)
        KVF_TRY(check_prompt(ctx, engine, prefix, (int64_t)prompts[i].n, &longest));
    return KVF_OK;
}

kvf_status kvf__engine_join(kvf_ctx *ctx, kvf__engine *engine, const kvf__order *order,
                            int64_t *out)
{
    int64_t at = free_row(engine), longest = 0;
    assert(at >= 0 && order->max_tokens > 0);
    KVF_TRY(check_prompt(ctx, engine, order->prefix, order->n, &longest));
    const int64_t capacity = longest - order->n;
    const int64_t limit = capacity < order->max_tokens ? capacity : order->max_tokens;
    KVF_TRY(
        kvf__session_open(ctx, engine->session, at, order->prefix, order->head, order->n + limit));
    engine->rows[at] = (row){.state = ROW_WAITS,
                             .ticket = engine->next_ticket++,
                             .order = *order,
                             .answer = {.rng = kvf__rng_make(order->seed, order->stream),
                                        .limit = limit,
                                        .stop = order->stop,
                                        .n_stop = order->n_stop,
                                        .ends = order->ends}};
    *out = at;
    return KVF_OK;
}

void kvf__engine_leave(kvf_ctx *ctx, kvf__engine *engine, int64_t at)
{
    row *r = &engine->rows[at];
    if (r->state == ROW_FREE) return;
    kvf__session_close(ctx, engine->session, at);
    kvf__answer_done(&r->answer);
    *r = (row){0};
}

/* Says what is new of a row, and lets go of it if that was all. */
static void tell(kvf_ctx *ctx, kvf__engine *e, int64_t at)
{
    row *r = &e->rows[at];
    kvf__answer *a = &r->answer;
    const kvf__order order = r->order;
    const kvf__finish finish = a->finish;
    size_t ready = finish == KVF__FINISH_FAILED ? a->streamed : kvf__answer_ready(a);
    size_t n = ready > a->streamed ? ready - a->streamed : 0;
    order.text(order.user, n ? a->text.data + a->streamed : "", n, (int64_t)a->out.n, finish);
    a->streamed += n;
    if (finish) kvf__engine_leave(ctx, e, at);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void fail_row(kvf_ctx *ctx, kvf__engine *e, int64_t at)
{
    if (e->rows[at].state == ROW_FREE) return;
    e->rows[at].answer.finish = KVF__FINISH_FAILED;
    tell(ctx, e, at);
}

/* Draws a token for each of the n rows in e->slots and adds it to the row's answer. */
static void advance(kvf_ctx *ctx, kvf__engine *e, int64_t n, const float *logits)
{
    const int64_t V = kvf__model_desc(e->base->model)->V;
#pragma omp parallel for schedule(dynamic) num_threads(e->threads) if (n > 1)
    for (int64_t i = 0; i < n; i++) {
        row *r = &e->rows[e->slots[i]];
        e->tokens[i] = kvf__sample(&r->order.sampling, logits + i * V, V, &r->answer.rng,
                                   e->scratch + (int64_t)omp_get_thread_num() * V);
    }
    e->stats.new_tokens += n;
    for (int64_t i = 0; i < n; i++) {
        row *r = &e->rows[e->slots[i]];
        if (kvf__answer_add(ctx, e->base, &r->answer, e->tokens[i]))
            fail_row(ctx, e, e->slots[i]);
        else
            tell(ctx, e, e->slots[i]);
    }
}

static int64_t unread(const row *r)
{
    return r->order.n - r->read;
}

/* The row that has waited longest of those with at most so many tokens to read; -1: none does. */
static int64_t next_waiting(const kvf__engine *e, int64_t most)
{
    int64_t first = -1;
    for (int64_t i = 0; i < e->n_rows; i++)
        if (e->rows[i].state == ROW_WAITS && unread(&e->rows[i]) <= most &&
            (first < 0 || e->rows[i].ticket < e->rows[first].ticket))
            first = i;
    return first;
}

/* A part of a prompt that does not end in this step. */
static kvf_status read_part(kvf_ctx *ctx, kvf__engine *e, int64_t at)
{
    row *r = &e->rows[at];
    const int32_t *ids = r->order.prompt + r->read;
    r->read += KVF__PROMPT_PART;
    e->stats.prompt_tokens += KVF__PROMPT_PART;
    return kvf__session_read(ctx, e->session, (int32_t)at, ids, KVF__PROMPT_PART);
}

/* What is left of a prompt goes to the n-th place of those that end. */
static void add_prompt(kvf__engine *e, int64_t at, int64_t n)
{
    row *r = &e->rows[at];
    const int64_t from = n ? e->start[n] : 0;
    memcpy(e->prompts + from, r->order.prompt + r->read, (size_t)unread(r) * sizeof *e->prompts);
    e->slots[n] = (int32_t)at;
    e->start[0] = 0;
    e->start[n + 1] = from + unread(r);
    e->stats.prompt_tokens += unread(r);
    r->read = r->order.n;
    r->state = ROW_READS;
}

/* The last parts of n prompts, and their first tokens. Their rows fail together. */
static void end_prompts(kvf_ctx *ctx, kvf__engine *e, int64_t n)
{
    const float *logits = NULL;
    kvf_status st = kvf__session_feed(ctx, e->session, e->slots, e->start, e->prompts, n, &logits);
    for (int64_t i = 0; i < n; i++)
        e->rows[e->slots[i]].state = ROW_GOES;
    if (!st) advance(ctx, e, n, logits);
    for (int64_t i = 0; st && i < n; i++)
        fail_row(ctx, e, e->slots[i]);
}

/* A part of the prompt that has waited longest, and short ones that end. */
static void read_prompts(kvf_ctx *ctx, kvf__engine *e)
{
    double begin = kvf__clock();
    int64_t at = next_waiting(e, INT64_MAX), budget = PROMPT_BUDGET, n = 0;
    if (at < 0) return;
    if (unread(&e->rows[at]) <= KVF__PROMPT_PART)
        add_prompt(e, at, n++);
    else if (read_part(ctx, e, at))
        fail_row(ctx, e, at);
    while ((at = next_waiting(e, budget)) >= 0) {
        budget -= unread(&e->rows[at]);
        add_prompt(e, at, n++);
    }
    if (n) end_prompts(ctx, e, n);
    e->stats.prefill_seconds += kvf__clock() - begin;
}

static kvf_status decode(kvf_ctx *ctx, kvf__engine *e)
{
    const float *logits = NULL;
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_rows; i++) {
        const kvf__ids *out = &e->rows[i].answer.out;
        if (e->rows[i].state != ROW_GOES) continue;
        e->slots[n] = (int32_t)i;
        e->start[n] = n;
        e->ids[n++] = out->data[out->n - 1];
    }
    e->start[n] = n;
    if (!n) return KVF_OK;
    double begin = kvf__clock();
    KVF_TRY(kvf__session_feed(ctx, e->session, e->slots, e->start, e->ids, n, &logits));
    e->stats.steps++;
    e->stats.step_rows += n;
    advance(ctx, e, n, logits);
    e->stats.decode_seconds += kvf__clock() - begin;
    return KVF_OK;
}

kvf_status kvf__engine_step(kvf_ctx *ctx, kvf__engine *engine)
{
    read_prompts(ctx, engine);
    kvf_status st = decode(ctx, engine);
    for (int64_t i = 0; st && i < engine->n_rows; i++)
        fail_row(ctx, engine, i);
    return st;
}

kvf__engine_stats kvf__engine_stats_of(const kvf__engine *engine)
{
    kvf__engine_stats stats = engine->stats;
    for (int64_t i = 0; i < engine->n_rows; i++) {
        stats.rows += engine->rows[i].state == ROW_GOES;
        stats.waiting += engine->rows[i].state == ROW_WAITS;
    }
    return stats;
}
