/* Virtual neurons in prefix files: round trips in every type, beside keys and values and alone, and
 * files whose neurons contradict their attributes. */
#include "artifact_priv.h"
#include "h5_fixture.h"

enum { L = 4, N = 3, C = 6 };
static const kvf__dtype DTYPES[] = {KVF__F32, KVF__F16, KVF__BF16, KVF__I8};
enum { FORMS = 3, TYPES = sizeof DTYPES / sizeof DTYPES[0] };

/* form 0: plain blocks, 1: with a bias, 2: gated. */
static void make_file(kvf__artifact *file, kvf__dtype dtype, int form, bool alone)
{
    const kvf__neuron_shape shape = {L, N, C, form == 2, form == 1};
    make_prefix_file(file, dtype);
    if (alone) {
        kvf__prefix_done(&file->prefix);
        ck_ok(kvf__prefix_init(ctx, &file->prefix, 3, 2, 0, 4));
        file->prefix.layer_mask[1] = 0;
        file->id.P = 0;
    }
    file->id.neurons = shape;
    ck_ok(kvf__neurons_create(ctx, &file->prefix.neurons, &shape));
    for (size_t i = 0; i < kvf__neurons_count(&file->prefix.neurons); i++)
        file->prefix.neurons.w[i] = (float)i / 7 - 3; /* not exact in the narrow types */
    file->prefix.neurons.layer_mask[2] = 0;
    kvf__neurons_clear_masked(&file->prefix.neurons);
}

START_TEST(round_trip)
{
    const kvf__dtype dtype = DTYPES[_i % TYPES];
    kvf__artifact file, back = {0};
    kvf__prefix want = {0};
    make_file(&file, dtype, _i / TYPES % FORMS, _i / TYPES / FORMS);
    const size_t bytes = kvf__neurons_count(&file.prefix.neurons) * sizeof(float);
    ck_ok(kvf__artifact_write(ctx, in_dir("p.h5"), false, &file));
    ck_ok(kvf__artifact_read(ctx, in_dir("p.h5"), KVF__KIND_PREFIX, &back));
    ck_assert(kvf__neuron_shape_same(&back.id.neurons, &file.id.neurons));
    ck_assert(kvf__neuron_shape_same(&back.prefix.neurons.shape, &file.id.neurons));
    ck_assert_mem_eq(back.prefix.neurons.layer_mask, "\1\1\0\1", L);
    ck_assert_int_eq(back.prefix.P, file.id.P);
    ck_ok(kvf__prefix_rounded(ctx, "p", dtype, &file.prefix, &want));
    ck_assert_mem_eq(back.prefix.neurons.w, want.neurons.w, bytes);
    ck_assert((dtype == KVF__F32) == !memcmp(want.neurons.w, file.prefix.neurons.w, bytes));
    ck_assert_double_le(ck_rel_l2(want.neurons.w, file.prefix.neurons.w, bytes / sizeof(float)),
                        dtype == KVF__BF16 ? 4e-3 : 5e-4);
    ck_ok(kvf__artifact_write(ctx, in_dir("again.h5"), false, &back));
    ck_same_bytes(in_dir("p.h5"), in_dir("again.h5"));
    kvf__h5 h5 = kvf__h5_open(ctx, in_dir("p.h5"), "prefix");
    ck_assert_uint_eq(h5.features, KVF__LAYER_MASK | KVF__NEURONS);
    ck_ok(kvf__h5_close(&h5));
    kvf__prefix_done(&want);
    kvf__artifact_done(&back);
    kvf__artifact_done(&file);
}
END_TEST

/* The flat view is that of the encoder: back and forth, neuron by neuron. */
START_TEST(flat_view)
{
    kvf__artifact file;
    kvf__neurons back;
    make_file(&file, KVF__F32, _i, false);
    const kvf__neurons *n = &file.prefix.neurons;
    const int64_t width = L * kvf__neuron_values(&n->shape);
    float *flat = calloc((size_t)(N * width), sizeof *flat);
    kvf__neurons_to_flat(n, flat);
    const kvf__neurons_layer at = kvf__neurons_at(n, 1);
    const float *own = flat + 2 * width + width / L; /* neuron 2 of layer 1 */
    ck_assert_mem_eq(own, at.key + 2 * C, C * sizeof(float));
    ck_assert_mem_eq(own + width / L - C, at.value + 2 * C, C * sizeof(float));
    if (at.up) ck_assert_mem_eq(own + C, at.up + 2 * C, C * sizeof(float));
    if (at.bias) ck_assert(own[C] == at.bias[2]);
    ck_ok(kvf__neurons_create(ctx, &back, &n->shape));
    kvf__neurons_from_flat(&back, flat);
    ck_assert_mem_eq(back.w, n->w, kvf__neurons_count(n) * sizeof(float));
    kvf__neurons_done(&back);
    free(flat);
    kvf__artifact_done(&file);
}
END_TEST

START_TEST(refuses_to_write)
{
    kvf__artifact file;
    const char *path = in_dir("p.h5");
    make_file(&file, KVF__F16, 0, false);
    file.prefix.neurons.w[1] = 70000;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_ENUMERIC,
             "the neurons' key holds 70000, which f16 cannot store");
    file.prefix.neurons.w[1] = 3.4e38f; /* bf16 would round it to infinity */
    file.dtype = KVF__BF16;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_ENUMERIC,
             "key holds 3.4e+38, which bf16 cannot store");
    file.prefix.neurons.w[1] = NAN;
    file.dtype = KVF__F32;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_ENUMERIC, "key holds nan");
    file.prefix.neurons.w[1] = 0;
    file.id.neurons.N = N + 1;
    ck_fails(kvf__artifact_write(ctx, path, false, &file), KVF_ESHAPE,
             "3 neurons in each layer, its identity has 4");
    ck_assert_int_eq(files_in_dir(), 0);
    kvf__artifact_done(&file);
}
END_TEST

/* ---- wrong content --------------------------------------------------------------------------- */

/* A file with one error; zero members are correct. */
typedef struct craft {
    const char *line;
    kvf_status status;
    int64_t neurons, layers, width; /* attributes; -1: left out */
    bool gated, biased, no_mask, no_group;
    const char *skip;  /* array left out */
    int64_t dim[3];    /* of the array "key" */
    kvf__dtype dtype;  /* of the array "key" */
    float first, last; /* values of the array "key" */
    unsigned features;
} craft;

static const craft CRAFTED[] = {
    {.status = KVF_OK},
    {"attributes neurons 0, neuron_layers 4 and neuron_width 6 do not describe", KVF_EFORMAT,
     .neurons = -1},
    {"attributes neurons 3, neuron_layers 0 and neuron_width 6 do not", KVF_EFORMAT, .layers = -1},
    {"attributes neurons 3, neuron_layers 4 and neuron_width 0 do not", KVF_EFORMAT, .width = -1},
    {"do not describe virtual neurons", KVF_EFORMAT, .gated = true, .biased = true},
    {"neurons is 9223372036854775807", KVF_EFORMAT, .neurons = INT64_MAX},
    {"[4, 3, 6] of f32, want [4, 2147483647, 6] of f32", KVF_ESHAPE, .neurons = INT32_MAX},
    {"2147483647 layers, want at most 65535", KVF_EFORMAT, .layers = INT32_MAX},
    {"\"neuron_mask\" is missing", KVF_EFORMAT, .no_mask = true},
    {"\"neurons\"", KVF_EFORMAT, .no_group = true},
    {"\"value\"", KVF_EFORMAT, .skip = "value"},
    {"\"gate\"", KVF_EFORMAT, .gated = true},
    {"\"bias\"", KVF_EFORMAT, .biased = true},
    {"[3, 4, 6] of f32, want [4, 3, 6] of f32", KVF_ESHAPE, .dim = {3, 4, 6}},
    {"of f16, want [4, 3, 6] of f32", KVF_ESHAPE, .dtype = KVF__F16},
    {"layer 0 holds nan, want finite values", KVF_ENUMERIC, .first = NAN},
    {"layer 3 holds 1, want zeros: it is masked", KVF_ENUMERIC, .last = 1},
    {"/features has \"log-weight\", which the file does not use", KVF_EFORMAT,
     .features = KVF__NEURONS | KVF__LOG_WEIGHTS},
    {"/features", KVF_EFORMAT, .features = KVF__LOG_WEIGHTS},
};

static void put_count(kvf__h5 *h5, kvf__h5_id at, const char *name, int64_t given, int64_t right)
{
    if (given >= 0) kvf__h5_put_i64(h5, at, name, given ? given : right);
}

static void put_arrays(kvf__h5 *h5, kvf__h5_id parent, const craft *c)
{
    static const int64_t DIM[3] = {L, N, C};
    static float values[L * N * C];
    kvf__h5_id group = kvf__h5_group_create(h5, parent, "neurons");
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "value" : "key";
        const kvf__h5_spec spec = {.name = name,
                                   .dtype = i ? KVF__F32 : c->dtype,
                                   .rank = 3,
                                   .dim = !i && c->dim[0] ? c->dim : DIM};
        values[0] = i ? 0 : c->first;
        values[L * N * C - 1] = i ? 0 : c->last;
        if (!c->skip || strcmp(c->skip, name)) kvf__h5_data_write(h5, group, &spec, values, NULL);
    }
    kvf__h5_release(&group);
}

static void write_crafted(const char *path, const craft *c)
{
    static const int64_t SHAPE[6] = {2, 2, 1, 1, 4, 2};
    static const float zeros[32];
    const kvf__h5_spec spec = {
        .name = "past_key_values", .dtype = KVF__F32, .rank = 6, .dim = SHAPE};
    const uint8_t mask[] = {1, 1, 1, 0};
    kvf__h5_id data;
    kvf__h5 h5 = kvf__h5_create(ctx, path, true, "prefix",
                                c->features ? c->features : (unsigned)KVF__NEURONS);
    kvf__h5_id group = kvf__h5_group_create(&h5, h5.file, "prefix");
    kvf__h5_data_write(&h5, group, &spec, zeros, &data);
    kvf__h5_put_text(&h5, h5.file, "base_name", "b");
    kvf__h5_put_text(&h5, h5.file, "base_architecture", "llama");
    kvf__h5_put_text(&h5, h5.file, "base_hash", "");
    kvf__h5_put_text(&h5, data, "method", "mlp");
    kvf__h5_put_text(&h5, data, "task", "lm");
    kvf__h5_put_text(&h5, data, "chat_template", "none");
    kvf__h5_put_text(&h5, data, "dtype", "f32");
    kvf__h5_put_i64(&h5, data, "position_start", 4);
    put_count(&h5, data, "neurons", c->neurons, N);
    put_count(&h5, data, "neuron_layers", c->layers, L);
    put_count(&h5, data, "neuron_width", c->width, C);
    if (c->gated) kvf__h5_put_text(&h5, data, "neuron_gate", "gated");
    if (c->biased) kvf__h5_put_text(&h5, data, "neuron_bias", "biased");
    kvf__h5_put_u8s(&h5, data, "layer_mask", mask, 2);
    if (!c->no_mask) kvf__h5_put_u8s(&h5, data, "neuron_mask", mask, L);
    if (!c->no_group) put_arrays(&h5, group, c);
    kvf__h5_release(&data);
    kvf__h5_release(&group);
    ck_ok(kvf__h5_close(&h5));
}

START_TEST(wrong_content)
{
    const craft *c = &CRAFTED[_i];
    kvf__artifact file = {0};
    write_crafted(in_dir("p.h5"), c);
    if (c->line)
        ck_fails(kvf__artifact_read(ctx, in_dir("p.h5"), KVF__KIND_PREFIX, &file), c->status,
                 c->line);
    else
        ck_ok(kvf__artifact_read(ctx, in_dir("p.h5"), KVF__KIND_PREFIX, &file));
    kvf__artifact_done(&file);
}
END_TEST

/* A prefix of no tokens needs neurons. */
START_TEST(nothing_is_no_prefix)
{
    kvf__artifact file;
    make_file(&file, KVF__F32, 0, true);
    kvf__neurons_done(&file.prefix.neurons);
    file.id.neurons = (kvf__neuron_shape){0};
    ck_fails(kvf__artifact_write(ctx, in_dir("p.h5"), false, &file), KVF_ESHAPE, "length 0");
    kvf__artifact_done(&file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("neurons_file");
    TCase *cases = tcase_create("neurons");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, round_trip, 0, 2 * FORMS * TYPES);
    tcase_add_loop_test(cases, flat_view, 0, FORMS);
    tcase_add_test(cases, refuses_to_write);
    tcase_add_loop_test(cases, wrong_content, 0, sizeof CRAFTED / sizeof CRAFTED[0]);
    tcase_add_test(cases, nothing_is_no_prefix);
    suite_add_tcase(suite, cases);
    return ck_main(suite);
}
