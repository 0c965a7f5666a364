/* A session: the prefix as shared segment 0, one cache slot per row, and the logits of what each
 * row ended in. Where the prefix brings a language-model head of its own, logits are that one's. */
#include "infer_int.h"

#include <string.h>

enum { DECODE_ROWS = 32 }; /* from more on, products of a pass are as fast */

struct kvf__session {
    kvf_base *base;
    const kvf_prefix *prefix;
    kvf__pass *pass;
    kvf__decoder *decoder; /* for steps of one token a row; NULL: the base has no such form */
    kvf__cache *cache;
    kvf__lm_head *head; /* NULL: the base's */
    int64_t rows;
    float *logits;     /* [rows, V] */
    int32_t *label_at; /* [rows] */
    int32_t *label_id; /* [rows], never read: a pass without loss */
    int64_t *example;  /* [rows] */
};

static kvf_status take_memory(kvf_ctx *ctx, kvf__session *s, int64_t capacity,
                              int64_t prompt_tokens)
{
    kvf__pass_limits limits = {
        .rows = s->rows,
        .tokens = prompt_tokens > s->rows ? prompt_tokens : s->rows,
        .row_len = capacity,
        .labels = s->rows,
        .P = s->prefix ? s->prefix->id.P : 0,
        .cache_len = capacity,
    };
    KVF_TRY(kvf__cache_create(ctx, s->base->model, s->rows, capacity, &s->cache));
    KVF_TRY(kvf__pass_create(ctx, s->base->model, &limits, &s->pass));
    if (kvf__decoder_fits(s->base->model, &s->base->slots))
        KVF_TRY(kvf__decoder_create(ctx, s->base->model, &s->base->slots, s->cache,
                                    s->rows < DECODE_ROWS ? s->rows : DECODE_ROWS, limits.P,
                                    &s->decoder));
    if (s->prefix) KVF_TRY(kvf__prefix_lm_head(ctx, s->base, s->prefix, &s->head));
    if (s->decoder && s->head) kvf__decoder_set_head(s->decoder, kvf__lm_head_slot(s->head));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)(s->rows * kvf__model_desc(s->base->model)->V),
                             sizeof(float), &s->logits));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)s->rows, sizeof *s->label_at, &s->label_at));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)s->rows, sizeof *s->label_id, &s->label_id));
    return kvf__alloc_array(ctx, (size_t)s->rows, sizeof *s->example, &s->example);
}

kvf_status kvf__session_create(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix, int64_t rows,
                               int64_t capacity, int64_t prompt_tokens, kvf__session **out)
{
    kvf__session *session = NULL;
    if (!kvf__model_desc(base->model)->causal)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: a %s predicts no next token", base->path,
                         kvf_base_architecture(base));
    if (prefix && prefix->task != KVF__TASK_LM)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "the prefix is of task %s: its answers are those of `predict`",
                         kvf__task_name(prefix->task));
    KVF_TRY(kvf__alloc(ctx, sizeof *session, &session));
    session->base = base;
    session->prefix = prefix;
    session->rows = rows;
    kvf_status st = take_memory(ctx, session, capacity, prompt_tokens);
    if (st)
        kvf__session_free(session);
    else
        *out = session;
    return st;
}

void kvf__session_free(kvf__session *session)
{
    if (!session) return;
    kvf__decoder_free(session->decoder);
    kvf__pass_free(session->pass);
    kvf__cache_free(session->cache);
    kvf__lm_head_free(session->head);
    kvf__free(session->logits);
    kvf__free(session->label_at);
    kvf__free(session->label_id);
    kvf__free(session->example);
    kvf__free(session);
}

void kvf__session_copy(kvf__session *session, int64_t from, int64_t to, int64_t n)
{
    kvf__cache_copy(session->cache, from, to, n);
}

void kvf__session_reset(kvf__session *session)
{
    for (int64_t slot = 0; slot < session->rows; slot++)
        kvf__cache_truncate(session->cache, slot, 0);
}

/* After a pass over n rows. */
static kvf_status take_logits(kvf_ctx *ctx, kvf__session *session, int64_t n)
{
    const float *hidden = NULL;
    if (!session->head) return kvf__pass_lm_logits(ctx, session->pass, session->logits);
    KVF_TRY(kvf__pass_hidden(ctx, session->pass, &hidden));
    return kvf__lm_head_logits(ctx, session->head, hidden, n, session->logits);
}

/* One token a row, behind others. */
static kvf_status feed_step(kvf_ctx *ctx, kvf__session *session, const int32_t *slots,
                            const int32_t *ids, int64_t n)
{
    const kvf__step step = {
        .n = n,
        .ids = ids,
        .slot = slots,
        .prefix = session->prefix ? &session->prefix->prefix : NULL,
        .position_start = session->prefix ? session->prefix->id.position_start : 0,
    };
    return kvf__decoder_step(ctx, session->decoder, &step, session->logits);
}

kvf_status kvf__session_feed(kvf_ctx *ctx, kvf__session *session, const int32_t *slots,
                             const int64_t *start, const int32_t *ids, int64_t n,
                             const float **logits)
{
    *logits = session->logits;
    if (session->decoder && start[n] == n && n <= DECODE_ROWS)
        return feed_step(ctx, session, slots, ids, n);
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
    };
    kvf__input input = {
        .batch = &batch,
        .prefix = session->prefix ? &session->prefix->prefix : NULL,
        .position_start = session->prefix ? session->prefix->id.position_start : 0,
        .cache = session->cache,
        .slot = slots,
    };
    KVF_TRY(kvf__pass_fwd(ctx, session->pass, &input));
    return take_logits(ctx, session, n);
}
