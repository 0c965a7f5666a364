/* The steps of a pipeline as data: normalizers, pre-tokenizers and decoders (tok_steps.c). */
#ifndef KVF_TOK_STEPS_H
#define KVF_TOK_STEPS_H

#include "pattern.h"

typedef enum kvf__step_kind {
    /* normalizers */
    KVF__STEP_NFC,
    KVF__STEP_NFD,
    KVF__STEP_NFKC,
    KVF__STEP_NFKD,
    KVF__STEP_LOWERCASE,
    KVF__STEP_STRIP_ACCENTS,
    KVF__STEP_PREPEND,
    KVF__STEP_CLEAN,         /* BERT: removes control characters, turns white space into ' ' */
    KVF__STEP_SPACE_CHINESE, /* BERT: puts ' ' around each Chinese character */
    KVF__STEP_STRIP_MARKS,   /* BERT: non-spacing marks only */
    KVF__STEP_CHARSMAP,      /* SentencePiece's table, in `text` */
    KVF__STEP_TRIM,          /* strips white space at the ends selected by start and stop */
    KVF__STEP_LONGEST_MAP,   /* the same table with SentencePiece's longest match */
    KVF__STEP_COLLAPSE,      /* SentencePiece: removes spaces at the ends, keeps one elsewhere */
    /* normalizer and decoder; pre-tokenizer and decoder */
    KVF__STEP_REPLACE,
    KVF__STEP_BYTE_LEVEL,
    KVF__STEP_METASPACE,
    /* pre-tokenizers */
    KVF__STEP_SPLIT,
    KVF__STEP_DIGITS,
    KVF__STEP_WHITESPACE,
    KVF__STEP_WHITESPACE_SPLIT,
    KVF__STEP_PUNCTUATION,
    /* decoders */
    KVF__STEP_BYTE_FALLBACK,
    KVF__STEP_FUSE,
    KVF__STEP_STRIP,
    KVF__STEP_WORDPIECE
} kvf__step_kind;

typedef enum kvf__behavior {
    KVF__ISOLATED,
    KVF__REMOVED,
    KVF__MERGED_PREVIOUS,
    KVF__MERGED_NEXT,
    KVF__CONTIGUOUS
} kvf__behavior;

typedef enum kvf__scheme {
    KVF__PREPEND_ALWAYS,
    KVF__PREPEND_FIRST,
    KVF__PREPEND_NEVER
} kvf__scheme;

typedef struct kvf__tok_step {
    kvf__step_kind kind;
    kvf__pattern *pattern; /* replace, split; byte-level: its regex, NULL: none; owned */
    char *text; /* prepend, replace: content; metaspace: replacement; strip: the character;
                   wordpiece: the prefix; charsmap: the map; owned */
    size_t text_n;
    kvf__behavior behavior; /* split, digits, punctuation */
    kvf__scheme scheme;     /* metaspace */
    bool invert, prefix_space, split;
    bool cleanup;        /* wordpiece decoder */
    int64_t start, stop; /* strip: maximum characters at either end; trim: whether to trim */
} kvf__tok_step;

typedef struct kvf__tok_steps {
    kvf__tok_step *v;
    size_t n, cap;
} kvf__tok_steps;
/* Appends a step and takes ownership of its members, even on failure. */
kvf_status kvf__steps_add(kvf_ctx *ctx, kvf__tok_steps *steps, kvf__tok_step *step);
void kvf__step_done(kvf__tok_step *step);
void kvf__steps_done(kvf__tok_steps *steps);

/* Returns a split regex by the name of its users: "gpt-2", "llama-bpe", "qwen35"; NULL: unknown. */
const char *kvf__split_regex(const char *name);

/* The byte alphabet of byte-level steps. */
void kvf__byte_char(uint8_t byte, char out[2], size_t *n); /* printable character of a byte */
int kvf__char_byte(uint32_t cp); /* its inverse; -1: not in the alphabet */

#endif
