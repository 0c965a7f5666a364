/* Added tokens: cutting a text at them.
 *
 * The match is leftmost, then longest, tried at every byte that begins some token. Options apply
 * after the match, as in `tokenizers`: a match that is not a single word is skipped together with
 * its text; lstrip extends it over spaces to its left that belong to no earlier match; rstrip
 * extends it to the right, but the search continues right after the token. */
#include "added.h"
#include "chars.h"
#include "utf8.h"

#include <string.h>

/* ---- the list -------------------------------------------------------------------------------- */

kvf_status kvf__added_put(kvf_ctx *ctx, kvf__added_list *list, const kvf__added *token)
{
    kvf__added copy = *token;

    int64_t old;
    if (token->n == 0) return KVF_OK;
    if (kvf__map_get(&list->index, token->text, token->n, &old)) {
        copy.text = list->v[old].text;
        list->v[old] = copy;
        return KVF_OK;
    }
    KVF_TRY(kvf__map_put(ctx, &list->index, token->text, token->n, (int64_t)list->n));
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
    kvf__map_done(&list->index);
    kvf__prefixes_done(&list->raw);
    kvf__prefixes_done(&list->normal);
    *list = (kvf__added_list){0};
}

/* ---- cutting --------------------------------------------------------------------------------- */

static bool word_before(const char *s, size_t at)
{
    uint32_t cp;

    if (at == 0) return false;
    size_t start = kvf__utf8_before(s, at);
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

/* Finds the next match accepted by its options, as found_start .. found_end. */
static bool find_match(const kvf__added_list *list, const kvf__prefixes *texts, kvf__cut *cut)
{
    const char *s = cut->s;

    while (cut->search_at < cut->n) {
        size_t start = cut->search_at, end, left;
        int32_t entry = kvf__prefixes_find(texts, s + start, cut->n - start);

        cut->search_at += entry < 0 ? 1 : texts->v[entry].n;
        if (entry < 0) continue;
        end = cut->search_at;
        cut->found = &list->v[texts->v[entry].value];
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

bool kvf__added_next(const kvf__added_list *list, const kvf__prefixes *texts, kvf__cut *cut)
{
    bool found = cut->found != NULL;

    if (!found && texts->n > 0) found = find_match(list, texts, cut);
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
