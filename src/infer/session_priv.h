/* Inside a session: what session.c makes and session_feed.c runs. */
#ifndef KVF_SESSION_PRIV_H
#define KVF_SESSION_PRIV_H

#include "infer_int.h"

/* What else than keys and values a slot's prefix file brings; NULL: not that. */
typedef struct kvf__row_file {
    const kvf__vectors *vectors;
    const kvf__lm_head *head;
} kvf__row_file;

/* A prefix that stands inside its row, before the last token of the prompt. */
typedef struct kvf__infix_slot {
    bool on;
    int32_t at;          /* cached tokens before it; -1: the prompt's end is still to come */
    kvf__prefix rotated; /* it with its keys rotated to its place */
} kvf__infix_slot;

/* Tokens of several rows: row r's are ids[start[r]] .. ids[start[r+1]-1]. */
typedef struct kvf__fed {
    const int32_t *slots; /* [n] */
    const int64_t *start; /* [n + 1] */
    const int32_t *ids;
    int64_t n;
} kvf__fed;

enum { KVF__PROMPTS_TOGETHER = 128 }; /* most tokens in a pass that prompts share */

struct kvf__session {
    kvf_base *base;
    bool mixed;
    bool together;          /* prompts of several rows may share a pass */
    bool infixes;           /* passes are made for prefixes inside rows */
    kvf__step_row *before;  /* [rows] what stands before each slot's tokens */
    kvf__row_file *files;   /* [rows] */
    kvf__infix_slot *infix; /* [rows] */
    kvf__step_row *listed;  /* [rows] what stands before the rows of a step */
    int32_t *infix_at;      /* [rows] of a pass */
    int64_t capacity, P;    /* most tokens in a row, longest prefix */
    int64_t pass_tokens;    /* in one pass */
    kvf__pass *pass;
    kvf__decoder *decoder; /* for steps of one token a row; NULL: the base has no such form */
    kvf__cache *cache;
    kvf__lm_head *head;      /* of the one prefix, NULL: it brings none, or mixed */
    int64_t rows, step_rows; /* in all, in a step of the decoder */
    float *logits;           /* [rows, V] */
    int32_t *label_at;       /* [rows] */
    int32_t *label_id;       /* [rows], never read: a pass without loss */
    int64_t *example;        /* [rows] */

    kvf__section *sections; /* [rows] of a pass that prompts share */
    int64_t *section_start; /* [rows + 1] */

    /* A part of what is fed, and what is left of each row behind the parts. */
    int64_t *left;       /* [rows] index of its first id */
    int32_t *part_slots; /* [rows] */
    int64_t *part_start; /* [rows + 1] */
    int32_t *part_ids;   /* [pass_tokens] */
};

#endif
