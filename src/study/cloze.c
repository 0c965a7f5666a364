/* Questions about a document that nobody writes, the base neither: a sentence of it with a name, a
 * number or a date replaced by "what", whose answer is what was there (cloze questions; Lewis et
 * al. 2019, "Unsupervised Question Answering by Cloze Translation"). Attention matching asks the
 * document with them, at every token of question and answer: what an answer needs is read from the
 * document by the question's tokens, too. */
#include "distill_int.h"

#include <string.h>

enum {
    SHORTEST = 5, /* words of a sentence */
    AROUND = 12,  /* words kept on either side */
    LONGEST = 4,  /* words of an answer */
    ANSWERS = 3   /* of a sentence */
};
#define BLANKS " \t\r"

typedef struct cloze {
    kvf_ctx *ctx;
    const kvf__renderer *renderer;
    const char *text;
    kvf__ids from, to; /* bytes of the sentence's words */
    kvf__row_list *rows;
} cloze;

static const char *word(const cloze *c, size_t w, size_t *bytes)
{
    *bytes = (size_t)(c->to.data[w] - c->from.data[w]);
    return c->text + c->from.data[w];
}

/* A capital or a digit: of a name, a number or a date. */
static bool is_named(const cloze *c, size_t w)
{
    size_t n;
    const char *s = word(c, w, &n);
    for (size_t i = 0; i < n; i++)
        if ((s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= '0' && s[i] <= '9')) return true;
    return false;
}

/* A blank and words first .. end - 1, without marks around them. */
static kvf_status add_words(const cloze *c, size_t first, size_t end, kvf__buf *out)
{
    static const char marks[] = ".,;:()\"";
    if (first >= end) return KVF_OK;
    int32_t from = c->from.data[first], to = c->to.data[end - 1];
    while (from < to && strchr(marks, c->text[from]))
        from++;
    while (to > from && strchr(marks, c->text[to - 1]))
        to--;
    if (from == to) return KVF_OK;
    KVF_TRY(kvf__buf_addc(c->ctx, out, ' '));
    return kvf__buf_add(c->ctx, out, c->text + from, (size_t)(to - from));
}

/* What becomes of words first .. end - 1 as an answer. */
static kvf_status add_row(const cloze *c, size_t first, size_t end)
{
    const size_t n = c->from.n, begin = first > AROUND ? first - AROUND : 0;
    const size_t at = c->rows->ids.n;
    kvf__buf question = {0}, answer = {0};
    char *prompt = NULL;
    kvf_status st = add_words(c, begin, first, &question);
    if (!st) st = kvf__buf_add(c->ctx, &question, " what", 5);
    if (!st) st = add_words(c, end, end + AROUND < n ? end + AROUND : n, &question);
    if (!st) st = kvf__buf_addc(c->ctx, &question, '?');
    if (!st) st = add_words(c, first, end, &answer);
    if (!st) st = kvf__strndup(c->ctx, question.data + 1, question.n - 1, &prompt);
    if (!st) st = kvf__study_mark(c->ctx, c->renderer, &prompt);
    if (!st && answer.n)
        st = kvf__study_row(c->ctx, c->renderer, prompt, answer.data, answer.n, c->rows);
    for (size_t i = at + 1; !st && i < c->rows->ids.n; i++)
        c->rows->labels.data[i] = c->rows->ids.data[i];
    kvf__free(prompt);
    kvf__buf_done(&question);
    kvf__buf_done(&answer);
    return st;
}

static kvf_status ask_sentence(const cloze *c)
{
    const size_t n = c->from.n;
    size_t asked = 0;
    if (n < SHORTEST) return KVF_OK;
    for (size_t w = 1, end; w < n && asked < ANSWERS; w = end + 1) { /* the first has its capital */
        for (end = w; end < n && end - w < LONGEST && is_named(c, end);)
            end++;
        if (end == w) continue;
        KVF_TRY(add_row(c, w, end));
        asked++;
    }
    return asked ? KVF_OK : add_row(c, n / 2, n / 2 + 2);
}

/* A sentence ends with its line, or with a mark before a blank. */
static kvf_status ask_text(cloze *c)
{
    for (const char *at = c->text; *at;) {
        at += strspn(at, BLANKS);
        const size_t n = strcspn(at, BLANKS "\n");
        if (n) {
            KVF_TRY(kvf__ids_add(c->ctx, &c->from, (int32_t)(at - c->text)));
            KVF_TRY(kvf__ids_add(c->ctx, &c->to, (int32_t)(at + n - c->text)));
        }
        const bool ends = n && strchr(".!?", at[n - 1]);
        at += n;
        if (!ends && *at && *at != '\n') continue;
        KVF_TRY(ask_sentence(c));
        c->from.n = c->to.n = 0;
        at += *at == '\n';
    }
    return KVF_OK;
}

/* n of them, evenly spread. */
static kvf_status pick(kvf_ctx *ctx, const kvf__row_list *from, int64_t n, kvf__row_list *rows)
{
    const int64_t all = (int64_t)from->ends.n;
    for (int64_t r = 0; r < all; r++)
        if (n >= all || (r + 1) * n / all > r * n / all)
            KVF_TRY(kvf__row_list_add(ctx, rows, from, r));
    return KVF_OK;
}

kvf_status kvf__study_cloze(kvf_ctx *ctx, const kvf__document *document,
                            const kvf__renderer *renderer, int64_t n, kvf__row_list *rows)
{
    kvf__row_list all = {.longest = rows->longest};
    cloze c = {.ctx = ctx, .renderer = renderer, .text = document->text.data, .rows = &all};
    kvf_status st = n ? ask_text(&c) : KVF_OK;
    if (!st) st = pick(ctx, &all, n, rows);
    kvf__ids_done(&c.from);
    kvf__ids_done(&c.to);
    kvf__row_list_done(&all);
    return st;
}
