/* The table of metrics by task and name. A row is a function that scores a whole family, and the
 * selection of one of its numbers. kvf__metric_input is the input. */
#include "metric_priv.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

typedef struct entity_means {
    double accuracy;
    kvf__prf micro, macro;
} entity_means;

/* Results of a family. */
typedef union kvf__metric_family {
    double number;
    kvf__class_scores classes;
    entity_means entities;
    kvf__squad_scores squad;
    kvf__bleu_scores bleu;
    kvf__prf rouge;
} metric_family;

/* ---- families -------------------------------------------------------------------------------- */

static kvf_status loss(kvf_ctx *ctx, const kvf__metric_input *in, metric_family *out)
{
    (void)ctx;
    out->number = in->loss;
    return KVF_OK;
}

static kvf_status perplexity(kvf_ctx *ctx, const kvf__metric_input *in, metric_family *out)
{
    (void)ctx;
    out->number = exp(in->loss);
    return KVF_OK;
}

static kvf_status classes(kvf_ctx *ctx, const kvf__metric_input *in, metric_family *out)
{
    return kvf__classify(ctx, in->classes.gold, in->classes.predicted, in->classes.n,
                         in->classes.labels, NULL, &out->classes);
}

static kvf_status pearson(kvf_ctx *ctx, const kvf__metric_input *in, metric_family *out)
{
    return kvf__pearson(ctx, in->numbers.gold, in->numbers.predicted, in->numbers.n, &out->number);
}

static kvf_status spearman(kvf_ctx *ctx, const kvf__metric_input *in, metric_family *out)
{
    return kvf__spearman(ctx, in->numbers.gold, in->numbers.predicted, in->numbers.n, &out->number);
}

static kvf_status entities_by(kvf_ctx *ctx, const kvf__metric_input *in, kvf__tag_scheme scheme,
                              entity_means *out)
{
    kvf__entity_scores s;
    KVF_TRY(kvf__entities(ctx, &in->tags, scheme, &s));
    *out = (entity_means){s.accuracy, s.micro, s.macro};
    kvf__entity_scores_done(&s);
    return KVF_OK;
}

static kvf_status entities(kvf_ctx *ctx, const kvf__metric_input *in, metric_family *out)
{
    return entities_by(ctx, in, KVF__TAGS_MIXED, &out->entities);
}

/* Tags that mix schemes have no strict score: NaN, which does not stop an evaluation. */
static kvf_status entities_strict(kvf_ctx *ctx, const kvf__metric_input *in, metric_family *out)
{
    kvf__tag_scheme scheme = in->scheme == KVF__TAGS_MIXED ? KVF__TAGS_AUTO : in->scheme;

    out->entities = (entity_means){.micro.f1 = NAN};
    kvf_status st = entities_by(ctx, in, scheme, &out->entities);
    return st == KVF_EDATA ? KVF_OK : st;
}

static kvf_status squad(kvf_ctx *ctx, const kvf__metric_input *in, metric_family *out)
{
    return kvf__squad(ctx, &in->texts, in->no_answers, &out->squad);
}

static kvf_status bleu(kvf_ctx *ctx, const kvf__metric_input *in, metric_family *out)
{
    return kvf__bleu(ctx, &in->texts, &out->bleu);
}

static kvf_status rouge(kvf_ctx *ctx, const kvf__metric_input *in, metric_family *out)
{
    return kvf__rouge_l(ctx, &in->texts, &out->rouge);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define NUMBER(member) offsetof(metric_family, member)

static const kvf__metric TABLE[] = {
    {"loss", KVF__TASK_LM, false, false, loss, 0},
    {"perplexity", KVF__TASK_LM, false, false, perplexity, 0},
    {"bleu", KVF__TASK_LM, false, true, bleu, NUMBER(bleu.score)},
    {"rouge_l", KVF__TASK_LM, false, true, rouge, NUMBER(rouge.f1)},
    {"accuracy", KVF__TASK_SEQ_CLS, false, true, classes, NUMBER(classes.accuracy)},
    {"f1", KVF__TASK_SEQ_CLS, false, true, classes, NUMBER(classes.macro.f1)},
    {"f1_micro", KVF__TASK_SEQ_CLS, false, true, classes, NUMBER(classes.micro.f1)},
    {"mcc", KVF__TASK_SEQ_CLS, false, true, classes, NUMBER(classes.mcc)},
    {"loss", KVF__TASK_SEQ_CLS, false, false, loss, 0},
    {"pearson", KVF__TASK_SEQ_CLS, true, true, pearson, 0},
    {"spearman", KVF__TASK_SEQ_CLS, true, true, spearman, 0},
    {"loss", KVF__TASK_SEQ_CLS, true, false, loss, 0},
    {"f1", KVF__TASK_TOKEN_CLS, false, true, entities, NUMBER(entities.micro.f1)},
    {"precision", KVF__TASK_TOKEN_CLS, false, true, entities, NUMBER(entities.micro.precision)},
    {"recall", KVF__TASK_TOKEN_CLS, false, true, entities, NUMBER(entities.micro.recall)},
    {"f1_macro", KVF__TASK_TOKEN_CLS, false, true, entities, NUMBER(entities.macro.f1)},
    {"f1_strict", KVF__TASK_TOKEN_CLS, false, true, entities_strict, NUMBER(entities.micro.f1)},
    {"accuracy", KVF__TASK_TOKEN_CLS, false, true, entities, NUMBER(entities.accuracy)},
    {"loss", KVF__TASK_TOKEN_CLS, false, false, loss, 0},
    {"f1", KVF__TASK_QA, false, true, squad, NUMBER(squad.f1)},
    {"exact_match", KVF__TASK_QA, false, true, squad, NUMBER(squad.exact)},
    {"loss", KVF__TASK_QA, false, false, loss, 0},
    {"accuracy", KVF__TASK_CHOICE, false, true, classes, NUMBER(classes.accuracy)},
    {"loss", KVF__TASK_CHOICE, false, false, loss, 0},
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

kvf_status kvf__metric_score(kvf_ctx *ctx, const kvf__metric *metric,
                             const kvf__metric_input *input, double *out)
{
    metric_family scores;
    KVF_TRY(metric->family(ctx, input, &scores));
    memcpy(out, (const char *)&scores + metric->number, sizeof *out);
    return KVF_OK;
}
