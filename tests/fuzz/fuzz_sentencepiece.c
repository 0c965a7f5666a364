/* tokenizer.model: the protobuf of SentencePiece, or tiktoken's lines; as a file, and as the text
 * that a base file keeps of the former. */
#include "fuzz_text.h"
#include "tok_files.h"

#include <string.h>

static const char TEXT[] =
    "The  bridge, \xC3\xA9t\xC3\xA9 \xEF\xAC\x81 \xF0\x9F\x99\x82 \xE2\x96\x81 12.5\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    kvf_ctx *ctx = fuzz_context();
    kvf__tok_source src = {.ctx = ctx, .where = "folder"};
    kvf__tokenizer *tokenizer = NULL;
    char *json = NULL;

    src.path[KVF__FILE_MODEL] = "tokenizer.model";
    src.text[KVF__FILE_MODEL] = (kvf__buf){.data = (char *)data, .n = n};
    if (kvf__tokenizer_create(ctx, &tokenizer)) return 0;
    if (!kvf__read_model(&src, tokenizer) && !kvf__tokenizer_finish(ctx, tokenizer))
        fuzz_use_tokenizer(tokenizer, TEXT, sizeof TEXT - 1);
    kvf__tokenizer_free(tokenizer);
    tokenizer = NULL;

    if (!kvf__sentencepiece_to_json(ctx, "model", (const char *)data, n, &json)) {
        const kvf__text_file file = {"tokenizer.gguf.json", json};
        if (!kvf__tokenizer_from_texts(ctx, "base", &file, 1, &tokenizer))
            fuzz_use_tokenizer(tokenizer, TEXT, sizeof TEXT - 1);
    }
    kvf__tokenizer_free(tokenizer);
    kvf__free(json);
    return 0;
}
