/* The gated delta rule of delta.h as plain loops, column by column, in double. */
#include "delta.h"
#include "kernels_int.h"

/* Computes S_t from S_{t-1} of column c; returns d_t. */
static double next(const kvf__delta *d, int64_t c, int64_t t, const double *before, double *after)
{
    const float *k = d->k + t * d->K;
    const double a = d->decay[t];
    double kv = 0;

    for (int64_t i = 0; i < d->K; i++)
        kv += a * before[i] * k[i];
    const double delta = d->beta[t] * (d->v[t * d->V + c] - kv);
    for (int64_t i = 0; i < d->K; i++)
        after[i] = a * before[i] + k[i] * delta;
    return delta;
}

/* Fills S [n + 1, K] of column c. */
static void fill(const kvf__delta *d, int64_t c, double *S)
{
    for (int64_t i = 0; i < d->K; i++)
        S[i] = d->state[i * d->V + c];
    for (int64_t t = 0; t < d->n; t++)
        next(d, c, t, S + t * d->K, S + (t + 1) * d->K);
}

void kvf__delta_fwd_ref(const kvf__delta *d)
{
    double *S = (double *)(void *)d->scratch;

    for (int64_t c = 0; c < d->V; c++) {
        fill(d, c, S);
        for (int64_t t = 0; t < d->n; t++) {
            const double *after = S + (t + 1) * d->K;
            double sum = 0;
            for (int64_t i = 0; i < d->K; i++)
                sum += after[i] * d->q[t * d->K + i];
            d->out[t * d->V + c] = (float)sum;
        }
        for (int64_t i = 0; i < d->K; i++)
            d->state[i * d->V + c] = (float)S[d->n * d->K + i];
    }
}

/* Runs token t of column c backward; dS [K]: gradient of S_t, which becomes that of S_{t-1}. */
static void step_bwd(const kvf__delta *d, int64_t c, int64_t t, const double *S, double *dS)
{
    const int64_t K = d->K, at = t * K;
    const double a = d->decay[t], beta = d->beta[t], dout = d->dout[t * d->V + c];
    const double *before = S + t * K, *after = before + K;
    double dd = 0, kv = 0, dlog = 0;

    for (int64_t i = 0; i < K; i++) {
        d->dq[at + i] += (float)(after[i] * dout);
        dS[i] += d->q[at + i] * dout;
        dd += dS[i] * d->k[at + i];
        kv += a * before[i] * d->k[at + i];
    }
    const double rest = d->v[t * d->V + c] - kv, delta = beta * rest, dkv = -beta * dd;
    d->dv[t * d->V + c] = (float)(beta * dd);
    d->dbeta[t] += (float)(dd * rest);
    for (int64_t i = 0; i < K; i++) {
        d->dk[at + i] += (float)(dS[i] * delta + a * before[i] * dkv);
        dS[i] += d->k[at + i] * dkv;
        dlog += dS[i] * a * before[i];
        dS[i] *= a;
    }
    d->dlog_decay[t] += (float)dlog;
}

void kvf__delta_bwd_ref(const kvf__delta *d)
{
    double *dS = (double *)(void *)d->scratch, *S = dS + d->K;

    for (int64_t c = 0; c < d->V; c++) {
        fill(d, c, S);
        for (int64_t i = 0; i < d->K; i++)
            dS[i] = d->dstate[i * d->V + c];
        for (int64_t t = d->n - 1; t >= 0; t--)
            step_bwd(d, c, t, S, dS);
        for (int64_t i = 0; i < d->K; i++)
            d->dstate[i * d->V + c] = (float)dS[i];
    }
}
