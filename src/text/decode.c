/* Ids to text: the tokens' written forms, run through the decoder's steps, then joined (INTEROP
 * 6.7).
 *
 * An id without a token gives U+FFFD, where `tokenizers` would leave it out silently. */
#include "tok_int.h"

#include <string.h>

/* Appends one string to the list being built. */
static kvf_status put(kvf__work *w, const char *s, size_t n)
{
    size_t at = w->spare.text.buf.n;
    KVF_TRY(kvf__buf_add(w->ctx, &w->spare.text.buf, s, n));
    return kvf__pieces_add(w->ctx, &w->spare, at, n);
}

/* Characters back to bytes; a token with a character that is no byte's stays as it is. Bad UTF-8 in
 * what all tokens give together becomes U+FFFD. */
static kvf_status byte_level(kvf__work *w)
{
    kvf__buf *bytes = &w->scratch.buf;

    bytes->n = 0;
    for (size_t i = 0; i < w->pieces.n; i++) {
        const char *s = w->pieces.text.buf.data + w->pieces.v[i].at;
        size_t n = w->pieces.v[i].n, start = bytes->n;
        for (size_t at = 0; at < n;) {
            uint32_t cp;
            int byte;
            at += kvf__utf8_next(s + at, n - at, &cp);
            byte = kvf__char_byte(cp);
            if (byte >= 0) {
                KVF_TRY(kvf__buf_addc(w->ctx, bytes, (char)byte));
                continue;
            }
            bytes->n = start;
            KVF_TRY(kvf__buf_add(w->ctx, bytes, s, n));
            break;
        }
    }
    w->normal.buf.n = 0;
    KVF_TRY(kvf__utf8_repair(w->ctx, bytes->data, bytes->n, &w->normal.buf));
    return put(w, w->normal.buf.data, w->normal.buf.n);
}

/* Replacement characters become spaces, those of the first token vanish. */
static kvf_status metaspace(kvf__work *w, const kvf__step *step, const char *s, size_t n,
                            bool first)
{
    kvf__buf *out = &w->scratch.buf;

    out->n = 0;
    for (size_t at = 0; at < n;) {
        size_t length = kvf__utf8_len(s[at]);
        bool hit = length == step->text_n && memcmp(s + at, step->text, length) == 0;
        if (!hit)
            KVF_TRY(kvf__buf_add(w->ctx, out, s + at, length));
        else if (!first || step->scheme == KVF__PREPEND_NEVER)
            KVF_TRY(kvf__buf_addc(w->ctx, out, ' '));
        at += length;
    }
    return put(w, out->data, out->n);
}

static kvf_status replace(kvf__work *w, const kvf__step *step, size_t at, size_t n)
{
    kvf__traced_clear(&w->scratch);
    KVF_TRY(kvf__replace_all(w, step, &w->pieces.text, at, n, &w->scratch));
    return put(w, w->scratch.buf.data, w->scratch.buf.n);
}

/* Every `from` in text becomes `to`. */
static kvf_status swap_all(kvf__work *w, kvf__buf *text, const char *from, const char *to)
{
    kvf__buf *out = &w->normal.buf, was;
    const char *s = text->data, *hit = strstr(s, from);

    if (!hit) return KVF_OK;
    out->n = 0;
    for (; hit; hit = strstr(s, from)) {
        KVF_TRY(kvf__buf_add(w->ctx, out, s, (size_t)(hit - s)));
        KVF_TRY(kvf__buf_add(w->ctx, out, to, strlen(to)));
        s = hit + strlen(from);
    }
    KVF_TRY(kvf__buf_add(w->ctx, out, s, text->n - (size_t)(s - text->data)));
    was = *out;
    *out = *text;
    *text = was;
    return KVF_OK;
}

/* A token that continues a word loses its prefix, any other but the first gets a space; cleanup
 * then takes out spaces that English does not have, in the token and not across tokens. */
static kvf_status wordpiece(kvf__work *w, const kvf__step *step, const char *s, size_t n,
                            bool first)
{
    static const char *const cleanups[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    kvf__buf *out = &w->scratch.buf;
    bool continues = n >= step->text_n && memcmp(s, step->text, step->text_n) == 0;

    out->n = 0;
    if (!first && continues) {
        s += step->text_n;
        n -= step->text_n;
    } else if (!first) {
        KVF_TRY(kvf__buf_addc(w->ctx, out, ' '));
    }
    KVF_TRY(kvf__buf_add(w->ctx, out, s, n));
    for (size_t i = 0; step->cleanup && i < sizeof cleanups / sizeof *cleanups; i++)
        KVF_TRY(swap_all(w, out, cleanups[i][0], cleanups[i][1]));
    return put(w, out->data, out->n);
}

/* Drops the step's character, at most start times in front and stop times behind. */
static kvf_status strip(kvf__work *w, const kvf__step *step, const char *s, size_t n)
{
    size_t unit = step->text_n;

    for (int64_t i = 0; i < step->start && n >= unit && memcmp(s, step->text, unit) == 0; i++) {
        s += unit;
        n -= unit;
    }
    for (int64_t i = 0; i < step->stop && n >= unit && memcmp(s + n - unit, step->text, unit) == 0;
         i++)
        n -= unit;
    return put(w, s, n);
}

/* The byte a token "<0xXX>" stands for, or -1. */
static int token_byte(const char *s, size_t n)
{
    static const char digits[] = "0123456789ABCDEFabcdef";
    const char *high, *low;

    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>' || !s[3] || !s[4]) return -1;
    high = strchr(digits, s[3]);
    low = strchr(digits, s[4]);
    if (!high || !low) return -1;
    return (int)((high - digits < 16 ? high - digits : high - digits - 6) * 16 +
                 (low - digits < 16 ? low - digits : low - digits - 6));
}

/* A run of byte tokens as text if it is UTF-8, else one U+FFFD per byte. */
static kvf_status flush_bytes(kvf__work *w)
{
    kvf__buf *run = &w->scratch.buf;

    if (run->n > 0 && kvf__utf8_valid(run->data, run->n) == run->n)
        KVF_TRY(put(w, run->data, run->n));
    else
        for (size_t i = 0; i < run->n; i++)
            KVF_TRY(put(w, "\xEF\xBF\xBD", 3));
    run->n = 0;
    return KVF_OK;
}

static kvf_status byte_fallback(kvf__work *w)
{
    w->scratch.buf.n = 0;
    for (size_t i = 0; i < w->pieces.n; i++) {
        const char *s = w->pieces.text.buf.data + w->pieces.v[i].at;
        int byte = token_byte(s, w->pieces.v[i].n);
        if (byte >= 0) {
            KVF_TRY(kvf__buf_addc(w->ctx, &w->scratch.buf, (char)byte));
            continue;
        }
        KVF_TRY(flush_bytes(w));
        KVF_TRY(put(w, s, w->pieces.v[i].n));
    }
    return flush_bytes(w);
}

static kvf_status fuse(kvf__work *w)
{
    for (size_t i = 0; i < w->pieces.n; i++)
        KVF_TRY(kvf__buf_add(w->ctx, &w->spare.text.buf,
                             w->pieces.text.buf.data + w->pieces.v[i].at, w->pieces.v[i].n));
    return kvf__pieces_add(w->ctx, &w->spare, 0, w->spare.text.buf.n);
}

static kvf_status apply_each(kvf__work *w, const kvf__step *step)
{
    for (size_t i = 0; i < w->pieces.n; i++) {
        const char *s = w->pieces.text.buf.data + w->pieces.v[i].at;
        size_t n = w->pieces.v[i].n;
        if (step->kind == KVF__STEP_METASPACE)
            KVF_TRY(metaspace(w, step, s, n, i == 0));
        else if (step->kind == KVF__STEP_STRIP)
            KVF_TRY(strip(w, step, s, n));
        else if (step->kind == KVF__STEP_WORDPIECE)
            KVF_TRY(wordpiece(w, step, s, n, i == 0));
        else
            KVF_TRY(replace(w, step, w->pieces.v[i].at, n));
    }
    return KVF_OK;
}

static kvf_status apply_step(kvf__work *w, const kvf__step *step)
{
    kvf__pieces was;

    kvf__pieces_clear(&w->spare);
    if (step->kind == KVF__STEP_BYTE_LEVEL)
        KVF_TRY(byte_level(w));
    else if (step->kind == KVF__STEP_BYTE_FALLBACK)
        KVF_TRY(byte_fallback(w));
    else if (step->kind == KVF__STEP_FUSE)
        KVF_TRY(fuse(w));
    else
        KVF_TRY(apply_each(w, step));
    was = w->pieces;
    w->pieces = w->spare;
    w->spare = was;
    return KVF_OK;
}

/* work->pieces := the tokens' written forms. */
static kvf_status collect(kvf__work *w, const int32_t *ids, size_t n, bool skip_special)
{
    for (size_t i = 0; i < n; i++) {
        const char *text = kvf__token_text(w->t, ids[i]);
        size_t at = w->pieces.text.buf.n;
        if (skip_special && kvf__token_is_special(w->t, ids[i])) continue;
        if (text)
            KVF_TRY(kvf__buf_add(w->ctx, &w->pieces.text.buf, text, w->t->lex.v[ids[i]].n));
        else
            KVF_TRY(kvf__buf_add(w->ctx, &w->pieces.text.buf, "\xEF\xBF\xBD", 3));
        KVF_TRY(kvf__pieces_add(w->ctx, &w->pieces, at, w->pieces.text.buf.n - at));
    }
    return KVF_OK;
}

/* Without a decoder the tokens are joined by spaces, as in `tokenizers`. */
static kvf_status decode(kvf__work *w, const int32_t *ids, size_t n, bool skip_special,
                         kvf__buf *out)
{
    KVF_TRY(collect(w, ids, n, skip_special));
    for (size_t i = 0; i < w->t->decoder.n; i++)
        KVF_TRY(apply_step(w, &w->t->decoder.v[i]));
    for (size_t i = 0; i < w->pieces.n; i++) {
        if (i > 0 && !w->t->has_decoder) KVF_TRY(kvf__buf_addc(w->ctx, out, ' '));
        KVF_TRY(kvf__buf_add(w->ctx, out, w->pieces.text.buf.data + w->pieces.v[i].at,
                             w->pieces.v[i].n));
    }
    return KVF_OK;
}

kvf_status kvf__decode(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const int32_t *ids, size_t n,
                       bool skip_special, kvf__buf *out)
{
    kvf__work w = {.ctx = ctx, .t = tokenizer};
    size_t before = out->n;
    kvf_status st = kvf__buf_add(ctx, out, "", 0);

    if (!st) st = decode(&w, ids, n, skip_special, out);
    if (st && out->data) {
        out->n = before;
        out->data[before] = '\0';
    }
    kvf__work_done(&w);
    return st;
}
