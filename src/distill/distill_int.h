/* Inside distill: the document, the rows of self-study, and the run that learns from them.
 *
 * The teacher is the base with the document in context, the student the base with the prefix. Both
 * read the same rows: at position n after a document of n tokens, and from --position-start on
 * after the prefix; with rope only distances count, and within a row they are the same. */
#ifndef KVF_DISTILL_INT_H
#define KVF_DISTILL_INT_H

#include <kvfold/distill.h>

#include "generate.h"
#include "match.h"
#include "row_list.h"
#include "train_int.h"

/* A text that was read: its tokens, and what the base keeps of them, as a prefix that generation
 * takes as any other. */
typedef struct kvf__document {
    kvf__buf text;
    kvf__ids ids, positions; /* where each token was read */
    int64_t window;          /* tokens read at a time; rows begin at this position */
    kvf_prefix *context;     /* P = ids.n; its texts are the document's */
    int64_t row_capacity;    /* longest row after it */
} kvf__document;
/* system: the text is a system prompt, and the document what a chat template makes of it.
 * window: tokens read at a time, at least 4; 0: all that fit. EDATA: it is empty or not text;
 * ESHAPE: it leaves the model no positions for rows. *out is to be done after a failure too. */
kvf_status kvf__document_open(kvf_ctx *ctx, kvf_base *base, const char *path, bool system,
                              int64_t window, const kvf__render *render, kvf__document *out);
void kvf__document_done(kvf__document *document);
/* How a document's text becomes ids: as the start of a text, whatever template wraps prompts. */
kvf__render kvf__document_render(const kvf__render *render);
/* The beginning of the text, at least as far as its first n tokens go, with the same ids; *out to
 * free. */
kvf_status kvf__document_head(kvf_ctx *ctx, const kvf__document *document,
                              const kvf__render *render, int64_t n, char **out);
kvf__subject kvf__document_subject(const kvf__document *document);
kvf__match_source kvf__document_source(const kvf__document *document);

/* Pieces of the document of `chunk` tokens, each beginning 1/parts of a piece after the one before,
 * predicted throughout. */
kvf_status kvf__study_chunks(kvf_ctx *ctx, const kvf__document *document, int64_t chunk,
                             int64_t parts, const kvf__render *render, kvf__row_list *rows);

typedef struct kvf__study_options {
    int64_t n, max_tokens;
    double temperature;
    uint64_t seed;
} kvf__study_options;
/* n prompts about the document, drawn from the seed, and what the base answers with the document in
 * context. */
kvf_status kvf__study_answers(kvf_ctx *ctx, kvf_base *base, const kvf__document *document,
                              const kvf__renderer *renderer, const kvf__study_options *options,
                              kvf__row_list *rows);

/* ---- system prompts (system_prompt.c) -------------------------------------------------------- */

/* The ids of the turn of a system prompt, as the template of `render` begins a chat, and its text
 * in place of the prompt's, whose last line feeds do not count. */
kvf_status kvf__system_turn(kvf_ctx *ctx, const kvf__render *render, kvf__buf *text, kvf__ids *ids);

/* Chats of a user turn and an answer. A prompt is a row that ends where the answer begins. */
typedef struct kvf__chats {
    kvf_ctx *ctx;
    kvf_base *base;
    const kvf__renderer *renderer; /* of template no-system */
    const kvf__study_options *study;
    int64_t longest_prompt;
} kvf__chats;
/* Prompts of a file's rows, and at most n whose user turns the base writes with a prefix. */
kvf_status kvf__user_turns_load(const kvf__chats *chats, const kvf_train_options *options,
                                const char *path, kvf__dataset *out);
kvf_status kvf__user_turns_make(const kvf__chats *chats, const kvf_prefix *speaker, int64_t n,
                                kvf__dataset *out);
/* A row for each prompt, with what the base answers with a prefix. */
kvf_status kvf__answer_turns(const kvf__chats *chats, const kvf_prefix *speaker,
                             const kvf__dataset *prompts, uint64_t seed, kvf__row_list *rows);
/* The same rows, each as long as with the longest answer. */
kvf_status kvf__pad_answers(const kvf__chats *chats, const kvf__row_list *rows, kvf__row_list *out);
/* Prompts of rows[i], i < n; and row i of `by` in their place. */
kvf_status kvf__prompts_of(kvf_ctx *ctx, const kvf__dataset *set, const int64_t *rows, int64_t n,
                           kvf__dataset *out);
void kvf__replace_rows(kvf__dataset *set, const int64_t *rows, int64_t n, const kvf__dataset *by);

#endif
