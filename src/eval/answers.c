/* Decisions from probabilities: the likeliest class, tag or choice, the first one if equal; the
 * number for a regression; spans in answers_span.c. Adds the gold values of the data in the form
 * that metrics read. */
#include "answers.h"

#include <math.h>
#include <string.h>

/* Returns the index of the largest of n values, the first one if equal. */
static int32_t likeliest(const double *p, int64_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (p[i] > p[best]) best = i;
    return best;
}

static kvf_status alloc_decisions(kvf_ctx *ctx, kvf__answers *a, int64_t n)
{
    KVF_TRY(kvf__alloc_array(ctx, (size_t)n, sizeof *a->gold, &a->gold));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)n, sizeof *a->best, &a->best));
    return kvf__alloc_array(ctx, (size_t)n, sizeof *a->p, &a->p);
}

/* Decides one class of a row, or one row of a group. */
static kvf_status decide_one(kvf_ctx *ctx, kvf__answers *a, const kvf__scores *s)
{
    const bool choice = a->set->task == KVF__TASK_CHOICE;
    const int64_t *group = choice ? a->set->group : NULL;
    KVF_TRY(alloc_decisions(ctx, a, a->n));
    for (int64_t i = 0; i < a->n; i++) {
        const int64_t from = s->first[group ? group[i] : i],
                      to = s->first[group ? group[i + 1] : i + 1];
        const double *p = s->p + from * s->width;
        a->gold[i] = a->set->sources->group[i].gold;
        a->best[i] = likeliest(p, choice ? to - from : s->width);
        a->p[i] = p[a->best[i]];
    }
    return KVF_OK;
}

static kvf_status decide_numbers(kvf_ctx *ctx, kvf__answers *a, const kvf__scores *s)
{
    KVF_TRY(kvf__alloc_array(ctx, (size_t)a->n, sizeof *a->numbers, &a->numbers));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)a->n, sizeof *a->wanted, &a->wanted));
    for (int64_t i = 0; i < a->n; i++) {
        a->numbers[i] = s->p[s->first[i]];
        a->wanted[i] = (double)a->set->sources->group[i].value;
    }
    return KVF_OK;
}

/* ---- tags ------------------------------------------------------------------------------------ */

/* Returns the tag of a word that has no token in the row. */
static int32_t tag_of_nothing(const kvf__label_set *names)
{
    int32_t outside = kvf__label_set_find(names, "O");
    return outside < 0 ? 0 : outside;
}

static const char *tag_name(const kvf__dataset *set, int32_t id)
{
    return id < 0 ? "" : set->names.names[id];
}

static void decide_word(kvf__answers *a, const kvf__scores *s, int64_t group, int64_t word)
{
    const kvf__source *source = &a->set->sources->group[group];
    int64_t at = a->start[group] + word;
    int64_t row = a->set->sources->first_row ? a->set->sources->first_row[group] : group;
    int32_t label = source->label_of[word];
    a->gold[at] = source->tags ? source->tags[word] : -1;
    if (label < 0) {
        a->best[at] = tag_of_nothing(&a->set->names);
        a->p[at] = NAN;
    } else {
        const double *p = s->p + (s->first[row] + label) * s->width;
        a->best[at] = likeliest(p, s->width);
        a->p[at] = p[a->best[at]];
    }
    a->gold_tags[at] = tag_name(a->set, a->gold[at]);
    a->tags[at] = tag_name(a->set, a->best[at]);
}

static kvf_status decide_tags(kvf_ctx *ctx, kvf__answers *a, const kvf__scores *s)
{
    const kvf__source *sources = a->set->sources->group;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)a->n + 1, sizeof *a->start, &a->start));
    for (int64_t i = 0; i < a->n; i++)
        a->start[i + 1] = a->start[i] + sources[i].n;
    int64_t words = a->start[a->n];
    KVF_TRY(alloc_decisions(ctx, a, words));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)words, sizeof *a->gold_tags, &a->gold_tags));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)words, sizeof *a->tags, &a->tags));
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t w = 0; w < sources[i].n; w++)
            decide_word(a, s, i, w);
    return KVF_OK;
}

/* ---- all tasks ------------------------------------------------------------------------------- */

static kvf_status decide(kvf_ctx *ctx, kvf__answers *a, const kvf__scores *s,
                         const kvf__answer_rules *rules)
{
    switch (a->set->task) {
    case KVF__TASK_SEQ_CLS:
        return a->set->regression ? decide_numbers(ctx, a, s) : decide_one(ctx, a, s);
    case KVF__TASK_TOKEN_CLS:
        return decide_tags(ctx, a, s);
    case KVF__TASK_QA:
        return kvf__answers_spans(ctx, a, s, rules);
    case KVF__TASK_CHOICE:
        return decide_one(ctx, a, s);
    case KVF__TASK_LM:
        break;
    }
    return kvf__fail(ctx, KVF_EUSAGE, "task lm has no classes to choose from");
}

static kvf_status check_finite(kvf_ctx *ctx, const kvf__scores *s)
{
    const int64_t rows = s->set->phrases ? kvf__group_count(s->set) : s->set->n;
    for (int64_t i = 0; i < s->first[rows] * s->width; i++)
        if (!isfinite(s->p[i]))
            return kvf__fail(ctx, KVF_ENUMERIC,
                             "the outputs of the head are not finite: a weight of the base or a "
                             "value of the prefix is not finite or too large");
    return KVF_OK;
}

kvf_status kvf__answers_init(kvf_ctx *ctx, kvf__answers *out, const kvf__scores *scores,
                             const kvf__answer_rules *rules)
{
    kvf__answers a = {.set = scores->set, .n = kvf__group_count(scores->set)};
    kvf_status st = check_finite(ctx, scores);
    if (!st) st = decide(ctx, &a, scores, rules);
    KVF__GIVE(st, out, a, kvf__answers_done(&a));
    return st;
}

void kvf__answers_done(kvf__answers *a)
{
    kvf__free(a->gold);
    kvf__free(a->best);
    kvf__free(a->numbers);
    kvf__free(a->wanted);
    kvf__free(a->p);
    kvf__free(a->p_none);
    kvf__free(a->start);
    kvf__free((void *)a->gold_tags);
    kvf__free((void *)a->tags);
    kvf__free(a->owned);
    kvf__free(a->text_bytes);
    kvf__free(a->reference_bytes);
    kvf__free((void *)a->texts);
    kvf__free((void *)a->references);
    kvf__free(a->spans);
    *a = (kvf__answers){0};
}
