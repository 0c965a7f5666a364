/* Inside src/pass: one walk over the vocabulary, for every loss of a language model: labelled rows
 * in chunks, the vocabulary in planes. */
#ifndef KVF_HEAD_LM_H
#define KVF_HEAD_LM_H

#include "loss.h"
#include "model_priv.h"

struct kvf__carver;

/* The running softmax of a chunk's rows, at most KVF__HEAD_ROWS, plane by plane (vocab_sums.c). */
typedef struct kvf__vocab_sums {
    float *logits;                   /* [rows, KVF__VOCAB_PLANE] of the plane at hand */
    float *max, *sum, *target_logit; /* [rows] */
    int32_t *target;                 /* [rows] column of the label in the plane at hand */
} kvf__vocab_sums;
kvf__vocab_sums kvf__vocab_sums_lay(struct kvf__carver *carve, int64_t rows);
void kvf__vocab_sums_begin(const kvf__vocab_sums *sums, int64_t rows);
/* -log p of the label of row j, once all planes are in. */
double kvf__vocab_label_loss(const kvf__vocab_sums *sums, int64_t j);
/* EUNSUPPORTED, and why. */
kvf_status kvf__no_lm_head(kvf_ctx *ctx, const kvf__model *model);
/* ESHAPE for labels outside a vocabulary of V; ENUMERIC for a loss that is not finite. */
kvf_status kvf__vocab_check_labels(kvf_ctx *ctx, const kvf__batch *batch, int64_t V);
kvf_status kvf__vocab_check_sum(kvf_ctx *ctx, double loss_sum);

/* Carved from the pass's arena; head rows: at most KVF__HEAD_ROWS. */
typedef struct kvf__pass_head {
    void *xhat;           /* [Lx, C] output of the final norm, without its weights */
    void *in;             /* [Lx, C] what the head reads; xhat where the norm is folded into it */
    float *rstd;          /* [Lx] of the final norm */
    kvf__vocab_sums sums; /* [head rows] */
    float *soft_logit;    /* [head rows, limits.soft] of a teacher's items */
    /* backward only */
    void *e;                 /* [head rows, KVF__VOCAB_PLANE] */
    float *acc, *target_row; /* [head rows, C] */
    float *soft_row;         /* [head rows, C] of the head; NULL: no teacher */
} kvf__pass_head;

/* A walk, at labelled rows [first, first + rows), of which `real` carry a label; the others are
 * padding. */
typedef struct kvf__vocab_walk kvf__vocab_walk;
struct kvf__vocab_walk {
    kvf_ctx *ctx;
    kvf__pass *pass;
    const kvf__loss *how; /* what of a loss is wanted; zero: none of it */
    bool sums;            /* the running softmax is, and with a gradient acc [rows, C] */
    /* With the logits of plane p, before they are summed; NULL: nothing. */
    void (*plane)(kvf__vocab_walk *walk, int64_t p);
    /* When all planes of a chunk went by; NULL: nothing. */
    kvf_status (*chunk)(kvf__vocab_walk *walk);
    int64_t first, rows, real;
    double loss_sum;
    /* of walks without a loss */
    int64_t k;
    int32_t *ids;
    float *out;
    kvf__outputs_fn *visit;
    void *user;
};
/* The logits of plane p for the chunk's rows. */
kvf_status kvf__vocab_plane_logits(const kvf__vocab_walk *walk, int64_t p);
/* z [n] = cap tanh(z / cap). */
void kvf__cap_logits(float cap, float *z, int64_t n);
/* Of the cap on logits where it gave z; 1 without one. */
float kvf__cap_slope(const kvf__model *model, float z);
/* what: "loss", "logits", for the error where there is no head, or no forward pass before it. */
kvf_status kvf__vocab_walk_run(kvf__vocab_walk *walk, const char *what);

/* kvf__pass_outputs_each by the base's own head. */
kvf_status kvf__pass_lm_logits_each(kvf_ctx *ctx, kvf__pass *pass, float *memory,
                                    kvf__outputs_fn *visit, void *user);
/* kvf__pass_loss by the same. */
kvf_status kvf__pass_vocab_loss(kvf_ctx *ctx, kvf__pass *pass, const kvf__loss *how,
                                double *loss_sum);
/* Of a teacher (head_soft.c): its items are checked; the two steps of its walk. */
kvf_status kvf__soft_check(kvf_ctx *ctx, const kvf__pass *pass, const kvf__loss *how);
void kvf__soft_plane(kvf__vocab_walk *walk, int64_t p);
kvf_status kvf__soft_chunk(kvf__vocab_walk *walk);
/* Where the gradient of what the head reads is to be written, [rows, C] of the chunk in f32; and
 * its end: rows of padding become zero, the act type gets its copy. */
float *kvf__head_gradient_rows(const kvf__vocab_walk *walk);
void kvf__head_gradient_end(const kvf__vocab_walk *walk);

#endif
