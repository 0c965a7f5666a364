/* WordPiece, as the model of that name in `tokenizers`: repeatedly takes the longest token that is
 * a prefix of the rest of a word (Wu et al. 2016, arXiv:1609.08144).
 *
 * A word with too many characters, or with a rest without such a token, is one unknown token. */
#include "tok_work.h"

#include <string.h>

/* Spells the rest of the word as in the vocabulary; *prefix_n: length of the added prefix. At most
 * as long as the longest token. */
static kvf_status spell_rest(kvf__work *w, const char *text, size_t at, size_t n, size_t *prefix_n)
{
    const char *prefix = at > 0 ? w->t->model.prefix : NULL;
    kvf__buf *rest = &w->word.affixed;
    size_t most = w->t->lex.longest, left = n - at;

    *prefix_n = prefix ? strlen(prefix) : 0;
    rest->n = 0;
    KVF_TRY(kvf__buf_add(w->ctx, rest, prefix ? prefix : "", *prefix_n));
    if (left > most) { /* cut at a character boundary */
        left = most;
        while (left > 0 && ((uint8_t)text[at + left] & 0xC0) == 0x80)
            left--;
    }
    return kvf__buf_add(w->ctx, rest, text + at, left);
}

/* Returns the longest token at the start of the rest, and its bytes in the word; -1: none. */
static int32_t longest_token(const kvf__lexicon *lex, const kvf__buf *rest, size_t prefix_n,
                             size_t *length)
{
    const kvf__prefixes *tokens = &lex->prefixes;
    /* the common case: the whole word is a token */
    const int32_t whole = kvf__lexicon_model(lex, rest->data, rest->n);

    if (whole >= 0 && rest->n > prefix_n) {
        *length = rest->n - prefix_n;
        return whole;
    }
    int32_t e = rest->n ? kvf__prefixes_find(tokens, rest->data, rest->n) : -1;

    for (; e >= 0 && tokens->v[e].n > prefix_n; e = tokens->v[e].shorter) {
        const size_t end = tokens->v[e].n;
        if (end < rest->n && ((uint8_t)rest->data[end] & 0xC0) == 0x80) continue;
        *length = end - prefix_n;
        return tokens->v[e].value;
    }
    return -1;
}

static bool is_too_long(const char *text, size_t n, int64_t most)
{
    int64_t chars = 0;

    for (size_t at = 0; at < n && chars <= most; at += kvf__utf8_len(text[at]))
        chars++;
    return chars > most;
}

kvf_status kvf__wordpiece_encode(kvf__work *w, const char *text, size_t n)
{
    const kvf__tok_model *m = &w->t->model;
    size_t ids_n = w->out->n, offsets_n = w->offsets ? w->offsets->n : 0, length = 0;

    if (is_too_long(text, n, m->max_chars)) return kvf__emit(w, m->unk, 0, n);
    for (size_t at = 0; at < n; at += length) {
        size_t prefix_n;

        KVF_TRY(spell_rest(w, text, at, n, &prefix_n));
        int32_t id = longest_token(&w->t->lex, &w->word.affixed, prefix_n, &length);
        if (id < 0) {
            w->out->n = ids_n;
            if (w->offsets) w->offsets->n = offsets_n;
            return kvf__emit(w, m->unk, 0, n);
        }
        KVF_TRY(kvf__emit(w, id, at, length));
    }
    return KVF_OK;
}
