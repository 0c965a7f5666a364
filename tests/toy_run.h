/* Shared fixture of the tests of whole runs on the toy base: its folder, training and held-out
 * rows, and output paths. Also options for short runs, and three common checks. */
#ifndef TOY_RUN_H
#define TOY_RUN_H

#include <kvfold/kvfold.h>

#include "toy_base.h"

static kvf_ctx *ctx;
static const char *dir;
static char base[512], data[512], valid[512], out[512], other[512];

/* A checked fixture: two threads, 24 training rows and 6 held-out rows. */
static inline void toy_run_setup(void)
{
    kvf_ctx_options options = {.threads = 2};
    dir = ck_tmpdir();
    toy_path(base, dir, "base");
    toy_path(data, dir, "train.jsonl");
    toy_path(valid, dir, "valid.jsonl");
    toy_path(out, dir, "run.h5");
    toy_path(other, dir, "other.h5");
    ck_assert_int_eq(mkdir(base, 0777), 0);
    toy_folder(base, 5, 0);
    toy_rows(dir, "train.jsonl", 24, 0);
    toy_rows(dir, "valid.jsonl", 6, 30);
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
}

static inline void toy_run_teardown(void)
{
    kvf_ctx_free(ctx);
}

/* Six steps of five rows in f32, validated and saved after three. */
static inline kvf_train_options toy_run_options(const char *path)
{
    kvf_train_options o = kvf_train_defaults();
    o.base = base;
    o.data = data;
    o.valid = valid;
    o.out = path;
    o.steps = 6;
    o.batch_size = 5;
    o.precision = KVF_PRECISION_F32;
    o.schedule = KVF_SCHEDULE_CONSTANT;
    o.eval_every = 3;
    o.save_every = 3;
    return o;
}

static inline kvf_base *open_base(void)
{
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    kvf_base *opened = NULL;
    ck_assert_msg(!kvf_base_open(ctx, base, &exact, &opened), "%s", kvf_ctx_error(ctx));
    return opened;
}

/* An event's receiver: the first step's loss into the double at `user`. */
static inline void remember_first(void *user, const kvf_event *event)
{
    if (event->kind == KVF_EVENT_STEP && event->step == 1) *(double *)user = event->train_loss;
}

static inline kvf_train_result train(const kvf_train_options *o)
{
    kvf_train_result result = {0};
    ck_assert_msg(!kvf_train(ctx, o, &result), "%s", kvf_ctx_error(ctx));
    return result;
}

/* Expects the run to fail with this status, and this part in its line. */
static inline void expect_failure(const kvf_train_options *o, kvf_status want, const char *part)
{
    kvf_train_result result;
    kvf_status st = kvf_train(ctx, o, &result);
    ck_assert_msg(st == want && strstr(kvf_ctx_error(ctx), part),
                  "status %s, line \"%s\", want %s and \"%s\"", kvf_status_name(st),
                  kvf_ctx_error(ctx), kvf_status_name(want), part);
}

static inline bool equal_files(const char *a, const char *b)
{
    kvf__mapfile x = {0}, y = {0};
    ck_assert_int_eq(kvf__mapfile_open(ctx, a, &x), KVF_OK);
    ck_assert_int_eq(kvf__mapfile_open(ctx, b, &y), KVF_OK);
    bool equal = x.n == y.n && !memcmp(x.data, y.data, x.n);
    kvf__mapfile_close(&x);
    kvf__mapfile_close(&y);
    return equal;
}

/* A run stopped after half its steps and resumed, with every other option from its file, equals an
 * unbroken run. `whole` and `part` differ only in their output paths. */
static inline void expect_resume_equals_no_stop(kvf_train_options whole, kvf_train_options part)
{
    kvf_train_options rest = kvf_train_defaults();
    whole.schedule_steps = part.schedule_steps = whole.steps;
    train(&whole);
    part.steps = whole.steps / 2;
    train(&part);
    ck_assert(!equal_files(whole.out, part.out));
    rest.base = part.base;
    rest.data = part.data;
    rest.valid = part.valid;
    rest.out = part.out;
    rest.resume = true;
    rest.steps = whole.steps;
    ck_assert_int_eq(train(&rest).steps, whole.steps);
    ck_assert(equal_files(whole.out, part.out));
    ck_assert(train(&rest).finished_before);
    ck_assert(equal_files(whole.out, part.out));
}

#endif
