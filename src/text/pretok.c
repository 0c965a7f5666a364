/* Pre-tokenizers: each step cuts every piece it gets into smaller ones, and some rewrite the text.
 *
 * A split is three layers, as in `tokenizers`: matches of a pattern or of single characters, the
 * text between them, and a behaviour that says which of the two stand alone, vanish or join a
 * neighbour. The common case, "isolated", goes straight into the list. */
#include "tok_work.h"

#include <string.h>

#define KVF__EVENT_MATCH ((size_t)1 << (sizeof(size_t) * 8 - 1))

/* ---- behaviours ------------------------------------------------------------------------------ */

/* Receives the cuts of one piece in order. */
typedef struct splitter {
    kvf__work *w;
    const kvf__tok_step *step;
    size_t base; /* where the piece begins in its list's text */
    size_t n;    /* events so far */
    kvf__pretokens *out;
} splitter;

static kvf_status add_event(splitter *sp, size_t start, size_t end, bool match)
{
    kvf__work *w = sp->w;

    match ^= sp->step->invert;
    if (sp->step->behavior == KVF__ISOLATED)
        return kvf__pretokens_add(w->ctx, sp->out, sp->base + start, end - start);
    KVF_TRY(kvf__reserve(w->ctx, &w->events, &w->events_cap, sp->n + 1, sizeof *w->events));
    w->events[sp->n++] = (kvf__pretoken){.at = start,
                                         .n = (end - start) | (match ? KVF__EVENT_MATCH : 0)};
    return KVF_OK;
}

/* Joins event i to the one before it (in the direction of the walk)? was: the one before is a
 * match. */
static bool joins(kvf__behavior behavior, bool match, bool was, bool any)
{
    if (behavior == KVF__CONTIGUOUS) return any && match == was;
    return any && match && !was;
}

/* Events become pieces; `backward` for "merged with next", which is "merged with previous" seen
 * from the end. */
static kvf_status flush_events(splitter *sp)
{
    kvf__pretoken *events = sp->w->events;
    kvf__behavior behavior = sp->step->behavior;
    bool backward = behavior == KVF__MERGED_NEXT, was = false;
    size_t kept = 0;

    if (behavior == KVF__ISOLATED) return KVF_OK;
    for (size_t k = 0; k < sp->n; k++) {
        kvf__pretoken event = events[backward ? sp->n - 1 - k : k];
        bool match = (event.n & KVF__EVENT_MATCH) != 0;
        kvf__pretoken *last = backward ? &events[sp->n - kept] : kept ? &events[kept - 1] : events;

        event.n &= ~KVF__EVENT_MATCH;
        if (behavior == KVF__REMOVED && match) continue;
        if (behavior != KVF__REMOVED && joins(behavior, match, was, kept > 0)) {
            if (backward) last->at = event.at;
            last->n += event.n;
        } else {
            kept++;
            events[backward ? sp->n - kept : kept - 1] = event;
        }
        was = match;
    }
    for (size_t k = 0; k < kept; k++) {
        kvf__pretoken piece = events[backward ? sp->n - kept + k : k];
        KVF_TRY(kvf__pretokens_add(sp->w->ctx, sp->out, sp->base + piece.at, piece.n));
    }
    return KVF_OK;
}

/* ---- what is matched ------------------------------------------------------------------------- */

static kvf_status split_pattern(splitter *sp, const kvf__pattern *pattern, const char *s, size_t n)
{
    kvf__search search = {.s = s, .n = n};
    size_t done = 0;
    bool found;

    for (;;) {
        KVF_TRY(kvf__pattern_next(sp->w, pattern, &search, &found));
        if (!found) break;
        if (done != search.start) KVF_TRY(add_event(sp, done, search.start, false));
        KVF_TRY(add_event(sp, search.start, search.end, true));
        done = search.end;
    }
    return done < n ? add_event(sp, done, n, false) : KVF_OK;
}

static kvf_status split_chars(splitter *sp, bool (*is)(uint32_t), const char *s, size_t n)
{
    size_t done = 0;

    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t length = kvf__utf8_next(s + at, n - at, &cp);
        if (is(cp)) {
            if (done < at) KVF_TRY(add_event(sp, done, at, false));
            KVF_TRY(add_event(sp, at, at + length, true));
            done = at + length;
        }
        at += length;
    }
    return done < n ? add_event(sp, done, n, false) : KVF_OK;
}

static int word_class(uint32_t cp)
{
    return kvf__is_word(cp) ? 1 : kvf__is_space(cp) ? 0 : 2;
}

/* \w+|[^\w\s]+ : runs of one class, white space dropped. */
static kvf_status split_words(splitter *sp, const char *s, size_t n)
{
    size_t start = 0;
    int run = 0;

    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t length = kvf__utf8_next(s + at, n - at, &cp);
        int class = word_class(cp);
        if (class != run) {
            if (run) KVF_TRY(kvf__pretokens_add(sp->w->ctx, sp->out, sp->base + start, at - start));
            start = at;
            run = class;
        }
        at += length;
    }
    return run ? kvf__pretokens_add(sp->w->ctx, sp->out, sp->base + start, n - start) : KVF_OK;
}

static kvf_status split_piece(splitter *sp, const char *s, size_t n)
{
    sp->n = 0;
    switch (sp->step->kind) {
    case KVF__STEP_DIGITS:
        KVF_TRY(split_chars(sp, kvf__is_numeric, s, n));
        break;
    case KVF__STEP_PUNCTUATION:
        KVF_TRY(split_chars(sp, kvf__is_punct, s, n));
        break;
    case KVF__STEP_WHITESPACE_SPLIT:
        KVF_TRY(split_chars(sp, kvf__is_space, s, n));
        break;
    case KVF__STEP_WHITESPACE:
        KVF_TRY(split_words(sp, s, n));
        break;
    default:
        KVF_TRY(split_pattern(sp, sp->step->pattern, s, n));
    }
    return flush_events(sp);
}

/* Cuts all pieces; the text stays as it is and moves over to the new list. */
static kvf_status split_all(kvf__work *w, const kvf__tok_step *step)
{
    kvf__traced text = w->pieces.text;
    splitter sp = {.w = w, .step = step, .out = &w->spare};

    kvf__pretokens_clear(&w->spare);
    for (size_t i = 0; i < w->pieces.n; i++) {
        sp.base = w->pieces.v[i].at;
        KVF_TRY(split_piece(&sp, text.buf.data + sp.base, w->pieces.v[i].n));
    }
    w->spare.head = w->pieces.head && w->spare.n > 0 && w->spare.v[0].at == w->pieces.v[0].at;
    w->pieces.text = w->spare.text;
    w->spare.text = text;
    return KVF_OK;
}

/* ---- what rewrites --------------------------------------------------------------------------- */

static void swap_lists(kvf__work *w)
{
    kvf__pretokens was = w->pieces;
    w->pieces = w->spare;
    w->spare = was;
}

/* Copies every piece, with `prefix` before those that lack it: all, or only the one that begins the
 * text. `bare` leaves out the first, which continues other text. */
static kvf_status prefix_pieces(kvf__work *w, const char *prefix, size_t n, bool head_only,
                                bool bare)
{
    kvf__pretokens *from = &w->pieces, *to = &w->spare;

    kvf__pretokens_clear(to);
    to->head = from->head;
    for (size_t i = 0; i < from->n; i++) {
        const char *s = from->text.buf.data + from->v[i].at;
        size_t at = to->text.buf.n, length = from->v[i].n;
        bool has = length >= n && memcmp(s, prefix, n) == 0;
        bool wants = i == 0 ? !bare && (!head_only || from->head) : !head_only;
        if (wants && !has)
            KVF_TRY(kvf__trace_put(w, &to->text, prefix, n,
                                   kvf__trace_at(w, &from->text, from->v[i].at)));
        KVF_TRY(kvf__trace_copy(w, &to->text, &from->text, from->v[i].at, length));
        KVF_TRY(kvf__pretokens_add(w->ctx, to, at, to->text.buf.n - at));
    }
    swap_lists(w);
    return KVF_OK;
}

/* The bytes' printable characters, in chunks: a call per byte would cost more than the mapping. */
static kvf_status map_text(kvf_ctx *ctx, const char *s, size_t n, kvf__buf *out)
{
    char chunk[512];
    size_t used = 0, length;

    for (size_t k = 0; k < n; k++) {
        kvf__byte_char((uint8_t)s[k], chunk + used, &length);
        used += length;
        if (used + 2 <= sizeof chunk) continue;
        KVF_TRY(kvf__buf_add(ctx, out, chunk, used));
        used = 0;
    }
    return kvf__buf_add(ctx, out, chunk, used);
}

/* The same, a byte at a time, with where each came from. */
static kvf_status map_traced(kvf__work *w, const kvf__traced *from, kvf__pretoken piece,
                             kvf__traced *to)
{
    for (size_t at = piece.at; at < piece.at + piece.n; at++) {
        char shown[2];
        size_t length;
        kvf__byte_char((uint8_t)from->buf.data[at], shown, &length);
        KVF_TRY(kvf__trace_put(w, to, shown, length, from->from[at]));
    }
    return KVF_OK;
}

static kvf_status map_bytes(kvf__work *w)
{
    kvf__pretokens *from = &w->pieces, *to = &w->spare;

    kvf__pretokens_clear(to);
    to->head = from->head;
    for (size_t i = 0; i < from->n; i++) {
        size_t at = to->text.buf.n;
        const char *s = from->text.buf.data + from->v[i].at;
        KVF_TRY(w->offsets ? map_traced(w, &from->text, from->v[i], &to->text)
                           : map_text(w->ctx, s, from->v[i].n, &to->text.buf));
        KVF_TRY(kvf__pretokens_add(w->ctx, to, at, to->text.buf.n - at));
    }
    swap_lists(w);
    return KVF_OK;
}

static kvf_status byte_level(kvf__work *w, const kvf__tok_step *step, bool bare)
{
    if (step->prefix_space) KVF_TRY(prefix_pieces(w, " ", 1, false, bare));
    if (step->pattern) {
        KVF_TRY(split_all(w, step));
        swap_lists(w);
    }
    return map_bytes(w);
}

/* Spaces become the replacement, text between them is copied whole. */
static kvf_status map_spaces(kvf__work *w, const kvf__tok_step *step, const kvf__traced *from,
                             kvf__pretoken piece, kvf__traced *to)
{
    size_t at = piece.at, end = piece.at + piece.n;

    for (;;) {
        const char *s = from->buf.data + at;
        const char *space = at < end ? memchr(s, ' ', end - at) : NULL;
        size_t n = space ? (size_t)(space - s) : end - at;
        KVF_TRY(kvf__trace_copy(w, to, from, at, n));
        if (!space) return KVF_OK;
        at += n;
        KVF_TRY(kvf__trace_put(w, to, step->text, step->text_n, kvf__trace_at(w, from, at)));
        at++;
    }
}

static kvf_status replace_spaces(kvf__work *w, const kvf__tok_step *step)
{
    kvf__pretokens *from = &w->pieces, *to = &w->spare;

    kvf__pretokens_clear(to);
    to->head = from->head;
    for (size_t i = 0; i < from->n; i++) {
        size_t at = to->text.buf.n;
        KVF_TRY(map_spaces(w, step, &from->text, from->v[i], &to->text));
        KVF_TRY(kvf__pretokens_add(w->ctx, to, at, to->text.buf.n - at));
    }
    swap_lists(w);
    return KVF_OK;
}

/* With split, a piece begins at every replacement character. */
static kvf_status metaspace(kvf__work *w, const kvf__tok_step *step, bool bare)
{
    KVF_TRY(replace_spaces(w, step));
    if (step->scheme != KVF__PREPEND_NEVER)
        KVF_TRY(
            prefix_pieces(w, step->text, step->text_n, step->scheme == KVF__PREPEND_FIRST, bare));
    if (!step->split) return KVF_OK;
    KVF_TRY(split_all(w, step));
    swap_lists(w);
    return KVF_OK;
}

kvf_status kvf__pre_tokenize(kvf__work *w, bool bare)
{
    for (size_t i = 0; i < w->t->pre.n; i++) {
        const kvf__tok_step *step = &w->t->pre.v[i];
        if (step->kind == KVF__STEP_BYTE_LEVEL) {
            KVF_TRY(byte_level(w, step, bare));
        } else if (step->kind == KVF__STEP_METASPACE) {
            KVF_TRY(metaspace(w, step, bare));
        } else {
            KVF_TRY(split_all(w, step));
            swap_lists(w);
        }
    }
    return KVF_OK;
}
