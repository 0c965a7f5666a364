/* Step benchmarks on the tiny shape: the figures are consistent, lengths alternate, a known shape
 * is recognised, and options out of range get one error line. Speed itself is not tested. */
#include <kvfold/kvfold.h>

#include "ck.h"
#include "renderer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kvf_ctx *ctx;
static const char *dir;

static void setup(void)
{
    const kvf_ctx_options options = {.threads = 2};
    dir = ck_tmpdir();
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static kvf_bench_options tiny(void)
{
    kvf_bench_options o = kvf_bench_defaults();
    o.shape = "tiny";
    o.batch = 4;
    o.length = 40;
    o.steps = 5;
    o.precision = KVF_PRECISION_F32;
    return o;
}

static kvf_bench *open_bench(const kvf_bench_options *o)
{
    kvf_bench *bench = NULL;
    kvf_status st = kvf_bench_open(ctx, o, &bench);
    ck_assert_msg(st == KVF_OK, "%s", kvf_ctx_error(ctx));
    return bench;
}

static double part(const kvf_bench_result *r, const char *name)
{
    for (size_t i = 0; i < r->n_parts; i++)
        if (!strcmp(r->parts[i].name, name)) return r->parts[i].seconds;
    ck_abort_msg("no component \"%s\"", name);
    return 0;
}

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(numbers_hang_together)
{
    const kvf_bench_options o = tiny();
    kvf_bench_result r;
    kvf_status st = kvf_bench_run(ctx, &o, &r);
    ck_assert_msg(st == KVF_OK, "%s", kvf_ctx_error(ctx));
    ck_assert_str_eq(r.precision, "f32");
    ck_assert_int_eq(r.steps, 5);
    ck_assert_int_eq(r.rows, 5 * 4);
    ck_assert_int_eq(r.tokens, 5 * 4 * 40);
    ck_assert_int_eq(r.labels, 5 * 4 * 10);
    ck_assert_double_eq_tol(r.tokens_per_second * r.seconds_per_step, 160, 1e-6);
    ck_assert(r.matmul_rate > 1e6 && r.reference_rate > 1e6);
    ck_assert_msg(r.matmul_share > 0 && r.matmul_share < 2, "share %g", r.matmul_share);
    ck_assert(r.peak_rss_bytes > 1 << 20);
    ck_assert_double_eq_tol(r.loss, log(1009), 1.5); /* random weights: 1009 equally likely ids */
}
END_TEST

/* All components are present, none is negative, and with the remainder they sum to the mean
 * step. */
START_TEST(components_sum_to_the_step)
{
    static const char *const NAMES[] = {"qkv",     "attention",   "ffn",  "head", "attention_bwd",
                                        "encoder", "encoder_bwd", "clip", "adamw"};
    const kvf_bench_options o = tiny();
    kvf_bench *bench = open_bench(&o);
    kvf_bench_step_result step;
    kvf_bench_result r;
    double seconds = 0, sum = 0;
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(kvf_bench_step(bench, i > 1, &step), KVF_OK);
        if (i > 1) seconds += step.seconds;
    }
    kvf_bench_summary(bench, &r);
    for (size_t i = 0; i < r.n_parts; i++) {
        ck_assert_msg(r.parts[i].seconds > -1e-6, "%s", r.parts[i].name);
        sum += r.parts[i].seconds;
    }
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        ck_assert_msg(part(&r, NAMES[i]) > 0, "%s took no time", NAMES[i]);
    ck_assert_int_eq(r.steps, 6);
    ck_assert_double_eq_tol(sum, seconds / 6, 1e-9);
    /* untimed share: a few percent, more on a busy machine */
    ck_assert_double_lt(part(&r, "rest"), 0.2 * sum);
    kvf_bench_close(bench);
}
END_TEST

START_TEST(a_step_allocates_nothing)
{
    const kvf_bench_options o = tiny();
    kvf_bench *bench = open_bench(&o);
    ck_assert_int_eq(kvf_bench_step(bench, true, NULL), KVF_OK);
    uint64_t before = kvf__ctx_allocations(ctx);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(kvf_bench_step(bench, true, NULL), KVF_OK);
    ck_assert_uint_eq(kvf__ctx_allocations(ctx), before);
    kvf_bench_close(bench);
}
END_TEST

static void expect_steps(const kvf_bench_options *o)
{
    static const int64_t TOKENS[] = {30 + 10, 12 + 14, 7, 30 + 10},
                         LABELS[] = {8 + 3, 3 + 4, 2, 8 + 3};
    kvf_bench *bench = open_bench(o);
    kvf_bench_step_result step;
    kvf_bench_result r;
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(kvf_bench_step(bench, true, &step), KVF_OK);
        ck_assert_int_eq(step.tokens, TOKENS[i]);
        ck_assert_int_eq(step.labels, LABELS[i]);
        ck_assert_int_eq(step.rows, i == 2 ? 1 : 2);
        ck_assert_double_eq_tol(step.tokens_per_second * step.seconds, (double)TOKENS[i], 1e-9);
    }
    kvf_bench_summary(bench, &r);
    ck_assert_int_eq(r.tokens, 40 + 26 + 7 + 40);
    kvf_bench_close(bench);
}

START_TEST(lengths_are_taken_in_turn)
{
    kvf_bench_options o = tiny();
    char path[600];
    o.batch = 2;
    o.lengths = "30, 10,12,14,7";
    expect_steps(&o);
    snprintf(path, sizeof path, "%s/lengths", dir);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs("30\n10\n\n12 14\n7\n", file);
    ck_assert_int_eq(fclose(file), 0);
    o.lengths = path;
    expect_steps(&o);
}
END_TEST

START_TEST(equal_seeds_give_equal_losses)
{
    kvf_bench_options o = tiny();
    kvf_bench_result a, b, other;
    ck_assert_int_eq(kvf_bench_run(ctx, &o, &a), KVF_OK);
    ck_assert_int_eq(kvf_bench_run(ctx, &o, &b), KVF_OK);
    o.seed = 1;
    ck_assert_int_eq(kvf_bench_run(ctx, &o, &other), KVF_OK);
    ck_assert(a.loss == b.loss && a.loss != other.loss);
}
END_TEST

static const struct {
    const char *name;
    kvf_shape want;
} SHAPES[] = {
    {"gpt2", {12, 12, 12, 64, 768, 3072, 50257, 1024}},
    {"smollm2-135m", {30, 9, 3, 64, 576, 1536, 49152, 8192}},
};

/* The descriptions only: packing the real models would take seconds. */
START_TEST(known_shapes_are_those_shapes)
{
    const kvf_shape *want = &SHAPES[_i].want;
    size_t i = 0;
    while (kvf_bench_shape(i) && strcmp(kvf_bench_shape(i), SHAPES[_i].name))
        i++;
    ck_assert_ptr_nonnull(kvf_bench_shape(i));
    kvf__desc d = {0};
    ck_assert_int_eq(kvf__base_shape_desc(ctx, SHAPES[_i].name, &d), KVF_OK);
    ck_assert_int_eq(d.L, want->L);
    ck_assert_int_eq(d.H, want->H);
    ck_assert_int_eq(d.G, want->G);
    ck_assert_int_eq(d.D, want->D);
    ck_assert_int_eq(d.C, want->C);
    ck_assert_int_eq(d.F, want->F);
    ck_assert_int_eq(d.V, want->V);
    ck_assert_int_eq(d.position.max, want->max_positions);
    ck_assert(d.tied);
    kvf__desc_done(&d);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static void refused(const kvf_bench_options *o, const char *line)
{
    kvf_bench_result r;
    kvf_status st = kvf_bench_run(ctx, o, &r);
    ck_assert_msg(st == KVF_EUSAGE && strstr(kvf_ctx_error(ctx), line),
                  "status %s, line \"%s\", want \"%s\"", kvf_status_name(st), kvf_ctx_error(ctx),
                  line);
}

START_TEST(options_out_of_range_are_refused)
{
    kvf_bench_options o = tiny();
    o.batch = 0;
    refused(&o, "--batch 0");
    o = tiny();
    o.length = 1;
    refused(&o, "--length 1");
    o.length = 493; /* 512 positions, 20 of them for the prefix */
    refused(&o, "493 tokens, but the model has room for 492");
    o = tiny();
    o.prefix_length = 0;
    refused(&o, "--prefix-length 0");
    o = tiny();
    o.encoder_hidden = 0;
    refused(&o, "--encoder-hidden 0");
    o = tiny();
    o.label_fraction = 0;
    refused(&o, "--label-fraction 0");
    o.label_fraction = NAN;
    refused(&o, "--label-fraction");
    o = tiny();
    o.steps = 0;
    refused(&o, "--steps");
    o = tiny();
    o.shape = "large";
    refused(&o, "known: gpt2, smollm2-135m, tiny");
    o.base = "b";
    refused(&o, "not both");
    o.base = o.shape = NULL;
    refused(&o, "not none");
}
END_TEST

static const struct {
    const char *text, *line;
} LENGTHS[] = {{"10,1", "\"1\" is not a row length"},
               {"10 99999999999", "not a row length"},
               {"", "no lengths"},
               {" ,", "no lengths"}};

START_TEST(bad_lengths_are_refused)
{
    kvf_bench_options o = tiny();
    o.lengths = LENGTHS[_i].text;
    refused(&o, LENGTHS[_i].line);
}
END_TEST

START_TEST(bad_files_are_refused)
{
    kvf_bench_options o = tiny();
    kvf_bench *bench = NULL;
    o.lengths = "/nonexistent";
    ck_assert_int_eq(kvf_bench_open(ctx, &o, &bench), KVF_EIO);
    o = tiny();
    o.shape = NULL;
    o.base = "/nonexistent";
    ck_assert_int_eq(kvf_bench_open(ctx, &o, &bench), KVF_EIO);
    ck_assert_ptr_null(bench);
}
END_TEST

/* Every allocation of opening may fail: one status, no leak (checked by the address sanitizer). */
START_TEST(out_of_memory_is_survived)
{
    const kvf_bench_options o = tiny();
    kvf_bench *bench = NULL;
    kvf_status st = KVF_ENOMEM;
    for (int64_t n = 0; st; n += n < 40 ? 1 : 13) {
        kvf__ctx_fail_allocation(ctx, n);
        st = kvf_bench_open(ctx, &o, &bench);
        ck_assert_msg(!st || st == KVF_ENOMEM, "%s", kvf_ctx_error(ctx));
    }
    kvf__ctx_fail_allocation(ctx, -1);
    kvf_bench_close(bench);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_set_timeout(core, 60);
    tcase_set_timeout(errors, 60);
    tcase_add_test(core, numbers_hang_together);
    tcase_add_test(core, components_sum_to_the_step);
    tcase_add_test(core, a_step_allocates_nothing);
    tcase_add_test(core, lengths_are_taken_in_turn);
    tcase_add_test(core, equal_seeds_give_equal_losses);
    tcase_add_loop_test(core, known_shapes_are_those_shapes, 0, sizeof SHAPES / sizeof SHAPES[0]);
    tcase_add_test(errors, options_out_of_range_are_refused);
    tcase_add_loop_test(errors, bad_lengths_are_refused, 0, sizeof LENGTHS / sizeof LENGTHS[0]);
    tcase_add_test(errors, bad_files_are_refused);
    tcase_add_test(errors, out_of_memory_is_survived);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
