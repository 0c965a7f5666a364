/* A vocabulary as text: the tokenizer's part of GGUF metadata, stored in a base file as
 * tokenizer.gguf.json.
 *
 * tokenizer.json could not hold all of it (merges by score, unused tokens). So the fields of
 * kvf__vocab are stored and read back unchanged, and ids equal those of the GGUF. */
#include "arena.h"
#include "tok_files.h"

#include <math.h>
#include <string.h>

/* ---- writing --------------------------------------------------------------------------------- */

static kvf_json *text_list(const char *const *texts, const size_t *bytes, size_t n)
{
    kvf_json *list = kvf_json_array();

    for (size_t i = 0; i < n; i++)
        kvf_json_add(list, kvf_json_new_strn(texts[i], strnlen(texts[i], bytes[i])));
    return list;
}

/* Writes the scalars: present texts and given numbers. */
static kvf_json *new_root(const kvf__vocab *v)
{
    const struct {
        const char *key, *text;
        int32_t value;
    } rows[] = {
        {"model", v->model, -1},
        {"pre", v->pre, -1},
        {"bos", NULL, v->bos},
        {"eos", NULL, v->eos},
        {"unk", NULL, v->unk},
        {"pad", NULL, v->pad},
        {"add_bos", NULL, v->add_bos},
        {"add_eos", NULL, v->add_eos},
        {"add_space_prefix", NULL, v->add_space_prefix},
        {"collapse_spaces", NULL, v->collapse_spaces ? 1 : -1},
        {"fuse_unk", NULL, v->fuse_unk ? 1 : -1},
        {"strip_after", NULL, v->strip_after ? 1 : -1},
        {"chat_template", v->chat_template, -1},
    };
    kvf_json *root = kvf_json_object();

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].text)
            kvf_json_set(root, rows[i].key, kvf_json_new_str(rows[i].text));
        else if (rows[i].value >= 0)
            kvf_json_set(root, rows[i].key, kvf_json_new_int(rows[i].value));
    return root;
}

/* Writes bytes as two hex digits each. */
static kvf_status put_charsmap(kvf_ctx *ctx, const kvf__vocab *v, kvf_json *root)
{
    kvf__buf digits = {0};
    kvf_status st = KVF_OK;

    for (size_t i = 0; i < v->charsmap_bytes && !st; i++)
        st = kvf__buf_printf(ctx, &digits, "%02x", v->charsmap[i]);
    if (!st && digits.n) kvf_json_set(root, "charsmap", kvf_json_new_strn(digits.data, digits.n));
    kvf__buf_done(&digits);
    return st;
}

kvf_status kvf__vocab_to_json(kvf_ctx *ctx, const kvf__vocab *v, char **out)
{
    kvf_json *root = new_root(v), *scores = NULL, *types = NULL;

    kvf_json_set(root, "tokens", text_list(v->tokens, v->token_bytes, v->n_tokens));
    if (v->scores) kvf_json_set(root, "scores", scores = kvf_json_array());
    if (v->types) kvf_json_set(root, "types", types = kvf_json_array());
    for (size_t i = 0; i < v->n_tokens; i++) {
        if (scores) kvf_json_add(scores, kvf_json_new_real((double)v->scores[i]));
        if (types) kvf_json_add(types, kvf_json_new_int(v->types[i]));
    }
    kvf_json_set(root, "merges", text_list(v->merges, v->merge_bytes, v->n_merges));
    kvf_status st = put_charsmap(ctx, v, root);
    char *text = st ? NULL : kvf_json_text(root, KVF_JSON_COMPACT);
    if (!st) st = text ? kvf__strdup(ctx, text, out) : kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    kvf_json_text_free(text);
    kvf_json_free(root);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The lists of one vocabulary. */
typedef struct vocab_lists {
    size_t n_tokens, n_merges;
    size_t charsmap_bytes;
    bool has_scores, has_types;
    const char **tokens, **merges;
    size_t *token_bytes, *merge_bytes;
    float *scores;
    int32_t *types;
    uint8_t *charsmap;
} vocab_lists;

static void lay_lists(void *object, kvf__carver *c)
{
    vocab_lists *l = object;
    const int64_t tokens = (int64_t)l->n_tokens, merges = (int64_t)l->n_merges;

    l->tokens = kvf__carve(c, tokens, 1, sizeof *l->tokens);
    l->token_bytes = kvf__carve(c, tokens, 1, sizeof *l->token_bytes);
    l->merges = kvf__carve(c, merges, 1, sizeof *l->merges);
    l->merge_bytes = kvf__carve(c, merges, 1, sizeof *l->merge_bytes);
    if (l->has_scores) l->scores = kvf__carve(c, tokens, 1, sizeof *l->scores);
    if (l->has_types) l->types = kvf__carve(c, tokens, 1, sizeof *l->types);
    if (l->charsmap_bytes) l->charsmap = kvf__carve(c, (int64_t)l->charsmap_bytes, 1, 1);
}

static kvf_status read_texts(const kvf__tok_source *src, const char *key, const char **texts,
                             size_t *bytes, size_t n)
{
    const kvf_json *list = kvf_json_get(src->json[KVF__FILE_GGUF], key);

    for (size_t i = 0; i < n; i++) {
        texts[i] = kvf_json_str(kvf_json_at(list, i), &bytes[i]);
        if (!texts[i])
            return kvf__fail(src->ctx, KVF_EFORMAT, "%s: %s[%zu] is not a text",
                             src->path[KVF__FILE_GGUF], key, i);
    }
    return KVF_OK;
}

/* Returns a list of n numbers; *out NULL: absent. */
static kvf_status list_of(const kvf__tok_source *src, const char *key, size_t n,
                          const kvf_json **out)
{
    const kvf_json *list = kvf_json_get(src->json[KVF__FILE_GGUF], key);

    if (list && (kvf_json_typeof(list) != KVF_JSON_ARRAY || kvf_json_size(list) != n))
        return kvf__fail(src->ctx, KVF_EFORMAT,
                         "%s: %s is not a list of %zu numbers, one for each token",
                         src->path[KVF__FILE_GGUF], key, n);
    *out = list;
    return KVF_OK;
}

/* Counts the texts of a list; 0 if it is absent. */
static size_t count_texts(const kvf_json *root, const char *key)
{
    const kvf_json *list = kvf_json_get(root, key);
    return kvf_json_typeof(list) == KVF_JSON_ARRAY ? kvf_json_size(list) : 0;
}

static int hex_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static kvf_status read_charsmap(const kvf__tok_source *src, vocab_lists *l)
{
    const char *digits = kvf_json_str(kvf_json_get(src->json[KVF__FILE_GGUF], "charsmap"), NULL);

    for (size_t i = 0; i < l->charsmap_bytes; i++) {
        const int high = hex_of(digits[2 * i]), low = hex_of(digits[2 * i + 1]);
        if (high < 0 || low < 0)
            return kvf__fail(src->ctx, KVF_EFORMAT, "%s: charsmap is not hexadecimal",
                             src->path[KVF__FILE_GGUF]);
        l->charsmap[i] = (uint8_t)(high << 4 | low);
    }
    return KVF_OK;
}

static kvf_status read_lists(const kvf__tok_source *src, vocab_lists *l, void **memory)
{
    const kvf_json *root = src->json[KVF__FILE_GGUF], *scores = NULL, *types = NULL;

    l->n_tokens = count_texts(root, "tokens");
    l->n_merges = count_texts(root, "merges");
    l->has_scores = kvf_json_get(root, "scores") != NULL;
    l->has_types = kvf_json_get(root, "types") != NULL;
    (void)kvf_json_str(kvf_json_get(root, "charsmap"), &l->charsmap_bytes);
    l->charsmap_bytes /= 2;
    KVF_TRY(kvf__carve_block(src->ctx, lay_lists, l, memory));
    KVF_TRY(read_texts(src, "tokens", l->tokens, l->token_bytes, l->n_tokens));
    KVF_TRY(read_texts(src, "merges", l->merges, l->merge_bytes, l->n_merges));
    KVF_TRY(read_charsmap(src, l));
    KVF_TRY(list_of(src, "scores", l->n_tokens, &scores));
    KVF_TRY(list_of(src, "types", l->n_tokens, &types));
    for (size_t i = 0; i < l->n_tokens; i++) {
        if (scores) l->scores[i] = (float)kvf_json_real(kvf_json_at(scores, i), NAN);
        if (types) l->types[i] = (int32_t)(kvf_json_int(kvf_json_at(types, i), 0) & INT32_MAX);
    }
    return KVF_OK;
}

static int32_t int_of(const kvf_json *root, const char *key)
{
    int64_t value = kvf_json_int(kvf_json_get(root, key), -1);
    return value < 0 || value > INT32_MAX ? -1 : (int32_t)value;
}

kvf_status kvf__gguf_vocab_read(const kvf__tok_source *src, kvf__vocab *out, void **memory)
{
    const kvf_json *root = src->json[KVF__FILE_GGUF];
    vocab_lists l = {0};

    KVF_TRY(read_lists(src, &l, memory));
    *out = (kvf__vocab){
        .where = src->path[KVF__FILE_GGUF],
        .model = kvf_json_str(kvf_json_get(root, "model"), NULL),
        .pre = kvf_json_str(kvf_json_get(root, "pre"), NULL),
        .n_tokens = l.n_tokens,
        .tokens = l.tokens,
        .token_bytes = l.token_bytes,
        .scores = l.scores,
        .types = l.types,
        .n_merges = l.n_merges,
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
        .charsmap = l.charsmap,
        .charsmap_bytes = l.charsmap_bytes,
        .collapse_spaces = int_of(root, "collapse_spaces") == 1,
        .fuse_unk = int_of(root, "fuse_unk") == 1,
        .strip_after = int_of(root, "strip_after") == 1,
    };
    return KVF_OK;
}

kvf_status kvf__read_gguf_vocab(const kvf__tok_source *src, kvf__tokenizer *t)
{
    kvf__vocab vocab = {0};
    void *memory = NULL;
    kvf_status st = kvf__gguf_vocab_read(src, &vocab, &memory);

    if (!st) st = kvf__fill_from_vocab(src->ctx, &vocab, t);
    kvf__free(memory);
    return st;
}
