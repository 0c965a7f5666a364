/* The interface between encoder and base: the prefix tensor against the formula of its flat form,
 * vectors, and the list of parameters. */
#include "ck.h"
#include "prefix.h"
#include "vectors.h"

#include <stdlib.h>

static kvf_ctx *ctx;

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static const struct shape {
    int64_t L, G, P, D;
} SHAPES[] = {{1, 1, 1, 1},    {2, 3, 4, 5},  {3, 1, 7, 16},
              {30, 3, 20, 64}, {12, 2, 0, 8}, {0, 1, 1, 1}};
enum { N_SHAPES = sizeof SHAPES / sizeof SHAPES[0] };

/* flat[p][((2*l + kv)*G + g)*D + d] is kv[l][kv][g][p][d]: each index has a value of its own.
 */
static void fill(const struct shape *s, float *kv, float *flat)
{
    for (int64_t l = 0; l < s->L; l++)
        for (int64_t which = 0; which < 2; which++)
            for (int64_t g = 0; g < s->G; g++)
                for (int64_t p = 0; p < s->P; p++)
                    for (int64_t d = 0; d < s->D; d++) {
                        int64_t at = (((l * 2 + which) * s->G + g) * s->P + p) * s->D + d;
                        kv[at] = (float)at;
                        flat[p * 2 * s->L * s->G * s->D + ((2 * l + which) * s->G + g) * s->D + d] =
                            (float)at;
                    }
}

START_TEST(flat_form)
{
    const struct shape *s = &SHAPES[_i];
    size_t n = (size_t)(s->L * 2 * s->G * s->P * s->D);
    float *kv = calloc(n + 1, sizeof *kv), *want = calloc(n + 1, sizeof *want),
          *got = calloc(n + 1, sizeof *got);
    kvf__prefix prefix;

    fill(s, kv, want);
    ck_assert_int_eq(kvf__prefix_init(ctx, &prefix, s->L, s->G, s->P, s->D), KVF_OK);
    ck_assert_uint_eq(kvf__prefix_count(&prefix), n);
    for (int64_t l = 0; l < s->L; l++)
        ck_assert_int_eq(prefix.layer_mask[l], 1);
    for (size_t i = 0; i < n; i++)
        ck_assert(prefix.kv[i] == 0);

    kvf__prefix_from_flat(&prefix, want);
    ck_close(prefix.kv, kv, n, 0, 0);
    kvf__prefix_to_flat(&prefix, got);
    ck_close(got, want, n, 0, 0);

    kvf__prefix_done(&prefix);
    ck_assert_ptr_null(prefix.kv);
    free(kv);
    free(want);
    free(got);
}
END_TEST

/* Layer 0 has 2 heads of 3, layer 1 one of 5. */
START_TEST(heads_by_layer)
{
    static const kvf__kv_heads HEADS[] = {{2, 3, 0, 0}, {1, 5, 2, 6}, {0, 0, 3, 11}};
    static const float LAYER_1[] = {6, 7, 8, 9, 10, 28, 29, 30, 31, 32}; /* keys of 2 tokens */
    const kvf__kv_shape shape = {2, KVF__BY_LAYER, KVF__BY_LAYER, HEADS};
    const kvf__kv_shape other = {2, 2, 3, NULL}, same = {1, 5, 7, NULL};
    char text[KVF__KV_TEXT];
    float flat[44], back[44];
    kvf__prefix x = {0}, y = {0};

    for (int i = 0; i < 44; i++)
        flat[i] = (float)i;
    ck_assert_int_eq(kvf__prefix_create(ctx, &x, &shape, 2), KVF_OK);
    ck_assert(x.G == KVF__BY_LAYER && x.D == KVF__BY_LAYER && x.L == 2);
    ck_assert_uint_eq(kvf__prefix_count(&x), 44);
    ck_assert_uint_eq(kvf__prefix_weights(&x), 6);
    /* a row of flat: [2, 2, 3] of layer 0, then [2, 1, 5] of layer 1 */
    kvf__prefix_from_flat(&x, flat);
    const kvf__prefix_layer first = kvf__prefix_at(&x, 0), last = kvf__prefix_at(&x, 1);
    ck_assert(first.n == 12 && first.k == x.kv && first.v == x.kv + 12);
    ck_assert(last.G == 1 && last.D == 5 && last.n == 10 && last.k == x.kv + 24);
    ck_assert(first.k[3] == 22 && first.v[0] == 6); /* token 1 of head 0; values of token 0 */
    for (int i = 0; i < 10; i++)
        ck_assert(last.k[i] == LAYER_1[i] + 6);
    kvf__prefix_to_flat(&x, back);
    ck_close(back, flat, 44, 0, 0);
    ck_assert_int_eq(kvf__prefix_like(ctx, &y, &x), KVF_OK);
    kvf__prefix_copy_tokens(&y, 0, &x, 1, 1);
    ck_assert(kvf__prefix_at(&y, 1).v[0] == last.v[5] && kvf__prefix_at(&y, 1).v[5] == 0);

    ck_assert(kvf__kv_same(&shape, &shape) && !kvf__kv_same(&shape, &other));
    ck_assert(!kvf__kv_same(&other, &same));
    ck_assert_str_eq(kvf__kv_text(text, &shape, 2), "2 layers [2, G, 2, D] with G x D of 2x3, 1x5");
    ck_assert_str_eq(kvf__kv_text(text, &other, -1), "[2, 2, 2, P, 3]");
    ck_assert_str_eq(kvf__heads_text(text, &same), "L=1 G=5 D=7");
    kvf__prefix_done(&x);
    kvf__prefix_done(&y);
    ck_assert_int_eq(kvf__prefix_init(ctx, &x, 2, KVF__BY_LAYER, 2, KVF__BY_LAYER),
                     KVF_EUNSUPPORTED);
}
END_TEST

/* Copies of a list do not share its array; a list with room allocates nothing. */
START_TEST(lists_grow)
{
    kvf__params list = {0}, copy = {0};
    for (int64_t i = 0; i < 200; i++) {
        const kvf__param param = {.name = "w", .rank = 1, .dim = {i}, .n = i};
        ck_assert_int_eq(kvf__params_add(ctx, &list, &param), KVF_OK);
    }
    ck_assert_int_eq(kvf__params_append(ctx, &copy, &list), KVF_OK);
    for (size_t i = 0; i < 200; i++)
        ck_assert_int_eq(copy.item[i].n, (int64_t)i);
    copy.item[7].n = -1;
    ck_assert_int_eq(list.item[7].n, 7);
    copy.n = 0;
    kvf__ctx_fail_allocation(ctx, 0);
    ck_assert_int_eq(kvf__params_append(ctx, &copy, &list), KVF_OK);
    ck_assert_int_eq(kvf__params_append(ctx, &copy, &list), KVF_ENOMEM);
    ck_assert_uint_eq(copy.n, 200);
    kvf__params_done(&list);
    kvf__params_done(&copy);
    ck_assert_ptr_null(list.item);
}
END_TEST

START_TEST(vectors)
{
    kvf__vectors x = {.P = 77};
    ck_assert_int_eq(kvf__vectors_init(ctx, &x, INT64_MAX, 16), KVF_ESHAPE);
    ck_assert_int_eq(kvf__vectors_init(ctx, &x, -1, 16), KVF_ESHAPE);
    ck_assert_int_eq(x.P, 77);
    ck_assert_int_eq(kvf__vectors_init(ctx, &x, 3, 16), KVF_OK);
    for (int i = 0; i < 48; i++)
        ck_assert(x.x[i] == 0);
    kvf__vectors_done(&x);
    ck_assert_ptr_null(x.x);
}
END_TEST

START_TEST(errors)
{
    kvf__prefix prefix = {.L = 77};
    ck_assert_int_eq(kvf__prefix_init(ctx, &prefix, 1, -1, 1, 1), KVF_ESHAPE);
    ck_assert_int_eq(kvf__prefix_init(ctx, &prefix, INT64_MAX / 2, 2, INT64_MAX / 2, 64),
                     KVF_ESHAPE);
    for (int n = 0; n < 2; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        ck_assert_int_eq(kvf__prefix_init(ctx, &prefix, 2, 2, 2, 2), KVF_ENOMEM);
    }
    ck_assert_int_eq(prefix.L, 77);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prefix");
    TCase *core = tcase_create("core"), *bad = tcase_create("errors");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_loop_test(core, flat_form, 0, N_SHAPES);
    tcase_add_test(core, heads_by_layer);
    tcase_add_test(core, lists_grow);
    tcase_add_test(core, vectors);
    tcase_add_checked_fixture(bad, setup, teardown);
    tcase_add_test(bad, errors);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, bad);
    return ck_main(suite);
}
