/* Prints a row for people: its text with special tokens, and brackets around the tokens that carry
 * loss. Long parts are shortened, so that the line stays readable. */
#include "dataset.h"

#include <string.h>

enum {
    MOST_BYTES = 1200, /* bytes of a line; the part that exceeds them is the last */
    MOST_HEAD = 32,    /* tokens kept at the start and at the end of a shortened part */
    MOST_TAIL = 24,
    CONTEXT = 16,   /* tokens before a part, which decide its first blank */
    MOST_NAMES = 24 /* tags shown */
};
#define OPEN  "\u27e6"
#define CLOSE "\u27e7"

typedef struct marked {
    kvf_ctx *ctx;
    const kvf__tokenizer *tokenizer;
    const int32_t *ids, *labels; /* [n] */
    int64_t n;
    kvf__buf *out;
} marked;

/* Appends a text with control characters escaped as in JSON. */
static kvf_status put_escaped(const marked *m, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        const bool c1 = c == 0xC2 && i + 1 < n && (unsigned char)text[i + 1] < 0xA0;
        if (c == '\n' || c == '\t')
            KVF_TRY(kvf__buf_add(m->ctx, m->out, c == '\n' ? "\\n" : "\\t", 2));
        else if (c1)
            KVF_TRY(kvf__buf_printf(m->ctx, m->out, "\\u%04x", (unsigned char)text[++i]));
        else if (c < 0x20 || c == 0x7F)
            KVF_TRY(kvf__buf_printf(m->ctx, m->out, "\\u%04x", c));
        else
            KVF_TRY(kvf__buf_addc(m->ctx, m->out, (char)c));
    }
    return KVF_OK;
}

/* Appends the text that tokens [from, to) add to the text before them. */
static kvf_status put_tokens(const marked *m, int64_t from, int64_t to)
{
    int64_t first = from;
    kvf__buf before = {0}, whole = {0};
    while (first && from - first < CONTEXT && m->ids[first - 1] >= 0)
        first--;
    kvf_status st = kvf__decode(m->ctx, m->tokenizer, m->ids + first, (size_t)(from - first), false,
                                &before);
    if (!st)
        st = kvf__decode(m->ctx, m->tokenizer, m->ids + first, (size_t)(to - first), false, &whole);
    const size_t at = before.n < whole.n ? before.n : whole.n;
    if (!st && whole.n) st = put_escaped(m, whole.data + at, whole.n - at);
    kvf__buf_done(&before);
    kvf__buf_done(&whole);
    return st;
}

static kvf_status put_part(const marked *m, int64_t from, int64_t to)
{
    if (m->ids[from] < 0)
        return kvf__buf_printf(m->ctx, m->out, "{p:%lld}", (long long)(to - from));
    if (to - from <= MOST_HEAD + MOST_TAIL) return put_tokens(m, from, to);
    KVF_TRY(put_tokens(m, from, from + MOST_HEAD));
    KVF_TRY(kvf__buf_add(m->ctx, m->out, " ... ", 5));
    return put_tokens(m, to - MOST_TAIL, to);
}

static bool has_loss(const marked *m, int64_t i)
{
    return m->labels && m->labels[i] != KVF__NO_LABEL;
}

static kvf_status put_row(const marked *m)
{
    const size_t begin = m->out->n;
    for (int64_t from = 0, to; from < m->n; from = to) {
        const bool loss = has_loss(m, from), virtual = m->ids[from] < 0;
        for (to = from + 1; to < m->n && has_loss(m, to) == loss && (m->ids[to] < 0) == virtual;)
            to++;
        if (loss) KVF_TRY(kvf__buf_add(m->ctx, m->out, OPEN, strlen(OPEN)));
        KVF_TRY(put_part(m, from, to));
        if (loss) KVF_TRY(kvf__buf_add(m->ctx, m->out, CLOSE, strlen(CLOSE)));
        if (to < m->n && m->out->n - begin > MOST_BYTES)
            return kvf__buf_add(m->ctx, m->out, " ...", 4);
    }
    return KVF_OK;
}

/* Appends the class, or the tags of the words. */
static kvf_status put_names(const marked *m, const kvf__dataset *set, const int32_t *labels)
{
    const int most = set->task == KVF__TASK_TOKEN_CLS ? MOST_NAMES : 1;
    int n = 0;
    for (int64_t i = 0; i < m->n; i++) {
        if (labels[i] < 0 || (size_t)labels[i] >= set->names.n) continue;
        if (n++ == most) return most > 1 ? kvf__buf_add(m->ctx, m->out, " ...", 4) : KVF_OK;
        const char *name = set->names.names[labels[i]];
        KVF_TRY(kvf__buf_add(m->ctx, m->out, n == 1 ? " -> " : " ", n == 1 ? 4 : 1));
        KVF_TRY(put_escaped(m, name, strlen(name)));
    }
    return KVF_OK;
}

kvf_status kvf__row_marked(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const kvf__dataset *set,
                           int64_t row, kvf__buf *out)
{
    const int64_t start = set->start[row];
    const bool lm = set->task == KVF__TASK_LM;
    const marked m = {.ctx = ctx,
                      .tokenizer = tokenizer,
                      .ids = set->ids + start,
                      .labels = lm ? set->labels + start : NULL,
                      .n = set->start[row + 1] - start,
                      .out = out};
    KVF_TRY(put_row(&m));
    return lm || set->phrases ? KVF_OK : put_names(&m, set, set->labels + start);
}
