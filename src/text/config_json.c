/* tokenizer_config.json, special_tokens_map.json and added_tokens.json: added tokens, names of the
 * special tokens, the chat template, and whether BOS and EOS are added.
 *
 * BOS and EOS follow transformers 5: the post-processor of a tokenizer.json is unchanged; otherwise
 * add_bos_token or add_eos_token, if present, rebuild it. */
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

/* Adds or replaces an added token. If its text exists already, the id stays. */
static kvf_status put_added(const kvf__tok_source *src, kvf__tokenizer *t, kvf__tok_file file,
                            kvf__added *token, int64_t id)
{
    int32_t known = kvf__lexicon_find(&t->lex, token->text, token->n);

    if (token->n == 0) return KVF_OK;
    return kvf__add_token(src->ctx, t, src->path[file], token, known >= 0 ? known : id);
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
        KVF_TRY(put_added(src, t, KVF__FILE_CONFIG, &token, strtol(key, NULL, 10)));
    }
    return KVF_OK;
}

static bool lists_added(const kvf__tok_source *src)
{
    return kvf_json_get(src->json[KVF__FILE_CONFIG], "added_tokens_decoder") != NULL;
}

/* Reads {"<x>": 32000, ...}, beside a config without its own list. Special tokens are named in
 * other files. Others are matched in normalised text, unless the steps are SentencePiece's. */
static kvf_status read_added_file(const kvf__tok_source *src, kvf__tokenizer *t)
{
    const char *where = src->path[KVF__FILE_ADDED];
    kvf_json *list = src->json[KVF__FILE_ADDED];

    if (!list || lists_added(src)) return KVF_OK;
    if (kvf_json_typeof(list) != KVF_JSON_OBJECT)
        return kvf__fail(src->ctx, KVF_EFORMAT, "%s: not a JSON object, want {\"token\": id}",
                         where);
    for (void *it = kvf_json_iter(list); it; it = kvf_json_next(list, it)) {
        const char *key = kvf_json_iter_key(it);
        kvf__added token = {.text = (char *)key, .n = strlen(key)};
        const int64_t id = kvf_json_int(kvf_json_iter_value(it), -1);
        const char *other = id <= INT32_MAX ? kvf__token_text(t, (int32_t)id) : NULL;

        if (id < 0)
            return kvf__fail(src->ctx, KVF_EFORMAT,
                             "%s: the id of \"%s\" is not a number of at least 0", where, key);
        if (other && kvf__token_id(t, key) < 0)
            return kvf__fail(src->ctx, KVF_EFORMAT,
                             "%s: \"%s\" has id %lld, which belongs to \"%s\"", where, key,
                             (long long)id, other);
        token.normalized = src->there[KVF__FILE_TOKENIZER] || !t->model.scores;
        if (!kvf__map_get(&t->added.index, key, token.n, &(int64_t){0}))
            KVF_TRY(put_added(src, t, KVF__FILE_ADDED, &token, id));
    }
    return KVF_OK;
}

/* "x" or {"content": "x"} */
static const char *text_of(const kvf_json *value, size_t *n)
{
    const char *text = kvf_json_str(value, n);
    return text ? text : kvf_json_str(kvf_json_get(value, "content"), n);
}

/* special_tokens_map.json overrides a config that does not list its added tokens. */
const char *kvf__special_text(const kvf__tok_source *src, const char *key, size_t *n)
{
    const kvf__tok_file first = lists_added(src) ? KVF__FILE_CONFIG : KVF__FILE_SPECIAL;
    const char *text = text_of(kvf_json_get(src->json[first], key), n);

    if (text) return text;
    return text_of(kvf_json_get(src->json[KVF__FILE_CONFIG + KVF__FILE_SPECIAL - first], key), n);
}

/* Makes a named special token an added token if necessary; *out: its id. */
static kvf_status put_special(const kvf__tok_source *src, kvf__tokenizer *t, const char *key,
                              const char *text, size_t n, int32_t *out)
{
    kvf__added token = {.text = (char *)text, .n = n, .special = true};
    int64_t at;

    if (!text || n == 0) return KVF_OK;
    *out = kvf__lexicon_find(&t->lex, text, n);
    if (*out < 0) {
        *out = (int32_t)t->lex.n;
        kvf__log(
            src->ctx, KVF_LOG_WARN,
            "%s: %s \"%s\" has no id in any file of the tokenizer and gets %d, the next one, as "
            "in transformers",
            src->where, key, text, *out);
    }
    if (!kvf__map_get(&t->added.index, text, n, &at))
        KVF_TRY(kvf__add_token(src->ctx, t, src->where, &token, *out));
    else if (kvf_json_get(src->json[KVF__FILE_ADDED], text))
        t->added.v[at].normalized = false;
    t->lex.v[*out].flags |= KVF__TOK_SPECIAL;
    return KVF_OK;
}

/* A key with one special token, or a list or an object of them. */
static kvf_status read_others(const kvf__tok_source *src, kvf__tokenizer *t, const char *key,
                              kvf_json *value)
{
    const size_t length = strlen(key);
    int32_t id;
    size_t n = 0;
    const char *text = kvf__special_text(src, key, &n);

    if (length > 6 && !strcmp(key + length - 6, "_token"))
        return put_special(src, t, key, text, n, &id);
    if (strcmp(key, "additional_special_tokens") != 0 && strcmp(key, "extra_special_tokens") != 0)
        return KVF_OK;
    for (size_t i = 0; i < kvf_json_size(value); i++) {
        text = text_of(kvf_json_at(value, i), &n);
        KVF_TRY(put_special(src, t, key, text, n, &id));
    }
    for (void *it = kvf_json_iter(value); it; it = kvf_json_next(value, it)) {
        text = text_of(kvf_json_iter_value(it), &n);
        KVF_TRY(put_special(src, t, key, text, n, &id));
    }
    return KVF_OK;
}

/* Reads the special tokens of both files, the usual ones first. */
static kvf_status read_specials(const kvf__tok_source *src, kvf__tokenizer *t)
{
    int32_t other = -1;
    const struct {
        const char *key;
        int32_t *id;
    } specials[] = {{"bos_token", &t->bos},  {"eos_token", &t->eos}, {"unk_token", &other},
                    {"sep_token", &other},   {"pad_token", &t->pad}, {"cls_token", &t->cls},
                    {"mask_token", &t->mask}};

    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
        size_t n = 0;
        const char *text = kvf__special_text(src, specials[i].key, &n);
        KVF_TRY(put_special(src, t, specials[i].key, text, n, specials[i].id));
    }
    for (kvf__tok_file i = KVF__FILE_CONFIG; i <= KVF__FILE_SPECIAL; i++)
        for (void *it = kvf_json_iter(src->json[i]); it; it = kvf_json_next(src->json[i], it))
            KVF_TRY(read_others(src, t, kvf_json_iter_key(it), kvf_json_iter_value(it)));
    return KVF_OK;
}

/* Reads a string, or the "default" of a list of {"name", "template"}. */
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

/* Takes a post-processor's first and last special token as BOS and EOS if no file names them. */
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

    if (!given || src->there[KVF__FILE_TOKENIZER]) return KVF_OK;
    KVF_TRY(kvf__want_bool(src->ctx, where, config, "add_bos_token", llama || has_bos, &bos));
    KVF_TRY(kvf__want_bool(src->ctx, where, config, "add_eos_token", has_eos && !llama, &eos));
    return kvf__post_bos_eos(src->ctx, t, bos, eos);
}

/* Overrides the prefix space of a byte-level step by add_prefix_space, if present. */
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

/* Adds the SentencePiece steps of Llama's class: a space before the first text or, with `legacy`,
 * before each, unless there is one. */
static kvf_status apply_llama(const kvf__tok_source *src, kvf__tokenizer *t)
{
    const char *where = src->path[KVF__FILE_CONFIG];
    const kvf_json *config = src->json[KVF__FILE_CONFIG];
    kvf__tok_step spaces = {.kind = KVF__STEP_METASPACE, .text_n = 3};
    bool prefix, legacy;

    if (src->there[KVF__FILE_TOKENIZER] || t->model.kind != KVF__MODEL_SCORES ||
        t->model.ignore_merges || !kvf__class_is(src, "Llama"))
        return KVF_OK;
    KVF_TRY(kvf__want_bool(src->ctx, where, config, "add_prefix_space", true, &prefix));
    KVF_TRY(kvf__want_bool(src->ctx, where, config, "legacy", false, &legacy));
    spaces.scheme = !prefix  ? KVF__PREPEND_NEVER
                    : legacy ? KVF__PREPEND_ALWAYS
                             : KVF__PREPEND_FIRST;
    KVF_TRY(kvf__strdup(src->ctx, "\xE2\x96\x81", &spaces.text));
    kvf__steps_done(&t->normalizer);
    return kvf__steps_add(src->ctx, &t->pre, &spaces);
}

kvf_status kvf__apply_config(const kvf__tok_source *src, kvf__tokenizer *t)
{
    KVF_TRY(read_decoder_list(src, t));
    KVF_TRY(read_added_file(src, t));
    KVF_TRY(read_specials(src, t));
    infer_bos_eos(t);
    KVF_TRY(apply_rule(src, t));
    KVF_TRY(apply_prefix_space(src, t));
    KVF_TRY(apply_llama(src, t));
    return read_template(src, t);
}
