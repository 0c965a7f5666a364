/* A tiny model of tests/golden (listed in golden_model.h) as a base folder, with a tokenizer
 * added. */
#ifndef GOLDEN_BASE_H
#define GOLDEN_BASE_H

#include "outfile.h"
#include "toy_base.h"

static inline void golden_copy(kvf_ctx *ctx, const char *from, const char *dir, const char *name)
{
    char source[256], target[1024];
    kvf__mapfile file = {0};
    snprintf(source, sizeof source, "tests/golden/model_%s/%s", from, name);
    snprintf(target, sizeof target, "%s/%s", dir, name);
    ck_assert_int_eq(kvf__mapfile_open(ctx, ck_source(source), &file), KVF_OK);
    ck_assert_int_eq(kvf__write_file(ctx, target, false, file.data, file.n), KVF_OK);
    kvf__mapfile_close(&file);
}

/* dir/model_NAME, created here; the text belongs to path. */
static inline const char *golden_base(kvf_ctx *ctx, const char *dir, const char *name,
                                      char path[512])
{
    char tokenizer[2048];
    snprintf(path, 512, "%s/model_%s", dir, name);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    golden_copy(ctx, name, path, "config.json");
    golden_copy(ctx, name, path, "model.safetensors");
    toy_tokenizer(tokenizer, sizeof tokenizer);
    toy_write(path, "tokenizer.json", tokenizer);
    toy_write(path, "tokenizer_config.json", "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
    return path;
}

#endif
