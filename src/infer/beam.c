/* Beam search as in transformers (GenerationMixin._beam_search, early_stopping False). N running
 * beams each have a sum of log-probabilities. A step considers the K likeliest continuations of all
 * beams, K = (1 + number of end tokens) * N, so that at least N do not end. Continuations among the
 * first N that end are finished, and the N best of them by sum / length ** length_penalty are kept.
 * The search ends when the best running beam, scored at its present length, is no better than the
 * worst of N finished ones.
 *
 * Each beam has a slot of the session. The first child of a beam continues in its slot; other
 * children copy the slot to free ones. */
#include "beam.h"

#include <math.h>
#include <string.h>

/* A completion so far, including its end token if it has one. */
typedef struct beam {
    int32_t *ids; /* [n] token ids, with space for the row's limit */
    int64_t n;
    int64_t slot, from; /* its slot of the session; the slot that it continues from */
    double score;       /* sum of log-probabilities; for finished beams divided by length ** penalty
                         */
} beam;

/* A beam and a token that may follow it. */
typedef struct continuation {
    double score;
    int64_t parent;
    int32_t token;
    bool ends;
} continuation;

typedef struct beam_state {
    kvf_ctx *ctx;
    kvf__beam_search *search;
    kvf__live_row *row;
    int64_t N, K, V, limit;
    beam *running, *next, *finished; /* [N] each; finished ones with the best first */
    int64_t n_running, n_finished;
    continuation *likeliest; /* [K] best first */
    int64_t n_likeliest;
    float *logits; /* [V] log-probabilities */
    bool *taken;   /* [N] slots taken by the next beams */
    int32_t *ids;  /* [3 * N, limit] */
    void *memory;
} beam_state;

static void lay_out(void *object, kvf__carver *carve)
{
    beam_state *s = object;
    s->running = kvf__carve(carve, s->N, 1, sizeof *s->running);
    s->next = kvf__carve(carve, s->N, 1, sizeof *s->next);
    s->finished = kvf__carve(carve, s->N, 1, sizeof *s->finished);
    s->likeliest = kvf__carve(carve, s->K, 1, sizeof *s->likeliest);
    s->logits = kvf__carve(carve, s->V, 1, sizeof *s->logits);
    s->taken = kvf__carve(carve, s->N, 1, sizeof *s->taken);
    s->ids = kvf__carve(carve, 3 * s->N, s->limit, sizeof *s->ids);
}

static void set_beam(beam *to, const beam *from, int32_t token, double score)
{
    memcpy(to->ids, from->ids, (size_t)from->n * sizeof *from->ids);
    to->ids[from->n] = token;
    to->n = from->n + 1;
    to->score = score;
}

/* ---- what may follow ------------------------------------------------------------------------- */

/* Inserts into the K best; equal scores keep their order. */
static void keep(beam_state *s, int64_t parent, int32_t token, double score)
{
    int64_t at = s->n_likeliest;
    if (at == s->K && !(score > s->likeliest[at - 1].score)) return;
    if (at < s->K) s->n_likeliest++;
    at = s->n_likeliest - 1;
    for (; at > 0 && s->likeliest[at - 1].score < score; at--)
        s->likeliest[at] = s->likeliest[at - 1];
    s->likeliest[at] = (continuation){.score = score, .parent = parent, .token = token};
}

/* Adds the continuations of a running beam, from its logits [V]. */
static kvf_status add_continuations(beam_state *s, int64_t parent, const float *logits)
{
    const kvf__row_request *request = &s->row->request;
    const kvf__penalties *penalties = &request->sampling.penalties;
    const beam *b = &s->running[parent];
    const bool apart = kvf__model_desc(s->search->base->model)->encoder > 0; /* separate from the
                                                                              * prompt */
    const kvf__said said = {request->prompt, b->ids, apart ? 0 : request->n, b->n};
    const double whole = kvf__log_sum(logits, s->V).value;
    const float *scores = s->logits;
    const int32_t forced = kvf__completion_forced(s->search->base, b->n);
    if (forced >= 0) {
        keep(s, parent, forced, b->score);
        return KVF_OK;
    }
    if (!kvf__logits_fine(logits, s->V)) return kvf__fail_logits(s->ctx, b->n);
    for (int64_t v = 0; v < s->V; v++)
        s->logits[v] = (float)((double)logits[v] - whole);
    if (kvf__penalties_any(penalties)) {
        kvf__row_batch *batch = s->search->batch;
        kvf__penalize(penalties, &said, s->logits, s->V, batch->counts, batch->penalized);
        scores = batch->penalized;
    }
    for (int64_t v = 0; v < s->V; v++)
        keep(s, parent, (int32_t)v, b->score + (double)scores[v]);
    return KVF_OK;
}

/* Rebuilds the completion of these ids: its text, and whether it has ended. */
static kvf_status replay(beam_state *s, const beam *b, kvf__completion *out)
{
    for (int64_t i = 0; i < b->n && !out->finish; i++)
        KVF_TRY(kvf__completion_add(s->ctx, s->search->base, out, b->ids[i]));
    return KVF_OK;
}

/* Checks whether a continuation reaches a stop text. `work` is scratch memory for its ids. */
static kvf_status reaches_stop(beam_state *s, const continuation *c, beam *work, bool *yes)
{
    kvf__completion trial = s->row->completion; /* an empty completion with the row's limit, stop
                                                 * texts and end tokens */
    set_beam(work, &s->running[c->parent], c->token, c->score);
    const kvf_status st = replay(s, work, &trial);
    *yes = trial.finish == KVF__FINISH_STOP;
    kvf__completion_done(&trial);
    return st;
}

static kvf_status find_ends(beam_state *s)
{
    const kvf__row_request *request = &s->row->request;
    for (int64_t i = 0; i < s->n_likeliest; i++) {
        continuation *c = &s->likeliest[i];
        c->ends = s->running[c->parent].n + 1 >= s->limit || kvf__ends_has(request->ends, c->token);
        if (!c->ends && request->n_stop) KVF_TRY(reaches_stop(s, c, &s->next[0], &c->ends));
    }
    return KVF_OK;
}

/* ---- which beams there are next -------------------------------------------------------------- */

static double at_length(const beam_state *s, double score, int64_t length)
{
    return score / pow((double)length, s->search->length_penalty);
}

/* Inserts into the N best finished beams. */
static void finish(beam_state *s, const continuation *c)
{
    const beam *parent = &s->running[c->parent];
    const double score = at_length(s, c->score, parent->n + 1);
    int64_t at = s->n_finished;
    if (at == s->N && !(score > s->finished[at - 1].score)) return;
    if (at < s->N) s->n_finished++;
    at = s->n_finished - 1;
    const beam last = s->finished[at]; /* reuse its memory */
    for (; at > 0 && s->finished[at - 1].score < score; at--)
        s->finished[at] = s->finished[at - 1];
    s->finished[at] = last;
    set_beam(&s->finished[at], parent, c->token, score);
}

/* Assigns slots to the next beams [n], each with the tokens of its parent up to the last. */
static void place(beam_state *s, int64_t n)
{
    const int64_t length = s->row->request.n + s->running[0].n;
    int64_t unused = 0;
    memset(s->taken, 0, (size_t)s->N * sizeof *s->taken);
    for (int64_t i = 0; i < n; i++) {
        beam *b = &s->next[i];
        b->slot = s->taken[b->from] ? -1 : b->from;
        s->taken[b->from] = true;
    }
    for (int64_t i = 0; i < n; i++) {
        if (s->next[i].slot >= 0) continue;
        while (s->taken[unused])
            unused++;
        kvf__ensemble_copy(s->search->session, s->next[i].from, unused, length);
        s->next[i].slot = unused++;
    }
}

/* Finishes or continues the likeliest continuations. */
static void choose(beam_state *s)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->n_likeliest; i++) {
        const continuation *c = &s->likeliest[i];
        const beam *parent = &s->running[c->parent];
        if (c->ends && i < s->N) finish(s, c);
        if (c->ends || n == s->N) continue;
        set_beam(&s->next[n], parent, c->token, c->score);
        s->next[n++].from = parent->slot;
    }
    place(s, n);
    beam *was = s->running;
    s->running = s->next;
    s->next = was;
    s->n_running = n;
}

static bool can_improve(const beam_state *s)
{
    if (!s->n_running || s->n_finished < s->N) return s->n_running > 0;
    const double best = at_length(s, s->running[0].score, s->running[0].n);
    return best > s->finished[s->N - 1].score;
}

/* ---- the whole of it ------------------------------------------------------------------------- */

/* Feeds the batch and adds continuations of each running beam from its logits. */
static kvf_status step(beam_state *s, double *seconds)
{
    const float *logits = NULL;
    const double begin = kvf__clock();
    KVF_TRY(kvf__ensemble_feed(s->ctx, s->search->session, &s->search->batch->tokens, &logits));
    *seconds += kvf__clock() - begin;
    s->search->stats.new_tokens += s->n_running;
    s->n_likeliest = 0;
    for (int64_t i = 0; i < s->n_running; i++)
        KVF_TRY(add_continuations(s, i, logits + i * s->V));
    KVF_TRY(find_ends(s));
    choose(s);
    return KVF_OK;
}

/* Feeds the prompt once, to the only beam at the start. With a prefix inside the row every slot
 * reads it, because each has its own copy of the prefix. */
static kvf_status read_prompt(beam_state *s)
{
    const kvf__row_request *request = &s->row->request;
    kvf__tokens *tokens = &s->search->batch->tokens;
    kvf__ensemble_reset(s->search->session);
    tokens->n = 0;
    for (int64_t i = 0; i < (s->search->infix ? s->N : 1); i++)
        kvf__tokens_add(tokens, i, request->prompt, request->n);
    s->search->stats.prompt_tokens += request->n;
    s->n_running = 1;
    return step(s, &s->search->stats.prefill_seconds);
}

static kvf_status run(beam_state *s)
{
    KVF_TRY(read_prompt(s));
    while (can_improve(s)) {
        kvf__tokens *tokens = &s->search->batch->tokens;
        tokens->n = 0;
        for (int64_t i = 0; i < s->n_running; i++) {
            const beam *b = &s->running[i];
            kvf__tokens_add(tokens, b->slot, &b->ids[b->n - 1], 1);
        }
        KVF_TRY(step(s, &s->search->stats.decode_seconds));
    }
    return replay(s, &s->finished[0], &s->row->completion);
}

kvf_status kvf__beam_complete(kvf_ctx *ctx, kvf__beam_search *search, kvf__live_row *row)
{
    const int64_t ends = row->request.ends->n;
    beam_state s = {.ctx = ctx,
                    .search = search,
                    .row = row,
                    .N = search->beams,
                    .K = (ends > 1 ? 1 + ends : 2) * search->beams,
                    .V = kvf__model_desc(search->base->model)->V,
                    .limit = row->completion.limit};
    KVF_TRY(kvf__carve_block(ctx, lay_out, &s, &s.memory));
    for (int64_t i = 0; i < s.N; i++) {
        s.running[i] = (beam){.ids = s.ids + i * s.limit};
        s.next[i] = (beam){.ids = s.ids + (s.N + i) * s.limit};
        s.finished[i] = (beam){.ids = s.ids + (2 * s.N + i) * s.limit};
    }
    const kvf_status st = run(&s);
    kvf__free(s.memory);
    return st;
}
