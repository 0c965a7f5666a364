/* Classes as words of a masked language model (--verbalizer; Schick and Schütze 2021): which word
 * means which label, and the head that reads them at [MASK].
 *
 * A word must be one token, because it replaces one [MASK]: as it follows a blank (RoBERTa's
 * "Ġgreat"), or else as it opens a text. */
#include "open_prefix.h"

#include <string.h>

/* "label=word" of n bytes into the label's place. */
static kvf_status add_item(kvf_ctx *ctx, const char *item, size_t n, char *const *labels,
                           size_t n_labels, char **words)
{
    const char *sign = memchr(item, '=', n);
    size_t label = sign ? (size_t)(sign - item) : 0, i = 0;

    if (!label || label + 1 == n)
        return kvf__fail(ctx, KVF_EUSAGE, "--verbalizer: \"%.*s\", want label=word", (int)n, item);
    while (i < n_labels && (strlen(labels[i]) != label || memcmp(labels[i], item, label)))
        i++;
    if (i == n_labels)
        return kvf__fail(ctx, KVF_EUSAGE, "--verbalizer: no row of the data has the label \"%.*s\"",
                         (int)label, item);
    if (words[i])
        return kvf__fail(ctx, KVF_EUSAGE, "--verbalizer: label \"%s\" comes twice", labels[i]);
    return kvf__strndup(ctx, sign + 1, n - label - 1, &words[i]);
}

static kvf_status check_words(kvf_ctx *ctx, char *const *labels, size_t n, char *const *words)
{
    for (size_t i = 0; i < n; i++)
        if (!words[i])
            return kvf__fail(ctx, KVF_EUSAGE, "--verbalizer: label \"%s\" of the data has no word",
                             labels[i]);
    return KVF_OK;
}

kvf_status kvf__verbalizer_words(kvf_ctx *ctx, const char *text, char *const *labels, size_t n,
                                 char ***out)
{
    char **words = NULL;
    kvf_status st;

    KVF_TRY(kvf__utf8_check(ctx, "--verbalizer", text, strlen(text), false));
    st = kvf__alloc_array(ctx, n, sizeof *words, &words);
    for (const char *at = text; !st && *at;) {
        size_t length = strcspn(at, ",");
        st = add_item(ctx, at, length, labels, n, words);
        at += length + (at[length] == ',');
    }
    if (!st) st = check_words(ctx, labels, n, words);
    if (st)
        kvf__strings_free(words, n);
    else
        *out = words;
    return st;
}

/* ---- on a base ------------------------------------------------------------------------------- */

/* The one token of a text; -1: it is none, more, or unknown. */
static kvf_status one_token(kvf_ctx *ctx, const kvf_base *base, const char *text, int32_t *id)
{
    kvf__ids ids = {0};

    *id = -1;
    kvf_status st = kvf__encode(ctx, base->tokenizer, text, strlen(text), false, &ids);
    if (!st && ids.n == 1 && kvf__token_is_ordinary(base->tokenizer, ids.data[0]))
        *id = ids.data[0];
    kvf__ids_done(&ids);
    return st;
}

static kvf_status word_id(kvf_ctx *ctx, const kvf_base *base, const char *word, int32_t *id)
{
    char *behind = NULL;

    KVF_TRY(kvf__asprintf(ctx, &behind, " %s", word));
    kvf_status st = one_token(ctx, base, behind, id);
    if (!st && *id < 0) st = one_token(ctx, base, word, id);
    kvf__free(behind);
    if (st || *id >= 0) return st;
    return kvf__fail(ctx, KVF_EUSAGE, "--verbalizer: \"%s\" is not one token of the base", word);
}

static kvf_status word_ids(kvf_ctx *ctx, const kvf_base *base, char *const *words, size_t n,
                           int32_t *ids)
{
    for (size_t i = 0; i < n; i++) {
        KVF_TRY(word_id(ctx, base, words[i], &ids[i]));
        for (size_t j = 0; j < i; j++)
            if (ids[j] == ids[i])
                return kvf__fail(ctx, KVF_EUSAGE, "--verbalizer: \"%s\" and \"%s\" are one token",
                                 words[j], words[i]);
    }
    return KVF_OK;
}

kvf_status kvf__verbalizer_head(kvf_ctx *ctx, const kvf_base *base, char *const *words, size_t n,
                                kvf__head **out)
{
    int32_t *ids = NULL;

    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *ids, &ids));
    kvf_status st = word_ids(ctx, base, words, n, ids);
    if (!st) st = kvf__head_create_words(ctx, base->model, ids, (int64_t)n, out);
    kvf__free(ids);
    return st;
}
