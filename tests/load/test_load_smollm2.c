/* A real model from end to end: SmolLM2-135M-Instruct from its GGUF, against f64 results of
 * transformers (tests/golden/make_smollm2_golden.py). The model is $KVF_SMOLLM2 or the one
 * installed by setup.sh. Without it the tests print one line and skip. */
#include "ck.h"
#include "renderer.h"

#include <stdlib.h>
#include <string.h>

static const char MODEL[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

typedef struct fixture {
    kvf_ctx *ctx;
    kvf_base *base;
    kvf__weights golden;
    kvf__batch batch;
    kvf__prefix prefix, gradient;
    kvf__pass *pass;
} fixture;

static const char NO_MODEL[] =
    "no SmolLM2 (./setup.sh test fetches it; KVF_SMOLLM2 names another place)";

/* Path of the model into buf; false if it is missing. */
static bool find_model(char *buf, size_t size)
{
    const char *given = getenv("KVF_SMOLLM2"), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");

    if (given)
        snprintf(buf, size, "%s", given);
    else if (cache && *cache)
        snprintf(buf, size, "%s/kvfold/%s", cache, MODEL);
    else
        snprintf(buf, size, "%s/.cache/kvfold/%s", home ? home : "", MODEL);
    return kvf__exists(buf);
}

/* ---- the golden file ------------------------------------------------------------------------- */

static const void *stored(const fixture *f, const char *name, int64_t *n)
{
    const kvf__view *view = kvf__table_find(&f->golden.table, name);

    ck_assert_msg(view != NULL, "no tensor %s", name);
    if (n) *n = kvf__view_count(view);
    return view->data;
}

/* A copy: tensors in a file need not be aligned. */
static void *values(const fixture *f, const char *name, int64_t *n)
{
    const kvf__view *view = kvf__table_find(&f->golden.table, name);
    void *copy = malloc(kvf__view_bytes(view));

    memcpy(copy, stored(f, name, n), kvf__view_bytes(view));
    return copy;
}

static double number(const fixture *f, const char *name, int index)
{
    double value;
    memcpy(&value, (const char *)stored(f, name, NULL) + (size_t)index * sizeof value,
           sizeof value);
    return value;
}

/* ---- the prefix ------------------------------------------------------------------------------ */

/* The bare base's keys and values for P tokens. */
static void capture(fixture *f, int64_t P)
{
    int32_t *ids = values(f, "prefix_ids", NULL);
    const int64_t start[] = {0, P}, example = 0;
    const kvf__pass_limits limits = {
        .rows = 1, .tokens = P, .row_len = P, .labels = 1, .cache_len = P};
    const kvf__batch batch = {
        .n_rows = 1, .n_tokens = P, .start = start, .ids = ids, .example = &example};
    kvf__cache *cache = NULL;
    kvf__pass *pass = NULL;

    ck_assert_int_eq(kvf__cache_create(f->ctx, f->base->model, 1, P, &cache), KVF_OK);
    ck_assert_int_eq(kvf__pass_create(f->ctx, f->base->model, &limits, &pass), KVF_OK);
    const kvf__input input = {.batch = &batch, .cache = cache};
    ck_assert_msg(!kvf__pass_fwd(f->ctx, pass, &input), "%s", kvf_ctx_error(f->ctx));
    kvf__cache_read(cache, 0, 0, P, f->prefix.kv);
    kvf__pass_free(pass);
    kvf__cache_free(cache);
    free(ids);
}

static void make_prefix(fixture *f)
{
    const kvf__desc *d = kvf__model_desc(f->base->model);
    int64_t P;

    stored(f, "prefix_ids", &P);
    ck_assert_int_eq(kvf__prefix_init(f->ctx, &f->prefix, d->L, d->G, P, d->D), KVF_OK);
    ck_assert_int_eq(kvf__prefix_init(f->ctx, &f->gradient, d->L, d->G, P, d->D), KVF_OK);
    capture(f, P);
    for (size_t i = 0; i < kvf__prefix_count(&f->prefix); i++) {
        uint32_t hash = (uint32_t)i * 2654435761u;
        f->prefix.kv[i] += ((float)(hash >> 8) / 16777216.0f - 0.5f) / 4;
    }
}

/* ---- setting up ------------------------------------------------------------------------------ */

static void load_batch(fixture *f)
{
    kvf__batch *b = &f->batch;

    b->ids = values(f, "ids", &b->n_tokens);
    b->start = values(f, "start", &b->n_rows);
    b->label_at = values(f, "label_at", &b->n_labels);
    b->label_id = values(f, "label_id", NULL);
    b->n_rows--;
}

static void open_all(fixture *f, const char *model, kvf_precision precision)
{
    const kvf_base_options options = {.precision = precision, .backward = true};

    *f = (fixture){0};
    ck_assert_int_eq(kvf_ctx_create(NULL, &f->ctx), KVF_OK);
    ck_assert_msg(
        !kvf__safetensors_open(f->ctx, ck_source("tests/golden/smollm2.safetensors"), &f->golden),
        "%s", kvf_ctx_error(f->ctx));
    ck_assert_msg(!kvf_base_open(f->ctx, model, &options, &f->base), "%s", kvf_ctx_error(f->ctx));
    load_batch(f);
    make_prefix(f);
    const kvf__pass_limits limits = {.rows = f->batch.n_rows,
                                     .tokens = f->batch.n_tokens,
                                     .row_len = f->batch.n_tokens,
                                     .labels = f->batch.n_labels,
                                     .P = f->prefix.P,
                                     .backward = true};
    ck_assert_msg(!kvf__pass_create(f->ctx, f->base->model, &limits, &f->pass), "%s",
                  kvf_ctx_error(f->ctx));
}

static void close_all(fixture *f)
{
    free((void *)f->batch.ids);
    free((void *)f->batch.start);
    free((void *)f->batch.label_at);
    free((void *)f->batch.label_id);
    kvf__prefix_done(&f->prefix);
    kvf__prefix_done(&f->gradient);
    kvf__pass_free(f->pass);
    kvf_base_free(f->base);
    kvf__weights_close(&f->golden);
    kvf_ctx_free(f->ctx);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static double mean_loss(fixture *f, const kvf__prefix *prefix)
{
    const kvf__input input = {.batch = &f->batch,
                              .condition.prefix = prefix,
                              .condition.position_start = prefix ? prefix->P : 0};
    const float scale = 1.0f / (float)f->batch.n_labels;
    double loss = 0;

    ck_assert_msg(!kvf__pass_fwd(f->ctx, f->pass, &input), "%s", kvf_ctx_error(f->ctx));
    ck_assert_msg(!kvf__pass_loss(f->ctx, f->pass,
                                  &(kvf__loss){.gradient = prefix != NULL, .scale = scale}, &loss),
                  "%s", kvf_ctx_error(f->ctx));
    return loss / (double)f->batch.n_labels;
}

/* At the stored vocabulary ids of every labelled position. */
static void check_logits(fixture *f, const char *name, double within)
{
    int64_t V = kvf__model_desc(f->base->model)->V, n, n_vocab;
    float *want = values(f, name, &n), *got = malloc((size_t)n * sizeof *got);
    float *all = malloc((size_t)(f->batch.n_labels * V) * sizeof *all);
    int32_t *vocab = values(f, "vocab", &n_vocab);

    ck_assert_int_eq(n, f->batch.n_labels * n_vocab);
    ck_assert_int_eq(kvf__pass_lm_logits(f->ctx, f->pass, all), KVF_OK);
    for (int64_t i = 0; i < n; i++)
        got[i] = all[i / n_vocab * V + vocab[i % n_vocab]];
    ck_close(got, want, (size_t)n, 0, within);
    free(want);
    free(got);
    free(all);
    free(vocab);
}

/* Relative L2 error of the stored entries of the gradient; its whole norm is checked too. */
static double gradient_error(fixture *f, double norm_within)
{
    int64_t n;
    int32_t *at = values(f, "gradient_at", &n);
    float *want = values(f, "gradient", NULL), *got = malloc((size_t)n * sizeof *got);
    double square = 0, norm = number(f, "gradient_norm", 0);

    ck_assert_msg(!kvf__pass_bwd(f->ctx, f->pass, &(kvf__grads){.prefix = &f->gradient}), "%s",
                  kvf_ctx_error(f->ctx));
    for (size_t i = 0; i < kvf__prefix_count(&f->gradient); i++)
        square += (double)f->gradient.kv[i] * (double)f->gradient.kv[i];
    ck_assert_double_eq_tol(square, norm * norm, 2 * norm_within * norm * norm);
    for (int64_t i = 0; i < n; i++)
        got[i] = f->gradient.kv[at[i]];
    double error = ck_rel_l2(got, want, (size_t)n);
    free(at);
    free(want);
    free(got);
    return error;
}

START_TEST(f32_matches_transformers)
{
    char model[1024];
    fixture f;

    ck_need(find_model(model, sizeof model), NO_MODEL);
    open_all(&f, model, KVF_PRECISION_F32);
    const kvf__ends *ends = &kvf__model_desc(f.base->model)->ids.ends; /* as in llama.cpp */
    ck_assert(ends->n == 3 && kvf__ends_has(ends, 0) && kvf__ends_has(ends, 2) &&
              kvf__ends_has(ends, 4));
    ck_assert_double_eq_tol(mean_loss(&f, NULL), number(&f, "losses", 0),
                            1e-5 * number(&f, "losses", 0));
    check_logits(&f, "bare_logits", 2e-3);
    ck_assert_double_eq_tol(mean_loss(&f, &f.prefix), number(&f, "losses", 1),
                            1e-5 * number(&f, "losses", 1));
    check_logits(&f, "logits", 2e-3);
    ck_assert_double_le(gradient_error(&f, 1e-4), 1e-4);
    close_all(&f);
}
END_TEST

/* A single case, with wide bounds: single figures scatter by a quarter and more around autocast's.
 * The loss differs by 0.0004, the norm of the gradient by 0.003. */
START_TEST(bf16_is_about_as_good_as_autocast)
{
    char model[1024];
    fixture f;

    ck_need(find_model(model, sizeof model), NO_MODEL);
    ck_need(kvf__cpu_has_bf16(), "this CPU has no bf16 products");
    open_all(&f, model, KVF_PRECISION_BF16);
    ck_assert_double_eq_tol(mean_loss(&f, &f.prefix), number(&f, "losses", 1),
                            0.002 * number(&f, "losses", 1));
    double error = gradient_error(&f, 0.01);
    ck_assert_msg(error <= 1.5 * number(&f, "errors", 1),
                  "gradient error %.3g, torch autocast %.3g", error, number(&f, "errors", 1));
    ck_assert_double_gt(error, 1e-3); /* it was bf16 */
    close_all(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("load_smollm2");
    TCase *cases = tcase_create("golden");

    tcase_set_timeout(cases, 100);
    tcase_add_test(cases, f32_matches_transformers);
    tcase_add_test(cases, bf16_is_about_as_good_as_autocast);
    suite_add_tcase(suite, cases);
    return ck_main(suite);
}
