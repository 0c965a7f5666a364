/* The steps of a pipeline as rows of data: normalizers, pre-tokenizers and decoders (tok_steps.c).
 */
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
    KVF__STEP_CLEAN,         /* BERT: control characters out, white space to ' ' */
    KVF__STEP_SPACE_CHINESE, /* BERT: ' ' on both sides of each */
    KVF__STEP_STRIP_MARKS,   /* BERT: non-spacing marks only */
    KVF__STEP_CHARSMAP,      /* SentencePiece's table, in `text` */
    KVF__STEP_TRIM,          /* white space at the ends that start and stop say */
    KVF__STEP_LONGEST_MAP,   /* the same table, as SentencePiece itself applies it */
    KVF__STEP_COLLAPSE,      /* SentencePiece: of spaces, none at the ends, one elsewhere */
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
    kvf__pattern *pattern; /* replace, split; byte-level: its regex, NULL without; owned */
    char *text; /* prepend, replace: content; metaspace: replacement; strip: the character;
                   wordpiece: the prefix; charsmap: the map; owned */
    size_t text_n;
    kvf__behavior behavior; /* split, digits, punctuation */
    kvf__scheme scheme;     /* metaspace */
    bool invert, prefix_space, split;
    bool cleanup;        /* wordpiece decoder */
    int64_t start, stop; /* strip: at most so many characters at either end; trim: whether */
} kvf__tok_step;

typedef struct kvf__tok_steps {
    kvf__tok_step *v;
    size_t n, cap;
} kvf__tok_steps;
/* Takes over what step owns, also on failure. */
kvf_status kvf__steps_add(kvf_ctx *ctx, kvf__tok_steps *steps, kvf__tok_step *step);
void kvf__step_done(kvf__tok_step *step);
void kvf__steps_done(kvf__tok_steps *steps);

/* Split regexes by the name of what uses them: "gpt-2", "llama-bpe", "qwen2"; NULL: not known. */
const char *kvf__split_regex(const char *name);

/* The byte alphabet of byte-level steps. */
void kvf__byte_char(uint8_t byte, char out[2], size_t *n); /* the printable character of a byte */
int kvf__char_byte(uint32_t cp);                           /* its inverse, -1 */

#endif
