/* The prefix inside rows, [x][prefix][y]. Compared with torch (infix.safetensors, written by
 * tests/golden/make_infix_golden.py), and with rows whose prefix joins x's cache and the rotated
 * infix. Also tests a cache of x, and refusals. */
#include "golden_model.h"
#include "toy_model.h"

/* A batch cut in two: row 2r is x of row r, row 2r + 1 its y. */
typedef struct split {
    kvf__batch b;
    int64_t start[2 * TOY_ROWS + 1], example[2 * TOY_ROWS];
    int32_t parent[2 * TOY_ROWS], infix_at[2 * TOY_ROWS];
} split;

static void split_batch(split *s, const kvf__batch *b, const int32_t *cut)
{
    *s = (split){.b = *b};
    s->b.n_rows = 2 * b->n_rows;
    for (int64_t r = 0; r < b->n_rows; r++) {
        s->start[2 * r + 1] = b->start[r] + cut[r];
        s->start[2 * r + 2] = b->start[r + 1];
        s->parent[2 * r] = s->infix_at[2 * r] = -1;
        s->parent[2 * r + 1] = (int32_t)(2 * r);
        s->infix_at[2 * r + 1] = cut[r];
        s->example[2 * r] = -1;
        s->example[2 * r + 1] = r;
    }
    s->b.start = s->start;
    s->b.example = s->example;
    s->b.parent = s->parent;
    s->b.infix_at = s->infix_at;
}

static kvf__pass *make_pass(kvf_ctx *ctx, kvf__model *model, bool infix, bool recompute)
{
    const kvf__pass_limits limits = {.rows = 2 * TOY_ROWS,
                                     .tokens = 256,
                                     .row_len = 64,
                                     .labels = 256,
                                     .P = 48,
                                     .cache_len = 64,
                                     .common_len = 64,
                                     .common_tokens = 256,
                                     .infix = infix,
                                     .backward = true,
                                     .recompute = recompute};
    kvf__pass *pass = NULL;
    ck_assert_msg(!kvf__pass_create(ctx, model, &limits, &pass), "%s", kvf_ctx_error(ctx));
    return pass;
}

/* Loss and, if dprefix is given, its gradient, added. */
static double run(kvf_ctx *ctx, kvf__pass *pass, const kvf__batch *batch, const kvf__prefix *prefix,
                  int64_t position_start, kvf__prefix *dprefix)
{
    const kvf__input input = {
        .batch = batch, .condition.prefix = prefix, .condition.position_start = position_start};
    double loss = 0;
    ck_assert_msg(!kvf__pass_fwd(ctx, pass, &input), "%s", kvf_ctx_error(ctx));
    ck_assert(
        !kvf__pass_loss(ctx, pass, &(kvf__loss){.gradient = dprefix != NULL, .scale = 1}, &loss));
    if (dprefix) ck_assert(!kvf__pass_bwd(ctx, pass, &(kvf__grads){.prefix = dprefix}));
    return loss;
}

/* ---- against torch --------------------------------------------------------------------------- */

static const char *const MODELS[] = {"llama_tied", "gpt2", "qwen3"};
enum { N_MODELS = sizeof MODELS / sizeof MODELS[0] };

START_TEST(loss_and_gradient_are_those_of_torch)
{
    golden g;
    kvf__weights file = {0};
    kvf__prefix grad = {0};
    split s;
    golden_load(&g, MODELS[_i], KVF__F32);
    ck_assert(!kvf__safetensors_open(g.ctx, ck_source("tests/golden/infix.safetensors"), &file));
    ck_assert(!kvf__prefix_init(g.ctx, &grad, g.prefix.L, g.prefix.G, g.prefix.P, g.prefix.D));
    split_batch(&s, &g.batch, golden_stored(&file, MODELS[_i], "cut"));
    kvf__pass *pass = make_pass(g.ctx, g.model, true, false);

    double want = (double)*(const float *)golden_stored(&file, MODELS[_i], "loss");
    ck_assert_double_eq_tol(run(g.ctx, pass, &s.b, &g.prefix, 0, &grad), want, 1e-5 * want);
    ck_assert_double_le(
        ck_rel_l2(grad.kv, golden_stored(&file, MODELS[_i], "grad"), kvf__prefix_count(&grad)),
        1e-5);
    kvf__pass_free(pass);
    kvf__prefix_done(&grad);
    kvf__weights_close(&file);
    golden_unload(&g);
}
END_TEST

/* ---- compared with a prefix that includes x -------------------------------------------------- */

static toy t;
static const char *const *const CONFIGS[] = {&toy_llama, &toy_qwen3, &toy_gpt2};
enum { N_CONFIGS = sizeof CONFIGS / sizeof CONFIGS[0], P = 6 };
static const int64_t LENGTHS[] = {17, 12, 5, 30, 0};
static const int32_t CUTS[] = {9, 3, 4, 20};

static void teardown(void)
{
    toy_free(&t);
}

/* The cache of the first `cut` tokens of a row, alone. */
static kvf__cache *cache_of(kvf__pass *pass, const int32_t *ids, int64_t cut)
{
    const int64_t start[] = {0, cut}, example = 0;
    const kvf__batch batch = {
        .n_rows = 1, .n_tokens = cut, .start = start, .ids = ids, .example = &example};
    kvf__cache *cache = NULL;
    ck_assert(!kvf__cache_create(t.ctx, t.model, 1, 64, &cache));
    const kvf__input input = {.batch = &batch, .cache = cache};
    ck_assert_msg(!kvf__pass_fwd(t.ctx, pass, &input), "%s", kvf_ctx_error(t.ctx));
    return cache;
}

/* Copies src [2, G, n, D] to dst [2, G, at + n, D] from token `at`, or back. */
static void put(kvf__prefix *whole, int64_t at, kvf__prefix *part, bool back)
{
    int64_t D = whole->D;
    for (int64_t i = 0; i < whole->L * 2 * whole->G; i++)
        for (int64_t p = 0; p < part->P; p++) {
            float *w = whole->kv + (i * whole->P + at + p) * D,
                  *q = part->kv + (i * part->P + p) * D;
            for (int64_t c = 0; c < D; c++)
                if (back)
                    q[c] += w[c];
                else
                    w[c] = q[c];
        }
}

/* Row r: its loss, and the gradient of the infix added to *sum. */
static double by_long_prefix(kvf__pass *pass, const toy_batch *all, int64_t r, kvf__prefix *infix,
                             kvf__prefix *sum)
{
    int64_t first = all->start[r], cut = CUTS[r], n = all->start[r + 1] - first - cut;
    kvf__cache *cache = cache_of(pass, all->ids + first, cut);
    kvf__prefix x = {0}, rotated = {0}, whole = {0}, dwhole = {0}, grad = {0};
    const kvf__desc *d = kvf__model_desc(t.model);
    ck_assert(!kvf__prefix_init(t.ctx, &x, d->L, d->G, cut, d->D));
    ck_assert(!kvf__prefix_init(t.ctx, &rotated, d->L, d->G, P, d->D));
    ck_assert(!kvf__prefix_init(t.ctx, &grad, d->L, d->G, P, d->D));
    ck_assert(!kvf__prefix_init(t.ctx, &whole, d->L, d->G, cut + P, d->D));
    ck_assert(!kvf__prefix_init(t.ctx, &dwhole, d->L, d->G, cut + P, d->D));
    kvf__cache_read(cache, 0, 0, cut, x.kv);
    ck_assert(!kvf__model_rotate_prefix(t.ctx, t.model, &rotated, infix, cut, false));
    put(&whole, 0, &x, false);
    put(&whole, cut, &rotated, false);

    toy_batch y;
    const int64_t lengths[] = {n, 0};
    toy_batch_make(&y, d, lengths, 1, 1);
    for (int64_t i = 0; i < n; i++)
        y.ids[i] = all->ids[first + cut + i];
    y.b.n_labels = 0;
    for (int64_t j = 0; j < all->b.n_labels; j++) {
        int64_t at = all->label_at[j] - first - cut;
        if (at < 0 || at >= n) continue;
        y.label_at[y.b.n_labels] = (int32_t)at;
        y.label_id[y.b.n_labels++] = all->label_id[j];
    }
    double loss = run(t.ctx, pass, &y.b, &whole, cut + P, &dwhole);
    put(&dwhole, cut, &grad, true);
    ck_assert(!kvf__model_rotate_prefix(t.ctx, t.model, &grad, &grad, cut, true));
    for (size_t i = 0; i < kvf__prefix_count(sum); i++)
        sum->kv[i] += grad.kv[i];
    kvf__prefix *const all_of_them[] = {&x, &rotated, &whole, &dwhole, &grad};
    for (int i = 0; i < 5; i++)
        kvf__prefix_done(all_of_them[i]);
    kvf__cache_free(cache);
    return loss;
}

static void make_rows(toy_batch *batch, split *s)
{
    toy_batch_make(batch, kvf__model_desc(t.model), LENGTHS, 0.2, 8);
    split_batch(s, &batch->b, CUTS);
}

START_TEST(equals_a_prefix_behind_x)
{
    toy_batch batch;
    split s;
    kvf__prefix infix = {0}, got = {0}, want = {0};
    toy_create(&t, *CONFIGS[_i / 2], KVF__F32);
    kvf__pass *pass = make_pass(t.ctx, t.model, true, _i % 2);
    make_rows(&batch, &s);
    toy_prefix(&t, &infix, P, 1);
    ck_assert(!kvf__prefix_init(t.ctx, &got, infix.L, infix.G, P, infix.D));
    ck_assert(!kvf__prefix_init(t.ctx, &want, infix.L, infix.G, P, infix.D));

    double sum = 0, loss = run(t.ctx, pass, &s.b, &infix, 0, &got);
    for (int64_t r = 0; r < batch.b.n_rows; r++)
        sum += by_long_prefix(pass, &batch, r, &infix, &want);
    ck_assert_double_eq_tol(loss, sum, 1e-5 * sum);
    ck_assert_double_le(ck_rel_l2(got.kv, want.kv, kvf__prefix_count(&want)), 1e-5);
    kvf__prefix_done(&infix);
    kvf__prefix_done(&got);
    kvf__prefix_done(&want);
    kvf__pass_free(pass);
}
END_TEST

/* x does not attend to the prefix: its predictions equal those of the bare base, for any following
 * text. */
START_TEST(x_does_not_see_it)
{
    toy_batch batch;
    split s;
    kvf__prefix infix = {0};
    float bare[256], with[256];
    double loss;
    toy_create(&t, *CONFIGS[_i], KVF__F32);
    kvf__pass *pass = make_pass(t.ctx, t.model, true, false);
    toy_batch_make(&batch, kvf__model_desc(t.model), LENGTHS, 1, 8);
    split_batch(&s, &batch.b, CUTS);
    toy_prefix(&t, &infix, P, 1);
    kvf__input input = {.batch = &batch.b};
    ck_assert(!kvf__pass_fwd(t.ctx, pass, &input));
    ck_assert(!kvf__pass_loss(t.ctx, pass, &(kvf__loss){.token_loss = bare}, &loss));
    input = (kvf__input){.batch = &s.b, .condition.prefix = &infix};
    ck_assert(!kvf__pass_fwd(t.ctx, pass, &input));
    ck_assert(!kvf__pass_loss(t.ctx, pass, &(kvf__loss){.token_loss = with}, &loss));
    for (int64_t r = 0; r < batch.b.n_rows; r++) {
        ck_close(with + batch.start[r], bare + batch.start[r], (size_t)CUTS[r], 1e-5, 1e-6);
        for (int64_t i = batch.start[r] + CUTS[r]; i < batch.start[r + 1]; i++)
            ck_assert(with[i] != bare[i]);
    }
    kvf__prefix_done(&infix);
    kvf__pass_free(pass);
}
END_TEST

/* P = 0 in a row of two parts equals the bare base; a masked layer has no segment, but positions
 * stay. */
START_TEST(without_a_prefix)
{
    toy_batch batch;
    split s;
    kvf__prefix infix = {0}, zero = {0};
    toy_create(&t, *CONFIGS[_i], KVF__F32);
    kvf__pass *pass = make_pass(t.ctx, t.model, true, false);
    make_rows(&batch, &s);
    double bare = run(t.ctx, pass, &batch.b, NULL, 0, NULL);
    ck_assert_double_eq_tol(run(t.ctx, pass, &s.b, NULL, 0, NULL), bare, 1e-5 * bare);
    toy_prefix(&t, &infix, P, 1);
    ck_assert(!kvf__prefix_init(t.ctx, &zero, infix.L, infix.G, P, infix.D));
    double seen = run(t.ctx, pass, &s.b, &infix, 0, NULL);
    memset(infix.layer_mask, 0, (size_t)infix.L);
    memset(zero.layer_mask, 0, (size_t)infix.L);
    double masked = run(t.ctx, pass, &s.b, &infix, 0, NULL);
    ck_assert_double_eq(masked, run(t.ctx, pass, &s.b, &zero, 0, NULL));
    ck_assert(masked != seen);
    kvf__prefix_done(&infix);
    kvf__prefix_done(&zero);
    kvf__pass_free(pass);
}
END_TEST

/* x in a cache, then y token by token, as in generation. */
START_TEST(a_cache_of_x)
{
    enum { CUT = 9, N = 6 };
    const int64_t lengths[] = {CUT + N, 0}, one[] = {0, 1}, example = 0;
    const int32_t at = CUT, first = 0, cut[] = {CUT};
    toy_batch batch;
    split s;
    kvf__prefix infix = {0}, rotated = {0};
    toy_create(&t, *CONFIGS[_i], KVF__F32);
    const kvf__desc *d = kvf__model_desc(t.model);
    size_t V = (size_t)d->V;
    float *want = calloc((size_t)(CUT + N) * V, sizeof *want), *got = calloc(V, sizeof *got);
    kvf__pass *pass = make_pass(t.ctx, t.model, true, false);
    toy_prefix(&t, &infix, P, 1);
    toy_batch_make(&batch, d, lengths, 1, 4);
    split_batch(&s, &batch.b, cut);
    run(t.ctx, pass, &s.b, &infix, 0, NULL);
    ck_assert(!kvf__pass_lm_logits(t.ctx, pass, want));

    kvf__cache *cache = cache_of(pass, batch.ids, CUT);
    for (int64_t i = 0; i < N; i++) {
        const kvf__batch step = {.n_rows = 1,
                                 .n_tokens = 1,
                                 .n_labels = 1,
                                 .start = one,
                                 .ids = batch.ids + CUT + i,
                                 .label_at = &first,
                                 .label_id = batch.label_id,
                                 .example = &example,
                                 .infix_at = &at};
        const kvf__input input = {.batch = &step, .condition.prefix = &infix, .cache = cache};
        ck_assert_msg(!kvf__pass_fwd(t.ctx, pass, &input), "%s", kvf_ctx_error(t.ctx));
        ck_assert(!kvf__pass_lm_logits(t.ctx, pass, got));
        ck_close(got, want + (size_t)(CUT + i) * V, V, 1e-4, 1e-5);
    }
    kvf__cache_free(cache);
    kvf__prefix_done(&infix);
    kvf__prefix_done(&rotated);
    kvf__pass_free(pass);
    free(want);
    free(got);
}
END_TEST

/* ---- turning --------------------------------------------------------------------------------- */

static const char *const toy_yarn =
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":24,\"intermediate_size\":40,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8,"
    "\"max_position_embeddings\":300,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,"
    "\"hidden_act\":\"silu\",\"attention_bias\":false,\"mlp_bias\":false,\"rope_parameters\":{"
    "\"rope_type\":\"yarn\",\"rope_theta\":1000.0,\"factor\":4.0,"
    "\"original_max_position_embeddings\":75}}";

START_TEST(rotating_back_undoes_it)
{
    kvf__prefix from = {0}, to = {0};
    toy_create(&t, _i ? toy_yarn : toy_llama, KVF__F32);
    toy_prefix(&t, &from, P, 1);
    ck_assert(!kvf__prefix_init(t.ctx, &to, from.L, from.G, P, from.D));
    ck_assert(!kvf__model_rotate_prefix(t.ctx, t.model, &to, &from, 40, false));
    ck_assert(memcmp(to.kv, from.kv, kvf__prefix_count(&to) * sizeof(float)) != 0);
    ck_assert(!kvf__model_rotate_prefix(t.ctx, t.model, &to, &to, 40, true));
    ck_close(to.kv, from.kv, kvf__prefix_count(&to), 1e-5, 1e-5);
    kvf__prefix_done(&from);
    kvf__prefix_done(&to);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static void refused(kvf__pass *pass, const kvf__input *input, kvf_status status, const char *text)
{
    ck_assert_int_eq(kvf__pass_fwd(t.ctx, pass, input), status);
    ck_assert_msg(strstr(kvf_ctx_error(t.ctx), text) != NULL, "%s", kvf_ctx_error(t.ctx));
}

START_TEST(what_it_refuses)
{
    toy_batch batch;
    split s;
    kvf__prefix infix = {0};
    toy_create(&t, toy_llama, KVF__F32);
    kvf__pass *pass = make_pass(t.ctx, t.model, true, false),
              *other = make_pass(t.ctx, t.model, false, false);
    make_rows(&batch, &s);
    toy_prefix(&t, &infix, P, 1);
    kvf__input input = {.batch = &s.b, .condition.prefix = &infix};
    refused(other, &input, KVF_EUSAGE, "made without a prefix inside rows");
    const kvf__row_dropout drop = {.p = 0.5};
    input.row_dropout = &drop;
    refused(pass, &input, KVF_EUSAGE, "excludes");
    input.row_dropout = NULL;
    s.infix_at[3] = 2;
    refused(pass, &input, KVF_ESHAPE,
            "batch row 3: the prefix follows 2 tokens, the row follows 3");
    s.infix_at[3] = 3;
    input.condition.position_start = 300 - 30 - P + 1;
    refused(pass, &input, KVF_ESHAPE, "last token at position 300");
    kvf__prefix_done(&infix);
    kvf__pass_free(pass);
    kvf__pass_free(other);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pass_infix");
    TCase *cases = tcase_create("golden");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, loss_and_gradient_are_those_of_torch, 0, N_MODELS);
    suite_add_tcase(suite, cases);
    cases = tcase_create("core");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, NULL, teardown);
    tcase_add_loop_test(cases, equals_a_prefix_behind_x, 0, 2 * N_CONFIGS);
    tcase_add_loop_test(cases, x_does_not_see_it, 0, N_CONFIGS);
    tcase_add_loop_test(cases, without_a_prefix, 0, N_CONFIGS);
    tcase_add_loop_test(cases, a_cache_of_x, 0, N_CONFIGS);
    tcase_add_loop_test(cases, rotating_back_undoes_it, 0, 2);
    suite_add_tcase(suite, cases);
    cases = tcase_create("errors");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, NULL, teardown);
    tcase_add_test(cases, what_it_refuses);
    suite_add_tcase(suite, cases);
    return ck_main(suite);
}
