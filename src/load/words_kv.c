/* Keys and values that the bare base computes for real words: a prefix with the same effect as the
 * words.
 *
 * BERT and RoBERTa expect their start and end tokens, so the words are put between them, and only
 * the words' keys and values are used. Learned positions count the start token, so the words are at
 * 1 .. P. An encoder-decoder reads the words on both sides. Rows after such a prefix begin at P all
 * the same, as in PEFT: the positions of keys inside a prefix need no order. */
#include "data_int.h"
#include "open_base.h"

#include <string.h>

kvf_status kvf__base_wrap(kvf_ctx *ctx, const kvf_base *base, const int32_t *words, int64_t n,
                          kvf__ids *out, int64_t *before)
{
    kvf__ids own = {0};
    size_t at = 0;

    if (kvf__model_desc(base->model)->block.causal || !base->tokenizer) {
        *before = (int64_t)out->n;
        return kvf__ids_append(ctx, out, words, (size_t)n);
    }
    kvf_status st = kvf__ids_append(ctx, &own, words, (size_t)n);
    if (!st) st = kvf__add_specials(ctx, base->tokenizer, &own, NULL, out, NULL, &at, NULL);
    if (!st) *before = (int64_t)at;
    kvf__ids_done(&own);
    return st;
}

/* Copies the inputs of the P words from `first` on, in a row of T tokens. */
static void copy_inputs(const kvf__desc *d, const float *streams, int64_t T, int64_t first,
                        int64_t P, float *inputs)
{
    for (int64_t l = 0; l < d->L; l++)
        memcpy(inputs + l * P * d->C, streams + (l * T + first) * d->C,
               (size_t)(P * d->C) * sizeof *inputs);
}

kvf_status kvf__base_keys_values(kvf_ctx *ctx, kvf_base *base, const int32_t *words,
                                 kvf__prefix *out, float *inputs)
{
    const kvf__desc *d = kvf__model_desc(base->model);
    kvf__ids ids = {0};
    kvf__cache *cache = NULL;
    kvf__pass *pass = NULL;
    float *streams = NULL;
    const float *state = NULL;
    int64_t first = 0, states = 0;

    kvf_status st = kvf__base_wrap(ctx, base, words, out->P, &ids, &first);
    const int64_t T = (int64_t)ids.n, start[2] = {0, T}, example = 0;
    kvf__pass_limits limits = {.rows = 1, .tokens = T, .row_len = T, .labels = 1, .cache_len = T};
    kvf__batch batch = {
        .n_rows = 1, .n_tokens = T, .start = start, .ids = ids.data, .example = &example};
    const kvf__batch source = batch;
    if (d->encoder) limits.source_tokens = limits.source_len = T;
    if (d->encoder) batch.source = &source;
    if (!st) st = kvf__cache_create(ctx, base->model, 1, T, &cache);
    if (!st) st = kvf__pass_create(ctx, base->model, &limits, &pass);
    if (!st && inputs)
        st = kvf__alloc_array(ctx, (size_t)(d->L * T * d->C), sizeof *streams, &streams);
    const kvf__input input = {.batch = &batch, .cache = cache, .streams = streams};
    if (!st) st = kvf__pass_fwd(ctx, pass, &input);
    if (!st) kvf__cache_read(cache, 0, first, out->P, out->kv);
    if (!st) state = kvf__cache_states(cache, 0, &states);
    if (!st && first + out->P == T) st = kvf__prefix_set_state(ctx, out, state, states);
    if (!st && inputs) copy_inputs(d, streams, T, first, out->P, inputs);
    kvf__free(streams);
    kvf__pass_free(pass);
    kvf__cache_free(cache);
    kvf__ids_done(&ids);
    return st;
}
