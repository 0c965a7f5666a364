/* compose on the toy base: keys of a later part follow the positions of the earlier parts. The
 * first layer of two texts in sequence then equals that of the whole text. Start positions add up,
 * and means are means. Parts that do not fit together are refused with both names. */
#include "toy_run.h"

#include "artifact.h"

#include <math.h>
#include <string.h>

static char first[512], second[512], third[512], made[512];

static void setup(void)
{
    toy_run_setup();
    toy_path(first, dir, "first.h5");
    toy_path(second, dir, "second.h5");
    toy_path(third, dir, "third.h5");
    toy_path(made, dir, "made.h5");
}

/* A prefix file with the keys and values of a text. */
static void text_prefix(const char *path, const char *text, const char *position_start)
{
    kvf_train_options o = toy_run_options(out);
    kvf_merge_options merge = {.run = out, .out = path, .force = true};
    kvf_merge_result merged;
    o.method = "direct";
    o.init = "text";
    o.init_text = text;
    o.prefix_length = (int64_t)strlen(text);
    o.position_start = position_start;
    o.lr = 1e-30; /* does not change any bit */
    o.steps = 1;
    o.force = true;
    train(&o);
    ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
}

static kvf__artifact read_file(const char *path)
{
    kvf__artifact file = {0};
    ck_assert_msg(!kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &file), "%s",
                  kvf_ctx_error(ctx));
    return file;
}

static kvf_status compose(const char *const *parts, size_t n, kvf_compose_options o,
                          kvf_compose_result *result)
{
    kvf_compose_result unused;
    o.parts = parts;
    o.n = n;
    o.out = made;
    o.force = true;
    return kvf_compose(ctx, &o, result ? result : &unused);
}

static void expect(kvf_status got, kvf_status want, const char *part)
{
    ck_assert_msg(got == want && strstr(kvf_ctx_error(ctx), part),
                  "status %s, line \"%s\", want %s and \"%s\"", kvf_status_name(got),
                  kvf_ctx_error(ctx), kvf_status_name(want), part);
}

/* ---- core ------------------------------------------------------------------------------------ */

/* In layer 0 a token's key and value depend only on the token and its position. */
START_TEST(keys_stand_behind_the_part_before)
{
    const char *const parts[] = {first, second, third};
    kvf_compose_result r;
    text_prefix(first, "abc", "P");
    text_prefix(second, "de", "P");
    text_prefix(third, "fghi", "P");
    ck_assert_msg(!compose(parts, 3, (kvf_compose_options){.base = base}, &r), "%s",
                  kvf_ctx_error(ctx));
    ck_assert(r.shape[4] == 9 && r.position_start == 9 && r.max_abs_diff == 0);
    text_prefix(other, "abcdefghi", "P");
    kvf__artifact got = read_file(made), want = read_file(other);
    ck_close(got.prefix.kv, want.prefix.kv, (size_t)(2 * want.id.G * 9 * want.id.D),
             /* two rotations with f32 tables */ 1e-5, 1e-5);
    ck_assert_int_eq(got.id.position_start, 9);
    ck_assert_str_eq(got.id.method, "direct");
    ck_assert_str_eq(got.id.base_hash, want.id.base_hash);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(got.lineage, "compose_mode"), NULL), "concatenate");
    ck_assert_int_eq(kvf_json_int(kvf_json_get(got.lineage, "part_2_length"), 0), 4);
    ck_assert_uint_eq(strlen(kvf_json_str(kvf_json_get(got.lineage, "part_1_hash"), NULL)), 32);
    ck_assert_ptr_null(kvf_json_get(got.options, "prefix-length"));
    ck_assert_ptr_nonnull(kvf_json_get(got.options, "batch-size"));
    kvf__artifact_done(&got);
    kvf__artifact_done(&want);
}
END_TEST

/* If the text always starts at position 0, nothing is rotated and no base is needed. */
START_TEST(starts_of_0_rotate_nothing)
{
    const char *const parts[] = {first, second};
    kvf_compose_result r;
    text_prefix(first, "abc", "0");
    text_prefix(second, "de", "0");
    ck_assert_msg(!compose(parts, 2, (kvf_compose_options){0}, &r), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(r.position_start, 0);
    kvf__artifact got = read_file(made), a = read_file(first), b = read_file(second);
    for (int64_t h = 0; h < got.id.L * 2 * got.id.G; h++) {
        size_t D = (size_t)got.id.D;
        ck_assert(!memcmp(got.prefix.kv + (size_t)h * 5 * D, a.prefix.kv + (size_t)h * 3 * D,
                          3 * D * sizeof(float)));
        ck_assert(!memcmp(got.prefix.kv + ((size_t)h * 5 + 3) * D, b.prefix.kv + (size_t)h * 2 * D,
                          2 * D * sizeof(float)));
    }
    kvf__artifact_done(&got);
    kvf__artifact_done(&a);
    kvf__artifact_done(&b);
}
END_TEST

START_TEST(mean_by_weights)
{
    const char *const parts[] = {first, second};
    const double weights[] = {1, 3};
    text_prefix(first, "abc", "P");
    text_prefix(second, "def", "P");
    kvf__artifact a = read_file(first), b = read_file(second);
    for (int i = 0; i < 2; i++) {
        const kvf_compose_options o = {.mode = KVF_COMPOSE_AVERAGE, .weights = i ? weights : NULL};
        ck_assert_msg(!compose(parts, 2, o, NULL), "%s", kvf_ctx_error(ctx));
        kvf__artifact got = read_file(made);
        double w = i ? 0.25 : 0.5;
        for (size_t k = 0; k < kvf__prefix_count(&got.prefix); k++)
            ck_assert(got.prefix.kv[k] ==
                      (float)(w * (double)a.prefix.kv[k] + (1 - w) * (double)b.prefix.kv[k]));
        ck_assert_int_eq(got.id.position_start, 3);
        ck_assert_double_eq(kvf_json_real(kvf_json_get(got.lineage, "part_0_weight"), 0), w);
        ck_assert_int_eq(kvf_json_int(kvf_json_get(got.options, "prefix-length"), 0), 3);
        kvf__artifact_done(&got);
    }
    kvf__artifact_done(&a);
    kvf__artifact_done(&b);
}
END_TEST

/* A run is composed through its best checkpoint, as folded. */
START_TEST(runs_are_folded_on_the_fly)
{
    const char *const runs[] = {out, out}, *const files[] = {other, other};
    kvf_train_options o = toy_run_options(out);
    kvf_merge_options merge = {.run = out, .out = other};
    kvf_merge_result merged;
    o.prefix_length = 4;
    o.encoder_hidden = 16;
    train(&o);
    ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
    const kvf_compose_options with_base = {.base = base};
    ck_assert_msg(!compose(runs, 2, with_base, NULL), "%s", kvf_ctx_error(ctx));
    kvf__artifact a = read_file(made);
    ck_assert_msg(!compose(files, 2, with_base, NULL), "%s", kvf_ctx_error(ctx));
    kvf__artifact b = read_file(made);
    ck_assert_int_eq(a.id.P, 8);
    ck_assert(!memcmp(a.prefix.kv, b.prefix.kv, kvf__prefix_count(&a.prefix) * sizeof(float)));
    kvf__artifact_done(&a);
    kvf__artifact_done(&b);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

/* Changes one thing in a file. */
static void rewrite(const char *path, void (*change)(kvf__artifact *file))
{
    kvf__artifact file = read_file(path);
    change(&file);
    ck_assert_msg(!kvf__artifact_write(ctx, path, true, &file), "%s", kvf_ctx_error(ctx));
    kvf__artifact_done(&file);
}

static void other_hash(kvf__artifact *file)
{
    memset(file->id.base_hash, '7', 32);
}

static void other_template(kvf__artifact *file)
{
    kvf__free(file->id.chat_template);
    ck_assert(!kvf__strdup(ctx, "chatml", &file->id.chat_template));
}

static void inside_rows(kvf__artifact *file)
{
    file->id.infix = true;
}

static void weighed(kvf__artifact *file)
{
    ck_assert(!kvf__prefix_weigh(ctx, &file->prefix));
    for (size_t i = 0; i < kvf__prefix_weights(&file->prefix); i++)
        file->prefix.log_weight[i] = 2;
}

static void other_layers(kvf__artifact *file)
{
    file->prefix.layer_mask[0] = 0;
    kvf__prefix_clear_masked(&file->prefix);
}

static void other_form(kvf__artifact *file)
{
    kvf__free(file->id.row_form);
    ck_assert(!kvf__strdup(ctx, "chat", &file->id.row_form));
}

static void other_start(kvf__artifact *file)
{
    file->id.position_start = 1;
}

static void learned_positions(kvf__artifact *file)
{
    kvf__free(file->id.base_architecture);
    ck_assert(!kvf__strdup(ctx, "gpt2", &file->id.base_architecture));
}

START_TEST(what_does_not_go_together)
{
    const char *const parts[] = {first, second};
    const double negative[] = {1, -1}, none[] = {0, 0};
    const kvf_compose_options behind = {.base = base}, mean = {.mode = KVF_COMPOSE_AVERAGE};

    text_prefix(first, "abc", "P");
    text_prefix(second, "de", "P");
    expect(compose(parts, 2, (kvf_compose_options){0}, NULL), KVF_EUSAGE,
           "must be rotated by 3 to follow the previous part: name the base with --base");
    expect(compose(parts, 2, mean, NULL), KVF_ESHAPE, "has 2 virtual tokens");
    expect(compose(parts, 1, behind, NULL), KVF_EUSAGE, "1 prefixes, want 2 to 64");
    expect(compose(parts, 2, (kvf_compose_options){.weights = none}, NULL), KVF_EUSAGE,
           "--weights is for --mode average");
    text_prefix(second, "def", "P");
    expect(compose(parts, 2, (kvf_compose_options){.mode = KVF_COMPOSE_AVERAGE, .weights = none},
                   NULL),
           KVF_EUSAGE, "the sum of the weights is 0");
    expect(compose(parts, 2,
                   (kvf_compose_options){.mode = KVF_COMPOSE_AVERAGE, .weights = negative}, NULL),
           KVF_EUSAGE, "weight 2 is -1");
    rewrite(second, other_start);
    expect(compose(parts, 2, mean, NULL), KVF_EMISMATCH, "has another position_start than");
    text_prefix(second, "def", "P");
    rewrite(second, other_layers);
    expect(compose(parts, 2, mean, NULL), KVF_EMISMATCH, "has a prefix in other layers");
    text_prefix(second, "def", "P");
    rewrite(second, other_template);
    expect(compose(parts, 2, mean, NULL), KVF_EMISMATCH, "has another row template");
    text_prefix(second, "def", "P");
    rewrite(second, other_hash);
    expect(compose(parts, 2, mean, NULL), KVF_EMISMATCH, "77777777777777777777777777777777");
    kvf__artifact a = read_file(first);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), a.id.base_hash));
    kvf__artifact_done(&a);
    expect(compose(parts, 2, behind, NULL), KVF_EMISMATCH, "--allow-other-base overrides");
    ck_assert_ptr_null(strstr(kvf_ctx_error(ctx), "must be turned"));
    ck_assert_int_eq(
        compose(parts, 2, (kvf_compose_options){.base = base, .allow_other_base = true}, NULL),
        KVF_OK);
    a = read_file(made);
    ck_assert_str_eq(a.id.row_form, "pairs");
    kvf__artifact_done(&a);
    rewrite(second, other_form);
    ck_assert_int_eq(
        compose(parts, 2, (kvf_compose_options){.base = base, .allow_other_base = true}, NULL),
        KVF_OK);
    a = read_file(made);
    ck_assert_ptr_null(a.id.row_form);
    ck_assert_ptr_null(a.id.example_prompt);
    kvf__artifact_done(&a);
}
END_TEST

/* Keys with learned positions are not rotated, so no base is needed. */
START_TEST(without_rope_nothing_is_rotated)
{
    const char *const parts[] = {first, second};
    kvf_compose_result r;
    text_prefix(first, "abc", "P");
    text_prefix(second, "de", "P");
    rewrite(first, learned_positions);
    rewrite(second, learned_positions);
    ck_assert_msg(!compose(parts, 2, (kvf_compose_options){0}, &r), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(r.position_start, 5);
}
END_TEST

/* In parallel, each part keeps its distance to the text, as with convert-position. */
START_TEST(parallel_parts_end_together)
{
    const char *const parts[] = {first, second};
    const kvf_compose_options parallel = {.mode = KVF_COMPOSE_PARALLEL, .base = base};
    const kvf_convert_position_options move = {
        .prefix = first, .base = base, .out = third, .position_start = "9"};
    int64_t from, to;
    text_prefix(first, "abc", "P");
    text_prefix(second, "de", "9");
    if (_i) rewrite(second, weighed);
    ck_assert_msg(!compose(parts, 2, parallel, NULL), "%s", kvf_ctx_error(ctx));
    ck_assert(!kvf_convert_position(ctx, &move, &from, &to));
    kvf__artifact got = read_file(made), a = read_file(third), b = read_file(second);
    const size_t D = (size_t)got.id.D;
    ck_assert_int_eq(got.id.position_start, 9);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(got.lineage, "compose_mode"), NULL), "parallel");
    for (int64_t h = 0; h < got.id.L * 2 * got.id.G; h++) {
        const float *at = got.prefix.kv + (size_t)h * 5 * D;
        ck_close(at, a.prefix.kv + (size_t)h * 3 * D, 3 * D, /* two rotations */ 1e-5, 1e-5);
        ck_assert_mem_eq(at + 3 * D, b.prefix.kv + (size_t)h * 2 * D, 2 * D * sizeof(float));
    }
    ck_assert_int_eq(got.prefix.log_weight != NULL, _i);
    for (size_t i = 0; _i && i < kvf__prefix_weights(&got.prefix); i++)
        ck_assert_double_eq_tol((double)got.prefix.log_weight[i], (i % 5 < 3 ? 0 : 2) - log(2),
                                1e-6);
    kvf__artifact_done(&got);
    kvf__artifact_done(&a);
    kvf__artifact_done(&b);
}
END_TEST

START_TEST(no_place_in_parallel)
{
    const char *const parts[] = {first, second};
    const kvf_compose_options parallel = {.mode = KVF_COMPOSE_PARALLEL};
    text_prefix(first, "abc", "P");
    text_prefix(second, "de", "P");
    expect(compose(parts, 2, parallel, NULL), KVF_EUSAGE, "must be rotated by 1: name the base");
    rewrite(first, learned_positions);
    rewrite(second, learned_positions);
    expect(compose(parts, 2, parallel, NULL), KVF_EUNSUPPORTED,
           "second.h5: --mode parallel does not support a prefix without rope");
    rewrite(first, inside_rows);
    rewrite(second, inside_rows);
    expect(compose(parts, 2, parallel, NULL), KVF_EUNSUPPORTED,
           "first.h5: --mode parallel does not support a prefix inside rows");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("compose");
    TCase *core = ck_case(suite, "core", setup, toy_run_teardown, 60);
    TCase *errors = ck_case(suite, "errors", setup, toy_run_teardown, 60);

    tcase_add_test(core, keys_stand_behind_the_part_before);
    tcase_add_test(core, starts_of_0_rotate_nothing);
    tcase_add_test(core, mean_by_weights);
    tcase_add_test(core, runs_are_folded_on_the_fly);
    tcase_add_test(core, without_rope_nothing_is_rotated);
    tcase_add_loop_test(core, parallel_parts_end_together, 0, 2);
    tcase_add_test(errors, what_does_not_go_together);
    tcase_add_test(errors, no_place_in_parallel);
    return ck_main(suite);
}
