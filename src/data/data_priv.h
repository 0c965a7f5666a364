/* Inside src/data: a file becomes rows of named fields (formats.c and the readers), a row of fields
 * becomes rows of ids (dataset.c and the tasks). Neither half knows the other's cases. */
#ifndef KVF_DATA_PRIV_H
#define KVF_DATA_PRIV_H

#include "data_int.h"
#include "map.h"

#define KVF__WHERE_MAX 1024 /* "file:line" */

/* ---- memory ---------------------------------------------------------------------------------- */

/* Zeroed, aligned for anything. */
kvf_status kvf__pool_alloc(kvf_ctx *ctx, kvf__pool *pool, size_t n, size_t size,
                           void *out /* T ** */);
kvf_status kvf__pool_text(kvf_ctx *ctx, kvf__pool *pool, const char *text, size_t bytes,
                          const char **out);
void kvf__pool_done(kvf__pool *pool);
/* Room for n items of a source, to be put in with kvf__items_put. */
typedef struct kvf__items {
    const char **text;
    size_t *bytes;
} kvf__items;
kvf_status kvf__items_take(kvf_ctx *ctx, kvf__pool *pool, size_t n, kvf__items *out);
kvf_status kvf__items_put(kvf_ctx *ctx, kvf__pool *pool, kvf__items *items, size_t i,
                          const char *text, size_t bytes);

/* ---- files to rows of fields ----------------------------------------------------------------- */

/* What every reader makes of its file, one row at a time. */
typedef struct kvf__file_row {
    const kvf_json *fields, *outer; /* objects; outer (NULL: none) holds what the file says once for
                                       several rows: SQuAD's context */
    const char *path, *where;       /* where: "file:line" for errors */
    int64_t line;
    bool word_lines; /* token i stands in line + i (CoNLL) */
} kvf__file_row;
typedef kvf_status kvf__row_fn(void *user, const kvf__file_row *row);

typedef struct kvf__file {
    kvf_ctx *ctx;
    const char *path, *text; /* without byte order mark, NUL-terminated */
    size_t bytes;
    const kvf__dataset_options *options;
    kvf__row_fn *row;
    void *user;
    bool delimited; /* set by kvf__read_rows: TSV or CSV */
} kvf__file;

/* Calls file->row for every row; its error ends the reading. */
typedef kvf_status kvf__reader_fn(const kvf__file *file);
kvf__reader_fn kvf__read_jsonl, kvf__read_array, kvf__read_tsv, kvf__read_csv, kvf__read_conll,
    kvf__read_squad, kvf__read_text;
/* By the table of formats. */
kvf_status kvf__read_rows(kvf__file *file);

bool kvf__is_gzip(const char *bytes, size_t n);
/* EFORMAT names the file and the byte where it is damaged. */
kvf_status kvf__gunzip(kvf_ctx *ctx, const char *path, const kvf__buf *packed, kvf__buf *out);

void kvf__where(char where[KVF__WHERE_MAX], const char *path, int64_t line);

/* ---- fields ---------------------------------------------------------------------------------- */

/* Our field `name` under its own or its mapped name; NULL: not there. */
const kvf_json *kvf__field(const kvf__field_map *map, const kvf_json *row, const char *name);
/* The same in a file row, outer fields included. "a.b" looks into an object. */
const kvf_json *kvf__row_field(const kvf__field_map *map, const kvf__file_row *row,
                               const char *name);
/* Is it a name of ours, of a known data set, or mapped? Decides whether a first line is a header.
 */
bool kvf__field_known(const kvf__field_map *map, const char *name, size_t bytes);
/* "a, b, c": the row's own fields, for errors. */
void kvf__field_names(const kvf__file_row *row, char *out, size_t bytes);

/* Texts of a row under any of the shapes of fields.c. */
typedef struct kvf__row_texts {
    kvf__buf a, b;           /* b.data NULL: one text */
    const kvf_json *choices; /* a list, or NULL: then those below */
    const kvf_json *choice[8];
    size_t n_choices;
} kvf__row_texts;
kvf_status kvf__row_texts_get(kvf_ctx *ctx, const kvf__field_map *map, kvf__task task,
                              const kvf__file_row *row, kvf__row_texts *out);
void kvf__row_texts_done(kvf__row_texts *texts);

/* A label as text: strings as they are, numbers and booleans as JSON writes them. False: null or
 * absent, and out is "". Labels longer than the room are cut. */
bool kvf__label_text(const kvf_json *value, char *out, size_t bytes);
bool kvf__label_fits(const kvf_json *value, size_t bytes); /* no list, and not too long */

/* ---- pieces of templates (rows.c) ------------------------------------------------------------ */

/* Ids of virtual tokens first .. first + n - 1. */
kvf_status kvf__add_virtual(kvf_ctx *ctx, int64_t first, int64_t n, kvf__ids *ids);
/* A text as it stands in a row: with a blank before it or without. */
kvf_status kvf__encode_piece(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, bool blank,
                             const char *text, size_t bytes, kvf__ids *ids);

/* ---- rows of fields to rows of ids ----------------------------------------------------------- */

/* Names met so far, in the order met; learning sorts them when the file is read. */
typedef struct kvf__labels {
    const kvf__label_set *given; /* NULL: learn */
    bool elsewhere;              /* given is what another file showed */
    kvf__label_set learnt;
    kvf__map index;
    size_t cap;
} kvf__labels;
kvf_status kvf__labels_init(kvf_ctx *ctx, kvf__labels *labels, const kvf__label_set *given);
void kvf__labels_done(kvf__labels *labels);
/* Id of a name; EDATA names `where` if it is outside the given set. */
kvf_status kvf__labels_id(kvf_ctx *ctx, kvf__labels *labels, const char *where, const char *name,
                          int32_t *id);
/* Sorts what was learnt; order [n] gives the final id of each id handed out. */
kvf_status kvf__labels_sort(kvf_ctx *ctx, kvf__labels *labels, int32_t **order);

/* What a row has besides its tokens. */
typedef struct kvf__row_info {
    int64_t start; /* into ids */
    float value;
    int32_t span[2];
    kvf__window window;
} kvf__row_info;

typedef struct kvf__loader {
    kvf_ctx *ctx;
    const char *path;
    const kvf__dataset_options *options; /* own, with room for virtual tokens too */
    kvf__dataset_options own;
    kvf__ids ids, labels, types; /* types stays empty for lm */
    kvf__row_info *rows;
    kvf__source *groups;
    int64_t *first_row; /* [groups] */
    size_t rows_cap, groups_cap, first_cap;
    int64_t n_rows, n_groups;
    int64_t skipped, truncated, bare; /* bare: groups without gold */
    int64_t without_label, n_read;    /* n_read: rows of the file */
    bool cut;                         /* the group in work is not whole */
    bool keeps;                       /* sources are wanted */
    kvf__left_out *left;
    size_t n_left, left_cap;
    kvf__labels names;
    kvf__pool pool;
    kvf__ids separator; /* between two texts where the post-processor has nothing */
    int32_t tail;       /* qa on causal bases: stands behind the context for "no answer" where the
                           post-processor ends the row with the context; -1: not needed */
    bool spaced;        /* token-cls: words get a blank in front */
    kvf__buf word;
    kvf__ids a, b;       /* scratch: tokens of the two texts */
    const char *context; /* the last context, its tokens and origins: questions share it */
    size_t context_bytes;
    kvf__ids context_ids;
    const int32_t *origins;
} kvf__loader;

/* Ends the row whose ids and labels were appended since the last one. */
kvf_status kvf__loader_end_row(kvf__loader *load, const kvf__row_info *info);
/* Ends the group of the rows since the last one; source is copied. */
kvf_status kvf__loader_end_group(kvf__loader *load, const kvf__file_row *row,
                                 const kvf__source *source);
/* Forgets what was appended since the last group. */
void kvf__loader_drop_group(kvf__loader *load);
/* The same for one that is too long; its source keeps its place where that is wanted. */
kvf_status kvf__loader_leave_out(kvf__loader *load, const kvf__file_row *row,
                                 const kvf__source *source);
int64_t kvf__loader_row_start(const kvf__loader *load); /* of the row in work */
/* EDATA "... 10 tokens, at most 8 fit" for --overlong stop; else OK, and *cut says whether to cut
 * (truncate) or, if not, to leave the group out (skip). */
kvf_status kvf__loader_overlong(kvf__loader *load, const char *where, int64_t tokens,
                                int64_t capacity, bool *cut);
/* Tokens that windows with room for so many share. */
int64_t kvf__loader_stride(const kvf__loader *load, int64_t capacity);
/* Virtual tokens before every row. */
int64_t kvf__loader_common(const kvf__loader *load);
/* These, special tokens and separator around one text or two. */
int64_t kvf__loader_cost(const kvf__loader *load, bool pair);
/* Appends load->a and, if pair, load->b as one row's ids and types, with labels -100; *a_at, *b_at:
 * where the texts begin within the row. */
kvf_status kvf__loader_join(kvf__loader *load, bool pair, int64_t *a_at, int64_t *b_at);
kvf_status kvf__loader_add_tail(kvf__loader *load); /* load->tail, if there is one */
/* What separator, tail and blanks have to be for this tokenizer and task. */
kvf_status kvf__loader_plan_joins(kvf__loader *load);
/* The position that seq-cls and multiple-choice read, and qa takes for "no answer". */
int64_t kvf__loader_read_at(const kvf__loader *load);

/* One per task: appends the rows of one row of the file, and ends their group. */
typedef kvf_status kvf__task_fn(kvf__loader *load, const kvf__file_row *row);
kvf__task_fn kvf__add_lm, kvf__add_text, kvf__add_choices, kvf__add_words, kvf__add_question;

#endif
