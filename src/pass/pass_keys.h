/* Inside src/pass: which keys attention sees before each row of a pass (pass_segments.c), and what
 * it is asked of them (pass_share.c). */
#ifndef KVF_PASS_KEYS_H
#define KVF_PASS_KEYS_H

#include "attention.h"
#include "model_priv.h"

struct kvf__pass;

/* Carved from the pass's arena but for the plan. */
typedef struct kvf__pass_keys {
    kvf__attn_plan *plan;
    kvf__attn_row *rows; /* [limits.rows] */
    kvf__kvseg *segs;    /* [sections + limits.rows]; with infix twice the rows */
    int64_t n_segs;
    int32_t *common; /* [limits.rows] segment of a row that is a common prefix, else -1 */
    int64_t *offset; /* [limits.rows] tokens of the common prefixes before a row */
    float *dcommon;  /* [limits.common_tokens, (H+2G)D] what later rows add to their keys, values;
                      backward only */
    double *share;   /* of the input */
    const struct kvf__queries *queries; /* of the input */
    bool dealt; /* the attention plan, for the sections that are `planned` and for G heads */
    int64_t dealt_G;
    bool dealt_last; /* for the last layer, where rows without labels ask for nothing */
} kvf__pass_keys;

/* Fills rows and segs for layer l and deals the attention's work. gradient: those of prefixes are
 * wanted, where the sections have them; dcommon: those of common prefixes too (dcommon is zeroed).
 */
void kvf__pass_segments(struct kvf__pass *pass, int64_t l, bool gradient, bool dcommon);
/* Keys and values of a prefix in its layer l, with where their gradients go (NULL: none are
 * wanted), of length 0 where it has none there. */
struct kvf__kvseg kvf__prefix_segment(const kvf__prefix *prefix, int64_t l, kvf__prefix *dprefix);
/* The attention of layer l: sizes, scale and mask. */
struct kvf__attn kvf__model_attn(const kvf__model *model, int64_t l);
/* The attention call of layer l, forward fields filled. */
struct kvf__attn kvf__pass_attn(const struct kvf__pass *pass, int64_t l);
/* Adds what the rows after common prefixes left in dcommon to the common prefixes' own rows of
 * dqkv. */
void kvf__pass_collect_common_rows(struct kvf__pass *pass, int64_t l);
/* Does row r see the prefix? */
bool kvf__pass_row_sees(const struct kvf__pass *pass, int64_t r);
/* ESHAPE for parents that do not come before their row, or lie too deep. Sets offset. */
kvf_status kvf__pass_check_common_rows(kvf_ctx *ctx, struct kvf__pass *pass,
                                       const kvf__input *input);
/* Adds layer l's part to what the input's `share` asks for, once attention ran (pass_share.c). */
kvf_status kvf__pass_add_share(kvf_ctx *ctx, const struct kvf__pass *pass, int64_t l);
/* Layer l's part of what the input's `queries` asks for, once attention ran (pass_queries.c). */
kvf_status kvf__pass_ask(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l);

#endif
