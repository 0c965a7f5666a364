/* Measures the products of matvec.h per level, type and number of rows, on one thread. This is the
 * cost of a generation step for a matrix that streams from memory. Gigabytes count bytes of the
 * file. The last line is oneDNN's own f32 product of the same matrix, packed in planes as for a
 * pass.
 *
 *   bench_matvec [rounds] */
#include "matmul.h"
#include "matvec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { K = 576, N = 49152, PLANE = 1536, PLANES = N / PLANE, MOST_ROWS = 16, MAX_ROUNDS = 1000 };

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
    printf("%-12s %-5s %2d rows%s %8.2f ms %6.1f GB/s %7.1f GFLOP/s\n", level->name,
           kvf__dtype_name(call->dtype), (int)call->M, call->bf16 ? " bf16" : "     ", best * 1e3,
           bytes / best * 1e-9, 2e-9 * weights * (double)call->M / best);
}

static void bench_planes(kvf_ctx *ctx, kvf__mm *mm, kvf__packed *const *planes,
                         const kvf__matvec_call *call, int rounds)
{
    double best = INFINITY;
    for (int i = 0; i <= rounds; i++) { /* the first makes the primitives */
        double start = kvf__clock();
        for (int64_t p = 0; p < PLANES; p++)
            if (kvf__mm_run(ctx, mm, planes[p], call->M, call->x, call->y + p * call->M * PLANE,
                            KVF__F32, 0))
                exit(1);
        double took = kvf__clock() - start;
        if (i && took < best) best = took;
    }
    printf("%-12s %-5s %2d rows      %8.2f ms %6.1f GB/s %7.1f GFLOP/s\n", "oneDNN", "f32",
           (int)call->M, best * 1e3, 4e-9 * K * N / best, 2e-9 * K * N * (double)call->M / best);
}

static void bench_onednn(kvf__matvec_call *call, int rounds)
{
    const kvf_ctx_options options = {.threads = 1};
    kvf_ctx *ctx = NULL;
    kvf__mm *mm = NULL;
    kvf__packed *planes[PLANES];
    if (kvf_ctx_create(&options, &ctx) || kvf__mm_create(ctx, &mm)) exit(1);
    for (int64_t p = 0; p < PLANES; p++)
        if (kvf__pack(ctx, mm, KVF__F32, (const float *)call->w + p * PLANE * K, true, K, PLANE,
                      NULL, &planes[p]))
            exit(1);
    for (size_t r = 0; r < sizeof ROWS / sizeof ROWS[0]; r++) {
        call->M = ROWS[r];
        bench_planes(ctx, mm, planes, call, rounds);
    }
    for (int64_t p = 0; p < PLANES; p++)
        kvf__packed_free(planes[p]);
    kvf__mm_free(mm);
    kvf_ctx_free(ctx);
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
                bench(level, &call, rounds);
                call.bf16 = l == 2 && call.M > 1;
                if (call.bf16) bench(level, &call, rounds);
                call.bf16 = false;
            }
    }
    bench_onednn(&call, rounds);
    free((void *)call.w);
    free((void *)call.x);
    free(call.y);
    free(call.scratch);
    return 0;
}
