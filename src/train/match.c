/* Attention matching (Zweiger et al. 2026, arXiv 2602.16284): finds P virtual tokens that replace
 * the keys and values of a document, without training.
 *
 * The queries come from rows that follow the document. For every layer and key head:
 *
 *   keys     the P keys of the document with the most attention, as root of the mean square
 *   values   the minimum over c of
 *     sum_i |(sum_p e^(q_i k_p) c_p + own_i) / (sum_p e^(q_i k_p) + mass_i) - out_i|^2
 *     + ridge |c|^2
 *
 * out_i is the attention output with the document; own_i and mass_i are the contributions of the
 * row's own tokens to sum and mass, so the prefix is solved for the softmax in which it is used.
 * Query heads that share a key head are solved for together. Layers are matched from the first to
 * the last. The rows of a layer have attended to the prefix, not the document, in the layers
 * below. */
#include "match.h"
#include "arena.h"
#include "attention.h"
#include "cholesky.h"
#include "kernels.h"
#include "matmul.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    QUERIES = 256, /* queries per block */
    KEYS = 128,    /* keys that a thread accumulates at a time */
    SWEEPS = 300   /* largest number of sweeps over the weights */
};

/* Relative to the mean diagonal of the Gram matrix. */
static const double RIDGE = 1e-4;
/* Largest absolute log-weight. */
static const double MOST_WEIGHT = 7;

/* A key of the document and the sum of its squared attention weights. */
typedef struct asked_key {
    double attention;
    int64_t at;
} asked_key;

typedef struct matching {
    kvf_ctx *ctx;
    const kvf__desc *desc;
    const kvf__prefix *context; /* prefix of the document */
    const int32_t *position;    /* [T] positions of its keys */
    int64_t start;              /* first position of the rows after it */
    bool turned;
    kvf__prefix *out; /* result; rows after it start where they start after the document */
    kvf__queries queries;
    int64_t labels, n; /* queries of a key head: labels * H / G */

    /* scratch memory of one key head */
    float *q;           /* [n, D] queries times the scale of scores */
    float *score, *e;   /* [QUERIES, T or P] scores; exponentials */
    float *max, *sum;   /* [QUERIES] maximum; sum */
    float *mass;        /* [n] log mass of the row's own tokens */
    double *all;        /* [n] log mass including the document's tokens */
    double *weight;     /* [P] weights of the chosen keys */
    int32_t *no_target; /* [QUERIES] */
    double *attention;  /* [T] sum of squared attention weights */
    asked_key *order;   /* [T] keys by attention; the first P are chosen */
    double *equation;   /* [n, P + D] attention weights of the keys, and the target output */
    double *gram;       /* [P, P] */
    double *right;      /* [P, D] */
    double *values;     /* [D, P] */
} matching;

/* Returns the keys (which = 0) or values (1) [P, D] of a head. */
static float *head_of(const kvf__prefix *p, int64_t l, int64_t g, int which)
{
    return p->kv + ((2 * l + which) * p->G + g) * p->P * p->D;
}

/* ---- queries --------------------------------------------------------------------------------- */

/* Returns the index of query i of key head g in the arrays of all heads. */
static int64_t query_at(const matching *m, int64_t g, int64_t i)
{
    const int64_t share = m->desc->H / m->desc->G;
    return i / share * m->desc->H + g * share + i % share;
}

static void take_queries(matching *m, int64_t g, const kvf__attn *attn)
{
    const int64_t D = attn->D;
    for (int64_t i = 0; i < m->n; i++) {
        const int64_t at = query_at(m, g, i);
        m->mass[i] = m->queries.own_mass[at];
        for (int64_t k = 0; k < D; k++)
            m->q[i * D + k] = attn->scale * m->queries.q[at * D + k];
    }
}

/* Computes scores [n, keys] of the queries from `first` on. */
static kvf_status scores(matching *m, const kvf__attn *attn, int64_t first, int64_t n,
                         const float *k, int64_t keys)
{
    const int64_t D = attn->D;
    KVF_TRY(
        kvf__sgemm(m->ctx, false, true, n, keys, D, m->q + first * D, D, k, D, 0, m->score, keys));
    for (int64_t i = 0; attn->cap > 0 && i < n * keys; i++)
        m->score[i] = attn->cap * tanhf(m->score[i] / attn->cap);
    return KVF_OK;
}

/* ---- which keys ------------------------------------------------------------------------------ */

/* Adds the squared attention weights of n queries to each of T keys. */
static void add_attention(matching *m, int64_t first, int64_t n, int64_t T)
{
    for (int64_t i = 0; i < n; i++) { /* from e^(s - max) to weights over all keys */
        const double lse = m->max[i] + log(m->sum[i]), own = m->mass[first + i];
        const double most = fmax(lse, own);
        m->all[first + i] = most + log(exp(lse - most) + exp(own - most));
        m->sum[i] = (float)exp(m->max[i] - m->all[first + i]);
    }
#pragma omp parallel for schedule(static)
    for (int64_t from = 0; from < T; from += KEYS)
        for (int64_t i = 0; i < n; i++)
            for (int64_t t = from; t < from + KEYS && t < T; t++) {
                const double share = m->sum[i] * m->e[i * T + t];
                m->attention[t] += share * share;
            }
}

/* Computes exponentials, maxima and sums of n rows of scores. */
static void exponentials(matching *m, int64_t n, int64_t T)
{
    float unused[QUERIES];
    const kvf__ce_chunk chunk = {.rows = n,
                                 .width = T,
                                 .logits = m->score,
                                 .valid = T,
                                 .target = m->no_target,
                                 .max = m->max,
                                 .sum = m->sum,
                                 .target_logit = unused,
                                 .e = m->e};
    for (int64_t i = 0; i < n; i++) {
        m->max[i] = -INFINITY;
        m->sum[i] = 0;
    }
    kvf__kernels_get()->ce(KVF__F32, &chunk);
}

static kvf_status measure_attention(matching *m, int64_t l, int64_t g, const kvf__attn *attn)
{
    const int64_t T = m->context->P;
    memset(m->attention, 0, (size_t)T * sizeof *m->attention);
    for (int64_t first = 0; first < m->n; first += QUERIES) {
        const int64_t n = m->n - first < QUERIES ? m->n - first : QUERIES;
        KVF_TRY(scores(m, attn, first, n, head_of(m->context, l, g, 0), T));
        exponentials(m, n, T);
        add_attention(m, first, n, T);
    }
    return KVF_OK;
}

static int more_attention(const void *a, const void *b)
{
    const asked_key *x = a, *y = b;
    return x->attention > y->attention   ? -1
           : x->attention < y->attention ? 1
                                         : (x->at > y->at) - (x->at < y->at);
}

static int earlier(const void *a, const void *b)
{
    const asked_key *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Chooses the P keys with most attention, and restores their order. */
static void choose(matching *m, int64_t l, int64_t g)
{
    const int64_t T = m->context->P, P = m->out->P, D = m->desc->D;
    const float *from = head_of(m->context, l, g, 0);
    float *to = head_of(m->out, l, g, 0);
    for (int64_t t = 0; t < T; t++)
        m->order[t] = (asked_key){m->attention[t], t};
    qsort(m->order, (size_t)T, sizeof *m->order, more_attention);
    qsort(m->order, (size_t)P, sizeof *m->order, earlier);
    for (int64_t p = 0; p < P; p++) {
        const int64_t at = m->order[p].at;
        memcpy(to + p * D, from + at * D, (size_t)D * sizeof *to);
        if (m->turned)
            kvf__rope_move_key(m->desc, l, to + p * D, m->position[at], m->start - P + p);
    }
}

/* ---- their values ---------------------------------------------------------------------------- */

/* Fills equation [n, P + D] for the queries from `first` on, from their scores with the chosen
 * keys. */
static void set_equations(matching *m, int64_t g, int64_t first, int64_t n)
{
    const int64_t P = m->out->P, D = m->desc->D;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const float *s = m->score + i * P;
        const int64_t at = query_at(m, g, first + i) * D;
        double *x = m->equation + (first + i) * (P + D), most = m->mass[first + i], sum;
        for (int64_t p = 0; p < P; p++)
            most = fmax(most, s[p]);
        const double own = exp(m->mass[first + i] - most);
        sum = own;
        for (int64_t p = 0; p < P; p++)
            sum += x[p] = m->weight[p] * exp(s[p] - most);
        for (int64_t p = 0; p < P; p++)
            x[p] /= sum;
        for (int64_t k = 0; k < D; k++)
            x[P + k] = m->queries.out[at + k] - own / sum * m->queries.own[at + k];
    }
}

/* Computes gram = A^T A (lower half) and values = (A^T Y)^T. One thread computes each row of A^T.
 */
static void add_equations(matching *m, int64_t columns)
{
    const int64_t P = m->out->P, D = m->desc->D, width = P + D;
#pragma omp parallel for schedule(dynamic)
    for (int64_t p = 0; p < P; p++) {
        double *gram = m->gram + p * P, *right = m->right + p * D;
        memset(gram, 0, (size_t)P * sizeof *gram);
        memset(right, 0, (size_t)columns * sizeof *right);
        for (int64_t i = 0; i < m->n; i++) {
            const double *x = m->equation + i * width, share = x[p];
            for (int64_t j = 0; j <= p; j++)
                gram[j] += share * x[j];
            for (int64_t k = 0; k < columns; k++)
                right[k] += share * x[P + k];
        }
        for (int64_t k = 0; k < columns; k++)
            m->values[k * P + p] = right[k];
    }
}

static void solve(matching *m, float *values)
{
    const int64_t P = m->out->P, D = m->desc->D;
    kvf__add_ridge(m->gram, P, RIDGE);
    kvf__cholesky(m->gram, P);
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < D; k++) {
        kvf__cholesky_solve(m->gram, m->values + k * P, P);
        for (int64_t p = 0; p < P; p++)
            values[p * D + k] = (float)m->values[k * P + p];
    }
}

/* Builds the equations of all queries. */
static kvf_status equations(matching *m, int64_t l, int64_t g, const kvf__attn *attn,
                            void (*set)(matching *, int64_t, int64_t, int64_t))
{
    for (int64_t first = 0; first < m->n; first += QUERIES) {
        const int64_t n = m->n - first < QUERIES ? m->n - first : QUERIES;
        KVF_TRY(scores(m, attn, first, n, head_of(m->out, l, g, 0), m->out->P));
        set(m, g, first, n);
    }
    return KVF_OK;
}

/* ---- their weights --------------------------------------------------------------------------- */

/* Sets the attention mass of each chosen key, and of the document. */
static void set_masses(matching *m, int64_t g, int64_t first, int64_t n)
{
    const int64_t P = m->out->P, D = m->desc->D;
    (void)g;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        double *x = m->equation + (first + i) * (P + D);
        for (int64_t p = 0; p < P; p++)
            x[p] = exp(m->score[i * P + p] - m->all[first + i]);
        x[P] = 1 - exp(m->mass[first + i] - m->all[first + i]);
    }
}

/* Solves for the weights by coordinate descent within bounds, from 1. */
static void solve_weights(matching *m)
{
    const int64_t P = m->out->P;
    const double least = exp(-MOST_WEIGHT), most = exp(MOST_WEIGHT);
    double moved = 1;
    kvf__add_ridge(m->gram, P, RIDGE);
    for (int sweep = 0; sweep < SWEEPS && moved > 1e-9; sweep++) {
        moved = 0;
        for (int64_t p = 0; p < P; p++) {
            double rest = m->values[p];
            for (int64_t j = 0; j < P; j++)
                rest -= m->gram[j < p ? p * P + j : j * P + p] * m->weight[j];
            const double to = m->weight[p] + rest / m->gram[p * P + p];
            const double in = fmin(most, fmax(least, to));
            moved = fmax(moved, fabs(in - m->weight[p]) / in);
            m->weight[p] = in;
        }
    }
}

/* Weights each key so that the prefix gets the document's share of attention. Used if the resulting
 * prefix has log-weights. */
static kvf_status weigh(matching *m, int64_t l, int64_t g, const kvf__attn *attn)
{
    const int64_t P = m->out->P;
    for (int64_t p = 0; p < P; p++)
        m->weight[p] = 1;
    if (!m->out->log_weight) return KVF_OK;
    KVF_TRY(equations(m, l, g, attn, set_masses));
    add_equations(m, 1);
    solve_weights(m);
    for (int64_t p = 0; p < P; p++)
        m->out->log_weight[(l * m->out->G + g) * P + p] = (float)log(m->weight[p]);
    return KVF_OK;
}

static kvf_status match_head(matching *m, int64_t l, int64_t g, const kvf__attn *attn)
{
    take_queries(m, g, attn);
    KVF_TRY(measure_attention(m, l, g, attn));
    choose(m, l, g);
    KVF_TRY(weigh(m, l, g, attn));
    KVF_TRY(equations(m, l, g, attn, set_equations));
    add_equations(m, m->desc->D);
    solve(m, head_of(m->out, l, g, 1));
    return KVF_OK;
}

static kvf_status match_layer(void *user, int64_t l, const kvf__attn *attn)
{
    matching *m = user;
    if (attn->window)
        return kvf__fail(m->ctx, KVF_EUNSUPPORTED,
                         "--init match: layer %lld has a sliding window of %lld tokens and cannot "
                         "attend to the whole document",
                         (long long)l, (long long)attn->window);
    for (int64_t g = 0; g < m->desc->G; g++)
        KVF_TRY(match_head(m, l, g, attn));
    return KVF_OK;
}

/* ---- all layers ------------------------------------------------------------------------------ */

static void lay_out(void *object, kvf__carver *carve)
{
    matching *m = object;
    const int64_t T = m->context->P, P = m->out->P, D = m->desc->D;
    const int64_t heads = m->labels * m->desc->H;
    m->queries.q = kvf__carve(carve, heads, D, sizeof(float));
    m->queries.out = kvf__carve(carve, heads, D, sizeof(float));
    m->queries.own = kvf__carve(carve, heads, D, sizeof(float));
    m->queries.own_mass = kvf__carve(carve, heads, 1, sizeof(float));
    m->q = kvf__carve(carve, m->n, D, sizeof *m->q);
    m->score = kvf__carve(carve, QUERIES, T, sizeof *m->score);
    m->e = kvf__carve(carve, QUERIES, T, sizeof *m->e);
    m->max = kvf__carve(carve, QUERIES, 1, sizeof *m->max);
    m->sum = kvf__carve(carve, QUERIES, 1, sizeof *m->sum);
    m->mass = kvf__carve(carve, m->n, 1, sizeof *m->mass);
    m->all = kvf__carve(carve, m->n, 1, sizeof *m->all);
    m->weight = kvf__carve(carve, P, 1, sizeof *m->weight);
    m->no_target = kvf__carve(carve, QUERIES, 1, sizeof *m->no_target);
    m->attention = kvf__carve(carve, T, 1, sizeof *m->attention);
    m->order = kvf__carve(carve, T, 1, sizeof *m->order);
    m->equation = kvf__carve(carve, m->n, P + D, sizeof *m->equation);
    m->gram = kvf__carve(carve, P, P, sizeof *m->gram);
    m->right = kvf__carve(carve, P, D, sizeof *m->right);
    m->values = kvf__carve(carve, D, P, sizeof *m->values);
}

static kvf_status nothing_more(void *user, kvf__pass *pass, const kvf__batch *batch)
{
    (void)user, (void)pass, (void)batch;
    return KVF_OK;
}

/* Runs all rows in one pass, and matches each layer as soon as it has run. */
static kvf_status run(matching *m, kvf_base *base, const kvf__dataset *rows)
{
    const kvf__evaluator_options how = {.P = m->context->P, .batch_tokens = INT64_MAX};
    const kvf__subject subject = {.condition.prefix = m->context,
                                  .condition.position_start = m->start,
                                  .queries = &m->queries};
    kvf__evaluator *evaluator = NULL;
    for (int64_t i = 0; i < QUERIES; i++)
        m->no_target[i] = -1;
    m->queries.layer = match_layer;
    m->queries.user = m;
    m->queries.instead = m->out;
    KVF_TRY(kvf__evaluator_create(m->ctx, base, rows, &how, &evaluator));
    kvf_status st = kvf__evaluator_walk(m->ctx, evaluator, &subject, nothing_more, NULL);
    kvf__evaluator_free(evaluator);
    return st;
}

kvf_status kvf__match(kvf_ctx *ctx, kvf_base *base, const kvf__match_source *source,
                      const kvf__dataset *rows, int64_t start, kvf__prefix *out)
{
    const kvf__desc *d = kvf__model_desc(base->model);
    const int64_t P = out->P;
    matching made = {.ctx = ctx,
                     .desc = d,
                     .context = source->kv,
                     .position = source->position,
                     .start = source->start,
                     .turned = start != source->start,
                     .out = out,
                     .labels = rows->n_labels,
                     .n = rows->n_labels * (d->H / d->G)};
    matching *m = NULL;
    if (d->by_layer.shape)
        return kvf__fail(
            ctx, KVF_EUNSUPPORTED,
            "--init match: not supported on %s, whose layers differ or share keys and values",
            d->arch_name);
    KVF_TRY(kvf__carve_object(ctx, lay_out, &made, sizeof made, &m));
    kvf_status st = run(m, base, rows);
    if (!st) kvf__rope_move(d, out, source->start - P, start - P);
    kvf__free(m);
    return st;
}
