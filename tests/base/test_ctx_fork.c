/* A child of fork() can compute if its parent has not. Otherwise it gets an error line at once, and
 * can still make calls that need no threads. */
#include "toy_run.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static kvf_base *opened;

static kvf_status compute(void)
{
    const int32_t ids[] = {4, 9, 16, 25};
    float logits[4 * 61];
    return opened ? kvf_logits(ctx, opened, NULL, ids, 4, logits)
                  : kvf_base_open(ctx, base, NULL, &opened);
}

static kvf_status generate(void)
{
    static const char *const prompt[] = {"w7:"};
    kvf_generate_options o = kvf_generate_defaults();
    char *text = NULL;
    o.max_tokens = 2;
    kvf_status st = kvf_generate(ctx, opened, NULL, prompt, 1, &o, &text, NULL);
    kvf_texts_free(&text, 1);
    return st;
}

static kvf_status train_run(void)
{
    kvf_train_options o = toy_run_options(out);
    kvf_train_result result;
    return kvf_train(ctx, &o, &result);
}

static kvf_status tokenize(void)
{
    int32_t *ids = NULL;
    size_t n = 0;
    kvf_status st = kvf_tokenize(ctx, opened, "w1", 2, true, &ids, &n);
    kvf_ids_free(ids);
    return st;
}

static kvf_status start_program(void)
{
    execl("/bin/true", "true", (char *)NULL);
    return KVF_EINTERNAL;
}

/* Exit status of a child: the status of the call, or 99 if its error line gives no reason. */
static int in_child(kvf_status (*call)(void))
{
    int ended = 0;

    fflush(NULL); /* exit() would write it twice */
    pid_t child = fork();
    if (!child) {
        alarm(20);
        const kvf_status st = call();
        exit(st && !strstr(kvf_ctx_error(ctx), "was forked") ? 99 : (int)st);
    }
    ck_assert_int_eq(waitpid(child, &ended, 0), child);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

START_TEST(children_compute_or_say_why_not)
{
    ck_assert_int_eq(in_child(compute), KVF_OK);
    ck_assert_int_eq(in_child(train_run), KVF_OK);
    opened = open_base();
    ck_assert_int_eq(in_child(compute), KVF_EUSAGE);
    ck_assert_int_eq(in_child(generate), KVF_EUSAGE);
    ck_assert_int_eq(in_child(train_run), KVF_EUSAGE);
    ck_assert_int_eq(in_child(tokenize), KVF_OK);
    ck_assert_int_eq(in_child(start_program), KVF_OK);
    ck_assert_int_eq(compute(), KVF_OK);
    kvf_base_free(opened);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ctx_fork");
    TCase *core = ck_case(suite, "core", toy_run_setup, toy_run_teardown, 60);

    tcase_add_test(core, children_compute_or_say_why_not);
    return ck_main(suite);
}
