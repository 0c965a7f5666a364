/* Computes the metrics of the task from answers and gold values. A metric without meaning for the
 * data (strict entities of tags without a scheme) is omitted, and is an error if it was requested.
 */
#include "answers.h"

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

kvf_status kvf__measure(kvf_ctx *ctx, const kvf__answers *a, double loss, kvf_metric *out,
                        size_t *n)
{
    const kvf__metric_input in = input_of(a, loss);
    size_t rows = 0;
    const kvf__metric *table = kvf__metric_table(&rows);
    *n = 0;
    for (size_t i = 0; i < rows && *n < KVF_MAX_SCORES; i++) {
        double value = NAN;
        if (table[i].task != a->set->task || table[i].regression != a->set->regression) continue;
        kvf_status st = kvf__metric_score(ctx, &table[i], &in, &value);
        if (st && st != KVF_EDATA) return st;
        if (!st && !(a->set->task == KVF__TASK_TOKEN_CLS && isnan(value)))
            out[(*n)++] = (kvf_metric){table[i].name, value};
    }
    return KVF_OK;
}

static kvf_status add_class(kvf_ctx *ctx, kvf_class_scores *list, const char *name,
                            const kvf__prf *s)
{
    kvf_class_score *score = &list->item[list->n];
    *score = (kvf_class_score){NULL, s->precision, s->recall, s->f1, s->support};
    KVF_TRY(kvf__strdup(ctx, name, &score->name));
    list->n++;
    return KVF_OK;
}

/* Measures classes, or tags word by word. */
static kvf_status measure_classes(kvf_ctx *ctx, const kvf__answers *a, kvf_class_scores *out)
{
    const kvf__label_set *names = &a->set->names;
    int64_t n = a->set->task == KVF__TASK_TOKEN_CLS ? a->start[a->n] : a->n;
    kvf__class_scores means;
    kvf__prf *each = NULL;
    kvf_status st = kvf__alloc_array(ctx, names->n, sizeof *each, &each);
    if (!st) st = kvf__alloc_array(ctx, names->n, sizeof *out->item, &out->item);
    if (!st) st = kvf__classify(ctx, a->gold, a->best, n, (int32_t)names->n, each, &means);
    for (size_t i = 0; !st && i < names->n; i++)
        st = add_class(ctx, out, names->names[i], &each[i]);
    kvf__free(each);
    return st;
}

static kvf_status measure_types(kvf_ctx *ctx, const kvf__answers *a, kvf_class_scores *out)
{
    const kvf__metric_input in = input_of(a, NAN);
    kvf__entity_scores s = {0};
    KVF_TRY(kvf__entities(ctx, &in.tags, KVF__TAGS_MIXED, &s));
    kvf_status st = kvf__alloc_array(ctx, s.n_types, sizeof *out->item, &out->item);
    for (size_t i = 0; !st && i < s.n_types; i++)
        st = add_class(ctx, out, s.types[i].name, &s.types[i].scores);
    kvf__entity_scores_done(&s);
    return st;
}

kvf_status kvf__measure_each(kvf_ctx *ctx, const kvf__answers *a, kvf_eval_result *out)
{
    KVF_TRY(measure_classes(ctx, a, &out->classes));
    return a->set->task == KVF__TASK_TOKEN_CLS ? measure_types(ctx, a, &out->entity_types) : KVF_OK;
}

static void free_classes(kvf_class_scores *list)
{
    for (size_t i = 0; i < list->n; i++)
        kvf__free(list->item[i].name);
    kvf__free(list->item);
    *list = (kvf_class_scores){0};
}

void kvf_eval_result_done(kvf_eval_result *result)
{
    if (!result) return;
    free_classes(&result->classes);
    free_classes(&result->entity_types);
}

/* logits NULL: measures the loss alone. */
static kvf_status score(kvf_ctx *ctx, kvf__scores *scores, const float *logits, double loss,
                        const kvf__metric *metric, double *value)
{
    kvf__answers answers = {0};
    kvf__metric_input in = {.loss = loss};
    kvf_status st = KVF_OK;

    if (logits) {
        const kvf__answer_rules rules = {.no_answer = kvf__has_impossible(scores->set)};
        kvf__scores_add(scores, logits, 1);
        st = kvf__answers_init(ctx, &answers, scores, &rules);
        if (!st) in = input_of(&answers, loss);
    }
    if (!st) st = kvf__metric_score(ctx, metric, &in, value);
    kvf__answers_done(&answers);
    return st;
}

kvf_status kvf__measure_subject(kvf_ctx *ctx, kvf__evaluator *evaluator, const kvf__dataset *set,
                                const kvf__subject *subject, const kvf__metric *metric,
                                double *loss, double *value)
{
    kvf__scores scores = {0};
    float *logits = NULL;
    kvf_status st = KVF_OK;

    if (!kvf__head_is_lm(subject->head)) {
        st = kvf__scores_init(ctx, &scores, set, kvf__head_width(subject->head));
        if (!st) st = kvf__alloc_array(ctx, (size_t)scores.outputs, sizeof *logits, &logits);
        if (st) kvf__evaluator_give_up(evaluator);
    }
    if (!st) st = kvf__evaluator_run(ctx, evaluator, subject, loss, logits);
    if (!st && !kvf__evaluator_helps(evaluator))
        st = score(ctx, &scores, logits, *loss, metric, value);
    kvf__scores_done(&scores);
    kvf__free(logits);
    return st;
}

kvf_status kvf__measure_constant(kvf_ctx *ctx, const kvf__dataset *set, int32_t answer,
                                 const kvf__metric *metric, double *value)
{
    const int64_t width = (int64_t)set->names.n;
    kvf__scores scores = {0};
    float *logits = NULL;

    kvf_status st = kvf__scores_init(ctx, &scores, set, width);
    if (!st) st = kvf__alloc_array(ctx, (size_t)scores.outputs, sizeof *logits, &logits);
    for (int64_t i = answer; !st && i < scores.outputs; i += width)
        logits[i] = 1;
    if (!st) st = score(ctx, &scores, logits, NAN, metric, value);
    kvf__scores_done(&scores);
    kvf__free(logits);
    return st;
}
