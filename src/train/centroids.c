/* --init centroids: a prefix that changes the base's outputs little, with keys at cluster centers
 * (centroids) of queries, so that each virtual token serves similar queries.
 *
 * Rows of the training data run through the bare base. For every layer and key head, with the
 * queries q_i of all their tokens:
 *
 *   centroids  c_p of k-means over the whitened queries x_i
 *   keys       least squares: q_i k_p = sharpness (x_i c_p - |c_p|^2 / 2) + offset. The sharpness
 *              makes a query attend to a share of SPREAD of the keys; the offset, equal for all p,
 *              gives the prefix a share of SHARE of all attention
 *   values     v_p = sum_i a_ip o_i / sum_i a_ip, with a_ip the weight of k_p in the prefix's
 *              attention and o_i the base's attention output: outputs that change nothing
 *
 * Training tolerates larger steps than from random keys (docs/maths.md, docs/methods.md). One thread
 * computes a key head, so the bits do not depend on the number of threads. */
#include "arena.h"
#include "attention.h"
#include "cholesky.h"
#include "evaluator.h"
#include "start.h"

#include <math.h>
#include <string.h>

#define CENTROID_STREAM                                                                            \
    0x63656e74 /* "cent": separates this random stream from those of the weights                   \
                */

enum { TOKENS = 1536, PER_TOKEN = 8, ROUNDS = 8, HALVINGS = 24, LOOKS = 512 };

static const double SPREAD = 0.35;
static const double SHARE = 0.3;
static const double MOST_SHARPNESS = 100;
static const double MOST_OFFSET = 10; /* largest offset of scores that may be used to reach SHARE */
static const double RIDGE = 1e-3;     /* relative to the mean diagonal of the Gram matrix */

typedef struct centroids {
    kvf_ctx *ctx;
    kvf__prefix *out;
    kvf__queries queries;
    int64_t labels;
    uint64_t seed;
    kvf_status status;
} centroids;

/* Scratch memory of one key head with n queries. */
typedef struct head_work {
    void *memory;
    int64_t n, P, D;
    double *q;                /* [n, D] queries times the scale of scores */
    float *x;                 /* [n, D] whitened queries */
    double *mass, *sum;       /* [n] log sum of exponentials over the text's own keys; over the
                               * prefix */
    double *unit;             /* [n] score contribution of the offset direction */
    float *score;             /* [n, P] scores */
    float *across;            /* [D, P] transposed centroids or keys, for inner loops over p */
    double *center, *key;     /* [P, D] centroids; keys */
    double *mean, *direction; /* [D] mean query; offset direction */
    double *second, *white;   /* [D, D] Cholesky factors of the second moment and of the covariance
                               */
    double *total;            /* [P] weights of the values */
    double *row;              /* [D] */
    const float **answer;     /* [n] -> [D] attention outputs of the base */
    int64_t *nearest;         /* [n] index of the nearest centroid */
} head_work;

static void lay_out(void *object, kvf__carver *carve)
{
    head_work *w = object;
    const int64_t n = w->n, P = w->P, D = w->D;
    w->q = kvf__carve(carve, n, D, sizeof *w->q);
    w->x = kvf__carve(carve, n, D, sizeof *w->x);
    w->mass = kvf__carve(carve, n, 1, sizeof *w->mass);
    w->sum = kvf__carve(carve, n, 1, sizeof *w->sum);
    w->unit = kvf__carve(carve, n, 1, sizeof *w->unit);
    w->score = kvf__carve(carve, n, P, sizeof *w->score);
    w->across = kvf__carve(carve, D, P, sizeof *w->across);
    w->center = kvf__carve(carve, P, D, sizeof *w->center);
    w->key = kvf__carve(carve, P, D, sizeof *w->key);
    w->mean = kvf__carve(carve, D, 1, sizeof *w->mean);
    w->direction = kvf__carve(carve, D, 1, sizeof *w->direction);
    w->second = kvf__carve(carve, D, D, sizeof *w->second);
    w->white = kvf__carve(carve, D, D, sizeof *w->white);
    w->total = kvf__carve(carve, P, 1, sizeof *w->total);
    w->row = kvf__carve(carve, D, 1, sizeof *w->row);
    w->answer = kvf__carve(carve, n, 1, sizeof *w->answer);
    w->nearest = kvf__carve(carve, n, 1, sizeof *w->nearest);
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* ---- queries --------------------------------------------------------------------------------- */

static void take_queries(const centroids *c, int64_t g, const kvf__attn *attn, head_work *w)
{
    const int64_t D = w->D, each = attn->H / attn->G;
    for (int64_t i = 0; i < w->n; i++) {
        const int64_t at = i / each * attn->H + g * each + i % each;
        w->mass[i] = (double)c->queries.own_mass[at];
        w->answer[i] = c->queries.out + at * D;
        for (int64_t k = 0; k < D; k++)
            w->q[i * D + k] = (double)(attn->scale * c->queries.q[at * D + k]);
    }
}

static void factor(double *moment, int64_t D)
{
    kvf__add_ridge(moment, D, RIDGE);
    for (int64_t k = 0; k < D; k++)
        moment[k * D + k] += 1e-30; /* a single query has zero covariance */
    kvf__cholesky(moment, D);
}

/* Computes x = L^-1 (q - mean), where L L^T is the covariance, and the direction that adds a nearly
 * equal amount to the score of every query. */
static void whiten(head_work *w)
{
    const int64_t n = w->n, D = w->D;
    memset(w->mean, 0, (size_t)D * sizeof *w->mean);
    memset(w->second, 0, (size_t)(D * D) * sizeof *w->second);
    for (int64_t i = 0; i < n; i++) {
        const double *q = w->q + i * D;
        for (int64_t k = 0; k < D; k++) {
            w->mean[k] += q[k] / (double)n;
            for (int64_t j = 0; j <= k; j++)
                w->second[k * D + j] += q[k] * q[j] / (double)n;
        }
    }
    for (int64_t k = 0; k < D; k++)
        for (int64_t j = 0; j <= k; j++)
            w->white[k * D + j] = w->second[k * D + j] - w->mean[k] * w->mean[j];
    factor(w->second, D);
    factor(w->white, D);
    memcpy(w->direction, w->mean, (size_t)D * sizeof *w->mean);
    kvf__cholesky_solve(w->second, w->direction, D);
    for (int64_t i = 0; i < n; i++) {
        double *x = w->row;
        for (int64_t k = 0; k < D; k++) {
            x[k] = (w->q[i * D + k] - w->mean[k] - dot(w->white + k * D, x, k)) /
                   w->white[k * D + k];
            w->x[i * D + k] = (float)x[k];
        }
        w->unit[i] = dot(w->q + i * D, w->direction, D);
    }
}

/* ---- k-means --------------------------------------------------------------------------------- */

static void lay_across(head_work *w, const double *from)
{
    for (int64_t p = 0; p < w->P; p++)
        for (int64_t k = 0; k < w->D; k++)
            w->across[k * w->P + p] = (float)from[p * w->D + k];
}

/* Sets score = x c - |c|^2 / 2, which is largest for the nearest centroid. */
static void measure(head_work *w)
{
    const int64_t P = w->P, D = w->D;
    lay_across(w, w->center);
    for (int64_t p = 0; p < P; p++)
        w->total[p] = dot(w->center + p * D, w->center + p * D, D) / 2;
    for (int64_t i = 0; i < w->n; i++) {
        float *score = w->score + i * P;
        for (int64_t p = 0; p < P; p++)
            score[p] = -(float)w->total[p];
        for (int64_t k = 0; k < D; k++) {
            const float x = w->x[i * D + k], *across = w->across + k * P;
            for (int64_t p = 0; p < P; p++)
                score[p] += x * across[p];
        }
        w->nearest[i] = 0;
        for (int64_t p = 1; p < P; p++)
            if (score[p] > score[w->nearest[i]]) w->nearest[i] = p;
    }
}

/* Moves centroids to the mean of their queries. A centroid without queries stays in place. */
static void move_centroids(head_work *w)
{
    const int64_t P = w->P, D = w->D;
    memset(w->total, 0, (size_t)P * sizeof *w->total);
    for (int64_t i = 0; i < w->n; i++) {
        const int64_t p = w->nearest[i];
        double *center = w->center + p * D;
        if (!w->total[p]++) memset(center, 0, (size_t)D * sizeof *center);
        for (int64_t k = 0; k < D; k++)
            center[k] += (double)w->x[i * D + k];
    }
    for (int64_t p = 0; p < P; p++)
        for (int64_t k = 0; w->total[p] > 1 && k < D; k++)
            w->center[p * D + k] /= w->total[p];
}

/* Runs k-means from queries drawn at random. With fewer than P queries some are drawn repeatedly.
 */
static void find_centroids(head_work *w, kvf__rng rng)
{
    const int64_t D = w->D;
    for (int64_t i = 0; i < w->n; i++)
        w->nearest[i] = i;
    kvf__rng_shuffle(&rng, w->nearest, (size_t)w->n);
    for (int64_t p = 0; p < w->P; p++)
        for (int64_t k = 0; k < D; k++)
            w->center[p * D + k] = (double)w->x[w->nearest[p % w->n] * D + k];
    for (int round = 0; round < ROUNDS; round++) {
        measure(w);
        move_centroids(w);
    }
    measure(w);
}

/* ---- keys and values ------------------------------------------------------------------------- */

/* Solves for keys at a sharpness of 1. The part common to all scores is left to the offset. */
static void solve_keys(head_work *w)
{
    const int64_t n = w->n, P = w->P, D = w->D;
    double mean = 0;
    for (int64_t i = 0; i < n * P; i++)
        mean += (double)w->score[i] / (double)(n * P);
    memset(w->key, 0, (size_t)(P * D) * sizeof *w->key);
    for (int64_t i = 0; i < n; i++)
        for (int64_t p = 0; p < P; p++) {
            const double wanted = ((double)w->score[i * P + p] - mean) / (double)n;
            for (int64_t k = 0; k < D; k++)
                w->key[p * D + k] += wanted * w->q[i * D + k];
        }
    for (int64_t p = 0; p < P; p++)
        kvf__cholesky_solve(w->second, w->key + p * D, D);
}

/* Computes score = q k. */
static void score_keys(head_work *w)
{
    const int64_t P = w->P, D = w->D;
    lay_across(w, w->key);
    memset(w->score, 0, (size_t)(w->n * P) * sizeof *w->score);
    for (int64_t i = 0; i < w->n; i++)
        for (int64_t k = 0; k < D; k++) {
            const float q = (float)w->q[i * D + k], *across = w->across + k * P;
            for (int64_t p = 0; p < P; p++)
                w->score[i * P + p] += q * across[p];
        }
}

/* Replaces the scores of one query by attention weights over the prefix, after scaling by
 * `sharpness`. Sets *log_sum to the log of the sum of exponentials and returns the entropy. */
static double attend(float *score, int64_t P, double sharpness, double *log_sum)
{
    float most = -INFINITY;
    double sum = 0, mean = 0;
    for (int64_t p = 0; p < P; p++)
        most = fmaxf(most, score[p]);
    for (int64_t p = 0; p < P; p++) {
        const float below = (float)sharpness * (score[p] - most);
        score[p] = expf(below);
        sum += (double)score[p];
        mean += (double)(score[p] * below);
    }
    for (int64_t p = 0; p < P; p++)
        score[p] /= (float)sum;
    *log_sum = sharpness * (double)most + log(sum);
    return log(sum) - mean / sum;
}

/* Returns the effective number of keys per query, exp of the mean entropy. */
static double keys_looked_at(const head_work *w, double sharpness, float *scratch)
{
    const int64_t every = (w->n + LOOKS - 1) / LOOKS;
    double entropy = 0, log_sum;
    int64_t queries = 0;
    for (int64_t i = 0; i < w->n; i += every, queries++) {
        memcpy(scratch, w->score + i * w->P, (size_t)w->P * sizeof *scratch);
        entropy += attend(scratch, w->P, sharpness, &log_sum);
    }
    return exp(entropy / (double)queries);
}

static void sharpen(head_work *w)
{
    const double wanted = 1 + SPREAD * (double)(w->P - 1);
    double low = log(1 / MOST_SHARPNESS), high = log(MOST_SHARPNESS);
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = (low + high) / 2;
        if (keys_looked_at(w, exp(middle), w->across) > wanted)
            low = middle;
        else
            high = middle;
    }
    for (int64_t i = 0; i < w->n; i++)
        attend(w->score + i * w->P, w->P, exp(low), w->sum + i);
    for (int64_t i = 0; i < w->P * w->D; i++)
        w->key[i] *= exp(low);
}

static double share_with(const head_work *w, double offset)
{
    double share = 0;
    for (int64_t i = 0; i < w->n; i++)
        share += 1 / (1 + exp(w->mass[i] - w->sum[i] - offset * w->unit[i]));
    return share / (double)w->n;
}

static void add_offset(head_work *w)
{
    double low = -MOST_OFFSET, high = MOST_OFFSET;
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = (low + high) / 2;
        if (share_with(w, middle) < SHARE)
            low = middle;
        else
            high = middle;
    }
    for (int64_t p = 0; p < w->P; p++)
        for (int64_t k = 0; k < w->D; k++)
            w->key[p * w->D + k] += low * w->direction[k];
}

/* Writes keys and values. A key without attention keeps the value 0. */
static void store(const head_work *w, float *keys, float *values)
{
    const int64_t P = w->P, D = w->D;
    double *sum = w->center; /* reuses memory: the centroids are no longer needed */
    memset(sum, 0, (size_t)(P * D) * sizeof *sum);
    memset(w->total, 0, (size_t)P * sizeof *w->total);
    for (int64_t i = 0; i < w->n; i++)
        for (int64_t p = 0; p < P; p++) {
            const double share = (double)w->score[i * P + p];
            w->total[p] += share;
            for (int64_t k = 0; k < D; k++)
                sum[p * D + k] += share * (double)w->answer[i][k];
        }
    for (int64_t p = 0; p < P; p++)
        for (int64_t k = 0; k < D; k++) {
            keys[p * D + k] = (float)w->key[p * D + k];
            values[p * D + k] = (float)(sum[p * D + k] / (w->total[p] + 1e-6));
        }
}

static kvf_status one_head(const centroids *c, int64_t l, int64_t g, const kvf__attn *attn)
{
    const kvf__prefix *out = c->out;
    const int64_t P = out->P, D = attn->D, head = (2 * l * out->G + g) * P * D;
    head_work w = {.n = c->labels * (attn->H / attn->G), .P = P, .D = D};
    KVF_TRY(kvf__carve_block(c->ctx, lay_out, &w, &w.memory));
    take_queries(c, g, attn, &w);
    whiten(&w);
    find_centroids(&w, kvf__rng_make(c->seed, ((uint64_t)CENTROID_STREAM << 32) + 1 +
                                                  (uint64_t)(l * out->G + g)));
    solve_keys(&w);
    score_keys(&w);
    sharpen(&w);
    add_offset(&w);
    store(&w, out->kv + head, out->kv + head + out->G * P * D);
    kvf__free(w.memory);
    return KVF_OK;
}

static kvf_status one_layer(void *user, int64_t l, const kvf__attn *attn)
{
    centroids *c = user;
#pragma omp parallel for schedule(dynamic)
    for (int64_t g = 0; g < c->out->G; g++) {
        kvf_status st = one_head(c, l, g, attn);
#pragma omp critical(centroids)
        if (st) c->status = st;
    }
    return c->status;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Draws rows at random. Every token of theirs serves as a query. */
static kvf_status draw_rows(const kvf__run *run, const kvf__dataset *data, int64_t *order,
                            kvf__dataset *rows)
{
    const int64_t wanted = run->id.P * PER_TOKEN > TOKENS ? run->id.P * PER_TOKEN : TOKENS;
    kvf__rng rng = kvf__rng_make(run->options.seed, (uint64_t)CENTROID_STREAM << 32);
    int64_t n = 0, tokens = 0;
    kvf__rng_order(&rng, order, data->n);
    while (n < data->n && tokens < wanted)
        tokens += kvf__example_length(data, order[n++]);
    *rows = (kvf__dataset){.task = KVF__TASK_TOKEN_CLS};
    KVF_TRY(kvf__dataset_alloc_rows(run->ctx, rows, n, tokens));
    rows->n_groups = n;
    rows->n_labels = tokens;
    if (data->types)
        KVF_TRY(kvf__alloc_array(run->ctx, (size_t)tokens, sizeof *rows->types, &rows->types));
    for (int64_t i = 0, to = 0; i < n; i++) {
        const int64_t from = data->start[order[i]], length = kvf__example_length(data, order[i]);
        memcpy(rows->ids + to, data->ids + from, (size_t)length * sizeof *rows->ids);
        if (rows->types)
            memcpy(rows->types + to, data->types + from, (size_t)length * sizeof *rows->types);
        rows->start[i + 1] = to += length;
    }
    return KVF_OK;
}

static kvf_status nothing_more(void *user, kvf__pass *pass, const kvf__batch *batch)
{
    (void)user, (void)pass, (void)batch;
    return KVF_OK;
}

static kvf_status ask(const kvf__run *run, const kvf__dataset *rows, kvf__prefix *target)
{
    const kvf__desc *desc = kvf__model_desc(run->base->model);
    const kvf__evaluator_options how = {.batch_tokens = INT64_MAX};
    centroids c = {
        .ctx = run->ctx, .out = target, .labels = rows->n_labels, .seed = run->options.seed};
    const kvf__subject subject = {.condition.position_start = run->id.position_start,
                                  .queries = &c.queries};
    const size_t heads = (size_t)(c.labels * desc->H), D = (size_t)target->D;
    kvf__evaluator *evaluator = NULL;
    c.queries.layer = one_layer;
    c.queries.user = &c;
    kvf_status st = kvf__alloc_array(run->ctx, heads * D, sizeof(float), &c.queries.q);
    if (!st) st = kvf__alloc_array(run->ctx, heads * D, sizeof(float), &c.queries.out);
    if (!st) st = kvf__alloc_array(run->ctx, heads * D, sizeof(float), &c.queries.own);
    if (!st) st = kvf__alloc_array(run->ctx, heads, sizeof(float), &c.queries.own_mass);
    if (!st) st = kvf__evaluator_create(run->ctx, run->base, rows, &how, &evaluator);
    if (!st) st = kvf__evaluator_walk(run->ctx, evaluator, &subject, nothing_more, NULL);
    kvf__evaluator_free(evaluator);
    kvf__free(c.queries.q);
    kvf__free(c.queries.out);
    kvf__free(c.queries.own);
    kvf__free(c.queries.own_mass);
    return st;
}

kvf_status kvf__centroids(kvf__run *run, const kvf__dataset *data, kvf__prefix *target)
{
    const double begin = kvf__clock();
    kvf__dataset rows = {0};
    int64_t *order = NULL;
    KVF_TRY(kvf__alloc_array(run->ctx, (size_t)data->n, sizeof *order, &order));
    kvf_status st = draw_rows(run, data, order, &rows);
    if (!st) st = ask(run, &rows, target);
    if (!st)
        kvf__run_detail(run,
                        "initialized at centroids of the queries of %lld tokens in %lld training "
                        "rows in %.1f s",
                        (long long)rows.n_labels, (long long)rows.n, kvf__clock() - begin);
    kvf__dataset_done(&rows);
    kvf__free(order);
    return st;
}
