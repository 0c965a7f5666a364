/* Virtual neurons in a pass, on the tiny model of each family. The gradient is compared with
 * differences of the objective, values of zero with the bare pass, two sections with each alone,
 * and recomputed layers with kept ones. */
#include "golden_model.h"
#include "rng.h"

#include <math.h>

static const char *const MODELS[] = {
    "bert",       "modernbert",     "nomic",      "deberta", "distilbert",    "electra",  "roberta",
    "llama_tied", "gpt2",           "qwen2",      "qwen3",   "olmo2",         "gpt_neox", "phi3",
    "gemma2",     "gemma3",         "gemma4",     "mistral", "gpt2_by_layer", "smollm3",  "olmo3",
    "granite",    "granite_hybrid", "ministral3", "lfm2",    "lfm2_taps",     "qwen3_5",  "bart",
    "t5",         "t5_gated"};
enum {
    N_MODELS = sizeof MODELS / sizeof MODELS[0],
    STACKS = 3 /* the last, of two stacks */,
    N = 3,
    MOST = 5
};

static golden g;
static float *weights; /* of the objective, [n_labels, C] */

static void fill(float *to, size_t n, double size, uint64_t stream)
{
    kvf__rng rng = kvf__rng_make(7, stream);
    for (size_t i = 0; i < n; i++)
        to[i] = (float)(size * kvf__rng_normal(&rng));
}

/* Adds random neurons to the prefix, in the blocks that the base has. */
static void add_neurons(kvf__prefix *prefix, int64_t n, double values, uint64_t stream)
{
    const kvf__desc *desc = kvf__model_desc(g.model);
    const kvf__neuron_shape shape = kvf__desc_neurons(desc, n);
    ck_assert(!kvf__neurons_create(g.ctx, &prefix->neurons, &shape));
    fill(prefix->neurons.w, kvf__neurons_count(&prefix->neurons), 0.3, stream);
    for (int64_t l = 0; l < shape.L; l++) {
        const kvf__neurons_layer at = kvf__neurons_at(&prefix->neurons, l);
        prefix->neurons.layer_mask[l] = kvf__layer_feeds(desc, l);
        fill(at.value, (size_t)(n * shape.C), values, stream + 1 + (uint64_t)l);
    }
    kvf__neurons_clear_masked(&prefix->neurons);
}

static kvf__pass *make_pass(bool recompute, int64_t sections)
{
    const kvf__pass_limits limits = {.rows = GOLDEN_ROWS,
                                     .tokens = g.batch.n_tokens,
                                     .row_len = 64,
                                     .labels = g.batch.n_labels,
                                     .P = g.prefix.P,
                                     .neurons = MOST,
                                     .source_tokens = g.source.n_tokens,
                                     .source_len = g.source.n_tokens ? 64 : 0,
                                     .sections = sections,
                                     .backward = true,
                                     .recompute = recompute};
    kvf__pass *pass = NULL;
    ck_assert_msg(!kvf__pass_create(g.ctx, g.model, &limits, &pass), "%s", kvf_ctx_error(g.ctx));
    return pass;
}

static void load(const char *name)
{
    golden_load(&g, name, KVF__F32);
    kvf__pass_free(g.pass);
    g.pass = make_pass(false, 0);
    const size_t n = (size_t)(g.batch.n_labels * kvf__model_desc(g.model)->C);
    weights = malloc(n * sizeof *weights);
    fill(weights, n, 1, 1);
}

static void unload(void)
{
    free(weights);
    golden_unload(&g);
}

/* The objective: the sum of the final states times the weights. Its gradient is added to *d. */
static double objective(kvf__pass *pass, const kvf__input *input, const kvf__grads *into)
{
    const int64_t n = g.batch.n_labels * kvf__model_desc(g.model)->C;
    const float *hidden = NULL;
    double sum = 0;
    ck_assert_msg(!kvf__pass_fwd(g.ctx, pass, input), "%s", kvf_ctx_error(g.ctx));
    ck_assert(!kvf__pass_hidden(g.ctx, pass, &hidden));
    for (int64_t i = 0; i < n; i++)
        sum += (double)weights[i] * (double)hidden[i];
    if (!into) return sum;
    ck_assert(!kvf__pass_hidden_grad(g.ctx, pass, weights));
    ck_assert_msg(!kvf__pass_bwd(g.ctx, pass, into), "%s", kvf_ctx_error(g.ctx));
    return sum;
}

static double of_prefix(kvf__pass *pass, const kvf__prefix *prefix, kvf__prefix *d)
{
    const kvf__input input = {.batch = &g.batch,
                              .condition.prefix = prefix,
                              .condition.position_start = g.position_start};
    return objective(pass, &input, d ? &(kvf__grads){.prefix = d} : NULL);
}

static kvf__prefix gradient_like(const kvf__prefix *prefix)
{
    kvf__prefix d = {0};
    ck_assert(!kvf__prefix_like(g.ctx, &d, prefix));
    return d;
}

/* The derivative along a random direction, for keys, values and bias at once. The bound is that of
 * differences in f32; a missing term differs by far more. */
START_TEST(gradient_is_that_of_differences)
{
    load(MODELS[_i]);
    add_neurons(&g.prefix, N, 0.3, 11);
    kvf__prefix d = gradient_like(&g.prefix);
    of_prefix(g.pass, &g.prefix, &d);

    kvf__neuron_array array[KVF__NEURON_ARRAYS], of_d[KVF__NEURON_ARRAYS];
    const int arrays = kvf__neuron_arrays(&g.prefix.neurons, array);
    kvf__neuron_arrays(&d.neurons, of_d);
    for (int a = 0; a < arrays; a++) {
        const size_t n = (size_t)(d.neurons.shape.L * N * array[a].columns);
        float *was = malloc(n * sizeof *was), *along = malloc(n * sizeof *along);
        const float step = 5e-4f;
        double want = 0, ends[2];
        memcpy(was, array[a].at, n * sizeof *was);
        fill(along, n, 1, 20 + (uint64_t)a);
        for (size_t i = 0; i < n; i++)
            want += (double)of_d[a].at[i] * (double)along[i];
        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < n; i++)
                array[a].at[i] = was[i] + (side ? step : -step) * along[i];
            ends[side] = of_prefix(g.pass, &g.prefix, NULL);
        }
        memcpy(array[a].at, was, n * sizeof *was);
        const double got = (ends[1] - ends[0]) / (2 * (double)step);
        ck_assert_msg(fabs(got - want) < 0.01 * fabs(want) + 0.05, "%s: %s: %g, want %g",
                      MODELS[_i], array[a].name, got, want);
        free(was);
        free(along);
    }
    kvf__prefix_done(&d);
    unload();
}
END_TEST

/* Values of zero change no bit, and K/V gradients stay; also without keys and values. */
START_TEST(zero_values_change_nothing)
{
    load(MODELS[_i]);
    kvf__prefix bare = gradient_like(&g.prefix), d;
    const double plain = of_prefix(g.pass, &g.prefix, &bare);
    add_neurons(&g.prefix, MOST, 0, 11);
    d = gradient_like(&g.prefix);
    ck_assert_double_eq(of_prefix(g.pass, &g.prefix, &d), plain);
    ck_assert_mem_eq(d.kv, bare.kv, kvf__prefix_count(&d) * sizeof(float));
    const kvf__prefix alone = {.L = g.prefix.L,
                               .G = g.prefix.G,
                               .D = g.prefix.D,
                               .kv = g.prefix.kv,
                               .heads = g.prefix.heads,
                               .layer_mask = g.prefix.layer_mask,
                               .neurons = g.prefix.neurons};
    const kvf__input input = {.batch = &g.batch, .condition.prefix = &alone};
    const kvf__input bare_input = {.batch = &g.batch};
    ck_assert_double_eq(objective(g.pass, &input, NULL), objective(g.pass, &bare_input, NULL));
    kvf__prefix_done(&bare);
    kvf__prefix_done(&d);
    unload();
}
END_TEST

/* Layers are recomputed to the same bits. */
START_TEST(recomputed_layers_have_the_same_bits)
{
    load(MODELS[_i]);
    add_neurons(&g.prefix, N, 0.3, 11);
    kvf__prefix kept = gradient_like(&g.prefix), again = gradient_like(&g.prefix);
    kvf__pass *pass = make_pass(true, 0);
    ck_assert_double_eq(of_prefix(pass, &g.prefix, &again), of_prefix(g.pass, &g.prefix, &kept));
    ck_assert_mem_eq(kept.kv, again.kv, kvf__prefix_count(&kept) * sizeof(float));
    ck_assert_mem_eq(kept.neurons.w, again.neurons.w,
                     kvf__neurons_count(&kept.neurons) * sizeof(float));
    kvf__pass_free(pass);
    kvf__prefix_done(&kept);
    kvf__prefix_done(&again);
    unload();
}
END_TEST

/* Two sections with prefixes of different neurons: each has the gradient of the whole objective as
 * if the other rows did not matter to it. */
START_TEST(sections_have_neurons_of_their_own)
{
    load(MODELS[_i]);
    kvf__prefix other = {0}, d[2], alone[2];
    ck_assert(!kvf__prefix_like(g.ctx, &other, &g.prefix));
    memcpy(other.kv, g.prefix.kv, kvf__prefix_count(&other) * sizeof(float));
    add_neurons(&g.prefix, N, 0.3, 11);
    add_neurons(&other, MOST, 0.3, 60);
    const kvf__prefix *prefix[] = {&g.prefix, &other};
    const int64_t first = g.batch.n_rows / 2;
    kvf__section section[2];
    kvf__grads into[2];
    for (int i = 0; i < 2; i++) {
        d[i] = gradient_like(prefix[i]);
        alone[i] = gradient_like(prefix[i]);
        section[i] = (kvf__section){.rows = i ? g.batch.n_rows - first : first,
                                    .condition.prefix = prefix[i],
                                    .condition.position_start = g.position_start,
                                    .loss_scale = 1};
        into[i] = (kvf__grads){.prefix = &d[i]};
    }
    kvf__pass *pass = make_pass(false, 2);
    const kvf__input input = {.batch = &g.batch, .sections = section, .n_sections = 2};
    objective(pass, &input, &(kvf__grads){.sections = into});
    for (int i = 0; i < 2; i++) {
        /* the objective of this section's labels alone */
        const int64_t C = kvf__model_desc(g.model)->C, cut = g.batch.start[first];
        float *whole = malloc((size_t)(g.batch.n_labels * C) * sizeof *whole);
        memcpy(whole, weights, (size_t)(g.batch.n_labels * C) * sizeof *whole);
        for (int64_t j = 0; j < g.batch.n_labels; j++)
            if ((g.batch.label_at[j] < cut) == i)
                memset(weights + j * C, 0, (size_t)C * sizeof *weights);
        of_prefix(g.pass, prefix[i], &alone[i]);
        memcpy(weights, whole, (size_t)(g.batch.n_labels * C) * sizeof *whole);
        free(whole);
        ck_assert_double_le(
            ck_rel_l2(d[i].neurons.w, alone[i].neurons.w, kvf__neurons_count(&d[i].neurons)), 1e-5);
        kvf__prefix_done(&d[i]);
        kvf__prefix_done(&alone[i]);
    }
    kvf__pass_free(pass);
    kvf__prefix_done(&other);
    unload();
}
END_TEST

/* Neurons of another base, and more than a pass was made for. */
START_TEST(other_shapes_are_refused)
{
    load("llama_tied");
    add_neurons(&g.prefix, MOST + 1, 0.3, 11);
    const kvf__input input = {.batch = &g.batch, .condition.prefix = &g.prefix};
    ck_assert_int_eq(kvf__pass_fwd(g.ctx, g.pass, &input), KVF_ESHAPE);
    ck_assert_str_eq(kvf_ctx_error(g.ctx), "batch: 6 neurons, the pass was made for at most 5");
    g.prefix.neurons.shape.gated = false;
    ck_assert_int_eq(kvf__pass_fwd(g.ctx, g.pass, &input), KVF_ESHAPE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(g.ctx), "neurons: "));
    unload();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pass_neurons");
    TCase *cases = tcase_create("neurons");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, gradient_is_that_of_differences, 0, N_MODELS);
    tcase_add_loop_test(cases, zero_values_change_nothing, 0, N_MODELS);
    tcase_add_loop_test(cases, recomputed_layers_have_the_same_bits, 0, N_MODELS);
    tcase_add_loop_test(cases, sections_have_neurons_of_their_own, 0, N_MODELS - STACKS);
    tcase_add_test(cases, other_shapes_are_refused);
    suite_add_tcase(suite, cases);
    return ck_main(suite);
}
