/* Shared helpers of the tests of src/text: a context, and comparison of ids with a line of
 * numbers. */
#ifndef TOK_CHECK_H
#define TOK_CHECK_H

#include "ck.h"
#include "text_int.h"
#include "tok_json.h"

#include <stdlib.h>
#include <string.h>

static inline kvf_ctx *new_ctx(void)
{
    kvf_ctx *ctx = NULL;
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    return ctx;
}

#define ok(ctx, call)                                                                              \
    do {                                                                                           \
        kvf_status ok_status_ = (call);                                                            \
        ck_assert_msg(!ok_status_, "%s: %s: %s", #call, kvf_status_name(ok_status_),               \
                      kvf_ctx_error(ctx));                                                         \
    } while (0)

/* "1 2 3" against a list. */
static inline void check_ids(const char *what, const kvf__ids *got, const char *want)
{
    size_t i = 0;
    for (const char *p = want; *p; i++) {
        char *end;
        long id = strtol(p, &end, 10);
        ck_assert_msg(i < got->n && got->data[i] == id,
                      "%s: id %zu is %d of %zu, want %ld of \"%s\"", what, i,
                      i < got->n ? got->data[i] : -1, got->n, id, want);
        p = *end == ' ' ? end + 1 : end;
    }
    ck_assert_msg(i == got->n, "%s: %zu ids, want %zu: \"%s\"", what, got->n, i, want);
}

static inline void check_encode(kvf_ctx *ctx, const kvf__tokenizer *t, const char *what,
                                const char *text, size_t n, bool special, const char *want)
{
    kvf__ids ids = {0};
    ok(ctx, kvf__encode(ctx, t, text, n, special, &ids));
    check_ids(what, &ids, want);
    kvf__ids_done(&ids);
}

/* The text of a list of ids must be these bytes. */
static inline void check_decode(kvf_ctx *ctx, const kvf__tokenizer *t, const int32_t *ids, size_t n,
                                bool skip, const char *want, size_t want_n)
{
    kvf__buf text = {0};
    ok(ctx, kvf__decode(ctx, t, ids, n, skip, &text));
    ck_assert_msg(text.n == want_n && memcmp(text.data, want, want_n) == 0,
                  "decoded \"%.*s\", want \"%.*s\"", (int)text.n, text.data, (int)want_n, want);
    kvf__buf_done(&text);
}

static inline void check_round_trip(kvf_ctx *ctx, const kvf__tokenizer *t, const char *text,
                                    size_t n)
{
    kvf__ids ids = {0};
    ok(ctx, kvf__encode(ctx, t, text, n, false, &ids));
    check_decode(ctx, t, ids.data, ids.n, false, text, n);
    kvf__ids_done(&ids);
}

static inline const char *field(const kvf_json *json, const char *key)
{
    const char *text = kvf_json_str(kvf_json_get(json, key), NULL);
    ck_assert_msg(text != NULL, "no field \"%s\"", key);
    return text;
}

#define ROWS(table) (int)(sizeof table / sizeof *table)

static inline kvf_json *load_json(kvf_ctx *ctx, const char *path)
{
    kvf_json *json = NULL;
    ok(ctx, kvf_json_load(ctx, path, &json));
    return json;
}

/* Case `i` of tokenizer_pipelines.json as the text of a tokenizer.json. */
static inline char *pipeline_text(const kvf_json *golden, size_t i)
{
    static const char *const parts[] = {"added_tokens", "normalizer", "pre_tokenizer",
                                        "post_processor", "decoder"};
    const kvf_json *row = kvf_json_at(kvf_json_get(golden, "cases"), i);
    const kvf_json *models = kvf_json_get(golden, "models");
    char *model = kvf_json_text(
        kvf_json_at(models, (size_t)kvf_json_int(kvf_json_get(row, "model_at"), 0)), 0);
    char *out = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&out, &n);

    fprintf(file, "{\"version\":\"1.0\",\"model\":%s", model);
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        char *part = kvf_json_text(kvf_json_get(row, parts[k]), 0);
        fprintf(file, ",\"%s\":%s", parts[k], part);
        kvf_json_text_free(part);
    }
    fprintf(file, "}");
    fclose(file);
    kvf_json_text_free(model);
    return out; /* free() */
}

static inline size_t find_case(const kvf_json *golden, const char *name)
{
    const kvf_json *cases = kvf_json_get(golden, "cases");
    for (size_t i = 0; i < kvf_json_size(cases); i++)
        if (strcmp(field(kvf_json_at(cases, i), "name"), name) == 0) return i;
    ck_abort_msg("no golden case \"%s\"", name);
    return 0;
}

static inline kvf__tokenizer *open_pipeline(kvf_ctx *ctx, const kvf_json *golden, size_t i)
{
    char *text = pipeline_text(golden, i);
    kvf__tokenizer *t = NULL;
    ok(ctx, tokenizer_from_json(ctx, "pipeline", text, strlen(text), NULL, 0, &t));
    free(text);
    return t;
}

static inline kvf_json *golden(kvf_ctx *ctx)
{
    return load_json(ctx, ck_source("tests/golden/tokenizer_pipelines.json"));
}

static inline kvf__tokenizer *open_named(kvf_ctx *ctx, const char *name)
{
    kvf_json *json = golden(ctx);
    kvf__tokenizer *t = open_pipeline(ctx, json, find_case(json, name));
    kvf_json_free(json);
    return t;
}

/* A tiny tokenizer.json: letters a b c, "ab", "abc", and additions of the caller. */
#define SMALL(model, rest)                                                                         \
    "{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":"  \
    "3,\"abc\":4,"                                                                                 \
    "\"<unk>\":5,\"<s>\":6,\"</s>\":7},\"merges\":[\"a b\",[\"ab\",\"c\"]]" model "}" rest "}"

static inline kvf_status open_text(kvf_ctx *ctx, const char *text, const char *config,
                                   kvf__tokenizer **out)
{
    return tokenizer_from_json(ctx, "small.json", text, strlen(text), config,
                               config ? strlen(config) : 0, out);
}

#define TEMPLATE                                                                                   \
    ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"  \
    "\"<s>\",\"type_id\":0}},"                                                                     \
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<s>\":{"       \
    "\"id\":\"<s>\",\"ids\":[6],"                                                                  \
    "\"tokens\":[\"<s>\"]}}}"

#endif
