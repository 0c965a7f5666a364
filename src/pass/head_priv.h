/* Inside src/pass: what a head is made of.
 *
 * A language model's is a matrix over the vocabulary (head_vocab.c). A task's is at most two linear
 * layers: an inner one with an activation (BERT's pooler, RoBERTa's classifier.dense) and the outer
 * one.
 * Their sums run in f64 and every result belongs to one thread, so no bit depends on the thread
 * count. */
#ifndef KVF_HEAD_PRIV_H
#define KVF_HEAD_PRIV_H

#include "dropout.h"
#include "kernels.h"
#include "loss.h"

/* y = x w^T + b. */
typedef struct kvf__linear {
    const float *w, *b; /* [out, in], [out]; b NULL: none */
    float *dw, *db;     /* gradients, added to; NULL: frozen */
    int64_t in, out;
} kvf__linear;
void kvf__linear_fwd(const kvf__linear *layer, float *y, const float *x, int64_t rows);
/* dx [rows, in] is set, dw and db are added to. */
void kvf__linear_bwd(const kvf__linear *layer, float *dx, const float *x, const float *dy,
                     int64_t rows);

/* Which config key has the rate at which the head drops while training, as transformers has it. */
typedef enum kvf__head_rate {
    KVF__RATE_NONE,
    KVF__RATE_CLASSIFIER, /* classifier_dropout, else the hidden one */
    KVF__RATE_HIDDEN,
    KVF__RATE_POOLED, /* the family's own, behind the inner layer */
    KVF__RATE_QA
} kvf__head_rate;

/* A row of the table in head_task.c. */
typedef struct kvf__head_kind {
    const char *families; /* heads of kvf__arch, with a space before and after each */
    unsigned tasks;       /* bit t: task t */
    const char *inner;    /* name of the layer with an activation, NULL: none */
    kvf__act_fn act;      /* that one */
    bool pooler;          /* the inner layer is the base's own where the base has it */
    bool inner_dropout;   /* dropout before the inner layer too */
    const char *outer;
    bool outer_bias;
    kvf__head_rate rate;
} kvf__head_kind;

/* Of the batch that is computed; carved from memory, room for `capacity` labelled positions. */
typedef struct kvf__head_work {
    void *memory;
    int64_t capacity;
    float *inner_drop;                      /* [room, C]; NULL where not needed */
    float *inner_out, *outer_drop, *dinner; /* [room, inputs of the outer layer]; the same */
    float *slope;                           /* of an activation other than tanh [room, inner.out] */
    float *xhat, *rstd;                     /* words: of the norm [room, inner.out], [room] */
    float *logits, *dlogits;                /* [room, width] */
    float *rescaled;                        /* [room, C] final states */
    int32_t *row, *nth; /* [room] row of each labelled position, and its number among the row's */
    const float *inner_in, *outer_in; /* what the layers were given */
    float *mean, *dmean;              /* [room, C] of rows; NULL: labels are read */
    int32_t *first, *class;           /* [room] of each row: its first label's position and id */
} kvf__head_work;

/* What a language model's head computes with (head_vocab.c). */
typedef struct kvf__vocab_work kvf__vocab_work;

struct kvf__head {
    kvf__vocab_work *vocab;     /* reads the whole vocabulary; NULL: it does not */
    const kvf__head_kind *kind; /* of a task's, and all below but for the common part; NULL: lm's */
    kvf__head_options options;
    int64_t C, width;
    bool mean;     /* reads the mean of a row's labelled states */
    float rescale; /* times which it reads them; 0: as they are */
    kvf__dropout dropout;
    kvf__linear inner, outer; /* inner.w NULL: there is none */
    kvf__params params;
    char name[4][64];
    float *values, *grads;       /* grads NULL: of words, whose rows are values */
    const kvf__masked_lm *words; /* its layers are the inner ones, its act and norm those behind
                                    them; NULL: of others */
    kvf__masked_lm own;          /* of heads that train these themselves; the norm's gradient */
    float *dgamma;               /* NULL: not trained */
    double norm_eps;
    float *weights;            /* of options; NULL: each 1 */
    int32_t *word_ids;         /* of words, [width], owned; NULL: of others */
    const kvf__model *trained; /* of words: whose embedding is trained; NULL: nobody's */
    const kvf__kernels *kernels;
    kvf__head_work work;
};

/* Sums losses of head->work.logits over the terms of a batch; sets head->work.dlogits to scale *
 * gradient unless scale is 0. head->work.row is filled. ESHAPE: a target outside the head's
 * outputs. */
kvf_status kvf__head_losses(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch, float scale,
                            double *loss_sum);
/* head_vocab.c: kvf__head_loss, kvf__head_logits of a language model's; what it computes with. */
kvf_status kvf__vocab_loss(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch,
                           const float *hidden, const kvf__loss *how, double *loss_sum,
                           float *dhidden);
kvf_status kvf__vocab_logits(kvf_ctx *ctx, const kvf__head *head, const float *hidden, int64_t n,
                             float *logits);
/* Where head->outer is a matrix over the vocabulary: what it computes with; loss [n] = -log of the
 * probability of ids [n] after hidden [n, C]; the gradient of the sum of scale [n] times these:
 * dhidden [n, C] is set, outer.dw added to. */
kvf_status kvf__vocab_work_create(kvf_ctx *ctx, kvf__head *head);
kvf_status kvf__vocab_label_losses(kvf_ctx *ctx, const kvf__head *head, const float *hidden,
                                   const int32_t *ids, int64_t n, float *loss);
kvf_status kvf__vocab_label_gradients(kvf_ctx *ctx, const kvf__head *head, const float *hidden,
                                      const int32_t *ids, int64_t n, const float *scale,
                                      float *dhidden);
/* head_words.c: inner_out from hidden, dhidden from dinner. */
void kvf__head_words_fwd(kvf__head *head, const float *hidden, int64_t n);
void kvf__head_words_bwd(kvf__head *head, int64_t n, float *dhidden);
/* The rows of the embedding as they are now, where it is trained; their gradient to its own. */
void kvf__head_words_refresh(kvf__head *head);
void kvf__head_words_pass_on(kvf__head *head);
/* head_phrases.c: work.logits [n_labels], the log-probability of each label; and from
 * work.dlogits, the gradient of these, back. */
kvf_status kvf__head_phrases_fwd(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch,
                                 const float *hidden);
kvf_status kvf__head_phrases_bwd(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch,
                                 const float *hidden, float *dhidden);
/* Does it read classes of several tokens (head_phrases.c)? */
bool kvf__head_is_phrases(const kvf__head *head);
/* Label j's row, given that of label j - 1 (0 for the first). */
int64_t kvf__label_row(const kvf__batch *batch, int64_t j, int64_t r);
/* Labels from .. one before the result are those of row r. */
int64_t kvf__label_end(const kvf__batch *batch, int64_t from, int64_t r);

#endif
