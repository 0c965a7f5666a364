/* tokenizer_config.json and special_tokens_map.json: names of the special tokens, the chat
 * template, and whether BOS and EOS are added.
 *
 * The rule for BOS and EOS: add_bos_token or add_eos_token, where one is written, rebuild the post-
 * processor (transformers 5; transformers 4 did so for the Llama class only, which it always has
 * written). A Llama class whose tokenizer.json adds nothing and whose config says nothing adds BOS.
 */
#include "tok_int.h"

#include <string.h>

bool kvf__class_is(const kvf_json *config, const char *stem)
{
    const char *name = kvf_json_str(kvf_json_get(config, "tokenizer_class"), NULL);
    size_t n = strlen(stem);

    return name && strncmp(name, stem, n) == 0 &&
           (strcmp(name + n, "Tokenizer") == 0 || strcmp(name + n, "TokenizerFast") == 0);
}

/* Adds or replaces an added token; id -1: the one its text has already, and without one it is left
 * out. */
static kvf_status put_added(kvf_ctx *ctx, kvf__tokenizer *t, const char *where, kvf__added *token,
                            int64_t id)
{
    int32_t known = kvf__lexicon_find(&t->lex, token->text, token->n);

    if (known >= 0) id = known;
    if (id < 0 || token->n == 0) return KVF_OK;
    KVF_TRY(kvf__lexicon_put(ctx, &t->lex, where, token->text, token->n, id,
                             token->special ? KVF__TOK_SPECIAL : 0, true));
    token->id = (int32_t)id;
    return kvf__added_put(ctx, &t->added, token);
}

/* {"50256": {"content": ...}, ...} */
static kvf_status read_decoder_list(kvf_ctx *ctx, kvf__tokenizer *t, const char *where,
                                    kvf_json *list)
{
    for (void *it = kvf_json_iter(list); it; it = kvf_json_next(list, it)) {
        const char *key = kvf_json_iter_key(it);
        size_t digits = strspn(key, "0123456789");
        int64_t id = 0;
        kvf__added token = {0};

        if (digits == 0 || digits > 9 || key[digits])
            return kvf__fail(ctx, KVF_EFORMAT, "%s: added_tokens_decoder: \"%s\" is not an id",
                             where, key);
        for (size_t i = 0; i < digits; i++)
            id = id * 10 + (key[i] - '0');
        KVF_TRY(kvf__read_added_token(ctx, where, kvf_json_iter_value(it), false, &token));
        KVF_TRY(put_added(ctx, t, where, &token, id));
    }
    return KVF_OK;
}

const char *kvf__token_field(const kvf_json *object, const char *key, size_t *n)
{
    const kvf_json *value = kvf_json_get(object, key);
    const char *text = kvf_json_str(value, n);
    return text ? text : kvf_json_str(kvf_json_get(value, "content"), n);
}

/* The id of a named special token, from the config or else the map; it becomes an added token if
 * the text has an id and is none yet. */
static kvf_status read_special(kvf_ctx *ctx, kvf__tokenizer *t, const char *where,
                               const kvf_json *config, const kvf_json *map, const char *key,
                               int32_t *out)
{
    size_t n = 0;
    const char *text = kvf__token_field(config, key, &n);
    kvf__added token = {.special = true};
    int64_t id;

    if (!text) text = kvf__token_field(map, key, &n);
    if (!text || n == 0) return KVF_OK;
    token.text = (char *)text;
    token.n = n;
    if (!kvf__map_get(&t->lex.added, text, n, &id)) KVF_TRY(put_added(ctx, t, where, &token, -1));
    *out = kvf__lexicon_find(&t->lex, text, n);
    if (*out >= 0) t->lex.v[*out].flags |= KVF__TOK_SPECIAL;
    return KVF_OK;
}

/* A string, or a list of {"name", "template"} of which "default" counts. */
static kvf_status read_template(kvf_ctx *ctx, kvf__tokenizer *t, const kvf_json *json)
{
    const char *text = kvf_json_str(json, NULL);

    for (size_t i = 0; i < kvf_json_size(json) && !text; i++) {
        const kvf_json *item = kvf_json_at(json, i);
        const char *name = kvf_json_str(kvf_json_get(item, "name"), NULL);
        if (name && strcmp(name, "default") == 0)
            text = kvf_json_str(kvf_json_get(item, "template"), NULL);
    }
    return text ? kvf__strdup(ctx, text, &t->chat_template) : KVF_OK;
}

/* A post-processor's first and last special token stand in for names that no file gives. */
static void infer_bos_eos(kvf__tokenizer *t)
{
    const kvf__ids *post = &t->post.items;

    if (post->n < 2) return;
    if (t->bos < 0 && post->data[0] != KVF__POST_TEXT) t->bos = post->data[0];
    if (t->eos < 0 && post->data[post->n - 1] != KVF__POST_TEXT) t->eos = post->data[post->n - 1];
}

static kvf_status apply_rule(kvf_ctx *ctx, kvf__tokenizer *t, const char *where,
                             const kvf_json *config)
{
    bool says_bos = kvf_json_typeof(kvf_json_get(config, "add_bos_token")) == KVF_JSON_BOOL;
    bool says_eos = kvf_json_typeof(kvf_json_get(config, "add_eos_token")) == KVF_JSON_BOOL;
    bool llama = kvf__class_is(config, "Llama");
    const kvf__ids *post = &t->post.items;
    bool has_bos = t->bos >= 0 && post->data[0] == t->bos;
    bool has_eos = t->eos >= 0 && post->data[post->n - 1] == t->eos;
    bool bos, eos;

    KVF_TRY(kvf__want_bool(ctx, where, config, "add_bos_token", llama || has_bos, &bos));
    KVF_TRY(kvf__want_bool(ctx, where, config, "add_eos_token", has_eos && !llama, &eos));
    if (says_bos || says_eos || (llama && post->n < 2)) return kvf__post_bos_eos(ctx, t, bos, eos);
    return KVF_OK;
}

/* add_prefix_space, where written, rules over a byte-level step. */
static kvf_status apply_prefix_space(kvf_ctx *ctx, kvf__tokenizer *t, const char *where,
                                     const kvf_json *config)
{
    for (size_t i = 0; i < t->pre.n; i++) {
        kvf__step *step = &t->pre.v[i];
        if (step->kind != KVF__STEP_BYTE_LEVEL) continue;
        KVF_TRY(kvf__want_bool(ctx, where, config, "add_prefix_space", step->prefix_space,
                               &step->prefix_space));
    }
    return kvf__want_bool(ctx, where, config, "add_prefix_space", t->trim_prefix_space,
                          &t->trim_prefix_space);
}

kvf_status kvf__apply_config(kvf_ctx *ctx, kvf__tokenizer *t, const char *where,
                             const kvf_json *config, const kvf_json *special_map)
{
    int32_t other = -1;

    KVF_TRY(read_decoder_list(ctx, t, where, kvf_json_get(config, "added_tokens_decoder")));
    KVF_TRY(read_special(ctx, t, where, config, special_map, "bos_token", &t->bos));
    KVF_TRY(read_special(ctx, t, where, config, special_map, "eos_token", &t->eos));
    KVF_TRY(read_special(ctx, t, where, config, special_map, "unk_token", &other));
    KVF_TRY(read_special(ctx, t, where, config, special_map, "pad_token", &other));
    KVF_TRY(read_special(ctx, t, where, config, special_map, "sep_token", &other));
    KVF_TRY(read_special(ctx, t, where, config, special_map, "cls_token", &t->cls));
    KVF_TRY(read_special(ctx, t, where, config, special_map, "mask_token", &t->mask));
    infer_bos_eos(t);
    KVF_TRY(apply_rule(ctx, t, where, config));
    KVF_TRY(apply_prefix_space(ctx, t, where, config));
    return read_template(ctx, t, kvf_json_get(config, "chat_template"));
}
