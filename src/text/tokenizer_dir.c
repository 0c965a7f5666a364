/* Selecting the tokenizer of a model by its files.
 *
 * The order is tokenizer.json, tokenizer.gguf.json (a GGUF's vocabulary), vocab.json + merges.txt,
 * vocab.txt, tokenizer.model (SentencePiece, tiktoken), spiece.model (T5). tokenizer_config.json,
 * special_tokens_map.json, added_tokens.json and chat_template.jinja complement any of them. The
 * files are in a folder, or stored as texts in a base file. */
#include "infile.h"
#include "tok_files.h"

#include <string.h>

/* Size limits: a hundred times any known template, and ten times any merge list. */
static const struct {
    const char *name;
    size_t most;
} FILES[KVF__TOK_FILES] = {
    [KVF__FILE_TOKENIZER] = {"tokenizer.json", 1 << 28},
    [KVF__FILE_GGUF] = {"tokenizer.gguf.json", 1 << 28},
    [KVF__FILE_VOCAB] = {"vocab.json", 1 << 28},
    [KVF__FILE_MERGES] = {"merges.txt", 1 << 28},
    [KVF__FILE_LINES] = {"vocab.txt", 1 << 28},
    [KVF__FILE_CONFIG] = {"tokenizer_config.json", 1 << 28},
    [KVF__FILE_SPECIAL] = {"special_tokens_map.json", 1 << 28},
    [KVF__FILE_ADDED] = {"added_tokens.json", 1 << 28},
    [KVF__FILE_TEMPLATE] = {"chat_template.jinja", 1 << 20},
    [KVF__FILE_MODEL] = {"tokenizer.model", 1 << 28},
    [KVF__FILE_SPIECE] = {"spiece.model", 1 << 28},
};

const char *kvf__tokenizer_file(size_t index)
{
    return index < KVF__TOK_FILES ? FILES[index].name : NULL;
}

static kvf_status parse(kvf__tok_source *src, kvf__tok_file i)
{
    if (!src->there[i]) return KVF_OK;
    return kvf_json_parse(src->ctx, src->path[i], src->text[i].data, src->text[i].n, &src->json[i]);
}

typedef kvf_status read_fn(const kvf__tok_source *src, kvf__tokenizer *t);

/* Returns the reader of the file with the vocabulary. */
static read_fn *choose(const kvf__tok_source *src, kvf__tok_file *json)
{
    *json = KVF__FILE_TOKENIZER;
    if (src->there[KVF__FILE_TOKENIZER]) return kvf__read_tokenizer_json;
    *json = KVF__FILE_GGUF;
    if (src->there[KVF__FILE_GGUF]) return kvf__read_gguf_vocab;
    *json = KVF__FILE_VOCAB;
    if (src->there[KVF__FILE_VOCAB] && src->there[KVF__FILE_MERGES]) return kvf__read_vocab_merges;
    *json = KVF__FILE_CONFIG;
    if (src->there[KVF__FILE_LINES]) return kvf__read_vocab_txt;
    if (src->there[KVF__FILE_MODEL]) return kvf__read_model;
    return src->there[KVF__FILE_SPIECE] ? kvf__read_spiece : NULL;
}

/* chat_template.jinja overrides the config's template. */
static kvf_status read_template(const kvf__tok_source *src, kvf__tokenizer *t)
{
    const kvf__buf *text = &src->text[KVF__FILE_TEMPLATE];

    if (!src->there[KVF__FILE_TEMPLATE]) return KVF_OK;
    kvf__free(t->chat_template);
    t->chat_template = NULL;
    return kvf__strndup(src->ctx, text->data, text->n, &t->chat_template);
}

static kvf_status fill(kvf__tok_source *src, kvf__tokenizer *t)
{
    kvf__tok_file json;
    read_fn *read = choose(src, &json);
    bool beside = false; /* a GGUF has none of these */

    for (int i = KVF__FILE_CONFIG; i <= KVF__FILE_ADDED; i++) {
        KVF_TRY(parse(src, i));
        beside |= src->there[i];
    }
    if (!read)
        return kvf__fail(src->ctx, KVF_EUNSUPPORTED,
                         "%s: has none of tokenizer.json, vocab.txt, tokenizer.model, "
                         "spiece.model, and vocab.json with merges.txt",
                         src->where);
    if (json != KVF__FILE_CONFIG) KVF_TRY(parse(src, json));
    KVF_TRY(read(src, t));
    if (json != KVF__FILE_GGUF || beside) KVF_TRY(kvf__apply_config(src, t));
    KVF_TRY(read_template(src, t));
    return kvf__tokenizer_finish(src->ctx, src->where, t);
}

/* Builds a tokenizer from the files, unless `st` is an error of reading them; frees the files. */
static kvf_status build(kvf__tok_source *src, kvf_status st, kvf__tokenizer **out)
{
    kvf__tokenizer *t = NULL;

    if (!st) st = kvf__tokenizer_create(src->ctx, &t);
    if (!st) st = fill(src, t);
    KVF__GIVE(st, out, t, kvf__tokenizer_free(t));
    for (int i = 0; i < KVF__TOK_FILES; i++) {
        kvf__free(src->path[i]);
        kvf__buf_done(&src->text[i]);
        kvf_json_free(src->json[i]);
    }
    return st;
}

kvf_status kvf__tokenizer_from_dir(kvf_ctx *ctx, const char *dir, kvf__tokenizer **out)
{
    kvf__tok_source src = {.ctx = ctx, .where = dir};
    kvf_status st = KVF_OK;

    for (int i = 0; i < KVF__TOK_FILES && !st; i++) {
        st = kvf__path_join(ctx, dir, FILES[i].name, &src.path[i]);
        src.there[i] = !st && kvf__exists(src.path[i]);
        if (src.there[i]) st = kvf__read_file(ctx, src.path[i], FILES[i].most, &src.text[i]);
    }
    return build(&src, st, out);
}

kvf_status kvf__tokenizer_from_texts(kvf_ctx *ctx, const char *where, const kvf__text_file *files,
                                     size_t n, kvf__tokenizer **out)
{
    kvf__tok_source src = {.ctx = ctx, .where = where};
    kvf_status st = KVF_OK;

    for (int i = 0; i < KVF__TOK_FILES && !st; i++) {
        st = kvf__path_join(ctx, where, FILES[i].name, &src.path[i]);
        for (size_t j = 0; j < n && !st; j++) {
            if (strcmp(files[j].name, FILES[i].name) || src.there[i]) continue;
            src.there[i] = true;
            st = kvf__buf_add(ctx, &src.text[i], files[j].text, strlen(files[j].text));
        }
    }
    return build(&src, st, out);
}
