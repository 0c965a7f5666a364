/* Private to src/pass: the inside of a head.
 *
 * A language-model head is a matrix over the vocabulary (head_vocab.c). A task head has at most two
 * linear layers: an inner one with an activation (BERT's pooler, RoBERTa's classifier.dense) and
 * the outer one. Sums run in f64 and each result belongs to one thread, so no bit depends on the
 * thread count. */
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
/* Sets dx [rows, in]; adds to dw and db. */
void kvf__linear_bwd(const kvf__linear *layer, float *dx, const float *x, const float *dy,
                     int64_t rows);

/* Config key of the head's dropout rate in training, as in transformers. */
typedef enum kvf__head_rate {
    KVF__RATE_NONE,
    KVF__RATE_CLASSIFIER, /* classifier_dropout, else the hidden rate */
    KVF__RATE_HIDDEN,
    KVF__RATE_POOLED, /* the family's own, after the inner layer */
    KVF__RATE_QA
} kvf__head_rate;

/* A row of the table in head_task.c. */
typedef struct kvf__head_kind {
    const char *families; /* values of kvf__arch.heads, with a space before and after each */
    unsigned tasks;       /* bit t: for task t */
    const char *inner;    /* name of the inner layer, which has an activation; NULL: none */
    kvf__act_fn act;      /* activation of the inner layer */
    bool pooler;          /* the inner layer is the base's pooler if the base has one */
    bool inner_dropout;   /* dropout also before the inner layer */
    const char *outer;
    bool outer_bias;
    kvf__head_rate rate;
} kvf__head_kind;

/* State of the current batch, carved from memory, with room for `capacity` labelled positions. */
typedef struct kvf__head_work {
    void *memory;
    int64_t capacity;
    float *inner_drop;                      /* [room, C]; NULL if unused */
    float *inner_out, *outer_drop, *dinner; /* [room, inputs of the outer layer]; NULL if unused */
    float *slope;            /* slope of an activation other than tanh [room, inner.out] */
    float *xhat, *rstd;      /* words: state of the norm [room, inner.out], [room] */
    float *logits, *dlogits; /* [room, width] */
    float *rescaled;         /* [room, C] final states */
    int32_t *row, *nth; /* [room] row of each labelled position, and its index among the row's */
    const float *inner_in, *outer_in; /* inputs of the layers */
    float *mean, *dmean;              /* [room, C] means of rows; NULL: labelled states are read */
    int32_t *first, *class;           /* [room] position and id of each row's first label */
} kvf__head_work;

/* State of a language-model head (head_vocab.c). */
typedef struct kvf__vocab_work kvf__vocab_work;

struct kvf__head {
    kvf__vocab_work *vocab;     /* for heads over the whole vocabulary; NULL: others */
    const kvf__head_kind *kind; /* task heads; NULL, like most members below, for lm */
    kvf__head_options options;
    int64_t C, width;
    bool mean;     /* reads the mean of a row's labelled states */
    float rescale; /* factor on the states; 0: none */
    kvf__dropout dropout;
    kvf__linear inner, outer; /* inner.w NULL: no inner layer */
    kvf__params params;
    char name[4][64];
    float *values, *grads; /* grads NULL: words, whose rows are values */
    /* source of the inner layers, activation and norm of words; NULL: other heads */
    const kvf__masked_lm *words;
    kvf__masked_lm own; /* layers that the head trains itself, with the norm's gradient */
    float *dgamma;      /* NULL: not trained */
    double norm_eps;
    float *weights;            /* class weights of the options; NULL: all 1 */
    int32_t *word_ids;         /* words: [width], owned; NULL: other heads */
    const kvf__model *trained; /* words: model whose embedding is trained; NULL: none */
    const kvf__kernels *kernels;
    kvf__head_work work;
};

/* Sums losses of head->work.logits over the terms of a batch, and sets head->work.dlogits to scale
 * * gradient unless scale is 0. head->work.row must be filled. ESHAPE: a target outside the head's
 * outputs. */
kvf_status kvf__head_losses(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch, float scale,
                            double *loss_sum);
/* head_vocab.c: kvf__head_loss and kvf__head_logits of a language-model head, and its state. */
kvf_status kvf__vocab_loss(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch,
                           const float *hidden, const kvf__loss *how, double *loss_sum,
                           float *dhidden);
kvf_status kvf__vocab_logits(kvf_ctx *ctx, const kvf__head *head, const float *hidden, int64_t n,
                             float *logits);
/* For a head->outer that is a matrix over the vocabulary. Create its state. Compute loss [n] = -log
 * of the probability of ids [n] after hidden [n, C]. Compute the gradient of the sum of scale [n]
 * times these: sets dhidden [n, C], adds to outer.dw. */
kvf_status kvf__vocab_work_create(kvf_ctx *ctx, kvf__head *head);
kvf_status kvf__vocab_label_losses(kvf_ctx *ctx, const kvf__head *head, const float *hidden,
                                   const int32_t *ids, int64_t n, float *loss);
kvf_status kvf__vocab_label_gradients(kvf_ctx *ctx, const kvf__head *head, const float *hidden,
                                      const int32_t *ids, int64_t n, const float *scale,
                                      float *dhidden);
/* head_words.c: computes inner_out from hidden, and dhidden from dinner. */
void kvf__head_words_fwd(kvf__head *head, const float *hidden, int64_t n);
void kvf__head_words_bwd(kvf__head *head, int64_t n, float *dhidden);
/* Reads the current rows of a trained embedding; adds their gradient to that of the embedding. */
void kvf__head_words_refresh(kvf__head *head);
void kvf__head_words_pass_on(kvf__head *head);
/* head_phrases.c: computes work.logits [n_labels], the log-probability of each label; and the
 * backward pass from work.dlogits, their gradient. */
kvf_status kvf__head_phrases_fwd(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch,
                                 const float *hidden);
kvf_status kvf__head_phrases_bwd(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch,
                                 const float *hidden, float *dhidden);
/* Returns whether classes are several tokens (head_phrases.c). */
bool kvf__head_is_phrases(const kvf__head *head);
/* Returns label j's row, given that of label j - 1 (0 for the first). */
int64_t kvf__label_row(const kvf__batch *batch, int64_t j, int64_t r);
/* Returns the end of the labels from `from` on that belong to row r. */
int64_t kvf__label_end(const kvf__batch *batch, int64_t from, int64_t r);

#endif
