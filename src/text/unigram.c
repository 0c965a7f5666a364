/* Unigram, as the model of that name in `tokenizers` and SentencePiece (Kudo 2018,
 * arXiv:1804.10959): the segmentation with the largest sum of scores (log-probabilities).
 *
 * A character outside all tokens becomes the unknown token, with a score below all others; adjacent
 * ones are fused. With byte_fallback they become the tokens of their bytes. */
#include "tok_work.h"

static kvf_status open_path(kvf__work *w, size_t n)
{
    kvf__word *word = &w->word;

    KVF_TRY(kvf__reserve(w->ctx, &word->path, &word->path_cap, n + 1, sizeof *word->path));
    for (size_t at = 0; at <= n; at++)
        word->path[at] = (kvf__path){.from = -1};
    return KVF_OK;
}

/* Keeps the first of equal sums. */
static void offer(kvf__path *end, double score, size_t from, int32_t id)
{
    if (end->from >= 0 && !(score > end->score)) return;
    *end = (kvf__path){.score = score, .from = (int32_t)from, .id = id};
}

/* Tries all tokens that begin at `at`. */
static void step_from(const kvf__work *w, const char *text, size_t at, size_t n)
{
    const kvf__tok_model *m = &w->t->model;
    const kvf__prefixes *tokens = &w->t->lex.prefixes;
    const size_t first = kvf__utf8_len(text[at]);
    const double score = w->word.path[at].score;
    bool single = false;

    for (int32_t e = kvf__prefixes_find(tokens, text + at, n - at); e >= 0;
         e = tokens->v[e].shorter) {
        const size_t end = at + tokens->v[e].n;
        const int32_t id = tokens->v[e].value;
        if (w->t->lex.v[id].flags & (KVF__TOK_UNUSED | KVF__TOK_BYTE)) continue;
        if (end < n && ((uint8_t)text[end] & 0xC0) == 0x80) continue; /* inside a character */
        offer(&w->word.path[end], score + m->scores[id], at, id);
        single |= end == at + first;
    }
    if (!single) offer(&w->word.path[at + first], score + m->unk_score, at, m->unk);
}

/* Reverses the links: each start on the best path gets the end of its token. */
static void walk_back(kvf__work *w, size_t n)
{
    kvf__path *path = w->word.path;

    for (size_t end = n; end > 0;) {
        const size_t from = (size_t)path[end].from;
        path[from].next = (int32_t)end;
        end = from;
    }
}

/* Emits unknown characters as the tokens of their bytes, if all of these exist. */
static kvf_status emit_unknown(kvf__work *w, const char *text, size_t at, size_t n)
{
    const kvf__tokenizer *t = w->t;
    bool all = t->model.byte_fallback;

    for (size_t i = 0; all && i < n; i++)
        all = t->lex.bytes[(uint8_t)text[at + i]] >= 0;
    if (!all) return kvf__emit(w, t->model.unk, at, n);
    for (size_t i = 0; i < n; i++)
        KVF_TRY(kvf__emit(w, t->lex.bytes[(uint8_t)text[at + i]], at, n));
    return KVF_OK;
}

kvf_status kvf__unigram_encode(kvf__work *w, const char *text, size_t n)
{
    const int32_t unk = w->t->model.unk;

    if (n >= INT32_MAX) return kvf__fail(w->ctx, KVF_EDATA, "a text is too long to tokenize");
    KVF_TRY(open_path(w, n));
    for (size_t at = 0; at < n; at += kvf__utf8_len(text[at]))
        step_from(w, text, at, n);
    walk_back(w, n);
    const kvf__path *path = w->word.path;
    for (size_t at = 0, end; at < n; at = end) {
        end = (size_t)path[at].next;
        const int32_t id = path[end].id;
        while (id == unk && end < n && path[path[end].next].id == unk)
            end = (size_t)path[end].next;
        KVF_TRY(id == unk ? emit_unknown(w, text, at, end - at) : kvf__emit(w, id, at, end - at));
    }
    return KVF_OK;
}
