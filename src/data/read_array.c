/* A JSON array of rows, read one element at a time: only the array's own brackets and commas are
 * looked at here, what is between them is parsed as a line of JSONL is. Where that fails the whole
 * file is parsed once more, for the line of what is wrong. */
#include "file_rows.h"

#include <string.h>

typedef struct array {
    const kvf__file *file;
    size_t at;
    int64_t line; /* of text[at] */
} array;

static void skip_blanks(array *a)
{
    const char *text = a->file->text;
    for (; a->at < a->file->bytes && strchr(" \t\r\n", text[a->at]) && text[a->at]; a->at++)
        a->line += text[a->at] == '\n';
}

/* Behind the element at a->at: at the comma or bracket that ends it, or at the end of the file. */
static size_t element_end(const array *a)
{
    const char *text = a->file->text;
    size_t at = a->at, bytes = a->file->bytes;
    bool quoted = false;
    for (int64_t depth = 0; at < bytes; at++) {
        char c = text[at];
        if (quoted && c == '\\')
            at++;
        else if (c == '"')
            quoted = !quoted;
        else if (quoted)
            continue;
        else if (!depth && (c == ',' || c == ']'))
            break;
        else
            depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    }
    return at < bytes ? at : bytes;
}

/* jansson's message about the whole file. */
static kvf_status refuse(const array *a)
{
    const kvf__file *file = a->file;
    kvf_json *root = NULL;
    KVF_TRY(kvf_json_parse(file->ctx, file->path, file->text, file->bytes, &root));
    kvf_json_free(root);
    return kvf__fail(file->ctx, KVF_EFORMAT, "%s:%lld: not an array of objects", file->path,
                     (long long)a->line);
}

/* The elements after the opening bracket, up to the closing one. */
static kvf_status read_elements(array *a)
{
    const kvf__file *file = a->file;
    for (char last = ','; last != ']'; last = file->text[a->at++]) {
        skip_blanks(a);
        const size_t end = element_end(a);
        kvf_status st = kvf__give_json(file, a->line, file->text + a->at, end - a->at);
        if (st) return st == KVF_EFORMAT ? refuse(a) : st;
        for (; a->at < end; a->at++)
            a->line += file->text[a->at] == '\n';
        if (a->at == file->bytes) return refuse(a);
    }
    return KVF_OK;
}

kvf_status kvf__read_array(const kvf__file *file)
{
    array a = {.file = file, .line = 1};
    skip_blanks(&a);
    if (a.at == file->bytes || file->text[a.at] != '[')
        return kvf__file_fail(file, a.line, "want a JSON array of rows");
    a.at++;
    skip_blanks(&a);
    if (a.at < file->bytes && file->text[a.at] == ']')
        a.at++;
    else
        KVF_TRY(read_elements(&a));
    skip_blanks(&a);
    return a.at == file->bytes ? KVF_OK : refuse(&a);
}
