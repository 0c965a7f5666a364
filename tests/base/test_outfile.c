/* Tests of the files of src/base: mapping, reading, and output that appears complete or not at
 * all. */
#include "base_int.h"
#include "ck.h"
#include "infile.h"
#include "outfile.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static kvf_ctx *ctx;
static const char *dir;
static char *path; /* DIR/out */

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    dir = ck_tmpdir();
    ck_assert_int_eq(kvf__path_join(ctx, dir, "out", &path), KVF_OK);
}

/* Number of names in the folder; removes the files on request. */
static int count_names(bool remove_them)
{
    DIR *list = opendir(dir);
    int n = 0;

    ck_assert_ptr_nonnull(list);
    for (struct dirent *entry; (entry = readdir(list));) {
        if (entry->d_name[0] == '.') continue;
        n++;
        if (remove_them) {
            char *name = NULL;
            ck_assert_int_eq(kvf__path_join(ctx, dir, entry->d_name, &name), KVF_OK);
            ck_assert_int_eq(remove(name), 0);
            kvf__free(name);
        }
    }
    closedir(list);
    return n;
}

static void teardown(void)
{
    count_names(true);
    rmdir(dir);
    kvf__free(path);
    kvf_ctx_free(ctx);
}

static void put_file(const char *name, const char *text, size_t n)
{
    FILE *file = fopen(name, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
}

static void check_file(const char *name, const char *want)
{
    kvf__buf text = {0};
    ck_assert_int_eq(kvf__read_file(ctx, name, 1000, &text), KVF_OK);
    ck_assert_str_eq(text.data, want);
    kvf__buf_done(&text);
}

static void check_error(const char *part)
{
    const char *line = kvf_ctx_error(ctx);
    ck_assert_msg(strstr(line, part) != NULL, "\"%s\" does not say \"%s\"", line, part);
}

/* ---- reading --------------------------------------------------------------------------------- */

START_TEST(map_a_file)
{
    kvf__mapfile file = {0};

    put_file(path, "a\0bc", 4);
    ck_assert_int_eq(kvf__mapfile_open(ctx, path, &file), KVF_OK);
    ck_assert_uint_eq(file.n, 4);
    ck_assert_mem_eq(file.data, "a\0bc", 4);
    ck_assert_str_eq(file.path, path);
    kvf__mapfile_close(&file);
    ck_assert_ptr_null(file.data);
    kvf__mapfile_close(&file);
}
END_TEST

/* Released pages read the same again; an empty or closed map has nothing to release. */
START_TEST(forgotten_pages_come_back)
{
    kvf__mapfile file = {0};

    put_file(path, "a\0bc", 4);
    ck_assert_int_eq(kvf__mapfile_open(ctx, path, &file), KVF_OK);
    ck_assert_mem_eq(file.data, "a\0bc", 4);
    kvf__mapfile_forget(&file);
    ck_assert_mem_eq(file.data, "a\0bc", 4);
    kvf__mapfile_close(&file);
    kvf__mapfile_forget(&file);
}
END_TEST

/* The pages are released from memory; bytes outside the map are not touched. */
START_TEST(read_beside_the_map)
{
    kvf__mapfile file = {0};
    char got[4] = "";

    ck_assert(!kvf__mapfile_read(&file, got, 1, got));
    put_file(path, "a\0bc", 4);
    ck_assert_int_eq(kvf__mapfile_open(ctx, path, &file), KVF_OK);
    ck_assert(kvf__mapfile_read(&file, file.data, 4, got));
    ck_assert_mem_eq(got, "a\0bc", 4);
    ck_assert(kvf__mapfile_read(&file, file.data + 2, 2, got));
    ck_assert_mem_eq(got, "bcbc", 4);
    ck_assert(!kvf__mapfile_read(&file, file.data + 2, 3, got));
    ck_assert(!kvf__mapfile_read(&file, file.data - 1, 2, got));
    ck_assert(!kvf__mapfile_read(&file, got, 1, got));
    put_file(path, "", 0); /* cut short while it is mapped */
    ck_assert(!kvf__mapfile_read(&file, file.data, 4, got));
    kvf__mapfile_close(&file);
}
END_TEST

START_TEST(made_without_a_name)
{
    kvf__mapfile file = {0};
    char got[3] = "";

    setenv("TMPDIR", dir, 1);
    ck_assert_int_eq(kvf__mapfile_make(ctx, "a\0b", 3, &file), KVF_OK);
    ck_assert_uint_eq(file.n, 3);
    ck_assert_mem_eq(file.data, "a\0b", 3);
    ck_assert(kvf__mapfile_read(&file, file.data, 3, got));
    ck_assert_mem_eq(got, "a\0b", 3);
    ck_assert(!kvf__exists(file.path));
    kvf__mapfile_close(&file);
    setenv("TMPDIR", "/no/such/folder", 1);
    ck_assert_int_eq(kvf__mapfile_make(ctx, "a", 1, &file), KVF_EIO);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "/no/such/folder/kvfold-"));
}
END_TEST

START_TEST(map_an_empty_file)
{
    kvf__mapfile file = {0};

    put_file(path, "", 0);
    ck_assert_int_eq(kvf__mapfile_open(ctx, path, &file), KVF_OK);
    ck_assert_uint_eq(file.n, 0);
    kvf__mapfile_forget(&file);
    kvf__mapfile_close(&file);
}
END_TEST

START_TEST(map_refuses)
{
    kvf__mapfile file = {0};

    ck_assert_int_eq(kvf__mapfile_open(ctx, path, &file), KVF_EIO);
    check_error("/out: cannot open: No such file");
    ck_assert_int_eq(kvf__mapfile_open(ctx, dir, &file), KVF_EIO);
    check_error("is a folder");
    ck_assert_int_eq(kvf__mapfile_open(ctx, "/dev/null", &file), KVF_EIO);
    check_error("/dev/null: is not a regular file");
    ck_assert_ptr_null(file.path);
}
END_TEST

START_TEST(read_with_limit)
{
    kvf__buf text = {0};

    put_file(path, "a\0bcd", 5);
    ck_assert_int_eq(kvf__read_file(ctx, path, 5, &text), KVF_OK);
    ck_assert_uint_eq(text.n, 5);
    ck_assert_mem_eq(text.data, "a\0bcd", 6);
    kvf__buf_done(&text);
    ck_assert_int_eq(kvf__read_file(ctx, path, 4, &text), KVF_EFORMAT);
    check_error("longer than 4 bytes");
    ck_assert_int_eq(kvf__read_file(ctx, "/dev/zero", 1000, &text), KVF_EFORMAT);
    ck_assert_int_eq(kvf__read_file(ctx, dir, 1000, &text), KVF_EIO);
    ck_assert_int_eq(kvf__read_file(ctx, "", 1000, &text), KVF_EIO);
    ck_assert_ptr_null(text.data);
    put_file(path, "", 0);
    ck_assert_int_eq(kvf__read_file(ctx, path, 0, &text), KVF_OK);
    ck_assert_str_eq(text.data, "");
    kvf__buf_done(&text);
}
END_TEST

START_TEST(read_a_long_file)
{
    enum { N = 300000 };
    kvf__buf text = {0};
    char *bytes = NULL;

    ck_assert_int_eq(kvf__alloc(ctx, N, &bytes), KVF_OK);
    for (size_t i = 0; i < N; i++)
        bytes[i] = (char)(i * 7 % 253);
    put_file(path, bytes, N);
    ck_assert_int_eq(kvf__read_file(ctx, path, N, &text), KVF_OK);
    ck_assert_uint_eq(text.n, N);
    ck_assert_mem_eq(text.data, bytes, N);
    kvf__buf_done(&text);
    kvf__free(bytes);
}
END_TEST

/* A hard link is the same file. */
START_TEST(a_mapped_file_is_not_replaced)
{
    kvf__mapfile file = {0}, again = {0};
    kvf__appendfile log = {0};
    char *linked = NULL;

    put_file(path, "read", 4);
    ck_assert_int_eq(kvf__asprintf(ctx, &linked, "%s-2", path), KVF_OK);
    ck_assert_int_eq(link(path, linked), 0);
    ck_assert_int_eq(kvf__mapfile_open(ctx, path, &file), KVF_OK);
    ck_assert_int_eq(kvf__mapfile_open(ctx, linked, &again), KVF_OK);
    for (int open = 2; open > 0; open--) {
        ck_assert_int_eq(kvf__write_file(ctx, linked, true, "new", 3), KVF_EUSAGE);
        ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "is open for reading"));
        ck_assert_int_eq(kvf__appendfile_open(ctx, path, KVF__APPEND_REPLACE, &log), KVF_EUSAGE);
        kvf__mapfile_close(open == 2 ? &file : &again);
    }
    ck_assert_int_eq(kvf__write_file(ctx, linked, true, "new", 3), KVF_OK);
    check_file(path, "read");
    kvf__free(linked);
}
END_TEST

START_TEST(look_at_paths)
{
    char *joined = NULL;

    put_file(path, "x", 1);
    ck_assert(kvf__is_dir(dir) && kvf__exists(dir));
    ck_assert(!kvf__is_dir(path) && kvf__exists(path));
    ck_assert(!kvf__is_dir("") && !kvf__exists(""));
    ck_assert_int_eq(kvf__path_join(ctx, "a/", "b", &joined), KVF_OK);
    ck_assert_str_eq(joined, "a/b");
    kvf__free(joined);
    ck_assert_int_eq(kvf__path_join(ctx, "/", "b", &joined), KVF_OK);
    ck_assert_str_eq(joined, "/b");
    kvf__free(joined);
    ck_assert_int_eq(kvf__path_join(ctx, "", "b", &joined), KVF_OK);
    ck_assert_str_eq(joined, "b");
    kvf__free(joined);
}
END_TEST

/* ---- output ---------------------------------------------------------------------------------- */

START_TEST(commit_moves_into_place)
{
    kvf__outfile out = {0};

    ck_assert_int_eq(kvf__outfile_begin(ctx, path, false, &out), KVF_OK);
    ck_assert_int_eq(count_names(false), 1); /* the temporary */
    put_file(out.temp, "new", 3);
    ck_assert(!kvf__exists(path));
    ck_assert_int_eq(kvf__outfile_commit(ctx, &out), KVF_OK);
    check_file(path, "new");
    kvf__outfile_abort(&out);
    check_file(path, "new");
    ck_assert_int_eq(count_names(false), 1);
}
END_TEST

START_TEST(abort_leaves_nothing)
{
    kvf__outfile out = {0};

    put_file(path, "old", 3);
    ck_assert_int_eq(kvf__outfile_begin(ctx, path, true, &out), KVF_OK);
    put_file(out.temp, "half", 4);
    kvf__outfile_abort(&out);
    kvf__outfile_abort(&out);
    check_file(path, "old");
    ck_assert_int_eq(count_names(false), 1);
}
END_TEST

/* Called like a signal handler that then ends the process. */
START_TEST(outputs_are_dropped)
{
    kvf__outfile out[2] = {{0}};
    char *second = NULL;

    put_file(path, "old", 3);
    ck_assert_int_eq(kvf__asprintf(ctx, &second, "%s-2", path), KVF_OK);
    ck_assert_int_eq(kvf__outfile_begin(ctx, path, true, &out[0]), KVF_OK);
    ck_assert_int_eq(kvf__outfile_begin(ctx, second, true, &out[1]), KVF_OK);
    put_file(out[0].temp, "half", 4);
    put_file(out[1].temp, "half", 4);
    ck_assert_int_eq(count_names(false), 3);
    kvf__ctx_drop_outputs(ctx);
    check_file(path, "old");
    ck_assert_int_eq(count_names(false), 1);
    ck_assert_int_eq(kvf__outfile_commit(ctx, &out[0]), KVF_EIO);
    put_file(out[1].temp, "theirs", 6);
    kvf__outfile_abort(&out[1]);
    kvf__ctx_drop_outputs(ctx); /* their names are not known any more */
    check_file(path, "old");
    ck_assert_int_eq(count_names(false), 2); /* a file that took the temporary's name stays */
    kvf__free(second);
}
END_TEST

START_TEST(existing_needs_force)
{
    kvf__outfile out = {0};

    put_file(path, "old", 3);
    ck_assert_int_eq(kvf__outfile_begin(ctx, path, false, &out), KVF_EEXIST);
    check_error("/out: exists (use --force to replace it)");
    ck_assert_ptr_null(out.path);
    ck_assert_int_eq(kvf__write_file(ctx, path, false, "new", 3), KVF_EEXIST);
    check_file(path, "old");
    ck_assert_int_eq(kvf__write_file(ctx, path, true, "new", 3), KVF_OK);
    check_file(path, "new");
    ck_assert_int_eq(count_names(false), 1);
}
END_TEST

START_TEST(a_link_to_nothing_needs_force)
{
    kvf__outfile out = {0};

    ck_assert_int_eq(symlink("nowhere", path), 0);
    ck_assert_int_eq(kvf__outfile_begin(ctx, path, false, &out), KVF_EEXIST);
    check_error("/out: is a link to a file that is not there (use --force to replace it)");
    ck_assert_int_eq(kvf__write_file(ctx, path, true, "new", 3), KVF_OK);
    check_file(path, "new");
}
END_TEST

/* A file of another program that appeared during a long run is kept. */
START_TEST(file_appears_before_commit)
{
    kvf__outfile out = {0};

    ck_assert_int_eq(kvf__outfile_begin(ctx, path, false, &out), KVF_OK);
    put_file(out.temp, "ours", 4);
    put_file(path, "theirs", 6);
    ck_assert_int_eq(kvf__outfile_commit(ctx, &out), KVF_EEXIST);
    check_error("exists (use --force");
    check_file(path, "theirs");
    ck_assert_int_eq(count_names(false), 1);
}
END_TEST

START_TEST(refused_targets)
{
    kvf__outfile out = {0};
    char *below = NULL;

    ck_assert_int_eq(kvf__outfile_begin(ctx, "", false, &out), KVF_EUSAGE);
    ck_assert_int_eq(kvf__outfile_begin(ctx, dir, true, &out), KVF_EIO);
    check_error("is a folder");
    ck_assert_int_eq(kvf__outfile_begin(ctx, "/dev/null", true, &out), KVF_EIO);
    check_error("/dev/null: is not a regular file");
    ck_assert_int_eq(kvf__path_join(ctx, path, "deeper", &below), KVF_OK);
    ck_assert_int_eq(kvf__outfile_begin(ctx, below, false, &out), KVF_EIO);
    check_error("/out/deeper: cannot write: No such file");
    put_file(path, "a file, no folder", 17);
    ck_assert_int_eq(kvf__outfile_begin(ctx, below, false, &out), KVF_EIO);
    check_error("Not a directory");
    ck_assert_ptr_null(out.temp);
    kvf__free(below);
}
END_TEST

/* Root may write anywhere, so the test drops its rights for the attempt. */
/* The same file by its own name, by a link, or by another path; false for other or missing
 * files. */
START_TEST(inputs_are_not_replaced)
{
    char *link_name = NULL, *other = NULL, *config = NULL;
    put_file(path, "x", 1);
    ck_assert_int_eq(kvf__path_join(ctx, dir, "link", &link_name), KVF_OK);
    ck_assert_int_eq(kvf__path_join(ctx, dir, "other", &other), KVF_OK);
    ck_assert_int_eq(symlink("out", link_name), 0);
    ck_assert_int_eq(kvf__check_not_input(ctx, path, path), KVF_EUSAGE);
    ck_assert_int_eq(kvf__check_not_input(ctx, path, link_name), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "it will not be replaced"));
    ck_assert_int_eq(kvf__check_not_input(ctx, path, other), KVF_OK);
    ck_assert_int_eq(kvf__check_not_input(ctx, other, path), KVF_OK);
    char spelling[4096];
    snprintf(spelling, sizeof spelling, "name=%s", link_name);
    ck_assert_int_eq(kvf__check_not_input(ctx, path, spelling), KVF_EUSAGE);
    snprintf(spelling, sizeof spelling, "@%s", path);
    ck_assert_int_eq(kvf__check_not_input(ctx, path, spelling), KVF_EUSAGE);
    ck_assert_int_eq(kvf__check_not_input(ctx, path, NULL), KVF_OK);
    ck_assert_int_eq(kvf__check_not_input(ctx, dir, dir), KVF_OK); /* has its own line */
    put_file(other, "x", 1);
    ck_assert_int_eq(kvf__check_not_input(ctx, path, other), KVF_OK);
    ck_assert_int_eq(kvf__check_not_input(ctx, other, dir), KVF_OK); /* no model's file */
    ck_assert_int_eq(kvf__path_join(ctx, dir, "config.json", &config), KVF_OK);
    ck_assert_int_eq(kvf__check_not_input(ctx, config, dir), KVF_OK); /* not there yet */
    ck_assert_int_eq(symlink("out", config), 0);
    ck_assert_int_eq(kvf__check_not_input(ctx, config, dir), KVF_EUSAGE);
    ck_assert_int_eq(kvf__check_not_input(ctx, path, dir), KVF_EUSAGE); /* the link's target */
    kvf__free(config);
    kvf__free(link_name);
    kvf__free(other);
}
END_TEST

START_TEST(unwritable_folder)
{
    kvf__outfile out = {0};
    bool root = geteuid() == 0;
    kvf_status st;

    ck_assert_int_eq(chmod(dir, 0555), 0);
    if (root) ck_assert_int_eq(seteuid(65534), 0);
    st = kvf__outfile_begin(ctx, path, false, &out);
    if (root) ck_assert_int_eq(seteuid(0), 0);
    ck_assert_int_eq(chmod(dir, 0755), 0);
    ck_assert_int_eq(st, KVF_EIO);
    check_error("/out: cannot write: Permission denied");
}
END_TEST

START_TEST(name_too_long)
{
    kvf__outfile out = {0};
    char name[252];
    char *longest = NULL;

    memset(name, 'n', sizeof name); /* legal itself, too long with the temporary's ending */
    name[sizeof name - 1] = '\0';
    ck_assert_int_eq(kvf__path_join(ctx, dir, name, &longest), KVF_OK);
    ck_assert_int_eq(kvf__outfile_begin(ctx, longest, false, &out), KVF_EIO);
    check_error("File name too long");
    kvf__free(longest);
}
END_TEST

/* A file size limit simulates a full disk: the write fails half way. */
START_TEST(disk_runs_full)
{
    static const char bytes[100000];
    struct rlimit limit = {.rlim_cur = 50000, .rlim_max = RLIM_INFINITY}, before;

    put_file(path, "old", 3);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(kvf__write_file(ctx, path, true, bytes, sizeof bytes), KVF_EIO);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    check_error("cannot write: File too large");
    check_file(path, "old");
    ck_assert_int_eq(count_names(false), 1);
}
END_TEST

START_TEST(temporary_gone)
{
    kvf__outfile out = {0};

    ck_assert_int_eq(kvf__outfile_begin(ctx, path, false, &out), KVF_OK);
    ck_assert_int_eq(unlink(out.temp), 0);
    ck_assert_int_eq(kvf__outfile_commit(ctx, &out), KVF_EIO);
    check_error("removed or replaced its temporary file");
    ck_assert_int_eq(count_names(false), 0);
    ck_assert_ptr_null(out.path);
}
END_TEST

/* Two writers of one path use separate temporaries; the last to finish replaces the whole file. */
START_TEST(two_writers)
{
    kvf__outfile a = {0}, b = {0};

    ck_assert_int_eq(kvf__outfile_begin(ctx, path, true, &a), KVF_OK);
    ck_assert_int_eq(kvf__outfile_begin(ctx, path, true, &b), KVF_OK);
    ck_assert_str_ne(a.temp, b.temp);
    ck_assert_int_eq(kvf__write_all(ctx, path, a.fd, "first", 5), KVF_OK);
    ck_assert_int_eq(kvf__write_all(ctx, path, b.fd, "second", 6), KVF_OK);
    ck_assert_int_eq(kvf__outfile_commit(ctx, &b), KVF_OK);
    check_file(path, "second");
    ck_assert_int_eq(kvf__outfile_commit(ctx, &a), KVF_OK);
    check_file(path, "first");
    ck_assert_int_eq(count_names(false), 1);
}
END_TEST

/* A link in place of the temporary is not followed and not renamed; it stays. */
START_TEST(temporary_replaced_by_link)
{
    kvf__outfile out = {0};
    char victim[4096];

    snprintf(victim, sizeof victim, "%s/victim", dir);
    put_file(victim, "mine", 4);
    ck_assert_int_eq(kvf__outfile_begin(ctx, path, false, &out), KVF_OK);
    ck_assert_int_eq(unlink(out.temp), 0);
    ck_assert_int_eq(symlink(victim, out.temp), 0);
    ck_assert_int_eq(kvf__write_all(ctx, path, out.fd, "new", 3), KVF_OK);
    ck_assert_int_eq(kvf__outfile_commit(ctx, &out), KVF_EIO);
    check_file(victim, "mine");
    ck_assert(!kvf__exists(path));
    ck_assert_int_eq(count_names(false), 2);
}
END_TEST

START_TEST(relative_path_and_mode)
{
    struct stat info;

    ck_assert_int_eq(chdir(dir), 0);
    umask(027);
    ck_assert_int_eq(kvf__write_file(ctx, "here", false, "x", 1), KVF_OK);
    check_file("here", "x");
    ck_assert_int_eq(stat("here", &info), 0);
    ck_assert_int_eq(info.st_mode & 0777, 0640);
    ck_assert_int_eq(kvf__write_file(ctx, "empty", false, NULL, 0), KVF_OK);
    check_file("empty", "");
    ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

START_TEST(every_allocation_fails_once)
{
    kvf_status st = KVF_ENOMEM;
    int n;

    for (n = 0; st && n < 100; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        st = kvf__write_file(ctx, path, false, "new", 3);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        ck_assert_int_eq(count_names(false), st == KVF_OK);
    }
    ck_assert_int_gt(n, 3);
    for (st = KVF_ENOMEM, n = 0; st && n < 100; n++) {
        kvf__buf text = {0};
        kvf__mapfile file = {0};
        kvf__ctx_fail_allocation(ctx, n);
        st = kvf__read_file(ctx, path, 100, &text);
        if (!st) st = kvf__mapfile_open(ctx, path, &file);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        kvf__buf_done(&text);
        kvf__mapfile_close(&file);
    }
    ck_assert_int_gt(n, 2);
    kvf__ctx_fail_allocation(ctx, -1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("outfile");
    TCase *core = ck_case(suite, "core", setup, teardown, 30);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 30);

    tcase_add_test(core, map_a_file);
    tcase_add_test(core, forgotten_pages_come_back);
    tcase_add_test(core, read_beside_the_map);
    tcase_add_test(core, made_without_a_name);
    tcase_add_test(core, map_an_empty_file);
    tcase_add_test(core, read_with_limit);
    tcase_add_test(core, read_a_long_file);
    tcase_add_test(core, a_mapped_file_is_not_replaced);
    tcase_add_test(core, look_at_paths);
    tcase_add_test(core, commit_moves_into_place);
    tcase_add_test(core, abort_leaves_nothing);
    tcase_add_test(core, outputs_are_dropped);
    tcase_add_test(core, two_writers);
    tcase_add_test(core, temporary_replaced_by_link);
    tcase_add_test(core, relative_path_and_mode);
    tcase_add_test(errors, map_refuses);
    tcase_add_test(errors, existing_needs_force);
    tcase_add_test(errors, a_link_to_nothing_needs_force);
    tcase_add_test(errors, file_appears_before_commit);
    tcase_add_test(errors, refused_targets);
    tcase_add_test(errors, inputs_are_not_replaced);
    tcase_add_test(errors, unwritable_folder);
    tcase_add_test(errors, name_too_long);
    tcase_add_test(errors, disk_runs_full);
    tcase_add_test(errors, temporary_gone);
    tcase_add_test(errors, every_allocation_fails_once);
    return ck_main(suite);
}
