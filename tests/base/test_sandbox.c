/* Files read by another program in a sandbox: its answers and its crash are passed to the
 * caller. */
#include "base_int.h"
#include "ck.h"
#include "infile.h"
#include "sandbox.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char program[512], subject[512];
static kvf_ctx *ctx;

static void put_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    ck_assert_int_eq(fclose(file), 0);
}

static void setup(void)
{
    kvf_ctx_options options = {.threads = 1, .check_program = program};
    snprintf(program, sizeof program, "%s/program", ck_tmpdir());
    snprintf(subject, sizeof subject, "%s/file.h5", ck_tmpdir());
    put_file(subject, "a file");
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
    unlink(program);
    unlink(subject);
}

static void write_program(const char *body)
{
    char text[1024];
    unlink(program);
    snprintf(text, sizeof text, "#!/bin/sh\n[ \"$1\" = --check-hdf5 ] || exit 9\n%s\n", body);
    put_file(program, text);
    ck_assert_int_eq(chmod(program, 0755), 0);
}

static kvf_status screen(kvf_ctx *of, const char *path)
{
    kvf__check check;
    kvf__mapfile map = {0};
    ck_assert_int_eq(kvf__mapfile_open(of, path, &map), KVF_OK);
    kvf_status st = kvf__check_begin(of, &map, &check);
    if (!st) st = kvf__check_end(of, &check);
    kvf__mapfile_close(&map);
    return st;
}

/* The file exactly as its writer left it. */
static void pass(const char *path)
{
    int fd = open(path, O_RDONLY);
    ck_assert_int_ge(fd, 0);
    kvf__sandbox_trust(ctx, fd);
    close(fd);
}

static const struct {
    const char *body;
    kvf_status status;
    const char *says;
} ANSWERS[] = {
    {"echo ok", KVF_OK, NULL},
    {"[ -e \"$2\" ] && echo ok", KVF_OK, NULL},
    {"echo '4 a line'", KVF_EFORMAT, "a line"},
    {"echo '7 another: line'", KVF_EUNSUPPORTED, "another: line"},
    {"kill -SEGV $$", KVF_EFORMAT, "file.h5: damaged: HDF5 cannot read it (Segmentation fault"},
    {"echo ok; echo more", KVF_EFORMAT, "exit status 0"},
    {"echo '0 fine'", KVF_EFORMAT, "exit status 0"},
    {"echo '99 what'", KVF_EFORMAT, "exit status 0"},
    {"exit 3", KVF_EFORMAT, "exit status 3"},
    {"yes 4 | head -c 100000; exit 1", KVF_EFORMAT, "exit status 1"},
    {"echo x >>\"$2\"; echo ok", KVF_EIO, "changed while it was checked"},
};

START_TEST(core_answers)
{
    write_program(ANSWERS[_i].body);
    ck_assert_int_eq(screen(ctx, subject), ANSWERS[_i].status);
    if (ANSWERS[_i].says)
        ck_assert_msg(strstr(kvf_ctx_error(ctx), ANSWERS[_i].says) != NULL, "%s",
                      kvf_ctx_error(ctx));
}
END_TEST

START_TEST(core_once)
{
    write_program("echo ok");
    ck_assert_int_eq(screen(ctx, subject), KVF_OK);
    write_program("exit 1");
    ck_assert_int_eq(screen(ctx, subject), KVF_OK); /* not tried again */
    put_file(subject, "another file");
    ck_assert_int_eq(screen(ctx, subject), KVF_EFORMAT);
    pass(subject);
    ck_assert_int_eq(screen(ctx, subject), KVF_OK);
}
END_TEST

/* The same number of bytes, and the time of writing restored. */
START_TEST(core_times_set_back)
{
    struct stat before;
    write_program("echo ok");
    ck_assert_int_eq(screen(ctx, subject), KVF_OK);
    write_program("exit 1");
    ck_assert_int_eq(stat(subject, &before), 0);
    put_file(subject, "b file");
    ck_assert_int_eq(
        utimensat(AT_FDCWD, subject, (struct timespec[]){before.st_atim, before.st_mtim}, 0), 0);
    ck_assert_int_eq(screen(ctx, subject), KVF_EFORMAT);
}
END_TEST

/* The program reads the opened file even if the path is replaced; messages name the path. */
START_TEST(core_another_at_the_path)
{
    write_program("[ \"$(cat \"$2\")\" = 'a file' ] && echo \"4 $2: is the first\"");
    kvf__check check;
    kvf__mapfile map = {0};
    ck_assert_int_eq(kvf__mapfile_open(ctx, subject, &map), KVF_OK);
    unlink(subject);
    put_file(subject, "another file");
    ck_assert_int_eq(kvf__check_begin(ctx, &map, &check), KVF_OK);
    ck_assert_int_eq(kvf__check_end(ctx, &check), KVF_EFORMAT);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "/file.h5: is the first"));
    kvf__mapfile_close(&map);
}
END_TEST

/* A dropped check ends at once without a result, and may be dropped again. */
START_TEST(core_dropped)
{
    kvf__check check;
    kvf__mapfile map = {0};
    double begin = kvf__clock();
    write_program("exec sleep 60");
    ck_assert_int_eq(kvf__mapfile_open(ctx, subject, &map), KVF_OK);
    ck_assert_int_eq(kvf__check_begin(ctx, &map, &check), KVF_OK);
    ck_assert_int_gt(check.process, 0);
    kvf__check_drop(&check);
    ck_assert_int_eq(check.process, 0);
    kvf__check_drop(&check);
    kvf__mapfile_close(&map);
    ck_assert_double_lt(kvf__clock() - begin, 30);
    write_program("exit 1");
    ck_assert_int_eq(screen(ctx, subject), KVF_EFORMAT);
}
END_TEST

START_TEST(limits_none_or_missing)
{
    kvf_ctx *plain = NULL;
    ck_assert_int_eq(screen(ctx, subject), KVF_EIO); /* there is no program */
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "No such file or directory"));
    ck_assert_int_eq(kvf_ctx_create(NULL, &plain), KVF_OK);
    ck_assert_int_eq(screen(plain, subject), KVF_OK);
    kvf_ctx_free(plain);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sandbox");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, core_answers, 0, sizeof ANSWERS / sizeof ANSWERS[0]);
    tcase_add_test(tcase, core_once);
    tcase_add_test(tcase, core_times_set_back);
    tcase_add_test(tcase, core_another_at_the_path);
    tcase_add_test(tcase, core_dropped);
    tcase_add_test(tcase, limits_none_or_missing);
    suite_add_tcase(suite, tcase);
    return ck_main(suite);
}
