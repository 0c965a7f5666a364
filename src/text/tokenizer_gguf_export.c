/* A GGUF's vocabulary as files for transformers: tokenizer.json, in the format of Hugging Face's
 * tokenizers, and tokenizer_config.json.
 *
 * The steps are those of tokenizer_gguf.c. The scores of a SentencePiece vocabulary become merges
 * of tokenizers' BPE: every split of a token into two others becomes a merge, the best score first,
 * as in transformers (generate_merges). */
#include "json_pack.h"
#include "tok_files.h"

#include <stdlib.h>
#include <string.h>

#define UNDERLINE "\xE2\x96\x81" /* U+2581 */

typedef struct vocab_writer {
    kvf_ctx *ctx;
    kvf__vocab v;
    bool scores;       /* SentencePiece */
    kvf__tokenizer *t; /* tokenizer of the vocabulary */
} vocab_writer;

static kvf_json *token_text(const vocab_writer *w, int32_t id)
{
    if (id < 0 || (size_t)id >= w->v.n_tokens) return kvf_json_new_null();
    return kvf_json_new_strn(w->v.tokens[id], w->v.token_bytes[id]);
}

/* ---- vocabulary and merges ------------------------------------------------------------------- */

static kvf_json *added_tokens(const vocab_writer *w)
{
    kvf_json *list = kvf_json_array();
    for (size_t i = 0; i < w->t->added.n; i++) {
        const kvf__added *a = &w->t->added.v[i];
        kvf_json_add(list, kvf__json_pack("{s:I, s:o, s:b, s:b, s:b, s:b, s:b}", "id",
                                          (int64_t)a->id, "content", token_text(w, a->id),
                                          "single_word", 0, "lstrip", 0, "rstrip", (int)a->rstrip,
                                          "normalized", 0, "special", (int)a->special));
    }
    return list;
}

/* Writes token ids; of tokens with equal text, the one in use. */
static kvf_json *token_ids(const vocab_writer *w)
{
    kvf_json *object = kvf_json_object();
    for (size_t id = 0; id < w->v.n_tokens; id++) {
        const char *text = w->v.tokens[id];
        const int32_t used = kvf__lexicon_find(&w->t->lex, text, w->v.token_bytes[id]);
        if (used == (int32_t)id) kvf_json_set(object, text, kvf_json_new_int(used));
    }
    return object;
}

static kvf_json *given_merges(const vocab_writer *w)
{
    kvf_json *list = kvf_json_array();
    for (size_t i = 0; i < w->v.n_merges; i++)
        kvf_json_add(list, kvf_json_new_strn(w->v.merges[i], w->v.merge_bytes[i]));
    return list;
}

/* A split of a token: its first `left` bytes, of `chars` characters. */
typedef struct token_split {
    size_t id, left, chars;
    float score;
} token_split;

static int compare_splits(const void *a, const void *b)
{
    const token_split *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->chars != y->chars) return x->chars > y->chars ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Returns whether the model may build the token, or others from it. */
static bool is_piece(const vocab_writer *w, const char *text, size_t n)
{
    const int32_t id = kvf__lexicon_model(&w->t->lex, text, n);
    return id >= 0 && kvf__gguf_type(&w->v, (size_t)id) == KVF__GGUF_NORMAL;
}

/* Appends the splits of a token. */
static kvf_status split_token(const vocab_writer *w, size_t id, kvf__buf *splits)
{
    const char *text = w->v.tokens[id];
    const size_t n = w->v.token_bytes[id];
    size_t chars = 0;
    if (kvf__lexicon_model(&w->t->lex, text, n) != (int32_t)id || !is_piece(w, text, n))
        return KVF_OK;
    for (size_t at = 1; at < n; at++) {
        if (((unsigned char)text[at] & 0xC0) == 0x80) continue; /* inside a character */
        const token_split split = {id, at, ++chars, w->v.scores[id]};
        if (is_piece(w, text, at) && is_piece(w, text + at, n - at))
            KVF_TRY(kvf__buf_add(w->ctx, splits, &split, sizeof split));
    }
    return KVF_OK;
}

static kvf_status merges_of_scores(const vocab_writer *w, kvf_json *list)
{
    kvf__buf bytes = {0};
    kvf_status st = KVF_OK;
    for (size_t id = 0; id < w->v.n_tokens && !st; id++)
        st = split_token(w, id, &bytes);
    token_split *splits = (token_split *)(void *)bytes.data;
    const size_t n = bytes.n / sizeof *splits;
    if (!st && n) qsort(splits, n, sizeof *splits, compare_splits);
    for (size_t i = 0; i < n && !st; i++) {
        const char *text = w->v.tokens[splits[i].id];
        const size_t left = splits[i].left, all = w->v.token_bytes[splits[i].id];
        kvf_json_add(list, kvf__json_pack("[o, o]", kvf_json_new_strn(text, left),
                                          kvf_json_new_strn(text + left, all - left)));
    }
    kvf__buf_done(&bytes);
    return st;
}

static kvf_status model_of(const vocab_writer *w, kvf_json **out)
{
    const kvf__gguf_splitter *how = w->scores ? NULL : kvf__gguf_splitter_find(w->v.pre);
    kvf_json *merges = w->scores ? kvf_json_array() : given_merges(w);
    if (w->scores) {
        const kvf_status st = merges_of_scores(w, merges);
        if (st) {
            kvf_json_free(merges);
            return st;
        }
    }
    *out = kvf__json_pack("{s:s, s:n, s:o, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE",
                          "dropout", "unk_token", token_text(w, w->t->model.unk),
                          "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                          (int)w->scores, "byte_fallback", (int)w->scores, "ignore_merges",
                          how && how->ignore_merges, "vocab", token_ids(w), "merges", merges);
    return KVF_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static kvf_json *byte_level(bool use_regex)
{
    return kvf__json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                          "trim_offsets", 1, "use_regex", (int)use_regex);
}

static kvf_json *sequence(const char *of, kvf_json *list)
{
    return kvf__json_pack("{s:s, s:o}", "type", "Sequence", of, list);
}

static kvf_json *replace(const char *from, const char *to)
{
    return kvf__json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", from,
                          "content", to);
}

static kvf_json *normalizer_of(const vocab_writer *w)
{
    if (!w->scores)
        return kvf__gguf_splitter_find(w->v.pre)->nfc ? kvf__json_pack("{s:s}", "type", "NFC")
                                                      : kvf_json_new_null();
    kvf_json *list = kvf_json_array();
    if (w->v.add_space_prefix != 0)
        kvf_json_add(list, kvf__json_pack("{s:s, s:s}", "type", "Prepend", "prepend", UNDERLINE));
    kvf_json_add(list, replace(" ", UNDERLINE));
    return sequence("normalizers", list);
}

static kvf_json *pre_tokenizer_of(const vocab_writer *w)
{
    if (w->scores) return kvf_json_new_null();
    const kvf__gguf_splitter *how = kvf__gguf_splitter_find(w->v.pre);
    kvf_json *list = kvf_json_array();
    if (how->digits)
        kvf_json_add(list, kvf__json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1));
    if (how->regex)
        kvf_json_add(list, kvf__json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern",
                                          "Regex", kvf__split_regex(how->regex), "behavior",
                                          "Isolated", "invert", 0));
    kvf_json_add(list, byte_level(!how->regex));
    return sequence("pretokenizers", list);
}

static kvf_json *decoder_of(const vocab_writer *w)
{
    if (!w->scores) return byte_level(true);
    kvf_json *list = kvf_json_array();
    kvf_json_add(list, replace(UNDERLINE, " "));
    kvf_json_add(list, kvf__json_pack("{s:s}", "type", "ByteFallback"));
    kvf_json_add(list, kvf__json_pack("{s:s}", "type", "Fuse"));
    if (w->v.add_space_prefix != 0)
        kvf_json_add(list, kvf__json_pack("{s:s, s:s, s:I, s:I}", "type", "Strip", "content", " ",
                                          "start", (int64_t)1, "stop", (int64_t)0));
    return sequence("decoders", list);
}

/* Appends [BOS] text [EOS]; a second text has its own type. */
static void add_template(const vocab_writer *w, kvf_json *list, const char *text, int64_t type)
{
    const kvf__ids *items = &w->t->post.items;
    for (size_t i = 0; i < items->n; i++) {
        const bool is_text = items->data[i] == KVF__POST_TEXT;
        kvf_json *id = is_text ? kvf_json_new_str(text) : token_text(w, items->data[i]);
        kvf_json_add(list, kvf__json_pack("{s:{s:o, s:I}}", is_text ? "Sequence" : "SpecialToken",
                                          "id", id, "type_id", type));
    }
}

static kvf_json *post_processor_of(const vocab_writer *w)
{
    const kvf__ids *items = &w->t->post.items;
    kvf_json *single = kvf_json_array(), *pair = kvf_json_array(), *specials = kvf_json_object();
    add_template(w, single, "A", 0);
    add_template(w, pair, "A", 0);
    add_template(w, pair, "B", 1);
    for (size_t i = 0; i < items->n; i++) {
        const int32_t id = items->data[i];
        if (id == KVF__POST_TEXT) continue;
        kvf_json_set(specials, w->v.tokens[id],
                     kvf__json_pack("{s:o, s:[I], s:[o]}", "id", token_text(w, id), "ids",
                                    (int64_t)id, "tokens", token_text(w, id)));
    }
    return kvf__json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single", single,
                          "pair", pair, "special_tokens", specials);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Writes and frees the object. */
static kvf_status text_of(kvf_ctx *ctx, kvf_json *object, char **out)
{
    char *text = kvf_json_text(object, KVF_JSON_COMPACT);
    const kvf_status st = text ? kvf__strdup(ctx, text, out)
                               : kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    kvf_json_text_free(text);
    kvf_json_free(object);
    return st;
}

static kvf_status tokenizer_of(const vocab_writer *w, char **out)
{
    kvf_json *model = NULL;
    KVF_TRY(model_of(w, &model));
    return text_of(w->ctx,
                   kvf__json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:o}", "version", "1.0",
                                  "truncation", "padding", "added_tokens", added_tokens(w),
                                  "normalizer", normalizer_of(w), "pre_tokenizer",
                                  pre_tokenizer_of(w), "post_processor", post_processor_of(w),
                                  "decoder", decoder_of(w), "model", model),
                   out);
}

static kvf_status config_of(const vocab_writer *w, char **out)
{
    const struct {
        const char *name;
        int32_t id;
    } rows[] = {{"bos_token", w->t->bos},
                {"eos_token", w->t->eos},
                {"unk_token", w->t->model.unk},
                {"pad_token", w->t->pad}};
    kvf_json *object = kvf__json_pack("{s:s, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                                      "clean_up_tokenization_spaces", 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].id >= 0) kvf_json_set(object, rows[i].name, token_text(w, rows[i].id));
    if (w->v.chat_template)
        kvf_json_set(object, "chat_template", kvf_json_new_str(w->v.chat_template));
    return text_of(w->ctx, object, out);
}

static kvf_status write_both(vocab_writer *w, char **tokenizer, char **config)
{
    char *first = NULL;
    KVF_TRY(kvf__tokenizer_from_vocab(w->ctx, &w->v, &w->t));
    w->scores = w->t->model.kind == KVF__MODEL_SCORES;
    KVF_TRY(tokenizer_of(w, &first));
    const kvf_status st = config_of(w, config);
    KVF__GIVE(st, tokenizer, first, kvf__free(first));
    return st;
}

kvf_status kvf__vocab_to_transformers(kvf_ctx *ctx, const char *where, const char *gguf_json,
                                      char **tokenizer, char **config)
{
    kvf__tok_source src = {.ctx = ctx, .where = where};
    vocab_writer w = {.ctx = ctx};
    void *memory = NULL;
    src.path[KVF__FILE_GGUF] = (char *)where;
    KVF_TRY(kvf_json_parse(ctx, where, gguf_json, strlen(gguf_json), &src.json[KVF__FILE_GGUF]));
    kvf_status st = kvf__gguf_vocab_read(&src, &w.v, &memory);
    if (!st && w.v.model && !strcmp(w.v.model, "bert"))
        st = kvf__fail(ctx, KVF_EUNSUPPORTED,
                       "%s: the WordPiece vocabulary of a GGUF cannot be exported: use vocab.txt "
                       "of the model's own folder",
                       where);
    if (!st) st = write_both(&w, tokenizer, config);
    kvf__tokenizer_free(w.t);
    kvf__free(memory);
    kvf_json_free(src.json[KVF__FILE_GGUF]);
    return st;
}
