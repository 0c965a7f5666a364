/* Output folders are replaced completely or not at all. */
#include "base_int.h"
#include "ck.h"
#include "infile.h"
#include "outfile.h"
#include "outfolder.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static kvf_ctx *ctx;
static char folder[256], path[512];

static void setup(void)
{
    snprintf(folder, sizeof folder, "%s", ck_tmpdir());
    snprintf(path, sizeof path, "%s/out", folder);
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static const char *in(const char *name)
{
    static char text[1024];
    snprintf(text, sizeof text, "%s/%s", path, name);
    return text;
}

static void put(const char *name, const char *text)
{
    ck_assert_int_eq(kvf__write_file(ctx, in(name), true, text, strlen(text)), KVF_OK);
}

static void check(const char *name, const char *want)
{
    kvf__buf text = {0};
    ck_assert_msg(!kvf__read_file(ctx, in(name), 100, &text), "%s", kvf_ctx_error(ctx));
    ck_assert_str_eq(text.data, want);
    kvf__buf_done(&text);
}

static kvf_status write_new(kvf_ctx *c, const char *to, bool force, const void *content)
{
    return kvf__write_file(c, to, force, content, strlen(content));
}

static kvf_status refuse(kvf_ctx *c, const char *to, bool force, const void *content)
{
    (void)force;
    (void)content;
    return kvf__fail(c, KVF_EIO, "%s: no", to);
}

static kvf_status leave_out(kvf_ctx *c, const char *to, bool force, const void *content)
{
    (void)force;
    (void)content;
    return kvf__remove_file(c, to);
}

static const kvf__folder_file GOOD[] = {{"a", write_new}, {"gone", leave_out}, {"b", write_new}},
                              BAD[] = {{"a", write_new}, {"b", refuse}};
static const kvf__folder WHOLE = {GOOD, 3, "files"}, HALF = {BAD, 2, "files"};

/* Checks that no other folder remains beside it. */
static void check_alone(void)
{
    struct stat info;
    ck_assert_int_eq(stat(folder, &info), 0);
    ck_assert_uint_eq(info.st_nlink, (nlink_t)(2 + kvf__exists(path)));
}

START_TEST(a_new_one)
{
    ck_assert_int_eq(kvf__write_folder(ctx, path, false, &HALF, "x"), KVF_EIO);
    ck_assert(!kvf__exists(path));
    check_alone();
    ck_assert_int_eq(kvf__write_folder(ctx, path, false, &WHOLE, "x"), KVF_OK);
    check("a", "x");
    check("b", "x");
    ck_assert_int_eq(kvf__write_folder(ctx, path, false, &WHOLE, "y"), KVF_EEXIST);
    check("a", "x");
    check_alone();
}
END_TEST

/* Files of the export are replaced together; other files keep their contents. */
START_TEST(one_that_is_there)
{
    struct stat before, after;
    ck_assert_int_eq(mkdir(path, 0750), 0);
    ck_assert_int_eq(mkdir(in("sub"), 0700), 0);
    put("sub/mine", "deep");
    put("mine", "top");
    put("a", "old");
    put("b", "old");
    put("gone", "old");
    ck_assert_int_eq(symlink("nowhere", in("link")), 0);
    ck_assert_int_eq(stat(in("mine"), &before), 0);

    ck_assert_int_eq(kvf__write_folder(ctx, path, true, &HALF, "new"), KVF_EIO);
    check("a", "old"); /* though it was written before b failed */
    check("b", "old");
    check_alone();

    ck_assert_int_eq(kvf__write_folder(ctx, path, true, &WHOLE, "new"), KVF_OK);
    check("a", "new");
    check("b", "new");
    check("mine", "top");
    check("sub/mine", "deep");
    ck_assert(!kvf__exists(in("gone")));
    ck_assert_int_eq(stat(in("mine"), &after), 0);
    ck_assert(before.st_ino == after.st_ino && after.st_nlink == 1);
    ck_assert_int_eq(lstat(in("link"), &after), 0);
    ck_assert_int_eq(stat(path, &after), 0);
    ck_assert_int_eq(after.st_mode & 07777, 0750);
    check_alone();
}
END_TEST

/* A link to the folder, a slash at its end, and the working folder are the same folder. */
START_TEST(other_spellings)
{
    char link[512], slash[600];
    ck_assert_int_eq(mkdir(path, 0700), 0);
    put("a", "old");
    snprintf(link, sizeof link, "%s/link", folder);
    snprintf(slash, sizeof slash, "%s/", path);
    ck_assert_int_eq(symlink("out", link), 0);
    ck_assert_int_eq(kvf__write_folder(ctx, link, true, &WHOLE, "1"), KVF_OK);
    check("a", "1");
    ck_assert_int_eq(kvf__write_folder(ctx, slash, true, &WHOLE, "2"), KVF_OK);
    check("a", "2");
    ck_assert_int_eq(chdir(path), 0);
    ck_assert_int_eq(kvf__write_folder(ctx, ".", true, &WHOLE, "3"), KVF_OK);
    ck_assert_int_eq(chdir("/"), 0);
    check("a", "3");
    check_alone();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("outfolder");
    TCase *core = ck_case(suite, "core", setup, teardown, 20);
    tcase_add_test(core, a_new_one);
    tcase_add_test(core, one_that_is_there);
    tcase_add_test(core, other_spellings);
    return ck_main(suite);
}
