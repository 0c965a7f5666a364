/* Tests of the packed model. Every product with packed, norm-folded, plane-cut weights is compared
 * with the unfolded definition in double, forward and transposed. Also tests which weights stay in
 * the file, ownership, and failing allocations. */
#include "products.h"
#include "slot.h"
#include "toy_table.h"

#include <math.h>

enum { M = 5 };

static kvf_ctx *ctx;

static void setup(void)
{
    kvf_ctx_options options = {.threads = 2};
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

/* ---- a model from a toy table ---------------------------------------------------------------- */

typedef struct fixture {
    toy_table table;
    kvf__slots slots;
    kvf__model *model;
    const kvf__desc *desc;
    kvf__rng rng;
} fixture;

static const struct kind {
    const char *config; /* NULL: GGUF */
    bool untied, biases;
    int64_t F;
    kvf__dtype dtype; /* of the matrices in the file */
} kinds[] = {
    {TOY_TIED, false, false, 40, KVF__F32},  {TOY_UNTIED, true, false, 40, KVF__F16},
    {TOY_BIASED, true, true, 40, KVF__BF16}, {TOY_WIDE, true, false, 3104, KVF__F32},
    {NULL, true, true, 40, KVF__F32},        {TOY_GPT2, false, false, 0, KVF__F32},
    {TOY_GPT2, false, false, 0, KVF__BF16},
};
#define N_KINDS (sizeof kinds / sizeof *kinds)

/* Converts matrices to another type, in place. */
static void convert(toy_table *t, kvf__dtype dtype)
{
    for (size_t i = 0; dtype != KVF__F32 && i < t->table.n; i++) {
        kvf__view *view = &t->table.items[i].view;
        if (view->rank != 2) continue;
        size_t bytes = (size_t)kvf__view_count(view) * sizeof(float);
        float *copy = malloc(bytes);
        memcpy(copy, t->data[i], bytes);
        kvf__from_f32(dtype, copy, t->data[i], kvf__view_count(view));
        view->dtype = dtype;
        free(copy);
    }
}

static kvf__desc open_table(fixture *f, const struct kind *kind)
{
    bool gpt2 = kind->config && strstr(kind->config, "gpt2");
    kvf__desc desc;

    *f = (fixture){.table = toy_begin(ctx, gpt2 ? "transformer." : kind->config ? "model." : "")};
    f->rng = kvf__rng_make(3, 1);
    f->table.gguf = !kind->config;
    f->table.F = kind->F;
    if (gpt2)
        toy_gpt2(&f->table);
    else
        toy_llama(&f->table, kind->untied, kind->biases);
    convert(&f->table, kind->dtype);
    desc = kind->config ? toy_desc(ctx, kind->config) : toy_desc_gguf(ctx, &f->table.table);
    ck_assert_msg(!kvf__bind(ctx, "toy", &desc, &f->table.table, &f->slots), "%s",
                  kvf_ctx_error(ctx));
    return desc;
}

static void create_by(fixture *f, const struct kind *kind, const kvf__model_options *options)
{
    kvf__desc desc = open_table(f, kind);

    ck_assert_msg(!kvf__model_create(ctx, &desc, &f->slots, options, &f->model), "%s",
                  kvf_ctx_error(ctx));
    ck_assert_ptr_null(desc.position.inv_freq); /* taken over */
    ck_assert_int_eq(desc.L, 0);
    f->desc = kvf__model_desc(f->model);
}

static void create(fixture *f, const struct kind *kind, kvf__dtype act, bool backward)
{
    const kvf__model_options options = {.act = act, .backward = backward};
    create_by(f, kind, &options);
}

static void destroy(fixture *f)
{
    kvf__model_free(f->model);
    kvf__slots_done(&f->slots);
    toy_end(&f->table);
}

/* ---- the definition -------------------------------------------------------------------------- */

/* y = (gamma xhat + beta) W + b, or the transposed product without biases. */
typedef struct linear {
    float *w, *b, *gamma, *beta;
    bool by_input; /* w is [in, out] */
    int64_t in, out;
} linear;

static float *values(const fixture *f, const char *name)
{
    const kvf__slot *slot = kvf__slots_find(&f->slots, name);
    float *out = NULL;
    if (slot) ck_assert_int_eq(kvf__slot_f32(ctx, slot, &out), KVF_OK);
    return out;
}

static linear load(const fixture *f, int64_t layer, const char *weight, const char *norm)
{
    bool gpt2 = f->desc->position.kind == KVF__POS_LEARNED;
    const char *stem = gpt2 ? "transformer.h" : "model.layers";
    char name[128], base[96];
    linear lin = {.by_input = gpt2};

    if (layer >= 0)
        snprintf(base, sizeof base, "%s.%lld.", stem, (long long)layer);
    else
        snprintf(base, sizeof base, gpt2 ? "transformer." : "model.");
    snprintf(name, sizeof name, "%s%s.weight", layer >= 0 ? base : "", weight);
    const kvf__slot *slot = kvf__slots_find(&f->slots, name);
    ck_assert_msg(slot != NULL, "%s", name);
    if (layer < 0) lin.by_input = false; /* lm_head, wte */
    lin.in = slot->view.dim[lin.by_input ? 0 : 1];
    lin.out = slot->view.dim[lin.by_input ? 1 : 0];
    lin.w = values(f, name);
    snprintf(name, sizeof name, "%s%s.bias", layer >= 0 ? base : "", weight);
    lin.b = values(f, name);
    if (!norm) return lin;
    snprintf(name, sizeof name, "%s%s.weight", base, norm);
    lin.gamma = values(f, name);
    ck_assert_ptr_nonnull(lin.gamma);
    snprintf(name, sizeof name, "%s%s.bias", base, norm);
    lin.beta = values(f, name);
    return lin;
}

static void unload(linear *lin)
{
    kvf__free(lin->w);
    kvf__free(lin->b);
    kvf__free(lin->gamma);
    kvf__free(lin->beta);
}

static double weight_at(const linear *lin, int64_t i, int64_t o)
{
    return lin->by_input ? lin->w[i * lin->out + o] : lin->w[o * lin->in + i];
}

/* y [M, ld], starting at column `at`. */
static void forward(const linear *lin, const float *x, float *y, int64_t ld, int64_t at)
{
    for (int64_t m = 0; m < M; m++)
        for (int64_t o = 0; o < lin->out; o++) {
            double sum = lin->b ? (double)lin->b[o] : 0;
            for (int64_t i = 0; i < lin->in; i++) {
                double in = (double)x[m * lin->in + i];
                if (lin->gamma) in *= (double)lin->gamma[i];
                if (lin->beta) in += (double)lin->beta[i];
                sum += in * weight_at(lin, i, o);
            }
            y[m * ld + at + o] = (float)sum;
        }
}

/* dx [M, in] += */
static void backward(const linear *lin, const float *dy, int64_t ld, int64_t at, float *dx)
{
    for (int64_t m = 0; m < M; m++)
        for (int64_t i = 0; i < lin->in; i++) {
            double sum = 0;
            for (int64_t o = 0; o < lin->out; o++)
                sum += (double)dy[m * ld + at + o] * weight_at(lin, i, o);
            dx[m * lin->in + i] += (float)(lin->gamma ? sum * (double)lin->gamma[i] : sum);
        }
}

/* ---- the packed side ------------------------------------------------------------------------- */

static float *some(fixture *f, int64_t cols)
{
    float *x = malloc((size_t)(M * cols) * sizeof *x);
    for (int64_t i = 0; i < M * cols; i++)
        x[i] = (float)kvf__rng_normal(&f->rng);
    return x;
}

static float *zeros(int64_t cols)
{
    return calloc((size_t)M * (size_t)cols, sizeof(float));
}

static void run(const fixture *f, const kvf__packed *w, const float *x, float *y, unsigned flags)
{
    ck_assert_ptr_nonnull(w);
    ck_assert_msg(!kvf__mm_run(ctx, f->model->mm, w, M, x, y, KVF__F32, flags), "%s",
                  kvf_ctx_error(ctx));
}

static void gather(float *to, const float *from, int64_t ld, int64_t at, int64_t n)
{
    for (int64_t m = 0; m < M; m++)
        memcpy(to + m * n, from + m * ld + at, (size_t)n * sizeof *to);
}

static void scatter(float *to, int64_t ld, int64_t at, const float *from, int64_t n)
{
    for (int64_t m = 0; m < M; m++)
        memcpy(to + m * ld + at, from + m * n, (size_t)n * sizeof *to);
}

static kvf__packed *packed_of(kvf__packed_pair pair, bool backward)
{
    return backward ? pair.bwd : pair.fwd;
}

/* Outputs cut into planes: y [M, ld] from x [M, in]. */
static void run_outputs(const fixture *f, const kvf__packed_pair *w, bool backward, const float *x,
                        float *y, int64_t ld)
{
    static float plane[M * KVF__PLANE];
    for (int64_t i = 0; i < kvf__ffn_planes(f->desc->F); i++) {
        const kvf__plane at = kvf__ffn_plane(f->desc->F, i);
        run(f, packed_of(w[i], backward), x, plane, 0);
        scatter(y, ld, at.start, plane, at.width);
    }
}

/* Inputs cut into planes: y from x [M, ld]. */
static void run_inputs(const fixture *f, const kvf__packed_pair *w, bool backward, const float *x,
                       int64_t ld, float *y)
{
    static float plane[M * KVF__PLANE];
    for (int64_t i = 0; i < kvf__ffn_planes(f->desc->F); i++) {
        const kvf__plane at = kvf__ffn_plane(f->desc->F, i);
        gather(plane, x, ld, at.start, at.width);
        run(f, packed_of(w[i], backward), plane, y, i ? KVF__MM_ADD : 0);
    }
}

/* Sums of up to 3104 products of numbers of order 1, in f32. */
#define CLOSE(got, want, cols) ck_close(got, want, (size_t)(M * (cols)), 1e-5, 2e-4)

static void check_parts(fixture *f, linear *parts, int n, kvf__packed_pair w)
{
    int64_t in = parts[0].in, out = 0, at = 0;
    for (int i = 0; i < n; i++)
        out += parts[i].out;
    float *x = some(f, in), *dy = some(f, out), *want = zeros(out), *got = zeros(out);
    float *dwant = zeros(in), *dgot = zeros(in);

    for (int i = 0; i < n; i++) {
        forward(&parts[i], x, want, out, at);
        backward(&parts[i], dy, out, at, dwant);
        at += parts[i].out;
        unload(&parts[i]);
    }
    run(f, w.fwd, x, got, 0);
    CLOSE(got, want, out);
    run(f, w.bwd, dy, dgot, 0);
    CLOSE(dgot, dwant, in);
    free(x), free(dy), free(want), free(got), free(dwant), free(dgot);
}

static void check_outputs(fixture *f, linear lin, const kvf__packed_pair *w)
{
    float *x = some(f, lin.in), *dy = some(f, lin.out), *want = zeros(lin.out),
          *got = zeros(lin.out);
    float *dwant = zeros(lin.in), *dgot = zeros(lin.in);

    forward(&lin, x, want, lin.out, 0);
    run_outputs(f, w, false, x, got, lin.out);
    CLOSE(got, want, lin.out);
    backward(&lin, dy, lin.out, 0, dwant);
    run_inputs(f, w, true, dy, lin.out, dgot);
    CLOSE(dgot, dwant, lin.in);
    unload(&lin);
    free(x), free(dy), free(want), free(got), free(dwant), free(dgot);
}

static void check_inputs(fixture *f, linear lin, const kvf__packed_pair *w)
{
    float *x = some(f, lin.in), *dy = some(f, lin.out), *want = zeros(lin.out),
          *got = zeros(lin.out);
    float *dwant = zeros(lin.in), *dgot = zeros(lin.in);

    forward(&lin, x, want, lin.out, 0);
    run_inputs(f, w, false, x, lin.in, got);
    CLOSE(got, want, lin.out);
    backward(&lin, dy, lin.out, 0, dwant);
    run_outputs(f, w, true, dy, dgot, lin.in);
    CLOSE(dgot, dwant, lin.in);
    unload(&lin);
    free(x), free(dy), free(want), free(got), free(dwant), free(dgot);
}

static void check_head(fixture *f, linear lin)
{
    const kvf__model *model = f->model;
    int64_t V = lin.out, W = KVF__VOCAB_PLANE, wide = model->lm.n * W;
    float *x = some(f, lin.in), *dy = some(f, wide), *want = zeros(wide), *got = zeros(wide);
    float *dwant = zeros(lin.in), *dgot = zeros(lin.in), *plane = zeros(W);

    ck_assert_int_eq(model->lm.n, (V + W - 1) / W);
    forward(&lin, x, want, wide, 0); /* padding stays 0 */
    backward(&lin, dy, wide, 0, dwant);
    for (int64_t i = 0; i < model->lm.n; i++) {
        run(f, model->lm.planes[i].fwd, x, plane, 0);
        scatter(got, wide, i * W, plane, W);
        gather(plane, dy, wide, i * W, W);
        run(f, model->lm.planes[i].bwd, plane, dgot, i ? KVF__MM_ADD : 0);
    }
    CLOSE(got, want, wide);
    CLOSE(dgot, dwant, lin.in);
    unload(&lin);
    free(x), free(dy), free(want), free(got), free(dwant), free(dgot), free(plane);
}

/* ---- core ------------------------------------------------------------------------------------ */

static void check_llama_layer(fixture *f, int64_t l)
{
    const kvf__layer_weights *layer = f->model->layers[l].w;
    linear qkv[] = {load(f, l, "self_attn.q_proj", "input_layernorm"),
                    load(f, l, "self_attn.k_proj", "input_layernorm"),
                    load(f, l, "self_attn.v_proj", "input_layernorm")};
    linear out[] = {load(f, l, "self_attn.o_proj", NULL)};

    check_parts(f, qkv, 3, layer->qkv);
    check_parts(f, out, 1, layer->out);
    check_outputs(f, load(f, l, "mlp.gate_proj", "post_attention_layernorm"), layer->gate);
    check_outputs(f, load(f, l, "mlp.up_proj", "post_attention_layernorm"), layer->up);
    check_inputs(f, load(f, l, "mlp.down_proj", NULL), layer->down);
}

static void check_gpt2_layer(fixture *f, int64_t l)
{
    const kvf__layer_weights *layer = f->model->layers[l].w;
    linear qkv[] = {load(f, l, "attn.c_attn", "ln_1")}, out[] = {load(f, l, "attn.c_proj", NULL)};

    check_parts(f, qkv, 1, layer->qkv);
    check_parts(f, out, 1, layer->out);
    ck_assert_ptr_null(layer->gate[0].fwd);
    check_outputs(f, load(f, l, "mlp.c_fc", "ln_2"), layer->up);
    check_inputs(f, load(f, l, "mlp.c_proj", NULL), layer->down);
}

START_TEST(products_equal_the_definition)
{
    const struct kind *kind = &kinds[_i];
    fixture f;

    create(&f, kind, KVF__F32, true);
    bool gpt2 = f.desc->position.kind == KVF__POS_LEARNED;
    for (int64_t l = 0; l < f.desc->L; l++) {
        if (gpt2)
            check_gpt2_layer(&f, l);
        else
            check_llama_layer(&f, l);
    }
    const char *head = gpt2 ? "transformer.wte" : f.desc->tied ? "model.embed_tokens" : "lm_head";
    check_head(&f, load(&f, -1, head, gpt2 ? "ln_f" : "norm"));
    destroy(&f);
}
END_TEST

START_TEST(planes_are_equal_multiples_of_16)
{
    fixture f;

    create(&f, &kinds[3], KVF__F32, false);
    int64_t F = f.desc->F;
    ck_assert_int_eq(kvf__ffn_planes(F), 3);
    ck_assert_int_eq(kvf__ffn_plane(F, 0).width, 1040);
    ck_assert_int_eq(kvf__ffn_plane(F, 1).width, 1040);
    ck_assert_int_eq(kvf__ffn_plane(F, 2).width, 1024);
    ck_assert_int_eq(kvf__ffn_plane(F, 2).start, 2080);
    ck_assert_ptr_nonnull(f.model->layers[1].w->gate[2].fwd);
    ck_assert_ptr_null(f.model->layers[1].w->gate[3].fwd);
    ck_assert_ptr_null(f.model->layers[1].w->up[0].bwd); /* no backward pass requested */
    ck_assert_ptr_null(f.model->layers[1].w->qkv.bwd);
    ck_assert_ptr_null(f.model->lm.planes[0].bwd);
    destroy(&f);
    create(&f, &kinds[5], KVF__F32, false);
    F = f.desc->F;
    ck_assert_int_eq(kvf__ffn_planes(F), 2);
    ck_assert_int_eq(kvf__ffn_plane(F, 0).width, 784);
    ck_assert_int_eq(kvf__ffn_plane(F, 1).width, 784);
    destroy(&f);
}
END_TEST

START_TEST(embedding_and_tables)
{
    static const int32_t ids[] = {0, 49, 7, 7};
    float got[4 * 24], *want;
    fixture f;

    create(&f, &kinds[_i], KVF__F32, true);
    bool gpt2 = f.desc->position.kind == KVF__POS_LEARNED;
    int64_t C = f.desc->C;
    kvf__model_embedding(f.model, ids, 4, got);
    want = values(&f, gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight");
    for (int i = 0; i < 4; i++)
        ck_assert_mem_eq(got + i * C, want + ids[i] * C, (size_t)C * sizeof *got);
    kvf__free(want);
    want = values(&f, gpt2 ? "transformer.ln_f.weight" : "model.norm.weight");
    ck_assert_mem_eq(f.model->lm.gamma, want, (size_t)C * sizeof *want);
    kvf__free(want);
    ck_assert_int_eq(f.model->rope.rows, gpt2 ? 0 : 64);
    ck_assert_int_eq(f.model->embed.stack[0].positions.view.data != NULL, gpt2);
    ck_assert_int_eq(f.model->lm.slot.view.data == f.model->embed.tokens.view.data,
                     !kinds[_i].untied);
    ck_assert_int_eq(f.model->act, KVF__F32);
    /* Both directions of every matrix, at least. */
    size_t weights = (size_t)(f.desc->L * C * (f.desc->F * (f.desc->block.gated ? 3 : 2)));
    ck_assert_uint_ge(f.model->packed_bytes, 2 * sizeof(float) * weights);
    destroy(&f);
}
END_TEST

/* The config ties the head, the file disagrees: bind keeps both, and the model must use both. */
START_TEST(head_that_differs_is_used)
{
    const struct kind kind = {TOY_TIED, true, false, 40, KVF__F32};
    fixture f;

    create(&f, &kind, KVF__F32, true);
    ck_assert(!f.desc->tied);
    check_head(&f, load(&f, -1, "lm_head", "norm"));
    destroy(&f);
}
END_TEST

/* Queries, keys and values of layer 1, packed, built from those of the file. */
static double qkv_error(const kvf__model_options *options)
{
    fixture f;
    uint16_t x16[M * 24];
    float y[M * 64], want[M * 64];

    create_by(&f, &kinds[0], options);
    linear qkv[] = {load(&f, 1, "self_attn.q_proj", "input_layernorm"),
                    load(&f, 1, "self_attn.k_proj", "input_layernorm"),
                    load(&f, 1, "self_attn.v_proj", "input_layernorm")};
    float *x = some(&f, 24);
    kvf__from_f32(KVF__BF16, x, x16, M * 24);
    for (int64_t i = 0, at = 0; i < 3; at += qkv[i++].out) {
        forward(&qkv[i], x, want, 64, at);
        unload(&qkv[i]);
    }
    ck_assert_int_eq(
        kvf__mm_run(ctx, f.model->mm, f.model->layers[1].w->qkv.fwd, M, x16, y, KVF__F32, 0),
        KVF_OK);
    ck_assert_int_eq(f.model->int8, options->int8);
    free(x);
    destroy(&f);
    return ck_rel_l2(y, want, M * 64);
}

/* bf16 rounds weights and inputs to 8 bits: an error of at most 0.4 %, 0.16 % on average. Both
 * together give 0.27 %. Eight-bit integers have a uniform error of up to 0.4 % of the largest value
 * of a row or column. Its average is 0.23 % of that value, which is about twice the root mean
 * square, on both sides. */
START_TEST(bf16_and_int8_are_near)
{
    kvf__model_options options = {.act = KVF__BF16, .backward = true};
    ck_need(kvf__cpu_has_bf16(), "this CPU has no bf16 products");
    double error = qkv_error(&options);
    ck_assert_msg(error > 1e-5 && error < 5e-3, "relative error %g", error);
    ck_need(kvf__cpu_has_int8(), "this CPU has no eight-bit dot products");
    options.int8 = true;
    error = qkv_error(&options);
    ck_assert_msg(error > 3e-3 && error < 1.5e-2, "relative error %g", error);
}
END_TEST

/* One byte per weight in the layers, for each direction, and the head in bf16. */
START_TEST(int8_footprint)
{
    const kvf__model_options options = {.act = KVF__BF16, .int8 = true, .backward = true};
    fixture f;
    ck_need(kvf__cpu_has_int8(), "this CPU has no eight-bit dot products");
    create_by(&f, &kinds[0], &options);
    const kvf__desc *d = f.desc;
    const double layer = (double)(d->C * (d->D * 2 * (d->H + d->G) + 3 * d->F)),
                 head = (double)(KVF__VOCAB_PLANE * d->C);
    const double foretold = kvf__model_footprint(d, &options, KVF__F32).packed;
    ck_assert_double_eq(foretold, 2 * (double)d->L * layer + 4 * head);
    ck_assert_double_ge((double)f.model->packed_bytes, foretold);
    destroy(&f);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

/* Eight-bit products need weights that stay packed and are not trained. */
START_TEST(int8_is_for_frozen_packed_weights)
{
    const kvf__model_options refused[] = {
        {.act = KVF__BF16, .int8 = true, .keep = KVF__KEEP_STORED, .stored = KVF__F32},
        {.act = KVF__BF16, .int8 = true, .keep = KVF__KEEP_MAPPED},
        {.act = KVF__BF16, .int8 = true, .train = {.what = KVF__TRAIN_EVERYTHING}}};
    fixture f = {0};
    kvf__desc desc = open_table(&f, &kinds[0]);
    ck_assert_int_eq(kvf__model_create(ctx, &desc, &f.slots, &refused[_i], &f.model), KVF_EUSAGE);
    kvf__desc_done(&desc);
    destroy(&f);
}
END_TEST

START_TEST(every_allocation_can_fail)
{
    const kvf__model_options options = {.act = KVF__F32, .backward = true};
    kvf__model *model = NULL;
    fixture f;
    kvf__desc desc = open_table(&f, &kinds[_i]);
    int64_t n;

    for (n = 0;; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        kvf_status st = kvf__model_create(ctx, &desc, &f.slots, &options, &model);
        if (!st) break;
        ck_assert_int_eq(st, KVF_ENOMEM);
        ck_assert_ptr_null(model);
        ck_assert_int_eq(desc.L, 2); /* still owned by the caller */
    }
    kvf__ctx_fail_allocation(ctx, -1);
    ck_assert_int_gt(n, 20);
    kvf__model_free(model);
    kvf__desc_done(&desc);
    destroy(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model_create");
    TCase *tc = tcase_create("core");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, products_equal_the_definition, 0, N_KINDS);
    tcase_add_test(tc, planes_are_equal_multiples_of_16);
    tcase_add_loop_test(tc, embedding_and_tables, 0, N_KINDS);
    tcase_add_test(tc, head_that_differs_is_used);
    tcase_add_test(tc, bf16_and_int8_are_near);
    tcase_add_test(tc, int8_footprint);
    suite_add_tcase(suite, tc);

    tc = tcase_create("errors");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, int8_is_for_frozen_packed_weights, 0, 3);
    tcase_add_loop_test(tc, every_allocation_can_fail, 0, 1);
    suite_add_tcase(suite, tc);
    return ck_main(suite);
}
