/* Heads: functions from the final hidden states of labelled positions to outputs and a loss.
 *
 *   NULL      the base's own language-model head, frozen, part of the packed model (head_lm.c)
 *   lm        a trained matrix [V, C] that replaces it (head_vocab.c): --train-head
 *   task      the heads of transformers' ...ForSequenceClassification, ...ForTokenClassification,
 *             ...ForQuestionAnswering and ...ForMultipleChoice (head_task.c)
 *   words     classes read as words of the vocabulary (head_words.c): --verbalizer
 *   phrases   classes read as several of its tokens, or as continuations (head_phrases.c)
 *
 * A head is trained with the prefix. Like an encoder, it publishes its parameters, under their
 * Hugging Face names ("classifier.weight", "score.weight", "qa_outputs.bias", "lm_head.weight",
 * ...). It always computes in f32. loss.h selects the head of a loss.
 *
 * A table row per architecture and task lists the layers of a task head (BERT: frozen pooler,
 * dropout, classifier; RoBERTa: trained dense and out_proj; GPT-2, Llama: score on the row's last
 * token). If the base file lacks a required pooler, the head trains one, named
 * "bert.pooler.dense.weight" and so on, as in transformers. A head reads the batch's labelled
 * positions, which the data chooses.
 *
 * A label below 0, a row with a span below 0 and a question without a right choice have no target:
 * they add nothing to loss, terms or gradients. */
#ifndef KVF_HEAD_H
#define KVF_HEAD_H

#include "batch.h"
#include "packed_model.h"
#include "task.h"

#define KVF__LM_HEAD_NAME "lm_head.weight"

typedef struct kvf__head kvf__head;
typedef struct kvf__head_options {
    kvf__task task;
    int64_t labels;  /* classes or tags; 1 for a regression; ignored by qa and multiple-choice */
    bool regression; /* seq-cls: mean squared error against batch values */
    double dropout;  /* rate in training, below 1, at transformers' places (if given, at least
                        before the last layer); < 0: the config's */
    const float *weights; /* seq-cls, token-cls: [labels], factors on the loss of a class when a
                             gradient is computed; copied. NULL: 1 */
    uint64_t seed; /* seed of the initial values, N(0, initializer_range), biases 0, and dropout */
} kvf__head_options;

/* Properties of the base for a task head. */
typedef struct kvf__head_base {
    const char *arch; /* model_type */
    int64_t C;
    kvf__dropouts dropout;
    double initializer_range;          /* the config's; 0: 0.02 */
    const float *pooler, *pooler_bias; /* [C, C], [C], borrowed; NULL: none */
    const kvf__masked_lm *masked_lm;   /* borrowed; NULL: none; epsilon of its norm */
    double norm_eps;
    bool mean_pooled; /* as in kvf__desc */
    float factor;     /* factor of its final norm for the language-model head only; 0: 1 */
} kvf__head_base;

/* Creates a task head. EUNSUPPORTED: the architecture has no such head. */
kvf_status kvf__head_create_on(kvf_ctx *ctx, const kvf__head_base *base,
                               const kvf__head_options *options, kvf__head **out);
/* Creates a task head from the description of a model, which must outlive it. */
kvf_status kvf__head_create(kvf_ctx *ctx, const kvf__model *model, const kvf__head_options *options,
                            kvf__head **out);
/* Creates a seq-cls head without parameters (Schick and Schütze 2021). Class i is read as word
 * ids[i] of the vocabulary, and the base's masked-LM head gives its probability at a row's [MASK].
 * EUNSUPPORTED: the base has no such head. The model must outlive the head. */
kvf_status kvf__head_create_words(kvf_ctx *ctx, const kvf__model *model, const int32_t *ids,
                                  int64_t n, kvf__head **out);
/* Creates a seq-cls head without parameters for classes of several tokens. A row is one class, and
 * its labels are the class's tokens: at the row's masks, on causal bases after the text. The rows
 * of a group are the classes, and batch values [R] are 1 at the right one. Outputs are
 * log-probabilities, 1 per label, from kvf__pass_outputs only. EUNSUPPORTED: the base has no
 * language-model head, or one with a bias. The model must outlive the head. */
kvf_status kvf__head_create_phrases(kvf_ctx *ctx, const kvf__model *model, kvf__head **out);
/* Creates an lm head as a copy of the base's matrix, which unties a tied base, whose input
 * embedding stays frozen. gradient: allocate it too. EUNSUPPORTED: the base has no language-model
 * head, or one with a bias. */
kvf_status kvf__head_create_lm(kvf_ctx *ctx, const kvf__model *model, bool gradient,
                               kvf__head **out);
void kvf__head_free(kvf__head *head);
/* Returns whether it is a language-model head; NULL, the base's own, is one. */
bool kvf__head_is_lm(const kvf__head *head);
kvf__params *kvf__head_params(kvf__head *head); /* the head owns values and gradients */
/* Returns the outputs per labelled position: labels, 2 for qa (start, end), 1 for multiple-choice,
 * V for lm. */
int64_t kvf__head_width(const kvf__head *head);
/* Returns the matrix of an lm head as an f32 slot, for reading it row by row; valid as long as the
 * head. NULL if `head` is NULL. */
const kvf__slot *kvf__head_matrix(const kvf__head *head);

/* Allocates memory for batches of so many labels. */
kvf_status kvf__head_prepare(kvf_ctx *ctx, kvf__head *head, int64_t n_labels);
/* Computes logits [n_labels, width] of hidden [n_labels, C], dropout off; not for phrases. */
kvf_status kvf__head_logits(kvf_ctx *ctx, kvf__head *head, const float *hidden, int64_t n_labels,
                            float *logits);
/* Computes outputs for the labels of a batch; for phrases log-probabilities; for heads of mean
 * states one per row. */
kvf_status kvf__head_outputs(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch,
                             const float *hidden, float *outputs);
/* Returns the number of terms in the loss: rows (seq-cls, qa), labelled words, questions; labels
 * (lm, NULL). */
int64_t kvf__head_terms(const kvf__head *head, const kvf__batch *batch);
struct kvf__loss;
/* Computes *loss_sum over the terms (qa: mean of start and end), as requested by `how` (loss.h)
 * except its head. With dhidden [n_labels, C] NULL: loss only, dropout off. Otherwise dhidden is
 * set to scale * gradient, the scaled gradients of the parameters are added to, and dropout draws
 * masks from (seed, step, row), independent of the batch. ENUMERIC: the loss is not finite; ESHAPE:
 * a label or span outside the head's outputs. */
kvf_status kvf__head_loss(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch,
                          const float *hidden, const struct kvf__loss *how, double *loss_sum,
                          float *dhidden);

#endif
