/* tokenizer.model and spiece.model: the protobuf of SentencePiece, or lines of tiktoken. Read as a
 * file, and as the text that a base file stores for SentencePiece. */
#include "fuzz_text.h"
#include "tok_files.h"

#include <string.h>

static const char TEXT[] =
    "The  bridge, \xC3\xA9t\xC3\xA9 \xEF\xAC\x81 \xF0\x9F\x99\x82 \xE2\x96\x81 12.5\n";

typedef kvf_status read_fn(const kvf__tok_source *src, kvf__tokenizer *t);

static void read_file(kvf_ctx *ctx, kvf__tok_file i, read_fn *read, const uint8_t *data, size_t n)
{
    kvf__tok_source src = {.ctx = ctx, .where = "folder"};
    kvf__tokenizer *tokenizer = NULL;

    src.path[i] = "a.model";
    src.text[i] = (kvf__buf){.data = (char *)data, .n = n};
    if (kvf__tokenizer_create(ctx, &tokenizer)) return;
    if (!read(&src, tokenizer) && !kvf__tokenizer_finish(ctx, "fuzz", tokenizer))
        fuzz_use_tokenizer(tokenizer, TEXT, sizeof TEXT - 1);
    kvf__tokenizer_free(tokenizer);
}

/* Frees it. */
static void read_text(kvf_ctx *ctx, char *json)
{
    const kvf__text_file file = {"tokenizer.gguf.json", json};
    kvf__tokenizer *tokenizer = NULL;

    if (!kvf__tokenizer_from_texts(ctx, "base", &file, 1, &tokenizer))
        fuzz_use_tokenizer(tokenizer, TEXT, sizeof TEXT - 1);
    kvf__tokenizer_free(tokenizer);
    kvf__free(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *bytes = (const char *)data;
    kvf_ctx *ctx = fuzz_context();
    char *json = NULL;

    read_file(ctx, KVF__FILE_MODEL, kvf__read_model, data, n);
    read_file(ctx, KVF__FILE_SPIECE, kvf__read_spiece, data, n);
    if (!kvf__sentencepiece_to_json(ctx, "model", bytes, n, &json)) read_text(ctx, json);
    if (!kvf__spiece_to_json(ctx, "model", bytes, n, NULL, &json)) read_text(ctx, json);
    return 0;
}
