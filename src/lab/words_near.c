/* Finds the vocabulary items nearest to a prefix. The base runs over its vocabulary once, in
 * chunks, each item as a separate row (on BERT and RoBERTa between start and end token, on
 * encoder-decoders on both sides). The cache then holds the keys and values of single tokens at
 * position 0, where rope does not rotate. A prefix's keys are rotated back from their positions
 * before the comparison, so both sides are keys without rope. Learned positions remain included:
 * those of the first word. Cosines are matrix products of a chunk and the virtual tokens of a
 * layer, so the pass over the vocabulary takes nearly all of the time. */
#include "arena.h"
#include "matmul.h"
#include "renderer.h"

#include <kvfold/lab.h>
#include <math.h>
#include <string.h>

typedef struct word_search {
    kvf_ctx *ctx;
    kvf_base *base;
    const kvf_words_options *options;
    int64_t top, chunk, V;
    int64_t blocks, P, width; /* number of vectors for each of P virtual tokens, and their length */
    float *want;              /* [P, blocks, width] normalized vectors of the prefix */
    float *items;             /* [chunk, blocks, width] normalized vectors of vocabulary items */
    float *cosines;           /* [P, chunk] */
    kvf_near_word *best;      /* [P, blocks, top] best items first */

    kvf__ids ids; /* [chunk, row] rows of one item each, placed at `at` */
    int64_t row, at;
    int64_t *start, *example; /* [chunk + 1], [chunk] of these rows */
    kvf__cache *cache;        /* cache for keys and values; NULL for embeddings, like the pass */
    kvf__pass *pass;
    void *memory; /* owner of the lists */
} word_search;

static void normalise(float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    float scale = sum > 0 ? (float)(1 / sqrt(sum)) : 0;
    for (int64_t i = 0; i < n; i++)
        x[i] *= scale;
}

/* Inserts an item; a tie goes to the smaller id, which came first. */
static void offer(const word_search *r, int64_t place, int32_t id, float cosine)
{
    kvf_near_word *best = r->best + place * r->top;
    int64_t at = r->top;
    while (at > 0 && (best[at - 1].id < 0 || cosine > best[at - 1].cosine))
        at--;
    if (at == r->top) return;
    memmove(best + at + 1, best + at, (size_t)(r->top - at - 1) * sizeof *best);
    best[at] = (kvf_near_word){.id = id, .cosine = cosine};
}

/* Sums in one order on all machines and for all chunks, because near ties are frequent among keys.
 */
static float dot(const float *a, const float *b, int64_t n)
{
    enum { SIDE = 32 };
    float part[SIDE] = {0};
    double sum = 0;
    int64_t i = 0;
    for (; i + SIDE <= n; i += SIDE)
        for (int s = 0; s < SIDE; s++)
            part[s] += a[i + s] * b[i + s];
    for (; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    for (int s = 0; s < SIDE; s++)
        sum += (double)part[s];
    return (float)sum;
}

/* Allocates the results, which outlive the search. */
static void lay_found(void *object, kvf__carver *carve)
{
    word_search *r = object;
    r->best = kvf__carve(carve, r->P * r->blocks, r->top, sizeof *r->best);
}

static void lay_out(void *object, kvf__carver *carve)
{
    word_search *r = object;
    r->want = kvf__carve(carve, r->P * r->blocks, r->width, sizeof *r->want);
    r->items = kvf__carve(carve, r->chunk * r->blocks, r->width, sizeof *r->items);
    r->cosines = kvf__carve(carve, r->P, r->chunk, sizeof *r->cosines);
    r->start = kvf__carve(carve, r->chunk + 1, 1, sizeof *r->start);
    r->example = kvf__carve(carve, r->chunk, 1, sizeof *r->example);
}

/* Offers the current items that come near the best of token p. The product's cosine has rounding
 * errors, so candidates are summed again. */
static void pick(const word_search *r, int64_t b, int64_t p, int32_t first, int64_t n)
{
    static const float ROUNDING = 1e-5F; /* 6e-7 was observed for sums of 192 */
    const int64_t place = p * r->blocks + b;
    const kvf_near_word *last = r->best + (place + 1) * r->top - 1;

    for (int64_t i = 0; i < n; i++) {
        if (last->id >= 0 && r->cosines[p * n + i] <= last->cosine - ROUNDING) continue;
        const float *item = r->items + (i * r->blocks + b) * r->width;
        offer(r, place, first + (int32_t)i, dot(r->want + place * r->width, item, r->width));
    }
}

/* Compares r->items, n items from `first` on, with all virtual tokens. */
static kvf_status compare_chunk(const word_search *r, int32_t first, int64_t n)
{
    int64_t P = r->P, stride = r->blocks * r->width;

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n * r->blocks; i++)
        normalise(r->items + i * r->width, r->width);
    for (int64_t b = 0; b < r->blocks; b++) {
        KVF_TRY(kvf__sgemm(r->ctx, false, true, P, n, r->width, r->want + b * r->width, stride,
                           r->items + b * r->width, stride, 0, r->cosines, n));
#pragma omp parallel for schedule(static)
        for (int64_t p = 0; p < P; p++)
            pick(r, b, p, first, n);
    }
    if (r->options->progress) r->options->progress(r->options->user, first + n, r->V);
    return KVF_OK;
}

/* ---- what is compared ------------------------------------------------------------------------ */

/* Reads keys without rope and values of a prefix: a block is (l, kv), with its G heads side by
 * side. */
static kvf_status read_wanted(word_search *r, const kvf_prefix *prefix)
{
    const kvf__prefix *from = &prefix->file.prefix;
    kvf__prefix raw = {0};
    kvf_status st = KVF_OK;
    if (!from->P) {
        memcpy(r->want, prefix->file.vectors.x, (size_t)(r->P * r->width) * sizeof *r->want);
    } else if (prefix->file.id.pre_rope) {
        kvf__prefix_to_flat(from, r->want);
    } else {
        KVF_TRY(kvf__prefix_init(r->ctx, &raw, from->L, from->G, from->P, from->D));
        st = kvf__model_rotate_prefix(r->ctx, r->base->model, &raw, from, 0, true);
        kvf__prefix_to_flat(&raw, r->want);
        kvf__prefix_done(&raw);
    }
    for (int64_t i = 0; i < r->P * r->blocks; i++)
        normalise(r->want + i * r->width, r->width);
    return st;
}

/* Prepares rows of one item each, filled in later, and for keys and values the pass and cache. */
static kvf_status prepare_rows(word_search *r, bool layers)
{
    const int64_t n = r->chunk;
    const int32_t item = 0;
    for (int64_t i = 0; i < n; i++)
        KVF_TRY(layers ? kvf__base_wrap(r->ctx, r->base, &item, 1, &r->ids, &r->at)
                       : kvf__ids_add(r->ctx, &r->ids, item));
    r->row = (int64_t)r->ids.n / n;
    r->at %= r->row;
    for (int64_t i = 0; i < n; i++) {
        r->start[i + 1] = (i + 1) * r->row;
        r->example[i] = i;
    }
    if (!layers) return KVF_OK;
    kvf__pass_limits limits = {
        .rows = n, .tokens = n * r->row, .row_len = r->row, .labels = 1, .cache_len = r->row};
    if (kvf__model_desc(r->base->model)->encoder) {
        limits.source_tokens = limits.tokens;
        limits.source_len = limits.row_len;
    }
    KVF_TRY(kvf__cache_create(r->ctx, r->base->model, n, r->row, &r->cache));
    return kvf__pass_create(r->ctx, r->base->model, &limits, &r->pass);
}

/* Fills r->items with the n items from `first` on. */
static kvf_status read_items(word_search *r, int32_t first, int64_t n)
{
    kvf__batch batch = {.n_rows = n,
                        .n_tokens = n * r->row,
                        .start = r->start,
                        .ids = r->ids.data,
                        .example = r->example};
    const kvf__batch source = batch;
    if (kvf__model_desc(r->base->model)->encoder) batch.source = &source;
    const kvf__input input = {.batch = &batch, .cache = r->cache};
    for (int64_t i = 0; i < n; i++)
        r->ids.data[i * r->row + r->at] = first + (int32_t)i;
    if (!r->pass) {
        kvf__model_embedding(r->base->model, r->ids.data, n, r->items);
        return KVF_OK;
    }
    for (int64_t i = 0; i < n; i++)
        kvf__cache_truncate(r->cache, i, 0);
    KVF_TRY(kvf__pass_fwd(r->ctx, r->pass, &input));
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        kvf__cache_read(r->cache, i, r->at, 1, r->items + i * r->blocks * r->width);
    return KVF_OK;
}

static kvf_status search(word_search *r, const kvf_prefix *prefix)
{
    KVF_TRY(read_wanted(r, prefix));
    KVF_TRY(prepare_rows(r, prefix->file.prefix.P > 0));
    for (int64_t first = 0; first < r->V; first += r->chunk) {
        const int64_t n = r->V - first < r->chunk ? r->V - first : r->chunk;
        KVF_TRY(read_items(r, (int32_t)first, n));
        KVF_TRY(compare_chunk(r, (int32_t)first, n));
    }
    return KVF_OK;
}

/* ---- what was found -------------------------------------------------------------------------- */

static kvf_json *list_of(const word_search *r, int64_t place)
{
    kvf_json *list = kvf_json_array();
    const kvf_near_word *best = r->best + place * r->top;
    for (int64_t i = 0; i < r->top && best[i].id >= 0; i++)
        kvf_json_add(list, kvf__json_of("text:s id:I cosine:f", best[i].text, (int64_t)best[i].id,
                                        (double)best[i].cosine));
    return list;
}

/* Returns for every virtual token the items nearest to its key and value in layer l, or to its
 * embedding. */
static kvf_json *tokens_of(const word_search *r, int64_t l, bool layers)
{
    kvf_json *tokens = kvf_json_array();
    for (int64_t p = 0; p < r->P; p++) {
        const int64_t place = p * r->blocks + 2 * l;
        kvf_json_add(
            tokens, layers ? kvf__json_of("key:o value:o", list_of(r, place), list_of(r, place + 1))
                           : kvf__json_of("nearest:o", list_of(r, place)));
    }
    return tokens;
}

static kvf_json *report(const word_search *r, const kvf_prefix *prefix)
{
    if (!prefix->file.prefix.P)
        return kvf__json_of("kind:s top:I tokens:o", "embeddings", r->top, tokens_of(r, 0, false));
    kvf_json *layers = kvf_json_array();
    for (int64_t l = 0; l < prefix->file.prefix.L; l++)
        if (prefix->file.prefix.layer_mask[l])
            kvf_json_add(layers, kvf__json_of("layer:I tokens:o", l, tokens_of(r, l, true)));
    return kvf__json_of("kind:s top:I layers:o", "prefix", r->top, layers);
}

static bool has_layer(const kvf_prefix *prefix, int64_t l)
{
    return !prefix->file.prefix.P || prefix->file.prefix.layer_mask[l];
}

/* Looks up the texts of the found words, one after the other in *texts. Layers without a prefix
 * have none. */
static kvf_status name_words(word_search *r, const kvf_prefix *prefix, kvf__buf *texts)
{
    const int64_t n = r->P * r->blocks * r->top;
    const kvf__tokenizer *tokenizer = r->base->tokenizer;
    for (int64_t i = 0; i < n; i++) {
        if (!has_layer(prefix, i / r->top % r->blocks / 2)) r->best[i].id = -1;
        const size_t first = texts->n;
        if (tokenizer && r->best[i].id >= 0)
            KVF_TRY(kvf__decode(r->ctx, tokenizer, &r->best[i].id, 1, false, texts));
        if (texts->n > first) texts->n = first + strlen(texts->data + first); /* up to a U+0000 */
        KVF_TRY(kvf__buf_add(r->ctx, texts, "", 1));
    }
    const char *text = texts->data;
    for (int64_t i = 0; i < n; i++, text += strlen(text) + 1)
        r->best[i].text = text;
    return KVF_OK;
}

typedef struct found_words {
    void *words, *texts;
} found_words;

void kvf_words_result_done(kvf_words_result *result)
{
    if (!result) return;
    found_words *found = result->memory;
    if (found) {
        kvf__free(found->words);
        kvf__free(found->texts);
        kvf__free(found);
    }
    *result = (kvf_words_result){0};
}

static kvf_status give_words(word_search *r, const kvf_prefix *prefix, void **words,
                             kvf__buf *texts, kvf_words_result *result, kvf_json **json)
{
    found_words *found = NULL;
    kvf_json *object = NULL;
    const int64_t sides = prefix->file.prefix.P ? 2 : 1;
    KVF_TRY(name_words(r, prefix, texts));
    if (json && !(object = report(r, prefix)))
        return kvf__fail(r->ctx, KVF_ENOMEM, "out of memory");
    const kvf_status st = result ? kvf__alloc(r->ctx, sizeof *found, &found) : KVF_OK;
    if (st) {
        kvf_json_free(object);
        return st;
    }
    if (json) *json = object;
    if (!result) return KVF_OK;
    *found = (found_words){*words, texts->data};
    *result = (kvf_words_result){.P = r->P,
                                 .L = r->blocks / sides,
                                 .sides = sides,
                                 .top = r->top,
                                 .words = r->best,
                                 .memory = found};
    *words = NULL;
    *texts = (kvf__buf){0};
    return KVF_OK;
}

static kvf_status words_near(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             const kvf_words_options *options, kvf_words_result *result,
                             kvf_json **json)
{
    const kvf__desc *d = kvf__model_desc(base->model);
    bool layers = prefix->file.prefix.P > 0;
    word_search r = {.ctx = ctx,
                     .base = base,
                     .options = options,
                     .top = options->top ? options->top : 5,
                     .chunk = options->chunk ? options->chunk : 512,
                     .V = d->V,
                     .blocks = layers ? d->L * 2 : 1,
                     .P = layers ? prefix->file.prefix.P : prefix->file.vectors.P,
                     .width = layers ? d->G * d->D : d->C};
    if (layers && d->by_layer.shape)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: nearest words are not supported on a base whose layers differ",
                         d->arch_name);
    if (!r.P)
        return kvf__fail(ctx, KVF_EUSAGE, "method %s has no virtual tokens",
                         prefix->file.id.method);
    if (r.chunk > r.V) r.chunk = r.V;
    void *words = NULL;
    kvf__buf texts = {0};
    kvf_status st = kvf__carve_block(ctx, lay_out, &r, &r.memory);
    if (!st) st = kvf__carve_block(ctx, lay_found, &r, &words);
    for (int64_t i = 0; !st && i < r.P * r.blocks * r.top; i++)
        r.best[i] = (kvf_near_word){.id = -1};
    if (!st) st = search(&r, prefix);
    if (!st) st = give_words(&r, prefix, &words, &texts, result, json);
    kvf__free(words);
    kvf__buf_done(&texts);
    kvf__pass_free(r.pass);
    kvf__cache_free(r.cache);
    kvf__ids_done(&r.ids);
    kvf__free(r.memory);
    return st;
}

kvf_status kvf_words(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                     const kvf_words_options *options, kvf_words_result *result, kvf_json **json)
{
    KVF_TRY(KVF__NEED(ctx, base, prefix, options));
    KVF__RETURN(ctx, words_near(ctx, base, prefix, options, result, json));
}
