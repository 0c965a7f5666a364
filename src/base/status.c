/* Status names and texts, and the error line.
 *
 * The line has a fixed buffer, so that running out of memory can be reported too. It often quotes
 * bytes of a hostile file, so control characters are replaced: they could steer the user's
 * terminal. */
#include "ctx_int.h"
#include "utf8.h"

#include <errno.h>
#include <string.h>

static const char *const NAMES[][2] = {
#define STATUS(name, text) [KVF_##name] = {#name, text},
    KVF_STATUS_LIST(STATUS)
#undef STATUS
};

static const char *word_of(kvf_status status, int which)
{
    const size_t i = (size_t)status;
    return i < sizeof NAMES / sizeof NAMES[0] ? NAMES[i][which] : "?";
}

const char *kvf_status_name(kvf_status status)
{
    return word_of(status, 0);
}

const char *kvf_status_text(kvf_status status)
{
    return word_of(status, 1);
}

int kvf_version(void)
{
    return KVF_VERSION_NUMBER;
}

const char *kvf_version_string(void)
{
    return KVF_VERSION;
}

/* Makes a printable line: no control characters, and no incomplete UTF-8 sequence at the end. */
static void clean_line(char *line, int wanted)
{
    size_t n = strlen(line);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)line[i];
        if (c == '\n' || c == '\r' || c == '\t')
            line[i] = ' ';
        else if (c < 0x20 || c == 0x7f)
            line[i] = '?';
    }
    if (wanted < KVF__LINE_BYTES) return;

    n = KVF__LINE_BYTES - sizeof "...";
    while (n > 0 && kvf__utf8_continues(line[n]))
        n--;
    memcpy(line + n, "...", sizeof "...");
}

/* Formats into a separate line first, because the arguments may point into the old one. */
static void KVF__PRINTF(2, 0) format_line(char line[KVF__LINE_BYTES], const char *fmt, va_list args)
{
    int wanted = vsnprintf(line, KVF__LINE_BYTES, fmt, args);
    if (wanted < 0) {
        strcpy(line, "(message could not be formatted)");
        wanted = 0;
    }
    clean_line(line, wanted);
}

kvf_status kvf__fail(kvf_ctx *ctx, kvf_status status, const char *fmt, ...)
{
    char line[KVF__LINE_BYTES];
    va_list args;

    if (!ctx) return status;
    va_start(args, fmt);
    format_line(line, fmt, args);
    va_end(args);
    memcpy(ctx->error, line, sizeof line);
    return status;
}

kvf_status kvf__fail_prefix(kvf_ctx *ctx, kvf_status status, const char *fmt, ...)
{
    char prefix[KVF__LINE_BYTES];
    va_list args;

    if (!ctx) return status;
    va_start(args, fmt);
    format_line(prefix, fmt, args);
    va_end(args);
    return kvf__fail(ctx, status, "%s: %s", prefix, ctx->error);
}

/* Returns item i of a list of expressions as spelled by the preprocessor. */
static const char *nth_name(const char *names, size_t i, int *n)
{
    for (; i > 0; i--)
        names = strchr(names, ',') + 1;
    names += strspn(names, " ");
    *n = (int)strcspn(names, ",");
    return names;
}

kvf_status kvf__need(kvf_ctx *ctx, const char *function, const char *names,
                     const void *const *pointers, size_t n)
{
    if (!ctx) return KVF_EUSAGE;
    for (size_t i = 0; i < n; i++) {
        if (pointers[i]) continue;
        int bytes;
        const char *name = nth_name(names, i, &bytes);
        return kvf__fail(ctx, KVF_EUSAGE, "%s: %.*s is NULL", function, bytes, name);
    }
    return KVF_OK;
}

kvf_status kvf__check_enum(kvf_ctx *ctx, const char *name, int64_t value, int64_t last)
{
    if (value >= 0 && value <= last) return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE, "%s is %lld, want 0 to %lld", name, (long long)value,
                     (long long)last);
}

kvf_status kvf__check_reserved(kvf_ctx *ctx, const char *type, const void *reserved, size_t bytes)
{
    const unsigned char *at = reserved;
    for (size_t i = 0; i < bytes; i++)
        if (at[i])
            return kvf__fail(
                ctx, KVF_EUSAGE,
                "%s: reserved is not zero: initialise the struct with zeros or its defaults; "
                "settings of a library newer than this one, %s, are not supported",
                type, KVF_VERSION);
    return KVF_OK;
}

kvf_status kvf__fail_errno(kvf_ctx *ctx, const char *path, const char *verb)
{
    int error = errno;
    return kvf__fail(ctx, KVF_EIO, "%s: cannot %s: %s", path, verb, strerror(error));
}

void kvf__log(kvf_ctx *ctx, kvf_log_level level, const char *fmt, ...)
{
    char line[KVF__LINE_BYTES];
    va_list args;

    if (!ctx || !ctx->log) return;
    va_start(args, fmt);
    format_line(line, fmt, args);
    va_end(args);
    ctx->log(ctx->log_user, level, line);
}
