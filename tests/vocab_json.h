/* A kvf__vocab read from JSON, for the tests: the contents of GGUF metadata in a readable file.
 *
 * {"model", "pre", "tokens": [...], "scores", "types", "merges", "bos", "eos", "unk", "pad",
 * "add_bos", "add_eos", "add_space_prefix", "chat_template"}; everything but model and tokens may
 * be missing. */
#ifndef VOCAB_JSON_H
#define VOCAB_JSON_H

#include "text_int.h"

#include <stdlib.h>

typedef struct vocab_json {
    kvf__vocab v; /* views into the JSON and the arrays below */
    const char **tokens, **merges;
    size_t *token_bytes, *merge_bytes;
    float *scores;
    int32_t *types;
} vocab_json;

static inline const char **string_list(const kvf_json *list, size_t **bytes)
{
    size_t n = kvf_json_size(list);
    const char **out = calloc(n + 1, sizeof *out);
    *bytes = calloc(n + 1, sizeof **bytes);
    for (size_t i = 0; out && *bytes && i < n; i++)
        out[i] = kvf_json_str(kvf_json_at(list, i), &(*bytes)[i]);
    return out;
}

static inline int32_t int_or(const kvf_json *json, const char *key, int64_t otherwise)
{
    return (int32_t)kvf_json_int(kvf_json_get(json, key), otherwise);
}

/* Everything stays valid as long as json does, until vocab_json_done(). */
static inline void vocab_json_read(const kvf_json *json, const char *where, vocab_json *out)
{
    const kvf_json *scores = kvf_json_get(json, "scores"), *types = kvf_json_get(json, "types");
    const kvf_json *tokens = kvf_json_get(json, "tokens"), *merges = kvf_json_get(json, "merges");
    size_t n = kvf_json_size(tokens);

    *out = (vocab_json){0};
    out->tokens = string_list(tokens, &out->token_bytes);
    out->merges = string_list(merges, &out->merge_bytes);
    out->scores = scores ? calloc(n + 1, sizeof(float)) : NULL;
    out->types = types ? calloc(n + 1, sizeof(int32_t)) : NULL;
    for (size_t i = 0; i < n && scores; i++)
        out->scores[i] = (float)kvf_json_real(kvf_json_at(scores, i), 0);
    for (size_t i = 0; i < n && types; i++)
        out->types[i] = (int32_t)kvf_json_int(kvf_json_at(types, i), 1);
    out->v = (kvf__vocab){
        .where = where,
        .model = kvf_json_str(kvf_json_get(json, "model"), NULL),
        .pre = kvf_json_str(kvf_json_get(json, "pre"), NULL),
        .n_tokens = n,
        .tokens = out->tokens,
        .token_bytes = out->token_bytes,
        .scores = out->scores,
        .types = out->types,
        .n_merges = kvf_json_size(merges),
        .merges = out->merges,
        .merge_bytes = out->merge_bytes,
        .bos = int_or(json, "bos", -1),
        .eos = int_or(json, "eos", -1),
        .unk = int_or(json, "unk", -1),
        .pad = int_or(json, "pad", -1),
        .add_bos = int_or(json, "add_bos", -1),
        .add_eos = int_or(json, "add_eos", -1),
        .add_space_prefix = int_or(json, "add_space_prefix", -1),
        .chat_template = kvf_json_str(kvf_json_get(json, "chat_template"), NULL),
    };
}

static inline void vocab_json_done(vocab_json *vocab)
{
    free(vocab->tokens);
    free(vocab->merges);
    free(vocab->token_bytes);
    free(vocab->merge_bytes);
    free(vocab->scores);
    free(vocab->types);
    *vocab = (vocab_json){0};
}

#endif
