/* The cross-entropy kernel: chunk after chunk as in a head, against the whole softmax in double. */
#include "kernels_fx.h"

static const struct vocabulary {
    int64_t rows, V, width, C; /* V words in chunks of `width` columns, the last one padded */
    double range;
} VOCABULARIES[] = {{0, 5, 8, 3, 5},       {1, 1, 1, 1, 5},         {3, 50, 24, 6, 5},
                    {5, 333, 100, 17, 40}, {34, 3000, 1024, 9, 10}, {2, 31, 64, 5, 200}};
enum { N_VOCABULARIES = sizeof VOCABULARIES / sizeof VOCABULARIES[0] };

typedef struct flash {
    float *loss, *p, *acc; /* [rows], [rows, V] probabilities, [rows, C] = p x W */
} flash;

/* Uses the kernel as a head does: chunk after chunk, acc += e x W, and at the end a division by the
 * sum. */
static flash flash_of(const kvf__kernels *k, const struct vocabulary *v, const float *logits,
                      const int32_t *target, const float *W)
{
    flash out = {array(KVF__F32, v->rows), array(KVF__F32, v->rows * v->V),
                 array(KVF__F32, v->rows * v->C)};
    float *max = array(KVF__F32, v->rows), *sum = array(KVF__F32, v->rows),
          *hit = array(KVF__F32, v->rows);
    float *chunk = array(KVF__F32, v->rows * v->width), *wide = array(KVF__F32, v->rows * v->width);
    float *top = array(KVF__F32, v->rows * (v->V / v->width + 1));
    void *e = array(act, v->rows * v->width);
    int32_t *own = array(KVF__F32, v->rows);
    int64_t n_chunks = (v->V + v->width - 1) / v->width;

    for (int64_t r = 0; r < v->rows; r++) {
        max[r] = -INFINITY;
        sum[r] = 0;
    }
    for (int64_t i = 0; i < v->rows * v->C; i++)
        out.acc[i] = NAN; /* the first chunk erases it */
    for (int64_t c = 0; c < n_chunks; c++) {
        int64_t first = c * v->width, valid = v->V - first < v->width ? v->V - first : v->width;
        for (int64_t r = 0; r < v->rows; r++) {
            own[r] = (int32_t)(target[r] - first);
            for (int64_t i = 0; i < v->width; i++)
                chunk[r * v->width + i] = i < valid ? logits[r * v->V + first + i]
                                                    : 1e30f; /* padding must not count */
        }
        k->ce(act, &(kvf__ce_chunk){.rows = v->rows,
                                    .width = v->width,
                                    .logits = chunk,
                                    .valid = valid,
                                    .target = own,
                                    .max = max,
                                    .sum = sum,
                                    .target_logit = hit,
                                    .e = e,
                                    .acc = out.acc,
                                    .C = v->C});
        kvf__to_f32(act, e, wide, v->rows * v->width);
        for (int64_t r = 0; r < v->rows; r++) {
            top[c * v->rows + r] = max[r];
            for (int64_t i = 0; i < v->width; i++) {
                if (i >= valid) ck_assert_float_eq(wide[r * v->width + i], 0);
                for (int64_t d = 0; d < v->C && i < valid; d++)
                    out.acc[r * v->C + d] += wide[r * v->width + i] * W[(first + i) * v->C + d];
                if (i < valid) out.p[r * v->V + first + i] = wide[r * v->width + i];
            }
        }
    }
    for (int64_t r = 0; r < v->rows; r++) {
        out.loss[r] = (float)(log((double)sum[r]) + max[r] - hit[r]);
        for (int64_t i = 0; i < v->V; i++)
            out.p[r * v->V + i] *= expf(top[i / v->width * v->rows + r] - max[r]) / sum[r];
        for (int64_t d = 0; d < v->C; d++)
            out.acc[r * v->C + d] /= sum[r];
    }
    void *all[] = {max, sum, hit, chunk, wide, top, e, own};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    return out;
}

/* The same without chunks, in double. */
static flash softmax_of(const struct vocabulary *v, const float *logits, const int32_t *target,
                        const float *W)
{
    flash out = {array(KVF__F32, v->rows), array(KVF__F32, v->rows * v->V),
                 array(KVF__F32, v->rows * v->C)};
    for (int64_t r = 0; r < v->rows; r++) {
        const float *x = logits + r * v->V;
        double sum = 0;
        for (int64_t i = 0; i < v->V; i++)
            sum += exp((double)x[i] - x[0]);
        out.loss[r] = (float)(log(sum) + x[0] - x[target[r]]);
        for (int64_t i = 0; i < v->V; i++)
            out.p[r * v->V + i] = (float)(exp((double)x[i] - x[0]) / sum);
        for (int64_t d = 0; d < v->C; d++) {
            double total = 0;
            for (int64_t i = 0; i < v->V; i++)
                total += exp((double)x[i] - x[0]) / sum * W[i * v->C + d];
            out.acc[r * v->C + d] = (float)total;
        }
    }
    return out;
}

static void entropy_of(const kvf__kernels *k, const struct vocabulary *v)
{
    float *logits = filled(KVF__F32, v->rows * v->V, v->range, 15),
          *W = filled(KVF__F32, v->V * v->C, 1, 16);
    int32_t *target = array(KVF__F32, v->rows);
    for (int64_t r = 0; r < v->rows; r++)
        target[r] = (int32_t)((r * 37 + v->V - 1) % v->V);

    flash got = flash_of(k, v, logits, target, W), want = softmax_of(v, logits, target, W);
    double coarse = act == KVF__BF16 ? 1.0 / 256 : 1e-6;
    same("loss", KVF__F32, got.loss, want.loss, v->rows, 1e-6, 3e-6 + 1e-7 * v->range);
    same("probabilities", KVF__F32, got.p, want.p, v->rows * v->V, 2 * coarse + 5e-7 * v->range,
         1e-12);
    same("p x W", KVF__F32, got.acc, want.acc, v->rows * v->C, 2e-6, coarse + 1e-6);
    free(logits);
    free(W);
    free(target);
}

START_TEST(entropy)
{
    ck_need(choose(_i), "this CPU has no such kernels");
    for (int v = 0; v < N_VOCABULARIES; v++)
        entropy_of(fast, &VOCABULARIES[v]);
}
END_TEST

START_TEST(entropy_of_ref)
{
    ref = kvf__kernels_level("ref");
    act = _i ? KVF__BF16 : KVF__F32;
    for (int v = 0; v < N_VOCABULARIES; v++)
        entropy_of(ref, &VOCABULARIES[v]);
}
END_TEST

/* A chunk without valid columns changes nothing; loss only (no e, no acc) gives the same sums; NaN
 * propagates to the sum. */
START_TEST(entropy_limits)
{
    enum { W = 37 };
    float logits[W], max[2] = {-INFINITY, -INFINITY}, sum[2] = {0}, hit[2] = {7, 7}, e[W];
    const int32_t outside[] = {-3};
    ck_need(choose(_i), "this CPU has no such kernels");
    for (int i = 0; i < W; i++)
        logits[i] = (float)(i % 11) - 4;
    kvf__ce_chunk chunk = {.rows = 1,
                           .width = W,
                           .logits = logits,
                           .valid = 0,
                           .target = outside,
                           .max = max,
                           .sum = sum,
                           .target_logit = hit};

    fast->ce(act, &chunk);
    ck_assert(max[0] == -INFINITY && sum[0] == 0 && hit[0] == 7);
    chunk.valid = W;
    fast->ce(act, &chunk);
    ck_assert(max[0] == 6 && hit[0] == 7);
    chunk.max = max + 1;
    chunk.sum = sum + 1;
    chunk.e = e;
    fast->ce(act, &chunk);
    ck_assert_float_eq(sum[0], sum[1]);
    logits[W - 1] = NAN;
    fast->ce(act, &chunk);
    ck_assert(isnan(sum[1]));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_entropy");
    TCase *core = tcase_create("core"), *parity = tcase_create("parity"),
          *limits = tcase_create("limits");
    tcase_add_loop_test(core, entropy_of_ref, 0, 2);
    tcase_set_timeout(parity, 60);
    tcase_add_loop_test(parity, entropy, 0, LEVEL_ROWS);
    tcase_add_loop_test(limits, entropy_limits, 0, LEVEL_ROWS);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, parity);
    suite_add_tcase(suite, limits);
    return ck_main(suite);
}
