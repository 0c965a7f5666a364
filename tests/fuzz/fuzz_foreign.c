/* Other programs' prefixes: whichever format the tensors are of, and all formats by their word; the
 * layers are run, as long as they are small. */
#include "foreign.h"
#include "fuzz.h"

#include <string.h>

enum { MOST = 1 << 16 };

static void use(kvf__foreign *f)
{
    int64_t P = f->table.dim[0], n = f->table.rank == 2 ? f->table.dim[1] : 1;
    float *flat = NULL;

    if (f->prefix.kv) fuzz_touch(f->prefix.kv, kvf__prefix_count(&f->prefix) * sizeof(float));
    if (f->prefix.kv || !f->table.data) return;
    for (int i = 0; i < f->layers; i++) {
        n = f->layer[i].weight.dim[0];
        if (n > MOST) return;
    }
    if (P > MOST || n > MOST || P * n > MOST) return;
    if (kvf__alloc_array(fuzz_context(), (size_t)(P * n), sizeof *flat, &flat)) return;
    if (!kvf__foreign_emit(fuzz_context(), f, P, n, flat))
        fuzz_touch(flat, (size_t)(P * n) * sizeof *flat);
    kvf__free(flat);
}

/* AdapterHub's means nothing without its config, which no file in memory has with it. */
static void as_adapter(const uint8_t *data, size_t n, const char *config)
{
    kvf__foreign f = {0};
    kvf_ctx *ctx = fuzz_context();
    if (!kvf_json_parse(ctx, "config", config, strlen(config), &f.config) &&
        !kvf__safetensors_parse(ctx, "input", data, n, &f.weights) &&
        !kvf__foreign_adapterhub(ctx, "input", &f))
        use(&f);
    kvf__foreign_close(&f);
}

/* Of libFuzzer's inputs each is read as one format, by its length: opening files is most of the
 * time, and so three times as many are tried. */
static bool has_turn(size_t n, size_t i, size_t of)
{
#ifdef FUZZ_LIBFUZZER
    return n % of == i;
#else
    (void)n, (void)of, (void)i;
    return true;
#endif
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    enum { N_WORDS = 4 };
    static const char *const WORDS[N_WORDS] = {NULL, "p-tuning-v2", "prefixtuning", "cartridges"};
    static const char *const CONFIGS[] = {
        "{\"config\":{\"architecture\":\"prefix_tuning\",\"flat\":false,\"non_linearity\":\"gelu\"}"
        "}",
        "{\"config\":{\"architecture\":\"prefix_tuning\",\"flat\":true}}"};
    const char *path = fuzz_file(data, n);

    for (size_t i = 0; i < N_WORDS; i++) {
        kvf__foreign f = {0};
        bool found = false;
        if (has_turn(n, i, N_WORDS) &&
            !kvf__foreign_open(fuzz_context(), path, WORDS[i], &f, &found) && found)
            use(&f);
        kvf__foreign_close(&f);
    }
    for (size_t i = 0; i < 2; i++)
        if (has_turn(n / N_WORDS, i, 2)) as_adapter(data, n, CONFIGS[i]);
    return 0;
}
