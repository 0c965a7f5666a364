/* The other tokenizer files of a folder or a base file: tokenizer.gguf.json, vocab.json and
 * merges.txt, vocab.txt, and additions to them. Each bit of the first byte selects a file. The
 * files follow, each ended by a byte 0x1e, and then a text. */
#include "fuzz_text.h"

enum { MOST_FILES = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t there = n ? data[0] : 0;
    kvf_ctx *ctx = fuzz_context();
    kvf__tokenizer *tokenizer = NULL;
    kvf__text_file files[MOST_FILES];
    char *copies[MOST_FILES] = {0};
    size_t n_files = 0, left = n - (n > 0), part_n;

    if (n) data++;
    for (size_t i = 0; i < MOST_FILES && kvf__tokenizer_file(i); i++) {
        if (!(there >> i & 1)) continue;
        const char *part = fuzz_part(&data, &left, &part_n);
        if (kvf__strndup(ctx, part, part_n, &copies[n_files])) break;
        files[n_files] = (kvf__text_file){kvf__tokenizer_file(i), copies[n_files]};
        n_files++;
    }
    const char *text = fuzz_part(&data, &left, &part_n);
    if (!kvf__tokenizer_from_texts(ctx, "folder", files, n_files, &tokenizer))
        fuzz_use_tokenizer(tokenizer, text, part_n);
    kvf__tokenizer_free(tokenizer);
    for (size_t i = 0; i < n_files; i++)
        kvf__free(copies[i]);
    return 0;
}
