/* A storm of clients on a server: they connect, ask (streamed, whole, in a queue, badly, by half)
 * and go away at random instants, politely or not. Afterwards nothing is held for them a second
 * later, by the server's own figures; it answers what it answered before, and a signal ends it at
 * once. Reports of a sanitizer make the exit status of the server another, and so fail.
 *
 * One thread polls all clients; who does what and when is drawn from a seed.
 *
 * Usage: storm KVFOLD MAKE_TINY CLIENTS SEED [OPTION OF SERVE...]; in a folder of its own, which is
 * removed. */
#include "chance.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 16, MOST_ARGUMENTS = 40, PORT_SECONDS = 120, TOGETHER = 200 };
static const double END_SECONDS = 5, ANSWER_SECONDS = 120;

static pid_t server;
static int port;

static _Noreturn void fail(const char *what, const char *detail)
{
    fprintf(stderr, "storm: %s%s%s\n", what, detail ? ": " : "", detail ? detail : "");
    if (server > 0) kill(server, SIGKILL);
    exit(1);
}

/* ---- what they ask --------------------------------------------------------------------------- */

static const char COMPLETIONS[] = "/v1/completions", CHAT[] = "/v1/chat/completions";

/* Bodies; %d: a number below a hundred. */
static const struct {
    const char *path, *body;
} ASKED[] = {
    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"%d\",\"max_tokens\":300,\"n\":100}"}, /* seconds */
    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"after %d:\",\"max_tokens\":300,\"stream\":true}"},
    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"after %d:\",\"max_tokens\":300}"},
    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":[\"a\",\"b %d\",[1,2,3]],\"max_tokens\":100,\"n\":5,"
                  "\"stream\":true,\"stop\":[\"xyz\",\"q\"]}"},
    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"%d\",\"max_tokens\":3}"},
    {CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hello %d\"}],"
           "\"stream\":true}"},
    {COMPLETIONS, "{\"model\":\"none\",\"prompt\":\"%d\"}"},
    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":[%d, 99999]}"},
    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"%d"},
    {COMPLETIONS, "[[[[%d"},
    {"/v1/models", "%d"},
};
enum { N_ASKED = sizeof ASKED / sizeof ASKED[0] };

/* A whole request; wrong: some byte of it is another. */
static size_t write_request(char *out, size_t room, int which, bool wrong)
{
    char body[512], format[512];
    const int number = (int)(uniform() * 100);
    const bool chunked = uniform() < 0.2;
    snprintf(format, sizeof format, "%s", ASKED[which].body);
    char *at = strstr(format, "%d");
    snprintf(body, sizeof body, "%.*s%d%s", (int)(at - format), format, number, at + 2);
    int n = snprintf(out, room,
                     "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n",
                     ASKED[which].path, port);
    if (uniform() < 0.5) n += snprintf(out + n, room - (size_t)n, "Connection: close\r\n");
    if (chunked)
        n += snprintf(out + n, room - (size_t)n,
                      "Transfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n0\r\n\r\n", strlen(body),
                      body);
    else
        n += snprintf(out + n, room - (size_t)n, "Content-Length: %zu\r\n\r\n%s", strlen(body),
                      body);
    if (wrong) out[(int)(uniform() * n)] = (char)(uniform() * 256);
    return (size_t)n;
}

/* ---- clients --------------------------------------------------------------------------------- */

typedef struct client {
    int fd;            /* -1: not yet, or no more */
    double at, leaves; /* seconds from the beginning */
    bool resets;       /* hangs up without the farewell of TCP */
    bool deaf;         /* does not read */
    char request[1024];
    size_t n, sent, heard;
    char status[16]; /* what it heard first */
} client;

typedef struct tally {
    int connected, answered, refused, left, closed;
} tally;

/* Two in three ask something whole; one in six stops in the middle. */
static client draw_client(double from, double span)
{
    client c = {.fd = -1, .at = from + uniform() * span};
    const double lot = uniform();
    c.leaves = c.at + uniform() * uniform() * 4;
    c.resets = uniform() < 0.3;
    c.deaf = uniform() < 0.1;
    c.n = write_request(c.request, sizeof c.request, (int)(uniform() * N_ASKED), lot > 0.85);
    if (lot < 0.2) c.n = (size_t)(uniform() * (double)c.n);
    return c;
}

static struct sockaddr_in address(void)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static bool dial(client *c)
{
    const struct sockaddr_in to = address();
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) fail("socket", strerror(errno));
    if (!connect(c->fd, (const struct sockaddr *)&to, sizeof to) || errno == EINPROGRESS)
        return true;
    close(c->fd);
    c->fd = -1;
    return false;
}

static void hang_up(client *c, tally *t)
{
    const struct linger at_once = {1, 0};
    const int status = c->heard > 9 ? atoi(c->status + 9) : 0;
    if (c->resets) setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(c->fd);
    c->fd = -1;
    t->answered += status == 200;
    t->refused += status >= 400;
    t->left += status == 0;
}

static void send_more(client *c)
{
    ssize_t n = send(c->fd, c->request + c->sent, c->n - c->sent, MSG_NOSIGNAL);
    if (n > 0) c->sent += (size_t)n;
}

/* False: the server has closed. */
static bool hear_more(client *c)
{
    static char bytes[BYTES];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    for (ssize_t i = 0; i < n && c->heard + (size_t)i + 1 < sizeof c->status; i++)
        c->status[c->heard + (size_t)i] = bytes[i];
    c->heard += (size_t)n;
    return n > 0;
}

static void serve_events(client *c, short events, tally *t)
{
    if (events & POLLOUT && c->sent < c->n) send_more(c);
    if (events & (POLLIN | POLLHUP | POLLERR) && !hear_more(c)) {
        t->closed++;
        hang_up(c, t);
    }
}

/* Waits for those that are there. */
static void poll_clients(client *clients, int n, tally *t)
{
    static struct pollfd polled[TOGETHER];
    static client *of[TOGETHER];
    nfds_t used = 0;
    for (int i = 0; i < n && used < TOGETHER; i++) {
        client *c = &clients[i];
        if (c->fd < 0) continue;
        of[used] = c;
        polled[used++] = (struct pollfd){
            c->fd, (short)((c->sent < c->n ? POLLOUT : 0) | (c->deaf ? 0 : POLLIN)), 0};
    }
    if (poll(polled, used, 5) <= 0) return;
    for (nfds_t i = 0; i < used; i++)
        if (polled[i].revents) serve_events(of[i], polled[i].revents, t);
}

/* At most TOGETHER at a time: who comes then comes later. */
static tally storm(client *clients, int n)
{
    tally t = {0};
    const double begin = now();
    for (int first = 0, open = 0; first < n || open > 0;) {
        const double at = now() - begin;
        open = 0;
        for (int i = 0; i < n; i++) {
            client *c = &clients[i];
            if (c->fd >= 0 && at > c->leaves) hang_up(c, &t);
            open += c->fd >= 0;
        }
        for (; first < n && open < TOGETHER && clients[first].at <= at; first++) {
            client *c = &clients[first];
            c->leaves += at - c->at; /* it came late, and stays as long */
            if (!dial(c)) continue;
            t.connected++;
            open++;
        }
        poll_clients(clients, n, &t);
    }
    return t;
}

/* Those who stay in the middle of a request. */
static int open_by_half(void)
{
    client c = {.fd = -1};
    if (!dial(&c)) fail("connect", strerror(errno));
    wait_seconds(0.05);
    if (send(c.fd, "POST /v1/comp", 13, MSG_NOSIGNAL) != 13) fail("send", strerror(errno));
    return c.fd;
}

/* As many as have rows and more ask for what takes seconds, and leave at once. */
static void gust(client *clients, int n)
{
    for (int i = 0; i < n; i++) {
        client c = {.fd = -1, .leaves = 0.1 + 0.2 * uniform(), .resets = i % 2};
        c.n = write_request(c.request, sizeof c.request, 0, false);
        clients[i] = c;
    }
    storm(clients, n);
}

static int by_time(const void *a, const void *b)
{
    const client *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* ---- one who stays --------------------------------------------------------------------------- */

/* The whole answer to one request; false without an answer 200. */
static bool fetch(const char *request, char *text, size_t room)
{
    const struct sockaddr_in to = address();
    const struct timeval patience = {.tv_sec = (time_t)ANSWER_SECONDS};
    size_t n = 0;
    ssize_t got = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (!connect(fd, (const struct sockaddr *)&to, sizeof to) &&
        send(fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request))
        while (n + 1 < room && (got = recv(fd, text + n, room - 1 - n, 0)) > 0)
            n += (size_t)got;
    text[n] = 0;
    close(fd);
    return !strncmp(text, "HTTP/1.1 200 ", 13);
}

/* The server's reply to a request that has one answer. */
static void ask(char *out, size_t room)
{
    static const char body[] = "{\"model\":\"m\",\"prompt\":\"after 5:\",\"max_tokens\":60,"
                               "\"temperature\":0.8,\"seed\":4}";
    char request[512], text[BYTES];
    snprintf(request, sizeof request,
             "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    if (!fetch(request, text, sizeof text)) fail("no answer", text);
    const char *at = strstr(text, "\"choices\"");
    if (!at) fail("no choices in", text);
    snprintf(out, room, "%s", at);
}

static double figure(const char *text, const char *name)
{
    char line[64];
    snprintf(line, sizeof line, "\nkvfold_%s ", name);
    const char *at = strstr(text, line);
    if (!at) fail("the figures do not say", name);
    return strtod(at + strlen(line), NULL);
}

/* Seconds until nothing is held. */
static double let_go_after(double since, double most)
{
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: "
                                  "close\r\n\r\n";
    static char text[BYTES];
    for (;;) {
        if (!fetch(request, text, sizeof text)) fail("no figures", text);
        const double rows = figure(text, "rows"), queue = figure(text, "queue_length");
        const double took = now() - since;
        if (rows == 0 && queue == 0 && figure(text, "queue_bytes") == 0) return took;
        if (took > most) {
            snprintf(text, sizeof text, "%g rows, %g requests in the queue, after %.2f s", rows,
                     queue, took);
            fail("still held", text);
        }
        wait_seconds(0.02);
    }
}

/* ---- the server ------------------------------------------------------------------------------ */

static pid_t start(char *const *arguments, int out)
{
    pid_t pid = fork();
    if (pid) return pid;
    if (out >= 0) dup2(out, 1);
    execv(arguments[0], arguments);
    _exit(127);
}

static int status_of(pid_t pid, int flags, bool *ended)
{
    int status = 0;
    pid_t got = waitpid(pid, &status, flags);
    *ended = got == pid;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void serve(const char *kvfold, char **options, int n)
{
    char *arguments[MOST_ARGUMENTS] = {(char *)kvfold, "serve", "--base",          "model",
                                       "--base-name",  "m",     "--port",          "0",
                                       "--max-rows",   "8",     "--max-queue",     "32",
                                       "--max-tokens", "300",   "--timeout",       "2",
                                       "--precision",  "f32",   "--chat-template", "chatml"};
    int pipes[2], at = 20;
    char line[256] = "";
    for (int i = 0; i < n && at + 1 < MOST_ARGUMENTS; i++)
        arguments[at++] = options[i];
    if (pipe(pipes)) fail("pipe", strerror(errno));
    server = start(arguments, pipes[1]);
    close(pipes[1]);
    FILE *said = fdopen(pipes[0], "r");
    if (!said || !fgets(line, sizeof line, said) ||
        sscanf(line, "listening on http://127.0.0.1:%d", &port) != 1)
        fail("the server does not listen", line);
    fclose(said);
}

/* Seconds until a signal has ended it. */
static double end(void)
{
    const double begin = now();
    bool ended = false;
    int status = 0;
    char text[32];
    kill(server, SIGTERM);
    while (!ended && now() - begin < END_SECONDS) {
        status = status_of(server, WNOHANG, &ended);
        wait_seconds(0.005);
    }
    if (!ended) fail("SIGTERM does not end the server", NULL);
    server = 0;
    snprintf(text, sizeof text, "%d", status);
    if (status != 128 + SIGTERM) fail("the server ended with status", text);
    return now() - begin;
}

/* ---- all ------------------------------------------------------------------------------------- */

static void blow(client *clients, int n, double most)
{
    char before[BYTES], after[BYTES];
    ask(before, sizeof before);
    for (int i = 0; i < n; i++)
        clients[i] = draw_client(0, n / 60.0);
    qsort(clients, (size_t)n, sizeof *clients, by_time);
    const double begin = now();
    const tally t = storm(clients, n);
    gust(clients, n < 12 ? n : 12);
    const double over = now(), held = let_go_after(over, most);
    ask(after, sizeof after);
    if (strcmp(before, after)) fail("another answer than before", after);
    gust(clients, n < 12 ? n : 12);
    const int half = open_by_half();
    const double took = end();
    close(half);
    printf("%d clients in %.1f s: %d heard 200, %d an error, %d nothing; held for %.2f s, ended in "
           "%.2f s\n",
           t.connected, over - begin, t.answered, t.refused, t.left, held, took);
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/kvfold-storm-XXXXXX", command[128];
    if (argc < 6)
        fail("usage: storm KVFOLD MAKE_TINY CLIENTS SEED SECONDS [OPTION OF SERVE...]", NULL);
    char *kvfold = realpath(argv[1], NULL), *make_tiny = realpath(argv[2], NULL);
    const int n = atoi(argv[3]);
    client *clients = calloc((size_t)n, sizeof *clients);
    bool ended;
    random_state = strtoull(argv[4], NULL, 10) * 2 + 1;
    if (!kvfold || !make_tiny || !clients || n < 1) fail("arguments", NULL);
    if (!mkdtemp(folder) || chdir(folder)) fail(folder, strerror(errno));
    if (status_of(start((char *[]){make_tiny, "model", NULL}, -1), 0, &ended))
        fail("no model", NULL);
    serve(kvfold, argv + 6, argc - 6);
    blow(clients, n, atof(argv[5]));
    snprintf(command, sizeof command, "rm -rf %s", folder);
    free(clients);
    free(kvfold);
    free(make_tiny);
    return system(command) != 0;
}
