/* Inside a session: what session.c makes and session_feed.c runs. */
#ifndef KVF_SESSION_PRIV_H
#define KVF_SESSION_PRIV_H

#include "session.h"

enum { KVF__PROMPTS_TOGETHER = 128 }; /* most tokens in a pass that prompts share */

/* What precedes the tokens of a slot. */
typedef struct kvf__session_slot {
    kvf__step_row before;
    kvf__head *head;     /* NULL: the base's */
    bool infix;          /* the prefix is inside the row, before the last prompt token */
    int32_t infix_at;    /* cached tokens before it; -1: not placed yet */
    kvf__prefix rotated; /* an infix with its keys rotated to its place */
} kvf__session_slot;

/* Lists that a pass or a step of the decoder is given, [rows] each. */
typedef struct kvf__pass_lists {
    kvf__step_row *before; /* [rows, run] */
    int32_t *slots;        /* [rows, run] of each token */
    int32_t *infix_at, *label_at;
    int32_t *first;    /* the decoder's first token, of an encoder-decoder */
    int32_t *label_id; /* never read: these passes have no loss */
    int64_t *example;
    kvf__section *sections;
    int64_t *start;       /* [rows + 1] */
    int64_t *first_start; /* [rows + 1] of `first`, a token a row */
} kvf__pass_lists;

struct kvf__session {
    kvf_base *base;
    int64_t rows, capacity; /* slots, and the most tokens in one */
    int64_t part_tokens;    /* most tokens of a part in all rows */
    int64_t run;            /* most tokens of a row in a step of the decoder */
    bool mixed;
    bool together;            /* mixed: prompts of several rows may share a pass */
    kvf__session_slot *slots; /* [rows] */
    kvf__cache *cache;
    kvf__head *head; /* of the one prefix; NULL: it brings none, or mixed */

    /* made anew for a longer prefix */
    kvf__pass *pass;
    kvf__decoder *decoder; /* for steps of one token a row; NULL: the base has no such form */
    int64_t step_rows;     /* most in a step of the decoder */
    int64_t P;             /* longest prefix */
    bool infixes;          /* prefixes may be inside rows */

    float *logits; /* [rows, run, V] */
    kvf__pass_lists lists;
    kvf__tokens part; /* a part of what is fed */
    int64_t *left;    /* [rows] of what is fed, index of each row's first id not yet in a part */
};

#endif
