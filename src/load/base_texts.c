/* The texts of a base file besides the weights: config and tokenizer of a folder or of a base file,
 * or made from a GGUF's metadata. Also reads description and tokenizer from these texts. */
#include "open_base.h"

#include <string.h>

enum { MAX_TEXT_BYTES = 1 << 28 };

kvf_status kvf__base_text_read(kvf_ctx *ctx, const char *path, const char *name,
                               kvf__base_file *file)
{
    kvf__buf text = {0};
    kvf_status st = kvf__read_file(ctx, path, MAX_TEXT_BYTES, &text);

    if (!st) st = kvf__base_text_add(ctx, file, name, text.data, text.n);
    if (st) st = kvf__fail_prefix(ctx, st, "%s", path);
    kvf__buf_done(&text);
    return st;
}

kvf_status kvf__base_config_read(kvf_ctx *ctx, const char *path, kvf__base_file *file)
{
    kvf__buf text = {0};
    kvf_status st = kvf__read_file(ctx, path, MAX_TEXT_BYTES, &text);

    if (!st && memchr(text.data, 0, text.n))
        st = kvf__fail(ctx, KVF_EFORMAT, "%s: holds a zero byte, want JSON", path);
    if (!st) st = kvf__strndup(ctx, text.data, text.n, &file->config);
    kvf__buf_done(&text);
    return st;
}

static const char MODEL[] = "tokenizer.model", SPIECE[] = "spiece.model",
                  VOCAB[] = "tokenizer.gguf.json";

const char *kvf__base_text_find(const kvf__base_file *file, const char *name)
{
    for (size_t i = 0; i < file->n_texts; i++)
        if (!strcmp(file->texts[i].name, name)) return file->texts[i].text;
    return NULL;
}

static kvf_status spiece_text(kvf_ctx *ctx, const char *path, const kvf__buf *data,
                              const kvf__base_file *file, char **out)
{
    const char *text = kvf__base_text_find(file, "tokenizer_config.json");
    kvf_json *config = NULL;

    if (text) KVF_TRY(kvf_json_parse(ctx, path, text, strlen(text), &config));
    kvf_status st = kvf__spiece_to_json(ctx, path, data->data, data->n, config, out);
    kvf_json_free(config);
    return st;
}

static kvf_status read_spiece(kvf_ctx *ctx, const char *path, kvf__base_file *file)
{
    kvf__buf data = {0};
    char *text = NULL;

    KVF_TRY(kvf__read_file(ctx, path, MAX_TEXT_BYTES, &data));
    kvf_status st = spiece_text(ctx, path, &data, file, &text);
    if (!st) st = kvf__base_text_add(ctx, file, VOCAB, text, strlen(text));
    kvf__free(text);
    kvf__buf_done(&data);
    return st;
}

/* Stores a SentencePiece model, which is binary, as the vocabulary in it. */
static kvf_status read_model(kvf_ctx *ctx, const char *path, kvf__base_file *file)
{
    kvf__buf data = {0};
    char *text = NULL;

    KVF_TRY(kvf__read_file(ctx, path, MAX_TEXT_BYTES, &data));
    const bool spm = kvf__is_sentencepiece(data.data, data.n);
    kvf_status st = spm ? kvf__sentencepiece_to_json(ctx, path, data.data, data.n, &text) : KVF_OK;
    if (!st)
        st = spm ? kvf__base_text_add(ctx, file, VOCAB, text, strlen(text))
                 : kvf__base_text_add(ctx, file, MODEL, data.data, data.n);
    kvf__free(text);
    kvf__buf_done(&data);
    return st;
}

/* Reads a tokenizer file of a folder; tokenizer.model and spiece.model only if no file of higher
 * priority exists. */
static kvf_status read_tokenizer_file(kvf_ctx *ctx, const char *path, const char *name,
                                      kvf__base_file *file)
{
    const bool spiece = !strcmp(name, SPIECE);
    if (!spiece && strcmp(name, MODEL) != 0) return kvf__base_text_read(ctx, path, name, file);
    const bool merges = kvf__base_text_find(file, "vocab.json") &&
                        kvf__base_text_find(file, "merges.txt");
    if (merges || kvf__base_text_find(file, "tokenizer.json") || kvf__base_text_find(file, VOCAB) ||
        kvf__base_text_find(file, "vocab.txt") || kvf__base_text_find(file, MODEL))
        return KVF_OK;
    return spiece ? read_spiece(ctx, path, file) : read_model(ctx, path, file);
}

kvf_status kvf__base_tokenizer_dir(kvf_ctx *ctx, const char *dir, kvf__base_file *file)
{
    for (size_t i = 0; kvf__tokenizer_file(i); i++) {
        char *path = NULL;
        KVF_TRY(kvf__path_find(ctx, dir, kvf__tokenizer_file(i), &path));
        kvf_status st = path ? read_tokenizer_file(ctx, path, kvf__tokenizer_file(i), file)
                             : KVF_OK;
        kvf__free(path);
        if (st) return st;
    }
    return KVF_OK;
}

/* Replaces ids in the config by those of a generation_config.json. */
static kvf_status replace_ids(kvf_ctx *ctx, const char *where, const kvf__token_ids *ids,
                              kvf__base_file *file)
{
    const kvf__ends *ends = &ids->ends;
    kvf_json *config = NULL, *list = kvf_json_array();

    for (int i = 0; i < ends->n; i++)
        kvf_json_add(list, kvf_json_new_int(ends->id[i]));
    kvf_status st = kvf_json_parse(ctx, where, file->config, strlen(file->config), &config);
    if (st) {
        kvf_json_free(list);
        return st;
    }
    if (ends->n)
        kvf_json_set(config, "eos_token_id", list);
    else
        kvf_json_free(list);
    if (ids->forced >= 0)
        kvf_json_set(config, "forced_bos_token_id", kvf_json_new_int(ids->forced));
    char *text = kvf_json_text(config, KVF_JSON_INDENT);
    kvf__free(file->config);
    file->config = NULL;
    st = text ? kvf__strdup(ctx, text, &file->config) : kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    kvf_json_text_free(text);
    kvf_json_free(config);
    return st;
}

kvf_status kvf__base_ends_read(kvf_ctx *ctx, const char *dir, kvf__desc *desc)
{
    char *path = NULL;
    kvf_json *root = NULL;

    KVF_TRY(kvf__path_find(ctx, dir, "generation_config.json", &path));
    if (!path) return KVF_OK;
    kvf_status st = kvf_json_load(ctx, path, &root);
    if (!st) st = kvf__desc_set_ends(ctx, path, root, desc);
    kvf_json_free(root);
    kvf__free(path);
    return st;
}

static kvf_status read_dir(kvf_ctx *ctx, const char *dir, kvf__base_file *file)
{
    kvf__desc generation = {.ids.forced = -1};
    char *path = NULL;

    KVF_TRY(kvf__path_join(ctx, dir, "config.json", &path));
    kvf_status st = kvf__base_config_read(ctx, path, file);
    if (!st) st = kvf__base_ends_read(ctx, dir, &generation);
    if (!st && (generation.ids.ends.n || generation.ids.forced >= 0))
        st = replace_ids(ctx, path, &generation.ids, file);
    kvf__free(path);
    return st ? st : kvf__base_tokenizer_dir(ctx, dir, file);
}

/* text: the vocabulary, freed by the caller. */
static kvf_status describe_gguf(kvf_ctx *ctx, const char *path, const kvf__weights *weights,
                                kvf__desc *desc, char **text, kvf__base_file *file)
{
    KVF_TRY(kvf__desc_from_gguf(ctx, path, weights->meta, &weights->table, desc));
    KVF_TRY(kvf__desc_to_hf(ctx, path, desc, &file->config));
    KVF_TRY(kvf__gguf_vocab_text(ctx, path, weights, text));
    return kvf__base_text_add(ctx, file, "tokenizer.gguf.json", *text, strlen(*text));
}

static kvf_status read_gguf(kvf_ctx *ctx, const char *path, kvf__base_file *file)
{
    kvf__weights weights = {0};
    kvf__desc desc = {0};
    char *text = NULL;

    KVF_TRY(kvf__gguf_open(ctx, path, &weights));
    kvf_status st = describe_gguf(ctx, path, &weights, &desc, &text, file);
    kvf__free(text);
    kvf__desc_done(&desc);
    kvf__weights_close(&weights);
    return st;
}

static bool is_tokenizer_file(const char *name)
{
    for (size_t i = 0; kvf__tokenizer_file(i); i++)
        if (!strcmp(name, kvf__tokenizer_file(i))) return true;
    return false;
}

/* Moves table and map to *weights. */
static kvf_status take_weights(kvf_ctx *ctx, kvf__base_file *file, kvf__weights *weights)
{
    KVF_TRY(kvf__alloc_array(ctx, 1, sizeof *weights->maps, &weights->maps));
    weights->maps[weights->n_maps++] = file->map;
    weights->table = file->table;
    file->map = (kvf__mapfile){0};
    file->table = (kvf__table){0};
    return KVF_OK;
}

kvf_status kvf__base_file_load(kvf_ctx *ctx, const char *path, kvf__weights *weights,
                               kvf__base_file *out)
{
    kvf__base_file file = {0};
    kvf_status st = kvf__base_file_open(ctx, path, weights != NULL, &file);

    for (size_t i = 0; i < file.n_texts && !st; i++)
        if (!is_tokenizer_file(file.texts[i].name))
            st = kvf__fail(ctx, KVF_EFORMAT, "%s: /tokenizer/%s: is not a tokenizer file", path,
                           file.texts[i].name);
    if (!st && weights) st = take_weights(ctx, &file, weights);
    KVF__GIVE(st, out, file, kvf__base_file_done(&file));
    return st;
}

kvf_status kvf__base_texts(kvf_ctx *ctx, const char *path, kvf__base_file *out)
{
    kvf__file_kind kind = KVF__FILE_UNKNOWN;
    kvf__base_file file = {0};

    KVF_TRY(kvf__file_kind_of(ctx, path, &kind));
    if (kind == KVF__FILE_HDF5) return kvf__base_file_load(ctx, path, NULL, out);
    if (kind != KVF__FILE_HF_DIR && kind != KVF__FILE_GGUF)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: not a base: want a Hugging Face folder, a GGUF or a kvfold base file",
                         path);
    kvf_status st = kind == KVF__FILE_GGUF ? read_gguf(ctx, path, &file)
                                           : read_dir(ctx, path, &file);
    KVF__GIVE(st, out, file, kvf__base_file_done(&file));
    return st;
}

kvf_status kvf__base_tokenizer(kvf_ctx *ctx, const char *where, const kvf__base_file *file,
                               kvf__tokenizer **out)
{
    kvf__text_file *texts = NULL;

    KVF_TRY(kvf__alloc_array(ctx, file->n_texts, sizeof *texts, &texts));
    for (size_t i = 0; i < file->n_texts; i++)
        texts[i] = (kvf__text_file){file->texts[i].name, file->texts[i].text};
    kvf_status st = kvf__tokenizer_from_texts(ctx, where, texts, file->n_texts, out);
    kvf__free(texts);
    return st;
}

kvf_status kvf__base_desc(kvf_ctx *ctx, const char *where, const kvf__base_file *file,
                          kvf__desc *out)
{
    kvf_json *config = NULL;

    KVF_TRY(kvf_json_parse(ctx, where, file->config, strlen(file->config), &config));
    kvf_status st = kvf__desc_from_hf(ctx, where, config, out);
    kvf_json_free(config);
    return st;
}
