/* The state of a text that is encoded or decoded.
 *
 * Added tokens are cut out of the raw text. Each section between them is normalised and cut again
 * at the normalised added tokens. The remaining text is pre-tokenised, and each pre-token goes
 * through the model. Text inside the pipeline is always valid UTF-8. */
#ifndef KVF_TOK_WORK_H
#define KVF_TOK_WORK_H

#include "tok_int.h"

/* Text whose bytes may carry the range [from, to) of their source in the original (offsets.c). */
typedef struct kvf__byte_range {
    uint32_t from, to;
} kvf__byte_range;
typedef struct kvf__traced {
    kvf__buf buf;
    kvf__byte_range *from; /* [buf.n] while work->offsets is set, else undefined */
    size_t cap;
    size_t most; /* maximum bytes, more are EDATA; 0: no limit */
} kvf__traced;

/* Pre-tokens: parts of one text. */
typedef struct kvf__pretoken {
    uint32_t at, n;
} kvf__pretoken;
typedef struct kvf__pretokens {
    kvf__traced text;
    kvf__pretoken *v;
    size_t n, cap;
    bool head; /* v[0] is at the start of the whole text */
} kvf__pretokens;
/* Appends a piece; n = 0 is ignored. */
kvf_status kvf__pretokens_add(kvf_ctx *ctx, kvf__pretokens *list, size_t at, size_t n);
void kvf__pretokens_clear(kvf__pretokens *list);
void kvf__pretokens_done(kvf__pretokens *list);

/* A code point during normalisation. */
typedef struct kvf__point {
    int32_t cp;
    int32_t change; /* characters written minus characters consumed */
    size_t at;      /* its index, while its run is sorted */
} kvf__point;

struct kvf__work {
    kvf_ctx *ctx;
    const kvf__tokenizer *t;
    kvf__ids *out, *offsets; /* offsets: two per id of `out`; NULL: not wanted */
    const char *raw;         /* the original text, to which offsets refer */
    /* repaired text; normalised section; scratch of the previous step */
    kvf__traced text, normal, scratch;
    kvf__pretokens pieces, spare;
    size_t piece;          /* current piece of the model */
    bool long_words;       /* words are limited by memory only: plain text has no rows */
    kvf__pretoken *events; /* events of one split; the top bit of n marks a match */
    size_t events_cap;
    kvf__word word;
    kvf__point *points; /* points of one normalisation */
    size_t points_cap;
    void *match;         /* pattern.c */
    bool ended_in_token; /* the last part of the text was an added token */
    bool strips_next;    /* and removes the white space after it */
    bool trimmed;        /* the normalised section lost its beginning */
};
void kvf__work_done(kvf__work *work);

/* Position of a text in a larger one. `continues`: the previous part ended in plain text, so
 * nothing is inserted before the first section. */
typedef struct kvf__text_part {
    bool inside, continues;
} kvf__text_part;
kvf_status kvf__encode_part(kvf__work *work, const char *text, size_t bytes, bool add_special,
                            kvf__text_part part);

/* Sets work->normal to the normalised form of a part of text. `bare` omits Prepend. */
kvf_status kvf__normalize(kvf__work *work, const kvf__traced *text, size_t at, size_t n, bool bare);
/* Applies a normalisation form (normal_forms.c). */
kvf_status kvf__apply_form(kvf__work *work, kvf__step_kind form, const kvf__traced *text,
                           kvf__traced *out);
/* Applies SentencePiece's table (charsmap.c). */
kvf_status kvf__apply_charsmap(kvf__work *work, const kvf__tok_step *step, const kvf__traced *text,
                               kvf__traced *out);
kvf_status kvf__apply_longest_map(kvf__work *work, const kvf__tok_step *step,
                                  const kvf__traced *text, kvf__traced *out);
kvf_status kvf__replace_all(kvf__work *work, const kvf__tok_step *step, const kvf__traced *text,
                            size_t at, size_t n, kvf__traced *out);
/* Replaces the single piece of work->pieces by its pre-tokens. `bare` omits prefix spaces. */
kvf_status kvf__pre_tokenize(kvf__work *work, bool bare);

/* Returns the limit on bytes that a file's steps may produce from n: 4 n, 16 n for the first MiB
 * (U+FDFA has 18 characters), plus 64 KiB. */
size_t kvf__trace_room(size_t n);
/* Append bytes with one common range; or a part of a traced text with its ranges. */
kvf_status kvf__trace_put(kvf__work *work, kvf__traced *to, const char *bytes, size_t n,
                          kvf__byte_range from);
kvf_status kvf__trace_copy(kvf__work *work, kvf__traced *to, const kvf__traced *text, size_t at,
                           size_t n);
kvf__byte_range kvf__trace_at(const kvf__work *work, const kvf__traced *text, size_t at);
/* Sets work->text to the repaired text. */
kvf_status kvf__trace_text(kvf__work *work, const char *text, size_t n);
void kvf__traced_done(kvf__traced *text);
/* Append an id to work->out: for bytes at .. at+n-1 of the current piece; for an added token. */
kvf_status kvf__emit(kvf__work *work, int32_t id, size_t at, size_t n);
kvf_status kvf__emit_added(kvf__work *work, const kvf__traced *text, size_t at, size_t n,
                           int32_t id);

#endif
