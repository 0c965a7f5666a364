/* The flag of kvf_ctx_set_stop() and the token callback end every long call, which then leaves no
 * output and no result. After the flag is cleared, the same call succeeds. */
#include "toy_run.h"

#include <pthread.h>
#include <unistd.h>

enum { MANY = 4000, SOON_US = 20000 };

static volatile int stop;
static kvf_base *opened;
static kvf_prefix *head; /* prefix of a classifier */
static char run[512];    /* virtual tokens, for which merge runs the base */

static void setup(void)
{
    toy_run_setup();
    kvf_train_options o = toy_run_options(out);
    char rows[512];
    o.steps = 1;
    o.method = "prompt";
    toy_path(run, dir, "prompt.h5");
    o.out = run;
    train(&o);
    toy_write(dir, "cls.jsonl",
              "{\"text\": \"w1\", \"label\": \"a\"}\n"
              "{\"text\": \"w2\", \"label\": \"b\"}\n");
    toy_path(rows, dir, "cls.jsonl");
    o.method = "direct";
    o.task = "seq-cls";
    o.data = rows;
    o.valid = NULL;
    o.out = out;
    train(&o);
    ck_assert_int_eq(kvf_prefix_open(ctx, out, KVF_CHECKPOINT_DEFAULT, &head), KVF_OK);
    opened = open_base();
    stop = 0;
    kvf_ctx_set_stop(ctx, &stop);
}

static void teardown(void)
{
    kvf_prefix_free(head);
    kvf_base_free(opened);
    toy_run_teardown();
}

/* ---- calls ----------------------------------------------------------------------------------- */

static kvf_status call_eval(const char *rows)
{
    kvf_eval_result result;
    return kvf_eval(ctx, opened, NULL, 0, &(kvf_eval_options){.data = rows}, &result);
}

static kvf_status call_score(const char *rows)
{
    return kvf_score(ctx, opened, NULL, &(kvf_score_options){.eval.data = rows, .out = other},
                     NULL);
}

static kvf_status call_predict(const char *rows)
{
    const kvf_predict_options o = {.eval = {.data = rows}, .out = other};
    return kvf_predict(ctx, opened, &head, 1, &o, NULL);
}

static kvf_status call_generate(const char *rows)
{
    kvf_generate_options o = kvf_generate_defaults();
    char **texts = NULL;
    size_t n = 0;
    o.max_tokens = 4;
    kvf_status st = kvf_generate_file(ctx, opened, NULL, rows, NULL, &o, &texts, &n, NULL);
    ck_assert(!st == !!texts);
    kvf_text_list_free(texts, n);
    return st;
}

static kvf_status call_merge(const char *rows)
{
    kvf_merge_result result;
    (void)rows;
    return kvf_merge(ctx, &(kvf_merge_options){.run = run, .base = base, .out = other}, &result);
}

static kvf_status call_logits(const char *rows)
{
    float logits[4 * 512];
    (void)rows;
    return kvf_logits(ctx, opened, NULL, (const int32_t[]){1, 2}, 2, logits);
}

static kvf_status call_open(const char *rows)
{
    kvf_base *another = NULL;
    (void)rows;
    kvf_status st = kvf_base_open(ctx, base, NULL, &another);
    kvf_base_free(another);
    return st;
}

static const struct call {
    kvf_status (*run)(const char *rows);
    bool text; /* its rows are texts for a classifier */
} CALLS[] = {{call_eval, false},     {call_score, false}, {call_predict, true},
             {call_generate, false}, {call_merge, false}, {call_logits, false},
             {call_open, false}};
enum { N_CALLS = sizeof CALLS / sizeof CALLS[0], OVER_ROWS = 4 };

static kvf_rows *make_rows(const struct call *call, int n)
{
    kvf_rows *rows = NULL;
    ck_assert_int_eq(kvf_rows_create(ctx, &rows), KVF_OK);
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(call->text ? kvf_rows_add_text(ctx, rows, i % 2 ? "w1 abc" : "w33")
                                    : kvf_rows_add_pair(ctx, rows, "w1:", i % 2 ? " abc" : " a"),
                         KVF_OK);
    return rows;
}

static void stops_at_once(const struct call *call)
{
    kvf_rows *rows = make_rows(call, 4);
    stop = 1;
    ck_assert_int_eq(call->run(kvf_rows_path(rows)), KVF_ESTOPPED);
    ck_assert_str_eq(kvf_ctx_error(ctx), "stopped on request");
    ck_assert_int_ne(access(other, F_OK), 0);
    stop = 0;
    ck_assert_msg(!call->run(kvf_rows_path(rows)), "%s", kvf_ctx_error(ctx));
    kvf_rows_free(rows);
    remove(other);
}

START_TEST(a_set_flag_stops_calls)
{
    for (int i = 0; i < N_CALLS; i++)
        stops_at_once(&CALLS[i]);
}
END_TEST

static void *stop_soon(void *user)
{
    usleep(SOON_US);
    stop = 1;
    return user;
}

static void stops_on_the_way(const struct call *call)
{
    kvf_rows *rows = make_rows(call, MANY);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, stop_soon, NULL), 0);
    ck_assert_int_eq(call->run(kvf_rows_path(rows)), KVF_ESTOPPED);
    ck_assert_int_ne(access(other, F_OK), 0);
    pthread_join(thread, NULL);
    stop = 0;
    kvf_rows_free(rows);
}

START_TEST(another_thread_stops_calls_over_rows)
{
    for (int i = 0; i < OVER_ROWS; i++)
        stops_on_the_way(&CALLS[i]);
}
END_TEST

/* ---- the token callback ---------------------------------------------------------------------- */

static bool three_pieces(void *user, size_t prompt, const char *text, size_t bytes)
{
    (void)prompt;
    (void)text;
    ck_assert_uint_gt(bytes, 0);
    return ++*(int *)user < 3;
}

/* pieces: initial count of pieces; the callback stops at 3. */
static void ends_generation(int64_t draft, int64_t beams, int pieces)
{
    static const char *const prompts[] = {"w1: abc", "w2: abc"};
    char *texts[2] = {NULL, NULL};
    kvf_generate_options o = kvf_generate_defaults();
    o.max_tokens = 30;
    o.token = three_pieces;
    o.token_user = &pieces;
    o.draft = draft;
    o.beams = beams;
    ck_assert_int_eq(kvf_generate(ctx, opened, NULL, prompts, 2, &o, texts, NULL), KVF_ESTOPPED);
    ck_assert_str_eq(kvf_ctx_error(ctx), "stopped by the token callback");
    ck_assert_int_eq(pieces, 3);
    ck_assert_ptr_null(texts[0]);
}

START_TEST(the_token_callback_ends_generation)
{
    ends_generation(0, 1, 0);
    ends_generation(4, 1, 0);
    ends_generation(0, 2, 2); /* one piece, the whole completion */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ctx_stop");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, a_set_flag_stops_calls);
    tcase_add_test(core, another_thread_stops_calls_over_rows);
    tcase_add_test(core, the_token_callback_ends_generation);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
