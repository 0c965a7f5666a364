/* Encoder-decoders against transformers: tiny models made by tests/golden/make_seq2seq_golden.py.
 * The script stores logits, the gradient of the prefix in all three places, five training steps,
 * and the bf16 error of torch's own autocast. */
#include "golden_model.h"

#include <math.h>

static const char *const MODELS[] = {"t5", "t5_gated", "bart", "bart_scaled"};
enum { N_MODELS = sizeof MODELS / sizeof MODELS[0] };

static double loss_of(golden *g, const kvf__prefix *prefix, bool gradient)
{
    const kvf__input input = {
        .batch = &g->batch,
        .condition = {.prefix = prefix, .position_start = prefix ? g->position_start : 0}};
    double loss = 0;

    ck_assert_msg(!kvf__pass_fwd(g->ctx, g->pass, &input), "%s", kvf_ctx_error(g->ctx));
    ck_assert_msg(
        !kvf__pass_loss(g->ctx, g->pass,
                        &(kvf__loss){.gradient = gradient, .scale = 1 / (float)g->batch.n_labels},
                        &loss),
        "%s", kvf_ctx_error(g->ctx));
    return loss / (double)g->batch.n_labels;
}

static void check_logits(golden *g, const kvf__prefix *prefix, const char *name)
{
    int64_t n;
    float *want = golden_values(g, name, &n), *got = calloc((size_t)n, sizeof *got);

    loss_of(g, prefix, false);
    ck_assert_int_eq(kvf__pass_lm_logits(g->ctx, g->pass, got), KVF_OK);
    ck_close(got, want, (size_t)n, 0, 1e-4);
    free(want);
    free(got);
}

START_TEST(logits_match)
{
    golden g;
    golden_load(&g, MODELS[_i], KVF__F32);
    float *loss = golden_values(&g, "losses", NULL);

    check_logits(&g, NULL, "bare_logits");
    check_logits(&g, &g.prefix, "logits");
    ck_assert_double_eq_tol(loss_of(&g, &g.prefix, false), (double)loss[0], 1e-5);
    free(loss);
    golden_unload(&g);
}
END_TEST

/* Only the layers of one place have the prefix. */
static void keep_place(golden *g, int place)
{
    const kvf__desc *d = kvf__model_desc(g->model);

    for (int64_t l = 0; l < d->L; l++)
        g->prefix.layer_mask[l] = (int)kvf__layer_place(d, l) == place;
}

START_TEST(each_place_alone_matches)
{
    static const char *const STORED[] = {"logits_encoder", "logits_decoder", "logits_cross"};

    for (int i = 2; i < N_MODELS; i++) {
        golden g;
        golden_load(&g, MODELS[i], KVF__F32);
        for (int place = KVF__PLACE_ENCODER; place <= KVF__PLACE_CROSS; place++) {
            keep_place(&g, place);
            check_logits(&g, &g.prefix, STORED[place - KVF__PLACE_ENCODER]);
        }
        golden_unload(&g);
    }
}
END_TEST

static void gradient_of(golden *g, kvf__prefix *grad)
{
    memset(grad->kv, 0, kvf__prefix_count(grad) * sizeof *grad->kv);
    loss_of(g, &g->prefix, true);
    ck_assert_msg(!kvf__pass_bwd(g->ctx, g->pass, &(kvf__grads){.prefix = grad}), "%s",
                  kvf_ctx_error(g->ctx));
}

static void init_gradient(golden *g, kvf__prefix *grad)
{
    ck_assert_int_eq(
        kvf__prefix_init(g->ctx, grad, g->prefix.L, g->prefix.G, g->prefix.P, g->prefix.D), KVF_OK);
}

static double gradient_error(golden *g)
{
    kvf__prefix grad = {0};
    float *want = golden_values(g, "gradient", NULL);

    init_gradient(g, &grad);
    gradient_of(g, &grad);
    double error = ck_rel_l2(grad.kv, want, kvf__prefix_count(&grad));
    kvf__prefix_done(&grad);
    free(want);
    return error;
}

START_TEST(gradient_matches)
{
    golden g;
    golden_load(&g, MODELS[_i], KVF__F32);
    ck_assert_double_le(gradient_error(&g), 1e-5);
    golden_unload(&g);
}
END_TEST

START_TEST(bf16_gradient_is_no_worse_than_autocast)
{
    ck_need(kvf__cpu_has_bf16(), "this CPU has no bf16 products");
    for (int i = 0; i < N_MODELS; i++) {
        golden g;
        golden_load(&g, MODELS[i], KVF__BF16);
        float *torch = golden_values(&g, "autocast_error", NULL);
        double ours = gradient_error(&g);
        ck_assert_msg(ours <= 1.3 * (double)torch[0],
                      "%s: gradient error %.3g, torch autocast %.3g", MODELS[i], ours,
                      (double)torch[0]);
        ck_assert_double_gt(ours, 1e-4); /* it was bf16 */
        free(torch);
        golden_unload(&g);
    }
}
END_TEST

/* A place without prefix gets no gradient, and leaves the gradients of the other places unchanged
 * for that input. */
START_TEST(places_are_layers)
{
    golden g;
    kvf__prefix all = {0}, one = {0};
    golden_load(&g, MODELS[_i], KVF__F32);
    const kvf__desc *d = kvf__model_desc(g.model);
    const size_t n = kvf__prefix_count(&g.prefix) / (size_t)g.prefix.L;

    init_gradient(&g, &all);
    init_gradient(&g, &one);
    for (int place = KVF__PLACE_ENCODER; place <= KVF__PLACE_CROSS; place++) {
        keep_place(&g, place);
        const double with = loss_of(&g, &g.prefix, false);
        gradient_of(&g, &one);
        for (int64_t l = 0; l < d->L; l++) {
            const float *at = one.kv + (size_t)l * n;
            double square = 0;
            for (size_t i = 0; i < n; i++)
                square += (double)(at[i] * at[i]);
            ck_assert(g.prefix.layer_mask[l] ? square > 1e-12 : square == 0);
        }
        /* a step down the gradient lowers the loss by its squared length */
        double square = 0;
        for (size_t i = 0; i < kvf__prefix_count(&one); i++) {
            square += (double)(one.kv[i] * one.kv[i]);
            g.prefix.kv[i] -= 1e-2f * one.kv[i];
        }
        const double down = (with - loss_of(&g, &g.prefix, false)) / (1e-2 * square);
        ck_assert_msg(down > 0.8 && down < 1.2, "place %d: %g", place, down);
    }
    kvf__prefix_done(&all);
    kvf__prefix_done(&one);
    golden_unload(&g);
}
END_TEST

START_TEST(five_steps_match)
{
    golden g;
    kvf__prefix grad = {0};
    golden_load(&g, MODELS[_i], KVF__F32);
    const size_t n = kvf__prefix_count(&g.prefix);
    float *steps = golden_values(&g, "steps", NULL), *want = golden_values(&g, "stepped", NULL);
    double *m = calloc(n, sizeof *m), *v = calloc(n, sizeof *v);

    init_gradient(&g, &grad);
    for (int step = 0; step < 5; step++) {
        ck_assert_double_eq_tol(loss_of(&g, &g.prefix, false), (double)steps[step], 1e-5);
        gradient_of(&g, &grad);
        for (size_t i = 0; i < n; i++) {
            m[i] = 0.9 * m[i] + 0.1 * (double)grad.kv[i];
            v[i] = 0.999 * v[i] + 0.001 * (double)grad.kv[i] * (double)grad.kv[i];
            g.prefix.kv[i] -= (float)(0.05 * m[i] / (1 - pow(0.9, step + 1)) /
                                      (sqrt(v[i] / (1 - pow(0.999, step + 1))) + 1e-8));
        }
    }
    ck_assert_double_le(ck_rel_l2(g.prefix.kv, want, n), 1e-4);
    kvf__prefix_done(&grad);
    free(m);
    free(v);
    free(steps);
    free(want);
    golden_unload(&g);
}
END_TEST

/* Recomputed layers give the same bits. */
START_TEST(recomputed_gradients_are_the_same)
{
    golden g;
    kvf__prefix kept = {0}, again = {0};
    golden_load(&g, MODELS[_i], KVF__F32);
    const kvf__pass_limits limits = {.rows = GOLDEN_ROWS,
                                     .tokens = g.batch.n_tokens,
                                     .row_len = 64,
                                     .labels = g.batch.n_labels,
                                     .P = g.prefix.P,
                                     .source_tokens = g.source.n_tokens,
                                     .source_len = 64,
                                     .backward = true,
                                     .recompute = true};

    init_gradient(&g, &kept);
    init_gradient(&g, &again);
    gradient_of(&g, &kept);
    kvf__pass_free(g.pass);
    ck_assert_int_eq(kvf__pass_create(g.ctx, g.model, &limits, &g.pass), KVF_OK);
    gradient_of(&g, &again);
    ck_assert_mem_eq(kept.kv, again.kv, kvf__prefix_count(&kept) * sizeof(float));
    kvf__prefix_done(&kept);
    kvf__prefix_done(&again);
    golden_unload(&g);
}
END_TEST

/* Token by token after a cache, the logits [tokens, V]: the source is read once. */
static void check_cached(golden *g, const float *want)
{
    kvf__cache *cache = NULL;
    const int64_t V = kvf__model_desc(g->model)->V;
    const int64_t slots = g->batch.n_rows;
    float *got = calloc((size_t)V, sizeof *got);
    const kvf__pass_limits limits = {.rows = 1,
                                     .tokens = 64,
                                     .row_len = 64,
                                     .labels = 1,
                                     .P = g->prefix.P,
                                     .cache_len = 64,
                                     .source_tokens = 64,
                                     .source_len = 64};

    kvf__pass_free(g->pass);
    ck_assert_int_eq(kvf__pass_create(g->ctx, g->model, &limits, &g->pass), KVF_OK);
    ck_assert_int_eq(kvf__cache_create(g->ctx, g->model, slots + 1, 64, &cache), KVF_OK);
    for (int64_t r = 0; r < slots; r++)
        for (int64_t t = g->start[r]; t < g->start[r + 1]; t++) {
            const bool first = t == g->start[r];
            const int64_t one[] = {0, 1};
            const int64_t all[] = {0, g->source_start[r + 1] - g->source_start[r]};
            const int32_t at = 0, slot = (int32_t)(t % 2 ? slots : r);
            const kvf__batch source = {.n_rows = 1,
                                       .n_tokens = all[1],
                                       .start = all,
                                       .ids = g->source.ids + g->source_start[r]};
            const kvf__batch batch = {.n_rows = 1,
                                      .n_tokens = 1,
                                      .n_labels = 1,
                                      .start = one,
                                      .ids = g->batch.ids + t,
                                      .label_at = &at,
                                      .source = first ? &source : NULL};
            const kvf__input input = {
                .batch = &batch,
                .condition = {.prefix = &g->prefix, .position_start = g->position_start},
                .cache = cache,
                .slot = &slot};
            if (first)
                kvf__cache_truncate(cache, slot, 0);
            else
                kvf__cache_copy(cache, t % 2 ? r : slots, slot, t - g->start[r]);
            ck_assert_msg(!kvf__pass_fwd(g->ctx, g->pass, &input), "%s", kvf_ctx_error(g->ctx));
            ck_assert_int_eq(kvf__pass_lm_logits(g->ctx, g->pass, got), KVF_OK);
            ck_close(got, want + t * V, (size_t)V, 0, 1e-4);
        }
    kvf__cache_free(cache);
    free(got);
}

START_TEST(cached_logits_match)
{
    golden g;
    golden_load(&g, MODELS[_i], KVF__F32);
    float *want = golden_values(&g, "logits", NULL);

    check_cached(&g, want);
    free(want);
    golden_unload(&g);
}
END_TEST

/* A file of t5_peft, made by make_t5_peft_golden.py. */
static kvf__weights open_peft(golden *g, const char *name)
{
    kvf__weights file = {0};
    char path[128];

    snprintf(path, sizeof path, "tests/golden/t5_peft/%s.safetensors", name);
    ck_assert_msg(!kvf__safetensors_open(g->ctx, ck_source(path), &file), "%s",
                  kvf_ctx_error(g->ctx));
    return file;
}

/* The adapter's tensor [P, N * 2 * G * D] as the prefix of the decoder's self-attention: block b
 * has its layer 2 b mod N. */
static kvf__prefix from_peft(golden *g, const kvf__view *flat)
{
    const kvf__desc *d = kvf__model_desc(g->model);
    const int64_t blocks = (d->L - d->encoder) / 2;
    kvf__prefix theirs = {0}, prefix = {0};

    ck_assert_int_eq(kvf__prefix_init(g->ctx, &theirs, blocks, d->G, flat->dim[0], d->D), KVF_OK);
    ck_assert_int_eq(kvf__view_count(flat), (int64_t)kvf__prefix_count(&theirs));
    ck_assert_int_eq(kvf__prefix_init(g->ctx, &prefix, d->L, d->G, flat->dim[0], d->D), KVF_OK);
    kvf__prefix_from_flat(&theirs, flat->data);
    const size_t n = kvf__prefix_count(&theirs) / (size_t)blocks;
    memset(prefix.layer_mask, 0, (size_t)d->L);
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t l = d->encoder + 2 * b;
        prefix.layer_mask[l] = 1;
        memcpy(prefix.kv + (size_t)l * n, theirs.kv + (size_t)(2 * b % blocks) * n,
               n * sizeof *prefix.kv);
    }
    prefix.near = d->encoder;
    kvf__prefix_done(&theirs);
    return prefix;
}

/* A prefix of PEFT on T5, whose keys count as tokens in the decoder's relative bias. */
START_TEST(peft_on_t5_matches)
{
    golden g;
    golden_load(&g, "t5", KVF__F32);
    kvf__weights adapter = open_peft(&g, "adapter_model"), file = open_peft(&g, "want");
    const kvf__view *want = kvf__table_find(&file.table, "logits");
    const size_t n = (size_t)kvf__view_count(want);
    float *got = calloc(n, sizeof *got);

    kvf__prefix_done(&g.prefix);
    g.prefix = from_peft(&g, kvf__table_find(&adapter.table, "prompt_embeddings"));
    kvf__prefix expected = from_peft(&g, kvf__table_find(&file.table, "gradient"));
    kvf__prefix grad = golden_gradient(&g);
    gradient_of(&g, &grad);
    ck_assert_double_le(ck_rel_l2(grad.kv, expected.kv, kvf__prefix_count(&grad)), 1e-5);
    ck_assert_int_eq(kvf__pass_lm_logits(g.ctx, g.pass, got), KVF_OK);
    ck_close(got, want->data, n, 0, 1e-4);
    g.prefix.near = 0; /* another function */
    loss_of(&g, &g.prefix, false);
    ck_assert_int_eq(kvf__pass_lm_logits(g.ctx, g.pass, got), KVF_OK);
    ck_assert_double_ge(ck_rel_l2(got, want->data, n), 1e-2);
    g.prefix.near = kvf__model_desc(g.model)->encoder;
    check_cached(&g, want->data);
    kvf__prefix_done(&expected);
    kvf__prefix_done(&grad);
    kvf__weights_close(&adapter);
    kvf__weights_close(&file);
    free(got);
    golden_unload(&g);
}
END_TEST

static void refused(golden *g, const kvf__input *input, const char *message)
{
    ck_assert_int_ne(kvf__pass_fwd(g->ctx, g->pass, input), KVF_OK);
    ck_assert_msg(strstr(kvf_ctx_error(g->ctx), message) != NULL, "%s", kvf_ctx_error(g->ctx));
}

START_TEST(bad_inputs_are_refused)
{
    golden g, other;
    golden_load(&g, "t5", KVF__F32);
    golden_load(&other, "llama_tied", KVF__F32);
    kvf__batch batch = g.batch, source = g.source;
    const kvf__input input = {.batch = &batch};
    int32_t parents[GOLDEN_ROWS];

    batch.source = NULL;
    refused(&g, &input, "has no source");
    batch.source = &source;
    source.n_rows--;
    refused(&g, &input, "source: 3 rows");
    source.n_rows++;
    memset(parents, -1, sizeof parents);
    batch.parent = parents;
    refused(&g, &input, "excludes common prefixes");
    other.batch.source = &source;
    refused(&other, &(kvf__input){.batch = &other.batch}, "has no encoder");
    other.batch.source = NULL;
    golden_unload(&g);
    golden_unload(&other);
}
END_TEST

/* The logits of all labels after the prefix, to be freed. */
static float *logits_of(golden *g)
{
    float *logits = calloc((size_t)(g->batch.n_labels * kvf__model_desc(g->model)->V),
                           sizeof *logits);

    loss_of(g, &g->prefix, false);
    ck_assert_int_eq(kvf__pass_lm_logits(g->ctx, g->pass, logits), KVF_OK);
    return logits;
}

/* A GGUF, written by the gguf package like llama.cpp's converter, equals the model of the folder
 * bit for bit. Its farthest distance is 128, which a GGUF does not store. */
START_TEST(gguf_is_the_same_model)
{
    golden folder, file;
    kvf__weights gguf = {0};
    kvf__desc from_folder = golden_open(&folder, MODELS[_i]),
              unused = golden_open(&file, MODELS[_i]), from_gguf = {0};
    char path[128];

    snprintf(path, sizeof path, "tests/golden/model_%s/model.gguf", MODELS[_i]);
    ck_assert_msg(!kvf__gguf_open(file.ctx, ck_source(path), &gguf), "%s", kvf_ctx_error(file.ctx));
    ck_assert_msg(!kvf__desc_from_gguf(file.ctx, path, gguf.meta, &gguf.table, &from_gguf), "%s",
                  kvf_ctx_error(file.ctx));
    ck_assert_int_eq(from_gguf.position.relative.farthest, 128);
    ck_assert_int_eq(from_gguf.encoder, from_folder.encoder);
    ck_assert_int_eq(from_gguf.ids.start, from_folder.ids.start);
    ck_assert(from_gguf.tied == !_i && from_gguf.block.gated == _i);
    from_folder.position.relative.farthest = 128;
    golden_pack(&folder, &from_folder, &folder.weights.table, KVF__F32);
    golden_pack(&file, &from_gguf, &gguf.table, KVF__F32);
    float *want = logits_of(&folder), *got = logits_of(&file);
    ck_assert_mem_eq(got, want,
                     (size_t)(file.batch.n_labels * kvf__model_desc(file.model)->V) * sizeof *got);
    ck_assert(got[0] != got[1]);
    free(want);
    free(got);
    kvf__desc_done(&unused);
    golden_unload(&folder);
    golden_unload(&file);
    kvf__weights_close(&gguf);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pass_source");
    TCase *cases = tcase_create("golden");

    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, logits_match, 0, N_MODELS);
    tcase_add_loop_test(cases, gradient_matches, 0, N_MODELS);
    tcase_add_loop_test(cases, five_steps_match, 0, N_MODELS);
    tcase_add_loop_test(cases, recomputed_gradients_are_the_same, 0, N_MODELS);
    tcase_add_loop_test(cases, cached_logits_match, 0, N_MODELS);
    tcase_add_loop_test(cases, gguf_is_the_same_model, 0, 2); /* T5's */
    tcase_add_loop_test(cases, places_are_layers, 0, N_MODELS);
    tcase_add_test(cases, each_place_alone_matches);
    tcase_add_test(cases, peft_on_t5_matches);
    tcase_add_test(cases, bf16_gradient_is_no_worse_than_autocast);
    tcase_add_test(cases, bad_inputs_are_refused);
    suite_add_tcase(suite, cases);
    return ck_main(suite);
}
