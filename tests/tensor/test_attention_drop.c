/* Attention with dropout. At rate 0 it equals the reference, forward and backward. Its gradient
 * is checked by differences. Its masks follow the documented definition, and no two calls share
 * them. */
#include "attention_fx.h"
#include "ck.h"

static const fx_shape SHAPES[] = {
    {.H = 2, .G = 2, .D = 8, .P = 5, .n_rows = 1, .len = {7}},
    {.H = 4, .G = 2, .D = 5, .P = 3, .n_rows = 3, .len = {4, 1, 6}},
    {.H = 4, .G = 1, .D = 16, .P = 0, .n_rows = 2, .len = {3, 33}},
    {.H = 2, .G = 1, .D = 48, .P = 20, .n_rows = 2, .len = {70, 3}, .full = true},
    {.H = 3, .G = 3, .D = 64, .P = 9, .n_rows = 3, .len = {40, 0, 5}},
    {.H = 2,
     .G = 2,
     .D = 8,
     .P = 5,
     .n_rows = 2,
     .len = {17, 3},
     .full = true,
     .window = 4,
     .cap = 2},
    {.H = 2, .G = 1, .D = 8, .P = 5, .n_rows = 2, .len = {17, 3}, .window = 6, .cap = 2},
    {.H = 4, .G = 2, .D = 16, .P = 9, .n_rows = 3, .len = {4, 1, 6}, .weighted = true},
    {.H = 2,
     .G = 1,
     .D = 8,
     .P = 5,
     .n_rows = 2,
     .len = {7, 3},
     .weighted = true,
     .window = 9,
     .cap = 2},
    {.H = 2, .G = 2, .D = 8, .P = 5, .n_rows = 2, .len = {17, 3}, .full = true, .terms = true},
    {.H = 4, .G = 2, .D = 8, .P = 5, .n_rows = 2, .len = {17, 3}, .cache = {4}, .bias = true},
    {.H = 2,
     .G = 1,
     .D = 8,
     .P = 5,
     .common = 4,
     .n_rows = 2,
     .len = {7, 3},
     .full = true,
     .crosses = true},
};
enum { N_SHAPES = sizeof SHAPES / sizeof *SHAPES };

typedef struct dropped {
    fx f;
    kvf__rng stream[FX_ROWS];
    kvf__attn_drop drop;
} dropped;

static void open_dropped(dropped *d, const fx_shape *shape, double rate)
{
    fx_open(&d->f, shape, 2);
    kvf__attn *a = &d->f.attn;
    kvf__attn_limits limits = {.rows = shape->n_rows,
                               .tokens = a->N,
                               .row_len = 70,
                               .shared_len = shape->P + shape->common + 4,
                               .grad_len = shape->P + shape->common,
                               .H = a->H,
                               .G = a->G,
                               .D = a->D,
                               .backward = true,
                               .plain = true};
    kvf__attn_plan_free(a->plan);
    fx_must(kvf__attn_plan_create(d->f.ctx, &limits, &a->plan) == KVF_OK);
    kvf__attn_plan_set(a->plan, d->f.rows, shape->n_rows, d->f.segs, 2 + shape->n_rows);
    for (int r = 0; r < shape->n_rows; r++)
        d->stream[r] = kvf__rng_make(11, (uint64_t)r);
    d->drop = (kvf__attn_drop){.rate = kvf__dropout_make(rate), .stream = d->stream, .layer = 3};
    a->drop = &d->drop;
}

START_TEST(nothing_dropped_is_the_reference)
{
    fx_shape shape = SHAPES[_i % N_SHAPES];
    dropped d;
    fx want;
    shape.act = _i < N_SHAPES ? KVF__F32 : KVF__BF16;
    double tol = shape.act == KVF__F32 ? 2e-6 : 8e-3; /* bf16: neighbouring values, 2^-7 apart */
    open_dropped(&d, &shape, 0);
    fx_open(&want, &shape, 1);
    fx_run(&want, kvf__kernels_level("ref"));
    fx_zero_grads(&d.f);
    kvf__attn_plain_fwd(&d.f.attn);
    kvf__attn_plain_bwd(&d.f.attn);
    float *got[2] = {fx_floats(&d.f, d.f.attn.out, d.f.n_out),
                     fx_floats(&d.f, d.f.attn.dqkv, d.f.n_qkv)};
    float *ref[2] = {fx_floats(&want, want.attn.out, want.n_out),
                     fx_floats(&want, want.attn.dqkv, want.n_qkv)};
    ck_close(got[0], ref[0], (size_t)want.n_out, tol, tol);
    ck_close(got[1], ref[1], (size_t)want.n_qkv, tol, tol * 2);
    ck_close(d.f.segs[0].dk, want.segs[0].dk, (size_t)want.n_seg[0], tol, 5 * tol);
    ck_close(d.f.segs[0].dv, want.segs[0].dv, (size_t)want.n_seg[0], tol, 5 * tol);
    if (shape.weighted)
        ck_close(d.f.segs[0].dlog_weight, want.segs[0].dlog_weight, (size_t)(shape.G * shape.P),
                 tol, 5 * tol);
    for (int i = 0; i < 2; i++) {
        free(got[i]);
        free(ref[i]);
    }
    fx_close(&d.f);
    fx_close(&want);
}
END_TEST

/* Sum of out dout, whose gradient is computed by the backward pass. */
static double loss(dropped *d)
{
    const float *out = d->f.attn.out;
    double sum = 0;
    kvf__attn_plain_fwd(&d->f.attn);
    for (int r = 0; r < d->f.shape.n_rows; r++) {
        const int64_t width = d->f.attn.H * d->f.attn.D, from = d->f.rows[r].start * width;
        for (int64_t i = from; i < from + d->f.rows[r].len * width; i++)
            sum += (double)out[i] * (double)d->f.dout[i];
    }
    return sum;
}

static void check_slopes(dropped *d, const char *what, const float *values, const float *grad,
                         int64_t n, int64_t stride)
{
    float *x = (float *)(uintptr_t)values; /* the fixture's own memory */
    const float step = 1e-2f;
    for (int64_t i = 0; i < n; i += stride) {
        const float was = x[i];
        x[i] = was + step;
        const double up = loss(d);
        x[i] = was - step;
        const double down = loss(d), slope = (up - down) / (2 * (double)step);
        x[i] = was;
        ck_assert_msg(fabs((double)grad[i] - slope) <= 2e-3 * (1 + fabs(slope)),
                      "%s[%lld]: gradient %g, differences give %g", what, (long long)i,
                      (double)grad[i], slope);
    }
}

START_TEST(gradient_is_slope)
{
    dropped d;
    open_dropped(&d, &SHAPES[_i], 0.3);
    fx *f = &d.f;
    fx_zero_grads(f);
    kvf__attn_plain_fwd(&f->attn);
    kvf__attn_plain_bwd(&f->attn);
    float *dqkv = fx_floats(f, f->attn.dqkv, f->n_qkv);
    float *dk = fx_zeros(fx_bytes(KVF__F32, f->n_seg[0])),
          *dv = fx_zeros(fx_bytes(KVF__F32, f->n_seg[0]));
    memcpy(dk, f->segs[0].dk, sizeof(float) * (size_t)f->n_seg[0]);
    memcpy(dv, f->segs[0].dv, sizeof(float) * (size_t)f->n_seg[0]);
    const int64_t heads = f->shape.G * f->shape.P;
    float *dw = fx_zeros(fx_bytes(KVF__F32, heads));
    if (f->shape.weighted) memcpy(dw, f->segs[0].dlog_weight, sizeof(float) * (size_t)heads);

    fx_zero_grads(f);
    f->attn.shared_only = true;
    memset(f->attn.dqkv, 0, sizeof(float) * (size_t)f->n_qkv);
    kvf__attn_plain_bwd(&f->attn);
    ck_close(f->segs[0].dk, dk, (size_t)f->n_seg[0], 0, 0);
    for (int64_t i = 0; i < f->n_qkv; i++)
        ck_assert(((float *)f->attn.dqkv)[i] == 0);

    check_slopes(&d, "qkv", f->attn.qkv, dqkv, f->n_qkv, 1 + f->n_qkv / 50);
    const int64_t stride = 1 + f->n_seg[0] / 20, n = f->shape.G * f->shape.P * f->shape.D;
    check_slopes(&d, "prefix key", f->segs[0].k, dk, n, stride);
    check_slopes(&d, "prefix value", f->segs[0].v, dv, n, stride);
    if (f->shape.weighted) check_slopes(&d, "log-weight", f->segs[0].log_weight, dw, heads, 1);
    free(dw);
    free(dqkv);
    free(dk);
    free(dv);
    fx_close(f);
}
END_TEST

/* With one key its probability is 1, so that out is v / (1 - rate) or 0. */
START_TEST(masks_are_drawn_alone)
{
    const double rate = 0.25;
    fx_shape shape = {.H = 32, .G = 32, .D = 4, .P = 0, .n_rows = FX_ROWS};
    dropped d;
    int zeros[2] = {0, 0}, differ = 0;
    bool gone[2][FX_ROWS][32];
    for (int r = 0; r < FX_ROWS; r++)
        shape.len[r] = 1;
    open_dropped(&d, &shape, rate);
    for (int layer = 0; layer < 2; layer++) {
        d.drop.layer = layer;
        kvf__attn_plain_fwd(&d.f.attn);
        for (int r = 0; r < FX_ROWS; r++)
            for (int h = 0; h < 32; h++) {
                const float *out = (float *)d.f.attn.out + (r * 32 + h) * 4;
                const float *v = d.f.qkv + r * d.f.attn.ld + (2 * 32 + h) * 4;
                gone[layer][r][h] = out[0] == 0;
                zeros[layer] += out[0] == 0;
                for (int i = 0; i < 4 && out[0] != 0; i++)
                    ck_assert_double_eq_tol((double)out[i], (double)v[i] / (1 - rate), 1e-5);
            }
    }
    for (int r = 0; r < FX_ROWS; r++)
        for (int h = 0; h < 32; h++)
            differ += gone[0][r][h] != gone[1][r][h];
    const double n = FX_ROWS * 32, sigma = sqrt(n * rate * (1 - rate));
    ck_assert_double_eq_tol(zeros[0], n * rate, 4 * sigma);
    ck_assert_double_eq_tol(zeros[1], n * rate, 4 * sigma);
    ck_assert_double_eq_tol(differ, 2 * n * rate * (1 - rate), 4 * sqrt(n) / 2);
    fx_close(&d.f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("attention_drop");
    TCase *core = tcase_create("core"), *grad = tcase_create("grad");
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, grad);
    tcase_set_timeout(core, 30);
    tcase_set_timeout(grad, 60);
    tcase_add_loop_test(core, nothing_dropped_is_the_reference, 0, 2 * N_SHAPES);
    tcase_add_test(core, masks_are_drawn_alone);
    tcase_add_loop_test(grad, gradient_is_slope, 0, N_SHAPES);
    return ck_main(suite);
}
