/* Generation, inside the library: choosing the next token, and the session that runs many rows on
 * one base. */
#ifndef KVF_INFER_INT_H
#define KVF_INFER_INT_H

#include <kvfold/infer.h>

#include "load_int.h"
#include "rng.h"

/* ---- sampling -------------------------------------------------------------------------------- */

typedef struct kvf__sampling {
    double temperature, top_p; /* temperature 0: the largest logit, the lowest id on a tie */
    int64_t top_k;             /* 0: all */
} kvf__sampling;

typedef struct kvf__candidate {
    float logit;
    int32_t id;
} kvf__candidate;

/* The next token from logits [V]. scratch [V] is memory to work in. NaN logits are never chosen.
 * Order of the cuts as in transformers: temperature, top-k, then top-p over what is left. */
int32_t kvf__sample(const kvf__sampling *sampling, const float *logits, int64_t V, kvf__rng *rng,
                    kvf__candidate *scratch);

/* ---- a completion on its way ----------------------------------------------------------------- */

typedef enum kvf__finish {
    KVF__GOES_ON,
    KVF__FINISH_STOP,   /* the model ended it, or a stop text did */
    KVF__FINISH_LENGTH, /* no more tokens are allowed */
    KVF__FINISH_FAILED
} kvf__finish;

typedef struct kvf__answer {
    kvf__ids out;  /* new tokens */
    kvf__buf text; /* theirs so far */
    kvf__decoding *decoding;
    size_t settled;  /* bytes of text that later tokens cannot change */
    size_t streamed; /* bytes of text that were shown; whoever shows them counts */
    kvf__rng rng;
    int64_t limit;           /* most new tokens */
    const char *const *stop; /* texts that end it and are left out; views */
    size_t n_stop;
    const kvf__ends *ends; /* tokens that end it; a view */
    kvf__finish finish;
} kvf__answer;

/* Adds a token, or ends the answer. */
kvf_status kvf__answer_add(kvf_ctx *ctx, const kvf_base *base, kvf__answer *answer, int32_t token);
/* Bytes of the text that can be shown: settled, and no beginning of a stop text. */
size_t kvf__answer_ready(const kvf__answer *answer);
void kvf__answer_done(kvf__answer *answer);
/* Tokens that end an answer: those that the base's files name, and that of the chats' turns. The
 * tokenizer's EOS is one where they name none, and behind a prefix, whose rows it ended. */
kvf__ends kvf__answer_ends(const kvf_base *base, const kvf_prefix *prefix, const kvf__chat *chat);

/* ---- prompts that are ids already ------------------------------------------------------------ */

/* Completions of the rows of a data set; texts [set->n], each to be freed (kvf_texts_free). stats
 * may be NULL. prefix and options->more answer as one. */
kvf_status kvf__generate_set(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             const kvf__dataset *set, const kvf__chat *chat,
                             const kvf_generate_options *options, char **texts,
                             kvf_generate_stats *stats);

/* A text that kvf_text_bytes and kvf_texts_free take, as all completions are. */
kvf_status kvf__text_make(kvf_ctx *ctx, const kvf__buf *text, char **out);

/* ---- session --------------------------------------------------------------------------------- */

/* Room for `rows` rows of at most `capacity` tokens each, conditioned on one prefix (NULL: none).
 */
typedef struct kvf__session kvf__session;
kvf_status kvf__session_create(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix, int64_t rows,
                               int64_t capacity, int64_t prompt_tokens, kvf__session **out);
void kvf__session_free(kvf__session *session);
/* Appends tokens to the listed slots (row r: ids[start[r]] .. ids[start[r+1]-1]) and returns the
 * logits [n, V] after each row's last token: a view, valid until the next call. */
kvf_status kvf__session_feed(kvf_ctx *ctx, kvf__session *session, const int32_t *slots,
                             const int64_t *start, const int32_t *ids, int64_t n,
                             const float **logits);
/* A prompt of more than KVF__PROMPT_PART tokens is read in parts of so many; this reads one of
 * them, for who wants to do something else in between. Then the rest, at most a part, is fed:
 * logits are those of feeding it whole. */
enum { KVF__PROMPT_PART = 256 };
kvf_status kvf__session_read(kvf_ctx *ctx, kvf__session *session, int32_t slot, const int32_t *ids,
                             int64_t n);
/* Slot `to` begins with the first n tokens of slot `from`. */
void kvf__session_copy(kvf__session *session, int64_t from, int64_t to, int64_t n);
void kvf__session_reset(kvf__session *session); /* forgets all rows */

/* For rows that come and go, each with its prefix and its room, whose bits no company changes: a
 * row is fed as if it were alone. `rows` at most at a time, of `capacity` tokens at most, behind
 * prefixes of at most P. */
kvf_status kvf__session_create_mixed(kvf_ctx *ctx, kvf_base *base, int64_t rows, int64_t capacity,
                                     int64_t P, kvf__session **out);
/* EUSAGE with the reason if rows of a mixed session cannot stand behind this prefix. */
kvf_status kvf__session_fits(kvf_ctx *ctx, const kvf_prefix *prefix);
/* A slot for a row: room for so many tokens, behind a prefix (NULL: none) that must live as long.
 * A longer one than any before makes new memory for steps; where there is none, ENOMEM, and other
 * slots are as they were. head: the prefix's own as
 * kvf__prefix_lm_head makes it, which lives as long; NULL: it brings none. */
kvf_status kvf__session_open(kvf_ctx *ctx, kvf__session *session, int64_t slot,
                             const kvf_prefix *prefix, const kvf__lm_head *head, int64_t capacity);
void kvf__session_close(kvf_ctx *ctx, kvf__session *session, int64_t slot);

/* ---- several prefixes as one ----------------------------------------------------------------- */

typedef struct kvf__session_limits {
    int64_t rows, capacity, prompt_tokens; /* as kvf__session_create takes them */
} kvf__session_limits;

/* As a session of one prefix (n 0: none), but for several: the logits are those of the mean of
 * their probabilities. EUSAGE if their rows are not the same ids. */
typedef struct kvf__ensemble kvf__ensemble;
kvf_status kvf__ensemble_create(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *const *prefixes,
                                int64_t n, const kvf__session_limits *limits, kvf__ensemble **out);
void kvf__ensemble_free(kvf__ensemble *ensemble);
kvf_status kvf__ensemble_feed(kvf_ctx *ctx, kvf__ensemble *ensemble, const int32_t *slots,
                              const int64_t *start, const int32_t *ids, int64_t n,
                              const float **logits);
void kvf__ensemble_copy(kvf__ensemble *ensemble, int64_t from, int64_t to, int64_t n);
void kvf__ensemble_reset(kvf__ensemble *ensemble);

/* ---- engine ---------------------------------------------------------------------------------- */

/* Continuous batching: rows join and leave between steps, each with its own prefix, way of drawing,
 * seed and stop texts; a row gets the same answer as kvf_generate gives that prompt alone, whatever
 * else is there. */
typedef struct kvf__engine kvf__engine;

typedef struct kvf__order {
    const kvf_prefix *prefix; /* NULL: none; must live until the row ends */
    const kvf__lm_head *head; /* its own (kvf__prefix_lm_head), NULL: it has none; as long */
    const int32_t *prompt;    /* [n], viewed as long; ids below 0: its virtual tokens */
    int64_t n;
    int64_t max_tokens;
    kvf__sampling sampling;
    uint64_t seed, stream;   /* draws are those of prompt `stream` of a generate with this seed */
    const char *const *stop; /* viewed as long */
    size_t n_stop;
    const kvf__ends *ends; /* viewed as long */
    /* Called in kvf__engine_step after every new token: n more bytes of text, perhaps none, never
     * cut inside a character. new_tokens: so far. With a finish it is the last call, and the row is
     * gone when it returns. */
    void (*text)(void *user, const char *text, size_t n, int64_t new_tokens, kvf__finish finish);
    void *user;
} kvf__order;

typedef struct kvf__engine_stats {
    int64_t rows, waiting; /* that have begun; that wait for their prompt's turn */
    int64_t prompt_tokens, new_tokens, steps, step_rows; /* since the engine exists */
    double prefill_seconds, decode_seconds;
} kvf__engine_stats;

kvf_status kvf__engine_create(kvf_ctx *ctx, kvf_base *base, int64_t rows, int64_t capacity,
                              kvf__engine **out);
void kvf__engine_free(kvf__engine *engine);
bool kvf__engine_full(const kvf__engine *engine); /* no row may join */
/* Most tokens that a row may have behind a prefix, prompt and answer. Any thread, as the next. */
int64_t kvf__engine_capacity(const kvf__engine *engine, const kvf_prefix *prefix);
/* EDATA: one of the prompts [n] is empty or leaves no room for an answer behind this prefix. */
kvf_status kvf__engine_check(kvf_ctx *ctx, const kvf__engine *engine, const kvf_prefix *prefix,
                             const kvf__ids *prompts, int64_t n);
/* *row names it until it ends. EDATA as kvf__engine_check. */
kvf_status kvf__engine_join(kvf_ctx *ctx, kvf__engine *engine, const kvf__order *order,
                            int64_t *row);
void kvf__engine_leave(kvf_ctx *ctx, kvf__engine *engine, int64_t row); /* text is not called */
/* Up to some hundreds of tokens of prompts that wait, long ones part by part, then one token for
 * every row that has begun. Prompts that end in a step fail together; a row that finds no memory
 * for its text fails alone; a failed step ends all rows, and is returned. */
kvf_status kvf__engine_step(kvf_ctx *ctx, kvf__engine *engine);
kvf__engine_stats kvf__engine_stats_of(const kvf__engine *engine);

#endif
