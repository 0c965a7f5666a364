/* Internal to src/data: turns rows of fields into rows of ids. Each task has its own file
 * (rows_*.c); shared code is here (loader.c, label_set.c, pool.c). */
#ifndef KVF_LOADER_H
#define KVF_LOADER_H

#include "file_rows.h"
#include "map.h"

/* ---- memory ---------------------------------------------------------------------------------- */

/* Allocates zeroed memory for n items, aligned for any type. */
kvf_status kvf__pool_alloc(kvf_ctx *ctx, kvf__pool *pool, size_t n, size_t size,
                           void *out /* T ** */);
kvf_status kvf__pool_text(kvf_ctx *ctx, kvf__pool *pool, const char *text, size_t bytes,
                          const char **out);
void kvf__pool_done(kvf__pool *pool);

/* ---- labels ---------------------------------------------------------------------------------- */

/* Label names in the order they were met. Learnt names are sorted after the file is read. */
typedef struct kvf__labels {
    const kvf__label_set *given; /* NULL: learn */
    bool elsewhere;              /* given was learnt from another file */
    bool dash, minus_one;        /* learning: "-" and "-1" mean "no label" */
    bool numbers;                /* given, and labels appear as indices of the set */
    kvf__label_set learnt;
    kvf__map index;
    size_t cap;
} kvf__labels;
kvf_status kvf__labels_init(kvf_ctx *ctx, kvf__labels *labels, const kvf__label_set *given);
void kvf__labels_done(kvf__labels *labels);
/* Finds the id of a name, or adds the name while learning. EDATA, with `where`: the given set lacks
 * it. */
kvf_status kvf__labels_id(kvf_ctx *ctx, kvf__labels *labels, const char *where, const char *name,
                          int32_t *id);
/* Returns true if a text means "no label": "", and "-" and "-1" unless they are classes. */
bool kvf__labels_is_none(const kvf__labels *labels, const char *text);
/* Decides, after reading, whether "-" and "-1" mean "no label". "-" does beside two or more other
 * labels, none of them "+". "-1" does beside the labels 0 to n, n at least 1. Returns true if so:
 * rows with them were read as classes. */
bool kvf__labels_find_none(kvf__labels *labels);
/* Sorts the learnt names. order [n]: the final id of each assigned id; the caller frees it. */
kvf_status kvf__labels_sort(kvf_ctx *ctx, kvf__labels *labels, int32_t **order);

/* Data of a row besides its tokens. */
typedef struct kvf__row_info {
    int64_t start; /* offset in ids of the next row */
    float value;
    int32_t span[2];
    kvf__window window;
} kvf__row_info;

/* Rows made so far. */
typedef struct kvf__made_rows {
    kvf__ids ids, labels, types; /* types is empty for lm */
    kvf__row_info *v;
    int64_t n;
    size_t cap;
} kvf__made_rows;

/* Groups made so far, and groups left out. */
typedef struct kvf__made_groups {
    kvf__source *v; /* [n] if sources are kept */
    int64_t *end;   /* [n] index of the last row + 1 */
    int64_t n;
    kvf__left_out *left;
    size_t n_left, cap, end_cap, left_cap;
} kvf__made_groups;

typedef struct kvf__load_counts {
    int64_t read; /* rows read from the file */
    int64_t skipped, truncated, without_label;
    int64_t none; /* groups left out because they have no label; the first is at none_line */
    int64_t none_line;
    char none_text[4];
    int64_t no_gold; /* groups without gold */
} kvf__load_counts;

/* Tokens between and after texts, which depend on tokenizer and task. */
typedef struct kvf__row_glue {
    kvf__ids separator; /* between two texts if the post-processor puts nothing there */
    int32_t tail; /* qa on causal bases: "no answer" token after the context, if the post-processor
                     adds none there; -1: none */
    bool spaced;  /* token-cls: each word is encoded with a blank in front */
} kvf__row_glue;

/* The last context, shared by consecutive questions. multiple-choice keeps the ids of the row's
 * text here. */
typedef struct kvf__context {
    const char *text; /* in the pool */
    size_t bytes;
    size_t *marks; /* [n_marks] byte offsets of some code points (rows_qa.c); in the pool */
    size_t n_marks;
    kvf__ids ids;
    const int32_t *offsets;
} kvf__context;

/* Unread fields, each with the number of rows or messages that contain it. */
enum { KVF__MOST_UNREAD = 16 };
typedef struct kvf__unread {
    struct {
        char name[56];
        int64_t count;
    } v[KVF__MOST_UNREAD];
    size_t n;
    bool more; /* there are more fields */
} kvf__unread;

typedef struct kvf__loader {
    kvf_ctx *ctx;
    const char *path;
    kvf__dataset_options options; /* max_length includes virtual tokens */
    const kvf__file_row *row;     /* the current row */
    kvf__made_rows rows;
    kvf__made_groups groups;
    kvf__load_counts counts;
    kvf__unread unread;
    kvf__row_form form; /* lm */
    uint32_t mapped;    /* bit i: some row has the field of map entry i */
    bool cut;           /* the current group is truncated */
    bool keeps;         /* sources are kept */
    kvf__labels names;
    kvf__pool pool;
    kvf__row_glue glue;
    kvf__context context;
    kvf__ids a, b; /* scratch: tokens of the two texts */
    kvf__buf word; /* scratch */
} kvf__loader;

/* Fails with EDATA "file:line: ..." about the current row. */
kvf_status kvf__loader_fail(const kvf__loader *load, const char *fmt, ...) KVF__PRINTF(2, 3);
/* Fails likewise about a field that is "missing", or invalid as `what` says. */
kvf_status kvf__loader_field_fail(const kvf__loader *load, const char *name, const char *what);
/* Returns a field of the current row, without outer fields. */
const kvf_json *kvf__loader_field(const kvf__loader *load, const char *name);
/* Allocates n items of a source; kvf__put_item() copies item i. */
kvf_status kvf__alloc_items(kvf__loader *load, kvf__source *source, size_t n);
kvf_status kvf__put_item(kvf__loader *load, kvf__source *source, size_t i, const char *text,
                         size_t bytes);
/* Ends the row whose ids and labels were appended since the previous row. */
kvf_status kvf__loader_end_row(kvf__loader *load, const kvf__row_info *info);
/* Ends the group of the rows since the previous group; copies the source. */
kvf_status kvf__loader_end_group(kvf__loader *load, const kvf__source *source);
/* Drops everything appended since the previous group, and counts it as skipped. */
void kvf__loader_drop_group(kvf__loader *load);
/* Counts a group whose label is a placeholder, before anything is appended. *stays:
 * options.unlabeled keeps it, without gold. */
void kvf__loader_no_label(kvf__loader *load, const char *text, bool *stays);
/* Drops a group that is too long. With options.unlabeled its source and position are kept. */
kvf_status kvf__loader_leave_out(kvf__loader *load, const kvf__source *source);
int64_t kvf__loader_row_start(const kvf__loader *load); /* start of the current row in ids */
/* Handles an overlong row. EDATA "... 10 tokens, at most 8 fit" for --overlong stop. Otherwise *cut
 * is true to cut the row (truncate), false to leave the group out (skip). */
kvf_status kvf__loader_overlong(kvf__loader *load, int64_t tokens, int64_t capacity, bool *cut);
/* Returns the number of tokens that windows of this capacity share. */
int64_t kvf__loader_stride(const kvf__loader *load, int64_t capacity);
/* Returns the number of virtual tokens before every row. */
int64_t kvf__loader_front(const kvf__loader *load);
/* Returns the number of virtual tokens, special tokens and separators around one text or two. */
int64_t kvf__loader_cost(const kvf__loader *load, bool pair);
/* Appends load->a and, if pair, load->b as the ids and types of one row, with labels -100. *a_at,
 * *b_at: positions of the texts within the row. */
kvf_status kvf__loader_join(kvf__loader *load, bool pair, int64_t *a_at, int64_t *b_at);
kvf_status kvf__loader_add_id(kvf__loader *load, int32_t id); /* with label -100 */
/* Determines separator, tail and blanks for this tokenizer and task. */
kvf_status kvf__loader_plan_joins(kvf__loader *load);
/* Returns the position in ids that seq-cls and multiple-choice read, and that qa uses for "no
 * answer". */
int64_t kvf__loader_read_at(const kvf__loader *load);

/* Optional lists of a data set. kvf__dataset_alloc() allocates them for its numbers of rows and
 * groups; sources come without their groups. */
typedef struct kvf__dataset_lists {
    kvf__dataset *set;
    bool values, spans, group, sources, first_row;
} kvf__dataset_lists;
kvf_status kvf__dataset_alloc(kvf_ctx *ctx, kvf__dataset_lists lists);

/* Appends the rows for one row of the file, and ends their group. Every task has its own
 * function. */
typedef kvf_status kvf__task_fn(kvf__loader *load);
kvf__task_fn kvf__add_lm, kvf__add_text, kvf__add_choices, kvf__add_words, kvf__add_question;

#endif
