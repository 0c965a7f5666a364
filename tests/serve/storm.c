/* Runs a storm of clients against a server. Clients connect, send requests and leave at random
 * instants, with or without closing properly. Requests are streamed, whole, queued, malformed or
 * truncated, with texts to continue and rows to classify, up to the limits and beyond.
 *
 * A second later the server's own figures must show that it holds nothing for them. Its answers
 * must be the same as before, and a signal must end it at once. A sanitizer's report changes the
 * server's exit status, which fails the test.
 *
 * One thread polls all clients. A seed determines the actions of each client and their times.
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

enum { BYTES = 1 << 16, MOST_ARGUMENTS = 48, PORT_SECONDS = 120, TOGETHER = 200 };
static const double END_SECONDS = 5, ANSWER_SECONDS = 120;

static pid_t server;
static int port;

static _Noreturn void fail(const char *what, const char *detail)
{
    fprintf(stderr, "storm: %s%s%s\n", what, detail ? ": " : "", detail ? detail : "");
    if (server > 0) kill(server, SIGKILL);
    exit(1);
}

/* ---- requests -------------------------------------------------------------------------------- */

static const char COMPLETIONS[] = "/v1/completions", CHAT[] = "/v1/chat/completions",
                  CLASSIFY[] = "/v1/classify";

/* Limits of the server that bodies reach: MOST_ROWS and MOST_CHOICES are its own, see
 * docs/promises.md. */
enum { MOST_BODY = 1 << 16, MOST_ROWS = 1024, MOST_CHOICES = 1024 };
#define CHOICES "{\"model\":\"choices\",\"input\":{\"text\":\"pick %d\",\"choices\":[@]}}"
#define CHOICE  "\"as long as MOST_CHOICES can be in a body\""

/* Bodies. %d stands for a number below a hundred, @ for a list of n times `item`. */
typedef struct body {
    const char *path, *text, *item;
    int n;
} body;
static const body BODIES[] = {
    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"%d\",\"max_tokens\":300,\"n\":100}", NULL, 0},
    {CLASSIFY, CHOICES, CHOICE, MOST_CHOICES},
    {CLASSIFY, CHOICES, "\"a\"", MOST_CHOICES + 1},
    {CLASSIFY, "{\"model\":\"classes\",\"input\":[\"%d\",@]}", "\"is it good\"", MOST_ROWS - 1},
    {CLASSIFY, "{\"model\":\"classes\",\"input\":[\"%d\",@]}", "\"is it good\"", MOST_ROWS},
    {CLASSIFY, "{\"model\":\"classes\",\"input\":[\"a %d\",[\"is it\",\"bad\"],\"b\"]}", NULL, 0},
    {CLASSIFY, "{\"model\":\"classes\",\"input\":\"%d @\"}", "more than one row may hold", 300},
    {CLASSIFY, "{\"model\":\"classes\",\"input\":[\"%d\",@]}", /* more than MOST_BODY bytes */
     "\"more than all rows together may hold, whatever their number is\"", MOST_ROWS - 1},
    {CLASSIFY, /* more than MOST_BODY tokens */
     "{\"model\":\"choices\",\"input\":{\"text\":\"a text that each of the choices repeats, so "
     "that all are too long together: %d\",\"choices\":[@]}}",
     "\"a\"", MOST_CHOICES},
    {CLASSIFY, "{\"model\":\"tags\",\"input\":[[\"%d\",@],[\"Ann\",\"went\"]]}", "\"Rome\"", 80},
    {CLASSIFY, /* windows that overlap */
     "{\"model\":\"answers\",\"input\":{\"question\":\"who %d?\",\"context\":\"@\"}}",
     "the men met here", 500},
    {CLASSIFY, "{\"model\":\"tags\",\"input\":\"%d\"}", NULL, 0},
    {CLASSIFY, "{\"model\":\"m\",\"input\":\"%d\"}", NULL, 0},
    {CLASSIFY, "{\"model\":\"answers\",\"input\":[{\"question\":\"%d\"", NULL, 0},
    {COMPLETIONS, "{\"model\":\"classes\",\"prompt\":\"%d\"}", NULL, 0},
    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"after %d:\",\"max_tokens\":300,\"stream\":true}",
     NULL, 0},
    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"after %d:\",\"max_tokens\":300}", NULL, 0},
    {COMPLETIONS,
     "{\"model\":\"m\",\"prompt\":[\"a\",\"b %d\",[1,2,3]],\"max_tokens\":100,\"n\":5,"
     "\"stream\":true,\"stop\":[\"xyz\",\"q\"]}",
     NULL, 0},
    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"%d\",\"max_tokens\":3}", NULL, 0},
    {CHAT,
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hello %d\"}],"
     "\"stream\":true}",
     NULL, 0},
    {COMPLETIONS, "{\"model\":\"none\",\"prompt\":\"%d\"}", NULL, 0},
    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":[%d, 99999]}", NULL, 0},
    {COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"%d", NULL, 0},
    {COMPLETIONS, "[[[[%d", NULL, 0},
    {"/v1/models", "%d", NULL, 0},
};
enum { N_BODIES = sizeof BODIES / sizeof BODIES[0], N_SLOW = 2 /* these take seconds */ };

static void write_body(FILE *out, const body *b, int number)
{
    for (const char *at = b->text; *at; at++)
        if (*at == '@')
            for (int i = 0; i < b->n; i++)
                fprintf(out, "%s%s", i ? "," : "", b->item);
        else if (at[0] == '%' && at[1] == 'd')
            fprintf(out, "%d", number), at++;
        else
            fputc(*at, out);
}

/* The header of a request with a body of n bytes, up to its empty line; chunked: includes the
 * length of the only chunk. */
static void write_head(FILE *out, const char *path, size_t n, bool close, bool chunked)
{
    fprintf(out, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n",
            path, port);
    if (close) fprintf(out, "Connection: close\r\n");
    fprintf(out,
            chunked ? "Transfer-Encoding: chunked\r\n\r\n%zx\r\n" : "Content-Length: %zu\r\n\r\n",
            n);
}

/* A whole request of *n bytes, to be freed. wrong: one byte is replaced by a random one. */
static char *make_request(const body *b, int number, bool close, bool chunked, bool wrong,
                          size_t *n)
{
    char *text = NULL, *request = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) fail("memory", strerror(errno));
    write_body(out, b, number);
    fclose(out);
    out = open_memstream(&request, n);
    if (!out) fail("memory", strerror(errno));
    write_head(out, b->path, bytes, close, chunked);
    fwrite(text, 1, bytes, out);
    if (chunked) fprintf(out, "\r\n0\r\n\r\n");
    if (fclose(out)) fail("memory", strerror(errno));
    free(text);
    if (wrong) request[(size_t)(uniform() * (double)*n)] = (char)(uniform() * 256);
    return request;
}

static char *draw_request(const body *b, bool wrong, size_t *n)
{
    const int number = (int)(uniform() * 100);
    const bool chunked = uniform() < 0.2, close = uniform() < 0.5;
    return make_request(b, number, close, chunked, wrong, n);
}

/* ---- clients --------------------------------------------------------------------------------- */

typedef struct client {
    int fd;            /* -1: not yet, or no more */
    double at, leaves; /* seconds from the beginning */
    bool resets;       /* disconnects without closing TCP properly */
    bool deaf;         /* does not read the answer */
    char *request;
    size_t n, sent, heard;
    char status[16]; /* first bytes of the answer */
} client;

typedef struct tally {
    int connected, answered, refused, left, closed;
} tally;

/* Two of three requests are complete, one of five is cut off. */
static client draw_client(double from, double span)
{
    client c = {.fd = -1, .at = from + uniform() * span};
    const double lot = uniform();
    c.leaves = c.at + uniform() * uniform() * 4;
    c.resets = uniform() < 0.3;
    c.deaf = uniform() < 0.1;
    c.request = draw_request(&BODIES[(int)(uniform() * N_BODIES)], lot > 0.85, &c.n);
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
    free(c->request);
    c->request = NULL;
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

/* Waits for the connected clients. */
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

/* At most TOGETHER clients at a time; further clients are delayed. */
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
            c->leaves += at - c->at; /* it came late, and stays for its full time */
            if (!dial(c)) {
                free(c->request);
                continue;
            }
            t.connected++;
            open++;
        }
        poll_clients(clients, n, &t);
    }
    return t;
}

/* Clients that stay in the middle of a request. */
static int open_by_half(void)
{
    client c = {.fd = -1};
    if (!dial(&c)) fail("connect", strerror(errno));
    wait_seconds(0.05);
    if (send(c.fd, "POST /v1/comp", 13, MSG_NOSIGNAL) != 13) fail("send", strerror(errno));
    return c.fd;
}

/* More clients than the server has rows send requests that take seconds, and leave at once. */
static void gust(client *clients, int n)
{
    for (int i = 0; i < n; i++) {
        client c = {.fd = -1, .leaves = 0.1 + 0.2 * uniform(), .resets = i / 2 % 2};
        c.request = draw_request(&BODIES[i % N_SLOW], false, &c.n);
        clients[i] = c;
    }
    storm(clients, n);
}

static int by_time(const void *a, const void *b)
{
    const client *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* ---- a client that stays --------------------------------------------------------------------- */

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

/* Appends the answer to such a request to `out`, from the member that holds results. */
static void ask(const body *b, const char *results, char *out, size_t room)
{
    static char text[BYTES];
    size_t n = 0;
    char *request = make_request(b, 5, true, false, false, &n);
    if (!fetch(request, text, sizeof text)) fail("no answer", text);
    const char *at = strstr(text, results);
    if (!at) fail("no results in", text);
    snprintf(out + strlen(out), room - strlen(out), "%s", at);
    free(request);
}

/* Answers that must not depend on other clients: a text, and a row with the maximum number of
 * choices. */
static void ask_all(char *out, size_t room)
{
    static const body text = {COMPLETIONS,
                              "{\"model\":\"m\",\"prompt\":\"after %d:\",\"max_tokens\":60,"
                              "\"temperature\":0.8,\"seed\":4}",
                              NULL, 0},
                      choices = {CLASSIFY, CHOICES, CHOICE, MOST_CHOICES};
    *out = 0;
    ask(&text, "\"choices\"", out, room);
    ask(&choices, "\"data\"", out, room);
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

static void run(const char *program, const char *arguments)
{
    char command[1024];
    snprintf(command, sizeof command, "'%s' %s >/dev/null", program, arguments);
    if (system(command)) fail("failed", command);
}

/* A classifier of every task, as one run file. */
static void train(const char *kvfold)
{
    static const char *const DATA[][2] = {
        {"classes.jsonl", "{\"text\":\"is it good\",\"label\":\"yes\"}\n"
                          "{\"text\":\"bad\",\"label\":\"no\"}\n"},
        {"choices.jsonl", "{\"text\":\"pick\",\"choices\":[\"a\",\"b\"],\"label\":1}\n"},
        {"tags.jsonl", "{\"tokens\":[\"Ann\",\"went\"],\"tags\":[\"B-PER\",\"O\"]}\n"},
        {"answers.jsonl", "{\"context\":\"the men met here\",\"question\":\"who?\","
                          "\"answers\":[{\"text\":\"the men\",\"start\":0}]}\n"},
    };
    for (size_t i = 0; i < sizeof DATA / sizeof DATA[0]; i++) {
        FILE *file = fopen(DATA[i][0], "w");
        if (!file || fputs(DATA[i][1], file) < 0 || fclose(file)) fail(DATA[i][0], strerror(errno));
    }
    run(kvfold,
        "train --base model --data classes=classes.jsonl --task classes=seq-cls "
        "--data choices=choices.jsonl --task choices=multiple-choice --data tags=tags.jsonl "
        "--task tags=token-cls --data answers=answers.jsonl --task answers=qa --method direct "
        "--prefix-length 3 --steps 2 --batch-size 4 --precision f32 --threads 1 --out tasks.h5 "
        "--quiet");
}

static void serve(const char *kvfold, char **options, int n)
{
    char most_body[16], line[256] = "";
    snprintf(most_body, sizeof most_body, "%d", MOST_BODY);
    char *arguments[MOST_ARGUMENTS] = {(char *)kvfold,    "serve",
                                       "--base",          "model",
                                       "--base-name",     "m",
                                       "--port",          "0",
                                       "--max-rows",      "8",
                                       "--max-queue",     "32",
                                       "--max-tokens",    "300",
                                       "--timeout",       "2",
                                       "--precision",     "f32",
                                       "--chat-template", "chatml",
                                       "--max-body",      most_body,
                                       "--prefix",        "classes=tasks.h5",
                                       "--prefix",        "choices=tasks.h5",
                                       "--prefix",        "tags=tasks.h5",
                                       "--prefix",        "answers=tasks.h5",
                                       "--head",          "classes=classes",
                                       "--head",          "choices=choices",
                                       "--head",          "tags=tags",
                                       "--head",          "answers=answers"};
    int pipes[2], at = 0;
    while (arguments[at])
        at++;
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
    static char before[BYTES], after[BYTES];
    ask_all(before, sizeof before);
    for (int i = 0; i < n; i++)
        clients[i] = draw_client(0, n / 60.0);
    qsort(clients, (size_t)n, sizeof *clients, by_time);
    const double begin = now();
    const tally t = storm(clients, n);
    gust(clients, n < 12 ? n : 12);
    const double over = now(), held = let_go_after(over, most);
    ask_all(after, sizeof after);
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
    random_state = strtoull(argv[4], NULL, 10) * 2 + 1;
    if (!kvfold || !make_tiny || !clients || n < 1) fail("arguments", NULL);
    if (!mkdtemp(folder) || chdir(folder)) fail(folder, strerror(errno));
    run(make_tiny, "model");
    train(kvfold);
    serve(kvfold, argv + 6, argc - 6);
    blow(clients, n, atof(argv[5]));
    snprintf(command, sizeof command, "rm -rf %s", folder);
    free(clients);
    free(kvfold);
    free(make_tiny);
    return system(command) != 0;
}
