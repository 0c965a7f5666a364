/* BERT's files: the BertNormalizer of tokenizer.json, its switches in tokenizer_config.json, and
 * vocab.txt, which has no other tokenizer file.
 *
 * A GGUF with a BERT vocabulary has no switches.
 *
 * vocab.txt has a token per line, and the line number is its id. Missing switches and names of
 * special tokens have transformers' defaults. */
#include "tok_files.h"

#include <string.h>

/* ---- the normalizer -------------------------------------------------------------------------- */

/* Switches of BertNormalizer, with the names of tokenizer.json. */
typedef struct switches {
    bool clean, chinese, strip, lowercase;
} switches;

/* A strip_accents of null takes the value of lowercase. */
static kvf_status read_switches(kvf_ctx *ctx, const char *where, const kvf_json *json,
                                switches *out)
{
    KVF_TRY(kvf__want_bool(ctx, where, json, "clean_text", true, &out->clean));
    KVF_TRY(kvf__want_bool(ctx, where, json, "handle_chinese_chars", true, &out->chinese));
    KVF_TRY(kvf__want_bool(ctx, where, json, "lowercase", true, &out->lowercase));
    return kvf__want_bool(ctx, where, json, "strip_accents", out->lowercase, &out->strip);
}

static kvf_status add_normalizer(kvf_ctx *ctx, kvf__tok_steps *steps, const switches *on)
{
    const struct {
        bool wanted;
        kvf__step_kind kind;
    } rows[] = {
        {on->clean, KVF__STEP_CLEAN},         {on->chinese, KVF__STEP_SPACE_CHINESE},
        {on->strip, KVF__STEP_NFD},           {on->strip, KVF__STEP_STRIP_MARKS},
        {on->lowercase, KVF__STEP_LOWERCASE},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kvf__tok_step step = {.kind = rows[i].kind};
        if (rows[i].wanted) KVF_TRY(kvf__steps_add(ctx, steps, &step));
    }
    return KVF_OK;
}

kvf_status kvf__bert_normalizer(kvf_ctx *ctx, const char *where, const kvf_json *json,
                                kvf__tok_steps *out)
{
    switches on;

    KVF_TRY(read_switches(ctx, where, json, &on));
    return add_normalizer(ctx, out, &on);
}

/* Drops white space, then makes every punctuation character a piece. */
kvf_status kvf__bert_pre_tokenizer(kvf_ctx *ctx, const char *where, const kvf_json *json,
                                   kvf__tok_steps *out)
{
    kvf__tok_step words = {.kind = KVF__STEP_WHITESPACE_SPLIT, .behavior = KVF__REMOVED};
    kvf__tok_step punctuation = {.kind = KVF__STEP_PUNCTUATION, .behavior = KVF__ISOLATED};

    (void)where, (void)json;
    KVF_TRY(kvf__steps_add(ctx, out, &words));
    return kvf__steps_add(ctx, out, &punctuation);
}

/* Overrides the switches by those of the config. Its strip_accents of null has no effect, unless
 * lowercase changes, which accents then follow. */
static kvf_status override(const kvf__tok_source *src, bool follows, switches *on)
{
    const char *where = src->path[KVF__FILE_CONFIG];
    const kvf_json *config = src->json[KVF__FILE_CONFIG];

    KVF_TRY(
        kvf__want_bool(src->ctx, where, config, "do_lower_case", on->lowercase, &on->lowercase));
    KVF_TRY(kvf__want_bool(src->ctx, where, config, "tokenize_chinese_chars", on->chinese,
                           &on->chinese));
    return kvf__want_bool(src->ctx, where, config, "strip_accents",
                          follows ? on->lowercase : on->strip, &on->strip);
}

kvf_status kvf__bert_config(const kvf__tok_source *src, kvf__tokenizer *t)
{
    const kvf_json *normalizer = kvf_json_get(src->json[KVF__FILE_TOKENIZER], "normalizer");
    const char *type = kvf_json_str(kvf_json_get(normalizer, "type"), NULL);
    switches on;

    if (!type || strcmp(type, "BertNormalizer") != 0) return KVF_OK;
    KVF_TRY(read_switches(src->ctx, src->path[KVF__FILE_TOKENIZER], normalizer, &on));
    KVF_TRY(override(src, !kvf__has_bool(normalizer, "strip_accents"), &on));
    kvf__steps_done(&t->normalizer);
    return add_normalizer(src->ctx, &t->normalizer, &on);
}

/* ---- vocab.txt ------------------------------------------------------------------------------- */

/* Tokenizer classes with BERT's pipeline. */
static const char *const CLASSES[] = {"Bert", "DistilBert", "Electra", "MobileBert"};

/* Keys of the config, and default tokens. */
static const struct {
    const char *key, *text;
} NAMES[] = {{"unk_token", "[UNK]"},
             {"sep_token", "[SEP]"},
             {"pad_token", "[PAD]"},
             {"cls_token", "[CLS]"},
             {"mask_token", "[MASK]"}};
enum { NAME_UNK, NAME_SEP, NAME_PAD, NAME_CLS, NAME_MASK, N_NAMES };

static kvf_status check_class(const kvf__tok_source *src)
{
    const kvf_json *config = src->json[KVF__FILE_CONFIG];
    const char *name = kvf_json_str(kvf_json_get(config, "tokenizer_class"), NULL);

    if (!name) return KVF_OK;
    for (size_t i = 0; i < sizeof CLASSES / sizeof *CLASSES; i++)
        if (kvf__class_is(src, CLASSES[i])) return KVF_OK;
    return kvf__fail(
        src->ctx, KVF_EUNSUPPORTED,
        "%s: tokenizer_class \"%s\" needs a tokenizer.json, because vocab.txt is BERT's",
        src->path[KVF__FILE_CONFIG], name);
}

static kvf_status read_lines(kvf_ctx *ctx, const char *where, const kvf__buf *text,
                             kvf__tokenizer *t)
{
    const char *line = NULL;
    size_t at = 0, n = 0;

    for (int64_t id = 0; kvf__next_line(text->data, text->n, &at, &line, &n); id++) {
        if (kvf__utf8_valid(line, n) != n || memchr(line, '\0', n))
            return kvf__fail(ctx, KVF_EFORMAT, "%s:%lld: not UTF-8 text", where, (long long)id + 1);
        KVF_TRY(kvf__lexicon_put(ctx, &t->lex, where, line, n, id, 0, false));
    }
    return KVF_OK;
}

/* Adds the special tokens that the vocabulary contains. The first two and CLS are required. */
static kvf_status add_specials(kvf_ctx *ctx, const char *where, const kvf__tok_source *src,
                               kvf__tokenizer *t, int32_t ids[N_NAMES])
{
    for (size_t i = 0; i < N_NAMES; i++) {
        kvf__added token = {.special = true};

        if (src) token.text = (char *)kvf__special_text(src, NAMES[i].key, &token.n);
        if (!token.text) {
            token.text = (char *)NAMES[i].text;
            token.n = strlen(NAMES[i].text);
        }
        ids[i] = kvf__lexicon_model(&t->lex, token.text, token.n);
        if (ids[i] < 0 && (i == NAME_UNK || i == NAME_SEP || i == NAME_CLS))
            return kvf__fail(ctx, KVF_EFORMAT, "%s: %s \"%.*s\" is not among the %zu tokens", where,
                             NAMES[i].key, (int)(token.n < 60 ? token.n : 60), token.text,
                             t->lex.n);
        if (ids[i] >= 0) KVF_TRY(kvf__add_token(ctx, t, where, &token, ids[i]));
    }
    return KVF_OK;
}

/* src: source of the special tokens' names, or NULL. */
static kvf_status add_pipeline(kvf_ctx *ctx, const char *where, const kvf__tok_source *src,
                               const switches *on, kvf__tokenizer *t)
{
    int32_t ids[N_NAMES];
    kvf__tok_step decoder = {.kind = KVF__STEP_WORDPIECE, .cleanup = true, .text_n = 2};

    KVF_TRY(add_specials(ctx, where, src, t, ids));
    KVF_TRY(add_normalizer(ctx, &t->normalizer, on));
    KVF_TRY(kvf__bert_pre_tokenizer(ctx, where, NULL, &t->pre));
    KVF_TRY(kvf__strdup(ctx, "##", &t->model.prefix));
    t->model.kind = KVF__MODEL_WORDPIECE;
    t->model.max_chars = 100;
    t->model.unk = ids[NAME_UNK];
    t->cls = ids[NAME_CLS];
    t->mask = ids[NAME_MASK];
    t->has_decoder = true;
    KVF_TRY(kvf__strdup(ctx, "##", &decoder.text));
    KVF_TRY(kvf__steps_add(ctx, &t->decoder, &decoder));
    return kvf__post_cls_sep(ctx, t, ids[NAME_CLS], ids[NAME_SEP], false);
}

kvf_status kvf__bert_pipeline(kvf_ctx *ctx, const char *where, bool lowercase, kvf__tokenizer *t)
{
    const switches on = {
        .clean = true, .chinese = true, .strip = lowercase, .lowercase = lowercase};

    return add_pipeline(ctx, where, NULL, &on, t);
}

kvf_status kvf__read_vocab_txt(const kvf__tok_source *src, kvf__tokenizer *t)
{
    switches on = {.clean = true, .chinese = true, .strip = true, .lowercase = true};
    const char *where = src->path[KVF__FILE_LINES];

    KVF_TRY(check_class(src));
    KVF_TRY(read_lines(src->ctx, where, &src->text[KVF__FILE_LINES], t));
    KVF_TRY(override(src, true, &on));
    return add_pipeline(src->ctx, where, src, &on, t);
}
