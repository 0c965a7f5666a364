/* A text on its way through the pipeline: what changes while it is encoded or decoded.
 *
 * Added tokens are cut out of the raw text, each section between them is normalised and cut once
 * more at the normalised added tokens, what is left is pre-tokenised, and each pre-token goes
 * through the model. Text inside the pipeline is always valid UTF-8. */
#ifndef KVF_TOK_WORK_H
#define KVF_TOK_WORK_H

#include "tok_int.h"

/* Text whose every byte may know the bytes [from, to) of the original that became it (offsets.c).
 */
typedef struct kvf__byte_range {
    uint32_t from, to;
} kvf__byte_range;
typedef struct kvf__traced {
    kvf__buf buf;
    kvf__byte_range *from; /* [buf.n] while work->offsets is set, else stale */
    size_t cap;
    size_t most; /* bytes that it may have, else EDATA; 0: any number */
} kvf__traced;

/* Pre-tokens: parts of one text. */
typedef struct kvf__pretoken {
    uint32_t at, n;
} kvf__pretoken;
typedef struct kvf__pretokens {
    kvf__traced text;
    kvf__pretoken *v;
    size_t n, cap;
    bool head; /* v[0] begins where the whole text begins */
} kvf__pretokens;
/* n = 0 is left out. */
kvf_status kvf__pretokens_add(kvf_ctx *ctx, kvf__pretokens *list, size_t at, size_t n);
void kvf__pretokens_clear(kvf__pretokens *list);
void kvf__pretokens_done(kvf__pretokens *list);

/* A code point on its way to a normalisation form. */
typedef struct kvf__point {
    int32_t cp;
    int32_t change; /* how many characters it is more than what it came from */
    size_t at;      /* its index, while its run is sorted */
} kvf__point;

struct kvf__work {
    kvf_ctx *ctx;
    const kvf__tokenizer *t;
    kvf__ids *out, *offsets;           /* offsets: two per id of `out`; NULL: not wanted */
    const char *raw;                   /* the text as it came, which offsets count in */
    kvf__traced text, normal, scratch; /* repaired; a normalised section; the step before it */
    kvf__pretokens pieces, spare;
    size_t piece;          /* the one the model is at */
    bool long_words;       /* a word may be as long as memory allows: plain text has no rows */
    kvf__pretoken *events; /* of one split; the top bit of n marks a match */
    size_t events_cap;
    kvf__word word;
    kvf__point *points; /* of one normalisation */
    size_t points_cap;
    void *match;         /* pattern.c */
    bool ended_in_token; /* the text's last part was an added token */
    bool strips_next;    /* which takes the white space after it */
    bool trimmed;        /* the normalised section lost its beginning */
};
void kvf__work_done(kvf__work *work);

/* Whether a text is a part of a larger one; `continues`: the part before it ended in plain text, so
 * nothing is put before its first section. */
typedef struct kvf__text_part {
    bool inside, continues;
} kvf__text_part;
kvf_status kvf__encode_part(kvf__work *work, const char *text, size_t bytes, bool add_special,
                            kvf__text_part part);

/* work->normal := the normalised form of a part of text. `bare` leaves out Prepend. */
kvf_status kvf__normalize(kvf__work *work, const kvf__traced *text, size_t at, size_t n, bool bare);
/* A normalisation form (normal_forms.c). */
kvf_status kvf__apply_form(kvf__work *work, kvf__step_kind form, const kvf__traced *text,
                           kvf__traced *out);
/* SentencePiece's table (charsmap.c). */
kvf_status kvf__apply_charsmap(kvf__work *work, const kvf__tok_step *step, const kvf__traced *text,
                               kvf__traced *out);
kvf_status kvf__apply_longest_map(kvf__work *work, const kvf__tok_step *step,
                                  const kvf__traced *text, kvf__traced *out);
kvf_status kvf__replace_all(kvf__work *work, const kvf__tok_step *step, const kvf__traced *text,
                            size_t at, size_t n, kvf__traced *out);
/* work->pieces := the pre-tokens of work->pieces, which holds one piece. `bare` leaves out prefix
 * spaces. */
kvf_status kvf__pre_tokenize(kvf__work *work, bool bare);

/* Bytes that the steps of a file may make of n: 4 times as many, 16 times of the first MiB (U+FDFA
 * has 18 characters), and 64 KiB. */
size_t kvf__trace_room(size_t n);
/* Appends bytes that came from one range; a part of a traced text with its ranges. */
kvf_status kvf__trace_put(kvf__work *work, kvf__traced *to, const char *bytes, size_t n,
                          kvf__byte_range from);
kvf_status kvf__trace_copy(kvf__work *work, kvf__traced *to, const kvf__traced *text, size_t at,
                           size_t n);
kvf__byte_range kvf__trace_at(const kvf__work *work, const kvf__traced *text, size_t at);
/* work->text := text, repaired. */
kvf_status kvf__trace_text(kvf__work *work, const char *text, size_t n);
void kvf__traced_done(kvf__traced *text);
/* Appends an id to work->out: of bytes at .. at+n-1 of the current piece; of an added token. */
kvf_status kvf__emit(kvf__work *work, int32_t id, size_t at, size_t n);
kvf_status kvf__emit_added(kvf__work *work, const kvf__traced *text, size_t at, size_t n,
                           int32_t id);

#endif
