/* Adapters on toy models: shapes and names, the first loss, layers without adapters. Results are
 * the same for repeated passes, recomputed layers, single rows, and passes after a cache. */
#include "toy_model.h"

static toy t;

static const struct {
    const char *name;
    const char *const *config;
    kvf__adapter_shape shape;
} CASES[] = {
    {"llama serial", &toy_llama, {5, KVF__GELU_ERF, KVF__PLACE_SERIAL}},
    {"llama attn", &toy_llama, {5, KVF__RELU, KVF__PLACE_ATTN}},
    {"llama ffn", &toy_llama, {5, KVF__TANH, KVF__PLACE_FFN}},
    {"llama parallel", &toy_llama, {4, KVF__TANH, KVF__PLACE_PARALLEL}},
    {"gpt2 serial", &toy_gpt2, {3, KVF__TANH, KVF__PLACE_SERIAL}},
    {"gpt2 parallel", &toy_gpt2, {3, KVF__GELU_ERF, KVF__PLACE_PARALLEL}},
};
enum { N_CASES = sizeof CASES / sizeof CASES[0] };
static const int64_t LENGTHS[] = {17, 1, 40, 9, 0};

static kvf__adapters *make(int row, kvf__dtype act)
{
    const kvf__model_options options = {
        .act = act,
        .backward = true,
        .train = {.what = KVF__TRAIN_ADAPTERS, .adapters = CASES[row].shape}};
    toy_create_as(&t, *CASES[row].config, &options);
    kvf__adapters_init(kvf__model_adapters(t.model), 7);
    return kvf__model_adapters(t.model);
}

/* Values away from the start: `up` and the biases are not zero. */
static void shake(kvf__adapters *adapters)
{
    kvf__rng rng = kvf__rng_make(3, 9);

    for (size_t i = 0; i < kvf__adapters_count(adapters); i++) {
        kvf__param p = kvf__adapters_param(adapters, i);
        for (int64_t j = 0; j < p.n; j++)
            p.value[j] += (float)(0.2 * kvf__rng_normal(&rng));
    }
}

static size_t total(const kvf__adapters *adapters)
{
    size_t n = 0;
    for (size_t i = 0; i < kvf__adapters_count(adapters); i++)
        n += (size_t)kvf__adapters_param(adapters, i).n;
    return n;
}

/* Loss and gradients [total] of half the labels' sum; zeroes the gradients first. */
static double gradients(kvf__pass *pass, const kvf__batch *batch, float *out)
{
    kvf__adapters *adapters = kvf__model_adapters(t.model);
    size_t at = 0;
    double loss = 0;

    for (size_t i = 0; i < kvf__adapters_count(adapters); i++) {
        kvf__param p = kvf__adapters_param(adapters, i);
        memset(p.grad, 0, (size_t)p.n * sizeof(float));
    }
    toy_fwd(&t, pass, batch, NULL);
    ck_assert_int_eq(
        kvf__pass_loss(t.ctx, pass, &(kvf__loss){.gradient = true, .scale = 0.5f}, &loss), KVF_OK);
    ck_assert_msg(!kvf__pass_bwd(t.ctx, pass, &(kvf__grads){.block = true}), "%s",
                  kvf_ctx_error(t.ctx));
    for (size_t i = 0; i < kvf__adapters_count(adapters); i++) {
        kvf__param p = kvf__adapters_param(adapters, i);
        memcpy(out + at, p.grad, (size_t)p.n * sizeof(float));
        at += (size_t)p.n;
    }
    return loss;
}

static toy_batch a_batch(void)
{
    toy_batch batch;
    toy_batch_make(&batch, kvf__model_desc(t.model), LENGTHS, 0.5, 5);
    return batch;
}

/* A batch contains pointers into itself. */
#define TAKE_BATCH(name)                                                                           \
    toy_batch name = a_batch();                                                                    \
    name.b.start = name.start, name.b.ids = name.ids, name.b.example = name.example;               \
    name.b.label_at = name.label_at, name.b.label_id = name.label_id

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(parameters)
{
    kvf__adapters *adapters = make(_i, KVF__F32);
    const kvf__desc *d = kvf__model_desc(t.model);
    int64_t m = CASES[_i].shape.size, halves = kvf__adapter_halves(&CASES[_i].shape);

    ck_assert_int_eq(halves, CASES[_i].shape.place >= KVF__PLACE_ATTN ? 1 : 2);
    ck_assert_uint_eq(total(adapters), (size_t)(d->L * halves * (2 * d->C * m + d->C + m)));
    ck_assert_uint_eq(kvf__adapters_count(adapters), (size_t)(4 * d->L * halves));
    for (size_t i = 0; i < kvf__adapters_count(adapters); i++) {
        static const char *const parts[] = {"down.weight", "down.bias", "up.weight", "up.bias"};
        kvf__param p = kvf__adapters_param(adapters, i);
        char name[64];
        snprintf(name, sizeof name, "%d.%s.%s", (int)(i / 4 / (size_t)halves),
                 CASES[_i].shape.place == KVF__PLACE_FFN || i / 4 % (size_t)halves ? "ffn" : "attn",
                 parts[i % 4]);
        ck_assert_str_eq(p.name, name);
        double bound = sqrt(6.0 / (double)(d->C + m)), most = 0;
        for (int64_t j = 0; j < p.n; j++)
            most = fmax(most, fabs((double)p.value[j]));
        if (i % 4)
            ck_assert(most == 0);
        else
            ck_assert(most <= bound && most > 0.8 * bound);
    }
    toy_free(&t);
}
END_TEST

/* Bits of the same form with all adapters left out. A model without adapters adds its products to
 * the stream directly. There oneDNN may sum in another order if it has no brgemm. */
START_TEST(first_loss_is_the_bare_base)
{
    kvf__adapters *adapters = make(_i, KVF__F32);
    kvf__pass *pass = toy_pass(&t);
    TAKE_BATCH(batch);

    double first = toy_loss(&t, pass, &batch.b, NULL);
    ck_assert_int_eq(kvf__adapters_drop(t.ctx, adapters, 0, kvf__model_desc(t.model)->L - 1),
                     KVF_OK);
    ck_assert(toy_loss(&t, pass, &batch.b, NULL) == first);
    kvf__pass_free(pass);
    toy_free(&t);

    const kvf__model_options bare = {
        .act = KVF__F32, .backward = true, .train = {.unfolded = true}};
    toy_create_as(&t, *CASES[_i].config, &bare);
    pass = toy_pass(&t);
    ck_assert_double_eq_tol(toy_loss(&t, pass, &batch.b, NULL), first, 1e-6 * first);
    kvf__pass_free(pass);
    toy_free(&t);
}
END_TEST

/* A layer without adapter equals one whose `up` and bias are zero. */
START_TEST(layers_are_left_out)
{
    kvf__adapters *adapters = make(_i, KVF__F32);
    int64_t halves = kvf__adapter_halves(&CASES[_i].shape);
    kvf__pass *pass = toy_pass(&t);
    TAKE_BATCH(batch);

    shake(adapters);
    double all = toy_loss(&t, pass, &batch.b, NULL);
    ck_assert_int_eq(kvf__adapters_drop(t.ctx, adapters, 1, 1), KVF_OK);
    double less = toy_loss(&t, pass, &batch.b, NULL);
    ck_assert_double_gt(fabs(all - less), 1e-3);
    kvf__pass_free(pass);
    toy_free(&t);

    adapters = make(_i, KVF__F32);
    pass = toy_pass(&t);
    shake(adapters);
    for (int64_t i = 4 * halves; i < 8 * halves; i++) {
        kvf__param p = kvf__adapters_param(adapters, (size_t)i);
        if (i % 4 > 1) memset(p.value, 0, (size_t)p.n * sizeof(float));
    }
    ck_assert(toy_loss(&t, pass, &batch.b, NULL) == less);
    kvf__pass_free(pass);
    toy_free(&t);
}
END_TEST

START_TEST(words)
{
    static const char *const acts[] = {"gelu", "relu", "tanh"};
    static const char *const places[] = {"serial", "parallel", "attn"};
    kvf__act_fn act;
    kvf__placement place;

    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(kvf__adapter_act_parse(NULL, acts[i], &act), KVF_OK);
        ck_assert_str_eq(kvf__adapter_act_name(act), acts[i]);
        ck_assert_int_eq(kvf__adapter_place_parse(NULL, places[i], &place), KVF_OK);
        ck_assert_str_eq(kvf__adapter_place_name(place), places[i]);
    }
    ck_assert_int_eq(kvf__adapter_act_parse(NULL, "silu", &act), KVF_EUSAGE);
    ck_assert_int_eq(kvf__adapter_place_parse(NULL, "Serial", &place), KVF_EUSAGE);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

START_TEST(same_bits_and_no_allocation)
{
    kvf__adapters *adapters = make(_i, KVF__F32);
    kvf__pass *pass = toy_pass(&t);
    size_t n = total(adapters);
    float *first = malloc(n * sizeof *first), *again = malloc(n * sizeof *again);
    TAKE_BATCH(batch);

    shake(adapters);
    ck_assert_int_eq(kvf__pass_prepare(t.ctx, pass, batch.b.n_tokens, batch.b.n_labels), KVF_OK);
    uint64_t before = kvf__ctx_allocations(t.ctx);
    double a = gradients(pass, &batch.b, first), b = gradients(pass, &batch.b, again);
    ck_assert_uint_eq(kvf__ctx_allocations(t.ctx), before);
    ck_assert(a == b);
    ck_assert_mem_eq(first, again, n * sizeof *first);
    free(first);
    free(again);
    kvf__pass_free(pass);
    toy_free(&t);
}
END_TEST

START_TEST(recomputed_bits)
{
    kvf__adapters *adapters = make(_i, KVF__F32);
    const kvf__desc *d = kvf__model_desc(t.model);
    kvf__pass *pass = toy_pass(&t), *saving = NULL;
    size_t n = total(adapters);
    float *first = malloc(n * sizeof *first), *again = malloc(n * sizeof *again);
    const kvf__pass_limits limits = {.rows = TOY_ROWS,
                                     .tokens = TOY_TOKENS,
                                     .row_len = 290,
                                     .labels = TOY_TOKENS,
                                     .backward = true,
                                     .recompute = true};
    TAKE_BATCH(batch);

    ck_assert_int_ge(d->L, 2);
    shake(adapters);
    ck_assert_int_eq(kvf__pass_create(t.ctx, t.model, &limits, &saving), KVF_OK);
    ck_assert(gradients(pass, &batch.b, first) == gradients(saving, &batch.b, again));
    ck_assert_mem_eq(first, again, n * sizeof *first);
    free(first);
    free(again);
    kvf__pass_free(saving);
    kvf__pass_free(pass);
    toy_free(&t);
}
END_TEST

/* f32 sums in another order, as for prefixes (test_pass.c). */
START_TEST(batch_equals_rows)
{
    kvf__adapters *adapters = make(_i, KVF__F32);
    kvf__pass *pass = toy_pass(&t);
    TAKE_BATCH(batch);
    size_t n = total(adapters);
    float *all = malloc(n * sizeof *all), *one = malloc(n * sizeof *one);
    float *sum = calloc(n, sizeof *sum);
    double loss = 0;

    shake(adapters);
    double whole = gradients(pass, &batch.b, all);
    for (int64_t r = 0; r < batch.b.n_rows; r++) {
        toy_batch row = batch;
        int64_t start = batch.start[r], labels = 0;
        row.start[0] = 0, row.start[1] = batch.start[r + 1] - start;
        for (int64_t j = 0; j < batch.b.n_labels; j++)
            if (batch.label_at[j] >= start && batch.label_at[j] < batch.start[r + 1]) {
                row.label_at[labels] = batch.label_at[j] - (int32_t)start;
                row.label_id[labels++] = batch.label_id[j];
            }
        const kvf__batch b = {.n_rows = 1,
                              .n_tokens = row.start[1],
                              .n_labels = labels,
                              .start = row.start,
                              .ids = batch.ids + start,
                              .label_at = row.label_at,
                              .label_id = row.label_id,
                              .example = row.example};
        loss += gradients(pass, &b, one);
        for (size_t i = 0; i < n; i++)
            sum[i] += one[i];
    }
    ck_assert_double_eq_tol(loss, whole, 1e-5 * whole);
    ck_assert_double_le(ck_rel_l2(sum, all, n), 1e-5);
    free(all);
    free(one);
    free(sum);
    kvf__pass_free(pass);
    toy_free(&t);
}
END_TEST

/* Tokens one by one after a cache end in the logits of the whole row. The form for few rows reads
 * the file and does not support adapters. */
START_TEST(generation)
{
    kvf__adapters *adapters = make(_i, KVF__F32);
    int64_t V = kvf__model_desc(t.model)->V, n = 12;
    kvf__pass *pass = toy_pass(&t);
    kvf__cache *cache = NULL;
    float *want = malloc((size_t)V * sizeof *want), *got = malloc((size_t)V * sizeof *got);
    TAKE_BATCH(batch);

    shake(adapters);
    ck_assert_str_eq(kvf__decoder_refuses(t.model, &t.slots),
                     "is trained, so its weights may differ from the file");
    ck_assert_int_eq(kvf__cache_create(t.ctx, t.model, 1, 20, &cache), KVF_OK);
    const int64_t whole[] = {0, n}, one[] = {0, 1};
    const int32_t at = (int32_t)n - 1, zero = 0;
    kvf__batch b = {.n_rows = 1,
                    .n_tokens = n,
                    .n_labels = 1,
                    .start = whole,
                    .ids = batch.ids,
                    .label_at = &at,
                    .label_id = &zero,
                    .example = batch.example};
    toy_fwd(&t, pass, &b, NULL);
    ck_assert_int_eq(kvf__pass_lm_logits(t.ctx, pass, want), KVF_OK);
    b.n_tokens = 1, b.start = one, b.label_at = &zero;
    for (int64_t i = 0; i < n; i++, b.ids++) {
        const kvf__input input = {.batch = &b, .cache = cache};
        ck_assert_int_eq(kvf__pass_fwd(t.ctx, pass, &input), KVF_OK);
    }
    ck_assert_int_eq(kvf__pass_lm_logits(t.ctx, pass, got), KVF_OK);
    ck_close(got, want, (size_t)V, 0, 1e-4);
    free(want);
    free(got);
    kvf__cache_free(cache);
    kvf__pass_free(pass);
    toy_free(&t);
}
END_TEST

/* The adapters stay f32; their inputs and the rest of the model have 8 bits. The bound exceeds the
 * worst case, 0.058. */
START_TEST(bf16_is_near)
{
    size_t n;
    float *exact, *rounded;

    ck_need(kvf__cpu_has_bf16(), "this CPU has no bf16 products");
    kvf__adapters *adapters = make(_i, KVF__F32);
    n = total(adapters);
    exact = malloc(n * sizeof *exact), rounded = malloc(n * sizeof *rounded);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        if (bf16) adapters = make(_i, KVF__BF16);
        kvf__pass *pass = toy_pass(&t);
        TAKE_BATCH(batch);
        shake(adapters);
        gradients(pass, &batch.b, bf16 ? rounded : exact);
        kvf__pass_free(pass);
        toy_free(&t);
    }
    double error = ck_rel_l2(rounded, exact, n);
    ck_assert_msg(error > 1e-5 && error < 0.1, "%s: %.3g", CASES[_i].name, error);
    free(exact);
    free(rounded);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(refused)
{
    kvf__adapters *adapters = make(0, KVF__F32), *none = NULL;
    kvf__adapter_shape shape = CASES[0].shape;
    int64_t L = kvf__model_desc(t.model)->L;

    for (int i = 0; i < 2; i++) {
        shape.size = i ? -1 : 0;
        ck_assert_int_eq(kvf__adapters_create(t.ctx, &shape, 2, 8, true, &none), KVF_EUSAGE);
        ck_assert_ptr_null(none);
    }
    ck_assert_int_eq(kvf__adapters_drop(t.ctx, adapters, 0, L), KVF_ESHAPE);
    ck_assert_int_eq(kvf__adapters_drop(t.ctx, adapters, 2, 1), KVF_ESHAPE);
    ck_assert_int_eq(kvf__adapters_drop(t.ctx, adapters, -1, 0), KVF_ESHAPE);
    ck_assert_str_eq(kvf_ctx_error(t.ctx), "layers -1-0: the base has layers 0-2");
    toy_free(&t);
}
END_TEST

/* ---- grad ------------------------------------------------------------------------------------ */

/* Along each parameter's own gradient the loss changes by its squared length; central differences
 * in f32. */
START_TEST(slopes)
{
    kvf__adapters *adapters = make(_i, KVF__F32);
    kvf__pass *pass = toy_pass(&t);
    float *grad = malloc(total(adapters) * sizeof *grad);
    TAKE_BATCH(batch);

    shake(adapters);
    gradients(pass, &batch.b, grad);
    const float *g = grad;
    for (size_t i = 0; i < kvf__adapters_count(adapters); i++) {
        kvf__param p = kvf__adapters_param(adapters, i);
        double square = 0, loss[2];
        for (int64_t j = 0; j < p.n; j++)
            square += 4 * (double)g[j] * (double)g[j]; /* the scale was 0.5 */
        double step = 0.002 / sqrt(square);
        for (int side = 0; side < 2; side++) {
            for (int64_t j = 0; j < p.n; j++)
                p.value[j] += (float)((side ? -2 : 1) * step * 2 * (double)g[j]);
            loss[side] = toy_loss(&t, pass, &batch.b, NULL);
        }
        for (int64_t j = 0; j < p.n; j++)
            p.value[j] += (float)(step * 2 * (double)g[j]);
        double slope = (loss[0] - loss[1]) / (2 * step);
        /* the curvature: 0.2 % at this step */
        ck_assert_msg(fabs(slope - square) <= 0.005 * square, "%s: %s: slope %.6g, gradient %.6g",
                      CASES[_i].name, p.name, slope, square);
        g += p.n;
    }
    free(grad);
    kvf__pass_free(pass);
    toy_free(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("adapter");
    TCase *core = tcase_create("core"), *limits = tcase_create("limits");
    TCase *errors = tcase_create("errors"), *grad = tcase_create("grad");

    tcase_set_timeout(core, 60);
    tcase_set_timeout(limits, 60);
    tcase_set_timeout(grad, 60);
    tcase_add_loop_test(core, parameters, 0, N_CASES);
    tcase_add_loop_test(core, first_loss_is_the_bare_base, 0, N_CASES);
    tcase_add_loop_test(core, layers_are_left_out, 0, N_CASES);
    tcase_add_test(core, words);
    tcase_add_loop_test(limits, same_bits_and_no_allocation, 0, N_CASES);
    tcase_add_loop_test(limits, recomputed_bits, 0, N_CASES);
    tcase_add_loop_test(limits, batch_equals_rows, 0, N_CASES);
    tcase_add_loop_test(limits, generation, 0, N_CASES);
    tcase_add_loop_test(limits, bf16_is_near, 0, N_CASES);
    tcase_add_test(errors, refused);
    tcase_add_loop_test(grad, slopes, 0, N_CASES);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, limits);
    suite_add_tcase(suite, errors);
    suite_add_tcase(suite, grad);
    return ck_main(suite);
}
