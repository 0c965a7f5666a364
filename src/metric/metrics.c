/* The table of metrics: one number each, by task and name. A new metric is a function here and a
 * row; what it reads is in kvf__metric_input. */
#include "metric_priv.h"

#include <math.h>
#include <string.h>

/* ---- every task ------------------------------------------------------------------------------ */

static kvf_status loss(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    (void)ctx;
    *out = in->loss;
    return KVF_OK;
}

static kvf_status perplexity(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    (void)ctx;
    *out = exp(in->loss);
    return KVF_OK;
}

/* ---- classes and numbers --------------------------------------------------------------------- */

static kvf_status classify(kvf_ctx *ctx, const kvf__metric_input *in, kvf__class_scores *s)
{
    return kvf__classify(ctx, in->classes.gold, in->classes.predicted, in->classes.n,
                         in->classes.labels, NULL, s);
}

static kvf_status accuracy(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    kvf__class_scores s;
    KVF_TRY(classify(ctx, in, &s));
    *out = s.accuracy;
    return KVF_OK;
}

static kvf_status f1_macro(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    kvf__class_scores s;
    KVF_TRY(classify(ctx, in, &s));
    *out = s.macro.f1;
    return KVF_OK;
}

static kvf_status f1_micro(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    kvf__class_scores s;
    KVF_TRY(classify(ctx, in, &s));
    *out = s.micro.f1;
    return KVF_OK;
}

static kvf_status mcc(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    kvf__class_scores s;
    KVF_TRY(classify(ctx, in, &s));
    *out = s.mcc;
    return KVF_OK;
}

static kvf_status pearson(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    return kvf__pearson(ctx, in->numbers.gold, in->numbers.predicted, in->numbers.n, out);
}

static kvf_status spearman(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    return kvf__spearman(ctx, in->numbers.gold, in->numbers.predicted, in->numbers.n, out);
}

/* ---- entities -------------------------------------------------------------------------------- */

typedef struct entity_means {
    double accuracy;
    kvf__prf micro, macro;
} entity_means;

static kvf_status entities(kvf_ctx *ctx, const kvf__metric_input *in, kvf__tag_scheme scheme,
                           entity_means *out)
{
    kvf__entity_scores s;
    KVF_TRY(kvf__entities(ctx, &in->tags, scheme, &s));
    *out = (entity_means){s.accuracy, s.micro, s.macro};
    kvf__entity_scores_done(&s);
    return KVF_OK;
}

static kvf_status entity_f1(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    entity_means s;
    KVF_TRY(entities(ctx, in, KVF__TAGS_MIXED, &s));
    *out = s.micro.f1;
    return KVF_OK;
}

static kvf_status entity_precision(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    entity_means s;
    KVF_TRY(entities(ctx, in, KVF__TAGS_MIXED, &s));
    *out = s.micro.precision;
    return KVF_OK;
}

static kvf_status entity_recall(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    entity_means s;
    KVF_TRY(entities(ctx, in, KVF__TAGS_MIXED, &s));
    *out = s.micro.recall;
    return KVF_OK;
}

static kvf_status entity_f1_macro(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    entity_means s;
    KVF_TRY(entities(ctx, in, KVF__TAGS_MIXED, &s));
    *out = s.macro.f1;
    return KVF_OK;
}

static kvf_status tag_accuracy(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    entity_means s;
    KVF_TRY(entities(ctx, in, KVF__TAGS_MIXED, &s));
    *out = s.accuracy;
    return KVF_OK;
}

/* Tags of no one scheme have no strict score, which is no reason to stop an evaluation: NaN. */
static kvf_status entity_f1_strict(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    kvf__tag_scheme scheme = in->scheme == KVF__TAGS_MIXED ? KVF__TAGS_AUTO : in->scheme;
    entity_means s = {.micro.f1 = NAN};
    kvf_status st = entities(ctx, in, scheme, &s);

    if (st && st != KVF_EDATA) return st;
    *out = s.micro.f1;
    return KVF_OK;
}

/* ---- answers and texts ----------------------------------------------------------------------- */

static kvf_status squad_exact(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    kvf__squad_scores s;
    KVF_TRY(kvf__squad(ctx, &in->texts, in->no_answers, &s));
    *out = s.exact;
    return KVF_OK;
}

static kvf_status squad_f1(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    kvf__squad_scores s;
    KVF_TRY(kvf__squad(ctx, &in->texts, in->no_answers, &s));
    *out = s.f1;
    return KVF_OK;
}

static kvf_status bleu(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    kvf__bleu_scores s;
    KVF_TRY(kvf__bleu(ctx, &in->texts, &s));
    *out = s.score;
    return KVF_OK;
}

static kvf_status rouge_l(kvf_ctx *ctx, const kvf__metric_input *in, double *out)
{
    kvf__prf s;
    KVF_TRY(kvf__rouge_l(ctx, &in->texts, &s));
    *out = s.f1;
    return KVF_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const kvf__metric TABLE[] = {
    {"loss", KVF__TASK_LM, false, false, loss},
    {"perplexity", KVF__TASK_LM, false, false, perplexity},
    {"bleu", KVF__TASK_LM, false, true, bleu},
    {"rouge_l", KVF__TASK_LM, false, true, rouge_l},
    {"accuracy", KVF__TASK_SEQ_CLS, false, true, accuracy},
    {"f1", KVF__TASK_SEQ_CLS, false, true, f1_macro},
    {"f1_micro", KVF__TASK_SEQ_CLS, false, true, f1_micro},
    {"mcc", KVF__TASK_SEQ_CLS, false, true, mcc},
    {"loss", KVF__TASK_SEQ_CLS, false, false, loss},
    {"pearson", KVF__TASK_SEQ_CLS, true, true, pearson},
    {"spearman", KVF__TASK_SEQ_CLS, true, true, spearman},
    {"loss", KVF__TASK_SEQ_CLS, true, false, loss},
    {"f1", KVF__TASK_TOKEN_CLS, false, true, entity_f1},
    {"precision", KVF__TASK_TOKEN_CLS, false, true, entity_precision},
    {"recall", KVF__TASK_TOKEN_CLS, false, true, entity_recall},
    {"f1_macro", KVF__TASK_TOKEN_CLS, false, true, entity_f1_macro},
    {"f1_strict", KVF__TASK_TOKEN_CLS, false, true, entity_f1_strict},
    {"accuracy", KVF__TASK_TOKEN_CLS, false, true, tag_accuracy},
    {"loss", KVF__TASK_TOKEN_CLS, false, false, loss},
    {"f1", KVF__TASK_QA, false, true, squad_f1},
    {"exact_match", KVF__TASK_QA, false, true, squad_exact},
    {"loss", KVF__TASK_QA, false, false, loss},
    {"accuracy", KVF__TASK_CHOICE, false, true, accuracy},
    {"loss", KVF__TASK_CHOICE, false, false, loss},
};

const kvf__metric *kvf__metric_table(size_t *n)
{
    *n = sizeof TABLE / sizeof *TABLE;
    return TABLE;
}

const kvf__metric *kvf__metric_find(kvf__task task, bool regression, const char *name)
{
    for (size_t i = 0; i < sizeof TABLE / sizeof *TABLE; i++) {
        const kvf__metric *row = &TABLE[i];
        if (row->task != task || row->regression != regression) continue;
        if (!name || !strcmp(name, row->name)) return row;
    }
    return NULL;
}
