/* The models that cut a pre-token into tokens: BPE by ranks, BPE by scores, WordPiece, Unigram
 * (bpe.c, spm.c, wordpiece.c, unigram.c), and the word they work on (word.c). */
#ifndef KVF_TOK_MODEL_H
#define KVF_TOK_MODEL_H

#include "base_int.h"

typedef struct kvf__tokenizer kvf__tokenizer;
typedef struct kvf__work kvf__work;

/* Merges of two neighbours by their ids. */
typedef struct kvf__pairs {
    struct kvf__pair {
        uint64_t key;
        int32_t rank, id;
    } * v; /* key 0: free */
    size_t cap;
} kvf__pairs;
kvf_status kvf__pairs_init(kvf_ctx *ctx, kvf__pairs *pairs, size_t n);

typedef enum kvf__tok_model_kind {
    KVF__MODEL_BPE,
    KVF__MODEL_SCORES, /* SentencePiece scores instead of merge ranks */
    KVF__MODEL_WORDPIECE,
    KVF__MODEL_UNIGRAM
} kvf__tok_model_kind;

typedef struct kvf__tok_model {
    kvf__tok_model_kind kind;
    kvf__pairs pairs;
    double *scores; /* by score, unigram: [n_scores], for ids that the model produces */
    size_t n_scores;
    double unk_score; /* unigram */
    int32_t unk;      /* -1: none */
    /* affixes of continuing characters and of a word's last one; NULL: none */
    char *prefix, *suffix;
    bool byte_fallback, fuse_unk, ignore_merges;
    int64_t max_chars; /* wordpiece: longer words are unknown as a whole */
} kvf__tok_model;

/* Adds a merge "left right"; rank is its order, and names it in errors. */
kvf_status kvf__merge_put(kvf_ctx *ctx, kvf__tokenizer *t, const char *where, size_t rank,
                          const char *left, size_t left_n, const char *right, size_t right_n);
kvf_status kvf__merge_line(kvf_ctx *ctx, kvf__tokenizer *t, const char *where, size_t rank,
                           const char *line, size_t n);

/* A symbol of a word, in a doubly linked list; n = 0 once merged away. */
typedef struct kvf__symbol {
    int32_t id, prev, next;
    uint32_t at, n; /* its bytes in the word; `at` for by-score only */
} kvf__symbol;
typedef struct kvf__merge {
    double key;     /* smallest first: rank, or minus the score */
    int32_t at, id; /* left symbol; id of the merged pair */
    uint32_t n;     /* by-score: bytes of the pair when queued */
} kvf__merge;
/* Best path to a byte of a word: its previous byte and token; on the best path through the word
 * also the next byte. */
typedef struct kvf__path {
    double score;
    int32_t from, id, next; /* from -1: unreachable */
} kvf__path;
/* The word being merged or cut. */
typedef struct kvf__word {
    kvf__symbol *v;
    size_t n, cap;
    kvf__merge *heap;
    size_t heap_n, heap_cap;
    kvf__buf affixed;
    kvf__path *path; /* unigram: [bytes + 1] */
    size_t path_cap;
} kvf__word;
kvf_status kvf__word_add(kvf_ctx *ctx, kvf__word *word, int32_t id, size_t at, size_t n);
kvf_status kvf__word_push(kvf_ctx *ctx, kvf__word *word, kvf__merge merge);
bool kvf__word_pop(kvf__word *word, kvf__merge *merge);
/* Merges symbol `at` with the next one. */
void kvf__word_merge(kvf__word *word, int32_t at, int32_t id);
void kvf__word_done(kvf__word *word);

/* Append the ids of the current pre-token of `work` to work->out. */
kvf_status kvf__bpe_encode(kvf__work *work, const char *text, size_t n);
kvf_status kvf__spm_encode(kvf__work *work, const char *text, size_t n);
kvf_status kvf__wordpiece_encode(kvf__work *work, const char *text, size_t n);
kvf_status kvf__unigram_encode(kvf__work *work, const char *text, size_t n);

#endif
