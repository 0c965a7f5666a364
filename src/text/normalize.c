/* Normalizers: each step reads one text and writes the next.
 *
 * utf8proc decomposes and composes; the canonical ordering between the two is ours, because
 * utf8proc's is quadratic in a run of combining marks, which hostile text can make as long as it
 * likes. Text that a form cannot change is passed over: ASCII always, NFC also everything below
 * U+0300 (UAX 15). */
#include "tok_int.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- Unicode normalisation forms ------------------------------------------------------------- */

static kvf_status reserve_points(kvf__work *w, size_t n)
{
    size_t cap = w->points_cap ? w->points_cap : 256;

    while (cap < n)
        cap *= 2;
    if (cap == w->points_cap) return KVF_OK;
    KVF_TRY(
        kvf__grow(w->ctx, &w->points, w->points_cap * sizeof *w->points, cap * sizeof *w->points));
    w->points_cap = cap;
    return KVF_OK;
}

static bool is_inert(const char *s, size_t n, kvf__step_kind form)
{
    uint8_t limit = form == KVF__STEP_NFC ? 0xCC : 0x80; /* 0xCC leads U+0300 */
    for (size_t i = 0; i < n; i++)
        if ((uint8_t)s[i] >= limit) return false;
    return true;
}

/* work->points := the full decompositions, in no canonical order yet. */
static kvf_status decompose(kvf__work *w, const char *s, size_t n, bool compat, size_t *out_n)
{
    utf8proc_option_t how = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    size_t points_n = 0;

    if (compat) how |= UTF8PROC_COMPAT;
    for (size_t at = 0; at < n;) {
        enum { MOST = 32 }; /* the longest decomposition has 18 */
        uint32_t cp;
        int last_class = UTF8PROC_BOUNDCLASS_START;
        utf8proc_ssize_t got;

        at += kvf__utf8_next(s + at, n - at, &cp);
        KVF_TRY(reserve_points(w, points_n + MOST));
        got = kvf__may_decompose(cp)
                  ? utf8proc_decompose_char((utf8proc_int32_t)cp, w->points + points_n, MOST, how,
                                            &last_class)
                  : 0;
        if (got <= 0 || got > MOST) {
            w->points[points_n] = (int32_t)cp;
            got = 1;
        }
        points_n += (size_t)got;
    }
    *out_n = points_n;
    return KVF_OK;
}

/* A mark with its place in the run, so that an unstable sort is stable. */
typedef struct mark {
    int32_t cp;
    int class, place;
} mark;

static int compare_marks(const void *left, const void *right)
{
    const mark *a = left, *b = right;
    return a->class != b->class ? a->class - b->class : a->place - b->place;
}

/* Sorts points[0 .. n-1], all of a class other than 0. */
static kvf_status order_run(kvf_ctx *ctx, int32_t *points, size_t n)
{
    mark *marks = NULL;
    bool sorted = true;

    for (size_t i = 1; i < n && sorted; i++)
        sorted = kvf__combining_class((uint32_t)points[i - 1]) <=
                 kvf__combining_class((uint32_t)points[i]);
    if (sorted) return KVF_OK;
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *marks, &marks));
    for (size_t i = 0; i < n; i++)
        marks[i] = (mark){
            .cp = points[i], .class = kvf__combining_class((uint32_t)points[i]), .place = (int)i};
    qsort(marks, n, sizeof *marks, compare_marks);
    for (size_t i = 0; i < n; i++)
        points[i] = marks[i].cp;
    kvf__free(marks);
    return KVF_OK;
}

static kvf_status order_marks(kvf__work *w, size_t n)
{
    for (size_t start = 0; start < n;) {
        size_t end = start;
        while (end < n && kvf__combining_class((uint32_t)w->points[end]) != 0)
            end++;
        if (end - start > 1) KVF_TRY(order_run(w->ctx, w->points + start, end - start));
        start = end > start ? end : start + 1;
    }
    return KVF_OK;
}

static kvf_status put_point(kvf_ctx *ctx, kvf__buf *out, uint32_t cp)
{
    char bytes[4];
    return kvf__buf_add(ctx, out, bytes, kvf__utf8_put(bytes, cp));
}

static kvf_status apply_form(kvf__work *w, kvf__step_kind form, const char *s, size_t n,
                             kvf__buf *out)
{
    bool compat = form == KVF__STEP_NFKC || form == KVF__STEP_NFKD;
    size_t points_n = 0;

    if (is_inert(s, n, form)) return kvf__buf_add(w->ctx, out, s, n);
    KVF_TRY(decompose(w, s, n, compat, &points_n));
    KVF_TRY(order_marks(w, points_n));
    if (form == KVF__STEP_NFC || form == KVF__STEP_NFKC) {
        utf8proc_ssize_t got = utf8proc_normalize_utf32(w->points, (utf8proc_ssize_t)points_n,
                                                        UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (got >= 0) points_n = (size_t)got;
    }
    for (size_t i = 0; i < points_n; i++)
        KVF_TRY(put_point(w->ctx, out, (uint32_t)w->points[i]));
    return KVF_OK;
}

/* ---- the others ------------------------------------------------------------------------------ */

/* Full mappings without context: U+0130 is the one character with two. */
static kvf_status lowercase(kvf_ctx *ctx, const char *s, size_t n, kvf__buf *out)
{
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        at += kvf__utf8_next(s + at, n - at, &cp);
        KVF_TRY(put_point(ctx, out, kvf__lower(cp)));
        if (cp == 0x130) KVF_TRY(put_point(ctx, out, 0x307));
    }
    return KVF_OK;
}

static kvf_status strip_accents(kvf_ctx *ctx, const char *s, size_t n, kvf__buf *out)
{
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t length = kvf__utf8_next(s + at, n - at, &cp);
        if (!kvf__is_accent(cp)) KVF_TRY(kvf__buf_add(ctx, out, s + at, length));
        at += length;
    }
    return KVF_OK;
}

kvf_status kvf__replace_all(kvf__work *w, const kvf__step *step, const char *s, size_t n,
                            kvf__buf *out)
{
    kvf__search search = {.s = s, .n = n};
    size_t done = 0;
    bool found;

    for (;;) {
        KVF_TRY(kvf__pattern_next(w, step->pattern, &search, &found));
        if (!found) return kvf__buf_add(w->ctx, out, s + done, n - done);
        KVF_TRY(kvf__buf_add(w->ctx, out, s + done, search.start - done));
        KVF_TRY(kvf__buf_add(w->ctx, out, step->text, step->text_n));
        done = search.end;
    }
}

static kvf_status apply_step(kvf__work *w, const kvf__step *step, bool bare, const char *s,
                             size_t n, kvf__buf *out)
{
    switch (step->kind) {
    case KVF__STEP_LOWERCASE:
        return lowercase(w->ctx, s, n, out);
    case KVF__STEP_STRIP_ACCENTS:
        return strip_accents(w->ctx, s, n, out);
    case KVF__STEP_PREPEND:
        if (n > 0 && !bare) KVF_TRY(kvf__buf_add(w->ctx, out, step->text, step->text_n));
        return kvf__buf_add(w->ctx, out, s, n);
    case KVF__STEP_REPLACE:
        return kvf__replace_all(w, step, s, n, out);
    default:
        return apply_form(w, step->kind, s, n, out);
    }
}

kvf_status kvf__normalize(kvf__work *w, const char *text, size_t n, bool bare)
{
    w->normal.n = 0;
    KVF_TRY(kvf__buf_add(w->ctx, &w->normal, text, n));
    for (size_t i = 0; i < w->t->normalizer.n; i++) {
        kvf__buf from = w->normal;
        w->normal = w->scratch;
        w->scratch = from;
        w->normal.n = 0;
        KVF_TRY(apply_step(w, &w->t->normalizer.v[i], bare, from.data, from.n, &w->normal));
    }
    return KVF_OK;
}
