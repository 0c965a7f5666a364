/* Feeding a session: prompts go through passes, steps of one token a row through the decoder where
 * the base has one.
 *
 * A prompt longer than KVF__PROMPT_PART tokens is read in parts of so many, so that whoever feeds
 * part by part (kvf__session_read), between steps of other rows, computes the same sums. Parts but
 * the last say no logits. A prefix that stands inside a row comes before the prompt's last token:
 * all before it is a part that does not see it. */
#include "session_priv.h"

#include <assert.h>
#include <string.h>

/* ---- one pass, one step ---------------------------------------------------------------------- */

/* After a pass over n rows: logits [n, V]. */
static kvf_status take_logits(kvf_ctx *ctx, kvf__session *s, const kvf__lm_head *head, int64_t n,
                              float *logits)
{
    const float *hidden = NULL;
    if (!head) return kvf__pass_lm_logits(ctx, s->pass, logits);
    KVF_TRY(kvf__pass_hidden(ctx, s->pass, &hidden));
    return kvf__lm_head_logits(ctx, head, hidden, n, logits);
}

/* Where the rows' infixes stand; NULL: none has one, and a session's rows all have one or none. */
static const int32_t *list_infixes(kvf__session *s, const kvf__fed *in)
{
    if (!s->infix[in->slots[0]].on) return NULL;
    for (int64_t r = 0; r < in->n; r++)
        s->infix_at[r] = s->infix[in->slots[r]].at;
    return s->infix_at;
}

/* Rows behind the same prefix, or around it; logits [n, V], NULL: they go on. */
static kvf_status run_pass(kvf_ctx *ctx, kvf__session *s, const kvf__fed *in, float *logits)
{
    const kvf__row_file file = s->files[in->slots[0]];
    for (int64_t r = 0; r < in->n; r++)
        s->label_at[r] = (int32_t)(in->start[r + 1] - 1);
    kvf__batch batch = {
        .n_rows = in->n,
        .n_tokens = in->start[in->n],
        .n_labels = logits ? in->n : 0,
        .start = in->start,
        .ids = in->ids,
        .label_at = s->label_at,
        .label_id = s->label_id,
        .example = s->example,
        .infix_at = list_infixes(s, in),
    };
    kvf__input input = {
        .batch = &batch,
        .prefix = s->before[in->slots[0]].prefix,
        .vectors = file.vectors,
        .position_start = s->before[in->slots[0]].position_start,
        .cache = s->cache,
        .slot = in->slots,
    };
    KVF_TRY(kvf__pass_fwd(ctx, s->pass, &input));
    return logits ? take_logits(ctx, s, file.head, in->n, logits) : KVF_OK;
}

/* What a slot's next token sees: behind its infix, that rotated to its place, and positions P
 * further on. */
static kvf__step_row before_step(const kvf__session *s, int32_t slot)
{
    kvf__step_row row = s->before[slot];
    if (!s->infix[slot].on) return row;
    row.position_start = row.prefix->P;
    row.prefix = &s->infix[slot].rotated;
    return row;
}

/* One token a row. */
static kvf_status run_step(kvf_ctx *ctx, kvf__session *s, const kvf__fed *in, float *logits)
{
    for (int64_t r = 0; r < in->n; r++)
        s->listed[r] = before_step(s, in->slots[r]);
    const kvf__step step = {.n = in->n,
                            .ids = in->ids + in->start[0],
                            .slot = in->slots,
                            .row = s->listed,
                            .as_one = s->mixed};
    return kvf__decoder_step(ctx, s->decoder, &step, logits);
}

/* Is it one token a row, of those that the decoder knows? */
static bool is_step(const kvf__session *s, const kvf__fed *in)
{
    if (!s->decoder || in->n > s->step_rows || in->start[in->n] - in->start[0] != in->n)
        return false;
    for (int64_t r = 0; r < in->n; r++)
        if (in->ids[in->start[0] + r] < 0) return false; /* a virtual token */
    return true;
}

/* Row r alone, as a row that is alone is fed. */
static kvf_status run_row(kvf_ctx *ctx, kvf__session *s, const kvf__fed *in, int64_t r,
                          float *logits)
{
    const int64_t start[] = {0, in->start[r + 1] - in->start[r]};
    const kvf__fed one = {in->slots + r, start, in->ids + in->start[r], 1};
    return logits && is_step(s, &one) ? run_step(ctx, s, &one, logits)
                                      : run_pass(ctx, s, &one, logits);
}

/* May row r be computed in a pass with others behind other prefixes? */
static bool is_social(const kvf__session *s, const kvf__fed *in, int64_t r)
{
    const int32_t slot = in->slots[r];
    const bool step = s->decoder && in->start[r + 1] - in->start[r] == 1;
    return s->together && !step && !s->infix[slot].on && !s->files[slot].head;
}

/* The end of the rows from r on that share a pass; r + 1: it is alone. */
static int64_t end_of_company(const kvf__session *s, const kvf__fed *in, int64_t r)
{
    int64_t end = r;
    while (end < in->n && is_social(s, in, end) &&
           in->start[end + 1] - in->start[r] <= KVF__PROMPTS_TOGETHER)
        end++;
    return end > r ? end : r + 1;
}

/* Rows from .. end - 1 in one pass, each a section of its own. */
static kvf_status run_company(kvf_ctx *ctx, kvf__session *s, const kvf__fed *in, int64_t from,
                              int64_t end, float *logits)
{
    const int64_t n = end - from;
    for (int64_t r = 0; r <= n; r++)
        s->section_start[r] = in->start[from + r] - in->start[from];
    for (int64_t r = 0; r < n; r++) {
        const int32_t slot = in->slots[from + r];
        s->label_at[r] = (int32_t)(s->section_start[r + 1] - 1);
        s->sections[r] = (kvf__section){.rows = 1,
                                        .prefix = s->before[slot].prefix,
                                        .vectors = s->files[slot].vectors,
                                        .position_start = s->before[slot].position_start};
    }
    const kvf__batch batch = {.n_rows = n,
                              .n_tokens = s->section_start[n],
                              .n_labels = n,
                              .start = s->section_start,
                              .ids = in->ids + in->start[from],
                              .label_at = s->label_at,
                              .label_id = s->label_id,
                              .example = s->example};
    const kvf__input input = {.batch = &batch,
                              .cache = s->cache,
                              .slot = in->slots + from,
                              .sections = s->sections,
                              .n_sections = n};
    KVF_TRY(kvf__pass_fwd(ctx, s->pass, &input));
    return kvf__pass_lm_logits(ctx, s->pass, logits);
}

/* Rows that each have what stands before them; logits [n, V], or NULL. */
static kvf_status run_mixed(kvf_ctx *ctx, kvf__session *s, const kvf__fed *in, float *logits)
{
    const int64_t V = kvf__model_desc(s->base->model)->V;
    for (int64_t r = 0, end; r < in->n; r = end) {
        float *to = logits ? logits + r * V : NULL;
        end = logits ? end_of_company(s, in, r) : r + 1;
        if (end > r + 1)
            KVF_TRY(run_company(ctx, s, in, r, end, to));
        else
            KVF_TRY(run_row(ctx, s, in, r, to));
    }
    return KVF_OK;
}

/* logits [n, V], or NULL. */
static kvf_status run(kvf_ctx *ctx, kvf__session *s, const kvf__fed *in, float *logits)
{
    if (logits && is_step(s, in)) return run_step(ctx, s, in, logits);
    return s->mixed ? run_mixed(ctx, s, in, logits) : run_pass(ctx, s, in, logits);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* The infix is still to be placed. */
static bool waits(const kvf__session *s, int32_t slot)
{
    return s->infix[slot].on && s->infix[slot].at < 0;
}

/* Tokens of row r to be read before its last part. */
static int64_t ahead(const kvf__session *s, const kvf__fed *in, int64_t r)
{
    const int64_t left = in->start[r + 1] - s->left[r];
    if (left > KVF__PROMPT_PART) return KVF__PROMPT_PART;
    return waits(s, in->slots[r]) ? left - 1 : 0;
}

/* The next tokens of row r become one of the part's rows. */
static void add_part(kvf__session *s, const kvf__fed *in, int64_t r, int64_t tokens, kvf__fed *part)
{
    const int64_t at = s->part_start[part->n];
    memcpy(s->part_ids + at, in->ids + s->left[r], (size_t)tokens * sizeof *in->ids);
    s->left[r] += tokens;
    s->part_slots[part->n++] = in->slots[r];
    s->part_start[part->n] = at + tokens;
}

static kvf__fed no_part(kvf__session *s)
{
    s->part_start[0] = 0;
    return (kvf__fed){s->part_slots, s->part_start, s->part_ids, 0};
}

static kvf_status place_infix(kvf_ctx *ctx, kvf__session *s, int32_t slot)
{
    kvf__infix_slot *infix = &s->infix[slot];
    if (!waits(s, slot)) return KVF_OK;
    infix->at = (int32_t)kvf__cache_length(s->cache, slot);
    return kvf__model_rotate_prefix(ctx, s->base->model, &infix->rotated, s->before[slot].prefix,
                                    infix->at, false);
}

/* All parts but the last of every row. */
static kvf_status read_ahead(kvf_ctx *ctx, kvf__session *s, const kvf__fed *in)
{
    for (;;) {
        kvf__fed part = no_part(s);
        for (int64_t r = 0; r < in->n; r++)
            if (ahead(s, in, r) > 0) add_part(s, in, r, ahead(s, in, r), &part);
        if (!part.n) break;
        KVF_TRY(run(ctx, s, &part, NULL));
    }
    for (int64_t r = 0; r < in->n; r++)
        KVF_TRY(place_infix(ctx, s, in->slots[r]));
    return KVF_OK;
}

static bool needs_parts(const kvf__session *s, const kvf__fed *in)
{
    for (int64_t r = 0; r < in->n; r++)
        if (waits(s, in->slots[r]) || ahead(s, in, r) > 0) return true;
    return false;
}

kvf_status kvf__session_feed(kvf_ctx *ctx, kvf__session *session, const int32_t *slots,
                             const int64_t *start, const int32_t *ids, int64_t n,
                             const float **logits)
{
    const kvf__fed in = {slots, start, ids, n};
    *logits = session->logits;
    memcpy(session->left, start, (size_t)n * sizeof *start);
    if (!needs_parts(session, &in)) return run(ctx, session, &in, session->logits);
    KVF_TRY(read_ahead(ctx, session, &in));
    kvf__fed last = no_part(session);
    for (int64_t r = 0; r < n; r++)
        add_part(session, &in, r, start[r + 1] - session->left[r], &last);
    return run(ctx, session, &last, session->logits);
}

kvf_status kvf__session_read(kvf_ctx *ctx, kvf__session *session, int32_t slot, const int32_t *ids,
                             int64_t n)
{
    const int64_t start[] = {0, n};
    const kvf__fed in = {&slot, start, ids, 1};
    assert(n == KVF__PROMPT_PART);
    return run_pass(ctx, session, &in, NULL);
}
