/* Closes connections whose requests are late, and notices clients that disconnect. libmicrohttpd's
 * own timeout measures silence, so a client can evade it with a byte now and then. It also does not
 * check a connection that is suspended until its job has output. So a separate thread watches
 * connections here: by the time since their request began, and by poll while they wait for a job.
 * They are shut down rather than closed, so that the owner of the descriptor closes it.
 *
 * A client that only shuts down its sending side (SHUT_WR, which HTTP/1.1 does not define) looks
 * the same as a closed connection. Only a write would show whether it still reads, and there is
 * nothing to write before the answer is computed. It counts as disconnected, as in nginx (status
 * 499) and uvicorn; a complete answer is still sent. */
#include "guard.h"
#include "queue.h"

#include <sys/socket.h>

enum { WATCH_MS = 100 };

static void evict(kvf__guard *guard, kvf__connection *late)
{
    shutdown(late->fd, SHUT_RDWR);
    late->since = 0; /* evict only once */
    guard->evicted++;
}

/* Returns the connection that has been without a complete request the longest; NULL: all are
 * served. */
static kvf__connection *most_silent(const kvf__guard *guard)
{
    kvf__connection *found = NULL;
    for (kvf__connection *c = guard->places; c < guard->places + guard->n; c++)
        if (c->fd >= 0 && c->since > 0 && (!found || c->since < found->since)) found = c;
    return found;
}

kvf__connection *kvf__guard_add(kvf__guard *guard, int fd)
{
    kvf__connection *place = NULL;
    pthread_mutex_lock(&guard->lock);
    for (size_t i = 0; i < guard->n && !place; i++)
        if (guard->places[i].fd < 0) place = &guard->places[i];
    if (place) {
        *place = (kvf__connection){.fd = fd, .since = kvf__clock()};
        guard->used++;
    }
    /* a quarter stays free, because an eviction takes time */
    if (guard->used > guard->n - guard->n / 4) {
        kvf__connection *silent = most_silent(guard);
        if (silent && silent != place) evict(guard, silent);
    }
    pthread_mutex_unlock(&guard->lock);
    return place;
}

/* Sets the connection's state; keeps its descriptor unless it is closed. */
static void set(kvf__guard *guard, kvf__connection *c, kvf__connection state)
{
    if (!c) return;
    pthread_mutex_lock(&guard->lock);
    *c = state;
    guard->used -= state.fd < 0;
    pthread_mutex_unlock(&guard->lock);
}

void kvf__guard_remove(kvf__guard *guard, kvf__connection *c)
{
    set(guard, c, (kvf__connection){.fd = -1});
}

void kvf__guard_serve(kvf__guard *guard, kvf__connection *c, bool served)
{
    if (c) set(guard, c, (kvf__connection){.fd = c->fd, .since = served ? 0 : kvf__clock()});
}

void kvf__guard_await(kvf__guard *guard, kvf__connection *c, struct kvf__job *job)
{
    if (c) set(guard, c, (kvf__connection){.fd = c->fd, .job = job});
}

void kvf__guard_count(kvf__guard *guard, int64_t *connections, int64_t *evicted)
{
    pthread_mutex_lock(&guard->lock);
    *connections = (int64_t)guard->used;
    *evicted = guard->evicted;
    pthread_mutex_unlock(&guard->lock);
}

/* ---- the thread that watches ----------------------------------------------------------------- */

static void find_late(kvf__guard *guard)
{
    const double now = kvf__clock();
    for (kvf__connection *c = guard->places; c < guard->places + guard->n; c++)
        if (c->fd >= 0 && c->since > 0 && now - c->since > guard->patience) evict(guard, c);
}

static void find_gone(kvf__guard *guard)
{
    nfds_t n = 0;
    for (size_t i = 0; i < guard->n; i++)
        if (guard->places[i].job)
            guard->polled[n++] = (struct pollfd){guard->places[i].fd, POLLRDHUP, 0};
    if (!n || poll(guard->polled, n, 0) <= 0) return;
    n = 0;
    for (kvf__connection *c = guard->places; c < guard->places + guard->n; c++) {
        if (!c->job || !guard->polled[n++].revents) continue;
        if (guard->gone(c->job)) shutdown(c->fd, SHUT_RDWR);
        c->job = NULL;
    }
}

static void *watch(void *user)
{
    kvf__guard *guard = user;
    pthread_mutex_lock(&guard->lock);
    while (!guard->ends) {
        find_late(guard);
        find_gone(guard);
        kvf__wait_ms(&guard->end, &guard->lock, WATCH_MS);
    }
    pthread_mutex_unlock(&guard->lock);
    return NULL;
}

static kvf_status alloc_places(kvf_ctx *ctx, kvf__guard *guard)
{
    KVF_TRY(kvf__alloc_array(ctx, guard->n, sizeof *guard->places, &guard->places));
    for (size_t i = 0; i < guard->n; i++)
        guard->places[i].fd = -1;
    return kvf__alloc_array(ctx, guard->n, sizeof *guard->polled, &guard->polled);
}

kvf_status kvf__guard_start(kvf_ctx *ctx, kvf__guard *guard)
{
    kvf_status st = alloc_places(ctx, guard);
    pthread_mutex_init(&guard->lock, NULL);
    pthread_cond_init(&guard->end, NULL);
    pthread_mutex_lock(&guard->lock); /* the thread checks `ends` first */
    const bool ends = guard->ends = st || pthread_create(&guard->thread, NULL, watch, guard);
    pthread_mutex_unlock(&guard->lock);
    if (!ends) return KVF_OK;
    kvf__guard_stop(guard);
    return st ? st : kvf__fail(ctx, KVF_ENOMEM, "cannot start the thread that watches connections");
}

void kvf__guard_stop(kvf__guard *guard)
{
    if (!guard->n) return;
    pthread_mutex_lock(&guard->lock);
    const bool watches = !guard->ends;
    guard->ends = true;
    pthread_cond_signal(&guard->end);
    pthread_mutex_unlock(&guard->lock);
    if (watches) pthread_join(guard->thread, NULL);
    pthread_cond_destroy(&guard->end);
    pthread_mutex_destroy(&guard->lock);
    kvf__free(guard->places);
    kvf__free(guard->polled);
    *guard = (kvf__guard){0};
}
