/* The thread guarantees of base.h. Two threads with their own context and base, and a shared prefix
 * and shared rows, get the results of one thread alone. Another thread may stop a run. */
#include "toy_run.h"

#undef kvf_ctx_create /* the public one */

#include <dirent.h>
#include <omp.h>
#include <pthread.h>
#include <unistd.h>

enum { ROUNDS = 3 };

typedef struct worker {
    const kvf_prefix *prefix;
    const char *rows;
    double loss, score;
    char *text;
    bool failed;
} worker;

static kvf_status compute(kvf_ctx *own, kvf_base *opened, worker *w)
{
    static const char *const prompt[] = {"w7:"};
    const kvf_eval_options eval = {.data = w->rows};
    const kvf_score_options how = {.eval = eval};
    kvf_generate_options generate = kvf_generate_defaults();
    kvf_prefix *prefix = (kvf_prefix *)w->prefix; /* kvf_eval takes a list of them */
    kvf_eval_result measured;
    kvf_score_result scores;
    generate.max_tokens = 12;
    KVF_TRY(kvf_eval(own, opened, &prefix, 1, &eval, &measured));
    KVF_TRY(kvf_score(own, opened, w->prefix, &how, &scores));
    w->loss = measured.loss;
    w->score = scores.rows[2].loglikelihood;
    kvf_score_result_done(&scores);
    if (w->text) kvf_texts_free(&w->text, 1);
    w->text = NULL;
    return kvf_generate(own, opened, w->prefix, prompt, 1, &generate, &w->text, NULL);
}

static void *work(void *user)
{
    worker *w = user;
    const kvf_ctx_options one = {.threads = 1};
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    kvf_ctx *own = NULL;
    kvf_base *opened = NULL;
    w->failed = kvf_ctx_create(&one, &own) || kvf_base_open(own, base, &exact, &opened);
    for (int i = 0; !w->failed && i < ROUNDS; i++)
        w->failed = compute(own, opened, w) != KVF_OK;
    kvf_base_free(opened);
    kvf_ctx_free(own);
    return NULL;
}

START_TEST(two_threads_compute_what_one_does)
{
    kvf_train_options o = toy_run_options(out);
    kvf_rows *rows = NULL;
    kvf_prefix *prefix = NULL;
    o.method = "direct";
    train(&o);
    ck_assert_int_eq(kvf_prefix_open(ctx, out, KVF_CHECKPOINT_DEFAULT, &prefix), KVF_OK);
    ck_assert_int_eq(kvf_rows_create(ctx, &rows), KVF_OK);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(kvf_rows_add_pair(ctx, rows, i % 2 ? "w1:" : "w33:", " abc"), KVF_OK);
    worker alone = {.prefix = prefix, .rows = kvf_rows_path(rows)}, both[2] = {alone, alone};
    pthread_t threads[2];
    work(&alone);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &both[i]), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert(!alone.failed);
    for (int i = 0; i < 2; i++) {
        ck_assert(!both[i].failed);
        ck_assert(both[i].loss == alone.loss && both[i].score == alone.score);
        ck_assert_str_eq(both[i].text, alone.text);
        kvf_texts_free(&both[i].text, 1);
    }
    kvf_texts_free(&alone.text, 1);
    kvf_rows_free(rows);
    kvf_prefix_free(prefix);
}
END_TEST

/* ---- threads of the process --------------------------------------------------------------------
 */

enum { MOVES = 100, SETTLE_US = 2000, SETTLE_TIMES = 500 };

static int process_threads(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    ck_assert_ptr_nonnull(tasks);
    for (const struct dirent *entry; (entry = readdir(tasks)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(tasks);
    return n;
}

static void generate(kvf_ctx *own, kvf_base *opened)
{
    static const char *const prompt[] = {"w7:"};
    kvf_generate_options o = kvf_generate_defaults();
    char *text = NULL;
    o.max_tokens = 3;
    ck_assert_msg(!kvf_generate(own, opened, NULL, prompt, 1, &o, &text, NULL), "%s",
                  kvf_ctx_error(own));
    kvf_texts_free(&text, 1);
}

static void *move(void *user)
{
    generate(ctx, user);
    ck_assert_int_eq(kvf_ctx_threads(ctx), 2);
    return NULL;
}

/* Moves a context of 2 threads. OpenMP's other thread ends with its former thread (libgomp), or
 * stays for the next one (LLVM, which then has one more thread). */
START_TEST(a_context_moves_between_threads)
{
    kvf_base *opened = open_base();
    generate(ctx, opened);
    const int most = process_threads() + 1;
    for (int i = 0; i < MOVES; i++) {
        pthread_t thread;
        ck_assert_int_eq(pthread_create(&thread, NULL, move, opened), 0);
        pthread_join(thread, NULL);
    }
    for (int i = 0; i < SETTLE_TIMES && process_threads() > most; i++)
        usleep(SETTLE_US);
    ck_assert_int_le(process_threads(), most);
    kvf_base_free(opened);
}
END_TEST

/* Neither thread sees the other's thread count, and the caller sees neither. */
START_TEST(contexts_of_one_thread_keep_their_numbers)
{
    const kvf_ctx_options one = {.threads = 1}, three = {.threads = 3};
    kvf_ctx *a = NULL, *b = NULL;
    kvf_base *opened = NULL;
    omp_set_num_threads(5);
    ck_assert_int_eq(kvf_ctx_create(&one, &a), KVF_OK);
    ck_assert_int_eq(kvf_base_open(a, base, NULL, &opened), KVF_OK);
    generate(a, opened);
    const int before = process_threads();
    ck_assert_int_eq(kvf_ctx_create(&three, &b), KVF_OK);
    generate(a, opened);
    ck_assert_int_eq(process_threads(), before);
    ck_assert_int_eq(omp_get_max_threads(), 5);
    kvf_base_free(opened);
    kvf_ctx_free(b);
    kvf_ctx_free(a);
}
END_TEST

/* ---- options on the heap --------------------------------------------------------------------- */

static volatile int stop;

static void *set_stop(void *user)
{
    (void)user;
    stop = 1;
    return NULL;
}

/* After the first step another thread sets the flag. */
static void stop_at_step_1(void *user, const kvf_event *event)
{
    pthread_t thread;
    if (event->kind != KVF_EVENT_STEP || event->step != 1) return;
    ++*(int *)user;
    ck_assert_int_eq(pthread_create(&thread, NULL, set_stop, NULL), 0);
    pthread_join(thread, NULL);
}

START_TEST(another_thread_stops_a_run)
{
    kvf_train_options *o = NULL;
    kvf_train_result result;
    char word[16] = "direct";
    int heard = 0;
    ck_assert_int_eq(kvf_train_options_create(ctx, &o), KVF_OK);
    ck_assert_int_eq(kvf_train_set(ctx, o, "method", word), KVF_OK);
    strcpy(word, "nothing"); /* it was copied */
    ck_assert_int_eq(kvf_train_set(ctx, o, "base", base), KVF_OK);
    ck_assert_int_eq(kvf_train_set(ctx, o, "data", data), KVF_OK);
    ck_assert_int_eq(kvf_train_set(ctx, o, "out", out), KVF_OK);
    ck_assert_int_eq(kvf_train_set(ctx, o, "steps", "500"), KVF_OK);
    ck_assert_int_eq(kvf_train_set(ctx, o, "prefx-length", "3"), KVF_EUSAGE);
    ck_assert_str_eq(kvf_ctx_error(ctx),
                     "option --prefx-length is not known, the nearest is --prefix-length");
    ck_assert_int_eq(kvf_train_set(ctx, o, "prefix-length", "three"), KVF_EUSAGE);
    kvf_train_set_event(o, stop_at_step_1, &heard);
    kvf_ctx_set_stop(ctx, &stop);
    ck_assert_int_eq(kvf_train(ctx, o, &result), KVF_ESTOPPED);
    ck_assert_int_eq(result.steps, 1);
    ck_assert_int_eq(heard, 1);
    kvf_train_options_free(o);
    kvf_train_options_free(NULL);
}
END_TEST

START_TEST(options_can_be_listed)
{
    kvf_option option;
    size_t n = 0;
    bool lr = false;
    for (; kvf_train_option(n, &option); n++) {
        ck_assert(option.name && option.initial && option.help);
        lr |= !strcmp(option.name, "lr") && !strcmp(option.argument, "X");
    }
    ck_assert_uint_gt(n, 60);
    ck_assert(lr);
    ck_assert_int_eq(kvf_version(), KVF_VERSION_NUMBER);
    ck_assert_str_eq(kvf_version_string(), KVF_VERSION);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ctx_threads");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_checked_fixture(core, toy_run_setup, toy_run_teardown);
    tcase_add_test(core, two_threads_compute_what_one_does);
    tcase_add_test(core, a_context_moves_between_threads);
    tcase_add_test(core, contexts_of_one_thread_keep_their_numbers);
    tcase_add_test(core, another_thread_stops_a_run);
    tcase_add_test(core, options_can_be_listed);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
