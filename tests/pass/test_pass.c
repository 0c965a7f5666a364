/* The pass over a tiny model: bits, batches, masks, caches and gradients across passes.
 * test_pass_golden.c compares with another implementation. */
#include "toy_model.h"

static toy t;

static void setup_llama(void)
{
    toy_create(&t, toy_llama, KVF__F32);
}
static void setup_gpt2(void)
{
    toy_create(&t, toy_gpt2, KVF__F32);
}
static void setup_neox(void)
{
    toy_create(&t, toy_neox, KVF__F32);
}
static void setup_phi3(void)
{
    toy_create(&t, toy_phi3, KVF__F32);
}
static void setup_gemma(void)
{
    toy_create(&t, toy_gemma, KVF__F32);
}
static void setup_olmo2(void)
{
    toy_create(&t, toy_olmo2, KVF__F32);
}
static void setup_qwen3(void)
{
    toy_create(&t, toy_qwen3, KVF__F32);
}
static void setup_lfm2(void)
{
    toy_create(&t, toy_lfm2, KVF__F32);
}
static void setup_qwen3_5(void)
{
    toy_create(&t, toy_qwen3_5, KVF__F32);
}
static void teardown(void)
{
    toy_free(&t);
}

static const int64_t LENGTHS[] = {17, 1, 64, 9, 30, 0};
static const int64_t LONG[] = {290, 280, 0};

static float *floats(int64_t n)
{
    float *out = calloc((size_t)n, sizeof *out);
    ck_assert_ptr_nonnull(out);
    return out;
}

static void logits_of(kvf__pass *pass, float *out)
{
    ck_assert_msg(!kvf__pass_lm_logits(t.ctx, pass, out), "%s", kvf_ctx_error(t.ctx));
}

static void no_bits_differ(const void *a, const void *b, size_t bytes)
{
    ck_assert_mem_eq(a, b, bytes);
}

/* Returns the last layer with keys and values. */
static int64_t last_attention(const kvf__desc *d)
{
    int64_t l = d->L - 1;
    while (kvf__layer_mixes(d, l))
        l--;
    return l;
}

/* ---- core: run on both models ---------------------------------------------------------------- */

START_TEST(empty_prefix_is_the_bare_base)
{
    const kvf__desc *d = kvf__model_desc(t.model);
    kvf__pass *pass = toy_pass(&t);
    kvf__prefix none = {0};
    toy_batch batch;
    toy_batch_make(&batch, d, LENGTHS, 0.5, 1);
    int64_t n = batch.b.n_labels * d->V;
    float *bare = floats(n), *empty = floats(n);

    toy_prefix(&t, &none, 0, 1);
    toy_fwd(&t, pass, &batch.b, NULL);
    logits_of(pass, bare);
    toy_fwd(&t, pass, &batch.b, &none);
    logits_of(pass, empty);
    no_bits_differ(bare, empty, (size_t)n * sizeof(float));

    free(bare);
    free(empty);
    kvf__prefix_done(&none);
    kvf__pass_free(pass);
}
END_TEST

/* f32 sums run in another order if a row has other neighbours: 1e-5 relative in loss, 1e-4 in
 * logits. */
START_TEST(batch_equals_rows)
{
    const kvf__desc *d = kvf__model_desc(t.model);
    kvf__pass *pass = toy_pass(&t);
    kvf__prefix prefix = {0}, whole = {0}, parts = {0};
    toy_batch batch;
    const int64_t *lengths =
        _i ? LONG : LENGTHS; /* LONG: labels in more than one pass over the vocabulary */
    toy_batch_make(&batch, d, lengths, 1, 2);
    float *logits = floats(batch.b.n_labels * d->V), *single = floats(batch.b.n_labels * d->V);
    double sum = 0;

    toy_prefix(&t, &prefix, 7, 1);
    toy_prefix(&t, &whole, 7, 0);
    toy_prefix(&t, &parts, 7, 0);
    double loss = toy_gradient(&t, pass, &batch.b, &prefix, 1, &whole);
    logits_of(pass, logits);

    for (int64_t r = 0; r < batch.b.n_rows; r++) {
        int64_t first = batch.start[r], len = batch.start[r + 1] - first;
        int64_t start[] = {0, len};
        int32_t at[TOY_TOKENS];
        for (int64_t i = 0; i < len; i++) /* every token is labelled */
            at[i] = (int32_t)i;
        kvf__batch row = {.n_rows = 1,
                          .n_tokens = len,
                          .n_labels = len,
                          .start = start,
                          .ids = batch.ids + first,
                          .label_at = at,
                          .label_id = batch.label_id + first,
                          .example = batch.example};
        double part = 0;
        toy_fwd(&t, pass, &row, &prefix);
        logits_of(pass, single + first * d->V);
        ck_assert_int_eq(
            kvf__pass_loss(t.ctx, pass, &(kvf__loss){.gradient = true, .scale = 1}, &part), KVF_OK);
        ck_assert_int_eq(kvf__pass_bwd(t.ctx, pass, &(kvf__grads){.prefix = &parts}),
                         KVF_OK); /* adds */
        sum += part;
    }
    ck_assert_double_eq_tol(sum, loss, 1e-5 * loss);
    ck_close(single, logits, (size_t)(batch.b.n_labels * d->V), 1e-4, 1e-4);
    ck_assert_double_le(ck_rel_l2(parts.kv, whole.kv, kvf__prefix_count(&whole)), 1e-5);

    free(logits);
    free(single);
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&whole);
    kvf__prefix_done(&parts);
    kvf__pass_free(pass);
}
END_TEST

START_TEST(zero_prefix_is_not_nothing)
{
    kvf__pass *pass = toy_pass(&t);
    kvf__prefix zero = {0};
    toy_batch batch;
    toy_batch_make(&batch, kvf__model_desc(t.model), LENGTHS, 0.5, 3);
    const kvf__input bare = {.batch = &batch.b, .condition.position_start = 4};
    double without = 0;

    toy_prefix(&t, &zero, 4, 0);
    double with = toy_loss(&t, pass, &batch.b, &zero);
    ck_assert_int_eq(kvf__pass_fwd(t.ctx, pass, &bare), KVF_OK);
    ck_assert_int_eq(kvf__pass_loss(t.ctx, pass, &(kvf__loss){.scale = 1}, &without), KVF_OK);
    ck_assert_double_gt(fabs(with - without), 1e-3);

    kvf__prefix_done(&zero);
    kvf__pass_free(pass);
}
END_TEST

/* With every layer masked, only the positions depend on the prefix. */
START_TEST(masked_layers_see_no_prefix)
{
    const kvf__desc *d = kvf__model_desc(t.model);
    kvf__pass *pass = toy_pass(&t);
    kvf__prefix prefix = {0};
    toy_batch batch;
    toy_batch_make(&batch, d, LENGTHS, 0.5, 4);
    const kvf__input bare = {.batch = &batch.b, .condition.position_start = 5};
    double want = 0;

    toy_prefix(&t, &prefix, 5, 1);
    double all_on = toy_loss(&t, pass, &batch.b, &prefix);
    prefix.layer_mask[last_attention(d)] = 0;
    double one_off = toy_loss(&t, pass, &batch.b, &prefix);
    memset(prefix.layer_mask, 0, (size_t)d->L);
    double all_off = toy_loss(&t, pass, &batch.b, &prefix);
    ck_assert_int_eq(kvf__pass_fwd(t.ctx, pass, &bare), KVF_OK);
    ck_assert_int_eq(kvf__pass_loss(t.ctx, pass, &(kvf__loss){.scale = 1}, &want), KVF_OK);
    ck_assert(all_off == want);
    ck_assert_double_gt(fabs(one_off - all_on), 1e-3);
    if (!d->mixer.kind) /* else one layer has keys */
        ck_assert_double_gt(fabs(one_off - all_off), 1e-3);

    kvf__prefix_done(&prefix);
    kvf__pass_free(pass);
}
END_TEST

/* A label's loss does not depend on the other labels, and equals the log-softmax of its logits. */
START_TEST(labels_stand_anywhere)
{
    const kvf__desc *d = kvf__model_desc(t.model);
    kvf__pass *pass = toy_pass(&t);
    kvf__prefix prefix = {0};
    toy_batch all, few;
    toy_batch_make(&all, d, LENGTHS, 1, 5);
    toy_batch_make(&few, d, LENGTHS, 1, 5);
    float all_loss[TOY_TOKENS], few_loss[TOY_TOKENS], want[TOY_TOKENS],
        *logits = floats(TOY_TOKENS * d->V);
    double sum = 0, total = 0;

    few.b.n_labels = 0;
    for (int32_t i = 0; i < all.b.n_tokens;
         i += 3 + i % 5) { /* row 1, one token long, may stay without a label */
        want[few.b.n_labels] = 0;
        few.label_at[few.b.n_labels] = i;
        few.label_id[few.b.n_labels++] = all.label_id[i];
    }
    toy_prefix(&t, &prefix, 6, 1);
    toy_fwd(&t, pass, &all.b, &prefix);
    ck_assert_int_eq(kvf__pass_loss(t.ctx, pass, &(kvf__loss){.token_loss = all_loss}, &sum),
                     KVF_OK);
    toy_fwd(&t, pass, &few.b, &prefix);
    ck_assert_int_eq(kvf__pass_loss(t.ctx, pass, &(kvf__loss){.token_loss = few_loss}, &sum),
                     KVF_OK);
    logits_of(pass, logits);
    for (int64_t j = 0; j < few.b.n_labels; j++) {
        double mass = 0;
        for (int64_t v = 0; v < d->V; v++)
            mass += exp((double)logits[j * d->V + v] - (double)logits[j * d->V + few.label_id[j]]);
        want[j] = (float)log(mass);
        total += log(mass);
        ck_assert_double_eq_tol(all_loss[few.label_at[j]], want[j], 1e-4);
    }
    ck_close(few_loss, want, (size_t)few.b.n_labels, 1e-5, 1e-5);
    ck_assert_double_eq_tol(sum, total, 1e-5 * total);

    free(logits);
    kvf__prefix_done(&prefix);
    kvf__pass_free(pass);
}
END_TEST

START_TEST(same_bits_and_no_allocation)
{
    kvf__pass *pass = toy_pass(&t);
    kvf__prefix prefix = {0}, first = {0}, again = {0};
    toy_batch batch;
    toy_batch_make(&batch, kvf__model_desc(t.model), LENGTHS, 0.5, 6);

    toy_prefix(&t, &prefix, 9, 1);
    toy_prefix(&t, &first, 9, 0);
    toy_prefix(&t, &again, 9, 0);
    ck_assert_int_eq(kvf__pass_prepare(t.ctx, pass, batch.b.n_tokens, batch.b.n_labels), KVF_OK);
    uint64_t before = kvf__ctx_allocations(t.ctx);
    double a = toy_gradient(&t, pass, &batch.b, &prefix, 0.25f, &first);
    double b = toy_gradient(&t, pass, &batch.b, &prefix, 0.25f, &again);
    ck_assert_uint_eq(kvf__ctx_allocations(t.ctx), before);
    ck_assert(a == b);
    no_bits_differ(first.kv, again.kv, kvf__prefix_count(&first) * sizeof(float));

    kvf__prefix_done(&prefix);
    kvf__prefix_done(&first);
    kvf__prefix_done(&again);
    kvf__pass_free(pass);
}
END_TEST

START_TEST(times_are_booked)
{
    kvf__pass *pass = toy_pass(&t);
    kvf__timing times[64];
    toy_batch batch;
    double total = 0;

    toy_batch_make(&batch, kvf__model_desc(t.model), LENGTHS, 0.5, 6);
    double before = kvf__clock();
    toy_loss(&t, pass, &batch.b, NULL);
    double spent = kvf__clock() - before;
    size_t n = kvf__pass_timings(pass, times, 64);
    for (size_t i = 0; i < n; i++) {
        ck_assert_double_ge(times[i].seconds, 0);
        total += times[i].seconds;
    }
    ck_assert_str_eq(times[2].name, "qkv");
    ck_assert_double_gt(times[2].seconds, 0);
    ck_assert_double_le(total, spent);
    kvf__pass_free(pass);
}
END_TEST

/* ---- grad ------------------------------------------------------------------------------------ */

/* Masks of the gradient check: all layers, the lowest off (backward stops above it), the highest
 * off. */
static const struct {
    int off;
    int64_t P;
} MASKS[] = {{-1, 7}, {0, 5}, {1, 5}, {-1, 1}};

/* The derivative along a direction d of one layer's keys or values is <gradient, d>. d mixes the
 * gradient itself with noise. eps 2e-2 of a prefix of unit size: truncation about eps^2, f32
 * rounding of the loss about 1e-6 / eps, hence 2e-3 of the gradient's length. */
static void check_direction(kvf__pass *pass, toy_batch *batch, kvf__prefix *prefix,
                            const kvf__prefix *grad, int64_t block)
{
    const kvf__prefix_layer layer = kvf__prefix_at(prefix, block / 2),
                            d_layer = kvf__prefix_at(grad, block / 2);
    size_t n = (size_t)layer.n;
    float *at = block % 2 ? layer.v : layer.k, *d = floats((int64_t)n), *saved = floats((int64_t)n);
    const float *g = block % 2 ? d_layer.v : d_layer.k;
    kvf__rng rng = kvf__rng_make(5, (uint64_t)block);
    double norm = 0, dot = 0, length = 0, loss[2], eps = 2e-2;

    for (size_t i = 0; i < n; i++)
        norm += (double)g[i] * g[i];
    norm = sqrt(norm);
    for (size_t i = 0; i < n; i++) {
        d[i] = (float)(g[i] / norm + kvf__rng_normal(&rng) / sqrt((double)n));
        length += (double)d[i] * d[i];
    }
    length = sqrt(length);
    memcpy(saved, at, n * sizeof *at);
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < n; i++)
            at[i] = saved[i] + (float)((side ? eps : -eps) * d[i] / length);
        loss[side] = toy_loss(&t, pass, &batch->b, prefix);
    }
    memcpy(at, saved, n * sizeof *at);
    for (size_t i = 0; i < n; i++)
        dot += (double)g[i] * d[i] / length;
    double slope = (loss[1] - loss[0]) / (2 * eps);
    ck_assert_msg(fabs(slope - dot) <= 2e-3 * norm,
                  "layer %lld %s: slope %.6g, gradient %.6g (length %.4g)", (long long)(block / 2),
                  block % 2 ? "value" : "key", slope, dot, norm);
    free(d);
    free(saved);
}

START_TEST(gradient_is_the_slope)
{
    const kvf__desc *desc = kvf__model_desc(t.model);
    kvf__pass *pass = toy_pass(&t);
    kvf__prefix prefix = {0}, grad = {0};
    toy_batch batch;
    int off = MASKS[_i].off;

    toy_batch_make(&batch, desc, LENGTHS, 0.5, 8);
    toy_prefix(&t, &prefix, MASKS[_i].P, 1);
    toy_prefix(&t, &grad, MASKS[_i].P, 0);
    if (off >= 0) prefix.layer_mask[off] = 0;
    toy_gradient(&t, pass, &batch.b, &prefix, 1, &grad);
    for (int64_t block = 0; block < 2 * desc->L; block++) {
        const kvf__prefix_layer at = kvf__prefix_at(&grad, block / 2);
        if (block / 2 != off && at.n) check_direction(pass, &batch, &prefix, &grad, block);
        for (int64_t i = 0; block / 2 == off && i < 2 * at.n; i++)
            ck_assert(at.k[i] == 0);
    }
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&grad);
    kvf__pass_free(pass);
}
END_TEST

/* Record of layer_done: copies of the layers at the time of its calls. */
typedef struct witness {
    const kvf__prefix *into;
    kvf__prefix *seen;
    int64_t n, at[TOY_TOKENS];
} witness;

static void copy_layer(void *user, int64_t l)
{
    witness *w = user;
    const kvf__prefix_layer from = kvf__prefix_at(w->into, l), to = kvf__prefix_at(w->seen, l);
    memcpy(to.k, from.k, (size_t)(2 * from.n) * sizeof(float));
    w->at[w->n++] = l;
}

/* Each layer from the lowest with keys on is called once, from the last down; nothing is added to
 * it afterwards. */
START_TEST(layers_are_called_when_whole)
{
    const kvf__desc *d = kvf__model_desc(t.model);
    kvf__pass *pass = toy_pass(&t);
    kvf__prefix prefix = {0}, into = {0}, seen = {0};
    toy_batch batch;
    toy_batch_make(&batch, d, LENGTHS, 0.5, 9);
    toy_prefix(&t, &prefix, 7, 1);
    toy_prefix(&t, &into, 7, 0);
    toy_prefix(&t, &seen, 7, 0);
    witness w = {.into = &into, .seen = &seen};
    double sum = 0;

    toy_fwd(&t, pass, &batch.b, &prefix);
    ck_assert_int_eq(kvf__pass_loss(t.ctx, pass, &(kvf__loss){.gradient = true, .scale = 1}, &sum),
                     KVF_OK);
    const kvf__grads grads = {.prefix = &into, .layer_done = copy_layer, .user = &w};
    ck_assert_int_eq(kvf__pass_bwd(t.ctx, pass, &grads), KVF_OK);
    int64_t lowest = 0;
    while (kvf__layer_mixes(d, lowest))
        lowest++;
    ck_assert_int_eq(w.n, d->L - lowest);
    for (int64_t i = 0; i < w.n; i++)
        ck_assert_int_eq(w.at[i], d->L - 1 - i);
    no_bits_differ(seen.kv, into.kv, kvf__prefix_count(&into) * sizeof(float));

    kvf__prefix_done(&prefix);
    kvf__prefix_done(&into);
    kvf__prefix_done(&seen);
    kvf__pass_free(pass);
}
END_TEST

/* Masked layers stay untouched, the others are added to, and the scale is a factor. */
START_TEST(gradient_adds_and_scales)
{
    const kvf__desc *desc = kvf__model_desc(t.model);
    kvf__pass *pass = toy_pass(&t);
    kvf__prefix prefix = {0}, once = {0}, more = {0};
    toy_batch batch;
    double loss = 0;

    toy_batch_make(&batch, desc, LENGTHS, 0.5, 9);
    toy_prefix(&t, &prefix, 5, 1);
    toy_prefix(&t, &once, 5, 0);
    toy_prefix(&t, &more, 5, 0);
    prefix.layer_mask[1] = 0;
    toy_gradient(&t, pass, &batch.b, &prefix, 1, &once);
    size_t n = kvf__prefix_count(&once), layer = n / (size_t)desc->L;
    for (size_t i = 0; i < n; i++)
        more.kv[i] = 3;
    toy_fwd(&t, pass, &batch.b, &prefix);
    ck_assert_int_eq(
        kvf__pass_loss(t.ctx, pass, &(kvf__loss){.gradient = true, .scale = 0.5f}, &loss), KVF_OK);
    ck_assert_int_eq(kvf__pass_bwd(t.ctx, pass, &(kvf__grads){.prefix = &more}), KVF_OK);
    for (size_t i = 0; i < n; i++)
        if (i / layer == 1)
            ck_assert(more.kv[i] == 3);
        else
            once.kv[i] = 3 + 0.5f * once.kv[i];
    ck_close(more.kv, once.kv, layer, 1e-5, 1e-5);
    ck_close(more.kv + 2 * layer, once.kv + 2 * layer, n - 2 * layer, 1e-5, 1e-5);

    kvf__prefix_done(&prefix);
    kvf__prefix_done(&once);
    kvf__prefix_done(&more);
    kvf__pass_free(pass);
}
END_TEST

/* ---- cache ----------------------------------------------------------------------------------- */

/* Tokens [from, to) of each of two rows, all labelled, as a batch of their own. */
static void slice(toy_batch *out, const toy_batch *whole, int64_t from, int64_t to)
{
    *out = (toy_batch){.b = {.start = out->start,
                             .ids = out->ids,
                             .label_at = out->label_at,
                             .label_id = out->label_id,
                             .example = out->example}};
    for (int64_t r = 0; r < whole->b.n_rows; r++) {
        for (int64_t i = from; i < to; i++) {
            out->ids[out->b.n_tokens] = whole->ids[whole->start[r] + i];
            out->label_at[out->b.n_labels++] = (int32_t)out->b.n_tokens++;
        }
        out->start[++out->b.n_rows] = out->b.n_tokens;
    }
}

/* Feeds tokens [from, to) after the cache and compares their logits with those of one full pass. */
static void check_step(kvf__pass *pass, kvf__cache *cache, const kvf__prefix *prefix,
                       const toy_batch *whole, const float *full, int64_t from, int64_t to)
{
    static const int32_t slots[] = {2, 0};
    int64_t V = kvf__model_desc(t.model)->V, len = whole->start[1];
    toy_batch part;
    slice(&part, whole, from, to);
    const kvf__input input = {.batch = &part.b,
                              .condition.prefix = prefix,
                              .condition.position_start = prefix->P,
                              .cache = cache,
                              .slot = slots};
    float *logits = floats(part.b.n_labels * V);

    ck_assert_msg(!kvf__pass_fwd(t.ctx, pass, &input), "%s", kvf_ctx_error(t.ctx));
    logits_of(pass, logits);
    for (int64_t r = 0; r < 2; r++) {
        ck_assert_int_eq(kvf__cache_length(cache, slots[r]), to);
        ck_close(logits + r * (to - from) * V, full + (r * len + from) * V,
                 (size_t)((to - from) * V), 1e-4, 1e-4);
    }
    free(logits);
}

START_TEST(cached_tokens_need_no_second_pass)
{
    static const int64_t lengths[] = {20, 20, 0};
    const kvf__desc *d = kvf__model_desc(t.model);
    kvf__pass *pass = toy_pass(&t);
    kvf__cache *cache = NULL;
    kvf__prefix prefix = {0};
    toy_batch whole;
    toy_batch_make(&whole, d, lengths, 1, 10);
    float *full = floats(whole.b.n_labels * d->V);

    toy_prefix(&t, &prefix, 6, 1);
    toy_fwd(&t, pass, &whole.b, &prefix);
    logits_of(pass, full);
    ck_assert_int_eq(kvf__cache_create(t.ctx, t.model, 3, 24, &cache), KVF_OK);
    check_step(pass, cache, &prefix, &whole, full, 0, 11);
    check_step(pass, cache, &prefix, &whole, full, 11, 12);
    check_step(pass, cache, &prefix, &whole, full, 12, 19);
    check_step(pass, cache, &prefix, &whole, full, 19, 20);
    if (!d->mixer.kind) { /* a state has no earlier tokens */
        kvf__cache_truncate(cache, 2, 14);
        kvf__cache_truncate(cache, 0, 14);
        check_step(pass, cache, &prefix, &whole, full, 14, 16);
    }
    ck_assert_int_eq(kvf__cache_length(cache, 1), 0);

    free(full);
    kvf__cache_free(cache);
    kvf__prefix_done(&prefix);
    kvf__pass_free(pass);
}
END_TEST

/* Keys, values and states read from a cache act as a prefix: the rest of the row attends to the
 * same values. The filling pass has no labels, so its last layer ends at the keys. */
START_TEST(cache_reads_as_prefix)
{
    static const int64_t lengths[] = {20, 0};
    const kvf__desc *d = kvf__model_desc(t.model);
    kvf__pass *pass = toy_pass(&t);
    kvf__cache *cache = NULL;
    kvf__prefix prefix = {0};
    toy_batch whole, part;
    toy_batch_make(&whole, d, lengths, 1, 12);
    float *full = floats(whole.b.n_labels * d->V), *rest = floats(whole.b.n_labels * d->V);

    toy_fwd(&t, pass, &whole.b, NULL);
    logits_of(pass, full);
    ck_assert_int_eq(kvf__cache_create(t.ctx, t.model, 1, 9, &cache), KVF_OK);
    slice(&part, &whole, 0, 9);
    part.b.n_labels = 0;
    const kvf__input fill = {.batch = &part.b, .cache = cache};
    ck_assert_msg(!kvf__pass_fwd(t.ctx, pass, &fill), "%s", kvf_ctx_error(t.ctx));
    toy_prefix(&t, &prefix, 9, 0);
    kvf__cache_read(cache, 0, 0, 9, prefix.kv);
    int64_t states;
    const float *state = kvf__cache_states(cache, 0, &states);
    ck_assert(!kvf__prefix_set_state(t.ctx, &prefix, state, states));
    slice(&part, &whole, 9, 20);
    toy_fwd(&t, pass, &part.b, &prefix);
    logits_of(pass, rest);
    ck_close(rest, full + 9 * d->V, (size_t)(11 * d->V), 1e-4, 1e-4);

    free(full);
    free(rest);
    kvf__cache_free(cache);
    kvf__prefix_done(&prefix);
    kvf__pass_free(pass);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pass");
    const struct {
        const char *name;
        SFun setup;
    } models[] = {{"llama", setup_llama}, {"gpt2", setup_gpt2},       {"qwen3", setup_qwen3},
                  {"lfm2", setup_lfm2},   {"qwen3_5", setup_qwen3_5}, {"olmo2", setup_olmo2},
                  {"neox", setup_neox},   {"phi3", setup_phi3},       {"gemma", setup_gemma}};

    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        TCase *core = tcase_create(models[i].name);
        tcase_add_checked_fixture(core, models[i].setup, teardown);
        tcase_set_timeout(core, 60);
        tcase_add_test(core, empty_prefix_is_the_bare_base);
        tcase_add_loop_test(core, batch_equals_rows, 0, 2);
        tcase_add_test(core, zero_prefix_is_not_nothing);
        tcase_add_test(core, masked_layers_see_no_prefix);
        tcase_add_test(core, labels_stand_anywhere);
        tcase_add_test(core, same_bits_and_no_allocation);
        tcase_add_test(core, times_are_booked);
        tcase_add_loop_test(core, gradient_is_the_slope, 0, sizeof MASKS / sizeof MASKS[0]);
        tcase_add_test(core, gradient_adds_and_scales);
        tcase_add_test(core, layers_are_called_when_whole);
        tcase_add_test(core, cached_tokens_need_no_second_pass);
        tcase_add_test(core, cache_reads_as_prefix);
        suite_add_tcase(suite, core);
    }
    return ck_main(suite);
}
