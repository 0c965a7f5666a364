/* A session: prefixes as segment 0, one cache slot per row, and the logits of what each row ended
 * in.
 *
 * All rows share a prefix and are computed together, and where that prefix brings a language-model
 * head of its own, logits are that one's. Or (mixed) each row has its own prefix, and its bits do
 * not depend on its company: steps sum every row in the order of a single one, and prompts share a
 * pass where a trial shows that its products do so by themselves; elsewhere each takes its own. A
 * base that has no form for steps then takes a pass per row and token. */
#include "session_priv.h"

#include <assert.h>

enum { DECODE_ROWS = 32 }; /* from more on, products of a pass are as fast */

/* The memory that depends on the longest prefix. What there was is let go of once the new is there:
 * rows that go on need it where there is no memory for more. */
static kvf_status make_passes(kvf_ctx *ctx, kvf__session *s, int64_t P, bool infixes)
{
    const int64_t rows = s->mixed && !s->together ? 1 : s->rows;
    const kvf__pass_limits limits = {
        .rows = rows,
        .tokens = s->mixed ? KVF__PROMPT_PART : s->pass_tokens,
        .row_len = s->capacity < KVF__PROMPT_PART ? s->capacity : KVF__PROMPT_PART,
        .labels = rows,
        .P = P,
        .cache_len = s->capacity,
        .infix = infixes,
        .sections = s->together ? rows : 0,
    };
    kvf__pass *pass = NULL;
    kvf__decoder *decoder = NULL;
    s->step_rows = s->mixed || s->rows < DECODE_ROWS ? s->rows : DECODE_ROWS;
    KVF_TRY(kvf__pass_create(ctx, s->base->model, &limits, &pass));
    if (kvf__decoder_fits(s->base->model, &s->base->slots)) {
        kvf_status st = kvf__decoder_create(ctx, s->base->model, &s->base->slots, s->cache,
                                            s->step_rows, P, &decoder);
        if (st) {
            kvf__pass_free(pass);
            return st;
        }
        if (s->head) kvf__decoder_set_head(decoder, kvf__lm_head_slot(s->head));
    }
    kvf__decoder_free(s->decoder);
    kvf__pass_free(s->pass);
    s->decoder = decoder;
    s->pass = pass;
    s->P = P;
    s->infixes = infixes;
    return KVF_OK;
}

/* The slot's prefix stands inside its row, if it is one of that kind. */
static kvf_status open_infix(kvf_ctx *ctx, kvf__infix_slot *slot, const kvf_prefix *prefix)
{
    const kvf__prefix *p = prefix ? &prefix->prefix : NULL;

    kvf__prefix_done(&slot->rotated);
    *slot = (kvf__infix_slot){.at = -1};
    if (!p || !prefix->id.infix || !p->P) return KVF_OK;
    KVF_TRY(kvf__prefix_init(ctx, &slot->rotated, p->L, p->G, p->P, p->D));
    slot->on = true;
    return KVF_OK;
}

static kvf_status take_rows(kvf_ctx *ctx, kvf__session *s)
{
    const size_t rows = (size_t)s->rows, V = (size_t)kvf__model_desc(s->base->model)->V;
    KVF_TRY(kvf__alloc_array(ctx, rows * V, sizeof(float), &s->logits));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *s->before, &s->before));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *s->listed, &s->listed));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *s->files, &s->files));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *s->infix, &s->infix));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *s->infix_at, &s->infix_at));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *s->label_at, &s->label_at));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *s->label_id, &s->label_id));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *s->example, &s->example));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *s->sections, &s->sections));
    KVF_TRY(kvf__alloc_array(ctx, rows + 1, sizeof *s->section_start, &s->section_start));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *s->left, &s->left));
    KVF_TRY(kvf__alloc_array(ctx, rows, sizeof *s->part_slots, &s->part_slots));
    KVF_TRY(kvf__alloc_array(ctx, rows + 1, sizeof *s->part_start, &s->part_start));
    return kvf__alloc_array(ctx, (size_t)s->pass_tokens, sizeof *s->part_ids, &s->part_ids);
}

static kvf_status alloc_memory(kvf_ctx *ctx, kvf__session *s, const kvf_prefix *prefix)
{
    kvf_status (*make)(kvf_ctx *, const kvf__model *, int64_t, int64_t,
                       kvf__cache **) = s->mixed ? kvf__cache_create_empty : kvf__cache_create;
    if (prefix) KVF_TRY(kvf__prefix_lm_head(ctx, s->base, prefix, &s->head));
    if (s->mixed)
        KVF_TRY(kvf__model_rows_alike(ctx, s->base->model, KVF__PROMPTS_TOGETHER, &s->together));
    KVF_TRY(make(ctx, s->base->model, s->rows, s->capacity, &s->cache));
    KVF_TRY(make_passes(ctx, s, s->P, prefix && prefix->id.infix));
    return take_rows(ctx, s);
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
    kvf_status st = alloc_memory(ctx, session, prefix);
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

static kvf__row_file file_of(const kvf_prefix *prefix, const kvf__lm_head *head)
{
    return (kvf__row_file){prefix && prefix->vectors.P ? &prefix->vectors : NULL, head};
}

kvf_status kvf__session_create(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix, int64_t rows,
                               int64_t capacity, int64_t prompt_tokens, kvf__session **out)
{
    const int64_t parts = rows * KVF__PROMPT_PART;
    const int64_t tokens = prompt_tokens < parts ? prompt_tokens : parts;
    const kvf__session made = {.base = base,
                               .rows = rows,
                               .capacity = capacity,
                               .pass_tokens = tokens > rows ? tokens : rows,
                               .P = prefix ? prefix->prefix.P : 0};
    kvf__session *session = NULL;
    kvf_status st;
    KVF_TRY(create(ctx, &made, prefix, &session));
    for (int64_t slot = 0; slot < rows; slot++) {
        session->before[slot] = before_of(prefix);
        session->files[slot] = file_of(prefix, session->head);
        st = open_infix(ctx, &session->infix[slot], prefix);
        if (st) {
            kvf__session_free(session);
            return st;
        }
    }
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
                               .pass_tokens = rows * KVF__PROMPT_PART,
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
    for (int64_t slot = 0; session->infix && slot < session->rows; slot++)
        kvf__prefix_done(&session->infix[slot].rotated);
    kvf__free(session->infix);
    kvf__free(session->infix_at);
    kvf__free(session->logits);
    kvf__free(session->before);
    kvf__free(session->listed);
    kvf__free(session->files);
    kvf__free(session->label_at);
    kvf__free(session->label_id);
    kvf__free(session->example);
    kvf__free(session->sections);
    kvf__free(session->section_start);
    kvf__free(session->left);
    kvf__free(session->part_slots);
    kvf__free(session->part_start);
    kvf__free(session->part_ids);
    kvf__free(session);
}

kvf_status kvf__session_fits(kvf_ctx *ctx, const kvf_prefix *prefix)
{
    KVF_TRY(check_prefix(ctx, prefix));
    if (prefix && prefix->block.params.n)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: changes the base itself, which rows of many prefixes share",
                         prefix->id.method);
    return KVF_OK;
}

kvf_status kvf__session_open(kvf_ctx *ctx, kvf__session *session, int64_t slot,
                             const kvf_prefix *prefix, const kvf__lm_head *head, int64_t reserved)
{
    assert(session->mixed && slot >= 0 && slot < session->rows);
    assert(!head == !(prefix && prefix->head.params.params.n));
    KVF_TRY(kvf__session_fits(ctx, prefix));
    const int64_t P = prefix && prefix->prefix.P > session->P ? prefix->prefix.P : session->P;
    const bool infixes = session->infixes || (prefix && prefix->id.infix);
    if (P != session->P || infixes != session->infixes)
        KVF_TRY(make_passes(ctx, session, P, infixes));
    KVF_TRY(open_infix(ctx, &session->infix[slot], prefix));
    kvf_status st = kvf__cache_reserve(ctx, session->cache, slot, reserved);
    if (st) {
        open_infix(ctx, &session->infix[slot], NULL);
        return st;
    }
    session->before[slot] = before_of(prefix);
    if (head) session->before[slot].head = kvf__lm_head_slot(head);
    session->files[slot] = file_of(prefix, head);
    return KVF_OK;
}

void kvf__session_close(kvf_ctx *ctx, kvf__session *session, int64_t slot)
{
    kvf__cache_reserve(ctx, session->cache, slot, 0); /* neither can fail: nothing is taken */
    open_infix(ctx, &session->infix[slot], NULL);
}

void kvf__session_copy(kvf__session *session, int64_t from, int64_t to, int64_t n)
{
    kvf__cache_copy(session->cache, from, to, n);
}

void kvf__session_reset(kvf__session *session)
{
    for (int64_t slot = 0; slot < session->rows; slot++) {
        kvf__cache_truncate(session->cache, slot, 0);
        session->infix[slot].at = -1;
    }
}
