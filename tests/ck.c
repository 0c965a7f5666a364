/* Helpers of the tests; see ck.h. Check 0.15 has no array comparison with tolerances. */
#include "ck.h"

#include <ftw.h>
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void ck_close_at(const char *file, int line, const char *what, const float *got, const float *want,
                 size_t n, double rtol, double atol)
{
    size_t first = n, bad = 0;
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double error = fabs((double)got[i] - (double)want[i]);
        if (error <= atol + rtol * fabs((double)want[i])) continue;
        if (first == n) first = i;
        if (!(error <= worst)) worst = error;
        bad++;
    }
    if (!bad) return;
    ck_abort_msg("%s:%d: %s: %zu of %zu differ, first [%zu] got %.9g want %.9g, worst error %.3g",
                 file, line, what, bad, n, first, (double)got[first], (double)want[first], worst);
}

double ck_rel_l2(const float *got, const float *want, size_t n)
{
    double diff = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        diff += d * d;
        norm += (double)want[i] * (double)want[i];
    }
    return sqrt(diff / (norm > 0 ? norm : 1));
}

/* Texts that live until the process ends stay in this list, or a leak checker reports them. */
struct kept {
    struct kept *next;
    char text[];
};
static struct kept *kept;

static char *path_of(const char *root, const char *name)
{
    size_t n = snprintf(NULL, 0, "%s/%s", root, name) + 1;
    struct kept *path = malloc(sizeof *path + n);
    ck_assert_ptr_nonnull(path);
    snprintf(path->text, n, "%s/%s", root, name);
    path->next = kept;
    kept = path;
    return path->text;
}

const char *ck_source(const char *name)
{
    return path_of(KVF_SOURCE_ROOT, name);
}

const char *ck_shared(const char *name)
{
    const char *root = getenv("KVF_SHARED");
    const char *path = path_of(root ? root : KVF_SOURCE_ROOT "/../shared", name);
    struct stat info;
    if (stat(path, &info) == 0) return path;
    return NULL;
}

/* Folders of ck_tmpdir. Each is removed by the process that made it (Check's child of one test, not
 * the runner). */
static struct kept *folders;
static pid_t folders_of;

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static void remove_folders(void)
{
    for (struct kept *dir = getpid() == folders_of ? folders : NULL; dir; dir = dir->next)
        nftw(dir->text, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void keep_folder(const char *path)
{
    size_t n = strlen(path) + 1;
    struct kept *dir = malloc(sizeof *dir + n);
    ck_assert_ptr_nonnull(dir);
    memcpy(dir->text, path, n);
    if (folders_of != getpid()) {
        folders = NULL;
        atexit(remove_folders);
    }
    folders_of = getpid();
    dir->next = folders;
    folders = dir;
}

const char *ck_tmpdir(void)
{
    const char *root = getenv("TMPDIR");
    char *dir = path_of(root ? root : "/tmp", "kvfold-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    keep_folder(dir);
    return dir;
}

#undef kvf_ctx_create
kvf_status ck_ctx_create(const kvf_ctx_options *options, kvf_ctx **out)
{
    const kvf_status st = kvf_ctx_create(options, out);
    if (!st) omp_set_num_threads(kvf_ctx_threads(*out));
    return st;
}

TCase *ck_case(Suite *suite, const char *name, SFun setup, SFun teardown, double seconds)
{
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, seconds);
    suite_add_tcase(suite, tcase);
    return tcase;
}

/* Check has no skipped tests; they are counted in memory shared by the forked children. */
static int *skipped;

void ck_skip(const char *what)
{
    printf("skipped: %s\n", what);
    fflush(stdout);
    if (skipped) ++*skipped;
}

/* True if the CPU lacks the level named by KVF_CPU. The test would repeat itself at the best
 * level. */
static bool level_is_missing(void)
{
#if defined __x86_64__
    const char *level = getenv("KVF_CPU");
    __builtin_cpu_init();
    if (level && !strcmp(level, "avx512")) return !__builtin_cpu_supports("avx512bw");
    if (level && !strcmp(level, "avx512_bf16")) return !__builtin_cpu_supports("avx512bf16");
#endif
    return false;
}

int ck_main(Suite *suite)
{
    enum { ALL_SKIPPED = 77 }; /* meson's exit status for skipped tests */
    if (level_is_missing()) {
        printf("skipped: this CPU has no %s\n", getenv("KVF_CPU"));
        return ALL_SKIPPED;
    }
    SRunner *runner = srunner_create(suite);
    void *shared = mmap(NULL, sizeof *skipped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
    skipped = shared == MAP_FAILED ? NULL : shared;
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner),
        left = skipped ? *skipped : 0;
    srunner_free(runner);
    printf("%d passed, %d failed, %d skipped\n", run - failed - left, failed, left);
    if (failed) return EXIT_FAILURE;
    return run && left == run ? ALL_SKIPPED : EXIT_SUCCESS;
}
