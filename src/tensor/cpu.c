/* The instruction set of this process, and its table of kernels. KVF_CPU can only lower the level;
 * its spelling is checked when a context is made. */
#include "kernels_int.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if KVF__HAVE_X86
#define X86(table) (&(table))
#else
#define X86(table) NULL
#endif

/* Tables of each rank: its own, or those of the rank below. */
static const struct level {
    const char *name;
    const kvf__kernels *kernels;
    const kvf__matvec *matvec;
    const kvf__wide *wide;
} LEVELS[] = {
    {"ref", &kvf__kernels_ref, &kvf__matvec_ref, &kvf__wide_ref},
    {"avx2", X86(kvf__kernels_avx2), X86(kvf__matvec_avx2), X86(kvf__wide_avx2)},
    {"avx512", X86(kvf__kernels_avx512), X86(kvf__matvec_avx512), X86(kvf__wide_avx512)},
    {"avx512_bf16", X86(kvf__kernels_avx512_bf16), X86(kvf__matvec_avx512_bf16),
     X86(kvf__wide_avx512)},
    {"amx", X86(kvf__kernels_avx512_bf16), X86(kvf__matvec_avx512_bf16), X86(kvf__wide_avx512)},
};
enum { N_LEVELS = sizeof LEVELS / sizeof LEVELS[0] };

/* ---- what there is --------------------------------------------------------------------------- */

enum { VNNI = 1u << 11, FP16 = 1u << 23 }; /* AVX512 features, in ECX and EDX of leaf 7 */

#if KVF__HAVE_X86
#include <cpuid.h>

/* Returns whether AMX is usable: CPU features (leaf 7, EDX), and tile state saved by the kernel
 * (XCR0 bits 17 and 18). Compilers of 2022 do not all have the names for __builtin_cpu_supports. */
static bool has_amx(void)
{
    enum { BF16 = 1u << 22, TILE = 1u << 24, OSXSAVE = 1u << 27, TILE_STATE = 3u << 17 };
    unsigned eax, ebx, ecx, edx, low, high;

    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & OSXSAVE)) return false;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
    if ((edx & (BF16 | TILE)) != (BF16 | TILE)) return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & TILE_STATE) == TILE_STATE;
}

/* Returns whether leaf 7 has all of these bits. */
static bool has_leaf7(unsigned in_ecx, unsigned in_edx)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ecx & in_ecx) == in_ecx &&
           (edx & in_edx) == in_edx;
}

/* Returns whether f16 conversion is available, as on every CPU with AVX2. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & 1u << 29);
}

/* __builtin_cpu_supports is false if the operating system does not save the registers. */
static kvf__cpu_rank detect(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c())
        return KVF__CPU_REF;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return KVF__CPU_AVX2;
    if (!__builtin_cpu_supports("avx512bf16")) return KVF__CPU_AVX512;
    return has_amx() ? KVF__CPU_AMX : KVF__CPU_AVX512_BF16;
}
#else
static kvf__cpu_rank detect(void)
{
    return KVF__CPU_REF;
}

static bool has_leaf7(unsigned in_ecx, unsigned in_edx)
{
    (void)in_ecx, (void)in_edx;
    return false;
}
#endif

/* Caches the rank: under a hypervisor CPUID takes up to tens of microseconds, and every step looks
 * up tables. Concurrent threads store the same value. */
static int machine_rank(void)
{
    static atomic_int known = -1;
    int rank = atomic_load_explicit(&known, memory_order_relaxed);
    if (rank < 0) {
        rank = (int)detect();
        atomic_store_explicit(&known, rank, memory_order_relaxed);
    }
    return rank;
}

/* Returns N_LEVELS if KVF_CPU is unset, empty or misspelt (refused elsewhere). */
static int cap(void)
{
    const char *name = getenv("KVF_CPU");
    int level = 0;
    while (level < N_LEVELS && !(name && strcmp(name, LEVELS[level].name) == 0))
        level++;
    return level;
}

kvf__cpu_rank kvf__cpu_best(void)
{
    int rank = machine_rank(), most = cap();
    return (kvf__cpu_rank)(rank < most ? rank : most);
}

bool kvf__cpu_is_capped(void)
{
    return cap() < N_LEVELS;
}

const char *kvf__cpu_level(void)
{
    return LEVELS[kvf__cpu_best()].name;
}

bool kvf__cpu_has_bf16(void)
{
    return kvf__cpu_best() >= KVF__CPU_AVX512;
}

/* The cap avx512 means oneDNN without VNNI. */
bool kvf__cpu_has_int8(void)
{
    kvf__cpu_rank best = kvf__cpu_best();
    return has_leaf7(VNNI, 0) &&
           (best > KVF__CPU_AVX512 || (best == KVF__CPU_AVX512 && !kvf__cpu_is_capped()));
}

/* Measured speed relative to f32: 4.6 with AMX; 1.8 with AVX512-BF16 alone on Zen 4; 0.6 on CPUs
 * with AMX that is capped or unavailable; 0.4 when AVX512 emulates. AVX512-FP16 distinguishes the
 * CPUs with AMX from Zen 4. */
bool kvf__cpu_bf16_is_faster(void)
{
    kvf__cpu_rank best = kvf__cpu_best();
    return best == KVF__CPU_AMX || (best == KVF__CPU_AVX512_BF16 && !has_leaf7(0, FP16));
}

/* ---- the tables ------------------------------------------------------------------------------ */

/* Returns the rank with that name; one of NULLs if the machine lacks it or the cap forbids it. */
static struct level level_named(const char *name)
{
    for (int rank = 0; rank <= (int)kvf__cpu_best(); rank++)
        if (strcmp(name, LEVELS[rank].name) == 0) return LEVELS[rank];
    return (struct level){0};
}

const kvf__kernels *kvf__kernels_get(void)
{
    return LEVELS[kvf__cpu_best()].kernels;
}

const kvf__matvec *kvf__matvec_get(void)
{
    return LEVELS[kvf__cpu_best()].matvec;
}

const kvf__wide *kvf__wide_get(void)
{
    return LEVELS[kvf__cpu_best()].wide;
}

const kvf__kernels *kvf__kernels_level(const char *name)
{
    return level_named(name).kernels;
}

const kvf__matvec *kvf__matvec_level(const char *name)
{
    return level_named(name).matvec;
}

const kvf__wide *kvf__wide_level(const char *name)
{
    return level_named(name).wide;
}
