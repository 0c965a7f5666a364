/* Virtual tokens in the rows of a batch: their gradient against PyTorch's through inputs_embeds
 * (tests/golden/make_vectors_golden.py). Also tests shared common prefixes, recomputation, equal
 * bits, and a vector equal to a token's embedding. */
#include "data_int.h"
#include "golden_model.h"
#include "model_priv.h"

#include <math.h>

static const char *const MODELS[] = {"llama_tied", "llama_untied", "gpt2", "gpt2_by_layer",
                                     "qwen2",      "qwen3",        "bert", "roberta"};
enum { N_MODELS = 8, N_CAUSAL = 6, P = 4 };

/* A model, and the golden file's rows, vectors and torch results. */
typedef struct fixture {
    golden g;
    kvf__weights file;
    kvf__batch batch;
    int64_t start[GOLDEN_ROWS + 1];
    kvf__vectors vectors;
    const char *name;
} fixture;

static const void *stored(const fixture *f, const char *what, int64_t *n)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", f->name, what);
    const kvf__view *view = kvf__table_find(&f->file.table, name);
    ck_assert_msg(view != NULL, "no tensor %s", name);
    if (n) *n = kvf__view_count(view);
    return view->data;
}

static void load(fixture *f, int model, kvf__dtype act)
{
    int64_t n_rows;
    *f = (fixture){.name = MODELS[model]};
    golden_load(&f->g, MODELS[model], act);
    ck_assert_int_eq(
        kvf__safetensors_open(f->g.ctx, ck_source("tests/golden/vectors.safetensors"), &f->file),
        KVF_OK);
    const int32_t *lengths = stored(f, "lengths", &n_rows);
    for (int64_t r = 0; r < n_rows; r++)
        f->start[r + 1] = f->start[r] + lengths[r];
    f->batch = (kvf__batch){.n_rows = n_rows, .start = f->start};
    f->batch.ids = stored(f, "ids", &f->batch.n_tokens);
    f->batch.label_at = stored(f, "label_at", &f->batch.n_labels);
    if (model < N_CAUSAL)
        f->batch.label_id = stored(f, "label_id", NULL);
    else
        f->batch.types = stored(f, "types", NULL);
    int64_t C = kvf__model_desc(f->g.model)->C;
    ck_assert_int_eq(kvf__vectors_init(f->g.ctx, &f->vectors, P, C), KVF_OK);
    memcpy(f->vectors.x, stored(f, "vectors", NULL), (size_t)(P * C) * sizeof(float));
}

static void unload(fixture *f)
{
    kvf__vectors_done(&f->vectors);
    kvf__weights_close(&f->file);
    golden_unload(&f->g);
}

static kvf__pass *make_pass(const fixture *f, bool recompute)
{
    kvf__pass *pass = NULL;
    const kvf__pass_limits limits = {.rows = GOLDEN_ROWS,
                                     .tokens = 128,
                                     .row_len = 64,
                                     .labels = 64,
                                     .common_len = 16,
                                     .common_tokens = 64,
                                     .backward = true,
                                     .recompute = recompute};
    ck_assert_msg(!kvf__pass_create(f->g.ctx, f->g.model, &limits, &pass), "%s",
                  kvf_ctx_error(f->g.ctx));
    return pass;
}

/* The loss of a batch, from the base's own head or the golden file's weights. */
static double loss_of(const fixture *f, kvf__pass *pass, const kvf__batch *batch, bool gradient)
{
    const kvf__input input = {.batch = batch, .condition.vectors = &f->vectors};
    const float *hidden = NULL, *weights;
    double loss = 0;
    int64_t n;

    ck_assert_msg(!kvf__pass_fwd(f->g.ctx, pass, &input), "%s", kvf_ctx_error(f->g.ctx));
    if (f->g.model->lm.n) {
        ck_assert_msg(
            !kvf__pass_loss(f->g.ctx, pass, &(kvf__loss){.gradient = gradient, .scale = 1}, &loss),
            "%s", kvf_ctx_error(f->g.ctx));
        return loss;
    }
    weights = stored(f, "weights", &n);
    ck_assert_int_eq(kvf__pass_hidden(f->g.ctx, pass, &hidden), KVF_OK);
    for (int64_t i = 0; i < n; i++)
        loss += (double)hidden[i] * (double)weights[i];
    if (gradient) ck_assert_int_eq(kvf__pass_hidden_grad(f->g.ctx, pass, weights), KVF_OK);
    return loss;
}

static double gradient_of(const fixture *f, kvf__pass *pass, const kvf__batch *batch,
                          kvf__vectors *out)
{
    ck_assert_int_eq(kvf__vectors_init(f->g.ctx, out, P, f->vectors.C), KVF_OK);
    double loss = loss_of(f, pass, batch, true);
    ck_assert_msg(!kvf__pass_bwd(f->g.ctx, pass, &(kvf__grads){.vectors = out}), "%s",
                  kvf_ctx_error(f->g.ctx));
    return loss;
}

static double gradient_error(fixture *f, kvf__pass *pass)
{
    kvf__vectors grad = {0};
    int64_t n;
    const float *want = stored(f, "gradient", &n);
    gradient_of(f, pass, &f->batch, &grad);
    double error = ck_rel_l2(grad.x, want, (size_t)n);
    kvf__vectors_done(&grad);
    return error;
}

/* ---- golden ---------------------------------------------------------------------------------- */

START_TEST(loss_and_gradient_match)
{
    fixture f;
    load(&f, _i, KVF__F32);
    kvf__pass *pass = make_pass(&f, false);
    double want = (double)*(const float *)stored(&f, "loss", NULL);
    ck_assert_double_eq_tol(loss_of(&f, pass, &f.batch, false), want, 1e-5 * fabs(want));
    ck_assert_double_le(gradient_error(&f, pass), 1e-5);
    kvf__pass_free(pass);
    unload(&f);
}
END_TEST

/* On so few models and rows, the ratio of the errors scatters from 0.8 to 2.8. The bound detects a
 * broken path, but not a slightly larger rounding error. */
START_TEST(bf16_is_no_worse_than_autocast)
{
    double log_ratio = 0;
    ck_need(kvf__cpu_has_bf16(), "this CPU has no bf16 products");
    for (int i = 0; i < N_MODELS; i++) {
        fixture f;
        load(&f, i, KVF__BF16);
        kvf__pass *pass = make_pass(&f, false);
        double ours = gradient_error(&f, pass);
        ck_assert_double_gt(ours, 1e-4); /* it was bf16 */
        log_ratio += log(ours / (double)*(const float *)stored(&f, "autocast_error", NULL));
        kvf__pass_free(pass);
        unload(&f);
    }
    ck_assert_double_le(exp(log_ratio / N_MODELS), 1.6);
}
END_TEST

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(same_bits_recomputed_and_added)
{
    fixture f;
    kvf__vectors grad[2] = {{0}, {0}};
    load(&f, _i, KVF__F32);
    kvf__pass *pass = make_pass(&f, false), *again = make_pass(&f, true);
    size_t bytes = (size_t)(P * f.vectors.C) * sizeof(float);

    gradient_of(&f, pass, &f.batch, &grad[0]);
    gradient_of(&f, again, &f.batch, &grad[1]);
    ck_assert_mem_eq(grad[0].x, grad[1].x, bytes);

    loss_of(&f, again, &f.batch, true); /* adds to the existing values */
    ck_assert_int_eq(kvf__pass_bwd(f.g.ctx, again, &(kvf__grads){.vectors = &grad[1]}), KVF_OK);
    for (int64_t i = 0; i < P * f.vectors.C; i++)
        grad[0].x[i] *= 2;
    ck_assert_double_le(ck_rel_l2(grad[1].x, grad[0].x, bytes / sizeof(float)), 1e-6);
    kvf__vectors_done(&grad[0]);
    kvf__vectors_done(&grad[1]);
    kvf__pass_free(pass);
    kvf__pass_free(again);
    unload(&f);
}
END_TEST

/* A vector equal to a token's embedding acts like that token. */
START_TEST(embedding_of_a_token_is_the_token)
{
    fixture f;
    int32_t ids[128], named[P] = {7, 30, 11, 63};
    load(&f, _i, KVF__F32);
    kvf__pass *pass = make_pass(&f, false);
    kvf__model_embedding(f.g.model, named, P, f.vectors.x);
    double with = loss_of(&f, pass, &f.batch, false);
    for (int64_t i = 0; i < f.batch.n_tokens; i++)
        ids[i] = f.batch.ids[i] < 0 ? named[-1 - f.batch.ids[i]] : f.batch.ids[i];
    f.batch.ids = ids;
    ck_assert_double_eq(loss_of(&f, pass, &f.batch, false), with);
    kvf__pass_free(pass);
    unload(&f);
}
END_TEST

/* Rows that all begin with the virtual tokens: computed once, with the same gradient. */
START_TEST(common_rows_are_shared)
{
    enum { ROWS = 5, LENGTH = 12, N = ROWS * LENGTH };
    fixture f;
    int32_t ids[N], labels[N];
    int64_t start[ROWS + 1] = {0}, order[ROWS];
    kvf__vectors grad[2] = {{0}, {0}};
    double loss[2];
    load(&f, 0, KVF__F32);
    for (int r = 0; r < ROWS; r++) {
        start[r + 1] = start[r] + LENGTH;
        order[r] = r;
        for (int i = 0; i < LENGTH; i++) {
            ids[r * LENGTH + i] = i < P ? kvf__virtual_id(i) : (r * 17 + i * 5) % 61;
            labels[r * LENGTH + i] = i < LENGTH / 2 ? KVF__NO_LABEL : ids[r * LENGTH + i];
        }
    }
    const kvf__dataset set = {.n = ROWS, .start = start, .ids = ids, .labels = labels};
    kvf__pass *pass = make_pass(&f, false);
    for (int share = 0; share < 2; share++) {
        const kvf__batch_rules rules = {.causal = true, .share = share};
        kvf__batcher batcher = {0};
        ck_assert_int_eq(kvf__batcher_init(f.g.ctx, &batcher, rules, ROWS, N, N), KVF_OK);
        kvf__batcher_fill(&batcher, &set, order, ROWS);
        ck_assert_int_eq(batcher.sizes.common_tokens, share ? P : 0);
        loss[share] = gradient_of(&f, pass, &batcher.batch, &grad[share]);
        kvf__batcher_done(&batcher);
    }
    ck_assert_double_eq_tol(loss[1], loss[0], 1e-5 * loss[0]);
    ck_assert_double_le(ck_rel_l2(grad[1].x, grad[0].x, (size_t)(P * f.vectors.C)), 1e-5);
    kvf__vectors_done(&grad[0]);
    kvf__vectors_done(&grad[1]);
    kvf__pass_free(pass);
    unload(&f);
}
END_TEST

START_TEST(refusals)
{
    fixture f;
    kvf__vectors grad = {0}, wrong = {0};
    load(&f, 0, KVF__F32);
    kvf__pass *pass = make_pass(&f, false);
    kvf__input input = {.batch = &f.batch};
    ck_assert_int_eq(kvf__pass_fwd(f.g.ctx, pass, &input), KVF_ESHAPE); /* no vectors */
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(f.g.ctx), "has id -1"));
    ck_assert_int_eq(kvf__vectors_init(f.g.ctx, &wrong, P - 1, f.vectors.C), KVF_OK);
    input.condition.vectors = &wrong;
    ck_assert_int_eq(kvf__pass_fwd(f.g.ctx, pass, &input), KVF_ESHAPE); /* not enough */
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(f.g.ctx), "has id -4"));
    kvf__vectors_done(&wrong);
    ck_assert_int_eq(kvf__vectors_init(f.g.ctx, &wrong, P, f.vectors.C - 1), KVF_OK);
    ck_assert_int_eq(kvf__pass_fwd(f.g.ctx, pass, &input), KVF_ESHAPE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(f.g.ctx), "vectors: [4, 31]"));
    loss_of(&f, pass, &f.batch, true);
    ck_assert_int_eq(kvf__pass_bwd(f.g.ctx, pass, &(kvf__grads){.vectors = &wrong}), KVF_ESHAPE);
    kvf__vectors_done(&wrong);
    kvf__vectors_done(&grad);
    kvf__pass_free(pass);
    unload(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("embed_vectors");
    TCase *gold = tcase_create("golden"), *core = tcase_create("core");

    tcase_set_timeout(gold, 60);
    tcase_add_loop_test(gold, loss_and_gradient_match, 0, N_MODELS);
    tcase_add_test(gold, bf16_is_no_worse_than_autocast);
    suite_add_tcase(suite, gold);
    tcase_add_loop_test(core, same_bits_recomputed_and_added, 0, N_MODELS);
    tcase_add_loop_test(core, embedding_of_a_token_is_the_token, 0, N_MODELS);
    tcase_add_test(core, common_rows_are_shared);
    tcase_add_test(core, refusals);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
