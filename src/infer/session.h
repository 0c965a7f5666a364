/* A session: rows of one base, each in a slot with its keys and values, fed with tokens and
 * answered with logits (session.c, session_feed.c); and tokens of several rows in the form that it
 * is fed with. */
#ifndef KVF_SESSION_H
#define KVF_SESSION_H

#include "arena.h"
#include "renderer.h"

/* ---- what a session is fed ------------------------------------------------------------------- */

/* Tokens of n rows: slot slots[r] gets ids[start[r]] .. ids[start[r + 1] - 1]. */
typedef struct kvf__tokens {
    int32_t *slots; /* [rows] */
    int64_t *start; /* [rows + 1]; start[0] is 0 */
    int32_t *ids;
    int64_t n;
} kvf__tokens;
/* Memory for so many rows and ids in all. */
kvf__tokens kvf__tokens_carve(kvf__carver *carve, int64_t rows, int64_t ids);
/* Appends a row. */
void kvf__tokens_add(kvf__tokens *tokens, int64_t slot, const int32_t *ids, int64_t n);

/* ---- sessions -------------------------------------------------------------------------------- */

/* `rows` slots of at most `capacity` tokens each. prompt_tokens: the most that are fed at once.
 * mixed: each slot is opened for a row and closed after it, with a prefix of its own, and a row's
 * bits do not depend on other rows; otherwise all slots have the same prefix, and rows are
 * computed together. run: most tokens of a row in a run, 0: none is fed; EUSAGE where the base has
 * no form for that. */
typedef struct kvf__session_limits {
    int64_t rows, capacity, prompt_tokens, run;
    bool mixed;
} kvf__session_limits;

/* prefix: of all rows; NULL: none, or mixed. */
typedef struct kvf__session kvf__session;
kvf_status kvf__session_create(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                               const kvf__session_limits *limits, kvf__session **out);
void kvf__session_free(kvf__session *session);
/* Appends tokens to slots; *logits [n, V] after each row's last token is a view, valid until the
 * next call.
 *
 * On an encoder-decoder the first tokens that a slot is fed are for its encoder, all at once; the
 * decoder's first token is put behind them. In one call all rows begin, or all go on.
 *
 * A prompt of more than KVF__PROMPT_PART tokens is read in parts of so many. With logits NULL one
 * such part of one row is read and no more: a caller that wants to do something else in between
 * feeds all parts but the last like this, and gets the logits of feeding the whole. */
enum { KVF__PROMPT_PART = 256 };
kvf_status kvf__session_feed(kvf_ctx *ctx, kvf__session *session, const kvf__tokens *tokens,
                             const float **logits);
/* Appends tokens to slots, with the bits of feeding one after the other alone, on a session made
 * for runs; *logits [tokens, V] after each is a view as above. */
kvf_status kvf__session_feed_runs(kvf_ctx *ctx, kvf__session *session, const kvf__tokens *tokens,
                                  const float **logits);
/* Takes the last n tokens of a slot away. */
void kvf__session_drop(kvf__session *session, int64_t slot, int64_t n);
/* Slot `to` begins with the first n tokens of slot `from`; of an encoder-decoder with all of them.
 */
void kvf__session_copy(kvf__session *session, int64_t from, int64_t to, int64_t n);
void kvf__session_reset(kvf__session *session); /* empties all slots */

/* ---- slots of mixed sessions ------------------------------------------------------------------
 */

/* EUSAGE with the reason if rows of a mixed session cannot have this prefix. */
kvf_status kvf__session_fits(kvf_ctx *ctx, const kvf_prefix *prefix);
/* Opens a slot for so many tokens with a prefix (NULL: none) and the head that it brings
 * (kvf__prefix_head; NULL: none); both must outlive the slot's row. A prefix longer than any
 * before needs larger passes: where there is no memory for them, ENOMEM, and other slots are as
 * they were. */
kvf_status kvf__session_open(kvf_ctx *ctx, kvf__session *session, int64_t slot,
                             const kvf_prefix *prefix, kvf__head *head, int64_t tokens);
void kvf__session_close(kvf_ctx *ctx, kvf__session *session, int64_t slot);

#endif
