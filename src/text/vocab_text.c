/* A vocabulary as text: what GGUF metadata says of a tokenizer, kept in a base file that was made
 * of one, as tokenizer.gguf.json.
 *
 * A tokenizer.json could not say all of it (merges by score, unused tokens), so the description
 * itself is stored, under the fields of kvf__vocab, and read back into the same: ids are the
 * GGUF's by construction. */
#include "tok_files.h"

#include <math.h>

/* ---- writing --------------------------------------------------------------------------------- */

/* texts are not terminated. */
static kvf_status text_list(kvf_ctx *ctx, const char *const *texts, const size_t *bytes, size_t n,
                            kvf_json **out)
{
    kvf_json *list = kvf_json_array();
    kvf__buf text = {0};
    kvf_status st = KVF_OK;

    for (size_t i = 0; i < n && !st; i++) {
        text.n = 0;
        st = kvf__buf_add(ctx, &text, texts[i], bytes[i]);
        if (!st) kvf_json_add(list, kvf_json_new_str(text.data));
    }
    kvf__buf_done(&text);
    *out = list;
    return st;
}

static void set_text(kvf_json *root, const char *key, const char *text)
{
    if (text) kvf_json_set(root, key, kvf_json_new_str(text));
}

static void set_scalars(kvf_json *root, const kvf__vocab *v)
{
    const struct {
        const char *key;
        int32_t value;
    } rows[] = {
        {"bos", v->bos},
        {"eos", v->eos},
        {"unk", v->unk},
        {"pad", v->pad},
        {"add_bos", v->add_bos},
        {"add_eos", v->add_eos},
        {"add_space_prefix", v->add_space_prefix},
    };

    set_text(root, "model", v->model);
    set_text(root, "pre", v->pre);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].value >= 0) kvf_json_set(root, rows[i].key, kvf_json_new_int(rows[i].value));
    set_text(root, "chat_template", v->chat_template);
}

kvf_status kvf__vocab_to_json(kvf_ctx *ctx, const kvf__vocab *v, char **out)
{
    kvf_json *root = kvf_json_object(), *list = NULL;
    char *text = NULL;
    kvf_status st;

    set_scalars(root, v);
    st = text_list(ctx, v->tokens, v->token_bytes, v->n_tokens, &list);
    kvf_json_set(root, "tokens", list);
    if (st) goto out;
    if (v->scores) {
        kvf_json_set(root, "scores", list = kvf_json_array());
        for (size_t i = 0; i < v->n_tokens; i++)
            kvf_json_add(list, kvf_json_new_real((double)v->scores[i]));
    }
    if (v->types) {
        kvf_json_set(root, "types", list = kvf_json_array());
        for (size_t i = 0; i < v->n_tokens; i++)
            kvf_json_add(list, kvf_json_new_int(v->types[i]));
    }
    st = text_list(ctx, v->merges, v->merge_bytes, v->n_merges, &list);
    kvf_json_set(root, "merges", list);
    if (st) goto out;
    text = kvf_json_text(root, KVF_JSON_COMPACT);
    st = text ? kvf__strdup(ctx, text, out) : kvf__fail(ctx, KVF_ENOMEM, "out of memory");
out:
    kvf_json_text_free(text);
    kvf_json_free(root);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct lists {
    const char **tokens, **merges;
    size_t *token_bytes, *merge_bytes;
    float *scores;
    int32_t *types;
} lists;

static void lists_done(lists *l)
{
    kvf__free(l->tokens);
    kvf__free(l->merges);
    kvf__free(l->token_bytes);
    kvf__free(l->merge_bytes);
    kvf__free(l->scores);
    kvf__free(l->types);
}

/* Absent lists have no texts. */
static kvf_status read_texts(kvf_ctx *ctx, const char *where, const kvf_json *root, const char *key,
                             const char ***texts, size_t **bytes, size_t *n)
{
    const kvf_json *list = kvf_json_get(root, key);

    *n = kvf_json_typeof(list) == KVF_JSON_ARRAY ? kvf_json_size(list) : 0;
    KVF_TRY(kvf__alloc_array(ctx, *n, sizeof **texts, texts));
    KVF_TRY(kvf__alloc_array(ctx, *n, sizeof **bytes, bytes));
    for (size_t i = 0; i < *n; i++) {
        (*texts)[i] = kvf_json_str(kvf_json_at(list, i), &(*bytes)[i]);
        if (!(*texts)[i])
            return kvf__fail(ctx, KVF_EFORMAT, "%s: %s[%zu] is not a text", where, key, i);
    }
    return KVF_OK;
}

/* A list of n numbers; *out NULL: there is none. */
static kvf_status list_of(kvf_ctx *ctx, const char *where, const kvf_json *root, const char *key,
                          size_t n, const kvf_json **out)
{
    const kvf_json *list = kvf_json_get(root, key);

    if (list && (kvf_json_typeof(list) != KVF_JSON_ARRAY || kvf_json_size(list) != n))
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: %s is not a list of %zu numbers, one for each token", where, key, n);
    *out = list;
    return KVF_OK;
}

static kvf_status read_numbers(kvf_ctx *ctx, const char *where, const kvf_json *root, size_t n,
                               lists *l)
{
    const kvf_json *scores = NULL, *types = NULL;

    KVF_TRY(list_of(ctx, where, root, "scores", n, &scores));
    KVF_TRY(list_of(ctx, where, root, "types", n, &types));
    if (scores) KVF_TRY(kvf__alloc_array(ctx, n, sizeof *l->scores, &l->scores));
    if (types) KVF_TRY(kvf__alloc_array(ctx, n, sizeof *l->types, &l->types));
    for (size_t i = 0; scores && i < n; i++)
        l->scores[i] = (float)kvf_json_real(kvf_json_at(scores, i), NAN);
    for (size_t i = 0; types && i < n; i++)
        l->types[i] = (int32_t)(kvf_json_int(kvf_json_at(types, i), 0) & INT32_MAX);
    return KVF_OK;
}

static int32_t int_of(const kvf_json *root, const char *key)
{
    int64_t value = kvf_json_int(kvf_json_get(root, key), -1);
    return value < 0 || value > INT32_MAX ? -1 : (int32_t)value;
}

kvf_status kvf__read_gguf_vocab(const kvf__tok_source *src, kvf__tokenizer *t)
{
    kvf_ctx *ctx = src->ctx;
    const char *where = src->path[KVF__FILE_GGUF];
    const kvf_json *root = src->json[KVF__FILE_GGUF];
    lists l = {0};
    size_t n_tokens = 0, n_merges = 0;
    kvf_status st;

    st = read_texts(ctx, where, root, "tokens", &l.tokens, &l.token_bytes, &n_tokens);
    if (st) goto out;
    st = read_texts(ctx, where, root, "merges", &l.merges, &l.merge_bytes, &n_merges);
    if (st) goto out;
    st = read_numbers(ctx, where, root, n_tokens, &l);
    if (st) goto out;
    const kvf__vocab vocab = {
        .where = where,
        .model = kvf_json_str(kvf_json_get(root, "model"), NULL),
        .pre = kvf_json_str(kvf_json_get(root, "pre"), NULL),
        .n_tokens = n_tokens,
        .tokens = l.tokens,
        .token_bytes = l.token_bytes,
        .scores = l.scores,
        .types = l.types,
        .n_merges = n_merges,
        .merges = l.merges,
        .merge_bytes = l.merge_bytes,
        .bos = int_of(root, "bos"),
        .eos = int_of(root, "eos"),
        .unk = int_of(root, "unk"),
        .pad = int_of(root, "pad"),
        .add_bos = int_of(root, "add_bos"),
        .add_eos = int_of(root, "add_eos"),
        .add_space_prefix = int_of(root, "add_space_prefix"),
        .chat_template = kvf_json_str(kvf_json_get(root, "chat_template"), NULL),
    };
    st = kvf__fill_from_vocab(ctx, &vocab, t);
out:
    lists_done(&l);
    return st;
}
