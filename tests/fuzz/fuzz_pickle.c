/* pytorch_model.bin: an archive as it is; and any bytes as the data.pkl of one, with a storage. */
#include "fuzz.h"
#include "torch_zip.h"

#include <string.h>

static void read_pickle(kvf_ctx *ctx, const uint8_t *data, size_t n)
{
    static const uint8_t STORAGE[64];
    static const char NAME[] = "a/data/0";
    kvf__zip_member members[] = {{STORAGE, sizeof STORAGE}};
    kvf__zip zip = {
        .ctx = ctx, .where = "archive", .members = members, .root = NAME, .root_bytes = 2};
    const kvf__zip_member pickle = {data, n};
    kvf__table table = {0};

    if (!kvf__map_put(ctx, &zip.by_name, NAME, sizeof NAME - 1, 0))
        (void)kvf__pickle_read(&zip, &pickle, &table);
    kvf__table_done(&table);
    kvf__map_done(&zip.by_name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    kvf_ctx *ctx = fuzz_context();
    kvf__weights weights = {0};

    (void)kvf__torch_parse(ctx, "file", data, n, &weights);
    kvf__weights_close(&weights);
    read_pickle(ctx, data, n);
    return 0;
}
