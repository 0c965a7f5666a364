/* Rows in memory, stored as JSONL in an anonymous memory file (memfd), so that every reader
 * accesses them by a path like any other file. The path contains device and inode, because the
 * descriptor's number may be reused once the rows are freed. */
#include "memory_rows.h"
#include "infile.h"
#include "json_pack.h"
#include "utf8.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME  "kvfold-rows"
#define SHOWN "rows"

struct kvf_rows {
    int fd;
    int64_t n;
    char path[80];
};

kvf_status kvf_rows_create(kvf_ctx *ctx, kvf_rows **out)
{
    KVF_TRY(KVF__NEED(ctx, out));
    kvf_rows *rows = NULL;
    struct stat info;
    const int fd = memfd_create(NAME, MFD_CLOEXEC);
    if (fd < 0)
        return kvf__fail(ctx, errno == ENOSYS ? KVF_EUNSUPPORTED : KVF_EIO, "rows in memory: %s",
                         strerror(errno));
    kvf_status st = fstat(fd, &info) ? KVF_EIO : kvf__alloc(ctx, sizeof *rows, &rows);
    if (st) {
        close(fd);
        return st;
    }
    rows->fd = fd;
    snprintf(rows->path, sizeof rows->path, KVF__MEMORY_PATH, fd, (unsigned long long)info.st_dev,
             (unsigned long long)info.st_ino);
    *out = rows;
    return KVF_OK;
}

void kvf_rows_free(kvf_rows *rows)
{
    if (!rows) return;
    close(rows->fd);
    kvf__free(rows);
}

int64_t kvf_rows_count(const kvf_rows *rows)
{
    return rows ? rows->n : 0;
}

const char *kvf_rows_path(const kvf_rows *rows)
{
    return rows ? rows->path : NULL;
}

const char *kvf__shown_path(const char *path)
{
    kvf__memory_path memory;
    return kvf__memory_path_parse(path, &memory) ? SHOWN : path;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static kvf_status append(kvf_ctx *ctx, kvf_rows *rows, const char *text, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t written = write(rows->fd, text + done, n - done);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return kvf__fail(ctx, KVF_EIO, "rows in memory: %s", strerror(errno));
        done += (size_t)written;
    }
    return KVF_OK;
}

/* Appends a line, and removes it again if it could not be written completely. */
static kvf_status add_line(kvf_ctx *ctx, kvf_rows *rows, const char *text, size_t n)
{
    const off_t at = lseek(rows->fd, 0, SEEK_CUR);
    kvf_status st = append(ctx, rows, text, n);
    if (!st) st = append(ctx, rows, "\n", 1);
    if (!st)
        rows->n++;
    else if (!ftruncate(rows->fd, at))
        lseek(rows->fd, at, SEEK_SET);
    return st;
}

/* Appends an object as a line and frees it; NULL: out of memory. */
static kvf_status add_object(kvf_ctx *ctx, kvf_rows *rows, kvf_json *object)
{
    char *text = kvf_json_text(object, KVF_JSON_COMPACT);
    kvf_status st = text ? add_line(ctx, rows, text, strlen(text))
                         : kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    kvf_json_text_free(text);
    kvf_json_free(object);
    return st;
}

static kvf_status check_text(kvf_ctx *ctx, const kvf_rows *rows, const char *text)
{
    KVF_TRY(KVF__NEED(ctx, rows));
    char where[40];
    snprintf(where, sizeof where, SHOWN ":%lld", (long long)rows->n + 1);
    return text ? kvf__utf8_check(ctx, where, text, strlen(text), false)
                : kvf__fail(ctx, KVF_EUSAGE, "%s: a text is missing", where);
}

kvf_status kvf_rows_add_json(kvf_ctx *ctx, kvf_rows *rows, const char *json, size_t bytes)
{
    KVF_TRY(KVF__NEED(ctx, rows, json));
    char where[40];
    kvf_json *root = NULL;
    snprintf(where, sizeof where, SHOWN ":%lld", (long long)rows->n + 1);
    kvf_status st = kvf_json_parse(ctx, where, json, bytes, &root);
    if (st) return st == KVF_EFORMAT ? KVF_EDATA : st;
    if (kvf_json_typeof(root) != KVF_JSON_OBJECT)
        st = kvf__fail(ctx, KVF_EDATA, "%s: want a JSON object", where);
    else if (memchr(json, '\n', bytes) || memchr(json, '\r', bytes))
        return add_object(ctx, rows, root);
    else
        st = add_line(ctx, rows, json, bytes);
    kvf_json_free(root);
    return st;
}

kvf_status kvf_rows_add_pair(kvf_ctx *ctx, kvf_rows *rows, const char *prompt,
                             const char *completion)
{
    KVF_TRY(check_text(ctx, rows, prompt));
    KVF_TRY(check_text(ctx, rows, completion));
    return add_object(ctx, rows,
                      kvf__json_pack("{s:s, s:s}", "prompt", prompt, "completion", completion));
}

kvf_status kvf_rows_add_text(kvf_ctx *ctx, kvf_rows *rows, const char *text)
{
    KVF_TRY(check_text(ctx, rows, text));
    return add_object(ctx, rows, kvf__json_pack("{s:s}", "text", text));
}

static kvf_json *id_list(const int32_t *ids, size_t n)
{
    kvf_json *list = kvf_json_array();
    for (size_t i = 0; i < n; i++)
        kvf_json_add(list, kvf_json_new_int(ids[i]));
    return list;
}

kvf_status kvf_rows_add_ids(kvf_ctx *ctx, kvf_rows *rows, const int32_t *ids, const int32_t *labels,
                            size_t n)
{
    KVF_TRY(KVF__NEED(ctx, rows));
    if (n) KVF_TRY(KVF__NEED(ctx, ids));
    return add_object(ctx, rows,
                      kvf__json_pack("{s:o, s:o}", "input_ids", id_list(ids, n), "labels",
                                     id_list(labels ? labels : ids, n)));
}

kvf_status kvf_rows_add_messages(kvf_ctx *ctx, kvf_rows *rows, const kvf_message *messages,
                                 size_t n)
{
    KVF_TRY(KVF__NEED(ctx, rows));
    if (n) KVF_TRY(KVF__NEED(ctx, messages));
    for (size_t i = 0; i < n; i++) {
        KVF_TRY(check_text(ctx, rows, messages[i].role));
        KVF_TRY(check_text(ctx, rows, messages[i].content));
    }
    kvf_json *list = kvf_json_array();
    for (size_t i = 0; i < n; i++)
        kvf_json_add(list, kvf__json_pack("{s:s, s:s}", "role", messages[i].role, "content",
                                          messages[i].content));
    return add_object(ctx, rows, kvf__json_pack("{s:o}", "messages", list));
}

kvf_status kvf_rows_read(kvf_rows *rows, kvf_rows_fn next, void *user)
{
    if (!rows || !next) return KVF_EUSAGE;
    for (bool end = false; !end;)
        KVF_TRY(next(user, rows, &end));
    return KVF_OK;
}
