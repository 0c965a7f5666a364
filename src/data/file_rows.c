/* Shared code of the readers: names the line of a row, and passes the row on. */
#include "file_rows.h"

void kvf__where(char where[KVF__WHERE_MAX], const char *path, int64_t line)
{
    snprintf(where, KVF__WHERE_MAX, "%.980s:%lld", path, (long long)line);
}

kvf_status kvf__give_row(const kvf__file *file, int64_t line, kvf_json *fields, bool made)
{
    char where[KVF__WHERE_MAX];
    const kvf__file_row row = {.fields = fields,
                               .path = file->path,
                               .where = where,
                               .line = line,
                               .word_lines = file->word_lines};
    kvf__where(where, file->path, line);
    kvf_status st = made ? file->row(file->user, &row)
                         : kvf__fail(file->ctx, KVF_ENOMEM, "out of memory");
    kvf_json_free(fields);
    return st;
}

kvf_status kvf__give_json(const kvf__file *file, int64_t line, const char *text, size_t n)
{
    char where[KVF__WHERE_MAX];
    kvf_json *fields = NULL;
    KVF_TRY(kvf__check_row_bytes(file, line, n));
    kvf__where(where, file->path, line);
    KVF_TRY(kvf_json_parse(file->ctx, where, text, n, &fields));
    return kvf__give_row(file, line, fields, true);
}

kvf_status kvf__file_fail(const kvf__file *file, int64_t line, const char *fmt, ...)
{
    char text[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return kvf__fail(file->ctx, KVF_EDATA, "%s:%lld: %s", file->path, (long long)line, text);
}

kvf_status kvf__check_row_bytes(const kvf__file *file, int64_t line, size_t bytes)
{
    enum { MOST_ROW_MIB = 64 };
    if (bytes <= (size_t)MOST_ROW_MIB << 20) return KVF_OK;
    return kvf__file_fail(file, line, "the row has %zu MiB, want at most %d", bytes >> 20,
                          MOST_ROW_MIB);
}
