/* What the rows of a data set came from, for predictions and metrics (sources.c). */
#ifndef KVF_SOURCES_H
#define KVF_SOURCES_H

#include "base_int.h"

/* Memory that lives as long as its data set; {0} is empty. */
typedef struct kvf__pool {
    struct kvf__pool_block *last;
} kvf__pool;

/* One group as its file had it: a text or pair of texts, a sentence, a question with its context, a
 * question with its choices; of lm rows a prompt. Texts are UTF-8 in the pool, a NUL after each;
 * they may hold U+0000. */
typedef struct kvf__source {
    int64_t line;     /* of the file, where it begins */
    const char *id;   /* the row's "id" or "idx" as text; NULL: none */
    const char *text; /* seq-cls, multiple-choice: first text; qa: the context; lm: the prompt, if
                         the row has one; else NULL */
    const char *pair; /* seq-cls: second text, NULL: none; qa: the question */
    size_t text_bytes, pair_bytes;
    int32_t gold; /* seq-cls: class; multiple-choice: right choice from 0; -1: not given */
    float value;  /* regression: the target; NaN: not given */

    int64_t n;               /* entries of the lists below */
    const char **items;      /* token-cls: words; multiple-choice: choices; qa: gold answers, none
                                      if the question has none; lm: references */
    size_t *item_bytes;      /* [n]; NULL: they end at their first NUL */
    int32_t *tags;           /* [n] token-cls: gold tags, -1: not given; else NULL */
    const int32_t *label_of; /* [n] token-cls: which of its rows' labels is the word's, counted from
                                the first one's on; -1: none of its tokens is in a row
                                (normalisation left nothing of it, or the row was cut) */
    const int64_t *spans;    /* [n, 2] qa: bytes [from, to) of the context that an answer is */
    bool answered;           /* qa: gold answers, or their absence (is_impossible), are given */

    int64_t n_context;
    const int32_t *offsets; /* [n_context, 2] qa: bytes of the context that each of its tokens is */
} kvf__source;

/* A group that was too long to take, and which group it would have stood before. */
typedef struct kvf__left_out {
    int64_t before;
    kvf__source source;
} kvf__left_out;

/* Where the context is in a row (qa): row token at + i is context token first + i, i < n. */
typedef struct kvf__window {
    int64_t at, first, n;
} kvf__window;

size_t kvf__source_item_bytes(const kvf__source *source, int64_t i);

typedef struct kvf__sources {
    kvf__source *group;   /* [groups] */
    kvf__window *windows; /* [rows] qa; else NULL */
    int64_t *first_row;   /* [groups] token-cls in windows; NULL: group g is row g */
    int64_t n_left;       /* unlabeled: what --overlong skip left out, in file order */
    kvf__left_out *left;  /* [n_left] */
    bool labelled;        /* every group has its gold: losses and metrics mean something */
    kvf__pool pool;
} kvf__sources;

#endif
