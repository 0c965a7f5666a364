/* The access log. Each line is one write to a file opened for appending, so that several servers
 * may share a file, and log rotation may truncate it (copytruncate). */
#include "access_log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 200, GAVE_UP = 499 /* 499: closed by the client, as in nginx */ };

kvf_status kvf__access_log_open(kvf_ctx *ctx, const char *path, int *fd)
{
    const bool standard = !strcmp(path, "-");
    const int opened = standard ? dup(STDOUT_FILENO)
                                : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    if (opened < 0) return kvf__fail(ctx, KVF_EIO, "%s: cannot append: %s", path, strerror(errno));
    *fd = opened;
    return KVF_OK;
}

void kvf__access_log_close(int fd)
{
    if (fd >= 0) close(fd);
}

/* Formats the current time as in RFC 3339: "2026-01-31T12:00:00.250Z". */
static void print_time(char out[40])
{
    struct timespec now;
    struct tm utc;
    char day[24];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out, 40, "%s.%03dZ", day, (int)(now.tv_nsec / 1000000));
}

static kvf_json *line_of(const kvf__call *call, const char *client, const kvf__reply *reply)
{
    char now[40];
    print_time(now);
    kvf_json *line = kvf__json_of("time:s client:s method:s path:o status:I bytes:I seconds:f", now,
                                  client, call->method,
                                  kvf_json_new_strn(call->url, strnlen(call->url, PATH_BYTES)),
                                  (int64_t)(call->status ? call->status : GAVE_UP),
                                  (int64_t)call->sent, kvf__clock() - call->arrived);
    if (reply->model)
        kvf__json_put(line, "model:s prompt_tokens:I new_tokens:I", reply->model,
                      reply->prompt_tokens, reply->new_tokens);
    return line;
}

void kvf__access_log_write(int fd, const kvf__call *call, const char *client,
                           const kvf__reply *reply)
{
    kvf_json *line = line_of(call, client, reply);
    char *text = kvf_json_text(line, KVF_JSON_COMPACT);
    kvf__buf out = {0};
    kvf_json_free(line);
    if (text && !kvf__buf_printf(NULL, &out, "%s\n", text)) {
        const ssize_t written = write(fd, out.data, out.n);
        (void)written;
    }
    kvf__buf_done(&out);
    kvf_json_text_free(text);
}
