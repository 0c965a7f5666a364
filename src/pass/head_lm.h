/* Private to src/pass: the walk over the vocabulary that all language-model losses use: labelled
 * rows in chunks, the vocabulary in planes. */
#ifndef KVF_HEAD_LM_H
#define KVF_HEAD_LM_H

#include "loss.h"
#include "model_priv.h"

struct kvf__carver;

/* The running softmax of a chunk of at most KVF__HEAD_ROWS rows, plane by plane (vocab_sums.c). */
typedef struct kvf__vocab_sums {
    float *logits;                   /* [rows, KVF__VOCAB_PLANE] of the current plane */
    float *max, *sum, *target_logit; /* [rows] */
    int32_t *target;                 /* [rows] column of the label in the current plane */
} kvf__vocab_sums;
kvf__vocab_sums kvf__vocab_sums_lay(struct kvf__carver *carve, int64_t rows);
void kvf__vocab_sums_begin(const kvf__vocab_sums *sums, int64_t rows);
/* Returns -log p of the label of row j, after all planes. */
double kvf__vocab_label_loss(const kvf__vocab_sums *sums, int64_t j);
/* Reports why the base has no such head. EUNSUPPORTED. */
kvf_status kvf__no_lm_head(kvf_ctx *ctx, const kvf__model *model);
/* ESHAPE: a label is outside a vocabulary of V; ENUMERIC: a loss is not finite. */
kvf_status kvf__vocab_check_labels(kvf_ctx *ctx, const kvf__batch *batch, int64_t V);
kvf_status kvf__vocab_check_sum(kvf_ctx *ctx, double loss_sum);

/* Carved from the pass's arena; head rows: at most KVF__HEAD_ROWS. */
typedef struct kvf__pass_head {
    void *xhat;           /* [Lx, C] output of the final norm, without its weights */
    void *in;             /* [Lx, C] input of the head; xhat if the norm is folded into it */
    float *rstd;          /* [Lx] of the final norm */
    kvf__vocab_sums sums; /* [head rows] */
    float *soft_logit;    /* [head rows, limits.soft] logits of a teacher's items */
    /* backward only */
    void *e;                 /* [head rows, KVF__VOCAB_PLANE] */
    float *acc, *target_row; /* [head rows, C] */
    float *soft_row;         /* [head rows, C] rows of the head; NULL: no teacher */
} kvf__pass_head;

/* A walk over labelled rows [first, first + rows), of which the first `real` have a label and the
 * others are padding. */
typedef struct kvf__vocab_walk kvf__vocab_walk;
struct kvf__vocab_walk {
    kvf_ctx *ctx;
    kvf__pass *pass;
    const kvf__loss *how; /* the requested loss; zero: none */
    bool sums;            /* compute the running softmax and, with a gradient, acc [rows, C] */
    /* Called with the logits of plane p before they are summed; NULL: none. */
    void (*plane)(kvf__vocab_walk *walk, int64_t p);
    /* Called after all planes of a chunk; NULL: none. */
    kvf_status (*chunk)(kvf__vocab_walk *walk);
    int64_t first, rows, real;
    double loss_sum;
    /* for walks without a loss */
    int64_t k;
    int32_t *ids;
    float *out;
    kvf__outputs_fn *visit;
    void *user;
};
/* Computes the logits of plane p for the chunk's rows. */
kvf_status kvf__vocab_plane_logits(const kvf__vocab_walk *walk, int64_t p);
/* Computes z [n] = cap tanh(z / cap). */
void kvf__cap_logits(float cap, float *z, int64_t n);
/* Returns the slope of the cap for a capped logit z; 1 without a cap. */
float kvf__cap_slope(const kvf__model *model, float z);
/* Runs the walk. what: "loss" or "logits", for the error if the base has no head, or no forward
 * pass preceded. */
kvf_status kvf__vocab_walk_run(kvf__vocab_walk *walk, const char *what);

/* kvf__pass_outputs_each with the base's own head. */
kvf_status kvf__pass_lm_logits_each(kvf_ctx *ctx, kvf__pass *pass, float *memory,
                                    kvf__outputs_fn *visit, void *user);
/* kvf__pass_loss with the base's own head. */
kvf_status kvf__pass_vocab_loss(kvf_ctx *ctx, kvf__pass *pass, const kvf__loss *how,
                                double *loss_sum);
/* For a teacher (head_soft.c): checks its items; the two callbacks of its walk. */
kvf_status kvf__soft_check(kvf_ctx *ctx, const kvf__pass *pass, const kvf__loss *how);
void kvf__soft_plane(kvf__vocab_walk *walk, int64_t p);
kvf_status kvf__soft_chunk(kvf__vocab_walk *walk);
/* Returns where to write the gradient of the head's input, [rows, C] of the chunk in f32; and
 * completes it: padding rows become zero, the activation type gets its copy. */
float *kvf__head_gradient_rows(const kvf__vocab_walk *walk);
void kvf__head_gradient_end(const kvf__vocab_walk *walk);

#endif
