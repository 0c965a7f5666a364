/* Feeds a session: prompts go through passes, and single tokens through the decoder if the base has
 * one. A prompt longer than KVF__PROMPT_PART tokens is read in parts of this size, so that a caller
 * that feeds parts between steps of other rows gets the same sums. Only the last part has logits. A
 * prefix inside a row comes before the prompt's last token: the part that ends there does not
 * attend to it. */
#include "session_priv.h"

#include <assert.h>
#include <string.h>

kvf__tokens kvf__tokens_carve(kvf__carver *carve, int64_t rows, int64_t ids)
{
    return (kvf__tokens){.slots = kvf__carve(carve, rows, 1, sizeof(int32_t)),
                         .start = kvf__carve(carve, rows + 1, 1, sizeof(int64_t)),
                         .ids = kvf__carve(carve, ids, 1, sizeof(int32_t))};
}

void kvf__tokens_add(kvf__tokens *tokens, int64_t slot, const int32_t *ids, int64_t n)
{
    const int64_t at = tokens->start[tokens->n];
    memcpy(tokens->ids + at, ids, (size_t)n * sizeof *ids);
    tokens->slots[tokens->n++] = (int32_t)slot;
    tokens->start[tokens->n] = at + n;
}

static int64_t row_length(const kvf__tokens *in, int64_t r)
{
    return in->start[r + 1] - in->start[r];
}

/* ---- one pass, one step ---------------------------------------------------------------------- */

/* Lists the places of prefixes inside rows; NULL: these rows have none (all have one, or none has).
 */
static const int32_t *list_infixes(kvf__session *s, const kvf__tokens *in)
{
    if (!s->slots[in->slots[0]].infix) return NULL;
    for (int64_t r = 0; r < in->n; r++)
        s->lists.infix_at[r] = s->slots[in->slots[r]].infix_at;
    return s->lists.infix_at;
}

/* Lists each row as a section with its own prefix. */
static void list_sections(kvf__session *s, const kvf__tokens *in, kvf__input *input)
{
    for (int64_t r = 0; r < in->n; r++) {
        const kvf__session_slot *slot = &s->slots[in->slots[r]];
        s->lists.sections[r] = (kvf__section){.rows = 1, .condition = slot->before.condition};
    }
    input->sections = s->lists.sections;
    input->n_sections = in->n;
}

/* True if these tokens are for the encoder. */
static bool begins(const kvf__session *s, const kvf__tokens *in)
{
    return kvf__model_desc(s->base->model)->encoder && !kvf__cache_length(s->cache, in->slots[0]);
}

/* Computes logits [n, V]; NULL: none. Rows of a mixed session have their own prefixes and the
 * base's head; other rows share prefix and head. */
static kvf_status run_pass(kvf_ctx *ctx, kvf__session *s, const kvf__tokens *in, float *logits)
{
    const kvf__session_slot *slot = &s->slots[in->slots[0]];
    for (int64_t r = 0; r < in->n; r++)
        s->lists.label_at[r] = (int32_t)(in->start[r + 1] - 1);
    kvf__batch batch = {
        .n_rows = in->n,
        .n_tokens = in->start[in->n],
        .n_labels = logits ? in->n : 0,
        .start = in->start,
        .ids = in->ids,
        .label_at = s->lists.label_at,
        .label_id = s->lists.label_id,
        .example = s->lists.example,
        .infix_at = list_infixes(s, in),
    };
    const kvf__batch source = batch;
    if (begins(s, in)) {
        batch.source = &source;
        batch.n_tokens = in->n;
        batch.start = s->lists.first_start;
        batch.ids = s->lists.first;
        for (int64_t r = 0; r < in->n; r++)
            s->lists.label_at[r] = (int32_t)r;
    }
    kvf__input input = {.batch = &batch, .cache = s->cache, .slot = in->slots};
    if (s->mixed && in->n > 1) {
        list_sections(s, in, &input);
    } else {
        input.condition = slot->before.condition;
    }
    KVF_TRY(kvf__pass_fwd(ctx, s->pass, &input));
    return logits ? kvf__pass_outputs(ctx, s->pass, slot->head, logits) : KVF_OK;
}

/* Returns what the slot's next token attends to: after an infix the prefix rotated to its place,
 * with positions shifted by P. */
static kvf__step_row before_step(const kvf__session_slot *slot)
{
    kvf__step_row row = slot->before;
    if (!slot->infix) return row;
    row.condition.position_start = row.condition.prefix->P;
    row.condition.prefix = &slot->rotated;
    return row;
}

/* Decodes tokens of rows, with logits after each. */
static kvf_status run_step(kvf_ctx *ctx, kvf__session *s, const kvf__tokens *in, float *logits)
{
    for (int64_t r = 0; r < in->n; r++)
        for (int64_t i = in->start[r]; i < in->start[r + 1]; i++) {
            s->lists.slots[i] = in->slots[r];
            s->lists.before[i] = before_step(&s->slots[in->slots[r]]);
        }
    const kvf__step step = {.n = in->start[in->n],
                            .ids = in->ids,
                            .slot = s->lists.slots,
                            .row = s->lists.before,
                            .runs = s->run > 1,
                            .as_one = s->mixed || s->run > 1};
    return kvf__decoder_step(ctx, s->decoder, &step, logits);
}

/* True for one token per row, if the decoder supports them. */
static bool is_step(const kvf__session *s, const kvf__tokens *in)
{
    if (!s->decoder || in->n > s->step_rows || in->start[in->n] != in->n) return false;
    for (int64_t r = 0; r < in->n; r++)
        if (in->ids[r] < 0) return false; /* a virtual token */
    return true;
}

/* ---- rows with different prefixes ------------------------------------------------------------ */

/* True if row r may share a pass with rows that have other prefixes. */
static bool can_share(const kvf__session *s, const kvf__tokens *in, int64_t r)
{
    const kvf__session_slot *slot = &s->slots[in->slots[r]];
    const bool step = s->decoder && row_length(in, r) == 1;
    return s->together && !step && !slot->infix && !slot->head;
}

/* Returns the end of the rows from `from` on that share a pass, at least one. */
static int64_t pass_end(const kvf__session *s, const kvf__tokens *in, int64_t from)
{
    int64_t end = from;
    while (end < in->n && can_share(s, in, end) &&
           in->start[end + 1] - in->start[from] <= KVF__PROMPTS_TOGETHER)
        end++;
    return end > from ? end : from + 1;
}

/* Returns a view of rows from .. end - 1, valid until the next call. */
static kvf__tokens slice(kvf__session *s, const kvf__tokens *in, int64_t from, int64_t end)
{
    for (int64_t r = from; r <= end; r++)
        s->lists.start[r - from] = in->start[r] - in->start[from];
    return (kvf__tokens){in->slots + from, s->lists.start, in->ids + in->start[from], end - from};
}

/* Computes logits [n, V], or none if NULL. */
static kvf_status run(kvf_ctx *ctx, kvf__session *s, const kvf__tokens *in, float *logits)
{
    const int64_t V = kvf__model_desc(s->base->model)->V;
    if (logits && is_step(s, in)) return run_step(ctx, s, in, logits);
    if (!s->mixed) return run_pass(ctx, s, in, logits);
    for (int64_t r = 0, end; r < in->n; r = end) {
        float *to = logits ? logits + r * V : NULL;
        end = logits ? pass_end(s, in, r) : r + 1;
        const kvf__tokens rows = slice(s, in, r, end);
        KVF_TRY(logits && is_step(s, &rows) ? run_step(ctx, s, &rows, to)
                                            : run_pass(ctx, s, &rows, to));
    }
    return KVF_OK;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static bool has_open_infix(const kvf__session *s, int32_t slot)
{
    return s->slots[slot].infix && s->slots[slot].infix_at < 0;
}

/* Returns the number of tokens of row r in the next part before the last; 0: none. */
static int64_t next_part(const kvf__session *s, const kvf__tokens *in, int64_t r)
{
    const int64_t left = in->start[r + 1] - s->left[r];
    if (left > KVF__PROMPT_PART) return KVF__PROMPT_PART;
    return has_open_infix(s, in->slots[r]) ? left - 1 : 0;
}

static void add_part(kvf__session *s, const kvf__tokens *in, int64_t r, int64_t tokens)
{
    kvf__tokens_add(&s->part, in->slots[r], in->ids + s->left[r], tokens);
    s->left[r] += tokens;
}

/* Places a prefix inside a row after the tokens read so far. */
static kvf_status place_infix(kvf_ctx *ctx, kvf__session *s, int32_t at)
{
    kvf__session_slot *slot = &s->slots[at];
    if (!has_open_infix(s, at)) return KVF_OK;
    slot->infix_at = (int32_t)kvf__cache_length(s->cache, at);
    return kvf__model_rotate_prefix(ctx, s->base->model, &slot->rotated,
                                    slot->before.condition.prefix, slot->infix_at, false);
}

/* Reads all parts but the last of every row. */
static kvf_status read_parts(kvf_ctx *ctx, kvf__session *s, const kvf__tokens *in)
{
    for (;;) {
        s->part.n = 0;
        for (int64_t r = 0; r < in->n; r++)
            if (next_part(s, in, r) > 0) add_part(s, in, r, next_part(s, in, r));
        if (!s->part.n) break;
        KVF_TRY(run(ctx, s, &s->part, NULL));
    }
    for (int64_t r = 0; r < in->n; r++)
        KVF_TRY(place_infix(ctx, s, in->slots[r]));
    return KVF_OK;
}

kvf_status kvf__session_feed(kvf_ctx *ctx, kvf__session *session, const kvf__tokens *tokens,
                             const float **logits)
{
    if (!logits) {
        assert(tokens->n == 1 && row_length(tokens, 0) == KVF__PROMPT_PART);
        return run_pass(ctx, session, tokens, NULL);
    }
    *logits = session->logits;
    if (kvf__model_desc(session->base->model)->encoder)
        return run(ctx, session, tokens, session->logits);
    memcpy(session->left, tokens->start, (size_t)tokens->n * sizeof *tokens->start);
    KVF_TRY(read_parts(ctx, session, tokens));
    session->part.n = 0;
    for (int64_t r = 0; r < tokens->n; r++)
        add_part(session, tokens, r, tokens->start[r + 1] - session->left[r]);
    return run(ctx, session, &session->part, session->logits);
}

kvf_status kvf__session_feed_runs(kvf_ctx *ctx, kvf__session *session, const kvf__tokens *tokens,
                                  const float **logits)
{
    assert(tokens->start[tokens->n] <= session->step_rows);
    *logits = session->logits;
    return run_step(ctx, session, tokens, session->logits);
}
