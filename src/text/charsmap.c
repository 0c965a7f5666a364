/* The normalizer "Precompiled" of tokenizer.json: SentencePiece's table of replacements, in base64.
 * It consists of the byte length of a double-array trie, the trie (darts-clone: 32-bit units,
 * little-endian), and the NUL-terminated replacements. The trie's values are offsets into these.
 *
 * `tokenizers` replaces a user-perceived character of less than 6 bytes by the entry of its
 * shortest prefix in the trie, and otherwise each of its characters. SentencePiece itself
 * (normalizer.cc) uses the longest matching key at every place. */
#include "tok_files.h"
#include "tok_work.h"

#include <string.h>

enum { UNIT = 4, WHOLE_BYTES = 6 };
/* Upper bounds: keys and replacements of real tables are far shorter, and links of a damaged trie
 * may form cycles. */
enum { LONGEST_KEY = 64, LONGEST_VALUE = 255 };

static uint32_t read_u32(const char *at)
{
    uint32_t value = 0;

    for (int i = UNIT - 1; i >= 0; i--)
        value = value << 8 | (uint8_t)at[i];
    return value;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int digit_of(char c)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(DIGITS, c) : NULL;
    return at ? (int)(at - DIGITS) : -1;
}

bool kvf__base64(const char *text, size_t n, char *out, size_t *out_n)
{
    uint32_t bits = 0;
    int held = 0;

    while (n > 0 && text[n - 1] == '=')
        n--;
    *out_n = 0;
    for (size_t i = 0; i < n; i++) {
        const int digit = digit_of(text[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held < 8) continue;
        held -= 8;
        out[(*out_n)++] = (char)(bits >> held & 0xFF);
    }
    return true;
}

static kvf_status check_table(kvf_ctx *ctx, const char *where, kvf__tok_step *step)
{
    const size_t trie = step->text_n >= UNIT ? read_u32(step->text) : 0;

    if (trie < UNIT || trie % UNIT || trie > step->text_n - UNIT)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: precompiled_charsmap: the trie has %zu bytes, but the table has %zu",
                         where, trie, step->text_n);
    step->text[step->text_n] = 0; /* terminates the last replacement */
    return KVF_OK;
}

kvf_status kvf__set_charsmap(kvf_ctx *ctx, const char *where, const uint8_t *bytes, size_t n,
                             kvf__tok_step *step)
{
    KVF_TRY(kvf__alloc(ctx, n + 1, &step->text));
    memcpy(step->text, bytes, n);
    step->text_n = n;
    return check_table(ctx, where, step);
}

kvf_status kvf__read_charsmap(kvf_ctx *ctx, const char *where, const char *base64, size_t n,
                              kvf__tok_step *step)
{
    KVF_TRY(kvf__alloc_array(ctx, n / 4 * 3 + 4, 1, &step->text));
    if (!kvf__base64(base64, n, step->text, &step->text_n))
        return kvf__fail(ctx, KVF_EFORMAT, "%s: precompiled_charsmap is not base64", where);
    return check_table(ctx, where, step);
}

/* ---- the trie -------------------------------------------------------------------------------- */

static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

/* Finds the replacement of the shortest, or longest, prefix of a text; NULL: none. *used: bytes of
 * the prefix. */
static const char *find(const kvf__tok_step *step, const char *key, size_t n, bool longest,
                        size_t *used)
{
    const char *trie = step->text + UNIT, *found = NULL;
    const size_t bytes = read_u32(step->text), units = bytes / UNIT;
    size_t at = offset_of(read_u32(trie));

    if (n > LONGEST_KEY) n = LONGEST_KEY;
    for (size_t i = 0; i < n && key[i] && (longest || !found); i++) {
        at ^= (uint8_t)key[i];
        if (at >= units) return found;
        const uint32_t unit = read_u32(trie + at * UNIT);
        if ((unit & (1u << 31 | 0xFF)) != (uint8_t)key[i]) return found;
        at ^= offset_of(unit);
        if (at >= units) return found;
        if (!(unit >> 8 & 1)) continue;
        const size_t value = read_u32(trie + at * UNIT) & 0x7FFFFFFF;
        found = value < step->text_n - UNIT - bytes ? trie + bytes + value : "";
        *used = i + 1;
    }
    return found;
}

/* ---- a text ---------------------------------------------------------------------------------- */

/* Appends a replacement. Each character gets the range of the one at its position, surplus
 * characters that of the last. */
static kvf_status put_instead(kvf__work *w, const kvf__traced *text, size_t at, size_t n,
                              const char *to, kvf__traced *out)
{
    const size_t end = at + n, to_n = strnlen(to, LONGEST_VALUE + 1);
    size_t last = at;

    if (to_n > LONGEST_VALUE)
        return kvf__fail(w->ctx, KVF_EFORMAT,
                         "tokenizer: precompiled_charsmap replaces a character by more than %d "
                         "bytes",
                         LONGEST_VALUE);
    if (kvf__utf8_valid(to, to_n) != to_n) to = "";
    for (size_t i = 0, length; to[i]; i += length) {
        length = kvf__utf8_len(to[i]);
        KVF_TRY(kvf__trace_put(w, out, to + i, length, kvf__trace_at(w, text, last)));
        const size_t next = last + kvf__utf8_len(text->buf.data[last]);
        if (next < end) last = next;
    }
    return KVF_OK;
}

/* Returns the end of the user-perceived character that begins at `at`. */
static size_t cluster_end(const kvf__traced *text, size_t at)
{
    const char *s = text->buf.data;
    const size_t n = text->buf.n;
    int32_t state = 0;
    uint32_t cp, next;

    at += kvf__utf8_next(s + at, n - at, &cp);
    while (at < n) {
        const size_t length = kvf__utf8_next(s + at, n - at, &next);
        if (kvf__is_break(cp, next, &state)) break;
        at += length;
        cp = next;
    }
    return at;
}

kvf_status kvf__apply_charsmap(kvf__work *w, const kvf__tok_step *step, const kvf__traced *text,
                               kvf__traced *out)
{
    const char *s = text->buf.data;

    for (size_t at = 0, end, used; at < text->buf.n; at = end) {
        end = cluster_end(text, at);
        const char *to = end - at < WHOLE_BYTES ? find(step, s + at, end - at, false, &used) : NULL;
        if (to) {
            KVF_TRY(put_instead(w, text, at, end - at, to, out));
            continue;
        }
        for (size_t one = at; one < end; one += kvf__utf8_len(s[one])) {
            const size_t n = kvf__utf8_len(s[one]);
            to = find(step, s + one, n, false, &used);
            KVF_TRY(to ? put_instead(w, text, one, n, to, out)
                       : kvf__trace_copy(w, out, text, one, n));
        }
    }
    return KVF_OK;
}

kvf_status kvf__apply_longest_map(kvf__work *w, const kvf__tok_step *step, const kvf__traced *text,
                                  kvf__traced *out)
{
    const char *s = text->buf.data;

    for (size_t at = 0, n; at < text->buf.n; at += n) {
        const char *to = find(step, s + at, text->buf.n - at, true, &n);
        /* keys are whole characters unless the table is damaged */
        const bool whole = to && (at + n == text->buf.n || (s[at + n] & 0xC0) != 0x80);
        if (!whole) n = kvf__utf8_len(s[at]);
        KVF_TRY(whole ? put_instead(w, text, at, n, to, out)
                      : kvf__trace_copy(w, out, text, at, n));
    }
    return KVF_OK;
}
