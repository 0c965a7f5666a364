/* A session: rows of one base, each in a slot with its keys and values. It is fed with tokens and
 * returns logits (session.c, session_feed.c). Also tokens of several rows in the form that it
 * reads. */
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
/* Carves memory for this many rows and ids in all. */
kvf__tokens kvf__tokens_carve(kvf__carver *carve, int64_t rows, int64_t ids);
/* Appends a row. */
void kvf__tokens_add(kvf__tokens *tokens, int64_t slot, const int32_t *ids, int64_t n);

/* ---- sessions -------------------------------------------------------------------------------- */

/* `rows` slots of at most `capacity` tokens each. prompt_tokens: most tokens fed at once. mixed:
 * each slot is opened for a row with its own prefix and closed after it, and a row's bits do not
 * depend on other rows. Not mixed: all slots have the same prefix, and rows are computed together.
 * run: most tokens of a row in a run; 0: no runs; EUSAGE if the base does not support it. */
typedef struct kvf__session_limits {
    int64_t rows, capacity, prompt_tokens, run;
    bool mixed;
} kvf__session_limits;

/* prefix: the prefix of all rows; NULL: none, or mixed. */
typedef struct kvf__session kvf__session;
kvf_status kvf__session_create(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                               const kvf__session_limits *limits, kvf__session **out);
void kvf__session_free(kvf__session *session);
/* Appends tokens to slots. *logits [n, V] after each row's last token is a view, valid until the
 * next call. On an encoder-decoder the first tokens of a slot go to its encoder, all at once,
 * followed by the decoder's first token. In one call all rows begin, or all continue. A prompt of
 * more than KVF__PROMPT_PART tokens is read in parts of this size. With logits NULL one such part
 * of one row is read. A caller that interleaves other work feeds all parts but the last like this,
 * and gets the same logits as by feeding the whole prompt. */
enum { KVF__PROMPT_PART = 256 };
kvf_status kvf__session_feed(kvf_ctx *ctx, kvf__session *session, const kvf__tokens *tokens,
                             const float **logits);
/* Appends tokens to slots of a session made for runs, with the same bits as one by one; *logits
 * [tokens, V] after each token is a view as above. */
kvf_status kvf__session_feed_runs(kvf_ctx *ctx, kvf__session *session, const kvf__tokens *tokens,
                                  const float **logits);
/* Removes the last n tokens of a slot. */
void kvf__session_drop(kvf__session *session, int64_t slot, int64_t n);
/* Copies the first n tokens of slot `from` to slot `to`; on an encoder-decoder all of them. */
void kvf__session_copy(kvf__session *session, int64_t from, int64_t to, int64_t n);
void kvf__session_reset(kvf__session *session); /* empties all slots */

/* ---- slots of mixed sessions ------------------------------------------------------------------
 */

/* EUSAGE with the reason if rows of a mixed session cannot use this prefix. */
kvf_status kvf__session_fits(kvf_ctx *ctx, const kvf_prefix *prefix);
/* Opens a slot for this many tokens with a prefix (NULL: none) and its head (kvf__prefix_head;
 * NULL: none); both must outlive the slot's row. A prefix longer than all before needs larger
 * passes: on ENOMEM other slots are unchanged. */
kvf_status kvf__session_open(kvf_ctx *ctx, kvf__session *session, int64_t slot,
                             const kvf_prefix *prefix, kvf__head *head, int64_t tokens);
void kvf__session_close(kvf_ctx *ctx, kvf__session *session, int64_t slot);
/* Save and restore tokens of a slot (kvf__cache_save), on a base without encoder. */
size_t kvf__session_bytes(const kvf__session *session, int64_t n);
void kvf__session_save(const kvf__session *session, int64_t slot, int64_t first, int64_t n,
                       void *out);
void kvf__session_restore(kvf__session *session, int64_t slot, int64_t n, const void *saved);

#endif
