/* prune on the toy base. A bias along one slow rope pair keeps all queries from attending to keys
 * far out on the other side. Such tokens are useless by construction: either score must drop them
 * first, at no cost. Every loss of a curve equals the loss of the file of that length. */
#include "toy_run.h"

#include "artifact.h"

#include <math.h>
#include <string.h>

enum { L = 3, G = 2, H = 4, D = 8, C = 24, SLOW = 3, REAL = 4, ALL = 7 };
static const int USELESS[] = {1, 4, 6}; /* their places among the real tokens */
static const kvf_prune_score SCORES[] = {KVF_PRUNE_LEAVE_ONE_OUT, KVF_PRUNE_GRADIENT};

static char whole[512], pruned[512], curve[512];

static void add_bias(kvf__tensor *to, int64_t layer, const char *stem, int64_t n, float *values,
                     float slow)
{
    char name[96];
    snprintf(name, sizeof name, "model.layers.%lld.self_attn.%s.bias", (long long)layer, stem);
    for (int64_t i = SLOW; i < n; i += D)
        values[i] = slow;
    to->name = strdup(name);
    to->view = (kvf__view){.data = values, .dtype = KVF__F32, .rank = 1, .dim = {n}};
}

/* The toy base with its queries biased to one side. */
static void bias_queries(void)
{
    static float values[L][4][H * D];
    static const char *const STEMS[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
    static const int64_t SIZES[] = {H * D, G * D, G * D, C};
    kvf__weights weights = {0};
    kvf__tensor tensors[64];
    char path[1024], config[1024];
    size_t n = 0;

    snprintf(path, sizeof path, "%s/model.safetensors", base);
    ck_assert(!kvf__safetensors_open(ctx, path, &weights));
    for (; n < weights.table.n; n++)
        tensors[n] = weights.table.items[n];
    for (int64_t l = 0; l < L; l++)
        for (int k = 0; k < 4; k++)
            add_bias(&tensors[n++], l, STEMS[k], SIZES[k], values[l][k], k ? 0 : 6);
    remove(path); /* which is mapped */
    ck_assert_msg(!kvf__safetensors_write(ctx, path, true, tensors, n), "%s", kvf_ctx_error(ctx));
    for (size_t i = weights.table.n; i < n; i++)
        free(tensors[i].name);
    kvf__weights_close(&weights);
    snprintf(config, sizeof config, "%s", toy_llama);
    char *at = strstr(config, "\"attention_bias\":false");
    memcpy(at, "\"attention_bias\":true ", strlen("\"attention_bias\":true "));
    toy_write(base, "config.json", config);
}

static kvf__artifact read_file(const char *path)
{
    kvf__artifact file = {0};
    ck_assert_msg(!kvf__artifact_read(ctx, path, KVF__KIND_PREFIX, &file), "%s",
                  kvf_ctx_error(ctx));
    return file;
}

static bool is_useless(int64_t i)
{
    return i == USELESS[0] || i == USELESS[1] || i == USELESS[2];
}

/* Writes the trained prefix in `other`, with useless tokens added, to `whole`. */
static void add_useless(void)
{
    kvf__artifact file = read_file(other);
    kvf__prefix wide = {0}, real = file.prefix;
    ck_assert(!kvf__prefix_init(ctx, &wide, L, G, ALL, D));
    for (int64_t head = 0; head < L * 2 * G; head++)
        for (int64_t i = 0, from = 0; i < ALL; i++) {
            float *to = wide.kv + (head * ALL + i) * D;
            if (!is_useless(i))
                memcpy(to, real.kv + (head * REAL + from++) * D, D * sizeof(float));
            else if (head / G % 2 == 0)
                to[SLOW] = -100;
            else
                for (int k = 0; k < D; k++)
                    to[k] = (float)(k - i);
        }
    file.prefix = wide;
    file.id.P = ALL;
    ck_assert_msg(!kvf__artifact_write(ctx, whole, true, &file), "%s", kvf_ctx_error(ctx));
    file.prefix = real;
    kvf__prefix_done(&wide);
    kvf__artifact_done(&file);
}

static void setup(void)
{
    kvf_merge_result merged;
    toy_run_setup();
    toy_path(whole, dir, "whole.h5");
    toy_path(pruned, dir, "pruned.h5");
    toy_path(curve, dir, "curve.csv");
    bias_queries();
    kvf_train_options o = toy_run_options(out);
    o.method = "direct";
    o.prefix_length = REAL;
    o.lr = 0.1;
    o.steps = 30;
    o.eval_every = 30;
    train(&o);
    const kvf_merge_options merge = {.run = out, .out = other};
    ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
    add_useless();
}

static double loss_of(const char *path)
{
    const kvf_eval_options eval = {.data = valid};
    kvf_base *model = open_base();
    kvf_prefix *prefix = NULL;
    kvf_eval_result result = {0};
    ck_assert_msg(!kvf_prefix_open(ctx, path, KVF_CHECKPOINT_DEFAULT, &prefix), "%s",
                  kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_eval(ctx, model, &prefix, 1, &eval, &result), "%s", kvf_ctx_error(ctx));
    kvf_prefix_free(prefix);
    kvf_base_free(model);
    return result.loss;
}

static kvf_prune_options options_for(int64_t keep, kvf_prune_score score)
{
    return (kvf_prune_options){.prefix = whole,
                               .base = base,
                               .out = pruned,
                               .eval = {.data = valid},
                               .precision = KVF_PRECISION_F32,
                               .keep = keep,
                               .score = score,
                               .force = true};
}

typedef struct seen {
    int64_t done, items;
} seen;

static void see(void *user, int64_t done, int64_t items)
{
    seen *s = user;
    ck_assert_int_eq(done, s->done + 1);
    ck_assert(done == 1 || items == s->items);
    *s = (seen){done, items};
}

/* The struct has the members of the JSON object. */
static void expect_same(const kvf_prune_result *r, const kvf_json *found)
{
    const kvf_json *points = kvf_json_get(found, "curve"), *next = kvf_json_get(found, "next");
    const kvf_json *kept = kvf_json_get(found, "kept"), *scores = kvf_json_get(found, "scores");
    ck_assert(r->n_points == kvf_json_size(points) && r->n_kept == kvf_json_size(kept));
    ck_assert_int_eq(r->P, (int64_t)kvf_json_size(scores));
    for (size_t i = 0; i < r->n_points; i++) {
        const kvf_json *at = kvf_json_at(points, i);
        ck_assert_int_eq(r->curve[i].length, kvf_json_int(kvf_json_get(at, "length"), -1));
        ck_assert_int_eq(r->curve[i].dropped, kvf_json_int(kvf_json_get(at, "dropped"), -1));
        ck_assert_double_eq(r->curve[i].loss, kvf_json_real(kvf_json_get(at, "loss"), NAN));
    }
    for (size_t i = 0; i < r->n_kept; i++)
        ck_assert_int_eq(r->kept[i], kvf_json_int(kvf_json_at(kept, i), -1));
    for (size_t i = 0; i < (size_t)r->P; i++)
        ck_assert_double_eq(r->scores[i], kvf_json_real(kvf_json_at(scores, i), NAN));
    ck_assert_int_eq(r->next.length, kvf_json_int(kvf_json_get(next, "length"), 0));
    ck_assert_double_eq(r->loss_before, r->curve[0].loss);
    ck_assert_double_eq(r->loss_after, r->curve[r->n_points - 1].loss);
    ck_assert_int_eq(r->shape[4], (int64_t)r->n_kept);
    ck_assert_int_eq(r->bytes, kvf_json_int(kvf_json_get(found, "bytes"), -1));
}

/* With --keep, the number of losses equals the announced number. */
static kvf_json *prune(kvf_prune_options o)
{
    kvf_json *found = NULL;
    kvf_prune_result result;
    seen s = {0};
    o.progress = see;
    o.user = &s;
    ck_assert_msg(!kvf_prune(ctx, &o, &result, &found), "%s", kvf_ctx_error(ctx));
    ck_assert(o.keep ? s.done == s.items : s.done <= s.items);
    expect_same(&result, found);
    kvf_prune_result_done(&result);
    return found;
}

static int64_t int_at(const kvf_json *found, const char *list, size_t i, const char *key)
{
    const kvf_json *item = kvf_json_at(kvf_json_get(found, list), i);
    return kvf_json_int(key ? kvf_json_get(item, key) : item, -1);
}

static double real_at(const kvf_json *found, const char *list, size_t i, const char *key)
{
    const kvf_json *item = kvf_json_at(kvf_json_get(found, list), i);
    return kvf_json_real(key ? kvf_json_get(item, key) : item, NAN);
}

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(useless_tokens_go_first)
{
    kvf_json *found = prune(options_for(REAL, SCORES[_i]));
    const double before = real_at(found, "curve", 0, "loss");
    ck_assert_double_eq_tol(loss_of(other), before, 1e-6);
    for (size_t i = 1; i <= ALL - REAL; i++) {
        ck_assert_msg(is_useless(int_at(found, "curve", i, "dropped")), "%zu: token %lld went", i,
                      (long long)int_at(found, "curve", i, "dropped"));
        ck_assert_double_eq_tol(real_at(found, "curve", i, "loss"), before, 1e-6);
    }
    kvf__artifact got = read_file(pruned), want = read_file(other);
    ck_assert(got.id.P == REAL && got.id.position_start == REAL);
    ck_assert(
        !memcmp(got.prefix.kv, want.prefix.kv, kvf__prefix_count(&want.prefix) * sizeof(float)));
    ck_assert_str_eq(kvf_json_str(kvf_json_get(got.lineage, "pruned_kept"), NULL), "0,2,3,5");
    ck_assert_ptr_null(kvf_json_get(got.options, "prefix-length"));
    kvf__artifact_done(&got);
    kvf__artifact_done(&want);
    kvf_json_free(found);
}
END_TEST

/* Pruning to each length by itself gives the same loss bits as the curve down to 1. */
START_TEST(curve_is_the_files_losses)
{
    kvf_json *all = prune(options_for(1, SCORES[_i]));
    ck_assert_uint_eq(kvf_json_size(kvf_json_get(all, "curve")), ALL);
    for (int64_t keep = ALL; keep >= 1; keep--) {
        kvf_json *found = prune(options_for(keep, SCORES[_i]));
        const double loss = real_at(all, "curve", (size_t)(ALL - keep), "loss");
        ck_assert_int_eq(int_at(all, "curve", (size_t)(ALL - keep), "length"), keep);
        ck_assert_double_eq(real_at(found, "curve", (size_t)(ALL - keep), "loss"), loss);
        ck_assert_double_eq(kvf_json_real(kvf_json_get(found, "loss_after"), NAN), loss);
        ck_assert_double_eq(loss_of(pruned), loss);
        kvf_json_free(found);
    }
    kvf_json_free(all);
}
END_TEST

/* Scores equal the results of files without one token each. */
START_TEST(leave_one_out_is_exact)
{
    kvf_json *found = prune(options_for(ALL - 1, KVF_PRUNE_LEAVE_ONE_OUT));
    const double before = real_at(found, "curve", 0, "loss");
    double least = INFINITY;
    for (int64_t i = 0; i < ALL; i++) {
        kvf__artifact file = read_file(whole);
        kvf__prefix less = {0}, all = file.prefix;
        ck_assert(!kvf__prefix_init(ctx, &less, L, G, ALL - 1, D));
        for (int64_t head = 0; head < L * 2 * G; head++)
            for (int64_t p = 0, at = 0; p < ALL; p++)
                if (p != i)
                    memcpy(less.kv + (head * (ALL - 1) + at++) * D, all.kv + (head * ALL + p) * D,
                           D * sizeof(float));
        file.prefix = less;
        file.id.P = ALL - 1;
        ck_assert(!kvf__artifact_write(ctx, pruned, true, &file));
        file.prefix = all;
        const double change = loss_of(pruned) - before;
        ck_assert_double_eq_tol(real_at(found, "scores", (size_t)i, NULL), change, 1e-12);
        if (change < least) least = change;
        kvf__prefix_done(&less);
        kvf__artifact_done(&file);
    }
    ck_assert_double_eq_tol(real_at(found, "curve", 1, "loss") - before, least, 1e-12);
    kvf_json_free(found);
}
END_TEST

/* Drops tokens while the loss allows it, and reports the cost of the next drop. */
START_TEST(stops_at_a_rise)
{
    kvf_prune_options o = options_for(0, SCORES[_i]);
    o.max_loss_rise = 1e-5;
    o.curve = curve;
    o.dtype = KVF_DTYPE_INT8;
    kvf_json *found = prune(o);
    ck_assert_uint_eq(kvf_json_size(kvf_json_get(found, "curve")), 1 + ALL - REAL);
    const kvf_json *next = kvf_json_get(found, "next");
    ck_assert_int_eq(kvf_json_int(kvf_json_get(next, "length"), 0), REAL - 1);
    ck_assert_double_gt(kvf_json_real(kvf_json_get(next, "loss"), NAN),
                        real_at(found, "curve", 0, "loss") + 1e-5);
    kvf_json_free(found);
    kvf__artifact got = read_file(pruned);
    ck_assert(got.dtype == KVF__I8 && got.id.P == REAL);
    kvf__artifact_done(&got);
    kvf__buf text = {0};
    ck_assert(!kvf__read_file(ctx, curve, 4096, &text));
    ck_assert(!strncmp(text.data, "length,dropped,loss\n7,,", 23));
    ck_assert_ptr_nonnull(strstr(text.data, "\n4,"));
    kvf__buf_done(&text);
}
END_TEST

/* ---- grad ------------------------------------------------------------------------------------ */

/* The loss with all keys and values of token i scaled. */
static double loss_scaled(int64_t i, float scale)
{
    kvf__artifact file = read_file(whole);
    for (int64_t head = 0; head < L * 2 * G; head++)
        for (int64_t k = 0; k < D; k++)
            file.prefix.kv[(head * ALL + i) * D + k] *= scale;
    ck_assert(!kvf__artifact_write(ctx, pruned, true, &file));
    kvf__artifact_done(&file);
    return loss_of(pruned);
}

START_TEST(gradient_times_value)
{
    kvf_json *found = prune(options_for(ALL, KVF_PRUNE_GRADIENT));
    for (int64_t i = 0; i < ALL; i++) {
        double slope = (loss_scaled(i, 1.01f) - loss_scaled(i, 0.99f)) / 0.02;
        /* differences of f32 losses of about 3, and the curvature within 1 % */
        ck_assert_double_eq_tol(real_at(found, "scores", (size_t)i, NULL), fabs(slope),
                                1e-4 + 0.01 * fabs(slope));
    }
    kvf_json_free(found);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static void refused(kvf_prune_options o, kvf_status want, const char *part)
{
    kvf_json *found = NULL;
    kvf_status st = kvf_prune(ctx, &o, NULL, &found);
    ck_assert_msg(st == want && strstr(kvf_ctx_error(ctx), part),
                  "status %s, line \"%s\", want %s and \"%s\"", kvf_status_name(st),
                  kvf_ctx_error(ctx), kvf_status_name(want), part);
    ck_assert_ptr_null(found);
}

START_TEST(refuses)
{
    kvf_prune_options o = options_for(8, KVF_PRUNE_LEAVE_ONE_OUT);
    refused(o, KVF_EUSAGE, "--keep 8: ");
    o = options_for(2, KVF_PRUNE_LEAVE_ONE_OUT);
    o.out = whole;
    refused(o, KVF_EUSAGE, "whole.h5");
    o.out = other;
    o.force = false;
    refused(o, KVF_EEXIST, "other.h5: exists");
    o = options_for(0, KVF_PRUNE_LEAVE_ONE_OUT);
    o.max_loss_rise = NAN;
    refused(o, KVF_EUSAGE, "one of --keep and --max-loss-rise");
    kvf_train_options run = toy_run_options(out);
    run.method = "direct";
    run.infix = run.force = true;
    run.prefix_length = REAL;
    train(&run);
    o = options_for(2, KVF_PRUNE_LEAVE_ONE_OUT);
    o.prefix = out;
    refused(o, KVF_EUNSUPPORTED, "inside rows (--infix) cannot be pruned");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prune");
    TCase *core = ck_case(suite, "core", setup, toy_run_teardown, 60);
    TCase *grad = ck_case(suite, "grad", setup, toy_run_teardown, 60);
    TCase *errors = ck_case(suite, "errors", setup, toy_run_teardown, 60);

    tcase_add_loop_test(core, useless_tokens_go_first, 0, 2);
    tcase_add_loop_test(core, curve_is_the_files_losses, 0, 2);
    tcase_add_test(core, leave_one_out_is_exact);
    tcase_add_loop_test(core, stops_at_a_rise, 0, 2);
    tcase_add_test(grad, gradient_times_value);
    tcase_add_test(errors, refuses);
    return ck_main(suite);
}
