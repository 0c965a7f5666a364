/* Rows of data in memory, for whatever reads a data file: training, validation, eval, predict,
 * score, generate.
 *
 *     kvf_rows *rows = NULL;
 *     if (kvf_rows_create(ctx, &rows)) return 1;
 *     if (kvf_rows_add_pair(ctx, rows, "2+2=", " 4")) return 1;
 *     if (kvf_train_set(ctx, options, "data", kvf_rows_path(rows))) return 1;
 *     kvf_rows_free(rows);
 *
 * Rows are kept in their JSONL form, one after the other: what is computed from them, stored of
 * them and hashed is what a file with these lines gives. Error lines name them as "rows:LINE". */
#ifndef KVFOLD_ROWS_H
#define KVFOLD_ROWS_H

#include <kvfold/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvf_rows kvf_rows;
/* EUNSUPPORTED: the system has no files in memory (memfd_create). */
kvf_status kvf_rows_create(kvf_ctx *ctx, kvf_rows **out);
void kvf_rows_free(kvf_rows *rows); /* NULL is fine */
int64_t kvf_rows_count(const kvf_rows *rows);
/* A name for options that take a path to data, in this process and as long as the rows live; it is
 * no file for other programs. EIO for those options afterwards. */
const char *kvf_rows_path(const kvf_rows *rows);

/* Each appends a row; what is given is copied. Texts are UTF-8, else EDATA. */

/* A row of any task, as the text of a JSON object; line feeds in it are white space. EDATA: it is
 * none. */
kvf_status kvf_rows_add_json(kvf_ctx *ctx, kvf_rows *rows, const char *json, size_t bytes);
kvf_status kvf_rows_add_pair(kvf_ctx *ctx, kvf_rows *rows, const char *prompt,
                             const char *completion);
kvf_status kvf_rows_add_text(kvf_ctx *ctx, kvf_rows *rows, const char *text);
/* ids [n]; labels [n]: ids to predict, unshifted as in transformers, -100: none; NULL: the ids. */
kvf_status kvf_rows_add_ids(kvf_ctx *ctx, kvf_rows *rows, const int32_t *ids, const int32_t *labels,
                            size_t n);
typedef struct kvf_message {
    const char *role, *content; /* "user", "assistant", "system" */
} kvf_message;
kvf_status kvf_rows_add_messages(kvf_ctx *ctx, kvf_rows *rows, const kvf_message *messages,
                                 size_t n);

/* Rows from a callback: it is called until it sets *end, and adds what it has. Its status, if it is
 * not KVF_OK, ends the reading and is returned. */
typedef kvf_status (*kvf_rows_fn)(void *user, kvf_rows *rows, bool *end);
kvf_status kvf_rows_read(kvf_rows *rows, kvf_rows_fn next, void *user);

#ifdef __cplusplus
}
#endif
#endif
