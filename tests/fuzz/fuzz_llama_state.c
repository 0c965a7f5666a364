/* Saved sequences of llama.cpp, for the base of golden/llama_states and for a tiny one, with keys
 * in both orders. */
#include "fuzz.h"
#include "llama_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const kvf__llama_base BASES[] = {{2, 2, 8, true}, {1, 1, 2, true}, {1, 1, 2, false}};

    for (size_t i = 0; i < sizeof BASES / sizeof BASES[0]; i++) {
        kvf__prefix prefix = {0};
        if (kvf__llama_state_parse(fuzz_context(), "input", data, n, &BASES[i], &prefix)) continue;
        fuzz_touch(prefix.kv, kvf__prefix_count(&prefix) * sizeof *prefix.kv);
        kvf__prefix_done(&prefix);
    }
    return 0;
}
