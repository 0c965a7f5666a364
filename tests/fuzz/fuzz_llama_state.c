/* Saved sequences of llama.cpp, for the bases of golden/llama_states and for a tiny one, with keys
 * in both orders. */
#include "fuzz.h"
#include "llama_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const uint64_t global = 2;
    static const kvf__llama_base BASES[] = {{2, 2, 8, true, 0, NULL},
                                            {1, 1, 2, true, 0, NULL},
                                            {1, 1, 2, false, 0, NULL},
                                            {3, 2, 8, false, 8, &global},
                                            {2, 1, 2, false, 2, &global}};

    for (size_t i = 0; i < sizeof BASES / sizeof BASES[0]; i++) {
        kvf__prefix prefix = {0};
        if (kvf__llama_state_parse(fuzz_context(), "input", data, n, &BASES[i], &prefix)) continue;
        fuzz_touch(prefix.kv, kvf__prefix_count(&prefix) * sizeof *prefix.kv);
        kvf__prefix_done(&prefix);
    }
    return 0;
}
