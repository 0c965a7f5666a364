/* Checks the promises of src/dist on every rank of a launch: broadcasts and gathers of odd sizes,
 * and sums added in the order of the tree. The order is independent of arrival, even with more sums
 * than can travel at a time. A broken promise gives exit status 1 and a line. */
#include "dist_int.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ODD = 1000003, MOST = 64 }; /* floats: several chunks, and a remainder */

static int failures;

static void expect(bool good, const kvf__dist *dist, const char *what)
{
    if (good) return;
    failures++;
    printf("rank %d: %s\n", dist->rank, what);
}

/* Values whose sums depend on the order. */
static float value_of(int rank, int64_t i, int round)
{
    uint32_t x = (uint32_t)(i * 2654435761u + (uint32_t)rank * 40503u + (uint32_t)round * 97u);
    x ^= x >> 15;
    return (float)((double)(x % 200003) / 7.0 * (x & 1 ? 1e-3 : 1e3));
}

/* The documented order: a node adds its children r + 1, r + 2, r + 4, ... in this order. */
static float tree_sum(int rank, int size, int64_t i, int round)
{
    float sum = value_of(rank, i, round);
    int end = rank ? rank & -rank : size;
    for (int bit = 1; bit < end && rank + bit < size; bit *= 2)
        sum += tree_sum(rank + bit, size, i, round);
    return sum;
}

static void check_broadcast(kvf_ctx *ctx, kvf__dist *dist)
{
    char text[100] = "";
    if (!dist->rank) strcpy(text, "from the first");
    expect(!kvf__dist_broadcast(ctx, dist, text, sizeof text), dist, "broadcast fails");
    expect(!strcmp(text, "from the first"), dist, "broadcast brings other bytes");
}

static void check_gather(kvf_ctx *ctx, kvf__dist *dist)
{
    int rank = dist->rank, size = dist->size;
    int64_t mine[3] = {rank, 10 * rank, -rank}, all[3 * MOST];
    expect(!kvf__dist_gather(ctx, dist, mine, sizeof mine, rank ? NULL : all), dist,
           "gather fails");
    for (int r = 0; !rank && r < size; r++)
        expect(all[3 * r] == r && all[3 * r + 1] == 10 * r && all[3 * r + 2] == -r, dist,
               "gather brings other bytes");
}

/* Pieces of many sizes, begun while others travel; one rank after another is late. */
static void check_sums(kvf_ctx *ctx, kvf__dist *dist, float *x, int round)
{
    int rank = dist->rank, size = dist->size;
    for (int64_t i = 0; i < ODD; i++)
        x[i] = value_of(rank, i, round);
    for (int64_t at = 0, n = 1, k = 0; at < ODD; at += n, n = n * 3 + 1, k++) {
        if (k % size == (rank + round) % size) usleep(2000);
        if (n > ODD - at) n = ODD - at;
        kvf__dist_sum_begin(dist, x + at, n);
    }
    expect(!kvf__dist_sum_end(ctx, dist), dist, "sum fails");
    for (int64_t i = 0; !rank && i < ODD; i += i % 7 ? 1 : 13)
        if (x[i] != tree_sum(0, size, i, round)) {
            expect(false, dist, "a sum is not that of the tree");
            return;
        }
}

int main(void)
{
    kvf_ctx *ctx = NULL;
    kvf__dist *dist = NULL;
    float *x = malloc(ODD * sizeof *x);
    if (!x || kvf_ctx_create(NULL, &ctx)) return 2;
    if (kvf__dist_join(ctx, &dist)) printf("%s\n", kvf_ctx_error(ctx));
    if (!dist) return 2;
    check_broadcast(ctx, dist);
    check_gather(ctx, dist);
    for (int round = 0; round < 3; round++)
        check_sums(ctx, dist, x, round);
    check_broadcast(ctx, dist);
    if (!dist->rank) printf("%d ranks: sums are those of the tree\n", dist->size);
    fflush(stdout);
    kvf_ctx_free(ctx);
    free(x);
    return failures ? 1 : 0;
}
