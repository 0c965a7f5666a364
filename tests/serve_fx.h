/* A server on the toy base in its own thread, with prefix files in a folder. The client speaks HTTP
 * over plain sockets, so that a test can also send invalid requests. */
#ifndef SERVE_FX_H
#define SERVE_FX_H

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "generate.h"
#include "server.h"
#include "toy_base.h"

enum { N_FILES = 3 };

typedef struct served {
    char dir[512], path[N_FILES][600];
    kvf_serve_prefix prefixes[N_FILES];
    kvf_serve_options options;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    volatile int stop;
    int port; /* 0: not yet */
    bool ended;
    kvf_status status;
    char line[256];
    kvf_serve_totals totals;
    kvf_ctx *ctx; /* the test's own base, to compare with */
    kvf_base *base;
} served;

static inline void open_toy(const char *dir, kvf_ctx **ctx, kvf_base **base)
{
    const kvf_ctx_options threads = {.threads = 2};
    const kvf_base_options how = {.precision = KVF_PRECISION_F32};
    ck_assert_int_eq(kvf_ctx_create(&threads, ctx), KVF_OK);
    ck_assert_msg(!kvf_base_open(*ctx, dir, &how, base), "%s", kvf_ctx_error(*ctx));
}

/* A prefix file of P random tokens for the toy base, put in place by rename; scale: the standard
 * deviation of its values. */
static inline void put_scaled_prefix(const served *s, const char *path, int64_t P, uint64_t seed,
                                     double scale)
{
    kvf_ctx *ctx = s->ctx;
    const kvf__desc *d = kvf__model_desc(s->base->model);
    const kvf__identity id = {.base_name = (char *)"toy",
                              .base_architecture = (char *)"llama",
                              .base_hash = s->base->hash,
                              .method = (char *)"direct",
                              .task = (char *)"lm",
                              .chat_template = (char *)"none",
                              .position_start = P,
                              .L = d->L,
                              .G = d->G,
                              .P = P,
                              .D = d->D};
    kvf__artifact file = {.kind = KVF__KIND_PREFIX, .dtype = KVF__F32, .id = id};
    kvf__rng rng = kvf__rng_make(seed, 7);
    ck_assert_int_eq(kvf__prefix_init(ctx, &file.prefix, d->L, d->G, P, d->D), KVF_OK);
    for (size_t i = 0; i < kvf__prefix_count(&file.prefix); i++)
        file.prefix.kv[i] = (float)(scale * kvf__rng_normal(&rng));
    ck_assert_msg(!kvf__artifact_write(ctx, path, true, &file), "%s", kvf_ctx_error(ctx));
    kvf__prefix_done(&file.prefix);
}

static inline void put_prefix(const served *s, const char *path, int64_t P, uint64_t seed)
{
    put_scaled_prefix(s, path, P, seed, 0.7);
}

static inline void note_port(void *user, int port)
{
    served *s = user;
    pthread_mutex_lock(&s->lock);
    s->port = port;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static inline void *run_server(void *user)
{
    served *s = user;
    kvf_ctx *ctx = NULL;
    kvf_base *base = NULL;
    open_toy(s->dir, &ctx, &base);
    kvf_ctx_set_stop(ctx, &s->stop);
    kvf_status st = kvf_serve(ctx, base, &s->options, &s->totals);
    pthread_mutex_lock(&s->lock);
    s->status = st;
    s->ended = true;
    snprintf(s->line, sizeof s->line, "%s", kvf_ctx_error(ctx));
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    kvf_base_free(base);
    kvf_ctx_free(ctx);
    return NULL;
}

/* Files and options; s->options may be changed before serve_start. */
static inline void serve_prepare(served *s)
{
    static const char *const names[N_FILES] = {"one", "two", "three"};
    memset(s, 0, sizeof *s);
    const char *dir = ck_tmpdir();
    snprintf(s->dir, sizeof s->dir, "%s", dir);
    toy_folder(s->dir, 5, 0);
    open_toy(s->dir, &s->ctx, &s->base);
    for (int i = 0; i < N_FILES; i++) {
        snprintf(s->path[i], sizeof s->path[i], "%s/%s.h5", dir, names[i]);
        put_prefix(s, s->path[i], 2 + 5 * i, (uint64_t)i);
        s->prefixes[i] = (kvf_serve_prefix){.name = names[i], .path = s->path[i]};
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->options = kvf_serve_defaults();
    s->options.prefixes = s->prefixes;
    s->options.n_prefixes = N_FILES;
    s->options.base_name = "bare";
    s->options.port = 0;
    s->options.listening = note_port;
    s->options.user = s;
}

static inline void serve_start(served *s)
{
    s->port = s->stop = 0;
    s->ended = false;
    ck_assert_int_eq(pthread_create(&s->thread, NULL, run_server, s), 0);
    pthread_mutex_lock(&s->lock);
    while (!s->port && !s->ended)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static inline void serve_end(served *s)
{
    s->stop = 15;
    ck_assert_int_eq(pthread_join(s->thread, NULL), 0);
}

/* Call after the last comparison. */
static inline void serve_done(served *s)
{
    kvf_base_free(s->base);
    kvf_ctx_free(s->ctx);
}

/* ---- a client -------------------------------------------------------------------------------- */

static inline int dial(const served *s)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)s->port),
                                   .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const struct timeval patience = {.tv_sec = 60};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_ge(fd, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static inline void say(int fd, const char *text)
{
    ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* A request with Connection: close; extra: further header lines. */
static inline void ask(int fd, const char *method, const char *url, const char *extra,
                       const char *body)
{
    char head[512];
    snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s",
             method, url, extra ? extra : "");
    say(fd, head);
    if (body) {
        snprintf(head, sizeof head, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                 strlen(body));
        say(fd, head);
    }
    say(fd, "\r\n");
    if (body) say(fd, body);
}

/* Reads up to the end of the connection; returns the status. */
static inline int hear(int fd, char *text, size_t room)
{
    size_t n = 0;
    ssize_t got;
    while (n + 1 < room && (got = recv(fd, text + n, room - 1 - n, 0)) > 0)
        n += (size_t)got;
    text[n] = 0;
    close(fd);
    return n > 12 && !strncmp(text, "HTTP/1.1 ", 9) ? atoi(text + 9) : 0;
}

static inline int fetch(const served *s, const char *method, const char *url, const char *extra,
                        const char *body, char *text, size_t room)
{
    int fd = dial(s);
    ask(fd, method, url, extra, body);
    return hear(fd, text, room);
}

/* The first "key":"text" after a place; the toy's texts contain no escapes. */
static inline void member(const char *text, const char *key, char *out, size_t room)
{
    char pattern[64];
    snprintf(pattern, sizeof pattern, "\"%s\":\"", key);
    const char *at = strstr(text, pattern);
    ck_assert_msg(at != NULL, "no %s in %s", key, text);
    at += strlen(pattern);
    snprintf(out, room, "%.*s", (int)strcspn(at, "\""), at);
}

/* ---- the running server and requests to it --------------------------------------------------- */

enum { ROOM = 1 << 16, NEW = 12 };

static served s;
static char text[ROOM];

static inline void setup(void)
{
    serve_prepare(&s);
}

static inline void teardown(void)
{
    serve_done(&s);
}

/* A run of 8 steps on the model's folder, written to path; options may be changed before
 * train_run. */
static inline kvf_train_options short_run(const char *method, const char *path)
{
    static char data[600];
    kvf_train_options o = kvf_train_defaults();
    toy_write(s.dir, "rows.jsonl",
              "{\"prompt\":\"one of\",\"completion\":\" bcdefg\"}\n"
              "{\"prompt\":\"the\",\"completion\":\" answer is 7\"}\n");
    snprintf(data, sizeof data, "%s/rows.jsonl", s.dir);
    o.base = s.dir;
    o.data = data;
    o.out = path;
    o.method = method;
    o.steps = 8;
    o.batch_size = 2;
    o.lr = 0.5;
    o.precision = KVF_PRECISION_F32;
    o.chat_template = "none";
    o.force = true;
    return o;
}

static inline void train_run(const kvf_train_options *o)
{
    kvf_train_result result;
    ck_assert_msg(!kvf_train(s.ctx, o, &result), "%s: %s", o->method, kvf_ctx_error(s.ctx));
}

/* The result of kvf_generate; file: of a prefix, NULL: none. */
static inline void generate(const char *file, const char *prompt, uint64_t seed, double temperature,
                            char *out)
{
    kvf_prefix *prefix = NULL;
    kvf_generate_options options = kvf_generate_defaults();
    char *said = NULL;
    if (file)
        ck_assert_int_eq(kvf_prefix_open(s.ctx, file, KVF_CHECKPOINT_DEFAULT, &prefix), KVF_OK);
    options.max_tokens = NEW;
    options.seed = seed;
    options.temperature = temperature;
    ck_assert_int_eq(kvf_generate(s.ctx, s.base, prefix, &prompt, 1, &options, &said, NULL),
                     KVF_OK);
    strcpy(out, said);
    kvf_texts_free(&said, 1);
    kvf_prefix_free(prefix);
}

static inline const char *body_of(const char *model, const char *prompt, uint64_t seed, bool stream)
{
    static char body[512];
    snprintf(body, sizeof body,
             "{\"model\":\"%s\",\"prompt\":\"%s\",\"max_tokens\":%d,\"temperature\":0.8,"
             "\"seed\":%d%s}",
             model, prompt, NEW, (int)seed, stream ? ",\"stream\":true" : "");
    return body;
}

static inline int complete(const char *model, const char *prompt, uint64_t seed)
{
    return fetch(&s, "POST", "/v1/completions", NULL, body_of(model, prompt, seed, false), text,
                 ROOM);
}

static inline void is_served(void)
{
    char want[256], got[256];
    generate(s.path[1], "are you there", 3, 0.8, want);
    ck_assert_int_eq(complete("two", "are you there", 3), 200);
    member(text, "text", got, sizeof got);
    ck_assert_str_eq(got, want);
}

static inline void has(const char *what)
{
    ck_assert_msg(strstr(text, what) != NULL, "no %s in %s", what, text);
}

/* ---- figures, and long answers --------------------------------------------------------------- */

/* The number in a line of /metrics. */
static inline double figure(const char *name)
{
    char line[100];
    ck_assert_int_eq(fetch(&s, "GET", "/metrics", NULL, NULL, text, ROOM), 200);
    snprintf(line, sizeof line, "\nkvfold_%s ", name);
    const char *at = strstr(text, line);
    ck_assert_msg(at != NULL, "no %s in %s", name, text);
    return atof(at + strlen(line));
}

/* True once a figure equals `want`; false if it does not within so many seconds. */
static inline bool becomes(const char *name, double want, double seconds)
{
    const double until = kvf__clock() + seconds;
    while (figure(name) != want) {
        if (kvf__clock() > until) return false;
        usleep(20000);
    }
    return true;
}

/* Sets the bare base alone, with room for answers that take minutes; before the server starts. */
static inline void serve_long_rows(void)
{
    char config[1024];
    const char *at = strstr(toy_llama, "\"max_position_embeddings\":");
    ck_assert_ptr_nonnull(at);
    at += strlen("\"max_position_embeddings\":");
    snprintf(config, sizeof config, "%.*s90000%s", (int)(at - toy_llama), toy_llama,
             at + strspn(at, "0123456789"));
    toy_write(s.dir, "config.json", config);
    s.options.n_prefixes = 0;
    s.options.max_context = 0;
    s.options.max_tokens = 80000;
}
#define LONG_BODY(more)                                                                            \
    "{\"model\":\"bare\",\"prompt\":\"b\",\"max_tokens\":80000,\"temperature\":0" more "}"

static inline int ask_long(const char *body)
{
    int fd = dial(&s);
    ask(fd, "POST", "/v1/completions", NULL, body);
    return fd;
}

static inline void check_start(kvf_status status, const char *line)
{
    serve_start(&s);
    pthread_join(s.thread, NULL);
    ck_assert_int_eq(s.port, 0);
    ck_assert_int_eq(s.status, status);
    ck_assert_msg(strstr(s.line, line) != NULL, "%s", s.line);
    s.ended = false;
}

#endif
