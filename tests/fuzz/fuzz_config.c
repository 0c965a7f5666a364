/* config.json of a Hugging Face folder: the model description, and the shapes of all its
 * weights. */
#include "desc.h"
#include "fuzz.h"

enum { MOST_WEIGHTS = 1000 };

/* A config may claim a billion layers; the file with the weights is the limit. */
static kvf_status count_weight(void *user, const char *name, int rank, const int64_t *dim)
{
    int *n = user;
    fuzz_touch(name, 1);
    fuzz_touch(dim, sizeof *dim * (size_t)rank);
    return ++*n > MOST_WEIGHTS ? KVF_ESTOPPED : KVF_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    kvf_ctx *ctx = fuzz_context();
    kvf_json *config = NULL;
    kvf__desc desc = {0};
    int weights = 0;
    if (kvf_json_parse(ctx, "config.json", (const char *)data, n, &config)) return 0;
    if (!kvf__desc_from_hf(ctx, "config.json", config, &desc)) {
        kvf__desc_weights(&desc, count_weight, &weights);
        kvf__desc_done(&desc);
    }
    kvf_json_free(config);
    return 0;
}
