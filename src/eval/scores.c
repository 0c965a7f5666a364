/* Converts outputs of heads to probabilities, by a softmax over the alternatives. These are the
 * classes of a label, the choices of a question, or the starts and the ends in all windows of a
 * context. So several heads can be averaged whatever the scale of their logits. A single head
 * decides as its logits do. */
#include "answers.h"

#include <math.h>

kvf_status kvf__scores_init(kvf_ctx *ctx, kvf__scores *out, const kvf__dataset *set, int64_t width)
{
    kvf__scores scores = {.set = set,
                          .width = set->phrases ? (int64_t)set->names.n : width,
                          .outputs = set->n_labels * width};
    const int64_t n = set->phrases ? kvf__group_count(set) : set->n;
    kvf_status st = kvf__alloc_array(ctx, (size_t)n + 1, sizeof *scores.first, &scores.first);
    for (int64_t i = 0; !st && i < n; i++)
        scores.first[i + 1] = scores.first[i] + (set->phrases ? 1 : kvf__example_labels(set, i));
    if (!st)
        st = kvf__alloc_array(ctx, (size_t)(scores.first[n] * scores.width), sizeof *scores.p,
                              &scores.p);
    if (!st && set->phrases)
        st = kvf__alloc_array(ctx, (size_t)scores.width, sizeof *scores.sums, &scores.sums);
    KVF__GIVE(st, out, scores, kvf__scores_done(&scores));
    return st;
}

void kvf__scores_done(kvf__scores *scores)
{
    kvf__free(scores->first);
    kvf__free(scores->p);
    kvf__free(scores->sums);
    *scores = (kvf__scores){0};
}

/* Adds share * softmax over the n logits with this stride to p[i]. */
static void add_softmax(double *p, const float *logits, int64_t n, int64_t stride, double share)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, (double)logits[i * stride]);
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i * stride] - most);
    for (int64_t i = 0; i < n; i++)
        p[i * stride] += share * exp((double)logits[i * stride] - most) / sum;
}

/* Adds share to the p[i] of the largest logit. */
static void add_vote(double *p, const float *logits, int64_t n, int64_t stride, double share)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i * stride] > logits[best * stride]) best = i;
    p[best * stride] += share;
}

/* Sets [*from, *to) to the rows of a group. */
static void group_rows(const kvf__dataset *set, int64_t group, int64_t *from, int64_t *to)
{
    *from = set->group ? set->group[group] : group;
    *to = set->group ? set->group[group + 1] : group + 1;
}

typedef void add_fn(double *p, const float *logits, int64_t n, int64_t stride, double share);

/* Handles classes of several tokens: the score of a row is the sum over its labels. */
static void add_phrases(kvf__scores *s, const float *logits, double share, add_fn *add)
{
    const kvf__dataset *set = s->set;
    for (int64_t g = 0; g < set->n_groups; g++) {
        for (int64_t row = set->group[g]; row < set->group[g + 1]; row++) {
            double sum = 0;
            for (int64_t n = kvf__example_labels(set, row); n > 0; n--)
                sum += (double)*logits++;
            s->sums[row - set->group[g]] = (float)sum;
        }
        add(s->p + g * s->width, s->sums, s->width, 1, share);
    }
}

/* Calls `add` for each set of alternatives. */
static void add_each(kvf__scores *s, const float *logits, double share, add_fn *add)
{
    const kvf__dataset *set = s->set;
    if (set->phrases) {
        add_phrases(s, logits, share, add);
        return;
    }
    int64_t labels = s->first[set->n], groups = kvf__group_count(set), from, to;
    if (set->task == KVF__TASK_SEQ_CLS || set->task == KVF__TASK_TOKEN_CLS) {
        for (int64_t i = 0; i < labels; i++)
            add(s->p + i * s->width, logits + i * s->width, s->width, 1, share);
        return;
    }
    for (int64_t g = 0; g < groups; g++) {
        group_rows(set, g, &from, &to);
        int64_t at = s->first[from] * s->width, n = s->first[to] - s->first[from];
        for (int64_t c = 0; c < s->width; c++)
            add(s->p + at + c, logits + at + c, n, s->width, share);
    }
}

void kvf__scores_add(kvf__scores *s, const float *logits, double share)
{
    if (!s->set->regression) {
        add_each(s, logits, share, add_softmax);
        return;
    }
    for (int64_t i = 0; i < s->first[s->set->n]; i++)
        s->p[i] += share * (double)logits[i];
}

void kvf__scores_vote(kvf__scores *s, const float *logits, double share)
{
    add_each(s, logits, share, add_vote);
}

/* ---- loss ------------------------------------------------------------------------------------ */

/* Returns the probability of the answer's start (column 0) or end (1) among the positions of its
 * window. */
static double span_probability(const kvf__scores *s, int64_t row, int column)
{
    const kvf__dataset *set = s->set;
    int64_t target = set->spans[2 * row + column], label = s->first[row];
    double sum = 0, found = 0;
    for (int64_t t = 0; t < kvf__example_length(set, row); t++) {
        if (set->labels[set->start[row] + t] == KVF__NO_LABEL) continue;
        double p = s->p[label++ * s->width + column];
        sum += p;
        if (t == target) found = p;
    }
    return found / sum;
}

/* Returns the loss sum of one row; *terms counts its terms. */
static double row_loss(const kvf__scores *s, int64_t row, int64_t *terms)
{
    const kvf__dataset *set = s->set;
    int64_t label = s->first[row];
    double sum = 0;
    if (set->regression) {
        double off = s->p[label] - (double)set->values[row];
        ++*terms;
        return off * off;
    }
    if (set->task == KVF__TASK_QA) {
        ++*terms;
        return -(log(span_probability(s, row, 0)) + log(span_probability(s, row, 1))) / 2;
    }
    for (int64_t t = set->start[row]; t < set->start[row + 1]; t++) {
        int32_t id = set->labels[t];
        if (id == KVF__NO_LABEL) continue;
        bool choice = set->task == KVF__TASK_CHOICE;
        if (!choice || id == 1) {
            sum -= log(s->p[label * s->width + (choice ? 0 : id)]);
            ++*terms;
        }
        label++;
    }
    return sum;
}

static double phrases_loss(const kvf__scores *s)
{
    double sum = 0;
    int64_t terms = 0;
    for (int64_t g = 0; g < s->set->n_groups; g++) {
        int32_t gold = s->set->sources->group[g].gold;
        if (gold < 0) continue;
        sum -= log(s->p[g * s->width + gold]);
        terms++;
    }
    return terms ? sum / (double)terms : NAN;
}

double kvf__scores_loss(const kvf__scores *scores)
{
    double sum = 0;
    int64_t terms = 0;
    if (scores->set->phrases) return phrases_loss(scores);
    for (int64_t row = 0; row < scores->set->n; row++)
        sum += row_loss(scores, row, &terms);
    return terms ? sum / (double)terms : NAN;
}
