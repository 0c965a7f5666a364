/* Sequences of calls of the C API. Each byte selects a function, and the following bytes its
 * arguments. Arguments include NULL, values outside enums, and objects made or freed by earlier
 * calls. Every failure must have an error line. */
#include "fuzz.h"

#include <kvfold/kvfold.h>

#include <stdlib.h>
#include <string.h>

enum { IDS = 8, MOST_CALLS = 24 };

typedef struct state {
    const uint8_t *at, *end;
    kvf_ctx *ctx;
    kvf_rows *rows;
    kvf_prefix *prefix;
    kvf_train_options *options;
    kvf_json *json;
    char rows_path[128]; /* of the last rows, which may be freed */
    volatile int stop;
} state;

static kvf_base *base;
static float *values; /* of a prefix and of logits */

static unsigned next(state *s)
{
    return s->at < s->end ? *s->at++ : 0;
}

static int64_t number(state *s)
{
    static const int64_t SOME[] = {0, 1, 2, 3, 7, -1, 1 << 20, INT64_MAX};
    return SOME[next(s) % 8];
}

/* Mostly small values, so that some calls succeed. */
static int choice(state *s)
{
    const unsigned byte = next(s);
    return byte < 200 ? (int)(byte % 3) : (int)byte - 228;
}

static const char *text(state *s)
{
    static const char *const SOME[] = {"a",     "",  "ab c", "{\"text\":\"a\"}",
                                       "steps", "3", "\xFF", "{p}"};
    const unsigned byte = next(s);
    return byte < 16 ? NULL : SOME[byte % 8];
}

static void *maybe(state *s, void *object)
{
    return next(s) < 16 ? NULL : object;
}

static kvf_eval_options eval_options(state *s)
{
    return (kvf_eval_options){.data = next(s) < 16 ? NULL : s->rows_path,
                              .max_length = number(s),
                              .split_text = next(s) < 128 ? 0 : number(s),
                              .overlong = (kvf_overlong)choice(s),
                              .batch_tokens = number(s)};
}

static bool go_on(void *user, size_t prompt, const char *piece, size_t bytes)
{
    state *s = user;
    (void)prompt;
    fuzz_touch(piece, bytes);
    return next(s) < 200;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static kvf_status rows(state *s)
{
    const unsigned which = next(s) % 6;
    const char *a = text(s), *b = text(s);
    const int32_t ids[] = {(int32_t)number(s), (int32_t)number(s)};
    if (which == 0) {
        kvf_rows_free(s->rows);
        s->rows = NULL;
        return KVF_OK;
    }
    if (which == 1 && !s->rows) {
        KVF_TRY(kvf_rows_create(s->ctx, &s->rows));
        snprintf(s->rows_path, sizeof s->rows_path, "%s", kvf_rows_path(s->rows));
    }
    if (which == 2)
        return kvf_rows_add_ids(s->ctx, s->rows, maybe(s, (void *)(uintptr_t)ids), NULL, 2);
    if (which == 3) return kvf_rows_add_json(s->ctx, s->rows, a, a ? strlen(a) : 3);
    if (which == 4) return kvf_rows_add_pair(s->ctx, s->rows, a, b);
    return kvf_rows_add_text(s->ctx, s->rows, a);
}

static kvf_status prefix(state *s)
{
    const kvf_shape d = kvf_base_shape(base);
    const int64_t P = 1 + (int64_t)(next(s) % 3), shape[6] = {d.L, 2, 1, d.G, P, d.D};
    const int64_t weights[3] = {d.L, d.G, P};
    const uint8_t mask[] = {(uint8_t)(next(s) % 3), 1, 1, 1, 1, 1, 1, 1};
    const unsigned which = next(s) % 5;
    if (which == 0) {
        kvf_prefix_free(s->prefix);
        s->prefix = NULL;
        return KVF_OK;
    }
    if (which == 1 && !s->prefix)
        return kvf_prefix_from_array(s->ctx, maybe(s, base), maybe(s, values), shape, number(s),
                                     &s->prefix);
    if (which == 2) return kvf_prefix_set_layer_mask(s->ctx, s->prefix, mask, d.L < 8 ? d.L : 8);
    if (which == 3) return kvf_prefix_set_log_weights(s->ctx, s->prefix, values, weights);
    return kvf_prefix_check(s->ctx, s->prefix, maybe(s, base), true);
}

static kvf_status compute(state *s)
{
    kvf_eval_options how = eval_options(s);
    kvf_score_options score = {.eval = how};
    kvf_eval_result result;
    int32_t ids[IDS];
    const unsigned which = next(s) % 3;
    if (which == 0) {
        KVF_TRY(kvf_eval(s->ctx, maybe(s, base), &s->prefix, next(s) % 2, &how, &result));
        kvf_eval_result_done(&result);
        return KVF_OK;
    }
    if (which == 1) {
        score.eval.batch_tokens = 0;
        return kvf_score(s->ctx, base, s->prefix, &score, NULL);
    }
    for (int i = 0; i < IDS; i++)
        ids[i] = (int32_t)number(s);
    return kvf_logits(s->ctx, maybe(s, base), s->prefix, ids, next(s) % IDS, values);
}

static kvf_status generate(state *s)
{
    kvf_generate_options o = kvf_generate_defaults();
    const char *prompts[] = {text(s), text(s)}, *stop[] = {text(s)};
    char *texts[2] = {NULL, NULL};
    o.max_tokens = (int64_t)(next(s) % 4);
    o.temperature = next(s) % 2;
    o.top_k = number(s);
    o.top_p = (double)(next(s) % 4) / 2;
    o.beams = (int64_t)(next(s) % 4);
    o.draft = (int64_t)(next(s) % 3);
    o.stop = stop;
    o.n_stop = next(s) % 2;
    o.token = next(s) % 2 ? go_on : NULL;
    o.token_user = s;
    const size_t n = next(s) % 3;
    KVF_TRY(kvf_generate(s->ctx, maybe(s, base), s->prefix, prompts, n, &o, texts, NULL));
    kvf_texts_free(texts, n);
    return KVF_OK;
}

static kvf_status tokens(state *s)
{
    const char *words = text(s);
    int32_t *ids = NULL;
    size_t n = 0;
    char *back = NULL;
    KVF_TRY(kvf_tokenize(s->ctx, maybe(s, base), words, words ? strlen(words) : 2, next(s) % 2,
                         &ids, &n));
    kvf_status st = kvf_detokenize(s->ctx, base, ids, n + next(s) % 2 * !ids, false, &back, NULL);
    kvf_string_free(back);
    kvf_ids_free(ids);
    return st;
}

static kvf_status options(state *s)
{
    if (!s->options) return kvf_train_options_create(s->ctx, &s->options);
    if (next(s) % 4) return kvf_train_set(s->ctx, maybe(s, s->options), text(s), text(s));
    kvf_train_options_free(s->options);
    s->options = NULL;
    return KVF_OK;
}

static kvf_status json(state *s)
{
    if (!s->json) s->json = next(s) % 2 ? kvf_json_object() : kvf_json_array();
    kvf_json_set(s->json, text(s), kvf_json_new_str(text(s)));
    kvf_json_add(s->json, kvf_json_new_real((double)number(s)));
    char *written = kvf_json_text(s->json, next(s));
    kvf_json_text_free(written);
    return KVF_OK;
}

static kvf_status stop(state *s)
{
    s->stop = next(s) % 4 == 0;
    kvf_ctx_set_stop(s->ctx, next(s) % 2 ? &s->stop : NULL);
    return KVF_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static kvf_status (*const CALLS[])(state * s) = {rows,   prefix,  compute, generate,
                                                     tokens, options, json,    stop};
    state s = {.at = data, .end = data + n, .ctx = fuzz_context()};
    if (!base && (kvf_base_open(s.ctx, FUZZ_BASE, NULL, &base) ||
                  !(values = calloc((size_t)kvf_base_shape(base).V * IDS + 4096, sizeof *values))))
        abort();
    for (int i = 0; i < MOST_CALLS && s.at < s.end; i++)
        if (CALLS[next(&s) % 8](&s) && !*kvf_ctx_error(s.ctx)) abort();
    kvf_ctx_set_stop(s.ctx, NULL);
    kvf_rows_free(s.rows);
    kvf_prefix_free(s.prefix);
    kvf_train_options_free(s.options);
    kvf_json_free(s.json);
    return 0;
}
