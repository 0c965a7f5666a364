/* Uses a tokenizer: encodes a text that covers every step and a text from the input, decodes ids,
 * and tests offsets, pairs and the chat template. */
#include "fuzz_text.h"

#include <string.h>

static const char TEXT[] =
    "Hello w\xc3\xb6rld, it's 2026! \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x99\x82  <s>\n\ta";

const char *fuzz_part(const uint8_t **at, size_t *left, size_t *n)
{
    const uint8_t *from = *at, *stop = *left ? memchr(from, 0x1e, *left) : NULL;
    *n = stop ? (size_t)(stop - from) : *left;
    *at = from + *n + (stop != NULL);
    *left -= *n + (stop != NULL);
    return (const char *)from;
}

static void use_on(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, const char *text, size_t n)
{
    kvf__ids ids = {0}, joined = {0}, types = {0}, origins = {0};
    kvf__buf back = {0};
    size_t a = 0, b = 0;
    if (!kvf__encode(ctx, tokenizer, text, n, true, &ids))
        kvf__decode(ctx, tokenizer, ids.data, ids.n, false, &back);
    ids.n = 0;
    if (!kvf__encode_offsets(ctx, tokenizer, text, n, &ids, &origins))
        kvf__add_specials(ctx, tokenizer, &ids, &ids, &joined, &types, &a, &b);
    kvf__ids_done(&ids);
    kvf__ids_done(&joined);
    kvf__ids_done(&types);
    kvf__ids_done(&origins);
    kvf__buf_done(&back);
}

void fuzz_use_tokenizer(const kvf__tokenizer *tokenizer, const char *text, size_t n)
{
    kvf_ctx *ctx = fuzz_context();
    kvf__chat chat = {0};

    use_on(ctx, tokenizer, TEXT, sizeof TEXT - 1);
    if (n) use_on(ctx, tokenizer, text, n);
    if (!kvf__chat_init(ctx, tokenizer, "auto", &chat)) kvf__chat_done(&chat);
}
