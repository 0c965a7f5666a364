/* Evaluates a data set with several processes. Every rank computes some of the batches. Rank 0 adds
 * the results in the order of a single process, so the number of ranks changes no bit. */
#include "shared.h"

#include <string.h>

enum { LINE = 512 }; /* size of an error line sent between ranks, in bytes */

typedef struct batch_sum {
    double sum;
    int64_t terms;
} batch_sum;

/* Result of a rank's part. */
typedef struct report {
    int32_t status;
    char line[LINE];
} report;

struct kvf__shared {
    kvf__dist *dist;
    int rank, size;
    int64_t n;
    batch_sum *own, *all; /* [n] sums by batch; [size, n] on rank 0 */
    report *reports;      /* [size] on rank 0 */
};

kvf_status kvf__shared_create(kvf_ctx *ctx, kvf__dist *dist, int64_t batches, kvf__shared **out)
{
    kvf__shared *s = NULL;
    size_t n = (size_t)batches, size = (size_t)dist->size;
    KVF_TRY(kvf__alloc(ctx, sizeof *s, &s));
    *s = (kvf__shared){.dist = dist, .rank = dist->rank, .size = (int)size, .n = batches};
    kvf_status st = kvf__alloc_array(ctx, n, sizeof *s->own, &s->own);
    if (!st && !s->rank) st = kvf__alloc_array(ctx, n * size, sizeof *s->all, &s->all);
    if (!st && !s->rank) st = kvf__alloc_array(ctx, size, sizeof *s->reports, &s->reports);
    KVF__GIVE(st, out, s, kvf__shared_free(s));
    return st;
}

void kvf__shared_free(kvf__shared *shared)
{
    if (!shared) return;
    kvf__free(shared->own);
    kvf__free(shared->all);
    kvf__free(shared->reports);
    kvf__free(shared);
}

void kvf__shared_give_up(kvf__shared *shared)
{
    shared->dist->broken = true;
}

bool kvf__shared_helps(const kvf__shared *shared)
{
    return shared && shared->rank;
}

bool kvf__shared_owns(const kvf__shared *shared, int64_t batch)
{
    return !shared || batch % shared->size == shared->rank;
}

void kvf__shared_put(kvf__shared *shared, int64_t batch, double sum, int64_t terms)
{
    shared->own[batch] = (batch_sum){sum, terms};
}

static void add_up(const kvf__shared *s, double *sum, int64_t *terms)
{
    *sum = 0;
    *terms = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const batch_sum *f = &s->all[i % s->size * s->n + i];
        *sum += f->sum;
        *terms += f->terms;
    }
}

static kvf_status judge(kvf_ctx *ctx, const kvf__shared *s, kvf_status st)
{
    for (int r = 1; r < s->size && !st; r++)
        if (s->reports[r].status)
            st = kvf__fail(ctx, (kvf_status)s->reports[r].status, "rank %d on %s: %s", r,
                           kvf__dist_host(s->dist, r), s->reports[r].line);
    return st;
}

kvf_status kvf__shared_end(kvf_ctx *ctx, kvf__shared *s, kvf_status st, float *each, int64_t n,
                           double *sum, int64_t *terms)
{
    report mine = {.status = (int32_t)st};
    if (st) snprintf(mine.line, sizeof mine.line, "%s", kvf_ctx_error(ctx));
    if (each) kvf__dist_sum_begin(s->dist, each, n);
    KVF_TRY(kvf__dist_sum_end(ctx, s->dist));
    KVF_TRY(kvf__dist_gather(ctx, s->dist, &mine, sizeof mine, s->reports));
    KVF_TRY(kvf__dist_gather(ctx, s->dist, s->own, (size_t)s->n * sizeof *s->own, s->all));
    memset(s->own, 0, (size_t)s->n * sizeof *s->own);
    if (s->rank) return KVF_OK; /* rank 0 judges the failure */
    add_up(s, sum, terms);
    return judge(ctx, s, st);
}
