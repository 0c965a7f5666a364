/* Error lines on stderr and results on stdout. An error is one line, whatever text it quotes. A
 * failed write of a result is an error, unless the output pipe was closed. */
#include "cli_compare.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 4096, MOST_DIMS = 16 };

/* Also sends the line to the parent process, if kvfold started this one. */
static void tell_parent(const char *line)
{
    const char *fd = getenv(CLI_LINES_FD);
    if (fd) dprintf(atoi(fd), "%s\n", line);
}

/* Replaces control characters, which would break the line or the terminal. */
static void print_line(const cli_command *command, const char *fmt, va_list args, bool hint)
{
    char line[LINE_BYTES];
    vsnprintf(line, sizeof line, fmt, args);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    tell_parent(line);
    fprintf(stderr, "kvfold: %s%s%s", command ? command->name : "", command ? ": " : "", line);
    if (hint)
        fprintf(stderr, "; try kvfold %s%s--help", command ? command->name : "",
                command ? " " : "");
    fputc('\n', stderr);
}

int cli_fail(const cli_command *command, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    print_line(command, fmt, args, false);
    va_end(args);
    return command && command->failure ? command->failure : CLI_FAILED;
}

int cli_misuse(const cli_command *command, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    print_line(command, fmt, args, true);
    va_end(args);
    return CLI_MISUSE;
}

int cli_misuse_at(const cli_command *command, const cli_given *given, const char *fmt, ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (!given->file) return cli_misuse(command, "%s", line);
    return cli_misuse(command, "%s:%d: %s", given->file, given->line, line);
}

int cli_fail_status(const cli_call *call, kvf_status status)
{
    const char *line = kvf_ctx_error(call->ctx);
    if (!*line) line = kvf_status_text(status);
    if (kvf_train_rank(call->ctx)) /* with several processes rank 0 reports for all */
        return status == KVF_EUSAGE ? CLI_MISUSE : CLI_FAILED;
    return status == KVF_EUSAGE ? cli_misuse(call->command, "%s", line)
                                : cli_fail(call->command, "%s", line);
}

int cli_print_json(const cli_call *call, kvf_json *object)
{
    char *text = kvf_json_text(object, KVF_JSON_COMPACT);
    kvf_json_free(object);
    if (!text) return cli_fail(call->command, "out of memory");
    puts(text);
    kvf_json_text_free(text);
    return CLI_OK;
}

/* The reason of an earlier write error is lost, but a closed pipe can be detected. */
bool cli_is_unread(FILE *file)
{
    struct pollfd end = {.fd = fileno(file)};
    return poll(&end, 1, 0) == 1 && end.revents & POLLERR;
}

bool cli_reader_gone(void)
{
    return (ferror(stdout) && cli_is_unread(stdout)) || (ferror(stderr) && cli_is_unread(stderr));
}

bool cli_is_stdout(const char *path)
{
    return !strcmp(path, CLI_STDOUT);
}

void cli_write_stdout(void *user, const char *text, size_t n)
{
    (void)user;
    fwrite(text, 1, n, stdout);
}

/* cli_finish() reports earlier failures; only a failure in this call is reported here. */
int cli_flush(const cli_command *command, int code)
{
    if (ferror(stdout) || fflush(stdout) == 0 || cli_reader_gone()) return code;
    code = cli_fail(command, "standard output: %s", strerror(errno));
    clearerr(stdout);
    return code;
}

int cli_finish(const cli_command *command, int code)
{
    errno = 0;
    bool failed = ferror(stdout) || fflush(stdout);
    if (cli_reader_gone()) return CLI_CLOSED_PIPE;
    if (fclose(stdout) == 0 && !failed) return code;
    const char *reason = errno ? strerror(errno) : "write failed";
    return cli_fail(command, "standard output: %s", reason);
}

const char *cli_bytes_text(int64_t bytes, char buf[32])
{
    static const char *const UNITS[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    snprintf(buf, 32, unit ? "%.1f %s" : "%.0f %s", value, UNITS[unit]);
    return buf;
}

const char *cli_time_text(double seconds, char buf[32])
{
    long long s = seconds < 1e15 ? (long long)(seconds + 0.5) : 0;
    if (s < 3600)
        snprintf(buf, 32, "%lld:%02lld", s / 60, s % 60);
    else
        snprintf(buf, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    return buf;
}

const char *cli_counts_text(const char *task, int64_t examples, int64_t labels, char buf[64])
{
    const char *what = !strcmp(task, "lm")          ? "label tokens"
                       : !strcmp(task, "token-cls") ? "labelled words"
                                                    : NULL;
    int n = snprintf(buf, 64, "%lld examples", (long long)examples);
    if (what) snprintf(buf + n, (size_t)(64 - n), " with %lld %s", (long long)labels, what);
    return buf;
}

/* True for the heads of a prefix, or their size, that differ by layer. */
static bool is_by_layer(const int64_t *dims, size_t n, size_t i)
{
    return n == 6 && !dims[i] && (i == 3 || i == 5);
}

const char *cli_shape_text(const int64_t *dims, size_t n, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = 0;
    for (size_t i = 0; i <= n && used < size; i++) {
        int wrote = i == n ? snprintf(buf + used, size - used, n ? "]" : "[]")
                    : is_by_layer(dims, n, i)
                        ? snprintf(buf + used, size - used, "%s*", i ? ", " : "[")
                        : snprintf(buf + used, size - used, "%s%lld", i ? ", " : "[",
                                   (long long)dims[i]);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    return buf;
}

kvf_json *cli_shape_json(const int64_t *dims, size_t n)
{
    kvf_json *array = kvf_json_array();
    for (size_t i = 0; i < n; i++)
        kvf_json_add(array,
                     is_by_layer(dims, n, i) ? kvf_json_new_null() : kvf_json_new_int(dims[i]));
    return array;
}

const char *cli_shape_at(const kvf_json *object, char *buf, size_t size)
{
    const kvf_json *shape = kvf_json_get(object, "shape");
    int64_t dims[MOST_DIMS];
    size_t n = kvf_json_size(shape) < MOST_DIMS ? kvf_json_size(shape) : MOST_DIMS;
    for (size_t i = 0; i < n; i++)
        dims[i] = kvf_json_int(kvf_json_at(shape, i), 0);
    return cli_shape_text(dims, n, buf, size);
}
