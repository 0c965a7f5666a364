/* Normalizers: each step reads one text and writes the next, origins with it.
 *
 * Every character written takes the origin of the one it comes from; what is put between, that of
 * the character it stands beside. */
#include "tok_int.h"

#include <string.h>

/* Full mappings without context: U+0130 is the one character with two. */
static kvf_status lowercase(kvf__work *w, const kvf__traced *text, kvf__traced *out)
{
    const char *s = text->buf.data;
    size_t n = text->buf.n;

    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t length = kvf__utf8_next(s + at, n - at, &cp);
        kvf__span from = kvf__trace_at(w, text, at);
        char bytes[4];

        KVF_TRY(kvf__trace_put(w, out, bytes, kvf__utf8_put(bytes, kvf__lower(cp)), from));
        if (cp == 0x130) KVF_TRY(kvf__trace_put(w, out, "\xCC\x87", 2, from)); /* U+0307 */
        at += length;
    }
    return KVF_OK;
}

/* Leaves out the characters that `is` says. */
static kvf_status strip(kvf__work *w, bool (*is)(uint32_t), const kvf__traced *text,
                        kvf__traced *out)
{
    const char *s = text->buf.data;
    size_t n = text->buf.n, kept = 0;

    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t length = kvf__utf8_next(s + at, n - at, &cp);
        if (is(cp)) {
            KVF_TRY(kvf__trace_copy(w, out, text, kept, at - kept));
            kept = at + length;
        }
        at += length;
    }
    return kvf__trace_copy(w, out, text, kept, n - kept);
}

/* BERT's clean_text. */
static kvf_status clean(kvf__work *w, const kvf__traced *text, kvf__traced *out)
{
    const char *s = text->buf.data;
    size_t n = text->buf.n, kept = 0;

    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t length = kvf__utf8_next(s + at, n - at, &cp);
        bool space = cp != ' ' && kvf__is_space(cp), dropped = kvf__is_dropped(cp);
        if (dropped || space) {
            KVF_TRY(kvf__trace_copy(w, out, text, kept, at - kept));
            if (!dropped) KVF_TRY(kvf__trace_put(w, out, " ", 1, kvf__trace_at(w, text, at)));
            kept = at + length;
        }
        at += length;
    }
    return kvf__trace_copy(w, out, text, kept, n - kept);
}

static kvf_status space_chinese(kvf__work *w, const kvf__traced *text, kvf__traced *out)
{
    const char *s = text->buf.data;
    size_t n = text->buf.n, kept = 0;

    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t length = kvf__utf8_next(s + at, n - at, &cp);
        if (kvf__is_chinese(cp)) {
            kvf__span from = kvf__trace_at(w, text, at);
            KVF_TRY(kvf__trace_copy(w, out, text, kept, at - kept));
            KVF_TRY(kvf__trace_put(w, out, " ", 1, from));
            KVF_TRY(kvf__trace_put(w, out, s + at, length, from));
            KVF_TRY(kvf__trace_put(w, out, " ", 1, from));
            kept = at + length;
        }
        at += length;
    }
    return kvf__trace_copy(w, out, text, kept, n - kept);
}

kvf_status kvf__replace_all(kvf__work *w, const kvf__step *step, const kvf__traced *text, size_t at,
                            size_t n, kvf__traced *out)
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
                                              : (kvf__span){0}));
        done = search.end;
    }
}

static kvf_status apply_step(kvf__work *w, const kvf__step *step, bool bare,
                             const kvf__traced *text, kvf__traced *out)
{
    size_t n = text->buf.n;

    switch (step->kind) {
    case KVF__STEP_LOWERCASE:
        return lowercase(w, text, out);
    case KVF__STEP_STRIP_ACCENTS:
        return strip(w, kvf__is_accent, text, out);
    case KVF__STEP_STRIP_MARKS:
        return strip(w, kvf__is_nonspacing, text, out);
    case KVF__STEP_CLEAN:
        return clean(w, text, out);
    case KVF__STEP_SPACE_CHINESE:
        return space_chinese(w, text, out);
    case KVF__STEP_PREPEND:
        if (n > 0 && !bare)
            KVF_TRY(kvf__trace_put(w, out, step->text, step->text_n, kvf__trace_at(w, text, 0)));
        return kvf__trace_copy(w, out, text, 0, n);
    case KVF__STEP_REPLACE:
        return kvf__replace_all(w, step, text, 0, n, out);
    default:
        return kvf__apply_form(w, step->kind, text, out);
    }
}

kvf_status kvf__normalize(kvf__work *w, const kvf__traced *text, size_t at, size_t n, bool bare)
{
    kvf__traced_clear(&w->normal);
    KVF_TRY(kvf__trace_copy(w, &w->normal, text, at, n));
    for (size_t i = 0; i < w->t->normalizer.n; i++) {
        kvf__traced from = w->normal;
        w->normal = w->scratch;
        w->scratch = from;
        kvf__traced_clear(&w->normal);
        KVF_TRY(apply_step(w, &w->t->normalizer.v[i], bare, &w->scratch, &w->normal));
    }
    return KVF_OK;
}
