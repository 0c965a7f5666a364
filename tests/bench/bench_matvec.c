/* Time of the products of matvec.h per level, type and number of rows, on one thread: what a step
 * of generation costs for a matrix that comes from memory. Gigabytes are those of the file.
 *
 *   bench_matvec [rounds] */
#include "matvec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { K = 576, N = 49152, MOST_ROWS = 16, MAX_ROUNDS = 1000 };

static const kvf__dtype TYPES[] = {KVF__Q4_0, KVF__Q4_1, KVF__Q8_0, KVF__BF16, KVF__F32};
static const int64_t ROWS[] = {1, 4, MOST_ROWS};

static void *memory(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) exit(1);
    memset(p, 0x2c, bytes); /* blocks with a scale of 1/16 */
    return p;
}

static void bench(const kvf__matvec *level, kvf__matvec_call *call, int rounds)
{
    const double weights = (double)K * N;
    const double bytes = (double)kvf__matvec_row_bytes(call->dtype, K) * N;
    double best = INFINITY;
    for (int i = 0; i < rounds; i++) {
        double start = kvf__clock();
        level->run(call);
        double took = kvf__clock() - start;
        if (took < best) best = took;
    }
    printf("%-12s %-5s %2d rows%s%s %8.2f ms %6.1f GB/s %7.1f GFLOP/s\n", level->name,
           kvf__dtype_name(call->dtype), (int)call->M, call->bf16 ? " bf16" : "     ",
           call->as_one ? " as one" : "       ", best * 1e3, bytes / best * 1e-9,
           2e-9 * weights * (double)call->M / best);
}

int main(int argc, char **argv)
{
    static const char *const LEVELS[] = {"avx2", "avx512", "avx512_bf16"};
    const int rounds = argc > 1 ? atoi(argv[1]) : 5;
    if (rounds < 1 || rounds > MAX_ROUNDS) {
        fputs("usage: bench_matvec [rounds, 1 to 1000]\n", stderr);
        return 1;
    }
    kvf__matvec_call call = {.w = memory((size_t)K * N * 4),
                             .n = N,
                             .K = K,
                             .x = memory(MOST_ROWS * K * sizeof(float)),
                             .ldx = K,
                             .y = memory((size_t)MOST_ROWS * N * sizeof(float)),
                             .ldy = N,
                             .scratch = memory(kvf__matvec_scratch(MOST_ROWS, K))};
    for (size_t l = 0; l < sizeof LEVELS / sizeof LEVELS[0]; l++) {
        const kvf__matvec *level = kvf__matvec_level(LEVELS[l]);
        for (size_t t = 0; level && t < sizeof TYPES / sizeof TYPES[0]; t++)
            for (size_t r = 0; r < sizeof ROWS / sizeof ROWS[0]; r++) {
                call.dtype = TYPES[t];
                call.M = ROWS[r];
                call.bf16 = l == 2 && call.M > 1;
                bench(level, &call, rounds);
                call.as_one = call.M > 1;
                if (call.as_one) bench(level, &call, rounds);
                call.as_one = false;
            }
    }
    free((void *)call.w);
    free((void *)call.x);
    free(call.y);
    free(call.scratch);
    return 0;
}
