/* Parses --p-template into pieces (row_template.h). render.c and rows_text.c turn the pieces into
 * ids. */
#include "row_template.h"
#include "text_int.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_VIRTUAL = 1 << 20 };

static const char *const FIELDS[] = {"text", "text_pair", "prompt", "completion"};
enum { N_FIELDS = sizeof FIELDS / sizeof FIELDS[0] };

/* A template being parsed. */
typedef struct template_parser {
    kvf_ctx *ctx;
    const char *text;
    kvf__row_template *out;
    char *memory; /* free memory for the next piece's text */
    bool blank;   /* a blank was skipped */
} template_parser;

static kvf_status bad(const template_parser *p, const char *what)
{
    return kvf__fail(p->ctx, KVF_EUSAGE, "--p-template \"%s\": %s", p->text, what);
}

static const char *keep(template_parser *p, const char *from, size_t n)
{
    char *text = memcpy(p->memory, from, n);
    p->memory += n + 1; /* zeroed */
    return text;
}

/* Returns true for pieces between which a blank counts. Blanks next to other pieces, or at the
 * beginning, only separate. */
static bool is_text(const kvf__template_piece *piece)
{
    bool field = piece->kind == KVF__PIECE_FIELD && strcmp(piece->text, "completion");
    return field || piece->kind == KVF__PIECE_LITERAL;
}

static void add(template_parser *p, kvf__template_piece piece)
{
    kvf__row_template *t = p->out;
    piece.blank = p->blank && t->n && is_text(&t->pieces[t->n - 1]) && is_text(&piece);
    p->blank = false;
    t->pieces[t->n++] = piece;
}

static kvf_status add_virtual(template_parser *p, const char *number, const char *end)
{
    char *stop = NULL;
    long n = *number == ':' ? strtol(number + 1, &stop, 10) : 1;
    if (*number == ':' && (stop != end || stop == number + 1 || n < 1 || n > MOST_VIRTUAL))
        return bad(p, "N in {p:N} must be a number of virtual tokens, at least 1");
    kvf__template_piece piece = {.kind = KVF__PIECE_VIRTUAL, .first = p->out->P, .n = n};
    p->out->P += n;
    add(p, piece);
    return KVF_OK;
}

static kvf_status add_field(template_parser *p, const char *name, size_t n)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (strlen(FIELDS[i]) != n || memcmp(FIELDS[i], name, n)) continue;
        if (kvf__row_template_field(p->out, FIELDS[i])) return bad(p, "a field is used twice");
        add(p, (kvf__template_piece){.kind = KVF__PIECE_FIELD, .text = FIELDS[i]});
        return KVF_OK;
    }
    return bad(p, "braces may contain p, p:N, text, text_pair, prompt or completion");
}

static kvf_status add_mask(template_parser *p)
{
    if (p->out->mask >= 0) return bad(p, "[MASK] is used twice");
    p->out->mask = (int)p->out->n;
    add(p, (kvf__template_piece){.kind = KVF__PIECE_MASK});
    return KVF_OK;
}

/* Reads the piece at `at`; *next: its end. */
static kvf_status read_piece(template_parser *p, const char *at, const char **next)
{
    if (!strncmp(at, "[MASK]", 6)) {
        *next = at + 6;
        return add_mask(p);
    }
    if (*at == '{') {
        const char *end = strchr(at, '}');
        if (!end) return bad(p, "a { is not closed");
        *next = end + 1;
        if (at[1] == 'p' && (at + 2 == end || at[2] == ':')) return add_virtual(p, at + 2, end);
        return add_field(p, at + 1, (size_t)(end - at - 1));
    }
    size_t n = strcspn(at, "{[");
    while (at[n] == '[' && strncmp(at + n, "[MASK]", 6))
        n += 1 + strcspn(at + n + 1, "{[");
    *next = at + n;
    size_t all = n;
    while (n && at[n - 1] == ' ')
        n--;
    add(p, (kvf__template_piece){.kind = KVF__PIECE_LITERAL, .text = keep(p, at, n)});
    p->blank = n < all;
    return KVF_OK;
}

/* Moves the virtual tokens at the beginning from the list to `front`. */
static void settle_front(kvf__row_template *t)
{
    size_t first = 0;
    while (first < t->n && t->pieces[first].kind == KVF__PIECE_VIRTUAL)
        t->front += t->pieces[first++].n;
    t->n -= first;
    memmove(t->pieces, t->pieces + first, t->n * sizeof *t->pieces);
    if (t->mask >= 0) t->mask -= (int)first;
}

static kvf_status check(const template_parser *p)
{
    const kvf__row_template *t = p->out;
    bool prompt = kvf__row_template_field(t, "prompt"), text = kvf__row_template_field(t, "text");
    if (!prompt && !text) return bad(p, "it needs {text}, or {prompt} and {completion}");
    if (prompt && text) return bad(p, "{text} and {prompt} exclude each other");
    const kvf__template_piece *completion = kvf__row_template_field(t, "completion");
    if (prompt != (completion != NULL)) return bad(p, "{prompt} and {completion} need each other");
    if (completion && completion != &t->pieces[t->n - 1])
        return bad(p, "{completion} must come last");
    return KVF_OK;
}

kvf_status kvf__row_template_init(kvf_ctx *ctx, const char *text, int64_t P, kvf__row_template *out)
{
    kvf__row_template t = {.mask = -1};
    if (!text || !*text) {
        *out = (kvf__row_template){.P = P, .front = P, .mask = -1};
        return KVF_OK;
    }
    size_t n = strlen(text);
    KVF_TRY(kvf__utf8_check(ctx, "--p-template", text, n, false));
    kvf_status st = kvf__alloc_array(ctx, n, sizeof *t.pieces, &t.pieces);
    if (!st) st = kvf__alloc(ctx, 2 * n + 2, &t.texts);
    template_parser p = {.ctx = ctx, .text = text, .out = &t, .memory = t.texts};
    for (const char *at = text; !st && *at;) {
        if (*at == ' ') {
            p.blank = true;
            at++;
        } else {
            st = read_piece(&p, at, &at);
        }
    }
    if (!st) st = check(&p);
    if (st) {
        kvf__row_template_done(&t);
        return st;
    }
    settle_front(&t);
    *out = t;
    return KVF_OK;
}

void kvf__row_template_done(kvf__row_template *pattern)
{
    kvf__free(pattern->pieces);
    kvf__free(pattern->texts);
    *pattern = (kvf__row_template){.mask = -1};
}

const kvf__template_piece *kvf__row_template_field(const kvf__row_template *pattern,
                                                   const char *name)
{
    for (size_t i = 0; i < pattern->n; i++)
        if (pattern->pieces[i].kind == KVF__PIECE_FIELD && !strcmp(pattern->pieces[i].text, name))
            return &pattern->pieces[i];
    return NULL;
}

bool kvf__row_template_plain(const kvf__row_template *pattern)
{
    if (pattern->front != pattern->P) return false;
    for (size_t i = 0; i < pattern->n; i++)
        if (pattern->pieces[i].kind != KVF__PIECE_FIELD) return false;
    return !kvf__row_template_field(pattern, "text_pair");
}
