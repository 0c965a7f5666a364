/* Internal to src/data: reads a file of any format into rows of named fields (formats.c, the
 * readers, fields.c). loader.h turns these into rows of ids. */
#ifndef KVF_FILE_ROWS_H
#define KVF_FILE_ROWS_H

#include "dataset.h"

#define KVF__WHERE_MAX 1024 /* bytes of a text "file:line" */

/* One row of a file, as readers pass it on. */
typedef struct kvf__file_row {
    const kvf_json *fields, *outer; /* objects; outer (NULL: none) has fields that several rows
                                       share, such as SQuAD's context */
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
    bool delimited, word_lines; /* set by kvf__read_rows: has columns; has a line for each word */
} kvf__file;

/* Reads a file and calls file->row for every row. An error of file->row ends reading. */
typedef kvf_status kvf__reader_fn(const kvf__file *file);
kvf__reader_fn kvf__read_jsonl, kvf__read_array, kvf__read_tsv, kvf__read_csv, kvf__read_conll,
    kvf__read_squad, kvf__read_text;
bool kvf__looks_conll(const char *text, size_t bytes);
/* Fails with EDATA "PATH:LINE: ...". */
kvf_status kvf__file_fail(const kvf__file *file, int64_t line, const char *fmt, ...)
    KVF__PRINTF(3, 4);
/* Fails with EDATA if a row of so many bytes is too long, because reading it takes many times that
 * memory. */
kvf_status kvf__check_row_bytes(const kvf__file *file, int64_t line, size_t bytes);
/* Passes the fields of a row that begins at this line to file->row, and frees them. made false:
 * ENOMEM, because the fields could not be built. */
kvf_status kvf__give_row(const kvf__file *file, int64_t line, kvf_json *fields, bool made);
/* Parses the JSON text of a row and passes it on. */
kvf_status kvf__give_json(const kvf__file *file, int64_t line, const char *text, size_t n);
/* Finds the format of a file and reads its rows (formats.c). */
kvf_status kvf__read_rows(kvf__file *file);

bool kvf__is_gzip(const char *bytes, size_t n);
/* Decompresses a file. EFORMAT names the file and the damaged byte. */
kvf_status kvf__gunzip(kvf_ctx *ctx, const char *path, const kvf__buf *packed, kvf__buf *out);

void kvf__where(char where[KVF__WHERE_MAX], const char *path, int64_t line);

/* ---- fields ---------------------------------------------------------------------------------- */

/* Returns our field `name` of a row, under its own or its mapped name; NULL: absent. A mapped name
 * may be a path: "translation.en", "messages.0.content". */
const kvf_json *kvf__field(const kvf__field_map *map, const kvf_json *row, const char *name);
/* Returns a field of a file row, outer fields included; NULL: absent. "a.b" looks into an
 * object. */
const kvf_json *kvf__row_field(const kvf__field_map *map, const kvf__file_row *row,
                               const char *name);
/* Returns true if a name marks the first line as a header: a field of ours, of a known data set, or
 * a mapped one. */
bool kvf__field_known(const kvf__field_map *map, const char *name, size_t bytes);
/* Returns true if entry i of the map names this column, or a path inside it. */
bool kvf__field_mapped(const kvf__field_map *map, size_t i, const char *name);
/* Returns true for fields that need no warning: mapped and known ones, and extra fields of known
 * data sets ("title", "answerKey"). */
bool kvf__field_read(const kvf__field_map *map, const char *name);
/* Writes "the row has a, b (map other names with --map)" for errors. If the map names columns that
 * the row lacks, these replace the hint. outer: NULL, or as in kvf__file_row. */
enum { KVF__ROW_HAS_MAX = 1024 };
void kvf__row_has(const kvf__field_map *map, const kvf_json *fields, const kvf_json *outer,
                  char out[KVF__ROW_HAS_MAX]);

/* Texts of a row, found by the shapes in fields.c. */
typedef struct kvf__row_texts {
    kvf__buf a, b;           /* b.data NULL: one text */
    const kvf_json *choices; /* a list; NULL: see choice */
    const kvf_json *keys; /* [n_choices] ARC: names of the choices in labels; NULL: see choices */
    const kvf_json *choice[8];
    size_t n_choices;
} kvf__row_texts;
/* Finds the texts of a row. also: other missing fields, for errors: ", and label", or "". */
kvf_status kvf__row_texts_get(kvf_ctx *ctx, const kvf__field_map *map, kvf__task task,
                              const kvf__file_row *row, const char *also, kvf__row_texts *out);
void kvf__row_texts_done(kvf__row_texts *texts);

/* Writes a label as text, cut to `bytes`: strings unchanged, numbers and booleans as in JSON.
 * Returns false, with "" in out, if the label is null or absent. */
bool kvf__label_text(const kvf_json *value, char *out, size_t bytes);
bool kvf__label_fits(const kvf_json *value, size_t bytes); /* no list or object, and short enough */

#endif
