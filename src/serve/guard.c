/* Who may stay connected, and who may ask: deadlines for requests to arrive, clients that hang up,
 * names by which they may come, and the token.
 *
 * libmicrohttpd's own timeout is one of silence, which a byte now and then outlives; and it does
 * not look at a connection that sleeps until its job has something to say. So a thread of its own
 * watches connections here: by when their request began, and while they wait for a job by poll.
 * They are shut down and not closed, which leaves the descriptor to its owner.
 *
 * A client that ends only its own side (shutdown with SHUT_WR, which HTTP/1.1 gives no meaning)
 * looks the same as one that closed: whether anyone still reads can only be learned by writing, and
 * a whole answer has nothing to write until it is computed. It counts as gone, as it does to nginx
 * (status 499) and uvicorn; an answer that is already whole is still sent. */
#include <arpa/inet.h>
#include <ctype.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "serve_int.h"

typedef struct kvf__guest guest;

enum { WATCH_MS = 100 };

static void evict(kvf__guard *guard, guest *late)
{
    shutdown(late->fd, SHUT_RDWR);
    late->since = 0; /* once is enough */
    guard->evicted++;
}

/* The one that is longest without a whole request; NULL: all are being served. */
static guest *most_silent(const kvf__guard *guard)
{
    guest *found = NULL;
    for (size_t i = 0; i < guard->n; i++) {
        guest *g = &guard->guests[i];
        if (g->fd >= 0 && g->since > 0 && (!found || g->since < found->since)) found = g;
    }
    return found;
}

guest *kvf__guard_enter(kvf__guard *guard, int fd)
{
    guest *place = NULL;
    pthread_mutex_lock(&guard->lock);
    for (size_t i = 0; i < guard->n && !place; i++)
        if (guard->guests[i].fd < 0) place = &guard->guests[i];
    if (place) {
        *place = (guest){.fd = fd, .since = kvf__clock()};
        guard->used++;
    }
    /* a quarter stays free, so that an eviction has time to take effect */
    if (guard->used > guard->n - guard->n / 4) {
        guest *silent = most_silent(guard);
        if (silent && silent != place) evict(guard, silent);
    }
    pthread_mutex_unlock(&guard->lock);
    return place;
}

void kvf__guard_leave(kvf__guard *guard, guest *g)
{
    if (!g) return;
    pthread_mutex_lock(&guard->lock);
    *g = (guest){.fd = -1};
    guard->used--;
    pthread_mutex_unlock(&guard->lock);
}

void kvf__guard_serve(kvf__guard *guard, guest *g, bool served)
{
    if (!g) return;
    pthread_mutex_lock(&guard->lock);
    g->since = served ? 0 : kvf__clock();
    g->job = NULL;
    pthread_mutex_unlock(&guard->lock);
}

void kvf__guard_await(kvf__guard *guard, guest *g, kvf__job *job)
{
    if (!g) return;
    pthread_mutex_lock(&guard->lock);
    g->job = job;
    pthread_mutex_unlock(&guard->lock);
}

/* ---- the thread that watches ----------------------------------------------------------------- */

static void find_late(kvf__guard *guard)
{
    const double now = kvf__clock();
    for (size_t i = 0; i < guard->n; i++) {
        guest *g = &guard->guests[i];
        if (g->fd >= 0 && g->since > 0 && now - g->since > guard->patience) evict(guard, g);
    }
}

static void find_gone(kvf__guard *guard)
{
    nfds_t n = 0;
    for (size_t i = 0; i < guard->n; i++)
        if (guard->guests[i].job)
            guard->polled[n++] = (struct pollfd){guard->guests[i].fd, POLLRDHUP, 0};
    if (!n || poll(guard->polled, n, 0) <= 0) return;
    n = 0;
    for (size_t i = 0; i < guard->n; i++) {
        guest *g = &guard->guests[i];
        if (!g->job || !guard->polled[n++].revents) continue;
        if (guard->gone(g->job)) shutdown(g->fd, SHUT_RDWR);
        g->job = NULL;
    }
}

static void *watch(void *user)
{
    kvf__guard *guard = user;
    pthread_mutex_lock(&guard->lock);
    while (!guard->ends) {
        struct timespec until;
        find_late(guard);
        find_gone(guard);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += WATCH_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&guard->end, &guard->lock, &until);
    }
    pthread_mutex_unlock(&guard->lock);
    return NULL;
}

static kvf_status take_places(kvf_ctx *ctx, kvf__guard *guard)
{
    KVF_TRY(kvf__alloc_array(ctx, guard->n, sizeof *guard->guests, &guard->guests));
    for (size_t i = 0; i < guard->n; i++)
        guard->guests[i].fd = -1;
    return kvf__alloc_array(ctx, guard->n, sizeof *guard->polled, &guard->polled);
}

kvf_status kvf__guard_start(kvf_ctx *ctx, kvf__guard *guard)
{
    kvf_status st = take_places(ctx, guard);
    pthread_mutex_init(&guard->lock, NULL);
    pthread_cond_init(&guard->end, NULL);
    pthread_mutex_lock(&guard->lock); /* it looks at `ends` first */
    const bool ends = guard->ends = st || pthread_create(&guard->thread, NULL, watch, guard);
    pthread_mutex_unlock(&guard->lock);
    if (!ends) return KVF_OK;
    kvf__guard_stop(guard);
    return st ? st : kvf__fail(ctx, KVF_ENOMEM, "no thread can be started for connections");
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
    kvf__free(guard->guests);
    kvf__free(guard->polled);
    *guard = (kvf__guard){0};
}

/* ---- names ----------------------------------------------------------------------------------- */

enum { HOST_BYTES = 256 };

/* The name or address in "name:port" or "[address]:port", without the dot of the root. */
static bool split_host(const char *host, char name[HOST_BYTES])
{
    const bool six = *host == '[';
    const char *from = host + six;
    size_t n = strcspn(from, six ? "]" : ":");
    const char *rest = from + n;
    if (six && *rest++ != ']') return false;
    if (n && from[n - 1] == '.') n--;
    if (!n || n >= HOST_BYTES) return false;
    memcpy(name, from, n);
    name[n] = 0;
    if (*rest == ':') rest += 1 + strspn(rest + 1, "0123456789");
    return !*rest;
}

static bool is_loopback(const char *name)
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, name, &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, name, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

static bool is_own(const char *name)
{
    char own[HOST_BYTES];
    if (!strcasecmp(name, "localhost") || is_loopback(name)) return true;
    if (gethostname(own, sizeof own)) return false;
    own[sizeof own - 1] = 0;
    return !strcasecmp(name, own);
}

bool kvf__host_known(const kvf_serve_options *options, const char *host)
{
    char name[HOST_BYTES], other[HOST_BYTES];
    if (!split_host(host, name)) return false;
    if (is_own(name) || !strcasecmp(name, options->host)) return true;
    for (size_t i = 0; i < options->n_allow_hosts; i++)
        if (split_host(options->allow_hosts[i], other) && !strcasecmp(name, other)) return true;
    return false;
}

/* ---- token ----------------------------------------------------------------------------------- */

bool kvf__token_equal(const char *given, const char *token)
{
    const size_t n = strlen(given), want = strlen(token);
    volatile unsigned different = n != want;
    for (size_t i = 0; i < n; i++)
        different |= (unsigned char)given[i] ^ (unsigned char)token[want ? i % want : 0];
    return !different;
}

kvf_status kvf__token_read(kvf_ctx *ctx, const char *path, char **out)
{
    enum { LIMIT = 4096 };
    kvf__buf text = {0};
    KVF_TRY(kvf__read_file(ctx, path, LIMIT, &text));
    const char *from = text.data ? text.data : "";
    while (isspace((unsigned char)*from))
        from++;
    size_t n = strcspn(from, "\r\n");
    while (n && isspace((unsigned char)from[n - 1]))
        n--;
    kvf_status st = n ? kvf__strndup(ctx, from, n, out)
                      : kvf__fail(ctx, KVF_EFORMAT, "%s: holds no token", path);
    kvf__buf_done(&text);
    return st;
}
