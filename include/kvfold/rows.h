/* Rows of data in memory, for every function that reads a data file: training, validation, eval,
 * predict, score, generate.
 *
 *     kvf_rows *rows = NULL;
 *     if (kvf_rows_create(ctx, &rows)) return 1;
 *     if (kvf_rows_add_pair(ctx, rows, "2+2=", " 4")) return 1;
 *     if (kvf_train_set(ctx, options, "data", kvf_rows_path(rows))) return 1;
 *     kvf_rows_free(rows);
 *
 * Rows are kept as lines of JSONL. Results, stored facts and hashes equal those of a file with
 * these lines. Error lines name a row as "rows:LINE". */
#ifndef KVFOLD_ROWS_H
#define KVFOLD_ROWS_H

#include <kvfold/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvf_rows kvf_rows;
/* EUNSUPPORTED: the system has no files in memory (memfd_create). */
kvf_status kvf_rows_create(kvf_ctx *ctx, kvf_rows **out);
void kvf_rows_free(kvf_rows *rows); /* rows may be NULL. */
int64_t kvf_rows_count(const kvf_rows *rows);
/* Returns a name for options that take a data path, valid in this process while the rows live. It
 * is no file for other programs. Options that use it afterwards fail with EIO. */
const char *kvf_rows_path(const kvf_rows *rows);

/* Each function appends a row and copies its arguments. Texts are UTF-8, else EDATA. */

/* Appends a row of any task, given as the text of a JSON object. Line feeds in it are white space.
 * EDATA: not a JSON object. */
kvf_status kvf_rows_add_json(kvf_ctx *ctx, kvf_rows *rows, const char *json, size_t bytes);
kvf_status kvf_rows_add_pair(kvf_ctx *ctx, kvf_rows *rows, const char *prompt,
                             const char *completion);
kvf_status kvf_rows_add_text(kvf_ctx *ctx, kvf_rows *rows, const char *text);
/* Appends a row of ids [n]. labels [n]: ids to predict, unshifted as in transformers, -100: none;
 * NULL: the ids. */
kvf_status kvf_rows_add_ids(kvf_ctx *ctx, kvf_rows *rows, const int32_t *ids, const int32_t *labels,
                            size_t n);
typedef struct kvf_message {
    const char *role, *content; /* "user", "assistant", "system" */
} kvf_message;
kvf_status kvf_rows_add_messages(kvf_ctx *ctx, kvf_rows *rows, const kvf_message *messages,
                                 size_t n);

/* Appends rows from a callback, which is called until it sets *end and adds any number of rows. A
 * status other than KVF_OK ends the reading and is returned. */
typedef kvf_status (*kvf_rows_fn)(void *user, kvf_rows *rows, bool *end);
kvf_status kvf_rows_read(kvf_rows *rows, kvf_rows_fn next, void *user);

#ifdef __cplusplus
}
#endif
#endif
