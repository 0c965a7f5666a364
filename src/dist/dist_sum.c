/* Sums to rank 0 along a binomial tree, chunk by chunk, while the caller computes.
 *
 *   0 <- 1, 2, 4      rank r sends to r without its lowest bit, after adding the values
 *        2 <- 3       of r + 1, r + 2, r + 4, ... below that bit, in this order
 *        4 <- 5, 6
 *
 * Receives of a chunk are posted early, up to a window of chunks. A chunk is added when those of
 * all children have arrived, independently of other chunks. So results do not depend on timing, and
 * a rank holds at most WINDOW chunks of each child. MPI moves data only inside its calls, hence
 * kvf__dist_sum_push. */
#include "dist_priv.h"

/* Returns the tag of a chunk. Chunks may become ready out of order, so those in transfer at one
 * time have distinct tags. */
static int tag_of(int64_t chunk)
{
    return (int)(chunk % 1024);
}

static void find_family(kvf__dist *dist)
{
    kvf__sums *s = &dist->links->sums;
    int64_t lowest = dist->rank & -dist->rank, end = dist->rank ? lowest : dist->size;
    s->parent = dist->rank ? dist->rank - (int)lowest : -1;
    for (int64_t bit = 1; bit < end && dist->rank + bit < dist->size; bit *= 2)
        s->child[s->n_children++] = dist->rank + (int)bit;
}

kvf_status kvf__sums_init(kvf_ctx *ctx, kvf__dist *dist)
{
    kvf__sums *s = &dist->links->sums;
    find_family(dist);
    s->capacity = 256;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)s->capacity, sizeof *s->queue, &s->queue));
    size_t floats = (size_t)KVF__SUM_WINDOW * (size_t)s->n_children * KVF__SUM_CHUNK;
    return kvf__alloc_array(ctx, floats, sizeof *s->buffer, &s->buffer);
}

void kvf__sums_done(kvf__sums *sums)
{
    kvf__free(sums->queue);
    kvf__free(sums->buffer);
    *sums = (kvf__sums){0};
}

static float *buffer_of(const kvf__sums *s, int64_t chunk, int child)
{
    int64_t place = chunk % KVF__SUM_WINDOW * s->n_children + child;
    return s->buffer + place * KVF__SUM_CHUNK;
}

static kvf__travel *travel_of(kvf__sums *s, int64_t chunk)
{
    return &s->window[chunk % KVF__SUM_WINDOW];
}

/* ---- one chunk ------------------------------------------------------------------------------- */

static kvf_status post(kvf__dist *dist, int64_t chunk)
{
    kvf__sums *s = &dist->links->sums;
    kvf__travel *t = travel_of(s, chunk);
    t->state = KVF__CHUNK_COMING;
    for (int c = 0; c < s->n_children; c++) {
        int code = dist->links->mpi->receive(buffer_of(s, chunk, c), (int)s->queue[chunk].n,
                                             s->child[c], tag_of(chunk), &t->coming[c]);
        KVF_TRY(kvf__dist_check(dist->links->ctx, dist, code, "receive"));
    }
    return KVF_OK;
}

static void add_children(const kvf__sums *s, int64_t chunk)
{
    float *x = s->queue[chunk].x;
    int64_t n = s->queue[chunk].n;
    for (int c = 0; c < s->n_children; c++) {
        const float *more = buffer_of(s, chunk, c);
        for (int64_t i = 0; i < n; i++)
            x[i] += more[i];
    }
}

static kvf_status send_on(kvf__dist *dist, int64_t chunk)
{
    kvf__sums *s = &dist->links->sums;
    kvf__travel *t = travel_of(s, chunk);
    t->state = s->parent < 0 ? KVF__CHUNK_DONE : KVF__CHUNK_GOING;
    if (s->parent < 0) return KVF_OK;
    int code = dist->links->mpi->send(s->queue[chunk].x, (int)s->queue[chunk].n, s->parent,
                                      tag_of(chunk), &t->going);
    return kvf__dist_check(dist->links->ctx, dist, code, "send");
}

/* Advances a chunk as far as possible without waiting. */
static kvf_status move(kvf__dist *dist, int64_t chunk)
{
    kvf__sums *s = &dist->links->sums;
    kvf__travel *t = travel_of(s, chunk);
    int there = 1, code;
    if (t->state == KVF__CHUNK_COMING) {
        code = dist->links->mpi->test(s->n_children, t->coming, &there);
        KVF_TRY(kvf__dist_check(dist->links->ctx, dist, code, "receive"));
        if (!there) return KVF_OK;
        add_children(s, chunk);
        KVF_TRY(send_on(dist, chunk));
    }
    if (t->state == KVF__CHUNK_GOING) {
        code = dist->links->mpi->test(1, &t->going, &there);
        KVF_TRY(kvf__dist_check(dist->links->ctx, dist, code, "send"));
        if (there) t->state = KVF__CHUNK_DONE;
    }
    return KVF_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static kvf_status push(kvf__dist *dist)
{
    kvf__sums *s = &dist->links->sums;
    for (; s->posted < s->n && s->posted < s->done + KVF__SUM_WINDOW; s->posted++)
        KVF_TRY(post(dist, s->posted));
    for (int64_t i = s->done; i < s->posted; i++)
        KVF_TRY(move(dist, i));
    while (s->done < s->posted && travel_of(s, s->done)->state == KVF__CHUNK_DONE)
        s->done++;
    return KVF_OK;
}

static kvf_status queue(kvf__dist *dist, float *x, int64_t n)
{
    kvf__sums *s = &dist->links->sums;
    for (int64_t at = 0; at < n; at += KVF__SUM_CHUNK) {
        if (s->n == s->capacity) {
            size_t bytes = (size_t)s->capacity * sizeof *s->queue;
            KVF_TRY(kvf__grow(dist->links->ctx, &s->queue, bytes, 2 * bytes));
            s->capacity *= 2;
        }
        int64_t left = n - at;
        s->queue[s->n++] = (kvf__chunk){.x = x + at,
                                        .n = left < KVF__SUM_CHUNK ? left : KVF__SUM_CHUNK};
    }
    return KVF_OK;
}

void kvf__dist_sum_begin(kvf__dist *dist, float *x, int64_t n)
{
    if (!dist->links->sums.status) dist->links->sums.status = queue(dist, x, n);
    kvf__dist_sum_push(dist);
}

void kvf__dist_sum_push(kvf__dist *dist)
{
    if (!dist->links->sums.status) dist->links->sums.status = push(dist);
}

kvf_status kvf__dist_sum_end(kvf_ctx *ctx, kvf__dist *dist)
{
    kvf__sums *s = &dist->links->sums;
    double begin = kvf__clock();
    kvf__wait wait = kvf__dist_wait_begin();
    while (!s->status && s->done < s->n) {
        int64_t before = s->done;
        s->status = push(dist);
        if (s->done > before)
            wait = kvf__dist_wait_begin();
        else if (!s->status)
            s->status = kvf__dist_pause(ctx, dist, &wait);
    }
    dist->waited += kvf__clock() - begin;
    kvf_status st = s->status;
    s->n = s->posted = s->done = 0;
    s->status = KVF_OK;
    if (st) dist->broken = true; /* the other ranks depend on these sums */
    return st;
}
