/* A session: prefixes as segment 0, one cache slot per row, and the logits of what each row ended
 * in.
 *
 * All rows share a prefix and are computed together, and where that prefix brings a language-model
 * head of its own, logits are that one's. Or (mixed) each row has its own prefix, and its bits do
 * not depend on its company: prompts take passes of their own, and steps sum every row in the order
 * of a single one. A base that has no form for steps takes a pass per row and token then. */
#include "infer_int.h"

#include <assert.h>
#include <string.h>

enum { DECODE_ROWS = 32 }; /* from more on, products of a pass are as fast */

/* A prefix that stands inside rows, before the last token of each prompt; at NULL: it leads them.
 */
typedef struct kvf__infix_rows {
    int32_t *at;     /* [rows] cached tokens before it, by slot; -1: the prompt is still to come */
    int32_t *listed; /* [rows] the same for the rows of a feed */
    kvf__prefix *turned;  /* [rows] by slot: the prefix with its keys turned to its place */
    int32_t *slots, *ids; /* [rows], [prompt tokens] of a part of a feed */
    int64_t *start;       /* [rows + 1] */
} kvf__infix_rows;

typedef struct row_file {
    const kvf__vectors *vectors;
    const kvf__lm_head *head;
} row_file;

struct kvf__session {
    kvf_base *base;
    bool mixed;
    const kvf__vectors *vectors; /* what ids below 0 stand for; NULL: there are none */
    kvf__step_row *before;       /* [rows] what stands before each slot's tokens */
    row_file *files;             /* [rows] mixed: what else a slot's prefix file brings */
    kvf__step_row *listed;       /* [rows] the same for the rows of a step */
    int64_t capacity, P;         /* most tokens in a row, longest prefix */
    int64_t prompt_tokens;       /* in one feed */
    kvf__pass *pass;
    kvf__decoder *decoder; /* for steps of one token a row; NULL: the base has no such form */
    kvf__cache *cache;
    kvf__lm_head *head;      /* NULL: the base's */
    kvf__infix_rows infix;   /* where the prefix stands inside rows */
    int64_t rows, step_rows; /* in all, in a step of the decoder */
    float *logits;           /* [rows, V] */
    int32_t *label_at;       /* [rows] */
    int32_t *label_id;       /* [rows], never read: a pass without loss */
    int64_t *example;        /* [rows] */
};

/* The memory that depends on the longest prefix. */
static kvf_status make_passes(kvf_ctx *ctx, kvf__session *s)
{
    kvf__pass_limits limits = {
        .rows = s->mixed ? 1 : s->rows,
        .tokens = s->prompt_tokens > s->rows ? s->prompt_tokens : s->rows,
        .row_len = s->capacity,
        .labels = s->mixed ? 1 : s->rows,
        .P = s->P,
        .cache_len = s->capacity,
        .infix = s->infix.at != NULL,
    };
    kvf__decoder_free(s->decoder);
    kvf__pass_free(s->pass);
    s->decoder = NULL;
    s->pass = NULL;
    KVF_TRY(kvf__pass_create(ctx, s->base->model, &limits, &s->pass));
    if (!kvf__decoder_fits(s->base->model, &s->base->slots)) return KVF_OK;
    s->step_rows = s->mixed || s->rows < DECODE_ROWS ? s->rows : DECODE_ROWS;
    KVF_TRY(kvf__decoder_create(ctx, s->base->model, &s->base->slots, s->cache, s->step_rows, s->P,
                                &s->decoder));
    if (s->head) kvf__decoder_set_head(s->decoder, kvf__lm_head_slot(s->head));
    return KVF_OK;
}

static kvf_status take_infix(kvf_ctx *ctx, kvf__session *s, const kvf_prefix *prefix)
{
    const kvf__prefix *p = &prefix->prefix;
    kvf__infix_rows *infix = &s->infix;
    size_t rows = (size_t)s->rows, tokens = (size_t)s->prompt_tokens;

    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *infix->at, &infix->at));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *infix->listed, &infix->listed));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *infix->slots, &infix->slots));
    KVF_TRY(kvf__alloc_array(ctx, tokens > rows ? tokens : rows, sizeof *infix->ids, &infix->ids));
    KVF_TRY(kvf__alloc_array(ctx, rows + 1, sizeof *infix->start, &infix->start));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *infix->turned, &infix->turned));
    for (size_t r = 0; r < rows; r++)
        KVF_TRY(kvf__prefix_init(ctx, &infix->turned[r], p->L, p->G, p->P, p->D));
    return KVF_OK;
}

static void infix_done(kvf__infix_rows *infix, int64_t rows)
{
    for (int64_t r = 0; infix->turned && r < rows; r++)
        kvf__prefix_done(&infix->turned[r]);
    kvf__free(infix->turned);
    kvf__free(infix->at);
    kvf__free(infix->listed);
    kvf__free(infix->slots);
    kvf__free(infix->ids);
    kvf__free(infix->start);
}

static kvf_status take_memory(kvf_ctx *ctx, kvf__session *s, const kvf_prefix *prefix)
{
    kvf_status (*make)(kvf_ctx *, const kvf__model *, int64_t, int64_t,
                       kvf__cache **) = s->mixed ? kvf__cache_create_empty : kvf__cache_create;
    if (prefix) KVF_TRY(kvf__prefix_lm_head(ctx, s->base, prefix, &s->head));
    if (prefix && prefix->id.infix) KVF_TRY(take_infix(ctx, s, prefix));
    KVF_TRY(make(ctx, s->base->model, s->rows, s->capacity, &s->cache));
    KVF_TRY(make_passes(ctx, s));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)(s->rows * kvf__model_desc(s->base->model)->V),
                             sizeof(float), &s->logits));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)s->rows, sizeof *s->before, &s->before));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)s->rows, sizeof *s->listed, &s->listed));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)s->rows, sizeof *s->files, &s->files));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)s->rows, sizeof *s->label_at, &s->label_at));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)s->rows, sizeof *s->label_id, &s->label_id));
    return kvf__alloc_array(ctx, (size_t)s->rows, sizeof *s->example, &s->example);
}

static kvf_status check_prefix(kvf_ctx *ctx, const kvf_prefix *prefix)
{
    if (!prefix || prefix->task == KVF__TASK_LM) return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE,
                     "the prefix is of task %s: its answers are those of `predict`",
                     kvf__task_name(prefix->task));
}

/* From what `made` says, for rows behind one prefix or none. */
static kvf_status create(kvf_ctx *ctx, const kvf__session *made, const kvf_prefix *prefix,
                         kvf__session **out)
{
    kvf__session *session = NULL;
    const kvf_base *base = made->base;
    if (!kvf__model_desc(base->model)->causal)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: a %s predicts no next token", base->path,
                         kvf_base_architecture(base));
    KVF_TRY(check_prefix(ctx, prefix));
    KVF_TRY(kvf__alloc(ctx, sizeof *session, &session));
    *session = *made;
    kvf_status st = take_memory(ctx, session, prefix);
    if (st)
        kvf__session_free(session);
    else
        *out = session;
    return st;
}

static kvf__step_row before_of(const kvf_prefix *prefix)
{
    if (!prefix) return (kvf__step_row){0};
    return (kvf__step_row){.prefix = prefix->prefix.P ? &prefix->prefix : NULL,
                           .position_start = prefix->id.position_start};
}

kvf_status kvf__session_create(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix, int64_t rows,
                               int64_t capacity, int64_t prompt_tokens, kvf__session **out)
{
    const kvf__session made = {.base = base,
                               .rows = rows,
                               .capacity = capacity,
                               .prompt_tokens = prompt_tokens,
                               .vectors = prefix && prefix->vectors.P ? &prefix->vectors : NULL,
                               .P = prefix ? prefix->prefix.P : 0};
    kvf__session *session = NULL;
    KVF_TRY(create(ctx, &made, prefix, &session));
    for (int64_t slot = 0; slot < rows; slot++)
        session->before[slot] = before_of(prefix);
    kvf__session_reset(session);
    *out = session;
    return KVF_OK;
}

kvf_status kvf__session_create_mixed(kvf_ctx *ctx, kvf_base *base, int64_t rows, int64_t capacity,
                                     int64_t P, kvf__session **out)
{
    const kvf__session made = {.base = base,
                               .mixed = true,
                               .rows = rows,
                               .capacity = capacity,
                               .prompt_tokens = capacity,
                               .P = P};
    return create(ctx, &made, NULL, out);
}

void kvf__session_free(kvf__session *session)
{
    if (!session) return;
    kvf__decoder_free(session->decoder);
    kvf__pass_free(session->pass);
    kvf__cache_free(session->cache);
    kvf__lm_head_free(session->head);
    infix_done(&session->infix, session->rows);
    kvf__free(session->logits);
    kvf__free(session->before);
    kvf__free(session->listed);
    kvf__free(session->files);
    kvf__free(session->label_at);
    kvf__free(session->label_id);
    kvf__free(session->example);
    kvf__free(session);
}

kvf_status kvf__session_fits(kvf_ctx *ctx, const kvf_prefix *prefix)
{
    KVF_TRY(check_prefix(ctx, prefix));
    if (prefix && prefix->id.infix)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "the prefix stands inside rows (placement infix): rows of many prefixes "
                         "begin with theirs");
    if (prefix && prefix->block.params.n)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: changes the base itself, which rows of many prefixes share",
                         prefix->id.method);
    return KVF_OK;
}

kvf_status kvf__session_open(kvf_ctx *ctx, kvf__session *session, int64_t slot,
                             const kvf_prefix *prefix, const kvf__lm_head *head, int64_t room)
{
    assert(session->mixed && slot >= 0 && slot < session->rows);
    assert(!head == !(prefix && prefix->head.params.params.n));
    KVF_TRY(kvf__session_fits(ctx, prefix));
    const int64_t P = prefix ? prefix->prefix.P : 0;
    if (P > session->P || !session->pass) {
        if (P > session->P) session->P = P;
        KVF_TRY(make_passes(ctx, session));
    }
    KVF_TRY(kvf__cache_reserve(ctx, session->cache, slot, room));
    session->before[slot] = before_of(prefix);
    if (head) session->before[slot].head = kvf__lm_head_slot(head);
    session->files[slot] = (row_file){prefix && prefix->vectors.P ? &prefix->vectors : NULL, head};
    return KVF_OK;
}

void kvf__session_close(kvf_ctx *ctx, kvf__session *session, int64_t slot)
{
    kvf__cache_reserve(ctx, session->cache, slot, 0); /* cannot fail: nothing is taken */
}

void kvf__session_copy(kvf__session *session, int64_t from, int64_t to, int64_t n)
{
    kvf__cache_copy(session->cache, from, to, n);
}

void kvf__session_reset(kvf__session *session)
{
    for (int64_t slot = 0; slot < session->rows; slot++) {
        kvf__cache_truncate(session->cache, slot, 0);
        if (session->infix.at) session->infix.at[slot] = -1;
    }
}

/* After a pass over n rows: logits [n, V]. */
static kvf_status take_logits(kvf_ctx *ctx, kvf__session *session, const kvf__lm_head *head,
                              int64_t n, float *logits)
{
    const float *hidden = NULL;
    if (!head) return kvf__pass_lm_logits(ctx, session->pass, logits);
    KVF_TRY(kvf__pass_hidden(ctx, session->pass, &hidden));
    return kvf__lm_head_logits(ctx, head, hidden, n, logits);
}

/* What a slot's tokens behind its infix see: it turned to its place, and positions P further on. */
static kvf__step_row behind_infix(const kvf__session *session, int64_t slot)
{
    return (kvf__step_row){.prefix = &session->infix.turned[slot], .position_start = session->P};
}

/* One token a row, behind others. */
static kvf_status feed_step(kvf_ctx *ctx, kvf__session *session, const int32_t *slots,
                            const int32_t *ids, int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        session->listed[r] = session->infix.at ? behind_infix(session, slots[r])
                                               : session->before[slots[r]];
    const kvf__step step = {
        .n = n, .ids = ids, .slot = slots, .row = session->listed, .as_one = session->mixed};
    return kvf__decoder_step(ctx, session->decoder, &step, session->logits);
}

/* Rows behind the same prefix, or around it; logits [n, V]. */
static kvf_status feed_pass(kvf_ctx *ctx, kvf__session *session, const int32_t *slots,
                            const int64_t *start, const int32_t *ids, int64_t n, float *logits)
{
    const int32_t *infix_at = session->infix.at ? session->infix.listed : NULL;
    const row_file file = session->mixed ? session->files[slots[0]]
                                         : (row_file){session->vectors, session->head};
    for (int64_t r = 0; infix_at && r < n; r++)
        session->infix.listed[r] = session->infix.at[slots[r]];
    for (int64_t r = 0; r < n; r++)
        session->label_at[r] = (int32_t)(start[r + 1] - 1);
    kvf__batch batch = {
        .n_rows = n,
        .n_tokens = start[n],
        .n_labels = n,
        .start = start,
        .ids = ids,
        .label_at = session->label_at,
        .label_id = session->label_id,
        .example = session->example,
        .infix_at = infix_at,
    };
    kvf__input input = {
        .batch = &batch,
        .prefix = session->before[slots[0]].prefix,
        .vectors = file.vectors,
        .position_start = session->before[slots[0]].position_start,
        .cache = session->cache,
        .slot = slots,
    };
    KVF_TRY(kvf__pass_fwd(ctx, session->pass, &input));
    return take_logits(ctx, session, file.head, n, logits);
}

/* All but the last token of prompts: what stands before the infix and does not see it. */
static kvf_status feed_before_infix(kvf_ctx *ctx, kvf__session *session, const int32_t *slots,
                                    const int64_t *start, const int32_t *ids, int64_t n)
{
    kvf__infix_rows *infix = &session->infix;
    int64_t rows = 0;

    for (int64_t r = 0; r < n; r++) {
        int64_t len = start[r + 1] - start[r] - 1;
        if (infix->at[slots[r]] >= 0 || len < 1) continue;
        memcpy(infix->ids + infix->start[rows], ids + start[r], (size_t)len * sizeof *ids);
        infix->slots[rows] = slots[r];
        infix->start[rows + 1] = infix->start[rows] + len;
        rows++;
    }
    if (!rows) return KVF_OK;
    return feed_pass(ctx, session, infix->slots, infix->start, infix->ids, rows, session->logits);
}

/* The infix takes its place behind what is cached of a prompt. */
static kvf_status place_infix(kvf_ctx *ctx, kvf__session *session, int64_t slot)
{
    kvf__infix_rows *infix = &session->infix;

    if (infix->at[slot] >= 0) return KVF_OK;
    infix->at[slot] = (int32_t)kvf__cache_length(session->cache, slot);
    return kvf__model_turn_prefix(ctx, session->base->model, &infix->turned[slot],
                                  session->before[slot].prefix, infix->at[slot], false);
}

/* A prompt in two parts; what follows it, as it is. */
static kvf_status feed_infix(kvf_ctx *ctx, kvf__session *session, const int32_t *slots,
                             const int64_t *start, const int32_t *ids, int64_t n)
{
    kvf__infix_rows *infix = &session->infix;

    KVF_TRY(feed_before_infix(ctx, session, slots, start, ids, n));
    for (int64_t r = 0; r < n; r++) {
        int64_t from = infix->at[slots[r]] < 0 ? start[r + 1] - 1 : start[r];
        memcpy(infix->ids + infix->start[r], ids + from,
               (size_t)(start[r + 1] - from) * sizeof *ids);
        infix->start[r + 1] = infix->start[r] + start[r + 1] - from;
        KVF_TRY(place_infix(ctx, session, slots[r]));
    }
    if (session->decoder && infix->start[n] == n && n <= session->step_rows)
        return feed_step(ctx, session, slots, infix->ids, n);
    return feed_pass(ctx, session, slots, infix->start, infix->ids, n, session->logits);
}

kvf_status kvf__session_feed(kvf_ctx *ctx, kvf__session *session, const int32_t *slots,
                             const int64_t *start, const int32_t *ids, int64_t n,
                             const float **logits)
{
    const int64_t V = kvf__model_desc(session->base->model)->V;
    *logits = session->logits;
    if (!session->pass)
        return kvf__fail(ctx, KVF_ENOMEM, "no memory for rows behind a prefix of %lld",
                         (long long)session->P);
    if (session->infix.at) return feed_infix(ctx, session, slots, start, ids, n);
    if (session->decoder && start[n] == n && n <= session->step_rows)
        return feed_step(ctx, session, slots, ids, n);
    if (!session->mixed) return feed_pass(ctx, session, slots, start, ids, n, session->logits);
    for (int64_t r = 0; r < n; r++) {
        const int64_t own[] = {0, start[r + 1] - start[r]};
        KVF_TRY(
            feed_pass(ctx, session, slots + r, own, ids + start[r], 1, session->logits + r * V));
    }
    return KVF_OK;
}
