/* Task heads: the table of layers by family and task, initial values, and the calls forward and
 * backward.
 *
 * Layers, names and dropout places are those of transformers 5: modeling_bert, modeling_roberta,
 * modeling_electra, modeling_distilbert, modeling_deberta_v2, modeling_modernbert,
 * modeling_nomic_bert, modeling_gpt2, modeling_gpt_neox and the Generic... classes of
 * modeling_layers (llama, mistral, qwen2, qwen3; "generic" without question answering: gemma2,
 * phi3; "scored" with seq-cls alone: gemma3, olmo2, openai-gpt). A pooler comes from the base and
 * stays frozen; if the base file has none, a new one is trained as part of the head. The same holds
 * for dense layer and norm of ModernBERT's masked language model, the first layers of all its
 * heads. */
#include "arch.h"
#include "arena.h"
#include "head_priv.h"

#include <math.h>
#include <string.h>

#define VALUES_STREAM  0x68656164 /* "head" */
#define DROPOUT_STREAM 0x68647270 /* "hdrp" */

#define FOR(task) 1U << KVF__TASK_##task
#define NO_INNER  NULL, KVF__TANH, false, false
#define TRANSFORM "head.dense", KVF__GELU_ERF, true, false

/* Two heads are not in transformers: for multiple-choice and qa Nomic uses BERT's; for
 * multiple-choice GPT-2 and Llama use that of seq-cls with one output, a score per choice. */
static const kvf__head_kind KINDS[] = {
    {" bert ", FOR(SEQ_CLS) | FOR(CHOICE), "bert.pooler.dense", KVF__TANH, true, false,
     "classifier", true, KVF__RATE_CLASSIFIER},
    {" nomic ", FOR(SEQ_CLS) | FOR(CHOICE), "nomic_bert.pooler.dense", KVF__TANH, true, false,
     "classifier", true, KVF__RATE_CLASSIFIER},
    {" bert roberta electra nomic gpt2 neox ", FOR(TOKEN_CLS), NO_INNER, "classifier", true,
     KVF__RATE_CLASSIFIER},
    {" bert roberta electra deberta nomic gpt2 llama neox ", FOR(QA), NO_INNER, "qa_outputs", true,
     KVF__RATE_NONE},
    {" roberta ", FOR(SEQ_CLS), "classifier.dense", KVF__TANH, false, true, "classifier.out_proj",
     true, KVF__RATE_CLASSIFIER},
    {" roberta ", FOR(CHOICE), "roberta.pooler.dense", KVF__TANH, true, false, "classifier", true,
     KVF__RATE_HIDDEN},
    {" electra ", FOR(SEQ_CLS), "classifier.dense", KVF__GELU_ERF, false, true,
     "classifier.out_proj", true, KVF__RATE_CLASSIFIER},
    {" electra ", FOR(CHOICE), "sequence_summary.summary", KVF__GELU_ERF, false, false,
     "classifier", true, KVF__RATE_POOLED},
    {" deberta ", FOR(SEQ_CLS) | FOR(CHOICE), "pooler.dense", KVF__GELU_ERF, false, false,
     "classifier", true, KVF__RATE_POOLED},
    {" distilbert ", FOR(SEQ_CLS) | FOR(CHOICE), "pre_classifier", KVF__RELU, false, false,
     "classifier", true, KVF__RATE_POOLED},
    {" distilbert deberta ", FOR(TOKEN_CLS), NO_INNER, "classifier", true, KVF__RATE_HIDDEN},
    {" distilbert ", FOR(QA), NO_INNER, "qa_outputs", true, KVF__RATE_QA},
    {" bart ", FOR(SEQ_CLS), "classification_head.dense", KVF__TANH, false, true,
     "classification_head.out_proj", true, KVF__RATE_CLASSIFIER},
    {" gpt2 llama ", FOR(SEQ_CLS) | FOR(CHOICE), NO_INNER, "score", false, KVF__RATE_NONE},
    {" neox generic scored ", FOR(SEQ_CLS), NO_INNER, "score", false, KVF__RATE_NONE},
    {" llama generic ", FOR(TOKEN_CLS), NO_INNER, "score", true, KVF__RATE_CLASSIFIER},
    {" modernbert ", FOR(SEQ_CLS) | FOR(CHOICE) | FOR(TOKEN_CLS) | FOR(QA), TRANSFORM, "classifier",
     true, KVF__RATE_CLASSIFIER},
};

static const kvf__head_kind *find_kind(const char *model_type, kvf__task task)
{
    const kvf__arch *arch = kvf__arch_by_model_type(model_type);
    char word[64];
    snprintf(word, sizeof word, " %s ", arch && arch->heads ? arch->heads : "-");
    for (size_t i = 0; i < KVF__COUNT(KINDS); i++)
        if (KINDS[i].tasks & 1U << task && strstr(KINDS[i].families, word)) return &KINDS[i];
    return NULL;
}

/* Returns whether a norm follows the inner layer. */
static bool is_transform(const kvf__head_kind *kind)
{
    return kind->inner && !strcmp(kind->inner, "head.dense");
}

/* ---- create ---------------------------------------------------------------------------------- */

static kvf_status check_options(kvf_ctx *ctx, const kvf__head_base *base,
                                const kvf__head_options *o)
{
    bool classes = o->task == KVF__TASK_SEQ_CLS || o->task == KVF__TASK_TOKEN_CLS;
    if (!find_kind(base->arch, o->task))
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "task %s: transformers has no such head for a base of type %s",
                         kvf__task_name(o->task), base->arch);
    if (o->regression && (o->task != KVF__TASK_SEQ_CLS || o->labels != 1))
        return kvf__fail(ctx, KVF_EUSAGE, "head: a regression is a seq-cls with one output");
    if (classes && !o->regression && (o->labels < 1 || o->labels > INT32_MAX))
        return kvf__fail(ctx, KVF_EUSAGE, "head: %lld labels, expected 1 or more",
                         (long long)o->labels);
    return KVF_OK;
}

/* Returns the rate; without such a key in the config 0.1, as in transformers. */
static double dropout_of(const kvf__head_base *base, const kvf__head_options *options,
                         kvf__head_rate rate)
{
    if (options->dropout >= 0) return options->dropout;
    if (rate == KVF__RATE_NONE) return 0;
    const double own = rate == KVF__RATE_CLASSIFIER ? base->dropout.classifier
                       : rate == KVF__RATE_POOLED   ? base->dropout.pooled
                       : rate == KVF__RATE_QA       ? base->dropout.qa
                                                    : -1;
    if (own >= 0) return own;
    return base->dropout.hidden >= 0 ? base->dropout.hidden : 0.1;
}

static kvf_status set_dropout(kvf_ctx *ctx, kvf__head *head, double p)
{
    if (!(p >= 0 && p < 1))
        return kvf__fail(ctx, KVF_EUSAGE, "head: dropout %g, expected 0 to below 1", p);
    head->dropout = kvf__dropout_make(p);
    return KVF_OK;
}

static kvf_status add_param(kvf_ctx *ctx, kvf__head *head, const char *layer, const char *what,
                            int64_t rows, int64_t columns)
{
    char *name = head->name[head->params.n];
    snprintf(name, sizeof head->name[0], "%s.%s", layer, what);
    const kvf__param param = {.name = name,
                              .rank = columns ? 2 : 1,
                              .dim = {rows, columns},
                              .n = rows * (columns ? columns : 1),
                              .lr_scale = 1};
    return kvf__params_add(ctx, &head->params, &param);
}

static kvf_status describe(kvf_ctx *ctx, kvf__head *head, bool train_inner)
{
    const kvf__head_kind *kind = head->kind;
    if (train_inner) {
        KVF_TRY(add_param(ctx, head, kind->inner, "weight", head->C, head->C));
        KVF_TRY(is_transform(kind) ? add_param(ctx, head, "head.norm", "weight", head->C, 0)
                                   : add_param(ctx, head, kind->inner, "bias", head->C, 0));
    }
    KVF_TRY(add_param(ctx, head, kind->outer, "weight", head->width, head->C));
    return kind->outer_bias ? add_param(ctx, head, kind->outer, "bias", head->width, 0) : KVF_OK;
}

/* Returns a layer over the next parameters of the list. */
static kvf__linear next_layer(kvf__head *head, size_t *at, bool bias, int64_t out)
{
    kvf__param *weight = &head->params.item[(*at)++];
    kvf__linear layer = {.w = weight->value, .dw = weight->grad, .in = head->C, .out = out};
    if (!bias) return layer;
    layer.b = head->params.item[*at].value;
    layer.db = head->params.item[(*at)++].grad;
    return layer;
}

static void start_values(kvf__head *head, double deviation)
{
    for (size_t i = 0; i < head->params.n; i++) {
        kvf__param *param = &head->params.item[i];
        kvf__rng rng = kvf__rng_make(head->options.seed, (uint64_t)VALUES_STREAM << 32 | i);
        for (int64_t j = 0; param->rank == 2 && j < param->n; j++)
            param->value[j] = (float)(deviation * kvf__rng_normal(&rng));
    }
}

/* Sets an inner layer with a norm: that of the masked language model, or one of the head. */
static void put_transform(kvf__head *head, const kvf__head_base *base, size_t *at)
{
    head->norm_eps = base->norm_eps;
    head->words = base->masked_lm;
    if (head->words) {
        head->inner = (kvf__linear){
            .w = head->words->dense, .b = head->words->dense_bias, .in = head->C, .out = head->C};
        return;
    }
    head->inner = next_layer(head, at, false, head->C);
    const kvf__param *gamma = &head->params.item[(*at)++];
    head->own = (kvf__masked_lm){.act = head->kind->act, .gamma = gamma->value};
    head->dgamma = gamma->grad;
    head->words = &head->own;
}

static kvf_status build(kvf_ctx *ctx, kvf__head *head, const kvf__head_base *base)
{
    const bool transform = is_transform(head->kind);
    bool frozen = head->kind->pooler &&
                  (transform ? base->masked_lm != NULL : base->pooler != NULL);
    size_t at = 0;

    KVF_TRY(describe(ctx, head, head->kind->inner && !frozen));
    const size_t count = (size_t)kvf__params_values(&head->params);
    KVF_TRY(kvf__alloc_array(ctx, count, sizeof(float), &head->values));
    KVF_TRY(kvf__alloc_array(ctx, count, sizeof(float), &head->grads));
    for (size_t i = 0, used = 0; i < head->params.n; i++) {
        head->params.item[i].value = head->values + used;
        head->params.item[i].grad = head->grads + used;
        used += (size_t)head->params.item[i].n;
    }
    if (transform)
        put_transform(head, base, &at);
    else if (frozen)
        head->inner = (kvf__linear){
            .w = base->pooler, .b = base->pooler_bias, .in = head->C, .out = head->C};
    else if (head->kind->inner)
        head->inner = next_layer(head, &at, true, head->C);
    head->outer = next_layer(head, &at, head->kind->outer_bias, head->width);
    start_values(head, base->initializer_range > 0 ? base->initializer_range : 0.02);
    for (int64_t c = 0; head->dgamma && c < head->C; c++)
        head->own.gamma[c] = 1;
    return KVF_OK;
}

kvf_status kvf__head_create_on(kvf_ctx *ctx, const kvf__head_base *base,
                               const kvf__head_options *options, kvf__head **out)
{
    kvf__head *head = NULL;

    KVF_TRY(check_options(ctx, base, options));
    KVF_TRY(kvf__alloc(ctx, sizeof *head, &head));
    head->kind = find_kind(base->arch, options->task);
    head->kernels = kvf__kernels_get();
    head->options = *options;
    head->C = base->C;
    if (base->factor && base->factor != 1) head->rescale = 1 / base->factor;
    head->mean = base->mean_pooled &&
                 (options->task == KVF__TASK_SEQ_CLS || options->task == KVF__TASK_CHOICE);
    head->width = options->task == KVF__TASK_QA       ? 2
                  : options->task == KVF__TASK_CHOICE ? 1
                                                      : options->labels;
    kvf_status st = set_dropout(ctx, head, dropout_of(base, options, head->kind->rate));
    if (!st) st = build(ctx, head, base);
    if (!st && options->weights)
        st = kvf__alloc_array(ctx, (size_t)head->width, sizeof *head->weights, &head->weights);
    if (st) goto out;
    if (options->weights)
        memcpy(head->weights, options->weights, (size_t)head->width * sizeof *head->weights);
    head->options.weights = NULL;

    *out = head;
    head = NULL;
out:
    kvf__head_free(head);
    return st;
}

/* Collects everything that a head needs from the model. */
static kvf__head_base base_of(const kvf__model *model)
{
    const kvf__desc *desc = kvf__model_desc(model);
    kvf__head_base base = {.arch = desc->arch_name,
                           .C = desc->C,
                           .dropout = desc->dropout,
                           .initializer_range = desc->initializer_range,
                           .masked_lm = kvf__model_masked_lm(model),
                           .norm_eps = (double)desc->norm_eps,
                           .mean_pooled = desc->mean_pooled,
                           .factor = desc->factors.head};
    base.pooler = kvf__model_pooler(model, &base.pooler_bias);
    return base;
}

kvf_status kvf__head_create(kvf_ctx *ctx, const kvf__model *model, const kvf__head_options *options,
                            kvf__head **out)
{
    kvf__head_base base = base_of(model);
    return kvf__head_create_on(ctx, &base, options, out);
}

/* ---- scratch --------------------------------------------------------------------------------- */

static void lay_work(void *object, kvf__carver *carve)
{
    const kvf__head *head = object;
    kvf__head_work *w = &((kvf__head *)object)->work;
    const bool drops = head->dropout.drop > 0, inner = head->kind->inner != NULL;
    const int64_t n = w->capacity, C = head->C, I = inner ? head->inner.out : C;
    const bool slope = head->words || (inner && head->kind->act != KVF__TANH);
    const struct {
        float **at;
        bool wanted;
        int64_t width;
    } parts[] = {{&w->logits, true, head->width},
                 {&w->dlogits, true, head->width},
                 {&w->rescaled, head->rescale != 0, C},
                 {&w->inner_drop, drops && inner, C},
                 {&w->inner_out, inner, I},
                 {&w->dinner, inner, I},
                 {&w->slope, slope, I},
                 {&w->xhat, head->words != NULL, I},
                 {&w->rstd, head->words != NULL, 1},
                 {&w->outer_drop, drops, I},
                 {&w->mean, head->mean, C},
                 {&w->dmean, head->mean, C}};

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        *parts[i].at = parts[i].wanted ? kvf__carve(carve, n, parts[i].width, sizeof(float)) : NULL;
    w->row = kvf__carve(carve, n, 1, sizeof(int32_t));
    w->nth = kvf__carve(carve, n, 1, sizeof(int32_t));
    w->first = kvf__carve(carve, head->mean ? n : 0, 1, sizeof(int32_t));
    w->class = kvf__carve(carve, head->mean ? n : 0, 1, sizeof(int32_t));
}

kvf_status kvf__head_prepare(kvf_ctx *ctx, kvf__head *head, int64_t n_labels)
{
    if (kvf__head_is_lm(head) || n_labels <= head->work.capacity) return KVF_OK;
    kvf__free(head->work.memory);
    head->work = (kvf__head_work){.capacity = n_labels};
    kvf_status st = kvf__carve_block(ctx, lay_work, head, &head->work.memory);
    if (st) head->work.capacity = 0;
    return st;
}

/* ---- forward and backward -------------------------------------------------------------------- */

typedef enum place { BEFORE_INNER, BEFORE_OUTER } place;

/* Source of a training step's masks; NULL: dropout is off. */
typedef struct draw {
    const kvf__batch *batch;
    int64_t step;
} draw;

/* Fills row and nth. Masks depend on the index of a label, not on its token, because a row with a
 * common prefix has fewer tokens of its own. */
static void find_rows(kvf__head *head, const kvf__batch *batch)
{
    int64_t r = 0;
    for (int64_t j = 0; j < batch->n_labels; j++) {
        r = kvf__label_row(batch, j, r);
        head->work.row[j] = (int32_t)r;
        head->work.nth[j] = j && head->work.row[j - 1] == r ? head->work.nth[j - 1] + 1 : 0;
    }
}

/* Applies masks to rows of src into dst (which may be src); returns the input of the next layer. */
static const float *mask(const kvf__head *head, const draw *by, place where, float *dst,
                         const float *src)
{
    int64_t C = head->C;
    if (!by || !head->dropout.drop) return src;
    if (where == BEFORE_INNER && !head->kind->inner_dropout) return src;
    kvf__rng stream = kvf__rng_make(head->options.seed, ((uint64_t)DROPOUT_STREAM << 32) +
                                                            2 * (uint64_t)by->step + where);
#pragma omp parallel for schedule(static) if (by->batch->n_labels * C > 1 << 13)
    for (int64_t j = 0; j < by->batch->n_labels; j++) {
        kvf__dropout_set(head->dropout, kvf__dropout_row(stream, by->batch, head->work.row[j]),
                         head->work.nth[j] * C, dst + j * C, src + j * C, C);
    }
    return dst;
}

/* Applies the activation to n rows; slopes are kept if they do not follow from the values. */
static void activate(kvf__head *head, int64_t n)
{
    float *y = head->work.inner_out;

    if (head->kind->act != KVF__TANH) {
        memcpy(head->work.slope, y, (size_t)n * sizeof *y);
        head->kernels->act_fwd(KVF__F32, head->kind->act, head->work.slope, y, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        y[i] = tanhf(y[i]);
}

/* Removes the language model's factor (T5's 1 / sqrt(C)) from the final states, since no other head
 * has it. */
static const float *rescale(const kvf__head *head, const float *hidden, int64_t n)
{
    if (!head->rescale) return hidden;
    for (int64_t i = 0; i < n * head->C; i++)
        head->work.rescaled[i] = head->rescale * hidden[i];
    return head->work.rescaled;
}

static void forward(kvf__head *head, const draw *by, const float *hidden, int64_t n, float *logits)
{
    const float *x = rescale(head, hidden, n);
    if (head->words) {
        kvf__head_words_refresh(head);
        head->work.inner_in = hidden;
        kvf__head_words_fwd(head, hidden, n);
        x = head->work.inner_out;
    } else if (head->kind->inner) {
        head->work.inner_in = mask(head, by, BEFORE_INNER, head->work.inner_drop, x);
        kvf__linear_fwd(&head->inner, head->work.inner_out, head->work.inner_in, n);
        activate(head, n * head->C);
        x = head->work.inner_out;
    }
    head->work.outer_in = mask(head, by, BEFORE_OUTER, head->work.outer_drop, x);
    kvf__linear_fwd(&head->outer, logits, head->work.outer_in, n);
}

/* Sets dhidden from head->work.dlogits; adds to the parameters' gradients. */
static void backward(kvf__head *head, const draw *by, int64_t n, float *dhidden)
{
    float *dx = head->kind->inner ? head->work.dinner : dhidden;

    kvf__linear_bwd(&head->outer, dx, head->work.outer_in, head->work.dlogits, n);
    mask(head, by, BEFORE_OUTER, dx, dx);
    if (!head->kind->inner) return;
    if (head->words) {
        kvf__head_words_pass_on(head);
        kvf__head_words_bwd(head, n, dhidden);
        return;
    }
    const float *y = head->work.inner_out;
    for (int64_t i = 0; i < n * head->C; i++) /* tanh' = 1 - tanh^2 */
        dx[i] *= head->kind->act == KVF__TANH ? 1 - y[i] * y[i] : head->work.slope[i];
    kvf__linear_bwd(&head->inner, dhidden, head->work.inner_in, dx, n);
    mask(head, by, BEFORE_INNER, dhidden, dhidden);
}

kvf_status kvf__head_logits(kvf_ctx *ctx, kvf__head *head, const float *hidden, int64_t n_labels,
                            float *logits)
{
    if (kvf__head_is_lm(head)) return kvf__vocab_logits(ctx, head, hidden, n_labels, logits);
    KVF_TRY(kvf__head_prepare(ctx, head, n_labels));
    forward(head, NULL, hidden, n_labels, logits);
    return KVF_OK;
}

/* Returns the batch for a head of means: each row has one label, whose state is in work.mean. */
static kvf__batch pool_rows(kvf__head *head, const kvf__batch *batch, const float *hidden)
{
    kvf__head_work *w = &head->work;
    kvf__batch rows = *batch;
    rows.n_labels = 0;
    rows.label_at = w->first;
    rows.label_id = w->class;
    for (int64_t j = 0, r = 0, end; j < batch->n_labels; j = end) {
        r = kvf__label_row(batch, j, r);
        end = kvf__label_end(batch, j, r);
        w->first[rows.n_labels] = batch->label_at[j];
        w->class[rows.n_labels] = batch->label_id[j];
        float *mean = w->mean + rows.n_labels++ * head->C;
        for (int64_t c = 0; c < head->C; c++) {
            double sum = 0;
            for (int64_t i = j; i < end; i++)
                sum += (double)hidden[i * head->C + c];
            mean[c] = (float)(sum / (double)(end - j));
        }
    }
    return rows;
}

/* Computes dhidden of all labels from work.dmean. */
static void spread_rows(const kvf__head *head, const kvf__batch *batch, float *dhidden)
{
    const float *from = head->work.dmean;
    for (int64_t j = 0, r = 0, end; j < batch->n_labels; j = end, from += head->C) {
        r = kvf__label_row(batch, j, r);
        end = kvf__label_end(batch, j, r);
        for (int64_t i = j; i < end; i++)
            for (int64_t c = 0; c < head->C; c++)
                dhidden[i * head->C + c] = from[c] / (float)(end - j);
    }
}

kvf_status kvf__head_outputs(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch,
                             const float *hidden, float *outputs)
{
    KVF_TRY(kvf__head_prepare(ctx, head, batch->n_labels));
    if (head->mean) {
        const kvf__batch rows = pool_rows(head, batch, hidden);
        return kvf__head_logits(ctx, head, head->work.mean, rows.n_labels, outputs);
    }
    if (!kvf__head_is_phrases(head))
        return kvf__head_logits(ctx, head, hidden, batch->n_labels, outputs);
    KVF_TRY(kvf__head_phrases_fwd(ctx, head, batch, hidden));
    memcpy(outputs, head->work.logits, (size_t)batch->n_labels * sizeof *outputs);
    return KVF_OK;
}

kvf_status kvf__head_loss(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch,
                          const float *hidden, const kvf__loss *how, double *loss_sum,
                          float *dhidden)
{
    const bool phrases = kvf__head_is_phrases(head);

    if (kvf__head_is_lm(head))
        return kvf__vocab_loss(ctx, head, batch, hidden, how, loss_sum, dhidden);
    KVF_TRY(kvf__head_prepare(ctx, head, batch->n_labels));
    const kvf__batch read = head->mean ? pool_rows(head, batch, hidden) : *batch;
    const draw by = {&read, how->step}, *draws = dhidden ? &by : NULL;
    find_rows(head, &read);
    if (phrases)
        KVF_TRY(kvf__head_phrases_fwd(ctx, head, batch, hidden));
    else
        forward(head, draws, head->mean ? head->work.mean : hidden, read.n_labels,
                head->work.logits);
    KVF_TRY(kvf__head_losses(ctx, head, &read, dhidden ? how->scale : 0, loss_sum));
    if (!dhidden) return KVF_OK;
    if (phrases) return kvf__head_phrases_bwd(ctx, head, batch, hidden, dhidden);
    backward(head, draws, read.n_labels, head->mean ? head->work.dmean : dhidden);
    if (head->mean) spread_rows(head, batch, dhidden);
    for (int64_t i = 0; head->rescale && i < batch->n_labels * head->C; i++)
        dhidden[i] *= head->rescale;
    return KVF_OK;
}
