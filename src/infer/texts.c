/* Texts returned by the library. The length precedes each text, because it may contain U+0000. */
#include "generate.h"

#include <string.h>

kvf_status kvf__text_make(kvf_ctx *ctx, const kvf__buf *text, char **out)
{
    const size_t n = text->n;
    char *block = NULL;
    KVF_TRY(kvf__alloc(ctx, sizeof n + n + 1, &block)); /* zeroed */
    memcpy(block, &n, sizeof n);
    if (n) memcpy(block + sizeof n, text->data, n);
    *out = block + sizeof n;
    return KVF_OK;
}

size_t kvf_text_bytes(const char *text)
{
    if (!text) return 0;
    size_t n;
    memcpy(&n, text - sizeof n, sizeof n);
    return n;
}

void kvf_texts_free(char **texts, size_t n)
{
    for (size_t i = 0; texts && i < n; i++)
        if (texts[i]) kvf__free(texts[i] - sizeof(size_t));
}

void kvf_text_list_free(char **texts, size_t n)
{
    if (!texts) return;
    kvf_texts_free(texts, n);
    kvf__free(texts);
}
