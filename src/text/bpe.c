/* BPE with merge ranks, as the model "BPE" of `tokenizers`.
 *
 * A word starts as its characters. A character outside the vocabulary becomes its bytes' tokens,
 * the unknown token, or nothing. Then the adjacent pair of lowest rank is merged, leftmost first,
 * until no ranked pair remains (Sennrich et al. 2016, arXiv:1508.07909). */
#include "tok_work.h"

#include <assert.h>
#include <string.h>

/* ---- merge table ----------------------------------------------------------------------------- */

/* Never 0, which marks a free slot. */
static uint64_t pair_key(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

/* Returns the slot by Fibonacci hashing, which spreads the low bits of the ids. */
static size_t pair_slot(const kvf__pairs *pairs, uint64_t key)
{
    size_t i = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (pairs->cap - 1);

    while (pairs->v[i].key != key && pairs->v[i].key != 0)
        i = (i + 1) & (pairs->cap - 1);
    return i;
}

kvf_status kvf__pairs_init(kvf_ctx *ctx, kvf__pairs *pairs, size_t n)
{
    size_t cap = 16;

    if (n >= INT32_MAX) return kvf__fail(ctx, KVF_EFORMAT, "%zu merges are too many", n);
    while (cap < n * 2)
        cap *= 2;
    KVF_TRY(kvf__alloc_array(ctx, cap, sizeof *pairs->v, &pairs->v));
    pairs->cap = cap;
    return KVF_OK;
}

static void put_pair(kvf__pairs *pairs, int32_t left, int32_t right, int32_t rank, int32_t id)
{
    uint64_t key = pair_key(left, right);
    pairs->v[pair_slot(pairs, key)] = (struct kvf__pair){.key = key, .rank = rank, .id = id};
}

static const struct kvf__pair *find_pair(const kvf__pairs *pairs, int32_t left, int32_t right)
{
    if (pairs->cap == 0) return NULL;
    const struct kvf__pair *pair = &pairs->v[pair_slot(pairs, pair_key(left, right))];
    return pair->key ? pair : NULL;
}

static kvf_status out_of_vocabulary(kvf_ctx *ctx, const char *where, size_t rank, const char *text,
                                    size_t n)
{
    return kvf__fail(ctx, KVF_EFORMAT, "%s: merge %zu: \"%.*s\" is not in the vocabulary", where,
                     rank, (int)(n < 100 ? n : 100), text);
}

kvf_status kvf__merge_put(kvf_ctx *ctx, kvf__tokenizer *t, const char *where, size_t rank,
                          const char *left, size_t left_n, const char *right, size_t right_n)
{
    size_t skip = t->model.prefix ? strlen(t->model.prefix) : 0;
    int32_t left_id = kvf__lexicon_model(&t->lex, left, left_n);
    int32_t right_id = kvf__lexicon_model(&t->lex, right, right_n);
    kvf__buf joined = {0};

    if (left_id < 0) return out_of_vocabulary(ctx, where, rank, left, left_n);
    if (right_id < 0) return out_of_vocabulary(ctx, where, rank, right, right_n);
    if (skip > right_n) skip = right_n;
    kvf_status st = kvf__buf_add(ctx, &joined, left, left_n);
    if (!st) st = kvf__buf_add(ctx, &joined, right + skip, right_n - skip);
    int32_t id = st ? -1 : kvf__lexicon_model(&t->lex, joined.data, joined.n);
    if (id >= 0)
        put_pair(&t->model.pairs, left_id, right_id, (int32_t)rank, id);
    else if (!st)
        st = out_of_vocabulary(ctx, where, rank, joined.data, joined.n);
    kvf__buf_done(&joined);
    return st;
}

kvf_status kvf__merge_line(kvf_ctx *ctx, kvf__tokenizer *t, const char *where, size_t rank,
                           const char *line, size_t n)
{
    const char *space = memchr(line, ' ', n);
    const char *right = space ? space + 1 : NULL;
    size_t right_n = space ? (size_t)(line + n - right) : 0;

    if (!space || memchr(right, ' ', right_n))
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: merge %zu is \"%.*s\", want two tokens and one space", where, rank,
                         (int)(n < 100 ? n : 100), line);
    return kvf__merge_put(ctx, t, where, rank, line, (size_t)(space - line), right, right_n);
}

/* ---- a word's first symbols ------------------------------------------------------------------ */

/* Spells the character as in the vocabulary at this position, with a prefix or suffix if any. */
static kvf_status spell(kvf__work *w, const char *s, size_t n, bool first, bool last,
                        const char **text, size_t *text_n)
{
    const kvf__tok_model *m = &w->t->model;
    kvf__buf *buf = &w->word.affixed;

    *text = s;
    *text_n = n;
    if ((first || !m->prefix) && (!last || !m->suffix)) return KVF_OK;
    buf->n = 0;
    if (!first && m->prefix) KVF_TRY(kvf__buf_add(w->ctx, buf, m->prefix, strlen(m->prefix)));
    KVF_TRY(kvf__buf_add(w->ctx, buf, s, n));
    if (last && m->suffix) KVF_TRY(kvf__buf_add(w->ctx, buf, m->suffix, strlen(m->suffix)));
    *text = buf->data;
    *text_n = buf->n;
    return KVF_OK;
}

static int32_t char_id(const kvf__lexicon *lex, const char *text, size_t n)
{
    uint32_t cp;

    if (n <= 2 && kvf__utf8_next(text, n, &cp) == n && cp < KVF__DIRECT_CHARS)
        return lex->chars[cp];
    return kvf__lexicon_model(lex, text, n);
}

/* Returns whether all bytes have a token; otherwise none is used. */
static bool has_bytes(const kvf__lexicon *lex, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (lex->bytes[(uint8_t)text[i]] < 0) return false;
    return true;
}

/* Adds a character. *unknown: bytes of a pending unknown token, with which the next one can be
 * fused. As in the library, byte tokens do not flush it, so it follows them. text: the spelled
 * character; bytes: its original length. */
static kvf_status add_char(kvf__work *w, const char *text, size_t n, size_t bytes, size_t *unknown)
{
    const kvf__tok_model *m = &w->t->model;
    const kvf__lexicon *lex = &w->t->lex;
    int32_t id = char_id(lex, text, n);

    if (id >= 0) {
        if (*unknown) KVF_TRY(kvf__word_add(w->ctx, &w->word, m->unk, 0, *unknown));
        *unknown = 0;
        return kvf__word_add(w->ctx, &w->word, id, 0, bytes);
    }
    if (m->byte_fallback && has_bytes(lex, text, n)) {
        for (size_t i = 0; i < n; i++)
            KVF_TRY(kvf__word_add(w->ctx, &w->word, lex->bytes[(uint8_t)text[i]], 0, 1));
        return KVF_OK;
    }
    if (m->unk < 0) return KVF_OK;
    if (*unknown && !m->fuse_unk) {
        KVF_TRY(kvf__word_add(w->ctx, &w->word, m->unk, 0, *unknown));
        *unknown = 0;
    }
    *unknown += bytes;
    return KVF_OK;
}

static kvf_status begin_word(kvf__work *w, const char *text, size_t n)
{
    size_t unknown = 0;

    w->word.n = w->word.heap_n = 0;
    for (size_t at = 0; at < n;) {
        size_t length = kvf__utf8_len(text[at]), spelled_n;
        const char *spelled;
        assert(length <= n - at);
        KVF_TRY(spell(w, text + at, length, at == 0, at + length == n, &spelled, &spelled_n));
        KVF_TRY(add_char(w, spelled, spelled_n, length, &unknown));
        at += length;
    }
    return unknown ? kvf__word_add(w->ctx, &w->word, w->t->model.unk, 0, unknown) : KVF_OK;
}

/* ---- merging --------------------------------------------------------------------------------- */

/* Queues the pair that begins at this symbol, if it has a rank. */
static kvf_status queue(kvf__work *w, int32_t at)
{
    const kvf__symbol *left = &w->word.v[at];

    if (left->next < 0) return KVF_OK;
    const struct kvf__pair *pair = find_pair(&w->t->model.pairs, left->id,
                                             w->word.v[left->next].id);
    if (!pair) return KVF_OK;
    return kvf__word_push(w->ctx, &w->word,
                          (kvf__merge){.key = pair->rank, .at = at, .id = pair->id});
}

static kvf_status merge_word(kvf__work *w)
{
    kvf__word *word = &w->word;
    kvf__merge best;

    for (size_t i = 0; i + 1 < word->n; i++)
        KVF_TRY(queue(w, (int32_t)i));
    while (kvf__word_pop(word, &best)) {
        const kvf__symbol *left = &word->v[best.at];

        if (left->n == 0 || left->next < 0) continue;
        const struct kvf__pair *pair = find_pair(&w->t->model.pairs, left->id,
                                                 word->v[left->next].id);
        if (!pair || pair->id != best.id) continue; /* outdated */
        kvf__word_merge(word, best.at, best.id);
        if (left->prev >= 0) KVF_TRY(queue(w, left->prev));
        KVF_TRY(queue(w, best.at));
    }
    return KVF_OK;
}

kvf_status kvf__bpe_encode(kvf__work *w, const char *text, size_t n)
{
    size_t at = 0;

    if (w->t->model.ignore_merges) {
        int32_t id = kvf__lexicon_model(&w->t->lex, text, n);
        if (id >= 0) return kvf__emit(w, id, 0, n);
    }
    KVF_TRY(begin_word(w, text, n));
    KVF_TRY(merge_word(w));
    for (int32_t i = w->word.n ? 0 : -1; i >= 0; i = w->word.v[i].next) {
        KVF_TRY(kvf__emit(w, w->word.v[i].id, at, w->word.v[i].n));
        at += w->word.v[i].n;
    }
    return KVF_OK;
}
