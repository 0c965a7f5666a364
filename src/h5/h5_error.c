/* The first failure of an open file as one error line: HDF5's own message, failed writes, and
 * excessive memory claims. */
#include "h5_raw.h"

#include <string.h>

enum { LINE_BYTES = 1024 };

static herr_t keep_innermost(unsigned n, const H5E_error2_t *error, void *user)
{
    char *reason = user;
    if (n == 0 && error->desc) snprintf(reason, LINE_BYTES, "%s", error->desc);
    return 0;
}

/* Extracts the system's reason from HDF5's "..., error message = 'No space left on device',
 * ...". */
static void shorten_reason(char *reason)
{
    static const char mark[] = "error message = '";
    char *start = strstr(reason, mark), *end;

    if (!start) return;
    start += sizeof mark - 1;
    end = strchr(start, '\'');
    if (!end) return;
    memmove(reason, start, (size_t)(end - start));
    reason[end - start] = '\0';
}

/* Writes "PATH: /object: " or, for the root, "PATH: ". */
static void place_text(const kvf__h5 *h5, kvf__h5_id at, char text[LINE_BYTES])
{
    char name[LINE_BYTES / 2] = "";

    if (at < 0 || at == h5->file || H5Iget_name(at, name, sizeof name) <= 0 ||
        strcmp(name, "/") == 0)
        snprintf(text, LINE_BYTES, "%s: ", h5->path);
    else
        snprintf(text, LINE_BYTES, "%s: %s: ", h5->path, name);
}

/* reason: begins with ": ", or is empty. */
static void KVF__PRINTF(5, 0) fail_at(kvf__h5 *h5, kvf__h5_id at, kvf_status status,
                                      const char *reason, const char *fmt, va_list args)
{
    char what[LINE_BYTES], place[LINE_BYTES];

    vsnprintf(what, sizeof what, fmt, args);
    place_text(h5, at, place);
    h5->status = kvf__fail(h5->ctx, status, "%s%s%s", place, what, reason);
}

void kvf__h5_fail(kvf__h5 *h5, kvf__h5_id at, kvf_status status, const char *fmt, ...)
{
    va_list args;

    if (h5->status) return;
    va_start(args, fmt);
    fail_at(h5, at, status, "", fmt, args);
    va_end(args);
}

void kvf__h5_broken(kvf__h5 *h5, kvf__h5_id at, const char *fmt, ...)
{
    char reason[LINE_BYTES + 2] = ": HDF5 gives no reason";
    va_list args;

    if (h5->status) return;
    h5->broken = true;
    /* before another call clears it */
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, reason + 2);
    shorten_reason(reason + 2);
    va_start(args, fmt);
    fail_at(h5, at, h5->out.temp ? KVF_EIO : KVF_EFORMAT, reason, fmt, args);
    va_end(args);
}

void kvf__h5_check_written(kvf__h5 *h5, kvf__h5_id at, const char *what)
{
    if (h5->failure && *h5->failure)
        kvf__h5_fail(h5, at, KVF_EIO, "%s: %s", what, strerror(*h5->failure));
}

void kvf__h5_claim(kvf__h5 *h5, kvf__h5_id at, size_t bytes)
{
    enum { GROWTH = 8, SLACK = 32 << 20 };

    if (h5->status) return;
    if (bytes > GROWTH * h5->file_bytes + SLACK - h5->claimed)
        kvf__h5_fail(h5, at, KVF_EFORMAT,
                     "reading needs %zu bytes of memory in total, want at most %d times the file's "
                     "%zu bytes, plus 32 MiB",
                     h5->claimed + bytes, GROWTH, h5->file_bytes);
    else
        h5->claimed += bytes;
}
