/* Private to src/pass: the keys visible before each row of a pass (pass_segments.c), and recording
 * of attention (pass_share.c, pass_queries.c). */
#ifndef KVF_PASS_KEYS_H
#define KVF_PASS_KEYS_H

#include "attention.h"
#include "model_priv.h"

struct kvf__pass;

/* Carved from the pass's arena except the plan. */
typedef struct kvf__pass_keys {
    kvf__attn_plan *plan;
    kvf__attn_row *rows; /* [limits.rows] */
    kvf__kvseg *segs;    /* [sections + limits.rows]; with infix twice the rows */
    int64_t n_segs;
    int32_t *common; /* [limits.rows] segment of a row that is a common prefix, else -1 */
    int64_t *offset; /* [limits.rows] tokens of the common prefixes before a row */
    float *dcommon;  /* [limits.common_tokens, (H+2G)D] gradients that later rows add to their keys
                        and values; backward only */
    double *share;   /* sums of the input, see kvf__input */
    const struct kvf__queries *queries; /* request of the input, see kvf__input */
    bool dealt; /* the plan is assigned for the `planned` sections and for G heads */
    int64_t dealt_G;
    bool dealt_last; /* and for the last layer, where rows without labels have no queries */
} kvf__pass_keys;

/* Fills rows and segs for layer l and plans the attention. gradient: compute those of prefixes, for
 * the sections that want them; dcommon: also those of common prefixes (dcommon is zeroed). */
void kvf__pass_segments(struct kvf__pass *pass, int64_t l, bool gradient, bool dcommon);
/* Returns the segment of a prefix in its layer l with its gradient targets (NULL: none); of length
 * 0 if that layer has no prefix. */
struct kvf__kvseg kvf__prefix_segment(const kvf__prefix *prefix, int64_t l, kvf__prefix *dprefix);
/* Returns the attention parameters of layer l: sizes, scale and mask. */
struct kvf__attn kvf__model_attn(const kvf__model *model, int64_t l);
/* Returns the attention call of layer l with the forward fields filled. */
struct kvf__attn kvf__pass_attn(const struct kvf__pass *pass, int64_t l);
/* Adds the gradients in dcommon to the common prefixes' own rows of dqkv. */
void kvf__pass_collect_common_rows(struct kvf__pass *pass, int64_t l);
/* Returns whether row r attends to the prefix. */
bool kvf__pass_row_sees(const struct kvf__pass *pass, int64_t r);
/* Checks parents and sets offset. ESHAPE: a parent does not precede its row, or is too deep. */
kvf_status kvf__pass_check_common_rows(kvf_ctx *ctx, struct kvf__pass *pass,
                                       const kvf__input *input);
/* Adds layer l's part to the input's `share`, after attention ran (pass_share.c). */
kvf_status kvf__pass_add_share(kvf_ctx *ctx, const struct kvf__pass *pass, int64_t l);
/* Fills layer l's part of the input's `queries`, after attention ran (pass_queries.c). */
kvf_status kvf__pass_ask(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l);

#endif
