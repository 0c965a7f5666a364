/* CoNLL columns: a word first, its tag last, a blank line after each sentence. Columns are parted
 * by tabs where the first line has one, else by spaces. -DOCSTART- lines are left out, and so are
 * comments: a line before a sentence's first word that begins with # and has not the columns of the
 * others, or is "# ..." among more than two columns. Hash tags are words. */
#include "file_rows.h"

#include <string.h>

typedef struct sentence {
    const kvf__file *file;
    bool tabs;
    size_t columns;                   /* of every line; 0: not known yet */
    int64_t line;                     /* of the first word */
    size_t bytes;                     /* so far */
    kvf_json *fields, *tokens, *tags; /* tokens NULL: between sentences */
} sentence;

static bool parts(const sentence *s, char c)
{
    return c == '\t' || (!s->tabs && c == ' ');
}

/* Columns of a line, and where the first one ends and the last one begins. Runs of spaces part
 * once, tabs each. */
static size_t count_columns(const sentence *s, const char *line, size_t n, size_t *first,
                            size_t *last)
{
    size_t columns = 0, at = 0;
    *first = *last = 0;
    while (at < n) {
        size_t from = at;
        while (at < n && !parts(s, line[at]))
            at++;
        if (!columns++) *first = at;
        *last = from;
        if (at == n) break;
        at++;
        while (!s->tabs && at < n && parts(s, line[at]))
            at++;
    }
    return columns;
}

static bool is_comment(const sentence *s, const char *line, size_t n, size_t columns)
{
    if (*line != '#' || s->tokens) return false;
    if (n > 1 && line[1] == ' ' && columns > 2) return true;
    return columns != (s->columns ? s->columns : 2);
}

static kvf_status end_sentence(sentence *s)
{
    kvf_json *fields = s->fields;
    if (!s->tokens) return KVF_OK;
    s->fields = s->tokens = s->tags = NULL;
    return kvf__give_row(s->file, s->line, fields, true);
}

static kvf_status begin_sentence(sentence *s, int64_t line)
{
    s->line = line;
    s->bytes = 0;
    s->fields = kvf_json_object();
    s->tokens = kvf_json_array();
    bool good = s->fields && kvf_json_set(s->fields, "tokens", s->tokens);
    if (good && s->columns > 1) {
        s->tags = kvf_json_array();
        good = kvf_json_set(s->fields, "tags", s->tags);
    }
    return good ? KVF_OK : kvf__fail(s->file->ctx, KVF_ENOMEM, "out of memory");
}

static kvf_status add_string(sentence *s, kvf_json *list, const char *text, size_t n)
{
    return kvf_json_add(list, kvf_json_new_strn(text, n))
               ? KVF_OK
               : kvf__fail(s->file->ctx, KVF_ENOMEM, "out of memory");
}

static kvf_status check_line(const sentence *s, int64_t line, size_t columns, size_t word)
{
    kvf_ctx *ctx = s->file->ctx;
    const char *path = s->file->path;
    if (columns < 2 && !s->file->options->unlabeled)
        return kvf__fail(ctx, KVF_EDATA, "%s:%lld: 1 column, want a word and its tag", path,
                         (long long)line);
    if (s->columns && columns != s->columns)
        return kvf__fail(ctx, KVF_EDATA, "%s:%lld: %zu columns, the lines before have %zu", path,
                         (long long)line, columns, s->columns);
    if (!word)
        return kvf__fail(ctx, KVF_EDATA, "%s:%lld: the word is empty", path, (long long)line);
    return KVF_OK;
}

static kvf_status add_line(sentence *s, int64_t number, const char *line, size_t n)
{
    size_t first = 0, last = 0;
    while (n && !s->tabs && parts(s, line[n - 1]))
        n--;
    size_t columns = count_columns(s, line, n, &first, &last);
    if (is_comment(s, line, n, columns)) return KVF_OK;
    KVF_TRY(check_line(s, number, columns, first));
    s->columns = columns;
    if (!s->tokens) KVF_TRY(begin_sentence(s, number));
    s->bytes += n;
    KVF_TRY(kvf__check_row_bytes(s->file, s->line, s->bytes));
    KVF_TRY(add_string(s, s->tokens, line, first));
    return s->tags ? add_string(s, s->tags, line + last, n - last) : KVF_OK;
}

/* Does the first line that is no comment hold a tab? */
static bool has_tabs(const kvf__file *file)
{
    const char *line = NULL;
    size_t at = 0, n = 0;
    while (kvf__next_line(file->text, file->bytes, &at, &line, &n))
        if (!kvf__is_blank_line(line, n) && *line != '#' && strncmp(line, "-DOCSTART-", 10))
            return memchr(line, '\t', n);
    return false;
}

kvf_status kvf__read_conll(const kvf__file *file)
{
    sentence s = {.file = file, .tabs = has_tabs(file)};
    const char *line = NULL;
    size_t at = 0, n = 0;
    kvf_status st = KVF_OK;
    for (int64_t i = 1; !st && kvf__next_line(file->text, file->bytes, &at, &line, &n); i++) {
        if (kvf__is_blank_line(line, n) || !strncmp(line, "-DOCSTART-", 10))
            st = end_sentence(&s);
        else
            st = add_line(&s, i, line, n);
    }
    if (!st) st = end_sentence(&s);
    kvf_json_free(s.fields);
    return st;
}
