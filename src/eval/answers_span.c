/* Finds spans from start and end probabilities, like run_qa of transformers (Devlin et al. 2019,
 * section 4.2). In every window of a context the n best starts are paired with the n best ends that
 * follow within the longest answer. The best pair of all windows wins. "No answer" gets the lowest
 * score of its own position over the windows. It wins if its log odds against the best pair exceed
 * the threshold. */
#include "answers.h"

#include <math.h>
#include <string.h>

enum { N_BEST = 20, MAX_TOKENS = 30 };

/* A token position in a window, and its log probability as start or end. */
typedef struct span_end {
    int64_t token;
    double score;
} span_end;

/* The best pair so far, and the probability mass of all pairs. */
typedef struct span_search {
    int64_t row, first, last; /* row -1: no pair yet */
    double score, none;
    double scores[KVF__MOST_BEST]; /* scores of the best pairs of all windows, descending */
    int64_t n_scores;
} span_search;

static bool in_context(const kvf__dataset *set, int64_t row, int64_t token)
{
    const kvf__window *w = &set->sources->windows[row];
    return token >= w->at && token < w->at + w->n;
}

/* Inserts by score, the earlier of equal ones first, and keeps at most `most`. */
static int64_t insert(span_end *list, int64_t n, int64_t most, span_end item)
{
    int64_t at = n;
    while (at > 0 && list[at - 1].score < item.score)
        at--;
    if (at == most) return n;
    if (n < most) n++;
    memmove(list + at + 1, list + at, (size_t)(n - 1 - at) * sizeof *list);
    list[at] = item;
    return n;
}

static void keep_score(span_search *f, double score, int64_t most)
{
    int64_t at = f->n_scores;
    while (at > 0 && f->scores[at - 1] < score)
        at--;
    if (at == most) return;
    if (f->n_scores < most) f->n_scores++;
    memmove(f->scores + at + 1, f->scores + at, (size_t)(f->n_scores - 1 - at) * sizeof *f->scores);
    f->scores[at] = score;
}

static void pair(span_search *f, int64_t row, const span_end *starts, int64_t n_starts,
                 const span_end *ends, int64_t n_ends, const kvf__answer_rules *rules)
{
    for (int64_t i = 0; i < n_starts; i++)
        for (int64_t j = 0; j < n_ends; j++) {
            int64_t length = ends[j].token - starts[i].token + 1;
            double score = starts[i].score + ends[j].score;
            if (length < 1 || length > rules->max_tokens) continue;
            keep_score(f, score, rules->n_best);
            if (f->row >= 0 && score <= f->score) continue;
            f->row = row;
            f->first = starts[i].token;
            f->last = ends[j].token;
            f->score = score;
        }
}

static void search_window(const kvf__scores *s, int64_t row, const kvf__answer_rules *rules,
                          span_search *f)
{
    const kvf__dataset *set = s->set;
    span_end starts[KVF__MOST_BEST + 1], ends[KVF__MOST_BEST + 1];
    int64_t n_starts = 0, n_ends = 0, label = s->first[row];
    for (int64_t t = 0; t < kvf__example_length(set, row); t++) {
        const int32_t kind = set->labels[set->start[row] + t];
        if (kind == KVF__NO_LABEL) continue;
        const double *p = s->p + label++ * s->width;
        double start = log(p[0]), end = log(p[1]);
        if (kind == KVF__LABEL_NONE) f->none = fmin(f->none, start + end);
        if (!in_context(set, row, t)) continue;
        n_starts = insert(starts, n_starts, rules->n_best, (span_end){t, start});
        n_ends = insert(ends, n_ends, rules->n_best, (span_end){t, end});
    }
    pair(f, row, starts, n_starts, ends, n_ends, rules);
}

/* Returns the probability among the best pairs and, if allowed, no answer. */
static double probability(const span_search *f, bool none, double score)
{
    double most = fmax(f->n_scores ? f->scores[0] : -INFINITY, none ? f->none : -INFINITY);
    double sum = none ? exp(f->none - most) : 0;
    for (int64_t i = 0; i < f->n_scores; i++)
        sum += exp(f->scores[i] - most);
    return sum > 0 ? exp(score - most) / sum : NAN;
}

static kvf_status copy_text(kvf_ctx *ctx, kvf__answers *a, int64_t group, const span_search *f,
                            kvf__buf *texts)
{
    int64_t *span = a->spans + 2 * group;
    span[0] = span[1] = -1;
    if (f->row >= 0 && kvf__context_bytes(a->set, f->row, f->first, f->last, &span[0], &span[1])) {
        const char *context = a->set->sources->group[group].text;
        a->text_bytes[group] = (size_t)(span[1] - span[0]);
        KVF_TRY(kvf__buf_add(ctx, texts, context + span[0], a->text_bytes[group]));
    }
    return kvf__buf_add(ctx, texts, "", 1);
}

static kvf_status search_group(kvf_ctx *ctx, kvf__answers *a, const kvf__scores *s, int64_t group,
                               const kvf__answer_rules *rules, kvf__buf *texts)
{
    int64_t from = a->set->group ? a->set->group[group] : group;
    int64_t to = a->set->group ? a->set->group[group + 1] : group + 1;
    span_search f = {.row = -1, .score = -INFINITY, .none = INFINITY};
    for (int64_t row = from; row < to; row++)
        search_window(s, row, rules, &f);
    bool none = rules->no_answer && f.none - f.score > rules->no_answer_above;
    if (none) f.row = -1;
    a->p[group] = probability(&f, rules->no_answer, f.row < 0 ? f.none : f.score);
    a->p_none[group] = rules->no_answer ? probability(&f, true, f.none) : NAN;
    return copy_text(ctx, a, group, &f, texts);
}

static kvf_status alloc_memory(kvf_ctx *ctx, kvf__answers *a)
{
    const kvf__source *sources = a->set->sources->group;
    size_t n = (size_t)a->n;
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *a->p, &a->p));
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *a->p_none, &a->p_none));
    KVF_TRY(kvf__alloc_array(ctx, 2 * n, sizeof *a->spans, &a->spans));
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *a->texts, &a->texts));
    KVF_TRY(kvf__alloc_array(ctx, n + 1, sizeof *a->start, &a->start));
    for (int64_t i = 0; i < a->n; i++)
        a->start[i + 1] = a->start[i] + sources[i].n;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)a->start[a->n], sizeof *a->references, &a->references));
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *a->text_bytes, &a->text_bytes));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)a->start[a->n], sizeof *a->reference_bytes,
                             &a->reference_bytes));
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t r = 0; r < sources[i].n; r++) {
            a->references[a->start[i] + r] = sources[i].items[r];
            a->reference_bytes[a->start[i] + r] = kvf__source_item_bytes(&sources[i], r);
        }
    return KVF_OK;
}

kvf_status kvf__answers_spans(kvf_ctx *ctx, kvf__answers *a, const kvf__scores *s,
                              const kvf__answer_rules *given)
{
    kvf__answer_rules rules = *given;
    kvf__buf texts = {0};
    if (rules.n_best < 1) rules.n_best = N_BEST;
    if (rules.max_tokens < 1) rules.max_tokens = MAX_TOKENS;
    KVF_TRY(alloc_memory(ctx, a));
    kvf_status st = KVF_OK;
    for (int64_t i = 0; !st && i < a->n; i++)
        st = search_group(ctx, a, s, i, &rules, &texts);
    a->owned = texts.data;
    const char *text = texts.data;
    for (int64_t i = 0; !st && i < a->n; text += a->text_bytes[i++] + 1)
        a->texts[i] = text;
    return st;
}
