/* Heads: what turns the final hidden states of labelled positions into outputs and a loss.
 *
 *   NULL      the base's own language-model head, frozen, part of the packed model (head_lm.c)
 *   lm        a matrix [V, C] in its place that is trained (head_vocab.c): --train-head
 *   task      what transformers' ...ForSequenceClassification, ...ForTokenClassification,
 *             ...ForQuestionAnswering and ...ForMultipleChoice have (head_task.c)
 *   words     classes read as words of the vocabulary (head_words.c): --verbalizer
 *   phrases   classes read as several of its tokens, or as what comes next (head_phrases.c)
 *
 * A head is trained with the prefix: it publishes its parameters under their Hugging Face names
 * ("classifier.weight", "score.weight", "qa_outputs.bias", "lm_head.weight", ...), as an encoder
 * does, and computes in f32 always. Which head a loss is taken by is the business of loss.h.
 *
 * Which layers a task head has is a row per architecture and task (BERT: frozen pooler, dropout,
 * classifier; RoBERTa: trained dense and out_proj; GPT-2, Llama: score on the row's last token).
 * Where the base file lacks the pooler that a head needs, the head trains one, named
 * "bert.pooler.dense.weight" and so on, as in transformers. What a head reads are the batch's
 * labelled positions: which those are is the data's decision.
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
    double dropout;  /* while training, where transformers drops (if given, before the last layer
                        in any case), below 1; < 0: the config's */
    const float *weights; /* seq-cls, token-cls: [labels], times which the loss of a class counts
                             where a gradient is wanted; copied. NULL: once */
    uint64_t seed; /* of the starting values, N(0, initializer_range), biases 0, and of dropout */
} kvf__head_options;

/* What a task head needs to know of its base. */
typedef struct kvf__head_base {
    const char *arch; /* model_type */
    int64_t C;
    kvf__dropouts dropout;
    double initializer_range;          /* the config's; 0: 0.02 */
    const float *pooler, *pooler_bias; /* [C, C], [C], viewed; NULL: the base has none */
    const kvf__masked_lm *masked_lm;   /* the same; its norm's epsilon */
    double norm_eps;
    bool mean_pooled; /* of kvf__desc */
    float factor;     /* that its final norm has for the language model's head alone; 0: 1 */
} kvf__head_base;

/* EUNSUPPORTED: the architecture has no such head. */
kvf_status kvf__head_create_on(kvf_ctx *ctx, const kvf__head_base *base,
                               const kvf__head_options *options, kvf__head **out);
/* The same by the description of a model, which must outlive the head. */
kvf_status kvf__head_create(kvf_ctx *ctx, const kvf__model *model, const kvf__head_options *options,
                            kvf__head **out);
/* seq-cls without a parameter (Schick and Schütze 2021): class i is read as word ids[i] of the
 * vocabulary, and the base's masked-LM head gives its probability at a row's [MASK].
 * EUNSUPPORTED: the base has no such head. The model must outlive the head. */
kvf_status kvf__head_create_words(kvf_ctx *ctx, const kvf__model *model, const int32_t *ids,
                                  int64_t n, kvf__head **out);
/* seq-cls without a parameter, where a row is one class and its labels are the class's tokens: at a
 * row's masks, on causal bases after the text. The rows of a group are the classes, and batch
 * values [R] are 1 at the right one. Outputs are log-probabilities, 1 a label, of kvf__pass_outputs
 * alone. EUNSUPPORTED: the base has no head of a language model, or one with a bias. The model must
 * outlive the head. */
kvf_status kvf__head_create_phrases(kvf_ctx *ctx, const kvf__model *model, kvf__head **out);
/* lm: starts as a copy of the base's matrix, so that a tied base is untied and its input embedding
 * stays frozen. gradient: room for it too. EUNSUPPORTED: the base has no language-model head, or
 * one with a bias. */
kvf_status kvf__head_create_lm(kvf_ctx *ctx, const kvf__model *model, bool gradient,
                               kvf__head **out);
void kvf__head_free(kvf__head *head);
/* Is it a language model's? NULL, the base's own, is. */
bool kvf__head_is_lm(const kvf__head *head);
kvf__params *kvf__head_params(kvf__head *head); /* values and gradients are the head's own memory */
/* Outputs per labelled position: labels, 2 for qa (start, end), 1 for multiple-choice, V for lm. */
int64_t kvf__head_width(const kvf__head *head);
/* The matrix of an lm head as a slot of f32, for those who read weights row by row; valid as long
 * as the head. NULL where `head` is NULL. */
const kvf__slot *kvf__head_matrix(const kvf__head *head);

/* Makes room for batches of so many labels, so that none of them allocates. */
kvf_status kvf__head_prepare(kvf_ctx *ctx, kvf__head *head, int64_t n_labels);
/* logits [n_labels, width] of hidden [n_labels, C], dropout off; phrases have none. */
kvf_status kvf__head_logits(kvf_ctx *ctx, kvf__head *head, const float *hidden, int64_t n_labels,
                            float *logits);
/* The same for the labels of a batch, of phrases their log-probabilities; where the mean of a row's
 * states is read, for its rows. */
kvf_status kvf__head_outputs(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch,
                             const float *hidden, float *outputs);
/* Terms the loss is a mean of: rows (seq-cls, qa), labelled words, questions; labels (lm, NULL). */
int64_t kvf__head_terms(const kvf__head *head, const kvf__batch *batch);
struct kvf__loss;
/* *loss_sum over the terms (qa: mean of start and end), as `how` (loss.h) asks for it but for its
 * head. dhidden [n_labels, C] NULL: loss only, dropout off; else it is set to scale * gradient, the
 * parameters' gradients are added to (scaled too), and dropout draws its masks from (seed, step,
 * row), whatever other rows the batch has. ENUMERIC if the loss is not finite; ESHAPE: a label or
 * span outside what the head reads. */
kvf_status kvf__head_loss(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch,
                          const float *hidden, const struct kvf__loss *how, double *loss_sum,
                          float *dhidden);

#endif
