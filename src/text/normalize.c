/* Normalizers: each step reads one text and writes the next, with offsets.
 *
 * A written character has the range of its source; an inserted one has that of its neighbour. */
#include "tok_work.h"

#include <string.h>

/* Maps one character s[0 .. n): writes the result to out and returns its bytes, or KEPT. */
typedef size_t map_fn(uint32_t cp, const char *s, size_t n, char out[8]);
#define KEPT SIZE_MAX

/* Full mapping without context. Only U+0130 maps to two characters. */
static size_t lowercase(uint32_t cp, const char *s, size_t n, char out[8])
{
    uint32_t lower = kvf__lower(cp);

    (void)s, (void)n;
    if (lower == cp) return KEPT;
    size_t length = kvf__utf8_put(out, lower);
    return cp == 0x130 ? length + kvf__utf8_put(out + length, 0x307) : length;
}

static size_t strip_accents(uint32_t cp, const char *s, size_t n, char out[8])
{
    (void)s, (void)n, (void)out;
    return kvf__is_accent(cp) ? 0 : KEPT;
}

static size_t strip_marks(uint32_t cp, const char *s, size_t n, char out[8])
{
    (void)s, (void)n, (void)out;
    return kvf__is_nonspacing(cp) ? 0 : KEPT;
}

/* BERT's clean_text. */
static size_t clean(uint32_t cp, const char *s, size_t n, char out[8])
{
    (void)s, (void)n;
    out[0] = ' ';
    return kvf__is_dropped(cp) ? 0 : cp != ' ' && kvf__is_space(cp) ? 1 : KEPT;
}

static size_t space_chinese(uint32_t cp, const char *s, size_t n, char out[8])
{
    if (!kvf__is_chinese(cp)) return KEPT;
    out[0] = out[n + 1] = ' ';
    memcpy(out + 1, s, n);
    return n + 2;
}

static kvf_status map_characters(kvf__work *w, map_fn *map, const kvf__traced *text,
                                 kvf__traced *out)
{
    const char *s = text->buf.data;
    size_t n = text->buf.n, kept = 0;
    char made[8];

    for (size_t at = 0, length; at < n; at += length) {
        uint32_t cp;
        length = kvf__utf8_next(s + at, n - at, &cp);
        size_t made_n = map(cp, s + at, length, made);
        if (made_n == KEPT) continue;
        KVF_TRY(kvf__trace_copy(w, out, text, kept, at - kept));
        KVF_TRY(kvf__trace_put(w, out, made, made_n, kvf__trace_at(w, text, at)));
        kept = at + length;
    }
    return kvf__trace_copy(w, out, text, kept, n - kept);
}

kvf_status kvf__replace_all(kvf__work *w, const kvf__tok_step *step, const kvf__traced *text,
                            size_t at, size_t n, kvf__traced *out)
{
    kvf__search search = {.s = text->buf.data + at, .n = n};
    size_t done = 0;
    bool found;

    for (;;) {
        KVF_TRY(kvf__pattern_next(w, step->pattern, &search, &found));
        if (!found) return kvf__trace_copy(w, out, text, at + done, n - done);
        KVF_TRY(kvf__trace_copy(w, out, text, at + done, search.start - done));
        KVF_TRY(kvf__trace_put(w, out, step->text, step->text_n,
                               search.end > 0 ? kvf__trace_at(w, text, at + search.end - 1)
                                              : (kvf__byte_range){0}));
        done = search.end;
    }
}

/* Strips white space at the ends named by the step. */
static kvf_status trim(kvf__work *w, const kvf__tok_step *step, const kvf__traced *text,
                       kvf__traced *out)
{
    const char *s = text->buf.data;
    size_t from = 0, end = text->buf.n, length;
    uint32_t cp;

    while (step->start && from < end) {
        length = kvf__utf8_next(s + from, end - from, &cp);
        if (!kvf__is_space(cp)) break;
        from += length;
    }
    while (step->stop && end > from) {
        const size_t last = kvf__utf8_before(s, end);
        kvf__utf8_next(s + last, end - last, &cp);
        if (!kvf__is_space(cp)) break;
        end = last;
    }
    w->trimmed |= from > 0;
    return kvf__trace_copy(w, out, text, from, end - from);
}

/* Collapses spaces as SentencePiece does: none at either end, one between words. At the end, later
 * replacements of spaces count too. */
static kvf_status collapse_spaces(kvf__work *w, const kvf__traced *text, kvf__traced *out)
{
    const char *s = text->buf.data;
    size_t end = text->buf.n;

    for (;;) {
        if (end >= 3 && !memcmp(s + end - 3, "\xE2\x96\x81", 3))
            end -= 3;
        else if (end > 0 && s[end - 1] == ' ')
            end--;
        else
            break;
    }
    for (size_t at = 0; at < end; at++)
        if (s[at] != ' ' || (out->buf.n > 0 && s[at - 1] != ' '))
            KVF_TRY(kvf__trace_copy(w, out, text, at, 1));
    return KVF_OK;
}

static kvf_status apply_step(kvf__work *w, const kvf__tok_step *step, bool bare,
                             const kvf__traced *text, kvf__traced *out)
{
    size_t n = text->buf.n;

    switch (step->kind) {
    case KVF__STEP_LOWERCASE:
        return map_characters(w, lowercase, text, out);
    case KVF__STEP_STRIP_ACCENTS:
        return map_characters(w, strip_accents, text, out);
    case KVF__STEP_STRIP_MARKS:
        return map_characters(w, strip_marks, text, out);
    case KVF__STEP_CLEAN:
        return map_characters(w, clean, text, out);
    case KVF__STEP_SPACE_CHINESE:
        return map_characters(w, space_chinese, text, out);
    case KVF__STEP_PREPEND:
        if (n > 0 && !bare)
            KVF_TRY(kvf__trace_put(w, out, step->text, step->text_n, kvf__trace_at(w, text, 0)));
        return kvf__trace_copy(w, out, text, 0, n);
    case KVF__STEP_CHARSMAP:
        return kvf__apply_charsmap(w, step, text, out);
    case KVF__STEP_TRIM:
        return trim(w, step, text, out);
    case KVF__STEP_COLLAPSE:
        return collapse_spaces(w, text, out);
    case KVF__STEP_LONGEST_MAP:
        return kvf__apply_longest_map(w, step, text, out);
    case KVF__STEP_REPLACE:
        return kvf__replace_all(w, step, text, 0, n, out);
    default:
        return kvf__apply_form(w, step->kind, text, out);
    }
}

kvf_status kvf__normalize(kvf__work *w, const kvf__traced *text, size_t at, size_t n, bool bare)
{
    w->normal.buf.n = 0;
    w->trimmed = false;
    w->normal.most = w->scratch.most = kvf__trace_room(n);
    KVF_TRY(kvf__trace_copy(w, &w->normal, text, at, n));
    for (size_t i = 0; i < w->t->normalizer.n; i++) {
        kvf__traced from = w->normal;
        w->normal = w->scratch;
        w->scratch = from;
        w->normal.buf.n = 0;
        KVF_TRY(apply_step(w, &w->t->normalizer.v[i], bare, &w->scratch, &w->normal));
    }
    return KVF_OK;
}
