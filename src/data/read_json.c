/* Reads JSON rows, one value at a time: the elements of an array, or values one after the other. A
 * value may have a line of its own (JSONL), span several lines, or share a line. Only brackets,
 * commas and white space around rows are examined here; each row is parsed separately. If an array
 * is malformed, the whole file is parsed again to find the line of the error. */
#include "file_rows.h"

#include <string.h>

typedef struct json_rows {
    const kvf__file *file;
    size_t at;
    int64_t line; /* line of text[at] */
} json_rows;

static void move_to(json_rows *r, size_t to)
{
    for (; r->at < to; r->at++)
        r->line += r->file->text[r->at] == '\n';
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void skip_blanks(json_rows *r)
{
    size_t at = r->at;
    while (at < r->file->bytes && is_blank(r->file->text[at]))
        at++;
    move_to(r, at);
}

/* Returns the end of the value at r->at: after its last bracket, or at the character that ends a
 * bare value. */
static size_t value_end(const json_rows *r)
{
    const char *text = r->file->text;
    size_t at = r->at, bytes = r->file->bytes;
    bool quoted = false;
    for (int64_t depth = 0; at < bytes; at++) {
        const char c = text[at];
        if (quoted && c == '\\')
            at++;
        else if (c == '"')
            quoted = !quoted;
        else if (quoted)
            continue;
        else if (!depth && (c == ',' || c == ']' || c == '}' || is_blank(c)))
            break;
        else if (c == '{' || c == '[')
            depth++;
        else if ((c == '}' || c == ']') && !--depth)
            return at + 1;
    }
    return at < bytes ? at : bytes;
}

/* ---- one after the other --------------------------------------------------------------------- */

/* Returns the end of the text to parse for the message about a bad row: the end of its first line.
 * A row that clearly spans several lines, with its last bracket present, is parsed whole. */
static size_t own_line(const json_rows *r, size_t end)
{
    const char *text = r->file->text, *feed = memchr(text + r->at, '\n', end - r->at);
    size_t n = feed ? (size_t)(feed - text) : end;
    while (n > r->at && is_blank(text[n - 1]))
        n--;
    return n > r->at && strchr("{[,:", text[n - 1]) && strchr("}]", text[end - 1]) ? end : n;
}

kvf_status kvf__read_jsonl(const kvf__file *file)
{
    json_rows r = {.file = file, .line = 1};
    for (skip_blanks(&r); r.at < file->bytes; skip_blanks(&r)) {
        size_t end = value_end(&r);
        if (end == r.at) end++; /* a comma or bracket instead of a value */
        kvf_status st = kvf__give_json(file, r.line, file->text + r.at, end - r.at);
        if (st == KVF_EFORMAT)
            return kvf__give_json(file, r.line, file->text + r.at, own_line(&r, end) - r.at);
        if (st) return st;
        move_to(&r, end);
    }
    return KVF_OK;
}

/* ---- an array -------------------------------------------------------------------------------- */

/* Fails with the parser's message about the whole file. */
static kvf_status refuse(const json_rows *r)
{
    const kvf__file *file = r->file;
    kvf_json *root = NULL;
    KVF_TRY(kvf_json_parse(file->ctx, file->path, file->text, file->bytes, &root));
    kvf_json_free(root);
    return kvf__fail(file->ctx, KVF_EFORMAT, "%s:%lld: not an array of objects", file->path,
                     (long long)r->line);
}

/* Reads the elements after the opening bracket, up to the closing one. */
static kvf_status read_elements(json_rows *r)
{
    const kvf__file *file = r->file;
    for (char last = ','; last != ']'; last = file->text[r->at++]) {
        skip_blanks(r);
        const size_t end = value_end(r);
        kvf_status st = kvf__give_json(file, r->line, file->text + r->at, end - r->at);
        if (st) return st == KVF_EFORMAT ? refuse(r) : st;
        move_to(r, end);
        skip_blanks(r);
        if (r->at == file->bytes || !strchr(",]", file->text[r->at])) return refuse(r);
    }
    return KVF_OK;
}

kvf_status kvf__read_array(const kvf__file *file)
{
    json_rows r = {.file = file, .line = 1};
    skip_blanks(&r);
    if (r.at == file->bytes || file->text[r.at] != '[')
        return kvf__file_fail(file, r.line, "want a JSON array of rows");
    r.at++;
    skip_blanks(&r);
    if (r.at < file->bytes && file->text[r.at] == ']')
        r.at++;
    else
        KVF_TRY(read_elements(&r));
    skip_blanks(&r);
    return r.at == file->bytes ? KVF_OK : refuse(&r);
}
