/* The share of attention on virtual tokens: compared with a softmax over the queries and keys kept
 * by the pass, with and without common prefixes. Also tests settings that must not change the
 * share. */
#include "pass_priv.h"
#include "toy_model.h"
#include "vectors.h"

static toy t;
static const char *const *const CONFIGS[] = {&toy_llama, &toy_gpt2};
static const int64_t LENGTHS[] = {7, 12, 3, 9, 0};
enum { P = 6 };

static void setup(void)
{
    t = (toy){0};
}

static void teardown(void)
{
    toy_free(&t);
}

static kvf__pass *make_pass(bool recompute)
{
    const kvf__pass_limits limits = {.rows = 8,
                                     .tokens = 64,
                                     .row_len = 32,
                                     .labels = 64,
                                     .P = 2 * P,
                                     .common_len = 16,
                                     .common_tokens = 16,
                                     .backward = true,
                                     .recompute = recompute};
    kvf__pass *pass = NULL;
    ck_assert_msg(!kvf__pass_create(t.ctx, t.model, &limits, &pass), "%s", kvf_ctx_error(t.ctx));
    return pass;
}

static void run(kvf__pass *pass, const kvf__batch *batch, const kvf__prefix *prefix,
                const kvf__vectors *vectors, double *share)
{
    const kvf__input input = {.batch = batch,
                              .condition.prefix = prefix,
                              .condition.vectors = vectors,
                              .condition.position_start = prefix ? prefix->P : 0,
                              .share = share};
    ck_assert_msg(!kvf__pass_fwd(t.ctx, pass, &input), "%s", kvf_ctx_error(t.ctx));
}

/* ---- by hand --------------------------------------------------------------------------------- */

/* exp of query q's score with key k, head size D. */
static double weight(const float *q, const float *k, int64_t D, double scale)
{
    double sum = 0;
    for (int64_t d = 0; d < D; d++)
        sum += (double)q[d] * (double)k[d];
    return exp(sum * scale);
}

/* Mass of the query at packed token `at` of a row that begins at `first`. */
static double by_hand(const kvf__pass *pass, const kvf__prefix *prefix, int64_t l, int64_t head,
                      int64_t first, int64_t at)
{
    const kvf__desc *d = kvf__model_desc(t.model);
    int64_t ld = (d->H + 2 * d->G) * d->D, g = head / (d->H / d->G);
    const float *qkv = pass->kept[l].qkv, *q = qkv + at * ld + head * d->D;
    const float *keys = prefix->kv + ((l * 2) * d->G + g) * prefix->P * d->D;
    double scale = 1 / sqrt((double)d->D), on_prefix = 0, on_row = 0;
    for (int64_t p = 0; p < prefix->P; p++)
        on_prefix += weight(q, keys + p * d->D, d->D, scale);
    for (int64_t i = first; i <= at; i++)
        on_row += weight(q, qkv + i * ld + (d->H + g) * d->D, d->D, scale);
    return on_prefix / (on_prefix + on_row);
}

START_TEST(share_is_a_softmax_by_hand)
{
    double got[64] = {0}, want[64] = {0};
    toy_batch batch;
    kvf__prefix prefix = {0};
    toy_create(&t, *CONFIGS[_i], KVF__F32);
    const kvf__desc *d = kvf__model_desc(t.model);
    kvf__pass *pass = make_pass(false);
    toy_batch_make(&batch, d, LENGTHS, 0.5, 8);
    toy_prefix(&t, &prefix, P, 0.7);
    prefix.layer_mask[1] = 0;
    run(pass, &batch.b, &prefix, NULL, got);
    for (int64_t l = 0; l < d->L; l++)
        for (int64_t h = 0; h < d->H; h++)
            for (int64_t j = 0, r = 0; j < batch.b.n_labels && prefix.layer_mask[l]; j++) {
                while (batch.label_at[j] >= batch.start[r + 1])
                    r++;
                want[l * d->H + h] += by_hand(pass, &prefix, l, h, batch.start[r],
                                              batch.label_at[j]);
            }
    for (int64_t i = 0; i < d->L * d->H; i++) {
        bool masked = i / d->H == 1;
        ck_assert_double_eq_tol(got[i], want[i], 1e-5); /* the scale is rounded to f32 there */
        ck_assert(masked ? got[i] == 0 : got[i] > 0 && got[i] < (double)batch.b.n_labels);
    }
    kvf__prefix_done(&prefix);
    kvf__pass_free(pass);
}
END_TEST

/* ---- invariants ------------------------------------------------------------------------------ */

/* Recomputed layers count once; measuring changes no bit of the loss; a second pass adds. */
START_TEST(looking_changes_nothing)
{
    double once[64] = {0}, twice[64] = {0}, plain = 0, looked = 0;
    toy_batch batch;
    kvf__prefix prefix = {0}, dprefix = {0};
    toy_create(&t, toy_llama, KVF__F32);
    kvf__pass *pass = make_pass(true);
    toy_batch_make(&batch, kvf__model_desc(t.model), LENGTHS, 0.5, 8);
    toy_prefix(&t, &prefix, P, 0.7);
    toy_prefix(&t, &dprefix, P, 0);
    run(pass, &batch.b, &prefix, NULL, NULL);
    ck_assert(!kvf__pass_loss(t.ctx, pass, &(kvf__loss){.scale = 1}, &plain));
    run(pass, &batch.b, &prefix, NULL, once);
    ck_assert(!kvf__pass_loss(t.ctx, pass, &(kvf__loss){.gradient = true, .scale = 1}, &looked));
    ck_assert(plain == looked);
    for (int i = 0; i < 2; i++) {
        run(pass, &batch.b, &prefix, NULL, twice);
        ck_assert(
            !kvf__pass_loss(t.ctx, pass, &(kvf__loss){.gradient = true, .scale = 1}, &looked));
        ck_assert(!kvf__pass_bwd(t.ctx, pass, &(kvf__grads){.prefix = &dprefix}));
    }
    for (int i = 0; i < 12; i++)
        ck_assert_double_eq_tol(twice[i], 2 * once[i], 1e-12);
    run(pass, &batch.b, NULL, NULL, memset(once, 0, sizeof once));
    for (int i = 0; i < 12; i++)
        ck_assert_double_eq(once[i], 0);
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&dprefix);
    kvf__pass_free(pass);
}
END_TEST

/* Two rows that begin with P virtual tokens, each whole, or both after one common prefix. */
START_TEST(virtual_tokens_in_common_rows_count)
{
    enum { OWN = 4, ROWS = 2 };
    static const int64_t whole_start[] = {0, P + OWN, 2 * (P + OWN)};
    static const int64_t common_start[] = {0, P, P + OWN, P + 2 * OWN};
    static const int32_t parent[] = {-1, 0, 0};
    static const int64_t example[] = {-1, 0, 1};
    int32_t whole_ids[2 * (P + OWN)], common_ids[P + 2 * OWN], whole_at[4], common_at[4];
    double whole[64] = {0}, shared[64] = {0};
    kvf__vectors vectors = {0};
    toy_create(&t, toy_llama, KVF__F32);
    const kvf__desc *d = kvf__model_desc(t.model);
    kvf__pass *pass = make_pass(false);
    ck_assert(!kvf__vectors_init(t.ctx, &vectors, P, d->C));
    for (int64_t i = 0; i < P * d->C; i++)
        vectors.x[i] = (float)sin((double)i);
    for (int p = 0; p < P; p++)
        whole_ids[p] = whole_ids[P + OWN + p] = common_ids[p] = kvf__virtual_id(p);
    for (int i = 0; i < ROWS * OWN; i++) {
        int r = i / OWN, at = i % OWN;
        whole_ids[r * (P + OWN) + P + at] = common_ids[P + i] = 3 + 5 * i;
        if (at < 2) continue;
        whole_at[r * 2 + at - 2] = r * (P + OWN) + P + at;
        common_at[r * 2 + at - 2] = P + i;
    }
    const kvf__batch a = {.n_rows = 2,
                          .n_tokens = whole_start[2],
                          .n_labels = 4,
                          .start = whole_start,
                          .ids = whole_ids,
                          .label_at = whole_at,
                          .example = example + 1};
    const kvf__batch b = {.n_rows = 3,
                          .n_tokens = common_start[3],
                          .n_labels = 4,
                          .start = common_start,
                          .ids = common_ids,
                          .label_at = common_at,
                          .parent = parent,
                          .example = example};
    run(pass, &a, NULL, &vectors, whole);
    run(pass, &b, NULL, &vectors, shared);
    for (int64_t i = 0; i < d->L * d->H; i++) {
        ck_assert(whole[i] > 0 && whole[i] < 4);
        ck_assert_double_eq_tol(shared[i], whole[i], 1e-5);
    }
    kvf__vectors_done(&vectors);
    kvf__pass_free(pass);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pass_share");
    TCase *core = tcase_create("core"), *parity = tcase_create("parity");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(parity, setup, teardown);
    tcase_add_loop_test(parity, share_is_a_softmax_by_hand, 0, 2);
    tcase_add_test(core, looking_changes_nothing);
    tcase_add_test(core, virtual_tokens_in_common_rows_count);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, parity);
    return ck_main(suite);
}
