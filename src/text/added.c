/* Added tokens: cutting a text at them.
 *
 * Leftmost, then longest, over a trie walked from every byte that begins some token; the
 * tokens are few and short, so no automaton is needed. Options are applied after the match, as
 * `tokenizers` does: a token that is not a single word is skipped together with its text; lstrip
 * takes spaces to its left that no earlier match took; rstrip takes those to its right, and the
 * search still goes on right behind the token. */
#include "added.h"
#include "chars.h"
#include "utf8.h"

#include <string.h>

/* ---- the trie -------------------------------------------------------------------------------- */

static kvf_status add_node(kvf_ctx *ctx, kvf__trie *trie, uint8_t byte, int32_t *out)
{
    KVF_TRY(kvf__reserve(ctx, &trie->v, &trie->cap, trie->n + 1, sizeof *trie->v));
    if (trie->n >= INT32_MAX)
        return kvf__fail(ctx, KVF_EFORMAT, "added tokens are too long together");
    trie->v[trie->n] = (struct kvf__trie_node){
        .child = -1, .sibling = -1, .value = -1, .byte = byte};
    *out = (int32_t)trie->n++;
    return KVF_OK;
}

static int32_t find_child(const kvf__trie *trie, int32_t node, uint8_t byte)
{
    int32_t child = trie->v[node].child;
    while (child >= 0 && trie->v[child].byte != byte)
        child = trie->v[child].sibling;
    return child;
}

/* Of two equal texts the first stays. */
kvf_status kvf__trie_add(kvf_ctx *ctx, kvf__trie *trie, const char *text, size_t n, int32_t value)
{
    int32_t node = 0;

    if (n == 0) return KVF_OK;
    if (trie->n == 0) KVF_TRY(add_node(ctx, trie, 0, &node));
    for (size_t i = 0; i < n; i++) {
        int32_t child = find_child(trie, node, (uint8_t)text[i]);
        if (child < 0) {
            KVF_TRY(add_node(ctx, trie, (uint8_t)text[i], &child));
            trie->v[child].sibling = trie->v[node].child;
            trie->v[node].child = child;
        }
        node = child;
    }
    if (trie->v[node].value < 0) trie->v[node].value = value;
    trie->first[(uint8_t)text[0]] = true;
    return KVF_OK;
}

/* The longest entry that the text begins with: its value and length, or -1. */
static int32_t longest_prefix(const kvf__trie *trie, const char *s, size_t n, size_t *length)
{
    int32_t node = 0, value = -1;

    for (size_t i = 0; i < n; i++) {
        node = find_child(trie, node, (uint8_t)s[i]);
        if (node < 0) break;
        if (trie->v[node].value < 0) continue;
        value = trie->v[node].value;
        *length = i + 1;
    }
    return value;
}

/* ---- the list -------------------------------------------------------------------------------- */

kvf_status kvf__added_put(kvf_ctx *ctx, kvf__added_list *list, const kvf__added *token)
{
    kvf__added copy = *token;

    if (token->n == 0) return KVF_OK;
    for (size_t i = 0; i < list->n; i++) {
        kvf__added *old = &list->v[i];
        if (old->n != token->n || memcmp(old->text, token->text, token->n) != 0) continue;
        copy.text = old->text;
        *old = copy;
        return KVF_OK;
    }
    KVF_TRY(kvf__reserve(ctx, &list->v, &list->cap, list->n + 1, sizeof *list->v));
    KVF_TRY(kvf__strndup(ctx, token->text, token->n, &copy.text));
    list->v[list->n++] = copy;
    return KVF_OK;
}

void kvf__added_done(kvf__added_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        kvf__free(list->v[i].text);
    kvf__free(list->v);
    kvf__free(list->raw.v);
    kvf__free(list->normal.v);
    *list = (kvf__added_list){0};
}

/* ---- cutting --------------------------------------------------------------------------------- */

static bool word_before(const char *s, size_t at)
{
    uint32_t cp;
    size_t start;

    if (at == 0) return false;
    start = kvf__utf8_before(s, at);
    kvf__utf8_next(s + start, at - start, &cp);
    return kvf__is_word(cp);
}

static bool word_after(const char *s, size_t n, size_t at)
{
    uint32_t cp;

    if (at == n) return false;
    kvf__utf8_next(s + at, n - at, &cp);
    return kvf__is_word(cp);
}

/* The next match that its options accept, as found_start .. found_end. */
static bool find_match(const kvf__added_list *list, const kvf__trie *trie, kvf__cut *cut)
{
    const char *s = cut->s;

    while (cut->search_at < cut->n) {
        size_t start = cut->search_at, length = 0, end, left;
        int32_t value = -1;

        if (trie->first[(uint8_t)s[start]])
            value = longest_prefix(trie, s + start, cut->n - start, &length);
        cut->search_at += value < 0 ? 1 : length;
        if (value < 0) continue;
        end = start + length;
        cut->found = &list->v[value];
        if (cut->found->single_word && (word_before(s, start) || word_after(s, cut->n, end)))
            continue;
        left = cut->found->lstrip ? kvf__utf8_skip_back(s, start, kvf__is_space) : start;
        cut->found_start = cut->found->lstrip && left < cut->done ? cut->done : left;
        cut->found_end = cut->found->rstrip ? kvf__utf8_skip(s, cut->n, end, kvf__is_space) : end;
        return true;
    }
    cut->found = NULL;
    return false;
}

bool kvf__added_next(const kvf__added_list *list, const kvf__trie *trie, kvf__cut *cut)
{
    bool found = cut->found != NULL;

    if (!found && trie->n > 0) found = find_match(list, trie, cut);
    if (!found && cut->done >= cut->n) return false;
    cut->token = NULL;
    cut->start = cut->done;
    if (!found || cut->done < cut->found_start) {
        cut->end = cut->done = found ? cut->found_start : cut->n;
        return true;
    }
    cut->token = cut->found;
    cut->start = cut->found_start;
    cut->end = cut->done = cut->found_end;
    cut->found = NULL;
    return true;
}
