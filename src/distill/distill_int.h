/* Internals of distill: the document, the generated rows, and the run that learns from them. The
 * teacher is the base with the document in context, the student the base with the prefix. Both read
 * the same rows: at position n after a document of n tokens, and from --position-start on after the
 * prefix. With rope only distances matter, and these are the same within a row. */
#ifndef KVF_DISTILL_INT_H
#define KVF_DISTILL_INT_H

#include <kvfold/distill.h>

#include "generate.h"
#include "match.h"
#include "row_list.h"
#include "train_int.h"

/* A document: its tokens, and their keys and values as a prefix that generation accepts. */
typedef struct kvf__document {
    kvf__buf text;
    kvf__ids ids, positions; /* positions: position of each token */
    int64_t window;          /* tokens in a window, and position at which rows begin */
    kvf_prefix *context;     /* prefix with P = ids.n; owns its texts */
    int64_t row_capacity;    /* longest row after it */
} kvf__document;
/* Reads a document. system: the text is a system prompt, and the document is its turn in the chat
 * template. window: tokens in a window, at least 4; 0: all that fit. EDATA: empty or not text;
 * ESHAPE: no positions are left for rows. The caller frees *out, even after a failure. */
kvf_status kvf__document_open(kvf_ctx *ctx, kvf_base *base, const char *path, bool system,
                              int64_t window, const kvf__render *render, kvf__document *out);
void kvf__document_done(kvf__document *document);
/* Returns how the document's text becomes ids: as the start of a text, without a template for
 * prompts. */
kvf__render kvf__document_render(const kvf__render *render);
/* Returns the shortest start of the text whose first n ids are those of the document; the caller
 * frees *out. */
kvf_status kvf__document_head(kvf_ctx *ctx, const kvf__document *document,
                              const kvf__render *render, int64_t n, char **out);
kvf__subject kvf__document_subject(const kvf__document *document);
kvf__match_source kvf__document_source(const kvf__document *document);

/* Prefixes of other documents that rows read beside the trained one. */
typedef struct kvf__distractors {
    kvf_ctx *ctx;
    const kvf_base *base;
    const char *const *paths; /* [n] */
    size_t n;
    int64_t start; /* position at which rows begin */
} kvf__distractors;
/* Opens the files, and joins their keys and values at the distances to the rows that they have
 * alone. hex: hash of what they hold. The caller frees *out, even after a failure. EUNSUPPORTED,
 * EMISMATCH: a prefix that cannot be joined, or is of another base. */
kvf_status kvf__distractors_open(const kvf__distractors *d, char hex[33], kvf__prefix *out);

/* Adds pieces of the document of `chunk` tokens with labels on every token. Each begins 1/parts of
 * a piece after the previous one. */
kvf_status kvf__study_chunks(kvf_ctx *ctx, const kvf__document *document, int64_t chunk,
                             int64_t parts, const kvf__render *render, kvf__row_list *rows);

typedef struct kvf__study_options {
    int64_t n, max_tokens;
    double temperature;
    uint64_t seed;
} kvf__study_options;
/* Adds n prompts about the document, drawn from the seed, with the answers of the base that has the
 * document in context. */
kvf_status kvf__study_answers(kvf_ctx *ctx, kvf_base *base, const kvf__document *document,
                              const kvf__renderer *renderer, const kvf__study_options *options,
                              kvf__row_list *rows);

/* ---- system prompts (system_prompt.c) -------------------------------------------------------- */

/* Returns the ids of a system turn at the start of a chat in the template of `render`, and the
 * turn's text in *text. Trailing newlines of the prompt are ignored. */
kvf_status kvf__system_turn(kvf_ctx *ctx, const kvf__render *render, kvf__buf *text, kvf__ids *ids);

/* Chats of a user turn and an answer. A prompt is a row that ends before the answer. */
typedef struct kvf__chats {
    kvf_ctx *ctx;
    kvf_base *base;
    const kvf__renderer *renderer; /* renderer with template no-system */
    const kvf__study_options *study;
    int64_t longest_prompt;
} kvf__chats;
/* Loads the prompts of a file, and at most n user turns that the base writes with a prefix. */
kvf_status kvf__user_turns_load(const kvf__chats *chats, const kvf_train_options *options,
                                const char *path, kvf__dataset *out);
kvf_status kvf__user_turns_make(const kvf__chats *chats, const kvf_prefix *speaker, int64_t n,
                                kvf__dataset *out);
/* Adds a row for each prompt, with the answer of the base with a prefix. */
kvf_status kvf__answer_turns(const kvf__chats *chats, const kvf_prefix *speaker,
                             const kvf__dataset *prompts, uint64_t seed, kvf__row_list *rows);
/* Copies the rows, each padded to the length with the longest answer. */
kvf_status kvf__pad_answers(const kvf__chats *chats, const kvf__row_list *rows, kvf__row_list *out);
/* Copies the prompts of rows[i], i < n; replaces their answers by row i of `by`. */
kvf_status kvf__prompts_of(kvf_ctx *ctx, const kvf__dataset *set, const int64_t *rows, int64_t n,
                           kvf__dataset *out);
void kvf__replace_rows(kvf__dataset *set, const int64_t *rows, int64_t n, const kvf__dataset *by);

#endif
