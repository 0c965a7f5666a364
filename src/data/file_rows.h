/* Inside src/data: a file becomes rows of named fields (formats.c and the readers, fields.c),
 * whatever its format; loader.h has what tasks make of them. */
#ifndef KVF_FILE_ROWS_H
#define KVF_FILE_ROWS_H

#include "dataset.h"

#define KVF__WHERE_MAX 1024 /* "file:line" */

/* What every reader makes of its file, one row at a time. */
typedef struct kvf__file_row {
    const kvf_json *fields, *outer; /* objects; outer (NULL: none) holds what the file has once for
                                       several rows: SQuAD's context */
    const char *path, *where;       /* where: "file:line" for errors */
    int64_t line;
    bool word_lines; /* token i is in line + i (CoNLL) */
} kvf__file_row;
typedef kvf_status kvf__row_fn(void *user, const kvf__file_row *row);

typedef struct kvf__file {
    kvf_ctx *ctx;
    const char *path, *text; /* without byte order mark, NUL-terminated */
    size_t bytes;
    const kvf__dataset_options *options;
    kvf__row_fn *row;
    void *user;
    bool delimited, word_lines; /* set by kvf__read_rows: it has columns; a line for each word */
} kvf__file;

/* Calls file->row for every row; its error ends the reading. */
typedef kvf_status kvf__reader_fn(const kvf__file *file);
kvf__reader_fn kvf__read_jsonl, kvf__read_array, kvf__read_tsv, kvf__read_csv, kvf__read_conll,
    kvf__read_squad, kvf__read_text;
bool kvf__looks_conll(const char *text, size_t bytes);
/* EDATA "PATH:LINE: ...". */
kvf_status kvf__file_fail(const kvf__file *file, int64_t line, const char *fmt, ...)
    KVF__PRINTF(3, 4);
/* EDATA where a row of so many bytes is too long: it takes many times that while it is read. */
kvf_status kvf__check_row_bytes(const kvf__file *file, int64_t line, size_t bytes);
/* Hands fields, which begin at this line, to file->row and frees them; ENOMEM if they could not be
 * made. */
kvf_status kvf__give_row(const kvf__file *file, int64_t line, kvf_json *fields, bool made);
/* The same of the JSON of a row. */
kvf_status kvf__give_json(const kvf__file *file, int64_t line, const char *text, size_t n);
/* By the table of formats. */
kvf_status kvf__read_rows(kvf__file *file);

bool kvf__is_gzip(const char *bytes, size_t n);
/* EFORMAT names the file and the byte where it is damaged. */
kvf_status kvf__gunzip(kvf_ctx *ctx, const char *path, const kvf__buf *packed, kvf__buf *out);

void kvf__where(char where[KVF__WHERE_MAX], const char *path, int64_t line);

/* ---- fields ---------------------------------------------------------------------------------- */

/* Our field `name` under its own or its mapped name, which may be a path: "translation.en",
 * "messages.0.content"; NULL: not there. */
const kvf_json *kvf__field(const kvf__field_map *map, const kvf_json *row, const char *name);
/* The same in a file row, outer fields included. "a.b" looks into an object. */
const kvf_json *kvf__row_field(const kvf__field_map *map, const kvf__file_row *row,
                               const char *name);
/* Is it a name of ours, of a known data set, or mapped? Decides whether a first line is a header.
 */
bool kvf__field_known(const kvf__field_map *map, const char *name, size_t bytes);
/* Is it the column, or the beginning of its path, that entry i of the map names? */
bool kvf__field_mapped(const kvf__field_map *map, size_t i, const char *name);
/* Is it such a name, a field of ours that no header names, or one that SQuAD has beside them? */
bool kvf__field_read(const kvf__field_map *map, const char *name);
/* "the row has a, b (name others with --map)", for errors; in place of that hint the columns that
 * the map names and neither object has. outer: NULL, or as in kvf__file_row. */
enum { KVF__ROW_HAS_MAX = 1024 };
void kvf__row_has(const kvf__field_map *map, const kvf_json *fields, const kvf_json *outer,
                  char out[KVF__ROW_HAS_MAX]);

/* Texts of a row under any of the shapes of fields.c. */
typedef struct kvf__row_texts {
    kvf__buf a, b;           /* b.data NULL: one text */
    const kvf_json *choices; /* a list, or NULL: then those below */
    const kvf_json *keys;    /* ARC: a list of what labels call the choices; NULL: see choices */
    const kvf_json *choice[8];
    size_t n_choices;
} kvf__row_texts;
/* also: what the row lacks besides, for errors: ", and label", or "". */
kvf_status kvf__row_texts_get(kvf_ctx *ctx, const kvf__field_map *map, kvf__task task,
                              const kvf__file_row *row, const char *also, kvf__row_texts *out);
void kvf__row_texts_done(kvf__row_texts *texts);

/* A label as text: strings as they are, numbers and booleans as JSON writes them. False: null or
 * absent, and out is "". Labels longer than `bytes` are cut. */
bool kvf__label_text(const kvf_json *value, char *out, size_t bytes);
bool kvf__label_fits(const kvf_json *value, size_t bytes); /* no list, and not too long */

#endif
