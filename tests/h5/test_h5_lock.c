/* Tests of the lock around HDF5: threads that write, read and fail on files at the same time, and a
 * child forked meanwhile. Without the lock, an HDF5 built without thread safety (-Dhdf5=FOLDER with
 * the wheel's) crashes in the first test. */
#include "h5.h"
#include "h5_fixture.h"

#include <pthread.h>
#include <sys/wait.h>

enum { THREADS = 6, ROUNDS = 60, N = 40000 };

typedef struct job {
    pthread_t thread;
    int number, wrong;
} job;

static void write_values(kvf_ctx *own, const char *path, const float *values)
{
    const int64_t dim[1] = {N};
    const kvf__h5_spec spec = {.name = "values", .dtype = KVF__F32, .rank = 1, .dim = dim};
    kvf__h5 h5 = kvf__h5_create(own, path, true, "prefix", 0);

    kvf__h5_put_text(&h5, h5.file, "path", path);
    kvf__h5_data_write(&h5, h5.file, &spec, values, NULL);
    ck_assert_int_eq(kvf__h5_close(&h5), KVF_OK);
}

static bool reads_back(kvf_ctx *own, const char *path, const float *want, float *got)
{
    kvf__h5 h5 = kvf__h5_open(own, path, "prefix");
    kvf__h5_data data = kvf__h5_data_open(&h5, h5.file, "values");
    char *text = kvf__h5_get_text(&h5, h5.file, "path");
    bool same = data.count == N && text && !strcmp(text, path);

    if (same) kvf__h5_data_read(&h5, &data, got, N * sizeof *got);
    kvf__h5_release(&data.id);
    kvf__free(text);
    return kvf__h5_close(&h5) == KVF_OK && same && !memcmp(want, got, N * sizeof *got);
}

/* The line names this thread's file and its error. */
static bool fails_alone(kvf_ctx *own, const char *path)
{
    kvf__h5 h5 = kvf__h5_open(own, path, "prefix");
    kvf__h5_id none = kvf__h5_group_open(&h5, h5.file, "nothing");

    kvf__h5_release(&none);
    return kvf__h5_close(&h5) == KVF_EFORMAT && strstr(kvf_ctx_error(own), path) &&
           strstr(kvf_ctx_error(own), "\"nothing\" is missing");
}

static void *work(void *argument)
{
    job *j = argument;
    float *values = malloc(N * sizeof *values), *got = malloc(N * sizeof *got);
    char path[512];
    kvf_ctx *own = NULL;

    ck_assert_int_eq(kvf_ctx_create(NULL, &own), KVF_OK);
    snprintf(path, sizeof path, "%s/%d.h5", dir, j->number);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < N; i++)
            values[i] = (float)(j->number * round + i);
        write_values(own, path, values);
        j->wrong += !reads_back(own, path, values, got) + !fails_alone(own, path);
    }
    kvf_ctx_free(own);
    free(values);
    free(got);
    return NULL;
}

START_TEST(threads_have_files_open_at_once)
{
    job jobs[THREADS] = {0};

    for (int i = 0; i < THREADS; i++) {
        jobs[i].number = i;
        ck_assert_int_eq(pthread_create(&jobs[i].thread, NULL, work, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(jobs[i].thread, NULL);
        ck_assert_int_eq(jobs[i].wrong, 0);
    }
}
END_TEST

/* ---- fork ------------------------------------------------------------------------------------ */

static pthread_barrier_t opened, forked;

static void *hold(void *argument)
{
    kvf_ctx *own = NULL;
    kvf__h5 h5;

    (void)argument;
    ck_assert_int_eq(kvf_ctx_create(NULL, &own), KVF_OK);
    h5 = kvf__h5_open(own, in_dir("p.h5"), "prefix");
    pthread_barrier_wait(&opened);
    pthread_barrier_wait(&forked);
    ck_assert_int_eq(kvf__h5_close(&h5), KVF_OK);
    kvf_ctx_free(own);
    return NULL;
}

/* Exit status of a child that opens p.h5: the kvf_status. */
static int child_opens(void)
{
    int ended = 0;
    pid_t child = fork();

    if (!child) {
        kvf__h5 h5 = kvf__h5_open(ctx, in_dir("p.h5"), "prefix");
        const kvf_status st = kvf__h5_close(&h5);
        _exit(st == KVF_EUSAGE && !strstr(kvf_ctx_error(ctx), "was forked") ? 99 : (int)st);
    }
    ck_assert_int_eq(waitpid(child, &ended, 0), child);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

START_TEST(a_child_opens_files_or_says_why_not)
{
    static const float values[N] = {0};
    pthread_t holder;

    write_values(ctx, in_dir("p.h5"), values);
    ck_assert_int_eq(child_opens(), KVF_OK);
    pthread_barrier_init(&opened, NULL, 2);
    pthread_barrier_init(&forked, NULL, 2);
    ck_assert_int_eq(pthread_create(&holder, NULL, hold, NULL), 0);
    pthread_barrier_wait(&opened);
    ck_assert_int_eq(child_opens(), KVF_EUSAGE);
    pthread_barrier_wait(&forked);
    pthread_join(holder, NULL);
    ck_assert_int_eq(child_opens(), KVF_OK);
}
END_TEST

/* A log callback may open another file while one is open. */
START_TEST(one_thread_may_open_two)
{
    static const float values[N] = {0};
    kvf__h5 a, b;

    write_values(ctx, in_dir("p.h5"), values);
    a = kvf__h5_open(ctx, in_dir("p.h5"), "prefix");
    b = kvf__h5_open(ctx, in_dir("p.h5"), "prefix");
    ck_assert_int_eq(kvf__h5_close(&a), KVF_OK);
    ck_assert(kvf__h5_has_attr(&b, b.file, "path"));
    ck_assert_int_eq(kvf__h5_close(&b), KVF_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("h5_lock");
    TCase *core = ck_case(suite, "core", setup, teardown, 60);

    tcase_add_test(core, threads_have_files_open_at_once);
    tcase_add_test(core, a_child_opens_files_or_says_why_not);
    tcase_add_test(core, one_thread_may_open_two);
    return ck_main(suite);
}
