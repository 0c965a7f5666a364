/* Corpus BLEU (Papineni et al., 2002) with the defaults of sacrebleu.
 *
 * The count of a predicted n-gram is clipped by the reference with the most occurrences; the
 * reference of the nearest length enters the brevity penalty. Each further order without a match
 * gets half the precision of the previous such order (mteval's smoothing, "exp"). */
#include "metric_priv.h"
#include "words.h"

#include <math.h>
#include <stdlib.h>

enum { ORDERS = 4 };

/* Occurrences of an n-gram: in the prediction, maximum in a reference, in the current reference. */
typedef struct gram {
    int32_t predicted, best, now;
} gram;

/* Predicted n-grams of one order in one example, by slot. */
typedef struct grams {
    size_t order, n;
    kvf__map slots;
    gram *item; /* [words] */
} grams;

static kvf_status count_predicted(kvf_ctx *ctx, grams *g, const kvf__ids *words)
{
    const size_t bytes = g->order * sizeof *words->data;
    for (size_t i = 0; i + g->order <= words->n; i++) {
        int64_t slot = (int64_t)g->n;
        if (!kvf__map_get(&g->slots, words->data + i, bytes, &slot)) {
            KVF_TRY(kvf__map_put(ctx, &g->slots, words->data + i, bytes, slot));
            g->n++;
        }
        g->item[slot].predicted++;
    }
    return KVF_OK;
}

static void count_reference(grams *g, const kvf__ids *words)
{
    for (size_t s = 0; s < g->n; s++)
        g->item[s].now = 0;
    for (size_t i = 0; i + g->order <= words->n; i++) {
        int64_t slot;
        if (!kvf__map_get(&g->slots, words->data + i, g->order * sizeof *words->data, &slot))
            continue;
        gram *here = &g->item[slot];
        here->now++;
        if (here->now > here->best) here->best = here->now;
    }
}

/* references [n]. */
static kvf_status count_order(kvf_ctx *ctx, const kvf__ids *predicted, const kvf__ids *references,
                              size_t n, size_t order, kvf__bleu_scores *out)
{
    grams g = {.order = order};
    KVF_TRY(kvf__alloc_array(ctx, predicted->n, sizeof *g.item, &g.item));
    kvf_status st = count_predicted(ctx, &g, predicted);

    for (size_t r = 0; r < n && !st; r++)
        count_reference(&g, &references[r]);
    for (size_t s = 0; s < g.n && !st; s++) {
        int32_t has = g.item[s].predicted, most = g.item[s].best;
        out->correct[order - 1] += has < most ? has : most;
        out->total[order - 1] += has;
    }
    kvf__map_done(&g.slots);
    kvf__free(g.item);
    return st;
}

/* Returns the length nearest to `length`, for ties the shorter. */
static size_t nearest_length(size_t length, const kvf__ids *references, size_t n)
{
    size_t best = references[0].n;
    for (size_t r = 1; r < n; r++) {
        size_t here = references[r].n;
        int64_t d = llabs((int64_t)here - (int64_t)length);
        int64_t best_d = llabs((int64_t)best - (int64_t)length);
        if (d < best_d || (d == best_d && here < best)) best = here;
    }
    return best;
}

static kvf_status add_example(kvf_ctx *ctx, kvf__vocabulary *vocabulary, const kvf__text_rows *rows,
                              int64_t i, kvf__bleu_scores *out)
{
    size_t n = (size_t)(rows->start[i + 1] - rows->start[i]);
    kvf__ids predicted = {0}, *references = NULL;

    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *references, &references));
    kvf_status st = kvf__words(ctx, vocabulary, kvf__cut_13a, kvf__predicted(rows, i), &predicted);
    for (size_t r = 0; r < n && !st; r++)
        st = kvf__words(ctx, vocabulary, kvf__cut_13a,
                        kvf__reference(rows, rows->start[i] + (int64_t)r), &references[r]);
    for (size_t order = 1; order <= ORDERS && !st; order++)
        st = count_order(ctx, &predicted, references, n, order, out);
    if (!st) {
        out->predicted_length += (int64_t)predicted.n;
        out->reference_length += (int64_t)nearest_length(predicted.n, references, n);
    }
    for (size_t r = 0; r < n; r++)
        kvf__ids_done(&references[r]);
    kvf__free(references);
    kvf__ids_done(&predicted);
    return st;
}

static double brevity_penalty(double predicted, double reference)
{
    if (predicted >= reference) return 1;
    return predicted > 0 ? exp(1 - reference / predicted) : 0;
}

/* Without any match the score is 0 and is not smoothed. It is also 0 if all predictions are too
 * short for an order. */
static void score(kvf__bleu_scores *s)
{
    double logs = 0, smooth = 1;

    s->brevity_penalty = brevity_penalty((double)s->predicted_length, (double)s->reference_length);
    if (!s->correct[0]) return;
    for (int n = 0; n < ORDERS && s->total[n]; n++) {
        double total = (double)s->total[n];
        if (s->correct[n])
            s->precisions[n] = 100 * (double)s->correct[n] / total;
        else
            s->precisions[n] = 100 / ((smooth *= 2) * total);
    }
    for (int n = 0; n < ORDERS; n++) {
        if (s->precisions[n] == 0) return;
        logs += log(s->precisions[n]);
    }
    s->score = s->brevity_penalty * exp(logs / ORDERS);
}

kvf_status kvf__bleu(kvf_ctx *ctx, const kvf__text_rows *rows, kvf__bleu_scores *out)
{
    kvf__vocabulary vocabulary = {0};
    kvf__bleu_scores scores = {0};
    kvf_status st = kvf__check_texts(ctx, rows, true);

    for (int64_t i = 0; i < rows->n && !st; i++)
        st = add_example(ctx, &vocabulary, rows, i, &scores);
    if (!st) {
        score(&scores);
        *out = scores;
    }
    kvf__vocabulary_done(&vocabulary);
    return st;
}
