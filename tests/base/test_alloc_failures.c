/* Makes every allocation of the main paths fail in turn. Each failure gives the same status and one
 * error line, leaves no output and no temporary file, and leaks nothing (checked by a sanitizer).
 * Only allocations of the context are counted: jansson, HDF5 and oneDNN use their own, and oneDNN
 * ends the process if one fails. The paths therefore also run under rising limits of the process's
 * data size. Checks made beforehand must then end each path with a status. All memory of the
 * context comes from the caller's allocator, if it has one. */
#include <kvfold/kvfold.h>

#include "kernels_int.h"
#include "toy_base.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static kvf_ctx *ctx;
static const char *dir;
static char base[512], data[512], out[512], run[512], prefix[512];

/* A run and its prefix, made before any failure. */
static void setup(void)
{
    kvf_ctx_options options = {.threads = 1};
    kvf_train_options o = kvf_train_defaults();
    kvf_train_result trained;
    kvf_merge_result merged;

    dir = ck_tmpdir();
    toy_path(base, dir, "base");
    toy_path(data, dir, "train.jsonl");
    toy_path(out, dir, "out");
    toy_path(run, dir, "run.h5");
    toy_path(prefix, dir, "prefix.h5");
    ck_assert_int_eq(mkdir(base, 0777), 0);
    toy_folder(base, 5, 0);
    toy_rows(dir, "train.jsonl", 6, 0);
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
    o.base = base;
    o.data = data;
    o.out = run;
    o.prefix_length = 2;
    o.encoder_hidden = 8;
    o.steps = 1;
    o.precision = KVF_PRECISION_F32;
    ck_assert_int_eq(kvf_train(ctx, &o, &trained), KVF_OK);
    const kvf_merge_options merge = {.run = run, .out = prefix};
    ck_assert_int_eq(kvf_merge(ctx, &merge, &merged), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

/* ---- paths ----------------------------------------------------------------------------------- */

static kvf_status open_base(kvf_base **opened)
{
    const kvf_base_options options = {.precision = KVF_PRECISION_F32};
    return kvf_base_open(ctx, base, &options, opened);
}

static kvf_status path_open(void)
{
    kvf_base *opened = NULL;
    KVF_TRY(open_base(&opened));
    kvf_base_free(opened);
    return KVF_OK;
}

static kvf_status path_train(void)
{
    kvf_train_options o = kvf_train_defaults();
    kvf_train_result result;
    o.base = base;
    o.data = o.valid = data;
    o.out = out;
    o.prefix_length = 2;
    o.encoder_hidden = 8;
    o.steps = 2;
    o.precision = KVF_PRECISION_F32;
    return kvf_train(ctx, &o, &result);
}

static kvf_status path_resume(void)
{
    kvf_train_options o = kvf_train_defaults();
    kvf_train_result result;
    o.base = base;
    o.data = data;
    o.out = run;
    o.resume = o.dry_run = true;
    o.steps = 1;
    return kvf_train(ctx, &o, &result);
}

static kvf_status path_merge(void)
{
    const kvf_merge_options options = {.run = run, .out = out, .base = base, .probe = data};
    kvf_merge_result result;
    return kvf_merge(ctx, &options, &result);
}

static kvf_status with_both(kvf_status (*use)(kvf_base *opened, kvf_prefix *loaded))
{
    kvf_base *opened = NULL;
    kvf_prefix *loaded = NULL;
    kvf_status st = open_base(&opened);
    if (!st) st = kvf_prefix_open(ctx, prefix, KVF_CHECKPOINT_DEFAULT, &loaded);
    if (!st) st = use(opened, loaded);
    kvf_prefix_free(loaded);
    kvf_base_free(opened);
    return st;
}

static kvf_status use_eval(kvf_base *opened, kvf_prefix *loaded)
{
    const kvf_eval_options options = {.data = data};
    kvf_eval_result result;
    return kvf_eval(ctx, opened, &loaded, 1, &options, &result);
}

static kvf_status path_eval(void)
{
    return with_both(use_eval);
}

static kvf_status use_generate(kvf_base *opened, kvf_prefix *loaded)
{
    kvf_generate_options options = kvf_generate_defaults();
    const char *prompts[] = {"w1:", "w2:"};
    char *texts[2] = {NULL, NULL};
    options.max_tokens = 3;
    KVF_TRY(kvf_generate(ctx, opened, loaded, prompts, 2, &options, texts, NULL));
    kvf_texts_free(texts, 2);
    return KVF_OK;
}

static kvf_status path_generate(void)
{
    return with_both(use_generate);
}

static kvf_status path_export(void)
{
    const kvf_export_options options = {.path = prefix, .out = out, .format = KVF_EXPORT_PEFT};
    return kvf_export(ctx, &options);
}

static kvf_status path_inspect(void)
{
    kvf_json *tree = NULL;
    KVF_TRY(kvf_inspect(ctx, run, &tree));
    kvf_json_free(tree);
    return KVF_OK;
}

static kvf_status path_import(void)
{
    static float zeros[3 * 16 * 4 * 2];
    char checkpoint[512], kind[16];
    kvf__tensor tensors[] = {
        {(char *)"embedding.weight", {.data = zeros, .rank = 2, .dim = {2, 16}}},
        {(char *)"transform.0.weight", {.data = zeros, .rank = 2, .dim = {4, 16}}},
        {(char *)"transform.0.bias", {.data = zeros, .rank = 1, .dim = {4}}},
        {(char *)"transform.2.weight", {.data = zeros, .rank = 2, .dim = {96, 4}}},
        {(char *)"transform.2.bias", {.data = zeros, .rank = 1, .dim = {96}}},
    };
    const kvf_import_options options = {
        .path = checkpoint, .out = out, .base = base, .force = true};
    toy_path(checkpoint, dir, "prefix.safetensors");
    KVF_TRY(kvf__safetensors_write(ctx, checkpoint, true, tensors, 5));
    return kvf_import(ctx, &options, kind);
}

static kvf_status path_unmerge(void)
{
    const kvf_unmerge_options options = {
        .prefix = prefix, .out = out, .base = base, .encoder_hidden = 4};
    kvf_unmerge_result result;
    return kvf_unmerge(ctx, &options, &result);
}

static kvf_status path_convert_position(void)
{
    const kvf_convert_position_options options = {
        .prefix = prefix, .out = out, .base = base, .position_start = "9"};
    int64_t from, to;
    return kvf_convert_position(ctx, &options, &from, &to);
}

static const struct {
    const char *name;
    kvf_status (*path)(void);
} PATHS[] = {
    {"open", path_open},
    {"train", path_train},
    {"resume", path_resume},
    {"merge", path_merge},
    {"eval", path_eval},
    {"generate", path_generate},
    {"export", path_export},
    {"inspect", path_inspect},
    {"import", path_import},
    {"unmerge", path_unmerge},
    {"convert-position", path_convert_position},
};

static void check_nothing_left(const char *name, int64_t n)
{
    DIR *list = opendir(dir);
    ck_assert_ptr_nonnull(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        ck_assert_msg(!strstr(entry->d_name, ".tmp.") && !strstr(entry->d_name, ".lock"),
                      "%s, allocation %lld: %s is left", name, (long long)n, entry->d_name);
    closedir(list);
}

/* Runs PATHS[i] with allocation n failing; true if there are fewer allocations than n. */
static bool try_one(int i, int64_t n)
{
    uint64_t before = kvf__ctx_allocations(ctx);
    kvf__ctx_fail_allocation(ctx, n);
    kvf_status st = PATHS[i].path();
    kvf__ctx_fail_allocation(ctx, -1);
    bool over = !st && kvf__ctx_allocations(ctx) - before <= (uint64_t)n;
    ck_assert_msg(over || st == KVF_ENOMEM, "%s, allocation %lld: %s \"%s\"", PATHS[i].name,
                  (long long)n, kvf_status_name(st), kvf_ctx_error(ctx));
    ck_assert_msg(over || strstr(kvf_ctx_error(ctx), "memory"), "%s, allocation %lld: \"%s\"",
                  PATHS[i].name, (long long)n, kvf_ctx_error(ctx));
    check_nothing_left(PATHS[i].name, n);
    return over;
}

START_TEST(limits_each_fails)
{
    int64_t n = 0;
    for (; !try_one(_i, n); n++)
        remove(out);
    ck_assert_int_gt(n, 10);
    printf("%s: %lld allocations, each failed in turn\n", PATHS[_i].name, (long long)n);
}
END_TEST

/* ---- an allocator of the caller -------------------------------------------------------------- */

typedef struct pool {
    int64_t given, held, most; /* blocks so far; not released; the limit of the former */
} pool;

/* Aligned no better than malloc's. */
static void *from_pool(void *user, size_t bytes)
{
    pool *p = user;
    char *block = p->given < p->most ? malloc(bytes + 16) : NULL;
    if (!block) return NULL;
    p->given++;
    p->held++;
    return block + 16;
}

static void to_pool(void *user, void *memory)
{
    ((pool *)user)->held--;
    free((char *)memory - 16);
}

START_TEST(the_caller_allocates)
{
    pool p = {.most = INT64_MAX};
    kvf_ctx_options options = {
        .threads = 1, .alloc = from_pool, .release = to_pool, .memory_user = &p};
    kvf_ctx *own = ctx;
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
    ck_assert_msg(!PATHS[_i].path(), "%s", kvf_ctx_error(ctx));
    ck_assert_int_gt(p.given, 10);
    ck_assert_int_eq(p.held, 0);
    remove(out);
    p.most = p.given + 7;
    ck_assert_int_eq(PATHS[_i].path(), KVF_ENOMEM);
    ck_assert_int_eq(p.held, 0);
    kvf_ctx_free(ctx);
    ctx = own;
    options.release = NULL;
    ck_assert_int_eq(kvf_ctx_create(&options, &own), KVF_EUSAGE);
}
END_TEST

/* ---- limits of the process ------------------------------------------------------------------- */

#ifdef __SANITIZE_ADDRESS__ /* whose shadow memory exceeds any limit */
enum { SHADOWED = 1 };
#else
enum { SHADOWED = 0 };
#endif

enum { STEP = 512 << 10, MOST_STEPS = 200 };

static rlim_t data_bytes(void)
{
    char line[128];
    long long kb = 0;
    FILE *file = fopen("/proc/self/status", "r");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmData: %lld", &kb) == 1) break;
    fclose(file);
    return (rlim_t)kb << 10;
}

/* The status of a path in a process with this limit of its data size. */
static kvf_status run_within(kvf_status (*path)(void), rlim_t bytes)
{
    int how = 0;
    const pid_t child = fork();
    if (!child) {
        const struct rlimit limit = {bytes, bytes};
        if (setrlimit(RLIMIT_DATA, &limit)) _exit(100);
        _exit((int)path());
    }
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_assert_msg(WIFEXITED(how), "signal %d with %llu KB of data", WTERMSIG(how),
                  (unsigned long long)bytes >> 10);
    return (kvf_status)WEXITSTATUS(how);
}

/* oneDNN's other kernels allocate elsewhere, and may end the process if that fails. */
START_TEST(limits_of_the_process_end_in_a_status)
{
    ck_need(kvf__cpu_best() == KVF__CPU_AVX2, "limits were tried with AVX2 alone");
    const rlim_t before = data_bytes();
    kvf_status st = KVF_ENOMEM;
    int refused = 0;
    for (; st && refused < MOST_STEPS; refused++) {
        st = run_within(PATHS[_i].path, before + (rlim_t)refused * STEP);
        ck_assert_msg(!st || st == KVF_ENOMEM || st == KVF_EIO, "%s: %s", PATHS[_i].name,
                      kvf_status_name(st));
    }
    printf("%s: refused %d times\n", PATHS[_i].name, refused - 1);
    ck_assert_int_eq(st, KVF_OK);
    ck_assert_int_gt(refused, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("alloc_failures");
    TCase *tcase = tcase_create("limits");
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, the_caller_allocates, 0, sizeof PATHS / sizeof PATHS[0]);
    tcase_add_loop_test(tcase, limits_each_fails, 0, sizeof PATHS / sizeof PATHS[0]);
    if (!SHADOWED)
        tcase_add_loop_test(tcase, limits_of_the_process_end_in_a_status, 0,
                            sizeof PATHS / sizeof PATHS[0]);
    suite_add_tcase(suite, tcase);
    return ck_main(suite);
}
