/* The four normalisation forms (UAX 15), with offsets.
 *
 * utf8proc decomposes and knows the composing pairs. Canonical ordering and composition are done
 * here for two reasons. utf8proc's ordering is quadratic in a run of combining marks, which hostile
 * text can make arbitrarily long. And offsets follow `tokenizers`: each character records how many
 * it replaces. Text that a form cannot change is skipped: ASCII always, for NFC everything below
 * U+0300. */
#include "tok_work.h"

#include <stdlib.h>
#include <utf8proc.h>

static bool is_inert(const char *s, size_t n, kvf__step_kind form)
{
    uint8_t limit = form == KVF__STEP_NFC ? 0xCC : 0x80; /* 0xCC is the first byte of U+0300 */
    for (size_t i = 0; i < n; i++)
        if ((uint8_t)s[i] >= limit) return false;
    return true;
}

/* Sets work->points to the full decompositions, before canonical ordering. */
static kvf_status decompose(kvf__work *w, const char *s, size_t n, bool compat, size_t *out_n)
{
    utf8proc_option_t how = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    size_t points_n = 0;

    if (compat) how |= UTF8PROC_COMPAT;
    for (size_t at = 0; at < n;) {
        enum { MOST = 32 }; /* the longest decomposition has 18 */
        utf8proc_int32_t parts[MOST];
        uint32_t cp;
        int last_class = UTF8PROC_BOUNDCLASS_START;

        at += kvf__utf8_next(s + at, n - at, &cp);
        KVF_TRY(
            kvf__reserve(w->ctx, &w->points, &w->points_cap, points_n + MOST, sizeof *w->points));
        utf8proc_ssize_t got = kvf__may_decompose(cp)
                                   ? utf8proc_decompose_char((utf8proc_int32_t)cp, parts, MOST, how,
                                                             &last_class)
                                   : 0;
        if (got <= 0 || got > MOST) {
            parts[0] = (int32_t)cp;
            got = 1;
        }
        for (utf8proc_ssize_t i = 0; i < got; i++)
            w->points[points_n++] = (kvf__point){.cp = parts[i], .change = i > 0};
    }
    *out_n = points_n;
    return KVF_OK;
}

static int class_of(const kvf__point *point)
{
    return kvf__combining_class((uint32_t)point->cp);
}

/* Compares by class, then by position in the run, which makes the sort stable. */
static int compare_marks(const void *left, const void *right)
{
    const kvf__point *a = left, *b = right;
    int difference = class_of(a) - class_of(b);
    return difference ? difference : (a->at > b->at) - (a->at < b->at);
}

/* Applies canonical ordering: runs of points with a nonzero class are sorted by class. */
static void order_marks(kvf__work *w, size_t n)
{
    for (size_t start = 0, end; start<n; start = end> start ? end : start + 1) {
        bool sorted = true;

        for (end = start; end < n && class_of(&w->points[end]) != 0; end++) {
            w->points[end].at = end;
            if (end > start) sorted &= class_of(&w->points[end - 1]) <= class_of(&w->points[end]);
        }
        if (!sorted) qsort(w->points + start, end - start, sizeof *w->points, compare_marks);
    }
}

/* Returns whether the character may be the second of a composing pair: a mark, or a vowel or final
 * of Hangul. */
static bool may_follow(int32_t cp)
{
    return (cp >= 0x1161 && cp <= 0x1175) || (cp >= 0x11A8 && cp <= 0x11C2) ||
           kvf__is_mark((uint32_t)cp);
}

/* Returns the composition of two characters, or -1. */
static int32_t compose_pair(int32_t first, int32_t second)
{
    int32_t pair[3] = {first, second}; /* utf8proc appends a 0 */
    utf8proc_ssize_t n = utf8proc_normalize_utf32(pair, 2, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    return n == 1 && kvf__may_decompose((uint32_t)pair[0]) ? pair[0] : -1;
}

/* Composes per UAX 15: a character joins the last starter unless one of its class or a higher one
 * is in between. Returns the remaining number. */
static size_t compose(kvf__work *w, size_t n)
{
    size_t out = 0, starter = SIZE_MAX;
    int last = -1; /* class of the previous character, unless that is the starter */

    for (size_t i = 0; i < n; i++) {
        const kvf__point point = w->points[i];
        int32_t composed = -1;
        int class = class_of(&point);

        if (starter != SIZE_MAX && last < class && may_follow(point.cp))
            composed = compose_pair(w->points[starter].cp, point.cp);
        if (composed >= 0) {
            w->points[starter].cp = composed;
            w->points[starter].change += point.change - 1;
            continue;
        }
        if (class == 0) starter = out;
        last = class == 0 ? -1 : class;
        w->points[out++] = point;
    }
    return out;
}

/* Writes the points. A change of 0 consumes one character of text, -k consumes k more, 1 consumes
 * none and copies the range of the previous character. */
static kvf_status put_points(kvf__work *w, const kvf__traced *text, size_t n, kvf__traced *out)
{
    size_t at = 0;
    char bytes[4];

    for (size_t i = 0; i < n; i++) {
        const kvf__point *point = &w->points[i];
        int32_t left = w->offsets && point->change <= 0 ? 1 - point->change : 0;
        kvf__byte_range from = left > 0 ? kvf__trace_at(w, text, at)
                               : at > 0 ? kvf__trace_at(w, text, at - 1)
                                        : (kvf__byte_range){0};

        KVF_TRY(kvf__trace_put(w, out, bytes, kvf__utf8_put(bytes, (uint32_t)point->cp), from));
        for (; left > 0 && at < text->buf.n; left--)
            at += kvf__utf8_len(text->buf.data[at]);
    }
    return KVF_OK;
}

kvf_status kvf__apply_form(kvf__work *w, kvf__step_kind form, const kvf__traced *text,
                           kvf__traced *out)
{
    bool compat = form == KVF__STEP_NFKC || form == KVF__STEP_NFKD;
    size_t points_n = 0;

    if (is_inert(text->buf.data, text->buf.n, form))
        return kvf__trace_copy(w, out, text, 0, text->buf.n);
    KVF_TRY(decompose(w, text->buf.data, text->buf.n, compat, &points_n));
    order_marks(w, points_n);
    if (form == KVF__STEP_NFC || form == KVF__STEP_NFKC) points_n = compose(w, points_n);
    return put_points(w, text, points_n, out);
}
