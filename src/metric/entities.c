/* Precision, recall and F1 of entities, as in seqeval: an entity is correct if its type and both
 * ends are. entity_scan.c defines entities. */
#include "entity_scan.h"
#include "metric_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static kvf_status check(kvf_ctx *ctx, const kvf__tag_rows *rows)
{
    if (rows->n <= 0 || rows->start[rows->n] <= rows->start[0])
        return kvf__fail(ctx, KVF_EDATA, "no words to score");
    for (int64_t w = rows->start[0]; w < rows->start[rows->n]; w++)
        if (!*rows->gold[w] || !*rows->predicted[w])
            return kvf__fail(ctx, KVF_EDATA, "word %lld: the tag is empty",
                             (long long)(w - rows->start[0]));
    return KVF_OK;
}

/* Both lists are ordered by the last word, so one merge finds all equal pairs. */
static void count(kvf__entity_type *types, const kvf__entity_list *gold,
                  const kvf__entity_list *predicted)
{
    for (size_t i = 0; i < gold->n; i++)
        types[gold->data[i].type].scores.support++;
    for (size_t i = 0; i < predicted->n; i++)
        types[predicted->data[i].type].predicted++;
    for (size_t i = 0, k = 0; i < gold->n && k < predicted->n;) {
        const kvf__entity *g = &gold->data[i], *p = &predicted->data[k];
        if (g->last == p->last && g->first == p->first && g->type == p->type)
            types[g->type].correct++;
        i += g->last <= p->last;
        k += p->last <= g->last;
    }
}

static int by_name(const void *a, const void *b)
{
    const kvf__entity_type *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static double tag_accuracy(const kvf__tag_rows *rows)
{
    int64_t first = rows->start[0], end = rows->start[rows->n], same = 0;
    for (int64_t w = first; w < end; w++)
        same += !strcmp(rows->gold[w], rows->predicted[w]);
    return (double)same / (double)(end - first);
}

static void score(kvf__entity_scores *s, const kvf__tag_rows *rows)
{
    int64_t correct = 0, predicted = 0, gold = 0;

    for (size_t i = 0; i < s->n_types; i++) {
        kvf__entity_type *type = &s->types[i];
        type->scores = kvf__prf_of(type->correct, type->predicted, type->scores.support);
        correct += type->correct;
        predicted += type->predicted;
        gold += type->scores.support;
        kvf__prf_add(&s->macro, &type->scores);
    }
    kvf__prf_divide(&s->macro, (double)s->n_types);
    s->micro = kvf__prf_of(correct, predicted, gold);
    s->accuracy = tag_accuracy(rows);
    if (s->n_types) qsort(s->types, s->n_types, sizeof *s->types, by_name);
}

kvf_status kvf__entities(kvf_ctx *ctx, const kvf__tag_rows *rows, kvf__tag_scheme scheme,
                         kvf__entity_scores *out)
{
    kvf__entity_scores scores = {0};
    kvf__map names = {0};
    kvf__entity_list gold = {&scores, &names, NULL, 0}, predicted = gold;

    kvf_status st = check(ctx, rows);
    if (!st && scheme == KVF__TAGS_AUTO) {
        scheme = kvf__tag_scheme_guess(rows);
        if (scheme == KVF__TAGS_MIXED)
            st = kvf__fail(ctx, KVF_EDATA,
                           "the tags match none of the schemes IOB2, IOE2, IOBES, BILOU");
    }
    const size_t words = st ? 0 : (size_t)(rows->start[rows->n] - rows->start[0]);
    if (!st) st = kvf__alloc_array(ctx, words, sizeof *gold.data, &gold.data);
    if (!st) st = kvf__alloc_array(ctx, words, sizeof *predicted.data, &predicted.data);
    if (!st) st = kvf__entity_scan(ctx, &gold, rows, rows->gold, scheme);
    if (!st) st = kvf__entity_scan(ctx, &predicted, rows, rows->predicted, scheme);
    if (st) {
        kvf__entity_scores_done(&scores);
    } else {
        count(scores.types, &gold, &predicted);
        score(&scores, rows);
        *out = scores;
    }
    kvf__free(gold.data);
    kvf__free(predicted.data);
    kvf__map_done(&names);
    return st;
}

void kvf__entity_scores_done(kvf__entity_scores *scores)
{
    for (size_t i = 0; i < scores->n_types; i++)
        kvf__free(scores->types[i].name);
    kvf__free(scores->types);
    *scores = (kvf__entity_scores){0};
}
