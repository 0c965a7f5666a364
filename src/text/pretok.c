/* Pre-tokenizers: each step cuts every piece into smaller ones, and some rewrite the text.
 *
 * A split has three parts, as in `tokenizers`: matches of a pattern or of single characters, the
 * text between them, and a behaviour. The behaviour decides which of the two become pieces, are
 * removed, or join a neighbour. The common case, "isolated", goes straight into the list. */
#include "tok_work.h"

#include <string.h>

#define KVF__EVENT_MATCH (1u << 31)

/* ---- behaviours ------------------------------------------------------------------------------ */

/* Receives the cuts of one piece in order. */
typedef struct splitter {
    kvf__work *w;
    const kvf__tok_step *step;
    size_t base; /* offset of the piece in its list's text */
    size_t n;    /* number of events */
    kvf__pretokens *out;
} splitter;

static kvf_status add_event(splitter *sp, size_t start, size_t end, bool match)
{
    kvf__work *w = sp->w;

    match ^= sp->step->invert;
    if (sp->step->behavior == KVF__ISOLATED)
        return kvf__pretokens_add(w->ctx, sp->out, sp->base + start, end - start);
    KVF_TRY(kvf__reserve(w->ctx, &w->events, &w->events_cap, sp->n + 1, sizeof *w->events));
    w->events[sp->n++] = (kvf__pretoken){
        .at = (uint32_t)start, .n = (uint32_t)(end - start) | (match ? KVF__EVENT_MATCH : 0)};
    return KVF_OK;
}

/* Returns whether event i joins the previous one in the direction of the walk. was: the previous
 * one is a match. */
static bool joins(kvf__behavior behavior, bool match, bool was, bool any)
{
    if (behavior == KVF__CONTIGUOUS) return any && match == was;
    return any && match && !was;
}

/* Turns events into pieces. `backward` is for "merged with next", a mirrored "merged with
 * previous". */
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

/* Splits by \w+|[^\w\s]+ : runs of one class, white space dropped. */
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
    static bool (*const classes[])(uint32_t) = {
        [KVF__STEP_DIGITS] = kvf__is_numeric,
        [KVF__STEP_WHITESPACE_SPLIT] = kvf__is_space,
        [KVF__STEP_PUNCTUATION] = kvf__is_punct,
    };
    kvf__step_kind kind = sp->step->kind;

    sp->n = 0;
    if (kind == KVF__STEP_WHITESPACE) return split_words(sp, s, n);
    if (kind < sizeof classes / sizeof *classes && classes[kind])
        KVF_TRY(split_chars(sp, classes[kind], s, n));
    else
        KVF_TRY(split_pattern(sp, sp->step->pattern, s, n));
    return flush_events(sp);
}

static void swap_lists(kvf__work *w)
{
    kvf__pretokens was = w->pieces;
    w->pieces = w->spare;
    w->spare = was;
}

/* Cuts all pieces; the text moves unchanged to the new list. */
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
    swap_lists(w);
    return KVF_OK;
}

/* ---- what rewrites --------------------------------------------------------------------------- */

/* Appends the replacement of piece i of w->pieces. */
typedef kvf_status rewrite_fn(kvf__work *w, const void *how, size_t i, kvf__traced *to);

static kvf_status rewrite_all(kvf__work *w, rewrite_fn *rewrite, const void *how)
{
    kvf__pretokens *to = &w->spare;

    kvf__pretokens_clear(to);
    to->head = w->pieces.head;
    for (size_t i = 0; i < w->pieces.n; i++) {
        size_t at = to->text.buf.n;
        KVF_TRY(rewrite(w, how, i, &to->text));
        KVF_TRY(kvf__pretokens_add(w->ctx, to, at, to->text.buf.n - at));
    }
    swap_lists(w);
    return KVF_OK;
}

/* A text to insert before pieces that lack it: before all, or only the first of the text. `bare`
 * excludes the first, which continues other text. */
typedef struct front {
    const char *text;
    size_t n;
    bool head_only, bare;
} front;

static kvf_status put_front(kvf__work *w, const void *how, size_t i, kvf__traced *to)
{
    const front *f = how;
    const kvf__pretokens *from = &w->pieces;
    const kvf__pretoken piece = from->v[i];
    bool has = piece.n >= f->n && memcmp(from->text.buf.data + piece.at, f->text, f->n) == 0;
    bool wants = i == 0 ? !f->bare && (!f->head_only || from->head) : !f->head_only;

    if (wants && !has)
        KVF_TRY(kvf__trace_put(w, to, f->text, f->n, kvf__trace_at(w, &from->text, piece.at)));
    return kvf__trace_copy(w, to, &from->text, piece.at, piece.n);
}

/* Appends the bytes' printable characters in chunks: a call per byte would cost more than the
 * mapping. */
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

/* Maps bytes with offsets, one at a time. */
static kvf_status map_bytes(kvf__work *w, const void *how, size_t i, kvf__traced *to)
{
    const kvf__traced *from = &w->pieces.text;
    const kvf__pretoken piece = w->pieces.v[i];

    (void)how;
    if (!w->offsets) return map_text(w->ctx, from->buf.data + piece.at, piece.n, &to->buf);
    for (size_t at = piece.at; at < piece.at + piece.n; at++) {
        char shown[2];
        size_t length;
        kvf__byte_char((uint8_t)from->buf.data[at], shown, &length);
        KVF_TRY(kvf__trace_put(w, to, shown, length, from->from[at]));
    }
    return KVF_OK;
}

/* Replaces spaces; text between them is copied in one piece. */
static kvf_status map_spaces(kvf__work *w, const void *how, size_t i, kvf__traced *to)
{
    const kvf__tok_step *step = how;
    const kvf__traced *from = &w->pieces.text;
    size_t at = w->pieces.v[i].at, end = at + w->pieces.v[i].n;

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

static kvf_status byte_level(kvf__work *w, const kvf__tok_step *step, bool bare)
{
    if (step->prefix_space)
        KVF_TRY(rewrite_all(w, put_front, &(front){.text = " ", .n = 1, .bare = bare}));
    if (step->pattern) KVF_TRY(split_all(w, step));
    return rewrite_all(w, map_bytes, NULL);
}

/* With split, a piece begins at every replacement character. */
static kvf_status metaspace(kvf__work *w, const kvf__tok_step *step, bool bare)
{
    const front replacement = {.text = step->text,
                               .n = step->text_n,
                               .head_only = step->scheme == KVF__PREPEND_FIRST,
                               .bare = bare};

    KVF_TRY(rewrite_all(w, map_spaces, step));
    if (step->scheme != KVF__PREPEND_NEVER) KVF_TRY(rewrite_all(w, put_front, &replacement));
    return step->split ? split_all(w, step) : KVF_OK;
}

kvf_status kvf__pre_tokenize(kvf__work *w, bool bare)
{
    for (size_t i = 0; i < w->t->pre.n; i++) {
        const kvf__tok_step *step = &w->t->pre.v[i];
        if (step->kind == KVF__STEP_BYTE_LEVEL)
            KVF_TRY(byte_level(w, step, bare));
        else if (step->kind == KVF__STEP_METASPACE)
            KVF_TRY(metaspace(w, step, bare));
        else
            KVF_TRY(split_all(w, step));
    }
    return KVF_OK;
}
