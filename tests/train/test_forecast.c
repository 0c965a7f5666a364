/* The forecast changes nothing in a run, for any trained parameters, and its counts are exact.
 * Seconds and memory are compared on real models by hand (tests/bench/README on forecasts), because
 * times on a shared machine cannot be tested. */
#include "ck.h"
#include "toy_run.h"
#include "trainer.h"

#include <string.h>
#include <sys/stat.h>

static kvf_train_options options_for(const char *path)
{
    kvf_train_options o = toy_run_options(path);
    o.prefix_length = 4;
    o.encoder_hidden = 16;
    return o;
}

static void with_forecast(kvf_train_options *o, const char *path)
{
    o->out = path;
    o->forecast = KVF_FORECAST_ON;
}

/* ---- the same bits --------------------------------------------------------------------------- */

static const struct {
    const char *what, *names[6], *values[6];
} RUNS[] = {
    {"mlp", {NULL}, {NULL}},
    {"one mask a step", {"prefix-dropout"}, {"0.3"}},
    {"a mask a row",
     {"prefix-dropout", "prefix-dropout-per-row", "grad-accum"},
     {"0.3", NULL, "2"}},
    {"base dropout", {"base-dropout", "method"}, {"0.2", "direct"}},
    {"projected", {"method"}, {"projected"}},
    {"p-tuning", {"method"}, {"p-tuning"}},
    {"adapter", {"method"}, {"adapter"}},
    {"full", {"method", "spike-guard"}, {"full", "3"}},
    {"own head", {"train-head"}, {NULL}},
    {"by tokens, common prefixes", {"batch-tokens", "group-by"}, {"60", "prefix"}},
};
enum { N_RUNS = sizeof RUNS / sizeof RUNS[0] };

START_TEST(core_same_bits)
{
    kvf_train_options o = options_for(other);
    for (size_t i = 0; i < 6 && RUNS[_i].names[i]; i++)
        ck_assert_msg(!kvf_train_set(ctx, &o, RUNS[_i].names[i], RUNS[_i].values[i]), "%s",
                      kvf_ctx_error(ctx));
    kvf_train_result without = train(&o);
    ck_assert_int_eq(without.forecast.steps, 0);
    with_forecast(&o, out);
    kvf_train_result with = train(&o);
    ck_assert_int_eq(with.forecast.steps, 6);
    ck_assert_msg(equal_files(out, other), "%s: a run with a forecast differs", RUNS[_i].what);
    ck_assert_int_eq(with.tokens, without.tokens);
    ck_assert_int_eq(with.computed_tokens, without.computed_tokens);
}
END_TEST

START_TEST(core_same_bits_resumed)
{
    kvf_train_options o = options_for(other);
    o.steps = 3;
    o.schedule_steps = 6;
    train(&o);
    o.out = out;
    train(&o);
    o.steps = 6;
    o.resume = true;
    with_forecast(&o, out);
    kvf_train_result with = train(&o);
    ck_assert_int_eq(with.forecast.steps, 3);
    ck_assert_int_eq(with.forecast.validations, 1);
    o.out = other;
    o.forecast = KVF_FORECAST_OFF;
    train(&o);
    ck_assert(equal_files(out, other));
}
END_TEST

/* Two tasks that share a prefix: the order of the steps is restored, too. */
START_TEST(core_same_bits_tasks)
{
    char a[600], b[600], path[512];
    toy_rows(dir, "second.jsonl", 12, 50);
    toy_path(path, dir, "second.jsonl");
    snprintf(a, sizeof a, "one=%s", data);
    snprintf(b, sizeof b, "two=%s", path);
    kvf_train_options o = options_for(other);
    o.data = o.valid = NULL;
    ck_assert_int_eq(kvf_train_set(ctx, &o, "data", a), KVF_OK);
    ck_assert_int_eq(kvf_train_set(ctx, &o, "data", b), KVF_OK);
    ck_assert_int_eq(kvf_train_set(ctx, &o, "task-prefix", "low-rank"), KVF_OK);
    train(&o);
    with_forecast(&o, out);
    ck_assert_int_eq(train(&o).forecast.steps, 6);
    ck_assert(equal_files(out, other));
}
END_TEST

/* ---- reported figures ------------------------------------------------------------------------ */

typedef struct seen {
    int forecasts, steps_before;
    int64_t last_step;
    double left; /* next to last step */
} seen;

static void watch(void *user, const kvf_event *event)
{
    seen *s = user;
    if (event->kind == KVF_EVENT_STEP) {
        s->last_step = event->step;
        if (event->step == event->steps - 1) s->left = event->seconds_left;
        if (event->step == event->steps) ck_assert(event->seconds_left == 0);
    }
    if (event->kind != KVF_EVENT_FORECAST) return;
    s->forecasts++;
    s->steps_before = (int)s->last_step;
    ck_assert_ptr_nonnull(event->forecast);
}

START_TEST(core_counts)
{
    struct stat file;
    seen s = {0};
    kvf_train_options o = options_for(out);
    o.event = watch;
    o.event_user = &s;
    with_forecast(&o, out);
    kvf_train_result r = train(&o);
    const kvf_forecast *f = &r.forecast;
    ck_assert_int_eq(s.forecasts, 1);
    ck_assert_int_eq(s.steps_before, 0);
    ck_assert(s.left > 0 && s.left < 60);
    ck_assert_int_eq(f->steps, 6);
    ck_assert_int_eq(f->validations, 2);
    ck_assert_int_eq(f->tokens, r.tokens);
    ck_assert_int_eq(f->trainable_parameters, r.trainable_parameters);
    ck_assert_int_eq(stat(out, &file), 0);
    ck_assert_msg(f->file_bytes > file.st_size * 9 / 10 && f->file_bytes < file.st_size * 11 / 10,
                  "file of %lld bytes, forecast %lld", (long long)file.st_size,
                  (long long)f->file_bytes);
    ck_assert(f->seconds_per_step > 0 && f->seconds_per_validation > 0 && f->seconds > 0);
    ck_assert(f->probe_seconds > 0 && f->probe_seconds < f->seconds);
    ck_assert(f->peak_rss_bytes > 1 << 20);
}
END_TEST

START_TEST(core_asked_for)
{
    kvf_train_options o = options_for(out);
    o.dry_run = true;
    ck_assert_int_eq(train(&o).forecast.steps, 6); /* auto */
    ck_assert(!kvf__exists(out));
    o.forecast = KVF_FORECAST_OFF;
    ck_assert_int_eq(train(&o).forecast.steps, 0);
    o.dry_run = false;
    o.forecast = KVF_FORECAST_AUTO;
    ck_assert_int_eq(train(&o).forecast.steps, 0); /* a script has no extra cost */
    o.resume = true;
    o.forecast = KVF_FORECAST_ON;
    ck_assert_int_eq(train(&o).forecast.steps, 0); /* finished before */
    ck_assert_int_eq(kvf_train_set(ctx, &o, "forecast", "maybe"), KVF_EUSAGE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("forecast");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_checked_fixture(core, toy_run_setup, toy_run_teardown);
    tcase_add_loop_test(core, core_same_bits, 0, N_RUNS);
    tcase_add_test(core, core_same_bits_resumed);
    tcase_add_test(core, core_same_bits_tasks);
    tcase_add_test(core, core_counts);
    tcase_add_test(core, core_asked_for);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
