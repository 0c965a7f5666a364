/* A session: prefixes as the first segment of attention, one cache slot per row, and logits after
 * each row's last token. Either all rows share a prefix and are computed together; if the prefix
 * has its own language-model head, it computes the logits. Or (mixed) each row has its own prefix,
 * and its bits do not depend on other rows.
 *
 * Steps sum each mixed row in the same order as a row alone. Prompts share a pass if a test
 * at the start (kvf__model_rows_alike) shows that matrix products are independent of other rows;
 * otherwise each prompt has a separate pass. A base without a decoder step then needs a pass per
 * row and token. */
#include "session_priv.h"

#include <assert.h>

enum { DECODE_ROWS = 32 }; /* with more rows the products of a pass are as fast */

/* Allocates the memory that depends on the longest prefix. The old memory is freed last, because
 * running rows still need it if the allocation fails. */
static kvf_status make_passes(kvf_ctx *ctx, kvf__session *s, int64_t P, int64_t neurons,
                              bool infixes)
{
    const int64_t rows = s->mixed && !s->together ? 1 : s->rows;
    const bool encoder = kvf__model_desc(s->base->model)->encoder > 0;
    const kvf__pass_limits limits = {
        .rows = rows,
        .tokens = encoder    ? rows
                  : s->mixed ? KVF__PROMPT_PART
                             : s->part_tokens,
        .row_len = s->capacity < KVF__PROMPT_PART ? s->capacity : KVF__PROMPT_PART,
        .labels = rows,
        .P = P,
        .neurons = neurons,
        .cache_len = s->capacity,
        .source_tokens = !encoder   ? 0
                         : s->mixed ? s->capacity
                                    : s->part_tokens,
        .source_len = encoder ? s->capacity : 0,
        .infix = infixes,
        .sections = s->together ? rows : 0,
    };
    kvf__pass *pass = NULL;
    kvf__decoder *decoder = NULL;
    const bool all = s->mixed || s->run > 1 || s->rows < DECODE_ROWS;
    s->step_rows = all ? s->rows * s->run : DECODE_ROWS;
    KVF_TRY(kvf__pass_create(ctx, s->base->model, &limits, &pass));
    if (!kvf__decoder_refuses(s->base->model, &s->base->slots)) {
        kvf_status st = kvf__decoder_create(ctx, s->base->model, &s->base->slots, s->cache,
                                            s->step_rows, P, neurons, &decoder);
        if (st) {
            kvf__pass_free(pass);
            return st;
        }
        if (s->head) kvf__decoder_set_head(decoder, kvf__head_matrix(s->head));
    }
    kvf__decoder_free(s->decoder);
    kvf__pass_free(s->pass);
    s->decoder = decoder;
    s->pass = pass;
    s->P = P;
    s->neurons = neurons;
    s->infixes = infixes;
    return KVF_OK;
}

/* Empties the slot for a row with this prefix and its head; both may be NULL. */
static kvf_status fill_slot(kvf_ctx *ctx, kvf__session_slot *slot, const kvf_prefix *prefix,
                            kvf__head *head)
{
    const kvf__condition condition = kvf__prefix_condition(prefix);
    const kvf__prefix *p = condition.prefix;
    kvf__prefix_done(&slot->rotated);
    *slot = (kvf__session_slot){.before = {.condition = condition}, .head = head, .infix_at = -1};
    if (!p || !prefix->file.id.infix) return KVF_OK;
    KVF_TRY(kvf__prefix_like(ctx, &slot->rotated, p));
    slot->infix = true;
    return KVF_OK;
}

static void lay_out(void *object, kvf__carver *carve)
{
    kvf__session *s = object;
    const int64_t rows = s->rows;
    s->slots = kvf__carve(carve, rows, 1, sizeof *s->slots);
    s->logits = kvf__carve(carve, rows * s->run, kvf__model_desc(s->base->model)->V,
                           sizeof *s->logits);
    s->lists = (kvf__pass_lists){
        .before = kvf__carve(carve, rows, s->run, sizeof *s->lists.before),
        .slots = kvf__carve(carve, rows, s->run, sizeof *s->lists.slots),
        .infix_at = kvf__carve(carve, rows, 1, sizeof *s->lists.infix_at),
        .label_at = kvf__carve(carve, rows, 1, sizeof *s->lists.label_at),
        .label_id = kvf__carve(carve, rows, 1, sizeof *s->lists.label_id),
        .example = kvf__carve(carve, rows, 1, sizeof *s->lists.example),
        .sections = kvf__carve(carve, rows, 1, sizeof *s->lists.sections),
        .start = kvf__carve(carve, rows + 1, 1, sizeof *s->lists.start),
        .first = kvf__carve(carve, rows, 1, sizeof *s->lists.first),
        .first_start = kvf__carve(carve, rows + 1, 1, sizeof *s->lists.first_start),
    };
    s->part = kvf__tokens_carve(carve, rows, s->part_tokens);
    s->left = kvf__carve(carve, rows, 1, sizeof *s->left);
}

static kvf_status fill(kvf_ctx *ctx, kvf__session *s, const kvf_prefix *prefix)
{
    kvf_status (*create_cache)(kvf_ctx *, const kvf__model *, int64_t, int64_t, kvf__cache **) =
        s->mixed ? kvf__cache_create_empty : kvf__cache_create;
    if (prefix) KVF_TRY(kvf__prefix_head(ctx, s->base, prefix, &s->head));
    for (int64_t r = 0; r < s->rows; r++) {
        s->lists.first[r] = kvf__model_desc(s->base->model)->ids.start;
        s->lists.first_start[r + 1] = r + 1;
    }
    if (s->mixed && !kvf__model_desc(s->base->model)->encoder)
        KVF_TRY(kvf__model_rows_alike(ctx, s->base->model, KVF__PROMPTS_TOGETHER, &s->together));
    KVF_TRY(create_cache(ctx, s->base->model, s->rows, s->capacity, &s->cache));
    KVF_TRY(make_passes(ctx, s, s->P, s->neurons, prefix && prefix->file.id.infix));
    for (int64_t slot = 0; slot < s->rows; slot++)
        KVF_TRY(fill_slot(ctx, &s->slots[slot], prefix, s->head));
    return KVF_OK;
}

static kvf_status check_prefix(kvf_ctx *ctx, const kvf_prefix *prefix)
{
    if (!prefix || prefix->task == KVF__TASK_LM) return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE, "a prefix of task %s cannot generate text: use `predict`",
                     kvf__task_name(prefix->task));
}

/* Returns the most tokens in a part: mixed rows are fed in any number, others at most all at once,
 * because an encoder needs them together. */
static int64_t most_part_tokens(const kvf_base *base, const kvf__session_limits *limits)
{
    const int64_t rows = limits->rows, parts = rows * KVF__PROMPT_PART;
    const bool encoder = kvf__model_desc(base->model)->encoder > 0;
    if (limits->mixed || (limits->prompt_tokens > parts && !encoder)) return parts;
    return limits->prompt_tokens > rows ? limits->prompt_tokens : rows;
}

kvf_status kvf__session_create(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                               const kvf__session_limits *limits, kvf__session **out)
{
    kvf__session made = {.base = base,
                         .rows = limits->rows,
                         .capacity = limits->capacity,
                         .part_tokens = most_part_tokens(base, limits),
                         .mixed = limits->mixed,
                         .run = limits->run > 1 ? limits->run : 1,
                         .P = prefix ? prefix->file.prefix.P : 0,
                         .neurons = kvf__prefix_neurons(prefix)};
    kvf__session *session = NULL;
    if (!kvf__model_desc(base->model)->block.causal)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: a %s does not predict the next token", base->path,
                         kvf_base_architecture(base));
    const char *why = limits->run ? kvf__decoder_refuses(base->model, &base->slots) : NULL;
    if (limits->run && kvf__model_desc(base->model)->mixer.kind)
        why = "has layers without attention, whose state has no earlier tokens";
    if (why)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: drafts are not supported on a base that %s",
                         base->path, why);
    KVF_TRY(check_prefix(ctx, prefix));
    KVF_TRY(kvf__carve_object(ctx, lay_out, &made, sizeof made, &session));
    kvf_status st = fill(ctx, session, prefix);
    KVF__GIVE(st, out, session, kvf__session_free(session));
    return st;
}

void kvf__session_free(kvf__session *session)
{
    if (!session) return;
    kvf__decoder_free(session->decoder);
    kvf__pass_free(session->pass);
    kvf__cache_free(session->cache);
    kvf__head_free(session->head);
    for (int64_t slot = 0; slot < session->rows; slot++)
        kvf__prefix_done(&session->slots[slot].rotated);
    kvf__free(session);
}

kvf_status kvf__session_fits(kvf_ctx *ctx, const kvf_prefix *prefix)
{
    KVF_TRY(check_prefix(ctx, prefix));
    if (prefix && prefix->file.values.params.n)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: changes the base itself, which other prefixes share",
                         prefix->file.id.method);
    return KVF_OK;
}

kvf_status kvf__session_open(kvf_ctx *ctx, kvf__session *session, int64_t slot,
                             const kvf_prefix *prefix, kvf__head *head, int64_t tokens)
{
    assert(session->mixed && slot >= 0 && slot < session->rows);
    assert(!head == !(prefix && prefix->file.head.params.params.n));
    KVF_TRY(kvf__session_fits(ctx, prefix));
    const int64_t P = prefix && prefix->file.prefix.P > session->P ? prefix->file.prefix.P
                                                                   : session->P;
    const bool infixes = session->infixes || (prefix && prefix->file.id.infix);
    const int64_t own = kvf__prefix_neurons(prefix),
                  neurons = own > session->neurons ? own : session->neurons;
    if (P != session->P || neurons != session->neurons || infixes != session->infixes)
        KVF_TRY(make_passes(ctx, session, P, neurons, infixes));
    KVF_TRY(fill_slot(ctx, &session->slots[slot], prefix, head));
    if (head) session->slots[slot].before.head = kvf__head_matrix(head);
    const kvf_status st = kvf__cache_reserve(ctx, session->cache, slot, tokens);
    if (st) fill_slot(ctx, &session->slots[slot], NULL, NULL);
    return st;
}

void kvf__session_close(kvf_ctx *ctx, kvf__session *session, int64_t slot)
{
    kvf__cache_reserve(ctx, session->cache, slot, 0); /* neither can fail, since nothing is
                                                       * allocated */
    fill_slot(ctx, &session->slots[slot], NULL, NULL);
}

void kvf__session_copy(kvf__session *session, int64_t from, int64_t to, int64_t n)
{
    if (kvf__model_desc(session->base->model)->encoder) n = kvf__cache_length(session->cache, from);
    kvf__cache_copy(session->cache, from, to, n);
}

size_t kvf__session_bytes(const kvf__session *session, int64_t n)
{
    return kvf__cache_bytes(session->cache, n);
}

void kvf__session_save(const kvf__session *session, int64_t slot, int64_t first, int64_t n,
                       void *out)
{
    kvf__cache_save(session->cache, slot, first, n, out);
}

void kvf__session_restore(kvf__session *session, int64_t slot, int64_t n, const void *saved)
{
    kvf__cache_restore(session->cache, slot, n, saved);
}

void kvf__session_drop(kvf__session *session, int64_t slot, int64_t n)
{
    kvf__cache_truncate(session->cache, slot, kvf__cache_length(session->cache, slot) - n);
}

void kvf__session_reset(kvf__session *session)
{
    for (int64_t slot = 0; slot < session->rows; slot++) {
        kvf__cache_truncate(session->cache, slot, 0);
        session->slots[slot].infix_at = -1;
    }
}
