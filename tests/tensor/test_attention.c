/* The attention reference against a formula of the test's own, its gradient against central
 * differences, and the plan.
 *
 * The formula works in double on keys gathered per query, so it shares nothing with the library
 * but the layout. */
#include "attention_fx.h"
#include "ck.h"

/* ---- the formula ----------------------------------------------------------------------------- */

/* Inputs in double: copies of the fixture's, from which differences are taken. */
typedef struct formula {
    const fx *f;
    double *qkv, *k[FX_ROWS + 2], *v[FX_ROWS + 2], *w[FX_ROWS + 2];
} formula;

static double *doubles(const float *from, int64_t n)
{
    double *out = fx_zeros(sizeof(double) * (size_t)n);
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)from[i];
    return out;
}

static void formula_open(formula *m, const fx *f)
{
    m->f = f;
    m->qkv = doubles(f->qkv, f->n_qkv);
    for (int s = 0; s < 2 + f->shape.n_rows; s++) {
        m->k[s] = doubles(f->k[s], f->n_seg[s]);
        m->v[s] = doubles(f->v[s], f->n_seg[s]);
        m->w[s] = f->segs[s].log_weight
                      ? doubles(f->segs[s].log_weight, f->shape.G * f->segs[s].len)
                      : NULL;
    }
}

static void formula_close(formula *m)
{
    free(m->qkv);
    for (int s = 0; s < 2 + m->f->shape.n_rows; s++) {
        free(m->k[s]);
        free(m->v[s]);
        free(m->w[s]);
    }
}

/* Keys and values visible to query i of a row, their log-weights and distances; FAR: no
 * distance. */
typedef struct seen {
    const double *key, *value;
    double weight;
    int64_t away;
} seen;
#define FAR INT64_MAX

/* Returns their number. */
static int64_t gather(const formula *m, int r, int64_t g, int64_t i, seen *to)
{
    const kvf__attn *a = &m->f->attn;
    const kvf__attn_row *row = &m->f->rows[r];
    int64_t n = 0;
    for (int s = 0; s < row->n_segs; s++) {
        const kvf__kvseg *seg = &m->f->segs[row->seg[s]];
        const double *w = m->w[row->seg[s]];
        for (int64_t t = 0; t < seg->len; t++) {
            const int64_t at = g * seg->head_stride + t * seg->token_stride;
            to[n++] = (seen){
                m->k[row->seg[s]] + at, m->v[row->seg[s]] + at, w ? w[g * seg->len + t] : 0,
                seg->near && a->relative && a->relative->bias ? i + seg->len - t : FAR};
        }
    }
    for (int64_t t = 0; !a->crosses && t < row->len; t++) {
        if (a->causal && t > i) break;
        if (!a->causal && a->window && (t - i >= a->window || i - t >= a->window)) continue;
        const double *key = m->qkv + (row->start + t) * a->ld + a->H * a->D + g * a->D;
        to[n++] = (seen){key, key + a->G * a->D, 0, i - t};
    }
    const int64_t hidden = a->causal && a->window && n > a->window ? n - a->window
                                                                   : 0; /* the oldest */
    memmove(to, to + hidden, (size_t)(n - hidden) * sizeof *to);
    return n - hidden;
}

/* The addition to a key's score for its distance, unscaled. */
static double relative(const kvf__attn *a, int64_t h, const double *q, const seen *key)
{
    const kvf__attn_relative *r = a->relative;
    double sum = 0;
    if (!r || key->away == FAR) return 0;
    int64_t away = key->away;
    if (away >= r->most) away = r->most - 1;
    if (away <= -r->most) away = 1 - r->most;
    const int64_t b = r->bucket[away + r->most - 1];
    if (r->bias) return (double)r->bias[b * a->H + h];
    for (int64_t d = 0; d < a->D; d++)
        sum += q[d] * (double)r->k[(b * a->H + h) * a->D + d] +
               key->key[d] * (double)r->q[(b * a->H + h) * a->D + d];
    return sum;
}

/* o [D] of one query. */
static void attend(const formula *m, int r, int64_t h, int64_t i, double *o)
{
    enum { MOST = 4096 };
    static seen keys[MOST];
    const kvf__attn *a = &m->f->attn;
    const double *q = m->qkv + (m->f->rows[r].start + i) * a->ld + h * a->D;
    const int64_t n = gather(m, r, h * a->G / a->H, i, keys);
    double sum = 0;
    memset(o, 0, sizeof(double) * (size_t)a->D);
    for (int64_t j = 0; j < n; j++) {
        double s = relative(a, h, q, &keys[j]);
        for (int64_t d = 0; d < a->D; d++)
            s += q[d] * keys[j].key[d];
        s *= (double)a->scale;
        if (a->cap > 0) s = (double)a->cap * tanh(s / (double)a->cap);
        const double e = exp(s + keys[j].weight); /* scores are small here: no maximum needed */
        sum += e;
        for (int64_t d = 0; d < a->D; d++)
            o[d] += e * keys[j].value[d];
    }
    for (int64_t d = 0; d < a->D; d++)
        o[d] /= sum;
}

/* Sum of out dout, whose gradient is computed by the backward pass; also out, if requested. */
static double loss(const formula *m, float *out)
{
    const kvf__attn *a = &m->f->attn;
    double o[256], sum = 0;
    for (int r = 0; r < m->f->shape.n_rows; r++)
        for (int64_t i = m->f->rows[r].first; i < m->f->rows[r].len; i++)
            for (int64_t h = 0; h < a->H; h++) {
                const int64_t at = ((m->f->rows[r].start + i) * a->H + h) * a->D;
                attend(m, r, h, i, o);
                for (int64_t d = 0; d < a->D; d++) {
                    sum += o[d] * (double)m->f->dout[at + d];
                    if (out) out[at + d] = (float)o[d];
                }
            }
    return sum;
}

/* ---- core ------------------------------------------------------------------------------------ */

static const kvf__kernels *ref(void)
{
    const kvf__kernels *kernels = kvf__kernels_level("ref");
    ck_assert_ptr_nonnull(kernels);
    return kernels;
}

static const fx_shape FORMULA_SHAPES[] = {
    {.H = 1, .G = 1, .D = 1, .P = 0, .n_rows = 1, .len = {1}},
    {.H = 2, .G = 2, .D = 8, .P = 5, .n_rows = 1, .len = {7}},
    {.H = 4, .G = 2, .D = 5, .P = 3, .n_rows = 3, .len = {4, 1, 6}},
    {.H = 4, .G = 1, .D = 16, .P = 2, .common = 4, .n_rows = 2, .len = {3, 5}, .cache = {0, 9}},
    {.H = 3, .G = 3, .D = 4, .P = 0, .n_rows = 3, .len = {1, 0, 2}, .cache = {30, 0, 7}},
    {.H = 2, .G = 1, .D = 8, .P = 5, .n_rows = 2, .len = {7, 3}, .full = true},
    {.H = 2, .G = 1, .D = 8, .P = 5, .n_rows = 3, .len = {7, 3, 4}, .first = {5, 3, 0}},
    {.H = 2, .G = 1, .D = 8, .P = 5, .n_rows = 2, .len = {9, 2}, .cap = 1.5f},
    {.H = 2, .G = 1, .D = 8, .P = 5, .common = 2, .n_rows = 3, .len = {9, 2, 1}, .window = 4},
    {.H = 2, .G = 2, .D = 4, .P = 3, .n_rows = 2, .len = {4, 6}, .window = 1, .cap = 2},
    {.H = 2, .G = 1, .D = 8, .P = 5, .n_rows = 3, .len = {9, 2, 1}, .full = true, .window = 3},
    {.H = 4, .G = 2, .D = 5, .P = 9, .n_rows = 3, .len = {4, 1, 6}, .weighted = true},
    {.H = 4,
     .G = 1,
     .D = 16,
     .P = 2,
     .common = 4,
     .n_rows = 2,
     .len = {3, 5},
     .cache = {0, 9},
     .weighted = true},
    {.H = 2, .G = 1, .D = 8, .P = 5, .n_rows = 2, .len = {7, 3}, .full = true, .weighted = true},
    {.H = 2, .G = 1, .D = 8, .P = 5, .n_rows = 2, .len = {9, 2}, .weighted = true, .cap = 1.5f},
    {.H = 2, .G = 1, .D = 8, .P = 7, .n_rows = 2, .len = {9, 2}, .window = 8, .weighted = true},
    {.H = 2, .G = 2, .D = 8, .P = 5, .n_rows = 2, .len = {14, 3}, .bias = true, .full = true},
    {.H = 4,
     .G = 2,
     .D = 5,
     .P = 3,
     .n_rows = 3,
     .len = {4, 1, 12},
     .cache = {7, 0, 2},
     .bias = true},
    {.H = 2, .G = 2, .D = 8, .P = 5, .n_rows = 2, .len = {7, 12}, .terms = true, .full = true},
    {.H = 2,
     .G = 2,
     .D = 4,
     .P = 3,
     .n_rows = 2,
     .len = {5, 9},
     .first = {3},
     .terms = true,
     .cap = 2},
    {.H = 2,
     .G = 1,
     .D = 8,
     .P = 5,
     .common = 4,
     .n_rows = 2,
     .len = {7, 3},
     .crosses = true,
     .full = true},
};
enum { N_FORMULA_SHAPES = sizeof FORMULA_SHAPES / sizeof *FORMULA_SHAPES };

START_TEST(ref_matches_formula)
{
    fx f;
    formula m;
    fx_open(&f, &FORMULA_SHAPES[_i], 1);
    formula_open(&m, &f);
    float *want = fx_zeros(fx_bytes(KVF__F32, f.n_out));
    loss(&m, want);
    ref()->attn_fwd(&f.attn);
    ck_close((float *)f.attn.out, want, (size_t)f.n_out, 1e-6, 1e-7);
    free(want);
    formula_close(&m);
    fx_close(&f);
}
END_TEST

/* d loss / d *x by central differences. In double: the error is that of the third derivative,
 * below 1e-7 here. */
static double slope(const formula *m, double *x)
{
    const double step = 1e-4, was = *x;
    *x = was + step;
    const double up = loss(m, NULL);
    *x = was - step;
    const double down = loss(m, NULL);
    *x = was;
    return (up - down) / (2 * step);
}

/* Compares every `stride`-th gradient. */
static void check_slopes(const formula *m, const char *what, double *x, const float *grad,
                         int64_t n, int64_t stride)
{
    for (int64_t i = 0; i < n; i += stride) {
        const double want = slope(m, &x[i]), got = (double)grad[i];
        ck_assert_msg(fabs(got - want) <= 2e-6 * (1 + fabs(want)),
                      "%s[%lld]: gradient %.9g, differences give %.9g", what, (long long)i, got,
                      want);
    }
}

START_TEST(ref_gradient_is_slope)
{
    fx f;
    formula m;
    fx_open(&f, &FORMULA_SHAPES[_i], 1);
    formula_open(&m, &f);
    fx_run(&f, ref());
    check_slopes(&m, "qkv", m.qkv, f.attn.dqkv, f.n_qkv, 1);
    for (int s = 0; s < 2; s++) {
        check_slopes(&m, "segment key", m.k[s], f.segs[s].dk, f.n_seg[s], 1);
        check_slopes(&m, "segment value", m.v[s], f.segs[s].dv, f.n_seg[s], 1);
        if (m.w[s])
            check_slopes(&m, "log-weight", m.w[s], f.segs[s].dlog_weight, f.shape.G * f.segs[s].len,
                         1);
    }
    formula_close(&m);
    fx_close(&f);
}
END_TEST

/* Gradients of segments are added to the existing values; those of the row are written. */
START_TEST(segment_gradients_add)
{
    const fx_shape shape = {
        .H = 4, .G = 2, .D = 16, .P = 6, .n_rows = 2, .len = {9, 33}, .weighted = true};
    static const char *const levels[] = {"ref", "avx2", "avx512", "avx512_bf16"};
    const kvf__kernels *kernels = kvf__kernels_level(levels[_i]);
    fx f;
    ck_need(kernels, "this CPU has no such kernels");
    fx_open(&f, &shape, 2);
    fx_run(&f, kernels);
    float *once = fx_zeros(fx_bytes(KVF__F32, f.n_seg[0])),
          *own = fx_floats(&f, f.attn.dqkv, f.n_qkv);
    float weight = f.segs[0].dlog_weight[1];
    memcpy(once, f.segs[0].dk, sizeof(float) * (size_t)f.n_seg[0]);
    kernels->attn_bwd(&f.attn);
    ck_assert(weight != 0 && fabsf(f.segs[0].dlog_weight[1] - 2 * weight) <= 1e-6f);
    for (int64_t i = 0; i < f.n_seg[0]; i++)
        once[i] *= 2;
    ck_close(f.segs[0].dk, once, (size_t)f.n_seg[0], 1e-6, 1e-7);
    ck_close((float *)f.attn.dqkv, own, (size_t)f.n_qkv, 0, 0);
    free(once);
    free(own);
    fx_close(&f);
}
END_TEST

/* ---- the plan -------------------------------------------------------------------------------- */

START_TEST(plan_refuses_bad_heads)
{
    static const int64_t bad[][3] = {{3, 2, 8}, {0, 1, 8}, {2, 0, 8}, {2, 2, 0}, {-2, 1, 8}};
    kvf_ctx *ctx = NULL;
    kvf__attn_plan *plan = NULL;
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const kvf__attn_limits limits = {
            .rows = 1, .tokens = 4, .row_len = 4, .H = bad[i][0], .G = bad[i][1], .D = bad[i][2]};
        ck_assert_int_eq(kvf__attn_plan_create(ctx, &limits, &plan), KVF_ESHAPE);
        ck_assert_ptr_null(plan);
        ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "attention"));
    }
    const kvf__attn_limits huge = {.rows = 1,
                                   .row_len = INT32_MAX,
                                   .shared_len = INT32_MAX,
                                   .H = 1,
                                   .G = 1,
                                   .D = INT32_MAX - 64,
                                   .backward = true};
    ck_assert_int_eq(kvf__attn_plan_create(ctx, &huge, &plan), KVF_ENOMEM);
    ck_assert_ptr_null(plan);
    kvf_ctx_free(ctx);
}
END_TEST

START_TEST(plan_survives_no_memory)
{
    const kvf__attn_limits limits = {.rows = 3,
                                     .tokens = 40,
                                     .row_len = 20,
                                     .shared_len = 8,
                                     .grad_len = 8,
                                     .H = 4,
                                     .G = 2,
                                     .D = 8,
                                     .backward = true};
    kvf_ctx *ctx = NULL;
    kvf__attn_plan *plan = NULL;
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    int64_t failures = 0;
    for (;; failures++) {
        kvf__ctx_fail_allocation(ctx, failures);
        const kvf_status st = kvf__attn_plan_create(ctx, &limits, &plan);
        if (!st) break;
        ck_assert_int_eq(st, KVF_ENOMEM);
        ck_assert_ptr_null(plan);
    }
    kvf__ctx_fail_allocation(ctx, -1);
    ck_assert_int_ge(failures, 1); /* one block */
    kvf__attn_plan_free(plan);
    kvf__attn_plan_free(NULL);
    kvf_ctx_free(ctx);
}
END_TEST

/* A plan made for a larger batch serves smaller batches, one after the other. */
START_TEST(plan_serves_many_batches)
{
    const fx_shape shape = {.H = 2, .G = 1, .D = 8, .P = 4, .n_rows = 3, .len = {20, 9, 33}};
    fx f;
    fx_open(&f, &shape, 2);
    const kvf__kernels *kernels = kvf__kernels_get();
    fx_run(&f, kernels);
    float *whole = fx_floats(&f, f.attn.out, f.n_out);
    for (int r = 0; r < shape.n_rows; r++) {
        memset(f.attn.out, 0, (size_t)f.n_out * sizeof(float));
        kvf__attn_plan_set(f.attn.plan, &f.rows[r], 1, f.segs, 2 + shape.n_rows);
        kernels->attn_fwd(&f.attn);
        const int64_t from = f.rows[r].start * f.attn.H * f.attn.D,
                      n = f.rows[r].len * f.attn.H * f.attn.D;
        ck_close((float *)f.attn.out + from, whole + from, (size_t)n, 0, 0);
        float *before = fx_zeros(fx_bytes(KVF__F32, from));
        ck_close((float *)f.attn.out, before, (size_t)from, 0, 0);
        free(before);
    }
    kvf__attn_plan_set(f.attn.plan, f.rows, 0, f.segs, 0);
    fx_run(&f, kernels); /* no rows: nothing happens */
    free(whole);
    fx_close(&f);
}
END_TEST

START_TEST(nothing_is_allocated)
{
    const fx_shape shape = {.H = 4,
                            .G = 2,
                            .D = 24,
                            .P = 7,
                            .common = 5,
                            .n_rows = 3,
                            .len = {40, 1, 70},
                            .cache = {0, 100, 0}};
    fx f;
    fx_open(&f, &shape, 2);
    const uint64_t before = kvf__ctx_allocations(f.ctx);
    kvf__attn_plan_set(f.attn.plan, f.rows, shape.n_rows, f.segs, 2 + shape.n_rows);
    fx_run(&f, kvf__kernels_get());
    fx_run(&f, ref());
    ck_assert_uint_eq(kvf__ctx_allocations(f.ctx), before);
    fx_close(&f);
}
END_TEST

static Suite *attention_suite(void)
{
    Suite *suite = suite_create("attention");
    TCase *core = tcase_create("core"), *grad = tcase_create("grad"),
          *errors = tcase_create("errors");
    tcase_add_loop_test(core, ref_matches_formula, 0, N_FORMULA_SHAPES);
    tcase_add_loop_test(core, segment_gradients_add, 0, 4);
    tcase_add_test(core, plan_serves_many_batches);
    tcase_add_test(core, nothing_is_allocated);
    tcase_add_loop_test(grad, ref_gradient_is_slope, 0, N_FORMULA_SHAPES);
    tcase_add_test(errors, plan_refuses_bad_heads);
    tcase_add_test(errors, plan_survives_no_memory);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, grad);
    suite_add_tcase(suite, errors);
    return suite;
}

int main(void)
{
    return ck_main(attention_suite());
}
