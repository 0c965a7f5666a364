/* Answers against gold: every row of the table of metrics that belongs to the task. A metric that
 * the data has no meaning for (strict entities of tags without a scheme) is NaN among the others,
 * and an error where it is the one that was asked for. */
#include "train_int.h"

#include <math.h>

bool kvf__has_impossible(const kvf__dataset *set)
{
    for (int64_t i = 0; set->task == KVF__TASK_QA && i < kvf__group_count(set); i++)
        if (set->sources->group[i].answered && !set->sources->group[i].n) return true;
    return false;
}

static kvf__metric_input input_of(const kvf__answers *a, double loss)
{
    const kvf__dataset *set = a->set;
    kvf__metric_input in = {.loss = loss, .scheme = KVF__TAGS_AUTO};
    if (set->task == KVF__TASK_QA) {
        in.texts = (kvf__text_rows){a->n,          a->texts,      a->start,
                                    a->references, a->text_bytes, a->reference_bytes};
        in.no_answers = kvf__has_impossible(set);
    } else if (set->task == KVF__TASK_TOKEN_CLS) {
        in.tags = (kvf__tag_rows){a->n, a->start, a->gold_tags, a->tags};
    } else if (set->regression) {
        in.numbers.gold = a->wanted;
        in.numbers.predicted = a->numbers;
        in.numbers.n = a->n;
    } else {
        in.classes.gold = a->gold;
        in.classes.predicted = a->best;
        in.classes.n = a->n;
        in.classes.labels = (int32_t)set->names.n;
        for (int64_t i = 0; set->task == KVF__TASK_CHOICE && i < a->n; i++)
            if (set->sources->group[i].n > in.classes.labels)
                in.classes.labels = (int32_t)set->sources->group[i].n;
    }
    return in;
}

kvf_status kvf__measure(kvf_ctx *ctx, const kvf__answers *a, double loss, kvf_score *out, size_t *n)
{
    const kvf__metric_input in = input_of(a, loss);
    size_t rows = 0;
    const kvf__metric *table = kvf__metric_table(&rows);
    *n = 0;
    for (size_t i = 0; i < rows && *n < KVF_MAX_SCORES; i++) {
        double value = NAN;
        if (table[i].task != a->set->task || table[i].regression != a->set->regression) continue;
        kvf_status st = table[i].score(ctx, &in, &value);
        if (st && st != KVF_EDATA) return st;
        out[(*n)++] = (kvf_score){table[i].name, st ? NAN : value};
    }
    return KVF_OK;
}

kvf_status kvf__measure_subject(kvf_ctx *ctx, kvf__evaluator *evaluator, const kvf__dataset *set,
                                const kvf__subject *subject, const kvf__metric *metric,
                                double *loss, double *value)
{
    kvf__scores scores = {0};
    kvf__answers answers = {0};
    kvf__metric_input in = {0};
    float *logits = NULL;
    const kvf__answer_rules rules = {.no_answer = kvf__has_impossible(set)};
    kvf_status st;

    if (subject->head) {
        st = kvf__scores_init(ctx, &scores, set, kvf__head_width(subject->head));
        size_t count = st ? 0 : (size_t)(scores.first[set->n] * scores.width);
        if (!st) st = kvf__alloc_array(ctx, count, sizeof *logits, &logits);
        if (st) kvf__evaluator_give_up(evaluator);
        if (st) goto out;
    }
    st = kvf__evaluator_run(ctx, evaluator, subject, loss, logits);
    if (st || kvf__evaluator_helps(evaluator)) goto out;
    in.loss = *loss;
    if (subject->head) {
        kvf__scores_add(&scores, logits, 1);
        st = kvf__answers_init(ctx, &answers, &scores, &rules);
        if (st) goto out;
        in = input_of(&answers, *loss);
    }
    st = metric->score(ctx, &in, value);
out:
    kvf__answers_done(&answers);
    kvf__scores_done(&scores);
    kvf__free(logits);
    return st;
}
