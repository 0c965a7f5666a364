/* A step of generation: one more token for each of a few rows.
 *
 * Such a step is bound by reading the weights. It reads those of the file, still quantised, instead
 * of the packed ones (matvec.h), in one parallel region. Activations and sums are f32. Where the
 * model computes in bf16, products of more than one row may round their factors to it, as a pass
 * does. */
#ifndef KVF_DECODER_H
#define KVF_DECODER_H

#include "cache.h"
#include "condition.h"

typedef struct kvf__decoder kvf__decoder;
typedef struct kvf__step_row {
    kvf__condition condition; /* its vectors are ignored: all tokens are in the vocabulary */
    const kvf__slot *head;    /* NULL: the decoder's head */
} kvf__step_row;
typedef struct kvf__step {
    int64_t n;                /* rows */
    const int32_t *ids;       /* [n] new tokens */
    const int32_t *slot;      /* [n] cache slots; NULL: row r uses slot r */
    kvf__condition condition; /* condition of all rows */
    const kvf__step_row *row; /* [n] conditions per row, overriding `condition`; NULL: none */
    bool runs; /* adjacent rows with one slot are consecutive tokens: a row attends to those before
                  it. With as_one it has the bits of separate steps */
    bool as_one; /* a row has the bits of a step of that row alone; always so where the model
                    computes in f32 */
} kvf__step;

/* Returns why a base has no decoder; NULL: it has one. The reason is its block (KVF__BLOCK), or
 * weights stored by inputs (Hugging Face's GPT-2). */
const char *kvf__decoder_refuses(const kvf__model *model, const kvf__slots *slots);
/* Creates a decoder. slots: those the model was made of; slots, model and cache must outlive it. P:
 * longest prefix; neurons: its most virtual neurons. EUSAGE: kvf__decoder_refuses. */
kvf_status kvf__decoder_create(kvf_ctx *ctx, kvf__model *model, const kvf__slots *slots,
                               kvf__cache *cache, int64_t rows, int64_t P, int64_t neurons,
                               kvf__decoder **out);
/* Replaces the base's head by another [V, C] (kvf__head_matrix), which must outlive the decoder. */
void kvf__decoder_set_head(kvf__decoder *decoder, const kvf__slot *head);
void kvf__decoder_free(kvf__decoder *decoder);
/* Appends the tokens to the cache and computes the logits [n, V] after them, f32. Allocates only
 * rope tables for new positions. ESHAPE as in kvf__pass_fwd. */
kvf_status kvf__decoder_step(kvf_ctx *ctx, kvf__decoder *decoder, const kvf__step *step,
                             float *logits);

#endif
