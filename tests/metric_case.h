/* A metric's inputs as one JSON object, and its results as a row of numbers. Shared by
 * dump_metrics.c, which prints them, and test_metric_golden.c, which compares them with stored
 * ones.
 *
 *     {"kind": "classes", "gold": [0, 1], "predicted": [1, 1], "labels": 2}
 *     {"kind": "numbers", "gold": [0.5, 1], "predicted": [1, 2]}
 *     {"kind": "tags", "scheme": "mixed", "gold": [["B-X", "O"]], "predicted": [["O", "O"]]}
 *     {"kind": "squad" | "squad2" | "bleu" | "rouge", "predicted": ["a"], "references": [["b"]]} */
#ifndef KVF_METRIC_CASE_H
#define KVF_METRIC_CASE_H

#include "metric_int.h"

#include <stdlib.h>
#include <string.h>

typedef struct metric_result {
    double *v;
    size_t n;
    char **names; /* number of types of "tags"; their scores follow the micro and macro scores */
    size_t n_names;
} metric_result;

static inline void metric_result_done(metric_result *r)
{
    for (size_t i = 0; i < r->n_names; i++)
        free(r->names[i]);
    free(r->names);
    free(r->v);
    *r = (metric_result){0};
}

static inline void metric_put(metric_result *r, double value)
{
    r->v = realloc(r->v, (r->n + 1) * sizeof *r->v);
    r->v[r->n++] = value;
}

static inline void metric_put_prf(metric_result *r, const kvf__prf *s)
{
    metric_put(r, s->precision);
    metric_put(r, s->recall);
    metric_put(r, s->f1);
    metric_put(r, (double)s->support);
}

/* Exact size, so that a sanitizer detects one element too many. */
static inline double *metric_numbers(const kvf_json *list)
{
    size_t n = kvf_json_size(list);
    double *v = malloc(n * sizeof *v + 1);
    for (size_t i = 0; i < n; i++)
        v[i] = kvf_json_real(kvf_json_at(list, i), 0);
    return v;
}

static inline int32_t *metric_ids(const kvf_json *list)
{
    size_t n = kvf_json_size(list);
    int32_t *v = malloc(n * sizeof *v + 1);
    for (size_t i = 0; i < n; i++)
        v[i] = (int32_t)kvf_json_int(kvf_json_at(list, i), -1);
    return v;
}

/* A list of texts. */
static inline const char **metric_texts(const kvf_json *list)
{
    size_t n = kvf_json_size(list);
    const char **v = malloc(n * sizeof *v + 1);
    for (size_t i = 0; i < n; i++)
        v[i] = kvf_json_str(kvf_json_at(list, i), NULL);
    return v;
}

/* A list of lists of texts, concatenated; start [size + 1]. */
static inline const char **metric_flat(const kvf_json *lists, int64_t **start)
{
    size_t n = kvf_json_size(lists), all = 0;
    const char **v = malloc(sizeof *v);

    *start = calloc(n + 1, sizeof **start);
    for (size_t i = 0; i < n; i++) {
        const kvf_json *list = kvf_json_at(lists, i);
        size_t here = kvf_json_size(list);
        v = realloc(v, (all + here) * sizeof *v + 1);
        for (size_t k = 0; k < here; k++)
            v[all++] = kvf_json_str(kvf_json_at(list, k), NULL);
        (*start)[i + 1] = (int64_t)all;
    }
    return v;
}

static inline kvf_status metric_classes(kvf_ctx *ctx, const kvf_json *c, metric_result *r)
{
    int32_t *gold = metric_ids(kvf_json_get(c, "gold"));
    int32_t *predicted = metric_ids(kvf_json_get(c, "predicted"));
    int32_t labels = (int32_t)kvf_json_int(kvf_json_get(c, "labels"), 0);
    kvf__prf *each = calloc((size_t)labels + 1, sizeof *each);
    kvf__class_scores s;
    kvf_status st = kvf__classify(
        ctx, gold, predicted, (int64_t)kvf_json_size(kvf_json_get(c, "gold")), labels, each, &s);

    if (!st) {
        metric_put(r, s.accuracy);
        metric_put_prf(r, &s.micro);
        metric_put_prf(r, &s.macro);
        metric_put(r, s.mcc);
        for (int32_t i = 0; i < labels; i++)
            metric_put_prf(r, &each[i]);
    }
    free(gold);
    free(predicted);
    free(each);
    return st;
}

static inline kvf_status metric_correlations(kvf_ctx *ctx, const kvf_json *c, metric_result *r)
{
    double *gold = metric_numbers(kvf_json_get(c, "gold")), pearson, spearman;
    double *predicted = metric_numbers(kvf_json_get(c, "predicted"));
    int64_t n = (int64_t)kvf_json_size(kvf_json_get(c, "gold"));
    kvf_status st = kvf__pearson(ctx, gold, predicted, n, &pearson);

    if (!st) st = kvf__spearman(ctx, gold, predicted, n, &spearman);
    if (!st) {
        metric_put(r, pearson);
        metric_put(r, spearman);
    }
    free(gold);
    free(predicted);
    return st;
}

static inline kvf__tag_scheme metric_scheme(const char *name)
{
    static const char *const NAMES[] = {"mixed", "auto", "IOB1",  "IOB2",
                                        "IOE1",  "IOE2", "IOBES", "BILOU"};
    int i = 0;
    while (strcmp(name, NAMES[i]))
        i++;
    return (kvf__tag_scheme)i;
}

static inline void metric_put_entities(metric_result *r, const kvf__entity_scores *s)
{
    metric_put(r, s->accuracy);
    metric_put_prf(r, &s->micro);
    metric_put_prf(r, &s->macro);
    r->names = calloc(s->n_types + 1, sizeof *r->names);
    for (size_t i = 0; i < s->n_types; i++) {
        r->names[r->n_names++] = strdup(s->types[i].name);
        metric_put_prf(r, &s->types[i].scores);
    }
}

static inline kvf_status metric_tags(kvf_ctx *ctx, const kvf_json *c, metric_result *r)
{
    kvf__tag_scheme scheme = metric_scheme(kvf_json_str(kvf_json_get(c, "scheme"), NULL));
    int64_t *start, *other;
    const char **gold = metric_flat(kvf_json_get(c, "gold"), &start);
    const char **predicted = metric_flat(kvf_json_get(c, "predicted"), &other);
    kvf__tag_rows rows = {(int64_t)kvf_json_size(kvf_json_get(c, "gold")), start, gold, predicted};
    kvf__entity_scores s = {0};
    kvf_status st = kvf__entities(ctx, &rows, scheme, &s);

    if (!st) metric_put_entities(r, &s);
    kvf__entity_scores_done(&s);
    free(gold);
    free(predicted);
    free(start);
    free(other);
    return st;
}

static inline void metric_put_all(metric_result *r, const double *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        metric_put(r, v[i]);
}

static inline kvf_status metric_squad(kvf_ctx *ctx, const kvf__text_rows *rows, bool no_answers,
                                      metric_result *r)
{
    kvf__squad_scores s;
    KVF_TRY(kvf__squad(ctx, rows, no_answers, &s));
    metric_put_all(r, (double[]){s.exact, s.f1, s.has_exact, s.has_f1, s.none_exact, s.none_f1}, 6);
    return KVF_OK;
}

static inline kvf_status metric_bleu(kvf_ctx *ctx, const kvf__text_rows *rows, metric_result *r)
{
    kvf__bleu_scores s;
    KVF_TRY(kvf__bleu(ctx, rows, &s));
    metric_put(r, s.score);
    metric_put_all(r, s.precisions, 4);
    metric_put_all(
        r, (double[]){s.brevity_penalty, (double)s.predicted_length, (double)s.reference_length},
        3);
    for (int i = 0; i < 4; i++)
        metric_put(r, (double)s.correct[i]);
    for (int i = 0; i < 4; i++)
        metric_put(r, (double)s.total[i]);
    return KVF_OK;
}

static inline kvf_status metric_rouge(kvf_ctx *ctx, const kvf__text_rows *rows, metric_result *r)
{
    kvf__prf s;
    KVF_TRY(kvf__rouge_l(ctx, rows, &s));
    metric_put_prf(r, &s);
    return KVF_OK;
}

static inline kvf_status metric_of_texts(kvf_ctx *ctx, const kvf_json *c, const char *kind,
                                         metric_result *r)
{
    int64_t *start;
    const char **references = metric_flat(kvf_json_get(c, "references"), &start);
    const char **predicted = metric_texts(kvf_json_get(c, "predicted"));
    kvf__text_rows rows = {.n = (int64_t)kvf_json_size(kvf_json_get(c, "predicted")),
                           .predicted = predicted,
                           .start = start,
                           .references = references};
    kvf_status st = !strcmp(kind, "bleu")    ? metric_bleu(ctx, &rows, r)
                    : !strcmp(kind, "rouge") ? metric_rouge(ctx, &rows, r)
                                             : metric_squad(ctx, &rows, !strcmp(kind, "squad2"), r);

    free(references);
    free(predicted);
    free(start);
    return st;
}

/* Fills *r, which must be {0}. */
static inline kvf_status metric_case(kvf_ctx *ctx, const kvf_json *c, metric_result *r)
{
    const char *kind = kvf_json_str(kvf_json_get(c, "kind"), NULL);

    if (!strcmp(kind, "classes")) return metric_classes(ctx, c, r);
    if (!strcmp(kind, "numbers")) return metric_correlations(ctx, c, r);
    if (!strcmp(kind, "tags")) return metric_tags(ctx, c, r);
    return metric_of_texts(ctx, c, kind, r);
}

#endif
