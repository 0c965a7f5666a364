/* A LoRA in the layout of PEFT for models of width 32 with 4 heads of 8 and a feed-forward width of
 * 64: the Llamas of make_tiny.c and of tests/golden/gguf_spm.gguf. */
#ifndef TOY_LORA_H
#define TOY_LORA_H

#include "file_int.h"
#include "outfile.h"
#include "rng.h"

#include <stdlib.h>
#include <sys/stat.h>

static const char TOY_LORA_CONFIG[] =
    "{\"peft_type\":\"LORA\",\"task_type\":\"CAUSAL_LM\",\"r\":2,\"lora_alpha\":4,"
    "\"target_modules\":[\"q_proj\",\"down_proj\"],\"bias\":\"none\",\"use_dora\":false,"
    "\"modules_to_save\":null,\"fan_in_fan_out\":false}\n";

enum { TOY_LORA_LAYERS = 2, TOY_LORA_RANK = 2 };

static inline kvf_status toy_lora_tensors(kvf_ctx *ctx, uint64_t seed, float *values,
                                          kvf__table *table)
{
    static const struct {
        const char *name;
        int64_t in, out;
    } MODULES[] = {{"self_attn.q_proj", 32, 32}, {"mlp.down_proj", 64, 32}};
    kvf__rng rng = kvf__rng_make(seed, 0);
    char name[128];

    for (int i = 0; i < TOY_LORA_LAYERS * 2 * 2; i++) {
        const int layer = i / 4, module = i / 2 % 2, b = i % 2;
        const int64_t rows = b ? MODULES[module].out : TOY_LORA_RANK;
        const int64_t columns = b ? TOY_LORA_RANK : MODULES[module].in;
        snprintf(name, sizeof name, "base_model.model.model.layers.%d.%s.lora_%c.weight", layer,
                 MODULES[module].name, b ? 'B' : 'A');
        KVF_TRY(kvf__table_add(
            ctx, table, name,
            (kvf__view){.data = values, .dtype = KVF__F32, .rank = 2, .dim = {rows, columns}}));
        for (int64_t k = 0; k < rows * columns; k++)
            *values++ = (float)kvf__rng_normal(&rng) / 4;
    }
    return KVF_OK;
}

/* Makes the folder; the same bytes for the same seed. */
static inline kvf_status toy_lora(kvf_ctx *ctx, const char *dir, uint64_t seed)
{
    static float values[4096];
    kvf__table table = {0};
    char path[1024];

    mkdir(dir, 0777);
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    kvf_status st = kvf__write_file(ctx, path, true, TOY_LORA_CONFIG, sizeof TOY_LORA_CONFIG - 1);
    if (!st) st = toy_lora_tensors(ctx, seed, values, &table);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    if (!st) st = kvf__safetensors_write(ctx, path, true, table.items, table.n);
    kvf__table_done(&table);
    return st;
}

#endif
