/* Measures one layer's attention, forward and backward, per instruction set and activation type;
 * reports the best of several runs.
 *
 *   bench_attention [rounds] [threads] [level [part of a shape's name [type]]]
 *
 * One thread is measured in its CPU time, so that other work on the machine matters less; more
 * are in wall time. GFLOP/s count the products of the scores that exist (causal: half the
 * square): 2 forward, 5 backward. */
#include "attention_fx.h"

#include <stdio.h>
#include <time.h>

typedef struct bench_shape {
    const char *name;
    int64_t H, G, P;
    int rows;
    int64_t len, cache;
} bench_shape;

static const bench_shape SHAPES[] = {
    {"12 heads 8x128", 12, 12, 20, 8, 128, 0},    {"12 heads 16x64", 12, 12, 20, 16, 64, 0},
    {"12 heads 4x512", 12, 12, 20, 4, 512, 0},    {"9/3 heads 8x128", 9, 3, 20, 8, 128, 0},
    {"9/3 heads 4x512", 9, 3, 20, 4, 512, 0},     {"9/3 decode 1x2000", 9, 3, 0, 1, 1, 2000},
    {"9/3 decode 16x1000", 9, 3, 0, 16, 1, 1000},
};
enum { D = 64, SHARED_ONLY = 2, MODES = 3 };

static double seconds(int threads)
{
    struct timespec t;
    if (threads > 1) return kvf__clock();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double best_of(fx *f, const kvf__kernels *kernels, int mode, int rounds)
{
    double best = 1e9;
    const int threads = kvf_ctx_threads(f->ctx);
    f->attn.shared_only = mode == SHARED_ONLY;
    for (int i = 0; i < rounds + 1; i++) { /* one to warm up */
        const double start = seconds(threads);
        if (mode == 0)
            kernels->attn_fwd(&f->attn);
        else
            kernels->attn_bwd(&f->attn);
        const double time = seconds(threads) - start;
        if (i > 0 && time < best) best = time;
    }
    return best;
}

static void bench(const bench_shape *b, const char *level, kvf__dtype act, int rounds, int threads)
{
    const kvf__kernels *kernels = kvf__kernels_level(level);
    fx_shape shape = {
        .H = b->H, .G = b->G, .D = D, .P = b->P, .n_rows = b->rows, .lines = true, .act = act};
    double us[MODES];
    fx f;
    if (!kernels) return;
    for (int r = 0; r < b->rows; r++) {
        shape.len[r] = b->len;
        shape.cache[r] = b->cache;
    }
    fx_open(&f, &shape, threads);
    for (int mode = 0; mode < MODES; mode++)
        us[mode] = 1e6 * best_of(&f, kernels, mode, rounds);
    const double pairs = (double)(b->rows * b->len * b->H) *
                         ((double)(b->P + b->cache) + (double)(b->len + 1) / 2);
    printf("%-19s %-12s %-5s fwd %8.1f us %6.1f GFLOP/s", b->name, level, kvf__dtype_name(act),
           us[0], 2 * 2 * D * pairs / us[0] * 1e-3);
    if (b->len > 1)
        printf("   bwd %8.1f us %6.1f GFLOP/s   prefix only %7.1f us", us[1],
               5 * 2 * D * pairs / us[1] * 1e-3, us[2]);
    printf("\n");
    fx_close(&f);
}

int main(int argc, char **argv)
{
    static const char *const levels[] = {"avx2", "avx512", "avx512_bf16"};
    const int rounds = argc > 1 ? atoi(argv[1]) : 15, threads = argc > 2 ? atoi(argv[2]) : 2;
    printf("cpu level %s, %d threads, best of %d\n", kvf__cpu_level(), threads, rounds);
    for (size_t s = 0; s < sizeof SHAPES / sizeof *SHAPES; s++)
        for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
            if (argc > 3 && strcmp(argv[3], levels[l]) != 0) continue;
            if (argc > 4 && !strstr(SHAPES[s].name, argv[4])) continue;
            for (int type = KVF__F32; type <= KVF__BF16; type += KVF__BF16 - KVF__F32)
                if (argc <= 5 || strcmp(argv[5], kvf__dtype_name((kvf__dtype)type)) == 0)
                    bench(&SHAPES[s], levels[l], (kvf__dtype)type, rounds, threads);
        }
    return 0;
}
