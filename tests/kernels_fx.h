/* Shared fixture of the kernel tests: choice of level and type, guarded arrays, comparison.
 *
 * Tolerances. f32: both sides round once or twice, with sums of up to 1536 terms: a few 1e-7 of the
 * terms' size. bf16: the two may round to neighbouring values, at most 2^-7 apart. Arrays are
 * followed by a guard, because tails are written with masks that no sanitizer checks. */
#ifndef KVF_KERNELS_FX_H
#define KVF_KERNELS_FX_H

#include "ck.h"
#include "kernels.h"
#include "rng.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const char *const LEVELS[] = {"avx2", "avx512", "avx512_bf16"};
enum { N_LEVELS = sizeof LEVELS / sizeof LEVELS[0], LEVEL_ROWS = 2 * N_LEVELS, GUARD = 64 };

static const kvf__kernels *ref, *fast;
static kvf__dtype act;

/* Row _i of LEVELS x {f32, bf16}; false, after a note, if the machine lacks the level. */
static bool choose(int row)
{
    omp_set_num_threads(2);
    ref = kvf__kernels_level("ref");
    fast = kvf__kernels_level(LEVELS[row / 2]);
    act = row % 2 ? KVF__BF16 : KVF__F32;
    if (!fast) printf("skipped: this CPU has no %s\n", LEVELS[row / 2]);
    return fast != NULL;
}

static size_t size_of(kvf__dtype dtype)
{
    return dtype == KVF__BF16 ? 2 : 4;
}

/* n elements and the guard. */
static void *array(kvf__dtype dtype, int64_t n)
{
    char *p = malloc((size_t)n * size_of(dtype) + GUARD);
    ck_assert_ptr_nonnull(p);
    memset(p, 0xa5, (size_t)n * size_of(dtype) + GUARD);
    return p;
}

/* Values from -range to range; the first few are special cases. */
static void *filled(kvf__dtype dtype, int64_t n, double range, uint64_t stream)
{
    static const float awkward[] = {0.0f, -0.0f, 1e-8f, -1e-8f, 1.0f, -1.0f};
    kvf__rng rng = kvf__rng_make(5, stream);
    float *values = array(KVF__F32, n);
    for (int64_t i = 0; i < n; i++)
        values[i] = i < 6 ? awkward[i] * (float)range
                          : (float)((2 * kvf__rng_uniform(&rng) - 1) * range);
    if (dtype == KVF__F32) return values;
    void *rounded = array(dtype, n);
    kvf__from_f32(dtype, values, rounded, n);
    free(values);
    return rounded;
}

/* Compares, checks got's guard, frees both. */
static void same(const char *what, kvf__dtype dtype, void *got, void *want, int64_t n, double rtol,
                 double atol)
{
    float *a = array(KVF__F32, n), *b = array(KVF__F32, n);
    char text[160];
    for (int i = 0; i < GUARD; i++)
        ck_assert_msg(((uint8_t *)got)[(size_t)n * size_of(dtype) + i] == 0xa5,
                      "%s wrote behind its end", what);
    kvf__to_f32(dtype, got, a, n);
    kvf__to_f32(dtype, want, b, n);
    if (dtype == KVF__BF16) {
        rtol = 1.0 / 128;
        atol = atol > 1e-30 ? atol : 1e-30;
    }
    snprintf(text, sizeof text, "%s %s %s", fast ? fast->name : "ref", kvf__dtype_name(dtype),
             what);
    ck_close_at(__FILE__, __LINE__, text, a, b, (size_t)n, rtol, atol);
    free(a);
    free(b);
    free(got);
    free(want);
}

#endif
