/* Detection of other processes from the environment, and the number of cores for each process. */
#include "base_int.h"
#include "ck.h"
#include "launch.h"

#include <stdlib.h>

static const char *const VARIABLES[] = {
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_NTASKS",
};

static void setup(void)
{
    for (size_t i = 0; i < sizeof VARIABLES / sizeof VARIABLES[0]; i++)
        unsetenv(VARIABLES[i]);
}

static void teardown(void)
{
    setup();
}

typedef struct launch_case {
    const char *set[6]; /* name, value, ... */
    const char *by;     /* NULL: alone */
    int rank, size, local;
} launch_case;

static const launch_case CASES[] = {
    {{NULL}, NULL, 0, 1, 0},
    {{"OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
     "Open MPI",
     3,
     4,
     2},
    {{"OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "1"}, NULL, 0, 1, 0},
    {{"PMI_RANK", "1", "PMI_SIZE", "8"}, "MPICH", 1, 8, 0},
    {{"SLURM_PROCID", "5", "SLURM_STEP_NUM_TASKS", "6", "SLURM_STEP_TASKS_PER_NODE", "3(x2)"},
     "Slurm",
     5,
     6,
     3},
    {{"SLURM_PROCID", "0", "SLURM_NTASKS", "6"}, NULL, 0, 1, 0}, /* a batch script */
    {{"PMI_RANK", "8", "PMI_SIZE", "8"}, NULL, 0, 1, 0},
    {{"PMI_RANK", "-1", "PMI_SIZE", "many"}, NULL, 0, 1, 0},
};

START_TEST(launchers_are_told_apart)
{
    const launch_case *c = &CASES[_i];
    for (int i = 0; i < 6 && c->set[i]; i += 2)
        setenv(c->set[i], c->set[i + 1], 1);
    kvf__launch found = kvf__launch_look();
    if (c->by)
        ck_assert_str_eq(found.by, c->by);
    else
        ck_assert_ptr_null(found.by);
    ck_assert_int_eq(found.rank, c->rank);
    ck_assert_int_eq(found.size, c->size);
    ck_assert_int_eq(found.local, c->local);
}
END_TEST

static int threads_beside(const char *local)
{
    kvf_ctx *ctx = NULL;
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "1000", 1);
    if (local) setenv("MPI_LOCALNRANKS", local, 1);
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    int threads = kvf_ctx_threads(ctx);
    kvf_ctx_free(ctx);
    return threads;
}

START_TEST(processes_of_a_machine_share_its_cores)
{
    int all = threads_beside(NULL);
    ck_assert_int_ge(all, 1);
    ck_assert_int_eq(threads_beside("1"), all);
    ck_assert_int_le(2 * threads_beside("2"), all > 1 ? all : 2);
    ck_assert_int_eq(threads_beside("100000"), 1);
}
END_TEST

static void count(void *held)
{
    ++*(int *)held;
}

START_TEST(a_context_leaves_what_it_holds)
{
    kvf_ctx *ctx = NULL;
    int left = 0;
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    ck_assert_ptr_null(kvf__ctx_held(ctx));
    kvf__ctx_hold(ctx, &left, count);
    ck_assert_ptr_eq(kvf__ctx_held(ctx), &left);
    ck_assert_int_eq(left, 0);
    kvf_ctx_free(ctx);
    ck_assert_int_eq(left, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("launch");
    TCase *core = tcase_create("core");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_loop_test(core, launchers_are_told_apart, 0, sizeof CASES / sizeof CASES[0]);
    tcase_add_test(core, processes_of_a_machine_share_its_cores);
    tcase_add_test(core, a_context_leaves_what_it_holds);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
