/* Ids to text: the written forms of tokens pass one by one through the decoder's steps, so that a
 * growing text can be streamed. Whole texts use the same steps.
 *
 * A step maps strings to strings. These are tokens until a step fuses them; after it they are one
 * string in parts of whole characters. A step that needs the whole string buffers it.
 *
 * A run of byte tokens is text if all of it is UTF-8, else one U+FFFD per byte. If later steps
 * allow it, characters of a run are emitted at once and withdrawn if the run turns out bad; until
 * its end they are not settled. An id without a token gives U+FFFD, where `tokenizers` omits it
 * silently. */
#include "tok_work.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A step and its state. kept: the bytes of an incomplete character or of a run, or everything if
 * the step is `whole`. */
typedef struct stage {
    const kvf__tok_step *step;
    bool joined; /* an earlier step fused the tokens */
    bool whole;
    struct progress {
        bool begun;          /* the first token is done */
        int64_t front, back; /* strip, joined: characters removed in front; held back at the end */
    } now, mark;             /* mark: state before the run of bytes */
    kvf__buf kept, made;     /* made: output */
    size_t kept_mark;        /* bytes kept before the run */
} stage;

struct kvf__decoding {
    kvf__work w;
    bool skip_special, begun;
    stage *stages; /* [n] */
    size_t n;
    kvf__buf *out;
    size_t changed;
    /* The current run of bytes, if its characters are emitted at once. */
    struct run {
        bool open, bad;
        size_t given; /* number of its bytes emitted so far */
        size_t out_n; /* length of the output before it */
    } run;
};

static kvf_status feed(kvf__decoding *d, size_t i, const char *s, size_t n);

/* ---- steps ----------------------------------------------------------------------------------- */

/* Returns the number of bytes at the end that may begin a character. */
static size_t open_end(const char *s, size_t n)
{
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        const uint8_t common = (uint8_t)s[n - k];
        uint32_t cp;
        if (common < 0xC2 || common > 0xF4) continue;
        return kvf__utf8_len(s[n - k]) > k && kvf__utf8_next(s + n - k, k, &cp) == k ? k : 0;
    }
    return 0;
}

/* Emits the buffered bytes that are whole characters; at the end all. Bad UTF-8 becomes U+FFFD. */
static kvf_status hand_on_bytes(kvf__decoding *d, size_t i, bool end)
{
    kvf__buf *kept = &d->stages[i].kept, *made = &d->stages[i].made;
    const size_t later = end ? 0 : open_end(kept->data, kept->n), now = kept->n - later;

    if (!now) return KVF_OK;
    made->n = 0;
    KVF_TRY(kvf__utf8_repair(d->w.ctx, kept->data, now, made));
    memmove(kept->data, kept->data + now, later);
    kept->n = later;
    return feed(d, i + 1, made->data, made->n);
}

/* Maps characters back to bytes. A token with a character outside the byte alphabet is
 * unchanged. */
static kvf_status byte_level(kvf__decoding *d, size_t i, const char *s, size_t n)
{
    kvf__buf *bytes = &d->stages[i].kept;
    const size_t start = bytes->n;

    for (size_t at = 0; at < n;) {
        uint32_t cp;
        at += kvf__utf8_next(s + at, n - at, &cp);
        int byte = kvf__char_byte(cp);
        if (byte >= 0) {
            KVF_TRY(kvf__buf_addc(d->w.ctx, bytes, (char)byte));
            continue;
        }
        bytes->n = start;
        KVF_TRY(kvf__buf_add(d->w.ctx, bytes, s, n));
        break;
    }
    return hand_on_bytes(d, i, false);
}

/* Turns replacement characters into spaces; those of the first token are removed. */
static kvf_status metaspace(kvf__decoding *d, size_t i, const char *s, size_t n)
{
    stage *g = &d->stages[i];
    const kvf__tok_step *step = g->step;
    const bool first = g->joined || !g->now.begun;

    g->made.n = 0;
    for (size_t at = 0; at < n;) {
        size_t length = kvf__utf8_len(s[at]);
        bool hit = length == step->text_n && memcmp(s + at, step->text, length) == 0;
        if (!hit)
            KVF_TRY(kvf__buf_add(d->w.ctx, &g->made, s + at, length));
        else if (!first || step->scheme == KVF__PREPEND_NEVER)
            KVF_TRY(kvf__buf_addc(d->w.ctx, &g->made, ' '));
        at += length;
    }
    return feed(d, i + 1, g->made.data, g->made.n);
}

static kvf_status replace(kvf__decoding *d, size_t i, const char *s, size_t n)
{
    kvf__work *w = &d->w;

    w->text.buf.n = 0;
    w->scratch.buf.n = 0;
    w->scratch.most = kvf__trace_room(n);
    KVF_TRY(kvf__buf_add(w->ctx, &w->text.buf, s, n));
    KVF_TRY(kvf__replace_all(w, d->stages[i].step, &w->text, 0, n, &w->scratch));
    return feed(d, i + 1, w->scratch.buf.data, w->scratch.buf.n);
}

/* Replaces every `from` in text by `to`, which is shorter. */
static void swap_all(kvf__buf *text, const char *from, const char *to)
{
    const size_t from_n = strlen(from), to_n = strlen(to);

    for (char *hit = strstr(text->data, from); hit; hit = strstr(hit + to_n, from)) {
        memcpy(hit, to, to_n);
        memmove(hit + to_n, hit + from_n, text->n - (size_t)(hit - text->data) - from_n + 1);
        text->n -= from_n - to_n;
    }
}

/* Removes the prefix of a token that continues a word, and puts a space before any other but the
 * first. cleanup then removes spaces that English does not have, inside tokens only. */
static kvf_status wordpiece(kvf__decoding *d, size_t i, const char *s, size_t n)
{
    static const char *const cleanups[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    const stage *g = &d->stages[i];
    const kvf__tok_step *step = g->step;
    kvf__buf *out = &d->stages[i].made;
    bool continues = n >= step->text_n && memcmp(s, step->text, step->text_n) == 0;

    out->n = 0;
    if (g->now.begun && continues) {
        s += step->text_n;
        n -= step->text_n;
    } else if (g->now.begun) {
        KVF_TRY(kvf__buf_addc(d->w.ctx, out, ' '));
    }
    KVF_TRY(kvf__buf_add(d->w.ctx, out, s, n));
    for (size_t k = 0; step->cleanup && k < sizeof cleanups / sizeof *cleanups; k++)
        swap_all(out, cleanups[k][0], cleanups[k][1]);
    return feed(d, i + 1, out->data, out->n);
}

/* Counts the step's character at the start or end of the text, up to `most`. */
static int64_t count_units(const kvf__tok_step *step, const char *s, size_t n, int64_t most,
                           bool at_end)
{
    const size_t unit = step->text_n;
    int64_t count = 0;

    for (size_t left = n; count < most && left >= unit; left -= unit, count++) {
        const char *at = at_end ? s + left - unit : s + n - left;
        if (memcmp(at, step->text, unit) != 0) break;
    }
    return count;
}

/* Removes the step's character, up to start times in front and stop times at the end. For a text in
 * parts, characters at the end are held back until others follow. */
static kvf_status strip(kvf__decoding *d, size_t i, const char *s, size_t n)
{
    stage *g = &d->stages[i];
    const kvf__tok_step *step = g->step;
    const size_t unit = step->text_n;

    if (!g->joined) g->now.front = g->now.back = 0; /* each token is a text of its own */
    const int64_t front = count_units(step, s, n, step->start - g->now.front, false);
    s += (size_t)front * unit;
    n -= (size_t)front * unit;
    g->now.front = n ? step->start : g->now.front + front;
    const int64_t units = count_units(step, s, n, INT64_MAX, true);
    const bool only = (size_t)units * unit == n;
    const int64_t ending = (only ? g->now.back : 0) + units;
    const int64_t back = ending < step->stop ? ending : step->stop;

    g->made.n = 0;
    for (int64_t k = only ? ending - back : g->now.back; k > 0; k--)
        KVF_TRY(kvf__buf_add(d->w.ctx, &g->made, step->text, unit));
    if (!only) KVF_TRY(kvf__buf_add(d->w.ctx, &g->made, s, n - (size_t)back * unit));
    g->now.back = back;
    return feed(d, i + 1, g->made.data, g->made.n);
}

/* ---- runs of bytes --------------------------------------------------------------------------- */

/* Returns the byte of a token "<0xXX>", or -1. */
static int token_byte(const char *s, size_t n)
{
    char *end;

    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>' || !isxdigit((uint8_t)s[3])) return -1;
    long byte = strtol(s + 3, &end, 16);
    return end == s + 5 ? (int)byte : -1;
}

/* Returns whether characters of a run can be withdrawn: all later steps work on one string. */
static bool gives_early(const kvf__decoding *d, size_t i)
{
    return i + 1 == d->n || d->stages[i + 1].joined ||
           d->stages[i + 1].step->kind == KVF__STEP_FUSE;
}

static void mark_run(kvf__decoding *d)
{
    for (size_t i = 0; i < d->n; i++) {
        d->stages[i].mark = d->stages[i].now;
        d->stages[i].kept_mark = d->stages[i].kept.n;
    }
    d->run.open = true;
    d->run.bad = false;
    d->run.given = 0;
    d->run.out_n = d->out->n;
}

/* U+FFFD for each of n bytes. */
static kvf_status feed_bad(kvf__decoding *d, size_t i, size_t n)
{
    for (size_t k = 0; k < n; k++)
        KVF_TRY(feed(d, i, KVF__REPLACEMENT_UTF8, 3));
    return KVF_OK;
}

/* Withdraws the emitted part of the run at stage i and emits U+FFFD for each byte. */
static kvf_status spoil_run(kvf__decoding *d, size_t i)
{
    for (size_t k = i + 1; k < d->n; k++) {
        d->stages[k].now = d->stages[k].mark;
        d->stages[k].kept.n = d->stages[k].kept_mark;
    }
    d->out->n = d->run.out_n;
    if (d->changed > d->out->n) d->changed = d->out->n;
    d->run.bad = true;
    return feed_bad(d, i + 1, d->stages[i].kept.n);
}

static kvf_status add_byte(kvf__decoding *d, size_t i, char byte)
{
    kvf__buf *bytes = &d->stages[i].kept;
    struct run *run = &d->run;
    const bool early = gives_early(d, i);

    if (early && !run->open) mark_run(d);
    KVF_TRY(kvf__buf_addc(d->w.ctx, bytes, byte));
    if (!early) return KVF_OK;
    if (run->bad) return feed_bad(d, i + 1, 1);
    const char *next = bytes->data + run->given;
    const size_t left = bytes->n - run->given, good = kvf__utf8_valid(next, left);
    if (good + open_end(next + good, left - good) < left) return spoil_run(d, i);
    run->given += good;
    return feed(d, i + 1, next, good);
}

static kvf_status end_run(kvf__decoding *d, size_t i)
{
    kvf__buf *bytes = &d->stages[i].kept;
    kvf_status st = KVF_OK;

    if (gives_early(d, i)) {
        if (d->run.open && !d->run.bad && d->run.given < bytes->n) st = spoil_run(d, i);
        d->run.open = false;
    } else if (bytes->n && kvf__utf8_valid(bytes->data, bytes->n) == bytes->n) {
        st = feed(d, i + 1, bytes->data, bytes->n);
    } else {
        st = feed_bad(d, i + 1, bytes->n);
    }
    bytes->n = 0;
    return st;
}

static kvf_status byte_fallback(kvf__decoding *d, size_t i, const char *s, size_t n)
{
    int byte = token_byte(s, n);

    if (byte >= 0) return add_byte(d, i, (char)byte);
    KVF_TRY(end_run(d, i));
    return feed(d, i + 1, s, n);
}

/* ---- the chain ------------------------------------------------------------------------------- */

static kvf_status pass_on(kvf__decoding *d, size_t i, const char *s, size_t n)
{
    return feed(d, i + 1, s, n);
}

static kvf_status (*const APPLY[])(kvf__decoding *d, size_t i, const char *s, size_t n) = {
    [KVF__STEP_BYTE_LEVEL] = byte_level, [KVF__STEP_BYTE_FALLBACK] = byte_fallback,
    [KVF__STEP_METASPACE] = metaspace,   [KVF__STEP_STRIP] = strip,
    [KVF__STEP_WORDPIECE] = wordpiece,   [KVF__STEP_REPLACE] = replace,
    [KVF__STEP_FUSE] = pass_on,
};

/* Passes a string to stage i; the last stage appends to the text. Without a decoder, tokens are
 * joined by spaces, as in `tokenizers`. */
static kvf_status feed(kvf__decoding *d, size_t i, const char *s, size_t n)
{
    if (!n) return KVF_OK;
    if (i == d->n) {
        if (d->begun && !d->w.t->has_decoder) KVF_TRY(kvf__buf_addc(d->w.ctx, d->out, ' '));
        d->begun = true;
        return kvf__buf_add(d->w.ctx, d->out, s, n);
    }
    if (d->stages[i].whole) return kvf__buf_add(d->w.ctx, &d->stages[i].kept, s, n);
    KVF_TRY(APPLY[d->stages[i].step->kind](d, i, s, n));
    d->stages[i].now.begun = true;
    return KVF_OK;
}

/* Ends the input of stage i. */
static kvf_status finish(kvf__decoding *d, size_t i)
{
    stage *g = &d->stages[i];
    kvf__buf all = g->kept;
    kvf_status st = KVF_OK;

    if (g->whole) {
        g->whole = false;
        g->kept = (kvf__buf){0};
        st = feed(d, i, all.data, all.n);
        kvf__buf_done(&all);
    }
    if (!st && g->step->kind == KVF__STEP_BYTE_LEVEL) st = hand_on_bytes(d, i, true);
    if (!st && g->step->kind == KVF__STEP_BYTE_FALLBACK) st = end_run(d, i);
    return st;
}

/* Returns whether the step can process a text in parts of whole characters. */
static bool takes_parts(const kvf__tok_step *step)
{
    if (step->kind == KVF__STEP_REPLACE) return kvf__pattern_is_character(step->pattern);
    return step->kind == KVF__STEP_FUSE || step->kind == KVF__STEP_STRIP ||
           step->kind == KVF__STEP_METASPACE;
}

static kvf_status set_stages(kvf_ctx *ctx, kvf__decoding *d)
{
    const kvf__tok_steps *steps = &d->w.t->decoder;
    bool joined = false;

    KVF_TRY(kvf__alloc_array(ctx, steps->n + 1, sizeof *d->stages, &d->stages));
    d->n = steps->n;
    for (size_t i = 0; i < d->n; i++) {
        const kvf__tok_step *step = &steps->v[i];
        d->stages[i] = (stage){.step = step, .joined = joined};
        d->stages[i].whole = joined && !takes_parts(step);
        joined |= step->kind == KVF__STEP_FUSE || step->kind == KVF__STEP_BYTE_LEVEL;
    }
    return KVF_OK;
}

kvf_status kvf__decoding_create(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, bool skip_special,
                                kvf__decoding **out)
{
    kvf__decoding *d = NULL;

    KVF_TRY(kvf__alloc(ctx, sizeof *d, &d));
    d->w = (kvf__work){.t = tokenizer};
    d->skip_special = skip_special;
    kvf_status st = set_stages(ctx, d);
    KVF__GIVE(st, out, d, kvf__decoding_free(d));
    return st;
}

void kvf__decoding_free(kvf__decoding *d)
{
    if (!d) return;
    for (size_t i = 0; i < d->n; i++) {
        kvf__buf_done(&d->stages[i].kept);
        kvf__buf_done(&d->stages[i].made);
    }
    kvf__free(d->stages);
    kvf__work_done(&d->w);
    kvf__free(d);
}

static void enter(kvf__decoding *d, kvf_ctx *ctx, kvf__buf *text)
{
    d->w.ctx = ctx;
    d->out = text;
    d->changed = text->n;
}

/* Reports the changes of the last call, and puts a NUL after the text. */
static kvf_status leave(kvf__decoding *d, kvf_ctx *ctx, kvf__grown *grown)
{
    const kvf__grown all = {.changed = d->changed,
                            .settled = d->run.open && !d->run.bad ? d->run.out_n : d->out->n};
    if (grown) *grown = all;
    return kvf__buf_add(ctx, d->out, "", 0);
}

kvf_status kvf__decoding_add(kvf_ctx *ctx, kvf__decoding *d, int32_t id, kvf__buf *text,
                             kvf__grown *grown)
{
    const char *token = kvf__token_text(d->w.t, id);
    const bool left_out = d->skip_special && kvf__token_is_special(d->w.t, id);

    enter(d, ctx, text);
    if (!left_out)
        KVF_TRY(feed(d, 0, token ? token : KVF__REPLACEMENT_UTF8, token ? d->w.t->lex.v[id].n : 3));
    return leave(d, ctx, grown);
}

kvf_status kvf__decoding_end(kvf_ctx *ctx, kvf__decoding *d, kvf__buf *text, kvf__grown *grown)
{
    enter(d, ctx, text);
    for (size_t i = 0; i < d->n; i++)
        KVF_TRY(finish(d, i));
    return leave(d, ctx, grown);
}

kvf_status kvf__decode(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const int32_t *ids, size_t n,
                       bool skip_special, kvf__buf *out)
{
    const size_t before = out->n;
    kvf__decoding *d = NULL;
    kvf_status st = kvf__decoding_create(ctx, tokenizer, skip_special, &d);

    for (size_t i = 0; !st && i < n; i++)
        st = kvf__decoding_add(ctx, d, ids[i], out, NULL);
    if (!st) st = kvf__decoding_end(ctx, d, out, NULL);
    if (st && out->data) {
        out->n = before;
        out->data[before] = '\0';
    }
    kvf__decoding_free(d);
    return st;
}
