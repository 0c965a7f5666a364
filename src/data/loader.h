/* Inside src/data: rows of fields become rows of ids, each task in its own way (rows_*.c); what all
 * share is here (loader.c, label_set.c, pool.c). */
#ifndef KVF_LOADER_H
#define KVF_LOADER_H

#include "file_rows.h"
#include "map.h"

/* ---- memory ---------------------------------------------------------------------------------- */

/* Zeroed, aligned for anything. */
kvf_status kvf__pool_alloc(kvf_ctx *ctx, kvf__pool *pool, size_t n, size_t size,
                           void *out /* T ** */);
kvf_status kvf__pool_text(kvf_ctx *ctx, kvf__pool *pool, const char *text, size_t bytes,
                          const char **out);
void kvf__pool_done(kvf__pool *pool);

/* ---- labels ---------------------------------------------------------------------------------- */

/* Names met so far, in the order met; learning sorts them when the file is read. */
typedef struct kvf__labels {
    const kvf__label_set *given; /* NULL: learn */
    bool elsewhere;              /* given is what another file showed */
    bool dash, minus_one;        /* learning: "-", "-1" are no labels */
    bool numbers;                /* given, and met as its numbers */
    kvf__label_set learnt;
    kvf__map index;
    size_t cap;
} kvf__labels;
kvf_status kvf__labels_init(kvf_ctx *ctx, kvf__labels *labels, const kvf__label_set *given);
void kvf__labels_done(kvf__labels *labels);
/* Id of a name; EDATA names `where` if it is outside the given set. */
kvf_status kvf__labels_id(kvf_ctx *ctx, kvf__labels *labels, const char *where, const char *name,
                          int32_t *id);
/* Does the text stand for no label: "", and "-" and "-1" that are no classes? */
bool kvf__labels_is_none(const kvf__labels *labels, const char *text);
/* When all were met: "-" beside two or more others, of which none is "+", and "-1" beside 0 to n
 * are no labels. True: so are some that were taken for classes. */
bool kvf__labels_find_none(kvf__labels *labels);
/* Sorts what was learnt; order [n] gives the final id of each id handed out. */
kvf_status kvf__labels_sort(kvf_ctx *ctx, kvf__labels *labels, int32_t **order);

/* What a row has in addition to its tokens. */
typedef struct kvf__row_info {
    int64_t start; /* into ids */
    float value;
    int32_t span[2];
    kvf__window window;
} kvf__row_info;

/* The rows so far. */
typedef struct kvf__made_rows {
    kvf__ids ids, labels, types; /* types stays empty for lm */
    kvf__row_info *v;
    int64_t n;
    size_t cap;
} kvf__made_rows;

/* The groups so far, and those left out. */
typedef struct kvf__made_groups {
    kvf__source *v; /* [n] where sources are wanted */
    int64_t *end;   /* [n] its last row + 1 */
    int64_t n;
    kvf__left_out *left;
    size_t n_left, cap, end_cap, left_cap;
} kvf__made_groups;

typedef struct kvf__load_counts {
    int64_t read; /* rows of the file */
    int64_t skipped, truncated, without_label;
    int64_t none; /* groups left out for want of a label, the first in none_line */
    int64_t none_line;
    char none_text[4];
    int64_t no_gold; /* groups without gold */
} kvf__load_counts;

/* What goes between and after texts, by the tokenizer and the task. */
typedef struct kvf__row_glue {
    kvf__ids separator; /* between two texts where the post-processor has nothing */
    int32_t tail;       /* qa on causal bases: after the context, for "no answer", where the
                           post-processor       ends the row with the context; -1: not needed */
    bool spaced;        /* token-cls: words get a blank in front */
} kvf__row_glue;

/* The last context, which questions that follow each other share. multiple-choice keeps the ids of
 * the row's text here. */
typedef struct kvf__context {
    const char *text; /* in the pool */
    size_t bytes;
    size_t *marks; /* [n_marks] bytes of some of its code points (rows_qa.c); in the pool */
    size_t n_marks;
    kvf__ids ids;
    const int32_t *offsets;
} kvf__context;

/* Fields that are not read, each with the number of rows or messages that have it. */
enum { KVF__MOST_UNREAD = 16 };
typedef struct kvf__unread {
    struct {
        char name[56];
        int64_t count;
    } v[KVF__MOST_UNREAD];
    size_t n;
    bool more; /* there are others */
} kvf__unread;

typedef struct kvf__loader {
    kvf_ctx *ctx;
    const char *path;
    kvf__dataset_options options; /* max_length: virtual tokens counted */
    const kvf__file_row *row;     /* the one in work */
    kvf__made_rows rows;
    kvf__made_groups groups;
    kvf__load_counts counts;
    kvf__unread unread;
    uint32_t mapped; /* bit i: some row has the field of entry i of the map */
    bool cut;        /* the group in work is not whole */
    bool keeps;      /* sources are wanted */
    kvf__labels names;
    kvf__pool pool;
    kvf__row_glue glue;
    kvf__context context;
    kvf__ids a, b; /* scratch: tokens of the two texts */
    kvf__buf word; /* scratch */
} kvf__loader;

/* EDATA "file:line: ..." about the row in work. */
kvf_status kvf__loader_fail(const kvf__loader *load, const char *fmt, ...) KVF__PRINTF(2, 3);
/* The same about a field that is "missing", or otherwise unfit. */
kvf_status kvf__loader_field_fail(const kvf__loader *load, const char *name, const char *what);
/* A field of its own. */
const kvf_json *kvf__loader_field(const kvf__loader *load, const char *name);
/* Memory for n items of a source; item i. */
kvf_status kvf__alloc_items(kvf__loader *load, kvf__source *source, size_t n);
kvf_status kvf__put_item(kvf__loader *load, kvf__source *source, size_t i, const char *text,
                         size_t bytes);
/* Ends the row whose ids and labels were appended since the last one. */
kvf_status kvf__loader_end_row(kvf__loader *load, const kvf__row_info *info);
/* Ends the group of the rows since the last one; source is copied. */
kvf_status kvf__loader_end_group(kvf__loader *load, const kvf__source *source);
/* Forgets what was appended since the last group. */
void kvf__loader_drop_group(kvf__loader *load);
/* The same for one whose label is a placeholder, before anything was appended; unlabeled: it stays
 * (*stays), without gold. */
void kvf__loader_no_label(kvf__loader *load, const char *text, bool *stays);
/* The same for one that is too long; its source keeps its place where that is wanted. */
kvf_status kvf__loader_leave_out(kvf__loader *load, const kvf__source *source);
int64_t kvf__loader_row_start(const kvf__loader *load); /* of the row in work */
/* EDATA "... 10 tokens, at most 8 fit" for --overlong stop; else OK, and *cut is whether to cut
 * (truncate) or, if not, to leave the group out (skip). */
kvf_status kvf__loader_overlong(kvf__loader *load, int64_t tokens, int64_t capacity, bool *cut);
/* Tokens that windows with room for so many share. */
int64_t kvf__loader_stride(const kvf__loader *load, int64_t capacity);
/* Virtual tokens before every row. */
int64_t kvf__loader_front(const kvf__loader *load);
/* These, special tokens and separator around one text or two. */
int64_t kvf__loader_cost(const kvf__loader *load, bool pair);
/* Appends load->a and, if pair, load->b as one row's ids and types, with labels -100; *a_at, *b_at:
 * where the texts begin within the row. */
kvf_status kvf__loader_join(kvf__loader *load, bool pair, int64_t *a_at, int64_t *b_at);
kvf_status kvf__loader_add_id(kvf__loader *load, int32_t id); /* without a label */
/* What separator, tail and blanks have to be for this tokenizer and task. */
kvf_status kvf__loader_plan_joins(kvf__loader *load);
/* The position that seq-cls and multiple-choice read, and qa takes for "no answer". */
int64_t kvf__loader_read_at(const kvf__loader *load);

/* Which lists a data set has, and memory for them, for its numbers of rows and groups; sources
 * without their groups. */
typedef struct kvf__dataset_lists {
    kvf__dataset *set;
    bool values, spans, group, sources, first_row;
} kvf__dataset_lists;
kvf_status kvf__dataset_alloc(kvf_ctx *ctx, kvf__dataset_lists lists);

/* One per task: appends the rows of one row of the file, and ends their group. */
typedef kvf_status kvf__task_fn(kvf__loader *load);
kvf__task_fn kvf__add_lm, kvf__add_text, kvf__add_choices, kvf__add_words, kvf__add_question;

#endif
