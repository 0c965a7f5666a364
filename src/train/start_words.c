/* --init text and vocab: the keys and values that the bare base computes for P real tokens, so that
 * the prefix has typical values. At port embed they are the tokens' embeddings. */
#include "start.h"

#include <string.h>

/* "voca": separates this random stream from those of the weights. */
#define VOCAB_STREAM 0x766f6361

/* True for keys and values of a base that adds start and end tokens around the words. */
static bool reads_both_ways(const kvf__run *run)
{
    return run->method->port == KVF__PORT_KV && !kvf__model_desc(run->base->model)->block.causal;
}

static kvf_status text_ids(const kvf__run *run, const kvf__train_rows *rows, int32_t *ids)
{
    const char *text = run->options.init_text;
    kvf__render plain = rows->renderer.render;
    plain.wrap_prompts = false;
    plain.pattern = NULL;
    kvf__ids found = {0};
    size_t bytes = strlen(text);
    KVF_TRY(kvf__utf8_check(run->ctx, "--init-text", text, bytes, false));
    kvf_status st = reads_both_ways(run)
                        ? kvf__encode(run->ctx, run->base->tokenizer, text, bytes, false, &found)
                        : kvf__render_prompt(run->ctx, &plain, text, bytes, &found);
    if (!st && !found.n)
        st = kvf__fail(run->ctx, KVF_EUSAGE, "--init-text: the text has no tokens");
    for (int64_t p = 0; !st && p < run->id.P; p++)
        ids[p] = found.data[(size_t)p % found.n];
    kvf__ids_done(&found);
    return st;
}

static void vocab_ids(const kvf__run *run, int32_t *ids)
{
    const kvf__tokenizer *tokenizer = run->base->tokenizer;
    kvf__rng rng = kvf__rng_make(run->options.seed, (uint64_t)VOCAB_STREAM << 32);
    uint64_t V = (uint64_t)kvf__vocab_size(tokenizer);
    for (int64_t p = 0; p < run->id.P; p++) {
        /* Limits the search: a vocabulary may have no ordinary tokens, and then any id is used. */
        int tries = 0;
        do
            ids[p] = (int32_t)kvf__rng_below(&rng, V);
        while (!kvf__token_is_ordinary(tokenizer, ids[p]) && ++tries < 100000);
    }
}

/* Returns the tokens of --init-text, repeated, or random words: *out [P], owned by the caller. */
static kvf_status start_ids(const kvf__run *run, const kvf__train_rows *rows, int32_t **out)
{
    int32_t *ids = NULL;
    KVF_TRY(kvf__alloc_array(run->ctx, (size_t)run->id.P, sizeof *ids, &ids));
    kvf_status st = KVF_OK;
    if (!strcmp(run->options.init, "text"))
        st = text_ids(run, rows, ids);
    else
        vocab_ids(run, ids);
    KVF__GIVE(st, out, ids, kvf__free(ids));
    return st;
}

kvf_status kvf__start_words(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows,
                            kvf__emitted target)
{
    (void)tuned;
    int32_t *ids = NULL;
    KVF_TRY(start_ids(run, rows, &ids));
    kvf_status st = target.prefix
                        ? kvf__base_keys_values(run->ctx, run->base, ids, target.prefix, NULL)
                        : KVF_OK;
    if (!st && target.prefix && strcmp(run->options.init, "text")) /* random words have no state */
        st = kvf__prefix_set_state(run->ctx, target.prefix, NULL, 0);
    if (!st && run->id.pre_rope)
        st = kvf__model_rotate_prefix(run->ctx, run->base->model, target.prefix, target.prefix, 0,
                                      true);
    if (!st && target.vectors)
        kvf__model_embedding(run->base->model, ids, run->id.P, target.vectors->x);
    kvf__free(ids);
    return st;
}

/* For a method whose parameters are inputs of layers. Sets them to the layer inputs of the words if
 * nothing lies between these and the projections, else to the words' embeddings. */
kvf_status kvf__start_inputs(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows)
{
    int64_t P = run->id.P, C = kvf__model_desc(run->base->model)->C, n = P * C;
    bool layers = reads_both_ways(run);
    int32_t *ids = NULL;
    float *words = NULL;
    const kvf__kv_shape shape = kvf__identity_kv(&run->id);
    kvf__prefix kv = {0};

    kvf_status st = start_ids(run, rows, &ids);
    if (st) goto out;
    st = kvf__alloc_array(run->ctx, (size_t)(layers ? run->id.L * n : n), sizeof *words, &words);
    if (!st && layers) st = kvf__prefix_create(run->ctx, &kv, &shape, P);
    if (st) goto out;
    if (layers)
        st = kvf__base_keys_values(run->ctx, run->base, ids, &kv, words);
    else
        kvf__model_embedding(run->base->model, ids, P, words);
    if (st) goto out;
    kvf__encoder_init_words(tuned->encoder, words, layers ? n : 0);
    kvf__run_detail(run, "initialized from words, --init %s: %s", run->options.init,
                    layers ? "inputs of the layers" : "embeddings");
out:
    kvf__prefix_done(&kv);
    kvf__free(ids);
    kvf__free(words);
    return st;
}
