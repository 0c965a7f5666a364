/* One more token for each of a few rows: a step of generation.
 *
 * Such a step is bound by reading the weights, so it reads
 * those of the file, quantised as they are, instead of the packed ones (matvec.h), in one parallel
 * region. Activations and sums are f32; where the model computes in bf16, products of more than one
 * row may round their factors to it, as a pass does. */
#ifndef KVF_DECODER_H
#define KVF_DECODER_H

#include "cache.h"
#include "condition.h"

typedef struct kvf__decoder kvf__decoder;
typedef struct kvf__step_row {
    kvf__condition condition; /* its vectors are not used: all tokens are the vocabulary's */
    const kvf__slot *head;    /* NULL: the decoder's */
} kvf__step_row;
typedef struct kvf__step {
    int64_t n;                /* rows */
    const int32_t *ids;       /* [n] their new tokens */
    const int32_t *slot;      /* [n] their slots in the cache; NULL: row r uses slot r */
    kvf__condition condition; /* of all rows */
    const kvf__step_row *row; /* [n] of each, in place of that; NULL: it holds for all */
    bool runs;   /* neighbours in one slot are tokens of it in their order: a row sees those before
                    it and has the bits of a step after theirs, with as_one to the last */
    bool as_one; /* a row's bits are those of a step of that row alone, whatever other rows there
                    are; so they are without it where the model computes in f32 */
} kvf__step;

/* Why a base has no decoder: its block (KVF__BLOCK), or its file, as where that stores weights by
 * inputs (GPT-2 of Hugging Face); NULL: it has one. */
const char *kvf__decoder_refuses(const kvf__model *model, const kvf__slots *slots);
/* slots: those the model was made of; they, the model and the cache must outlive it. P: longest
 * prefix. EUSAGE where it is refused. */
kvf_status kvf__decoder_create(kvf_ctx *ctx, kvf__model *model, const kvf__slots *slots,
                               kvf__cache *cache, int64_t rows, int64_t P, kvf__decoder **out);
/* A head [V, C] in place of the base's (kvf__head_matrix), which must outlive the decoder. */
void kvf__decoder_set_head(kvf__decoder *decoder, const kvf__slot *head);
void kvf__decoder_free(kvf__decoder *decoder);
/* Appends the tokens to the cache; logits [n, V] of what follows them, f32. Allocates nothing but
 * rope tables for positions that no batch has reached. ESHAPE as kvf__pass_fwd. */
kvf_status kvf__decoder_step(kvf_ctx *ctx, kvf__decoder *decoder, const kvf__step *step,
                             float *logits);

#endif
