/* Tests of the lock on an output file that is written repeatedly. */
#include "base_int.h"
#include "ck.h"
#include "infile.h"
#include "outfile.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[256], path[512], file[1024];
static kvf_ctx *ctx;

static void setup(void)
{
    snprintf(folder, sizeof folder, "%s", ck_tmpdir());
    snprintf(path, sizeof path, "%s/run.h5", folder);
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
}

static void teardown(void)
{
    rmdir(folder); /* fails if the folder is not empty */
    ck_assert(!kvf__exists(folder));
    kvf_ctx_free(ctx);
}

static const char *beside(const char *suffix)
{
    snprintf(file, sizeof file, "%s%s", path, suffix);
    return file;
}

static void touch(const char *name)
{
    FILE *out = fopen(name, "w");
    ck_assert_ptr_nonnull(out);
    fclose(out);
}

START_TEST(core_one_holder)
{
    kvf__outlock lock = {0}, second = {0};
    ck_assert_int_eq(kvf__outlock_acquire(ctx, path, &lock), KVF_OK);
    ck_assert(kvf__exists(beside(".lock")));
    ck_assert_int_eq(kvf__outlock_acquire(ctx, path, &second), KVF_EEXIST);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "run.h5: is being written by another"));
    ck_assert_ptr_null(second.path);
    kvf__outlock_drop(&lock);
    ck_assert(!kvf__exists(beside(".lock")));
    ck_assert_int_eq(kvf__outlock_acquire(ctx, path, &second), KVF_OK);
    kvf__outlock_drop(&second);
    kvf__outlock_drop(&second); /* nothing is fine */
}
END_TEST

START_TEST(core_holder_died)
{
    kvf__outlock lock = {0};
    int status = 0;
    pid_t child = fork();
    if (child == 0) _exit(kvf__outlock_acquire(ctx, path, &lock)); /* released with the lock */
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert(kvf__exists(beside(".lock")));
    ck_assert_int_eq(kvf__outlock_acquire(ctx, path, &lock), KVF_OK);
    kvf__outlock_drop(&lock);
}
END_TEST

/* A temporary without a lock is removed; a locked one stays, whichever process writes it. */
START_TEST(core_leftovers)
{
    static const char *const KEPT[] = {".tmp.", ".tmp.1234", ".tmp.0123456x", ".tmp.012345678",
                                       ".other.01234567"};
    kvf__outlock lock = {0};
    kvf__outfile live = {0};
    touch(beside(".tmp.0badcafe"));
    ck_assert_int_eq(mkfifo(beside(".tmp.0000f1f0"), 0600), 0);
    ck_assert_int_eq(kvf__outfile_begin(ctx, path, false, &live), KVF_OK);
    for (size_t i = 0; i < sizeof KEPT / sizeof KEPT[0]; i++)
        touch(beside(KEPT[i]));
    ck_assert_int_eq(kvf__outlock_acquire(ctx, path, &lock), KVF_OK);
    ck_assert(!kvf__exists(beside(".tmp.0badcafe")));
    ck_assert(kvf__exists(live.temp));
    ck_assert_int_eq(unlink(beside(".tmp.0000f1f0")), 0);
    for (size_t i = 0; i < sizeof KEPT / sizeof KEPT[0]; i++)
        ck_assert_int_eq(unlink(beside(KEPT[i])), 0);
    ck_assert_int_eq(kvf__outfile_commit(ctx, &live), KVF_OK);
    ck_assert_int_eq(unlink(path), 0);
    kvf__outlock_drop(&lock);
}
END_TEST

START_TEST(errors_no_folder)
{
    kvf__outlock lock = {0};
    snprintf(file, sizeof file, "%s/none/run.h5", folder);
    ck_assert_int_eq(kvf__outlock_acquire(ctx, file, &lock), KVF_EIO);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "cannot write: No such file or directory"));
    for (int64_t n = 0; n < 1; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        ck_assert_int_eq(kvf__outlock_acquire(ctx, path, &lock), KVF_ENOMEM);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("outlock");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, core_one_holder);
    tcase_add_test(tcase, core_holder_died);
    tcase_add_test(tcase, core_leftovers);
    tcase_add_test(tcase, errors_no_folder);
    suite_add_tcase(suite, tcase);
    return ck_main(suite);
}
