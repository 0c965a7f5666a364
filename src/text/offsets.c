/* Offsets: every byte of a traced text carries the range of its source in the original text.
 *
 * The rules are those of `tokenizers`: a replacement has the range of the replaced character, an
 * insertion that of the preceding one, and removals leave no trace. Training on plain text needs no
 * offsets, and then none are kept. */
#include "tok_work.h"

#include <string.h>

size_t kvf__trace_room(size_t n)
{
    enum { GROWTH = 4, MORE = 12, SHORT = 1 << 20, SLACK = 64 << 10 };
    const size_t more = (n < SHORT ? n : SHORT) * MORE + SLACK;
    return n > (SIZE_MAX - more) / GROWTH ? SIZE_MAX : n * GROWTH + more;
}

static kvf_status check_room(const kvf__work *w, const kvf__traced *to, size_t n)
{
    if (!to->most || (to->buf.n <= to->most && n <= to->most - to->buf.n)) return KVF_OK;
    return kvf__fail(
        w->ctx, KVF_EDATA,
        "tokenizer: the steps expand a text to more than %zu bytes, many times its length",
        to->most);
}

kvf_status kvf__trace_put(kvf__work *w, kvf__traced *to, const char *bytes, size_t n,
                          kvf__byte_range from)
{
    size_t at = to->buf.n;

    KVF_TRY(check_room(w, to, n));
    KVF_TRY(kvf__buf_add(w->ctx, &to->buf, bytes, n));
    if (!w->offsets) return KVF_OK;
    KVF_TRY(kvf__reserve(w->ctx, &to->from, &to->cap, at + n, sizeof *to->from));
    for (size_t i = 0; i < n; i++)
        to->from[at + i] = from;
    return KVF_OK;
}

kvf_status kvf__trace_copy(kvf__work *w, kvf__traced *to, const kvf__traced *text, size_t at,
                           size_t n)
{
    size_t end = to->buf.n;

    KVF_TRY(check_room(w, to, n));
    KVF_TRY(kvf__buf_add(w->ctx, &to->buf, text->buf.data + at, n));
    if (!w->offsets || n == 0) return KVF_OK;
    KVF_TRY(kvf__reserve(w->ctx, &to->from, &to->cap, end + n, sizeof *to->from));
    memcpy(to->from + end, text->from + at, n * sizeof *to->from);
    return KVF_OK;
}

kvf__byte_range kvf__trace_at(const kvf__work *w, const kvf__traced *text, size_t at)
{
    return w->offsets && at < text->buf.n ? text->from[at] : (kvf__byte_range){0};
}

void kvf__traced_done(kvf__traced *text)
{
    kvf__buf_done(&text->buf);
    kvf__free(text->from);
    *text = (kvf__traced){0};
}

kvf_status kvf__trace_text(kvf__work *w, const char *text, size_t n)
{
    w->text.buf.n = 0;
    w->raw = text;
    if (!w->offsets) return kvf__utf8_repair(w->ctx, text, n, &w->text.buf);
    if (n > INT32_MAX)
        return kvf__fail(w->ctx, KVF_EDATA, "a text of %zu bytes is too long to tokenize", n);
    KVF_TRY(kvf__buf_add(w->ctx, &w->text.buf, "", 0));
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t length = kvf__utf8_next(text + at, n - at, &cp);
        kvf__byte_range from = {(uint32_t)at, (uint32_t)(at + length)};
        if (cp == UINT32_MAX)
            KVF_TRY(kvf__trace_put(w, &w->text, KVF__REPLACEMENT_UTF8, 3, from));
        else
            KVF_TRY(kvf__trace_put(w, &w->text, text + at, length, from));
        at += length;
    }
    return KVF_OK;
}

/* ---- trimming -------------------------------------------------------------------------------- */

static bool is_blank(uint32_t cp)
{
    return cp == 0x120 || kvf__is_space(cp); /* U+0120 is the byte-level form of a space */
}

/* Removes the spaces of a token's text from its range, character by character, except one that the
 * pre-tokenizer may have inserted. */
static kvf__byte_range trim(const kvf__work *w, const char *token, size_t n, kvf__byte_range span)
{
    size_t text_end = kvf__utf8_skip_back(token, n, is_blank);
    int64_t before = kvf__utf8_count(token, kvf__utf8_skip(token, n, 0, is_blank));
    int64_t after = kvf__utf8_count(token + text_end, n - text_end);
    bool first = w->offsets->n == 0 || span.from == 0;
    uint32_t cp;

    if (first && w->t->trim_prefix_space && before > 0) before--;
    for (; before > 0 && span.from < span.to; before--)
        span.from += (uint32_t)kvf__utf8_next(w->raw + span.from, span.to - span.from, &cp);
    for (; after > 0 && span.to > span.from; after--)
        span.to = (uint32_t)kvf__utf8_before(w->raw, span.to);
    if (span.to < span.from) span.to = span.from;
    return span;
}

/* ---- ids ------------------------------------------------------------------------------------- */

static kvf_status put_origin(kvf__work *w, const kvf__traced *text, size_t at, size_t n,
                             const char *token, size_t token_n)
{
    kvf__byte_range span = {0};

    if (n > 0) {
        span.from = text->from[at].from;
        span.to = text->from[at + n - 1].to;
    } else if (at > 0) {
        span.from = span.to = text->from[at - 1].to;
    }
    if (span.to < span.from) span.to = span.from;
    if (w->t->trim_offsets) span = trim(w, token, token_n, span);
    KVF_TRY(kvf__ids_add(w->ctx, w->offsets, (int32_t)span.from));
    return kvf__ids_add(w->ctx, w->offsets, (int32_t)span.to);
}

kvf_status kvf__emit_added(kvf__work *w, const kvf__traced *text, size_t at, size_t n, int32_t id)
{
    KVF_TRY(kvf__ids_add(w->ctx, w->out, id));
    return w->offsets ? put_origin(w, text, at, n, text->buf.data + at, n) : KVF_OK;
}

kvf_status kvf__emit(kvf__work *w, int32_t id, size_t at, size_t n)
{
    const kvf__pretoken *piece = &w->pieces.v[w->piece];
    const struct kvf__token *token = &w->t->lex.v[id];

    KVF_TRY(kvf__ids_add(w->ctx, w->out, id));
    if (!w->offsets) return KVF_OK;
    if (at > piece->n) at = piece->n;
    if (n > piece->n - at) n = piece->n - at;
    return put_origin(w, &w->pieces.text, piece->at + at, n, w->t->lex.text.data + token->at,
                      token->n);
}
