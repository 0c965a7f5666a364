/* Classes as words of a language model (--verbalizer; Schick and Schütze 2021): the word of each
 * label, and the head that reads them at [MASK].
 *
 * A word is tokenized as after a space (RoBERTa's "Ġgreat"). On a bidirectional base it may also be
 * the token at the start of a text, if only that is a single token. If every word is one token
 * there, one row with one mask gives the scores of all (head_words.c). Otherwise, and on causal
 * bases, which predict the word as the next tokens, each class has a row of its own
 * (head_phrases.c). */
#include "verbalizer.h"

#include <string.h>

/* Stores the word of "label=word" (n bytes) at the label's index. */
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
        return kvf__fail(ctx, KVF_EUSAGE, "--verbalizer: label \"%s\" is given twice", labels[i]);
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

    KVF_TRY(kvf__utf8_check(ctx, "--verbalizer", text, strlen(text), false));
    kvf_status st = kvf__alloc_array(ctx, n, sizeof *words, &words);
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

/* Adds the label of "label=word" (n bytes) to the set. */
static kvf_status add_label(kvf_ctx *ctx, const char *item, size_t n, kvf__label_set *set)
{
    const char *sign = memchr(item, '=', n);
    size_t label = sign ? (size_t)(sign - item) : 0, bytes = set->n * sizeof *set->names;

    if (!label || label + 1 == n)
        return kvf__fail(ctx, KVF_EUSAGE, "--verbalizer: \"%.*s\", want label=word", (int)n, item);
    KVF_TRY(kvf__grow(ctx, &set->names, bytes, bytes + sizeof *set->names));
    char **name = &set->names[set->n];
    KVF_TRY(kvf__strndup(ctx, item, label, name));
    const bool twice = kvf__label_set_find(set, *name) >= 0;
    set->n++;
    if (!twice) return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE, "--verbalizer: label \"%s\" is given twice", *name);
}

kvf_status kvf__verbalizer_labels(kvf_ctx *ctx, const char *text, kvf__label_set *out)
{
    kvf__label_set set = {0};
    kvf_status st = kvf__utf8_check(ctx, "--verbalizer", text, strlen(text), false);
    for (const char *at = text; !st && *at;) {
        size_t n = strcspn(at, ",");
        st = add_label(ctx, at, n, &set);
        at += n + (at[n] == ',');
    }
    if (!st) st = kvf__label_set_sort(ctx, &set);
    KVF__GIVE(st, out, set, kvf__label_set_done(&set));
    return st;
}

/* ---- on a base ------------------------------------------------------------------------------- */

/* Appends the tokens of a text; *n: their number, 0 if one is not an ordinary token. */
static kvf_status add_tokens(kvf_ctx *ctx, const kvf_base *base, const char *text, kvf__ids *ids,
                             size_t *n)
{
    const size_t from = ids->n;

    *n = 0;
    KVF_TRY(kvf__encode(ctx, base->tokenizer, text, strlen(text), false, ids));
    for (size_t i = from; i < ids->n; i++)
        if (!kvf__token_is_ordinary(base->tokenizer, ids->data[i])) ids->n = from;
    *n = ids->n - from;
    return KVF_OK;
}

static kvf_status add_word(kvf_ctx *ctx, const kvf_base *base, const char *word, kvf__ids *ids)
{
    const bool causal = kvf__model_desc(base->model)->block.causal;
    const size_t from = ids->n;
    char *behind = NULL;
    size_t n = 0, bare = 0;

    KVF_TRY(kvf__asprintf(ctx, &behind, " %s", word));
    kvf_status st = KVF_OK;
    if (!causal) st = add_tokens(ctx, base, word, ids, &bare);
    ids->n = from;
    if (!st) st = add_tokens(ctx, base, behind, ids, &n);
    if (!st && !causal && n != 1 && bare == 1) {
        ids->n = from;
        st = add_tokens(ctx, base, word, ids, &n);
    }
    kvf__free(behind);
    if (st || n) return st;
    return kvf__fail(ctx, KVF_EUSAGE, "--verbalizer: \"%s\" is not a word of the base's vocabulary",
                     word);
}

static bool same_tokens(const kvf__ids *ids, const int64_t *start, size_t a, size_t b)
{
    const int64_t n = start[a + 1] - start[a];
    return n == start[b + 1] - start[b] &&
           !memcmp(ids->data + start[a], ids->data + start[b], (size_t)n * sizeof *ids->data);
}

static kvf_status add_words(kvf_ctx *ctx, const kvf_base *base, char *const *words, size_t n,
                            kvf__ids *ids, int64_t *start)
{
    for (size_t i = 0; i < n; i++) {
        KVF_TRY(add_word(ctx, base, words[i], ids));
        start[i + 1] = (int64_t)ids->n;
        for (size_t j = 0; j < i; j++)
            if (same_tokens(ids, start, i, j))
                return kvf__fail(ctx, KVF_EUSAGE, "--verbalizer: \"%s\" and \"%s\" are %s",
                                 words[j], words[i],
                                 start[i + 1] - start[i] == 1 ? "one token" : "the same tokens");
    }
    return KVF_OK;
}

kvf_status kvf__verbalizer_tokens(kvf_ctx *ctx, const kvf_base *base, char *const *words, size_t n,
                                  kvf__phrases *out)
{
    kvf__phrases made = {.n = (int64_t)n};
    kvf__ids ids = {0};

    KVF_TRY(kvf__alloc_array(ctx, n + 1, sizeof *made.start, &made.start));
    kvf_status st = add_words(ctx, base, words, n, &ids, made.start);
    made.ids = ids.data;
    KVF__GIVE(st, out, made, kvf__phrases_done(&made));
    return st;
}

bool kvf__phrases_needed(const kvf_base *base, const kvf__phrases *tokens)
{
    return kvf__model_desc(base->model)->block.causal || tokens->start[tokens->n] != tokens->n;
}

kvf_status kvf__verbalizer_rows(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                                kvf__phrases *tokens, kvf__dataset_options *load)
{
    const kvf__head_values *head = &prefix->file.head;

    if (!head->words) return KVF_OK;
    KVF_TRY(kvf__verbalizer_tokens(ctx, base, head->words, head->n_labels, tokens));
    if (kvf__phrases_needed(base, tokens)) load->phrases = tokens;
    return KVF_OK;
}

kvf_status kvf__verbalizer_head(kvf_ctx *ctx, const kvf_base *base, char *const *words, size_t n,
                                kvf__head **out)
{
    kvf__phrases tokens = {0};

    KVF_TRY(kvf__verbalizer_tokens(ctx, base, words, n, &tokens));
    kvf_status st = kvf__phrases_needed(base, &tokens)
                        ? kvf__head_create_phrases(ctx, base->model, out)
                        : kvf__head_create_words(ctx, base->model, tokens.ids, tokens.n, out);
    kvf__phrases_done(&tokens);
    return st;
}
