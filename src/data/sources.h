/* Origins of the rows of a data set, for predictions and metrics (sources.c). */
#ifndef KVF_SOURCES_H
#define KVF_SOURCES_H

#include "base_int.h"

/* Memory that lives as long as its data set; {0} is an empty pool. */
typedef struct kvf__pool {
    struct kvf__pool_block *last;
} kvf__pool;

/* One group as in its file: a text or a pair, a sentence, a question with its context or its
 * choices, or a prompt (lm). Texts are UTF-8 in the pool, each followed by a NUL; they may contain
 * U+0000. */
typedef struct kvf__source {
    int64_t line;     /* line of the file where the group begins */
    const char *id;   /* the row's "id" or "idx" as text; NULL: none */
    const char *text; /* seq-cls, multiple-choice: first text; qa: the context; lm: the prompt, if
                         any; else NULL */
    const char *pair; /* seq-cls: second text, NULL: none; qa: the question */
    size_t text_bytes, pair_bytes;
    int32_t gold; /* seq-cls: class; multiple-choice: index of the right choice; -1: not given */
    float value;  /* regression: the target; NaN: not given */

    int64_t n;          /* entries of the lists below */
    const char **items; /* token-cls: words; multiple-choice: choices; qa: gold answers, none if the
                           question has no answer; lm: references */
    size_t *item_bytes; /* [n] bytes of each item; NULL: items end at their first NUL */
    int32_t *tags;      /* [n] token-cls: gold tags, -1: not given; else NULL */
    const int32_t *label_of; /* [n] token-cls: index of the word's label in its group; -1: no token
                                of the word is in a row */
    const int64_t *spans;    /* [n, 2] qa: bytes [from, to) of each answer in the context */
    bool answered; /* qa: the file gives the answers, or that there is none (is_impossible) */

    int64_t n_context;
    const int32_t *offsets; /* [n_context, 2] qa: bytes [from, to) of each token in the context */
} kvf__source;

/* A group left out as too long. before: index of the group that follows it. */
typedef struct kvf__left_out {
    int64_t before;
    kvf__source source;
} kvf__left_out;

/* Position of the context in a row (qa): row token at + i is context token first + i, i < n. */
typedef struct kvf__window {
    int64_t at, first, n;
} kvf__window;

size_t kvf__source_item_bytes(const kvf__source *source, int64_t i);

typedef struct kvf__sources {
    kvf__source *group;   /* [groups] */
    kvf__window *windows; /* [rows] qa; else NULL */
    int64_t *first_row; /* [groups + 1] token-cls in windows: first row of each group; NULL: group g
                           is row g */
    int64_t n_left;     /* with unlabeled: groups that --overlong skip left out, in file order */
    kvf__left_out *left; /* [n_left] */
    bool labelled;       /* every group has gold, so losses and metrics are valid */
    kvf__pool pool;
} kvf__sources;

#endif
