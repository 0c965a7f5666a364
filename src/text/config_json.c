/* tokenizer_config.json and special_tokens_map.json: names of the special tokens, the chat
 * template, and whether BOS and EOS are added.
 *
 * The rule for BOS and EOS: add_bos_token or add_eos_token, where one is written, rebuild the post-
 * processor (transformers 5; transformers 4 did so for the Llama class only, which it always has
 * written). A Llama class whose tokenizer.json adds nothing and whose config has neither adds BOS.
 */
#include "tok_files.h"

#include <stdlib.h>
#include <string.h>

bool kvf__class_is(const kvf__tok_source *src, const char *stem)
{
    const kvf_json *config = src->json[KVF__FILE_CONFIG];
    const char *name = kvf_json_str(kvf_json_get(config, "tokenizer_class"), NULL);
    size_t n = strlen(stem);

    return name && strncmp(name, stem, n) == 0 &&
           (strcmp(name + n, "Tokenizer") == 0 || strcmp(name + n, "TokenizerFast") == 0);
}

/* Adds or replaces an added token; id -1: the one its text has already, and without one it is left
 * out. */
static kvf_status put_added(const kvf__tok_source *src, kvf__tokenizer *t, kvf__added *token,
                            int64_t id)
{
    int32_t known = kvf__lexicon_find(&t->lex, token->text, token->n);

    if (known >= 0) id = known;
    if (id < 0 || token->n == 0) return KVF_OK;
    return kvf__add_token(src->ctx, t, src->path[KVF__FILE_CONFIG], token, id);
}

/* {"50256": {"content": ...}, ...} */
static kvf_status read_decoder_list(const kvf__tok_source *src, kvf__tokenizer *t)
{
    const char *where = src->path[KVF__FILE_CONFIG];
    kvf_json *list = kvf_json_get(src->json[KVF__FILE_CONFIG], "added_tokens_decoder");

    for (void *it = kvf_json_iter(list); it; it = kvf_json_next(list, it)) {
        const char *key = kvf_json_iter_key(it);
        size_t digits = strspn(key, "0123456789");
        kvf__added token = {0};

        if (digits == 0 || digits > 9 || key[digits])
            return kvf__fail(src->ctx, KVF_EFORMAT, "%s: added_tokens_decoder: \"%s\" is not an id",
                             where, key);
        KVF_TRY(kvf__read_added_token(src->ctx, where, kvf_json_iter_value(it), &token));
        KVF_TRY(put_added(src, t, &token, strtol(key, NULL, 10)));
    }
    return KVF_OK;
}

/* "x" or {"content": "x"}; the config's, or else the map's. */
const char *kvf__special_text(const kvf__tok_source *src, const char *key, size_t *n)
{
    static const kvf__tok_file files[] = {KVF__FILE_CONFIG, KVF__FILE_SPECIAL};
    const char *text = NULL;

    for (size_t i = 0; i < 2 && !text; i++) {
        const kvf_json *value = kvf_json_get(src->json[files[i]], key);
        text = kvf_json_str(value, n);
        if (!text) text = kvf_json_str(kvf_json_get(value, "content"), n);
    }
    return text;
}

/* The id of a named special token, which becomes an added token if it has an id and is none yet. */
static kvf_status read_special(const kvf__tok_source *src, kvf__tokenizer *t, const char *key,
                               int32_t *out)
{
    kvf__added token = {.special = true};
    int64_t id;

    token.text = (char *)kvf__special_text(src, key, &token.n);
    if (!token.text || token.n == 0) return KVF_OK;
    if (!kvf__map_get(&t->lex.added, token.text, token.n, &id))
        KVF_TRY(put_added(src, t, &token, -1));
    *out = kvf__lexicon_find(&t->lex, token.text, token.n);
    if (*out >= 0) t->lex.v[*out].flags |= KVF__TOK_SPECIAL;
    return KVF_OK;
}

/* A string, or a list of {"name", "template"} of which "default" counts. */
static kvf_status read_template(const kvf__tok_source *src, kvf__tokenizer *t)
{
    const kvf_json *json = kvf_json_get(src->json[KVF__FILE_CONFIG], "chat_template");
    const char *text = kvf_json_str(json, NULL);

    for (size_t i = 0; i < kvf_json_size(json) && !text; i++) {
        const kvf_json *item = kvf_json_at(json, i);
        const char *name = kvf_json_str(kvf_json_get(item, "name"), NULL);
        if (name && strcmp(name, "default") == 0)
            text = kvf_json_str(kvf_json_get(item, "template"), NULL);
    }
    return text ? kvf__strdup(src->ctx, text, &t->chat_template) : KVF_OK;
}

/* A post-processor's first and last special token are BOS and EOS where no file names them. */
static void infer_bos_eos(kvf__tokenizer *t)
{
    const kvf__ids *post = &t->post.items;

    if (post->n < 2) return;
    if (t->bos < 0 && post->data[0] != KVF__POST_TEXT) t->bos = post->data[0];
    if (t->eos < 0 && post->data[post->n - 1] != KVF__POST_TEXT) t->eos = post->data[post->n - 1];
}

static kvf_status apply_rule(const kvf__tok_source *src, kvf__tokenizer *t)
{
    const char *where = src->path[KVF__FILE_CONFIG];
    const kvf_json *config = src->json[KVF__FILE_CONFIG];
    bool given = kvf__has_bool(config, "add_bos_token") || kvf__has_bool(config, "add_eos_token");
    bool llama = kvf__class_is(src, "Llama");
    const kvf__ids *post = &t->post.items;
    bool has_bos = t->bos >= 0 && post->data[0] == t->bos;
    bool has_eos = t->eos >= 0 && post->data[post->n - 1] == t->eos;
    bool bos, eos;

    KVF_TRY(kvf__want_bool(src->ctx, where, config, "add_bos_token", llama || has_bos, &bos));
    KVF_TRY(kvf__want_bool(src->ctx, where, config, "add_eos_token", has_eos && !llama, &eos));
    return given || (llama && post->n < 2) ? kvf__post_bos_eos(src->ctx, t, bos, eos) : KVF_OK;
}

/* add_prefix_space, where written, rules over a byte-level step. */
static kvf_status apply_prefix_space(const kvf__tok_source *src, kvf__tokenizer *t)
{
    const kvf_json *config = src->json[KVF__FILE_CONFIG];

    KVF_TRY(kvf__want_bool(src->ctx, src->path[KVF__FILE_CONFIG], config, "add_prefix_space",
                           t->trim_prefix_space, &t->trim_prefix_space));
    for (size_t i = 0; i < t->pre.n && kvf__has_bool(config, "add_prefix_space"); i++)
        if (t->pre.v[i].kind == KVF__STEP_BYTE_LEVEL)
            t->pre.v[i].prefix_space = t->trim_prefix_space;
    return KVF_OK;
}

kvf_status kvf__apply_config(const kvf__tok_source *src, kvf__tokenizer *t)
{
    int32_t other = -1;
    const struct {
        const char *key;
        int32_t *id;
    } specials[] = {{"bos_token", &t->bos},  {"eos_token", &t->eos}, {"unk_token", &other},
                    {"pad_token", &t->pad},  {"sep_token", &other},  {"cls_token", &t->cls},
                    {"mask_token", &t->mask}};

    KVF_TRY(read_decoder_list(src, t));
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        KVF_TRY(read_special(src, t, specials[i].key, specials[i].id));
    infer_bos_eos(t);
    KVF_TRY(apply_rule(src, t));
    KVF_TRY(apply_prefix_space(src, t));
    return read_template(src, t);
}
