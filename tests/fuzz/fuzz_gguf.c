/* GGUF: metadata, tensors read as f32, and the model description and tokenizer in the metadata. */
#include "fuzz.h"
#include "renderer.h"

enum { MOST_VALUES = 1 << 16 };

static void read_values(const kvf__view *view)
{
    float *values = NULL;
    int64_t n = kvf__view_count(view);
    fuzz_touch(view->data, kvf__view_bytes(view));
    if (!kvf__dtype_is_float(view->dtype) || n > MOST_VALUES ||
        kvf__alloc_array(fuzz_context(), (size_t)n, sizeof *values, &values))
        return;
    kvf__to_f32(view->dtype, view->data, values, n);
    kvf__free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    kvf_ctx *ctx = fuzz_context();
    kvf__weights weights = {0};
    kvf__tokenizer *tokenizer = NULL;
    kvf__desc desc = {0};
    kvf__ids ids = {0};

    if (kvf__gguf_parse(ctx, "input", data, n, &weights)) goto out;
    for (size_t i = 0; i < weights.table.n; i++)
        read_values(&weights.table.items[i].view);
    if (!kvf__desc_from_gguf(ctx, "input", weights.meta, &weights.table, &desc))
        kvf__desc_done(&desc);
    if (kvf__tokenizer_from_gguf(ctx, "input", &weights, &tokenizer)) goto out;
    kvf__encode(ctx, tokenizer, "a cat, 12 caf\xc3\xa9s", 18, true, &ids);
out:
    kvf__ids_done(&ids);
    kvf__tokenizer_free(tokenizer);
    kvf__weights_close(&weights);
    return 0;
}
