/* Internals of a session: session.c creates it, session_feed.c runs it. */
#ifndef KVF_SESSION_PRIV_H
#define KVF_SESSION_PRIV_H

#include "session.h"

enum { KVF__PROMPTS_TOGETHER = 128 }; /* most tokens in a pass shared by prompts */

/* The prefix of a slot. */
typedef struct kvf__session_slot {
    kvf__step_row before;
    kvf__head *head;     /* NULL: the base's head */
    bool infix;          /* the prefix is inside the row, before the last prompt token */
    int32_t infix_at;    /* cached tokens before the prefix; -1: not placed yet */
    kvf__prefix rotated; /* the prefix inside the row, with keys rotated to its place */
} kvf__session_slot;

/* Arguments of a pass or decoder step, [rows] each. */
typedef struct kvf__pass_lists {
    kvf__step_row *before; /* [rows, run] */
    int32_t *slots;        /* [rows, run] slot of each token */
    int32_t *infix_at, *label_at;
    int32_t *first;    /* first token of an encoder-decoder's decoder */
    int32_t *label_id; /* never read: these passes have no loss */
    int64_t *example;
    kvf__section *sections;
    int64_t *start;       /* [rows + 1] */
    int64_t *first_start; /* [rows + 1] of `first`, one token per row */
} kvf__pass_lists;

struct kvf__session {
    kvf_base *base;
    int64_t rows, capacity; /* number of slots; most tokens in one */
    int64_t part_tokens;    /* most tokens of a part over all rows */
    int64_t run;            /* most tokens of a row in a decoder step */
    bool mixed;
    bool together;            /* mixed: prompts of several rows may share a pass */
    kvf__session_slot *slots; /* [rows] */
    kvf__cache *cache;
    kvf__head *head; /* head of the shared prefix; NULL: none, or mixed */

    /* reallocated for a longer prefix */
    kvf__pass *pass;
    kvf__decoder *decoder; /* for steps of one token per row; NULL: the base does not support it */
    int64_t step_rows;     /* most rows in a decoder step */
    int64_t P, neurons;    /* longest prefix, most virtual neurons */
    bool infixes;          /* prefixes may be inside rows */

    float *logits; /* [rows, run, V] */
    kvf__pass_lists lists;
    kvf__tokens part; /* a part of the fed tokens */
    int64_t *left;    /* [rows] index of each row's first token that is not in a part yet */
};

#endif
