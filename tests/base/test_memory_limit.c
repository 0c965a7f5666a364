/* Available memory: limits of the system, and of control groups of both versions, in folders made
 * by the test. */
#include "ck.h"
#include "ctx_int.h"

#include <limits.h>
#include <sys/resource.h>
#include <sys/stat.h>

#ifdef __SANITIZE_ADDRESS__ /* whose shadow memory exceeds any limit */
enum { SHADOWED = 1 };
#else
enum { SHADOWED = 0 };
#endif

static const char *dir;
static kvf_ctx *ctx;

static void setup(void)
{
    dir = ck_tmpdir();
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    for (char *slash = path + strlen(dir) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static int64_t room(const char *groups)
{
    char path[512];
    put("groups", groups);
    snprintf(path, sizeof path, "%s/groups", dir);
    return kvf__cgroup_bytes_left(dir, path);
}

/* Cached file pages do not count; the tightest limit of the group and its ancestors applies. */
START_TEST(groups_of_version_2)
{
    put("a/b/memory.max", "1000000\n");
    put("a/b/memory.current", "700000\n");
    put("a/b/memory.stat", "anon 600000\ninactive_file 60000\nactive_file 40000\n");
    ck_assert_int_eq(room("0::/a/b\n"), 400000);
    put("a/memory.max", "900000\n");
    put("a/memory.current", "750000\n");
    ck_assert_int_eq(room("0::/a/b\n"), 150000);
    put("a/memory.max", "max\n");
    ck_assert_int_eq(room("0::/a/b\n"), 400000);
    put("a/b/memory.current", "1100001\n");
    ck_assert_int_eq(room("0::/a/b\n"), 0);
    ck_assert(room("0::/\n") == INT64_MAX);
}
END_TEST

/* A container sees its own group at the root, under any name on the host. */
START_TEST(groups_of_version_1)
{
    put("memory/memory.limit_in_bytes", "5000\n");
    put("memory/memory.usage_in_bytes", "3000\n");
    put("memory/memory.stat", "cache 7\ntotal_inactive_file 500\ntotal_active_file 0\n");
    ck_assert_int_eq(room("9:name=systemd:/x\n4:memory:/docker/1234\n0::/\n"), 2500);
    ck_assert(room("9:cpu:/x\n") == INT64_MAX);
}
END_TEST

/* Swap is of use to a process, huge pages are not. */
START_TEST(memory_of_the_machine)
{
    char path[512];
    snprintf(path, sizeof path, "%s/meminfo", dir);
    ck_assert(kvf__machine_bytes_left(path) == INT64_MAX);
    put("meminfo", "MemTotal:       24684092 kB\nMemFree:        5 kB\n");
    ck_assert(kvf__machine_bytes_left(path) == INT64_MAX);
    put("meminfo", "MemTotal: 900 kB\nMemFree: 5 kB\nMemAvailable:    700 kB\n"
                   "SwapCached: 9 kB\nSwapFree:       20 kB\nHugePages_Free:    3\n");
    ck_assert_int_eq(kvf__machine_bytes_left(path), 720 * 1024);
}
END_TEST

START_TEST(what_is_refused_is_seen_before)
{
    const struct rlimit limit = {(rlim_t)256 << 20, (rlim_t)256 << 20};
    ck_assert(kvf__memory_allows(64 << 20));
    ck_assert_int_eq(setrlimit(RLIMIT_DATA, &limit), 0);
    ck_assert(!kvf__memory_allows((size_t)300 << 20));
    ck_assert(kvf__memory_allows(8 << 20));
    ck_assert(!kvf__memory_allows(SIZE_MAX / 2));
}
END_TEST

START_TEST(stacks_of_threads_have_room_or_a_line)
{
    const struct rlimit limit = {(rlim_t)64 << 20, (rlim_t)64 << 20};
    const kvf_ctx_options many = {.threads = 512};
    kvf_ctx *crowd = NULL;
    ck_assert_int_eq(kvf_ctx_create(&many, &crowd), KVF_OK);
    ck_assert_int_eq(kvf__memory_allows_threads(ctx), KVF_OK);
    ck_assert_int_eq(setrlimit(RLIMIT_DATA, &limit), 0);
    ck_assert_int_eq(kvf__memory_allows_threads(crowd), KVF_ENOMEM);
    ck_assert(strstr(kvf_ctx_error(crowd), "the stacks of 511 more threads take "));
    ck_assert_int_eq(kvf__memory_allows_threads(crowd), KVF_OK); /* checked only once */
    kvf_ctx_free(crowd);
}
END_TEST

START_TEST(a_context_remembers_what_was_done)
{
    ck_assert(kvf__ctx_first(ctx, KVF__ONCE_SGEMM));
    ck_assert(!kvf__ctx_first(ctx, KVF__ONCE_SGEMM));
    ck_assert(kvf__ctx_first(NULL, KVF__ONCE_SGEMM));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("memory_limit");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, groups_of_version_2);
    tcase_add_test(core, groups_of_version_1);
    tcase_add_test(core, memory_of_the_machine);
    if (!SHADOWED) {
        tcase_add_test(core, what_is_refused_is_seen_before);
        tcase_add_test(core, stacks_of_threads_have_room_or_a_line);
    }
    tcase_add_test(core, a_context_remembers_what_was_done);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
