/* The toy Llama of toy_model.h as a Hugging Face folder, with a byte-level tokenizer of 61 tokens
 * and text to learn. Tests of whole commands (train, merge, generate) run on it. */
#ifndef TOY_BASE_H
#define TOY_BASE_H

#include "file_int.h"
#include "rng.h"
#include "toy_model.h"

#include <stdio.h>
#include <sys/stat.h>

/* Lower-case letters, digits, some punctuation and the space, one token each; 59 and 60 are <s> and
 * </s>. */
static const char *const toy_letters = "abcdefghijklmnopqrstuvwxyz0123456789.,:;!?-+*/()=<>[]{}_%&";

static inline void toy_path(char path[512], const char *dir, const char *name)
{
    snprintf(path, 512, "%s/%s", dir, name);
}

static inline void toy_write(const char *dir, const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    ck_assert_msg(file != NULL, "%s cannot be written", path);
    fputs(text, file);
    ck_assert_int_eq(fclose(file), 0);
}

static inline void toy_tokenizer(char *out, size_t cap)
{
    size_t n = (size_t)snprintf(
        out, cap,
        "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":59,\"content\":\"<s>\",\"special\":true},{"
        "\"id\":60,\"content\":\"</s>\","
        "\"special\":true}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_"
        "prefix_space\":false,"
        "\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,\"decoder\":{\"type\":"
        "\"ByteLevel\"},"
        "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"\xC4\xA0\":0");
    for (size_t i = 0; toy_letters[i]; i++)
        n += (size_t)snprintf(out + n, cap - n, ",\"%c\":%zu", toy_letters[i], i + 1);
    snprintf(out + n, cap - n, "}}}");
}

/* Writes config.json, model.safetensors, tokenizer.json and tokenizer_config.json into dir. poison:
 * a value for one weight of the last layer (0: none); seed: of all weights. */
static inline void toy_folder(const char *dir, uint64_t seed, float poison)
{
    char path[1024], tokenizer[2048];
    toy t = {.rng = kvf__rng_make(seed, 0), .cap = 200000};
    kvf_json *json = NULL;
    kvf__desc desc = {0};

    ck_assert_int_eq(kvf_ctx_create(NULL, &t.ctx), KVF_OK);
    ck_assert_int_eq(kvf__alloc_array(t.ctx, t.cap, sizeof(float), &t.weights), KVF_OK);
    ck_assert_int_eq(kvf_json_parse(t.ctx, "toy", toy_llama, strlen(toy_llama), &json), KVF_OK);
    ck_assert_int_eq(kvf__desc_from_hf(t.ctx, "toy", json, &desc), KVF_OK);
    toy_llama_weights(&t, &desc);
    if (poison != 0) t.weights[t.used - (size_t)desc.C - 1] = poison;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    remove(path); /* an open base may have it mapped */
    ck_assert_msg(!kvf__safetensors_write(t.ctx, path, true, t.table.items, t.table.n), "%s",
                  kvf_ctx_error(t.ctx));
    toy_write(dir, "config.json", toy_llama);
    toy_tokenizer(tokenizer, sizeof tokenizer);
    toy_write(dir, "tokenizer.json", tokenizer);
    toy_write(dir, "tokenizer_config.json", "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
    kvf__desc_done(&desc);
    kvf_json_free(json);
    kvf__table_done(&t.table);
    kvf__free(t.weights);
    kvf_ctx_free(t.ctx);
}

/* Rows that a prefix can learn: "word N:" -> " ab..." by a rule; `from` shifts the words. */
static inline void toy_rows(const char *dir, const char *name, int rows, int from)
{
    char text[8192];
    size_t n = 0;
    for (int i = from; i < from + rows; i++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "{\"prompt\": \"w%d:\", \"completion\": \" %.*s\"}\n", i, 3 + i % 5,
                              &"abcabcabc"[i % 3]);
    toy_write(dir, name, text);
}

#endif
