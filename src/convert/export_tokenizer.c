/* Exports a base's tokenizer as the files of a Hugging Face folder. Those of a folder or base file
 * are copied; those of a GGUF are made from its metadata. */
#include "export.h"
#include "open_base.h"
#include "outfile.h"
#include "outfolder.h"

#include <string.h>

/* Makes the two files from a GGUF's one. */
static kvf_status convert(kvf_ctx *ctx, const char *path, const char *gguf_json,
                          kvf__base_file *file)
{
    char *tokenizer = NULL, *config = NULL;
    KVF_TRY(kvf__vocab_to_transformers(ctx, path, gguf_json, &tokenizer, &config));
    kvf_status st = kvf__base_text_add(ctx, file, "tokenizer.json", tokenizer, strlen(tokenizer));
    if (!st) st = kvf__base_text_add(ctx, file, "tokenizer_config.json", config, strlen(config));
    kvf__free(tokenizer);
    kvf__free(config);
    return st;
}

/* Writes a file of the folder by its index in the list. */
static kvf_status write_text(kvf_ctx *ctx, const char *path, bool force, const void *user)
{
    const char *text = kvf__base_text_find(user, strrchr(path, '/') + 1);
    return kvf__write_file(ctx, path, force, text, strlen(text));
}

static kvf_status write_texts(kvf_ctx *ctx, const kvf_export_options *options,
                              const kvf__base_file *file)
{
    kvf__folder_file *files = NULL;
    KVF_TRY(kvf__alloc_array(ctx, file->n_texts, sizeof *files, &files));
    const kvf__folder folder = {files, file->n_texts, "tokenizer files"};
    for (size_t i = 0; i < file->n_texts; i++)
        files[i] = (kvf__folder_file){file->texts[i].name, write_text};
    const kvf_status st = kvf__write_folder(ctx, options->out, options->force, &folder, file);
    kvf__free(files);
    return st;
}

kvf_status kvf__transformers_texts(kvf_ctx *ctx, const char *path, kvf__base_file *found,
                                   kvf__base_file *made)
{
    char *at = NULL;
    KVF_TRY(kvf__hub_find(ctx, path, &at));
    kvf_status st = kvf__base_texts(ctx, at, found);
    const char *gguf_json = st ? NULL : kvf__base_text_find(found, "tokenizer.gguf.json");
    if (gguf_json) st = convert(ctx, path, gguf_json, made);
    if (!st && !found->n_texts) st = kvf__fail(ctx, KVF_EFORMAT, "%s: has no tokenizer", path);
    kvf__free(at);
    return st;
}

kvf_status kvf__export_tokenizer(kvf_ctx *ctx, const kvf_export_options *options)
{
    kvf__base_file found = {0}, made = {0};
    kvf_status st = kvf__transformers_texts(ctx, options->path, &found, &made);
    if (!st) st = write_texts(ctx, options, made.n_texts ? &made : &found);
    kvf__base_file_done(&made);
    kvf__base_file_done(&found);
    return st;
}
