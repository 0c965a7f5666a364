/* Resources of this process: usable cores, memory, time.
 *
 * More threads than cores is the worst case for OpenMP, whose threads wait for each other at every
 * barrier. In a container the affinity mask still shows every core of the host. So the CPU quota of
 * the control group counts as well (cpu.max of cgroup v2, cpu.cfs_quota_us of v1; Linux
 * Documentation/admin-guide). */
#include "ctx_int.h"
#include "launch.h"

#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int affinity_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

/* Reads up to two whole numbers and returns their count. "max" is none. */
static int read_numbers(const char *path, long long *a, long long *b)
{
    FILE *file = fopen(path, "re");

    if (!file) return 0;
    int n = fscanf(file, "%lld %lld", a, b);
    fclose(file);
    return n < 0 ? 0 : n;
}

/* Returns the CPU quota in cores, rounded up; 0: no quota. */
static long long quota_cores(void)
{
    long long quota = 0, period = 0, unused;

    if (read_numbers("/sys/fs/cgroup/cpu.max", &quota, &period) < 2) {
        if (!read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &quota, &unused)) return 0;
        if (!read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_period_us", &period, &unused)) return 0;
    }
    if (quota <= 0 || period <= 0) return 0;
    return (quota - 1) / period + 1;
}

/* Returns this process's share if the processes of a launch were not given separate cores. */
static int launch_share(int own, int all)
{
    int n = kvf__launch_look().local;
    if (n < 2 || (int64_t)own * n <= all) return own;
    return all > n ? all / n : 1;
}

int kvf__usable_cores(void)
{
    long long quota = quota_cores(), all = sysconf(_SC_NPROCESSORS_ONLN), own = affinity_cores();
    if (quota > 0 && quota < own) own = quota;
    if (quota > 0 && quota < all) all = quota;
    return launch_share((int)own, (int)all);
}

/* Uses VmHWM, which belongs to this program alone. ru_maxrss survives exec and may be a parent's
 * peak. */
int64_t kvf__peak_rss_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    struct rusage usage;
    char line[256];
    long long kib = 0;

    while (file && kib == 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %lld kB", &kib) != 1) kib = 0;
    if (file) fclose(file);
    if (kib == 0 && getrusage(RUSAGE_SELF, &usage) == 0) kib = usage.ru_maxrss;
    return (int64_t)kib * 1024;
}

int64_t kvf__rss_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    long long pages = 0;

    if (file && fscanf(file, "%*d %lld", &pages) != 1) pages = 0;
    if (file) fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

double kvf__clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
