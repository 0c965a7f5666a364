/* safetensors: header, table, values; also detects the file format of the same bytes. */
#include "file_int.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    kvf__weights weights = {0};
    kvf_status st = kvf__safetensors_parse(fuzz_context(), "input", data, n, &weights);
    for (size_t i = 0; !st && i < weights.table.n; i++) {
        const kvf__view *view = &weights.table.items[i].view;
        fuzz_touch(view->data, kvf__view_bytes(view));
    }
    kvf__weights_close(&weights);
    return 0;
}
