/* JSON: any text is parsed and written; the written text must parse to the same values. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    kvf_ctx *ctx = fuzz_context();
    kvf_json *value = NULL, *again = NULL;
    if (kvf_json_parse(ctx, "input:1", (const char *)data, n, &value)) return 0;
    char *text = kvf_json_text(value, KVF_JSON_COMPACT), *second = NULL;
    if (text && !kvf_json_parse(ctx, "again", text, strlen(text), &again)) {
        second = kvf_json_text(again, KVF_JSON_COMPACT);
        if (second && strcmp(text, second)) abort();
    } else if (text) {
        abort();
    }
    kvf_json_text_free(second);
    kvf_json_text_free(text);
    kvf_json_free(again);
    kvf_json_free(value);
    return 0;
}
