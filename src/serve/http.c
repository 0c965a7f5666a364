/* The HTTP layer on libmicrohttpd: one thread waits for all connections (epoll), reads complete
 * requests, and suspends a connection until the computing thread has output for it. No other file
 * includes its headers. A refusal may be known before the body has arrived. It is delayed until a
 * short body was read, because a client that is cut off while sending would not read it. */
#include <microhttpd.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "access.h"
#include "access_log.h"
#include "call.h"
#include "listen.h"

enum { MOST_CONNECTIONS = 1000, SPARE_FILES = 64, DISCARD_BYTES = 16 << 20, STREAM_BLOCK = 4096 };
static const char JSON[] = "application/json";

struct kvf__http {
    struct MHD_Daemon *daemon;
    int socket;       /* listening socket; owned by the daemon until it stops */
    bool checks_host; /* only answer known host names */
};

/* ---- responses ------------------------------------------------------------------------------- */

static const char *header(const kvf__call *c, const char *name)
{
    return MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, name);
}

static enum MHD_Result queue_response(kvf__call *c, unsigned status, struct MHD_Response *response,
                                      const char *type)
{
    char retry[16];
    if (!response) return MHD_NO;
    if (type) MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (c->policy) {
        MHD_add_response_header(response, "Content-Security-Policy", c->policy);
        MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
        MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
        MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    }
    if (c->origin) {
        MHD_add_response_header(response, "Access-Control-Allow-Origin", c->origin);
        if (*c->origin != '*') MHD_add_response_header(response, "Vary", "Origin");
    }
    if (status == 401)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (status == 405 && c->route)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, c->route->method);
    if (status == 503 || status == 429) {
        snprintf(retry, sizeof retry, "%d", c->problem.retry > 1 ? c->problem.retry : 1);
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, retry);
    }
    c->status = status;
    enum MHD_Result result = MHD_queue_response(c->connection, status, response);
    MHD_destroy_response(response);
    return result;
}

/* Sends a text; st: status of making it. MHD_NO closes the connection. */
static enum MHD_Result send_text(kvf__call *c, unsigned status, const char *type, kvf_status st,
                                 const kvf__buf *text)
{
    if (st) return MHD_NO;
    c->sent = text->n;
    struct MHD_Response *response = MHD_create_response_from_buffer(text->n, text->data,
                                                                    MHD_RESPMEM_MUST_COPY);
    return queue_response(c, status, response, type);
}

static enum MHD_Result send_problem(kvf__call *c)
{
    kvf__server *server = c->server;
    pthread_mutex_lock(&server->queue.lock);
    server->metrics.refused += c->problem.status < 500;
    server->metrics.failed += c->problem.status >= 500;
    pthread_mutex_unlock(&server->queue.lock);
    const kvf_status st = kvf__reply_problem(&c->problem, false, &c->reply);
    return send_text(c, c->problem.status, JSON, st, &c->reply);
}

static kvf__connection *guarded(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void wake(void *sleeper)
{
    MHD_resume_connection(sleeper);
}

/* Called under the lock. */
static void sleep_on(kvf__call *c)
{
    c->job->out.sleeper = c->connection;
    c->job->out.wake = wake;
    MHD_suspend_connection(c->connection);
}

/* Handles a client of a job that disconnected; false: the answer is complete and being sent. */
static bool note_gone(kvf__job *job)
{
    kvf__queue *queue = &job->server->queue;
    pthread_mutex_lock(&queue->lock);
    const bool left = kvf__job_abandon(job);
    if (left) kvf__job_wake(job);
    pthread_mutex_unlock(&queue->lock);
    return left;
}

/* Frees sent text, so that a stream only holds what its client has not read yet. */
static void drop_sent(kvf__job_output *out)
{
    const size_t left = out->text.n - out->sent;
    if (left > out->sent) return;
    memmove(out->text.data, out->text.data + out->sent, left);
    out->text.n = left;
    out->sent = 0;
}

static ssize_t read_stream(void *user, uint64_t at, char *to, size_t capacity)
{
    kvf__call *c = user;
    kvf__job_output *out = &c->job->out;
    ssize_t n = 0;
    (void)at;
    pthread_mutex_lock(&c->server->queue.lock);
    const size_t left = out->text.n - out->sent;
    if (out->gone) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (left) {
        n = (ssize_t)(left < capacity ? left : capacity);
        memcpy(to, out->text.data + out->sent, (size_t)n);
        out->sent += (size_t)n;
        c->sent += (size_t)n;
        drop_sent(out);
    } else if (out->state == KVF__JOB_DONE) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        sleep_on(c);
    }
    pthread_mutex_unlock(&c->server->queue.lock);
    return n;
}

/* Continues an awake connection: sends new output, or suspends it again. */
static enum MHD_Result answer_job(kvf__call *c)
{
    kvf__job *job = c->job;
    pthread_mutex_lock(&c->server->queue.lock);
    const kvf__job_state state = job->out.state;
    const unsigned status = job->out.status;
    const bool gone = job->out.gone;
    if (state == KVF__JOB_WAITS && !gone) sleep_on(c);
    pthread_mutex_unlock(&c->server->queue.lock);
    if (gone) return MHD_NO; /* closes the connection */
    if (state == KVF__JOB_WAITS) return MHD_YES;
    if (status != 200 || !job->request.stream) /* the output is complete */
        return send_text(c, status, status == 200 && c->route->whole ? "text/plain" : JSON, KVF_OK,
                         &job->out.text);
    return queue_response(
        c, status,
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, c, NULL),
        "text/event-stream");
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Answers a CORS preflight request that access.c allowed. */
static enum MHD_Result answer_preflight(kvf__call *c)
{
    const char *names = header(c, "Access-Control-Request-Headers");
    struct MHD_Response *response = MHD_create_response_from_buffer(0, NULL,
                                                                    MHD_RESPMEM_PERSISTENT);
    if (!response) return MHD_NO;
    MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST");
    if (names) MHD_add_response_header(response, "Access-Control-Allow-Headers", names);
    MHD_add_response_header(response, "Access-Control-Max-Age", "600");
    return queue_response(c, 204, response, NULL);
}

static enum MHD_Result answer(kvf__call *c)
{
    if (c->preflight) return answer_preflight(c);
    c->type = JSON;
    if (!c->problem.status && c->route->answer(c)) return MHD_NO;
    if (c->problem.status) return send_problem(c);
    if (!c->job) return send_text(c, c->status ? c->status : 200, c->type, KVF_OK, &c->reply);
    kvf__guard_await(&c->server->guard, guarded(c->connection), c->job);
    return answer_job(c);
}

/* ---- reading a request ----------------------------------------------------------------------- */

static bool has_token(kvf__call *c)
{
    static const char scheme[] = "Bearer ";
    const char *given = header(c, MHD_HTTP_HEADER_AUTHORIZATION);
    if (!c->server->tenants.n) return true;
    if (!given || strncasecmp(given, scheme, strlen(scheme))) return false;
    c->tenant = kvf__tenant_of(&c->server->tenants, given + strlen(scheme));
    return c->tenant != NULL;
}

/* Checks the content type: web pages may send some other types to any address without a preflight.
 */
static bool is_json(const kvf__call *c)
{
    const char *type = header(c, MHD_HTTP_HEADER_CONTENT_TYPE);
    if (!type || strncasecmp(type, JSON, strlen(JSON))) return false;
    return strchr("; ", type[strlen(JSON)]) != NULL;
}

static long long content_length(const kvf__call *c)
{
    const char *text = header(c, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return text ? strtoll(text, NULL, 10) : 0;
}

/* Checks the head of a request. */
static void check_head(kvf__call *c, const char *method)
{
    const bool post = c->route && !strcmp(c->route->method, "POST");
    const char *host = c->server->http->checks_host ? header(c, MHD_HTTP_HEADER_HOST) : NULL;
    c->origin = kvf__origin_allowed(&c->server->options, header(c, "Origin"));
    if (host && !kvf__host_known(&c->server->options, host))
        kvf__problem_set(&c->problem, 421, NULL,
                         "Host \"%.80s\" is not a name of this machine: start the server with "
                         "--allow-host to accept it",
                         host);
    else if (!c->route)
        kvf__problem_set(&c->problem, 404, NULL, "there is no %.80s on this server", c->url);
    else if (c->origin && !strcmp(method, "OPTIONS"))
        c->preflight = true;
    else if (!c->route->open && !has_token(c))
        kvf__problem_set(&c->problem, 401, NULL,
                         "the API key is missing or wrong: send Authorization: Bearer KEY");
    else if (c->route->whole && c->tenant && c->tenant->n_patterns)
        kvf__problem_set(&c->problem, 403, NULL, "%s wants an API key for all models",
                         c->route->path);
    else if (strcmp(c->route->method, method) && (post || strcmp(method, "HEAD")))
        kvf__problem_set(&c->problem, 405, NULL, "%s wants %s", c->route->path, c->route->method);
    else if (post && !is_json(c))
        kvf__problem_set(&c->problem, 415, NULL, "want Content-Type: application/json");
    else if (content_length(c) > c->server->options.max_body)
        kvf__problem_set(&c->problem, 413, NULL, "the body has %lld bytes, the limit is %lld",
                         content_length(c), (long long)c->server->options.max_body);
}

static const char *argument(const kvf__call *c, const char *name)
{
    return MHD_lookup_connection_value(c->connection, MHD_GET_ARGUMENT_KIND, name);
}

static enum MHD_Result begin_call(kvf__server *server, struct MHD_Connection *connection,
                                  const char *url, const char *method, void **mine)
{
    kvf__call *c = NULL;
    if (kvf__alloc(NULL, sizeof *c, &c)) return MHD_NO;
    *c = (kvf__call){.server = server,
                     .connection = connection,
                     .url = url,
                     .route = kvf__route_find(url),
                     .arrived = kvf__clock()};
    snprintf(c->method, sizeof c->method, "%s", method);
    c->limit = argument(c, "limit");
    c->after = argument(c, "after");
    *mine = c;
    check_head(c, method);
    bool at_once = header(c, MHD_HTTP_HEADER_EXPECT) || content_length(c) > DISCARD_BYTES;
    return c->problem.status && at_once ? send_problem(c) : MHD_YES;
}

/* Adds a piece of the body. MHD_NO: it is too long. */
static enum MHD_Result add_piece(kvf__call *c, const char *data, size_t n)
{
    const size_t most = (size_t)c->server->options.max_body;
    if (!c->problem.status && n > most - c->body.n)
        kvf__problem_set(&c->problem, 413, NULL, "the body exceeds the limit of %zu bytes", most);
    if (!c->problem.status && kvf__buf_add(NULL, &c->body, data, n))
        kvf__problem_set(&c->problem, 500, NULL, "out of memory");
    if (!c->problem.status) return MHD_YES;
    kvf__buf_done(&c->body);
    c->discarded += n;
    return c->discarded > DISCARD_BYTES ? MHD_NO : MHD_YES;
}

static enum MHD_Result handle(void *user, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *data, size_t *n,
                              void **mine)
{
    kvf__server *server = user;
    kvf__call *c = *mine;
    (void)version;
    if (!c) return begin_call(server, connection, url, method, mine);
    if (c->job) return answer_job(c);
    if (*n) {
        const size_t bytes = *n;
        *n = 0;
        return add_piece(c, data, bytes);
    }
    kvf__guard_serve(&server->guard, guarded(connection), true);
    c->url = url;
    return answer(c);
}

static void log_call(const kvf__call *c, const kvf__reply *reply)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        c->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    char client[NI_MAXHOST] = "";
    if (c->server->access_log < 0) return;
    if (info && info->client_addr)
        getnameinfo(info->client_addr, sizeof(struct sockaddr_storage), client, sizeof client, NULL,
                    0, NI_NUMERICHOST);
    kvf__access_log_write(c->server->access_log, c, client, reply);
}

static void end_call(void *user, struct MHD_Connection *connection, void **mine,
                     enum MHD_RequestTerminationCode why)
{
    kvf__server *server = user;
    kvf__call *c = *mine;
    (void)why;
    kvf__guard_serve(&server->guard, guarded(connection), false);
    if (!c) return;
    kvf__reply reply = {0};
    if (c->job) {
        pthread_mutex_lock(&server->queue.lock);
        if (c->job->out.state != KVF__JOB_WAITS)
            reply = c->job->reply; /* otherwise it may be half read */
        kvf__job_abandon(c->job);
        c->job->out.sleeper = NULL;
        server->queue.unanswered--;
        pthread_mutex_unlock(&server->queue.lock);
    }
    log_call(c, &reply); /* it names the job's model */
    if (c->job) {
        pthread_mutex_lock(&server->queue.lock);
        kvf__job_drop(c->job);
        pthread_mutex_unlock(&server->queue.lock);
    }
    kvf__buf_done(&c->body);
    kvf__buf_done(&c->reply);
    kvf__free(c);
    *mine = NULL;
}

static void note_connection(void *user, struct MHD_Connection *connection, void **context,
                            enum MHD_ConnectionNotificationCode what)
{
    kvf__server *server = user;
    kvf__guard *guard = &server->guard;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        kvf__guard_remove(guard, *context);
        return;
    }
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    *context = info ? kvf__guard_add(guard, info->connect_fd) : NULL;
}

/* ---- start and stop -------------------------------------------------------------------------- */

static unsigned connection_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur > MOST_CONNECTIONS + SPARE_FILES)
        return MOST_CONNECTIONS;
    return files.rlim_cur > 2 * SPARE_FILES ? (unsigned)files.rlim_cur - SPARE_FILES : SPARE_FILES;
}

static kvf_status open_socket(kvf_ctx *ctx, const kvf__server *server, int *port)
{
    const kvf_serve_options *o = &server->options;
    kvf__listener listener = {.fd = -1, .loopback = true};
    const kvf_status st = kvf__listen(ctx, o, &listener);
    server->http->socket = listener.fd;
    server->http->checks_host = listener.loopback || o->n_allow_hosts;
    *port = listener.port;
    if (!listener.loopback && !server->tenants.n)
        kvf__log(ctx, KVF_LOG_WARN,
                 "%s is reachable from other machines and requires no key: use --token-file",
                 o->host);
    return st;
}

static kvf_status start(kvf_ctx *ctx, kvf__server *server, int *port)
{
    struct kvf__http *http = server->http;
    const unsigned most = connection_limit();
    server->guard = (kvf__guard){
        .n = most + 1, .patience = (double)server->options.timeout, .gone = note_gone};
    KVF_TRY(kvf__guard_start(ctx, &server->guard));
    KVF_TRY(open_socket(ctx, server, port));
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC, 0, NULL, NULL,
        handle, server, MHD_OPTION_LISTEN_SOCKET, http->socket, MHD_OPTION_CONNECTION_LIMIT, most,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)server->options.timeout,
        MHD_OPTION_NOTIFY_COMPLETED, end_call, server, MHD_OPTION_NOTIFY_CONNECTION,
        note_connection, server, MHD_OPTION_END);
    if (http->daemon) return KVF_OK;
    return kvf__listen_fail(ctx, &server->options, "libmicrohttpd cannot start");
}

kvf_status kvf__http_start(kvf_ctx *ctx, kvf__server *server, int *port)
{
    struct kvf__http *http = NULL;
    KVF_TRY(kvf__alloc(ctx, sizeof *http, &http));
    http->socket = -1;
    server->http = http;
    return start(ctx, server, port);
}

void kvf__http_refuse_more(kvf__server *server)
{
    MHD_quiesce_daemon(server->http->daemon);
    shutdown(server->http->socket, SHUT_RDWR); /* shut down, not closed: its thread may still use it
                                                */
}

void kvf__http_stop(kvf__server *server)
{
    struct kvf__http *http = server->http;
    if (!http) return;
    if (http->daemon) {
        kvf__http_refuse_more(server); /* otherwise it would close the socket itself */
        MHD_stop_daemon(http->daemon);
    }
    if (http->socket >= 0) close(http->socket);
    kvf__guard_stop(&server->guard);
    kvf__free(http);
    server->http = NULL;
}
