/* Classes read as sequences of tokens (Schick and Schütze 2021 for several masks). The score of a
 * class is the sum of the log-probabilities of its tokens, each over the whole vocabulary, by the
 * base's pretraining head. A row is one class, its labels are the tokens, and the rows of a group
 * are the classes. A softmax over their scores gives probabilities (head_loss.c).
 *
 *   masked models   token j at the row's mask j, of as many masks as the class has tokens
 *   causal models   token j after the text and the tokens before it
 *
 * If all classes have one token, the normalising sums are equal and the probabilities are those of
 * head_words.c. The head has no parameters; it adds to the gradient of a trained base matrix. Its
 * output at a label is the label's log-probability. */
#include "arch.h"
#include "head_lm.h"
#include "head_priv.h"

static const kvf__head_kind MASKED = {.inner = "transform"};
static const kvf__head_kind CAUSAL = {.inner = NULL};

/* Takes the matrix in place, or a copy in f32. */
static kvf_status take_matrix(kvf_ctx *ctx, const kvf__model *model, const kvf__slot *slot,
                              kvf__head *head)
{
    const bool plain = slot->view.dtype == KVF__F32 && !slot->permuted_heads && !slot->conv1d &&
                       (uintptr_t)slot->view.data % sizeof(float) == 0;

    if (!plain) KVF_TRY(kvf__slot_f32(ctx, slot, &head->values));
    head->outer = (kvf__linear){.w = plain ? slot->view.data : head->values,
                                .dw = kvf__masters_grad(model->train.masters, slot->role, 0),
                                .in = head->words ? model->desc.E : head->C,
                                .out = model->desc.V};
    return KVF_OK;
}

static kvf_status build(kvf_ctx *ctx, const kvf__model *model, kvf__head *head)
{
    const kvf__masked_lm *from = head->words;

    KVF_TRY(take_matrix(ctx, model, from ? &model->embed.tokens : &model->lm.file, head));
    if (from) {
        head->outer.b = from->bias;
        head->inner = (kvf__linear){
            .w = from->dense, .b = from->dense_bias, .in = head->C, .out = model->desc.E};
    }
    return kvf__vocab_work_create(ctx, head);
}

static kvf_status check_base(kvf_ctx *ctx, const kvf__model *model)
{
    if (model->lm.n && model->desc.factors.logit_cap > 0)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "architecture %s caps its logits, which --verbalizer does not support",
                         model->desc.arch_name);
    if (model->lm.n && model->desc.head_bias)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "the head of this %s has a bias, which --verbalizer does not support",
                         model->desc.arch_name);
    if (model->lm.n || kvf__model_masked_lm(model)) return KVF_OK;
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "the base (%s) has no masked-language-model head to read words with",
                     model->desc.arch_name);
}

kvf_status kvf__head_create_phrases(kvf_ctx *ctx, const kvf__model *model, kvf__head **out)
{
    kvf__head *head = NULL;

    KVF_TRY(check_base(ctx, model));
    KVF_TRY(kvf__alloc(ctx, sizeof *head, &head));
    head->words = model->lm.n ? NULL : kvf__model_masked_lm(model);
    head->kind = head->words ? &MASKED : &CAUSAL;
    head->options = (kvf__head_options){.task = KVF__TASK_SEQ_CLS, .labels = 1};
    head->dropout = kvf__dropout_make(0);
    head->norm_eps = (double)model->desc.norm_eps;
    head->kernels = model->kernels;
    head->C = model->desc.C;
    head->width = 1;
    kvf_status st = build(ctx, model, head);
    KVF__GIVE(st, out, head, kvf__head_free(head));
    return st;
}

kvf_status kvf__head_phrases_fwd(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch,
                                 const float *hidden)
{
    const float *x = head->words ? head->work.inner_out : hidden;

    KVF_TRY(kvf__vocab_check_labels(ctx, batch, head->outer.out));
    if (head->words) kvf__head_words_fwd(head, hidden, batch->n_labels);
    KVF_TRY(
        kvf__vocab_label_losses(ctx, head, x, batch->label_id, batch->n_labels, head->work.logits));
    for (int64_t j = 0; j < batch->n_labels; j++)
        head->work.logits[j] = -head->work.logits[j];
    return KVF_OK;
}

/* The gradient of -log p is the negative of that of log p. */
kvf_status kvf__head_phrases_bwd(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch,
                                 const float *hidden, float *dhidden)
{
    const float *x = head->words ? head->work.inner_out : hidden;
    float *dx = head->words ? head->work.dinner : dhidden;

    for (int64_t j = 0; j < batch->n_labels; j++)
        head->work.dlogits[j] = -head->work.dlogits[j];
    KVF_TRY(kvf__vocab_label_gradients(ctx, head, x, batch->label_id, batch->n_labels,
                                       head->work.dlogits, dx));
    if (head->words) kvf__head_words_bwd(head, batch->n_labels, dhidden);
    return KVF_OK;
}
