/* SentencePiece-style BPE by scores: the vocabulary of a GGUF file of type "llama" (ggml's
 * docs/gguf.md), of a tokenizer.model, and of tiktoken, with ranks as scores.
 *
 * There is no merge list. Any two neighbours whose joined text is in the vocabulary may merge, the
 * highest score first, of equal scores the leftmost (Kudo & Richardson 2018, arXiv:1808.06226).
 * Remaining symbols outside the vocabulary become their bytes' tokens. */
#include "tok_work.h"

#include <assert.h>

/* Queues the pair that begins at this symbol, if their joined text is a token. */
static kvf_status queue(kvf__work *w, const char *text, int32_t at)
{
    const kvf__symbol *left = &w->word.v[at];

    if (left->next < 0) return KVF_OK;
    uint32_t n = left->n + w->word.v[left->next].n;
    int32_t id = kvf__lexicon_model(&w->t->lex, text + left->at, n);
    if (id < 0) return KVF_OK;
    return kvf__word_push(w->ctx, &w->word,
                          (kvf__merge){.key = -w->t->model.scores[id], .at = at, .id = id, .n = n});
}

static kvf_status begin_word(kvf__work *w, const char *text, size_t n)
{
    w->word.n = w->word.heap_n = 0;
    for (size_t at = 0; at < n;) {
        size_t length = kvf__utf8_len(text[at]);
        assert(length <= n - at);
        KVF_TRY(kvf__word_add(w->ctx, &w->word, kvf__lexicon_model(&w->t->lex, text + at, length),
                              at, length));
        at += length;
    }
    for (size_t i = 0; i + 1 < w->word.n; i++)
        KVF_TRY(queue(w, text, (int32_t)i));
    return KVF_OK;
}

/* Emits the bytes of characters that are no tokens; without byte tokens the unknown token, once. */
static kvf_status emit_bytes(kvf__work *w, const char *text, size_t at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t id = w->t->lex.bytes[(uint8_t)text[at + i]];
        if (id < 0) return w->t->model.unk < 0 ? KVF_OK : kvf__emit(w, w->t->model.unk, at, n);
        KVF_TRY(kvf__emit(w, id, at, n));
    }
    return KVF_OK;
}

/* Emits the remaining symbols of the word. A run of unknown characters is emitted byte by byte,
 * with the same result. */
static kvf_status emit_word(kvf__work *w, const char *text)
{
    const kvf__word *word = &w->word;

    for (int32_t i = word->n ? 0 : -1, next; i >= 0; i = next) {
        const kvf__symbol *symbol = &word->v[i];
        size_t n = symbol->n;
        next = symbol->next;
        if (symbol->id >= 0) {
            KVF_TRY(kvf__emit(w, symbol->id, symbol->at, n));
            continue;
        }
        for (; w->t->model.fuse_unk && next >= 0 && word->v[next].id < 0; next = word->v[next].next)
            n += word->v[next].n;
        KVF_TRY(emit_bytes(w, text, symbol->at, n));
    }
    return KVF_OK;
}

kvf_status kvf__spm_encode(kvf__work *w, const char *text, size_t n)
{
    kvf__word *word = &w->word;
    kvf__merge best;

    if (w->t->model.ignore_merges) {
        const int32_t whole = kvf__lexicon_model(&w->t->lex, text, n);
        if (whole >= 0) return kvf__emit(w, whole, 0, n);
    }
    KVF_TRY(begin_word(w, text, n));
    while (kvf__word_pop(word, &best)) {
        const kvf__symbol *left = &word->v[best.at];
        if (left->n == 0 || left->next < 0 || left->n + word->v[left->next].n != best.n)
            continue; /* outdated */
        kvf__word_merge(word, best.at, best.id);
        if (left->prev >= 0) KVF_TRY(queue(w, text, left->prev));
        KVF_TRY(queue(w, text, best.at));
    }
    return emit_word(w, text);
}
