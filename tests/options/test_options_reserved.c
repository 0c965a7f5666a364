/* Options with zeros in reserved members are accepted, as from a program older than the library.
 * Other values, from a newer program or uninitialised, are refused with a line that names them. */
#include "toy_base.h"

#include <kvfold/kvfold.h>

static kvf_ctx *ctx;
static kvf_base *base;
static char missing[512], data[512];

static void setup(void)
{
    const char *dir = ck_tmpdir();
    const kvf_ctx_options options = {.threads = 1};
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
    toy_folder(dir, 5, 0);
    ck_assert_msg(!kvf_base_open(ctx, dir, NULL, &base), "%s", kvf_ctx_error(ctx));
    snprintf(missing, sizeof missing, "%s/missing", dir);
    snprintf(data, sizeof data, "%s/rows.jsonl", dir);
    FILE *file = fopen(data, "w");
    fputs("{\"prompt\": \"a\", \"completion\": \"b\"}\n", file);
    fclose(file);
}

static void teardown(void)
{
    kvf_base_free(base);
    kvf_ctx_free(ctx);
}

/* Sets the last reserved word to `mark`; the other arguments of the call are valid. */
#define LAST(options)                                                                              \
    ((options).reserved[sizeof(options).reserved / sizeof *(options).reserved - 1])

static kvf_status open_base(uint64_t mark)
{
    kvf_base_options o = {.precision = KVF_PRECISION_F32};
    kvf_base *other = NULL;
    LAST(o) = mark;
    return kvf_base_open(ctx, missing, &o, &other);
}

static kvf_status open_session(uint64_t mark)
{
    kvf_session_options o = {.allow_other_base = true};
    kvf_session *session = NULL;
    LAST(o) = mark;
    return kvf_session_open(ctx, missing, NULL, &o, &session);
}

static kvf_status open_session_base(uint64_t mark)
{
    kvf_session_options o = {.allow_other_base = true};
    kvf_session *session = NULL;
    LAST(o.base) = mark;
    return kvf_session_open(ctx, missing, NULL, &o, &session);
}

static kvf_status merge(uint64_t mark)
{
    kvf_merge_options o = {.run = missing, .out = missing};
    kvf_merge_result result;
    LAST(o) = mark;
    return kvf_merge(ctx, &o, &result);
}

static kvf_status import(uint64_t mark)
{
    kvf_import_options o = {.path = missing, .out = missing};
    char kind[16];
    LAST(o) = mark;
    return kvf_import(ctx, &o, kind);
}

static kvf_status export(uint64_t mark)
{
    kvf_export_options o = {.path = missing, .out = missing};
    LAST(o) = mark;
    return kvf_export(ctx, &o);
}

static kvf_status train(uint64_t mark)
{
    kvf_train_options o = kvf_train_defaults();
    kvf_train_result result;
    o.base = o.data = missing;
    o.out = missing;
    LAST(o) = mark;
    return kvf_train(ctx, &o, &result);
}

static kvf_status generate(uint64_t mark)
{
    kvf_generate_options o = kvf_generate_defaults();
    const char *prompt = "a";
    char *text = NULL;
    o.max_tokens = 1;
    LAST(o) = mark;
    kvf_status st = kvf_generate(ctx, base, NULL, &prompt, 1, &o, &text, NULL);
    if (!st) kvf_texts_free(&text, 1);
    return st;
}

static kvf_status eval(uint64_t mark)
{
    kvf_eval_options o = {.data = data};
    kvf_eval_result result;
    LAST(o) = mark;
    kvf_status st = kvf_eval(ctx, base, NULL, 0, &o, &result);
    if (!st) kvf_eval_result_done(&result);
    return st;
}

static kvf_status score(uint64_t mark)
{
    kvf_score_options o = {.eval = {.data = data}};
    LAST(o) = mark;
    return kvf_score(ctx, base, NULL, &o, NULL);
}

static kvf_status score_eval(uint64_t mark)
{
    kvf_score_options o = {.eval = {.data = data}};
    LAST(o.eval) = mark;
    return kvf_score(ctx, base, NULL, &o, NULL);
}

/* The status of each accepted call: its files are missing, or it succeeds. */
static const struct {
    const char *type;
    kvf_status (*call)(uint64_t mark);
    kvf_status otherwise;
} CALLS[] = {
    {"kvf_base_options", open_base, KVF_EIO},
    {"kvf_session_options", open_session, KVF_EIO},
    {"kvf_base_options", open_session_base, KVF_EIO},
    {"kvf_merge_options", merge, KVF_EIO},
    {"kvf_import_options", import, KVF_EIO},
    {"kvf_export_options", export, KVF_EIO},
    {"kvf_train_options", train, KVF_EIO},
    {"kvf_generate_options", generate, KVF_OK},
    {"kvf_eval_options", eval, KVF_OK},
    {"kvf_score_options", score, KVF_OK},
    {"kvf_eval_options", score_eval, KVF_OK},
};

START_TEST(what_is_not_known_is_refused)
{
    char line[256];
    snprintf(line, sizeof line, "%s: reserved is not zero", CALLS[_i].type);
    for (int bit = 0; bit < 64; bit += 21) {
        ck_assert_int_eq(CALLS[_i].call((uint64_t)1 << bit), KVF_EUSAGE);
        ck_assert_msg(strstr(kvf_ctx_error(ctx), line) == kvf_ctx_error(ctx), "%s",
                      kvf_ctx_error(ctx));
    }
    const kvf_status st = CALLS[_i].call(0);
    ck_assert_int_eq(st, CALLS[_i].otherwise);
    ck_assert(!st || !strstr(kvf_ctx_error(ctx), "reserved"));
}
END_TEST

static void keep_line(void *user, kvf_log_level level, const char *line)
{
    ck_assert_int_eq(level, KVF_LOG_WARN);
    snprintf(user, 256, "%s", line);
}

START_TEST(a_context_says_it_to_its_log)
{
    char line[256] = "";
    kvf_ctx_options o = {.threads = 1, .log = keep_line, .log_user = line};
    kvf_ctx *other = NULL;
    LAST(o) = 1;
    ck_assert_int_eq(kvf_ctx_create(&o, &other), KVF_EUSAGE);
    ck_assert_msg(strstr(line, "kvf_ctx_options: reserved is not zero") == line, "%s", line);
    ck_assert_ptr_null(other);
    LAST(o) = 0;
    ck_assert_int_eq(kvf_ctx_create(&o, &other), KVF_OK);
    kvf_ctx_free(other);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("options_reserved");
    TCase *errors = tcase_create("errors");
    tcase_set_timeout(errors, 60);
    tcase_add_checked_fixture(errors, setup, teardown);
    suite_add_tcase(suite, errors);
    tcase_add_loop_test(errors, what_is_not_known_is_refused, 0,
                        (int)(sizeof CALLS / sizeof CALLS[0]));
    tcase_add_test(errors, a_context_says_it_to_its_log);
    return ck_main(suite);
}
