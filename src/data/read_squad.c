/* Reads SQuAD 1.1 and 2.0: {"data": [{"paragraphs": [{"context", "qas": [{"id", "question",
 * "answers": [{"text", "answer_start"}], "is_impossible"}]}]}]}. A question is a row, and its
 * paragraph the outer object. Parsed JSON has no lines, so errors name the line of a question's
 * id. */
#include "file_rows.h"

#include <string.h>

typedef struct squad {
    const kvf__file *file;
    size_t at; /* search position: earlier ids are done */
    int64_t line;
} squad;

/* Moves to the line of the id, if it occurs unescaped further down. */
static void find_line(squad *p, const char *id)
{
    char quoted[256];
    int n = snprintf(quoted, sizeof quoted, "\"%s\"", id ? id : "");
    if (!id || n <= 2 || n >= (int)sizeof quoted) return;
    const char *from = p->file->text + p->at;
    const char *found = memmem(from, p->file->bytes - p->at, quoted, (size_t)n);
    if (!found) { /* later ids are not searched: each search would scan the file */
        p->at = p->file->bytes;
        return;
    }
    for (const char *c = from; c < found; c++)
        p->line += *c == '\n';
    p->at = (size_t)(found - p->file->text);
}

static kvf_status read_question(squad *p, const kvf_json *paragraph, const kvf_json *question)
{
    char where[KVF__WHERE_MAX];
    const char *id = kvf_json_str(kvf_json_get(question, "id"), NULL);
    find_line(p, id);
    kvf__where(where, p->file->path, p->line);
    if (id) {
        size_t n = strlen(where);
        snprintf(where + n, sizeof where - n, ": question %.24s", id);
    }
    const kvf__file_row row = {.fields = question,
                               .outer = paragraph,
                               .path = p->file->path,
                               .where = where,
                               .line = p->line};
    return p->file->row(p->file->user, &row);
}

static kvf_status read_paragraph(squad *p, const kvf_json *paragraph)
{
    const kvf_json *questions = kvf_json_get(paragraph, "qas");
    if (!kvf_json_str(kvf_json_get(paragraph, "context"), NULL))
        return kvf__file_fail(p->file, p->line,
                              "a paragraph at or after this line has no \"context\"");
    if (kvf_json_typeof(questions) != KVF_JSON_ARRAY)
        return kvf__file_fail(p->file, p->line,
                              "a paragraph at or after this line has no list \"qas\"");
    for (size_t i = 0; i < kvf_json_size(questions); i++)
        KVF_TRY(read_question(p, paragraph, kvf_json_at(questions, i)));
    return KVF_OK;
}

static kvf_status read_document(squad *p, const kvf_json *document)
{
    const kvf_json *paragraphs = kvf_json_get(document, "paragraphs");
    if (kvf_json_typeof(paragraphs) != KVF_JSON_ARRAY)
        return kvf__file_fail(p->file, p->line,
                              "a document at or after this line has no list \"paragraphs\"");
    for (size_t i = 0; i < kvf_json_size(paragraphs); i++)
        KVF_TRY(read_paragraph(p, kvf_json_at(paragraphs, i)));
    return KVF_OK;
}

kvf_status kvf__read_squad(const kvf__file *file)
{
    squad p = {.file = file, .line = 1};
    kvf_json *root = NULL;
    KVF_TRY(kvf_json_parse(file->ctx, file->path, file->text, file->bytes, &root));
    const kvf_json *data = kvf_json_get(root, "data");
    kvf_status st = kvf_json_typeof(data) == KVF_JSON_ARRAY
                        ? KVF_OK
                        : kvf__file_fail(file, p.line,
                                         "the file has no list \"data\" of documents");
    for (size_t i = 0; !st && i < kvf_json_size(data); i++)
        st = read_document(&p, kvf_json_at(data, i));
    kvf_json_free(root);
    return st;
}
