/* The gated delta rule of delta.h on the vectors of vec.h; compiled once per instruction set
 * (KVF_LEVEL). S of a block lies in scratch memory as K rows of up to WIDE vectors. One run through
 * it per token computes S_t, the output, and S_t^T k of the next token. */
#include "delta.h"
#include "kernels_int.h"
#include "level.h"
#include "vec_tail.h"

enum { WIDE = 4, COLUMNS = WIDE * VF_LANES };
_Static_assert((int)COLUMNS <= (int)KVF__DELTA_BLOCK, "scratch of delta.h");

/* A block of columns, `wide` vectors from column `first` on. */
typedef struct block {
    const kvf__delta *d;
    int64_t first;
    float *S, *dS;   /* [K, COLUMNS] */
    float *kept;     /* [n / CHUNK + 1, K, COLUMNS] S before every chunk */
    float *before;   /* [CHUNK, K, COLUMNS] S before each token of a chunk */
    float *kv, *add; /* [CHUNK, COLUMNS] a S^T k, d_t */
} block;

static block block_at(const kvf__delta *d, int64_t first)
{
    const int64_t state = d->K * COLUMNS;
    block b = {.d = d, .first = first, .S = d->scratch};

    b.dS = b.S + state;
    b.before = b.dS + state;
    b.kv = b.before + KVF__DELTA_CHUNK * state;
    b.add = b.kv + KVF__DELTA_CHUNK * COLUMNS;
    b.kept = b.add + KVF__DELTA_CHUNK * COLUMNS;
    return b;
}

/* Loads or stores vector j of a row [V] at the block's columns. */
VEC_INLINE vf load(const block *b, const float *row, int j)
{
    const int64_t c = b->first + j * VF_LANES;
    return vf_load_upto(row + c, b->d->V - c);
}

VEC_INLINE void store(const block *b, float *row, int j, vf v)
{
    const int64_t c = b->first + j * VF_LANES;
    vf_store_upto(row + c, v, b->d->V - c);
}

VEC_INLINE void load_state(const block *b, const float *state, float *to, int wide)
{
    for (int64_t i = 0; i < b->d->K; i++)
        VEC_UNROLL for (int j = 0; j < wide; j++)
            vf_store(to + i * COLUMNS + j * VF_LANES, load(b, state + i * b->d->V, j));
}

VEC_INLINE void store_state(const block *b, const float *from, float *state, int wide)
{
    for (int64_t i = 0; i < b->d->K; i++)
        VEC_UNROLL for (int j = 0; j < wide; j++)
            store(b, state + i * b->d->V, j, vf_load(from + i * COLUMNS + j * VF_LANES));
}

/* Computes S^T k. */
VEC_INLINE void multiply(const block *b, const float *k, vf sum[WIDE], int wide)
{
    VEC_UNROLL for (int j = 0; j < wide; j++) sum[j] = vf_zero();
    for (int64_t i = 0; i < b->d->K; i++) {
        const vf ki = vf_set(k[i]);
        VEC_UNROLL for (int j = 0; j < wide; j++)
            sum[j] = vf_fma(ki, vf_load(b->S + i * COLUMNS + j * VF_LANES), sum[j]);
    }
}

/* Runs token t: S, and sum = S^T k of token t before, of token t + 1 after. */
VEC_INLINE void step(const block *b, int64_t t, vf sum[WIDE], vf add[WIDE], vf out[WIDE], int wide)
{
    const kvf__delta *d = b->d;
    const float *k = d->k + t * d->K, *q = d->q + t * d->K, *next = t + 1 < d->n ? k + d->K : k;
    const vf a = vf_set(d->decay[t]), beta = vf_set(d->beta[t]);

    VEC_UNROLL for (int j = 0; j < wide; j++)
    {
        sum[j] = a * sum[j];
        add[j] = beta * (load(b, d->v + t * d->V, j) - sum[j]);
        out[j] = vf_zero();
        sum[j] = vf_zero();
    }
    for (int64_t i = 0; i < d->K; i++) {
        const vf ki = vf_set(k[i]), qi = vf_set(q[i]), ni = vf_set(next[i]);
        VEC_UNROLL for (int j = 0; j < wide; j++)
        {
            float *at = b->S + i * COLUMNS + j * VF_LANES;
            const vf s = vf_fma(ki, add[j], a * vf_load(at));
            vf_store(at, s);
            out[j] = vf_fma(qi, s, out[j]);
            sum[j] = vf_fma(ni, s, sum[j]);
        }
    }
}

VEC_INLINE void fwd_block(const block *b, int wide)
{
    const kvf__delta *d = b->d;
    vf sum[WIDE], add[WIDE], out[WIDE];

    load_state(b, d->state, b->S, wide);
    multiply(b, d->k, sum, wide);
    for (int64_t t = 0; t < d->n; t++) {
        step(b, t, sum, add, out, wide);
        VEC_UNROLL for (int j = 0; j < wide; j++) store(b, d->out + t * d->V, j, out[j]);
    }
    store_state(b, b->S, d->state, wide);
}

/* Runs forward, keeping S before every chunk. */
VEC_INLINE void keep_chunks(const block *b, int wide)
{
    const kvf__delta *d = b->d;
    const size_t bytes = (size_t)(d->K * COLUMNS) * sizeof(float);
    vf sum[WIDE], add[WIDE], out[WIDE];

    load_state(b, d->state, b->S, wide);
    multiply(b, d->k, sum, wide);
    for (int64_t t = 0; t < d->n; t++) {
        if (t % KVF__DELTA_CHUNK == 0)
            memcpy(b->kept + t / KVF__DELTA_CHUNK * d->K * COLUMNS, b->S, bytes);
        step(b, t, sum, add, out, wide);
    }
}

/* Runs tokens from .. to - 1 of a chunk again, keeping S before each. */
VEC_INLINE void open_chunk(const block *b, int64_t from, int64_t to, int wide)
{
    const kvf__delta *d = b->d;
    const int64_t state = d->K * COLUMNS;
    vf sum[WIDE], add[WIDE], out[WIDE];

    memcpy(b->S, b->kept + from / KVF__DELTA_CHUNK * state, (size_t)state * sizeof(float));
    multiply(b, d->k + from * d->K, sum, wide);
    for (int64_t t = from; t < to; t++) {
        const int64_t at = (t - from) * COLUMNS;
        memcpy(b->before + (t - from) * state, b->S, (size_t)state * sizeof(float));
        VEC_UNROLL for (int j = 0; j < wide; j++)
            vf_store(b->kv + at + j * VF_LANES, vf_set(d->decay[t]) * sum[j]);
        step(b, t, sum, add, out, wide);
        VEC_UNROLL for (int j = 0; j < wide; j++) vf_store(b->add + at + j * VF_LANES, add[j]);
    }
}

/* Adds the gradient of the output to dS; sets dd, the gradient of d_t. */
VEC_INLINE void out_bwd(const block *b, int64_t t, const vf dout[WIDE], vf dd[WIDE], int wide)
{
    const float *k = b->d->k + t * b->d->K, *q = b->d->q + t * b->d->K;

    VEC_UNROLL for (int j = 0; j < wide; j++) dd[j] = vf_zero();
    for (int64_t i = 0; i < b->d->K; i++) {
        const vf ki = vf_set(k[i]), qi = vf_set(q[i]);
        VEC_UNROLL for (int j = 0; j < wide; j++)
        {
            float *at = b->dS + i * COLUMNS + j * VF_LANES;
            const vf s = vf_fma(qi, dout[j], vf_load(at));
            vf_store(at, s);
            dd[j] = vf_fma(ki, s, dd[j]);
        }
    }
}

/* Runs token t, number `in` of its chunk, backward. */
VEC_INLINE void step_bwd(const block *b, int64_t t, int64_t in, int wide)
{
    const kvf__delta *d = b->d;
    const float *k = d->k + t * d->K, *before = b->before + in * d->K * COLUMNS;
    const vf a = vf_set(d->decay[t]), beta = vf_set(d->beta[t]);
    vf dout[WIDE], dd[WIDE], add[WIDE], dkv[WIDE], dlog = vf_zero(), of_beta = vf_zero(),
                                                   of_q = vf_zero();

    VEC_UNROLL for (int j = 0; j < wide; j++) dout[j] = load(b, d->dout + t * d->V, j);
    out_bwd(b, t, dout, dd, wide);
    VEC_UNROLL for (int j = 0; j < wide; j++)
    {
        const vf kv = vf_load(b->kv + in * COLUMNS + j * VF_LANES);
        add[j] = vf_load(b->add + in * COLUMNS + j * VF_LANES);
        of_beta = vf_fma(dd[j], load(b, d->v + t * d->V, j) - kv, of_beta);
        of_q = vf_fma(add[j], dout[j], of_q);
        store(b, d->dv + t * d->V, j, beta * dd[j]);
        dkv[j] = vf_zero() - beta * dd[j];
    }
    d->dbeta[t] += vf_sum(of_beta);
    const float times_k = vf_sum(of_q);
    for (int64_t i = 0; i < d->K; i++) {
        const vf ki = vf_set(k[i]);
        vf dq = vf_zero(), dk = vf_zero();
        VEC_UNROLL for (int j = 0; j < wide; j++)
        {
            float *at = b->dS + i * COLUMNS + j * VF_LANES;
            const vf s = a * vf_load(before + i * COLUMNS + j * VF_LANES), ds = vf_load(at);
            const vf both = vf_fma(ki, dkv[j], ds);
            dq = vf_fma(s, dout[j], dq);
            dk = vf_fma(ds, add[j], vf_fma(s, dkv[j], dk));
            dlog = vf_fma(both, s, dlog);
            vf_store(at, a * both);
        }
        d->dq[t * d->K + i] += vf_sum(dq) + k[i] * times_k;
        d->dk[t * d->K + i] += vf_sum(dk);
    }
    d->dlog_decay[t] += vf_sum(dlog);
}

VEC_INLINE void bwd_block(const block *b, int wide)
{
    const kvf__delta *d = b->d;

    keep_chunks(b, wide);
    load_state(b, d->dstate, b->dS, wide);
    for (int64_t end = d->n, from; end > 0; end = from) {
        from = (end - 1) / KVF__DELTA_CHUNK * KVF__DELTA_CHUNK;
        open_chunk(b, from, end, wide);
        for (int64_t t = end - 1; t >= from; t--)
            step_bwd(b, t, t - from, wide);
    }
    store_state(b, b->dS, d->dstate, wide);
}

/* Runs body with a constant `wide` for every block of columns. */
#define EACH_BLOCK(d, body)                                                                        \
    for (int64_t first = 0; first < (d)->V; first += COLUMNS) {                                    \
        const block b = block_at(d, first);                                                        \
        const int64_t vectors = ((d)->V - first + VF_LANES - 1) / VF_LANES;                        \
        if (vectors >= WIDE)                                                                       \
            body(&b, WIDE);                                                                        \
        else if (vectors == 3)                                                                     \
            body(&b, 3);                                                                           \
        else if (vectors == 2)                                                                     \
            body(&b, 2);                                                                           \
        else                                                                                       \
            body(&b, 1);                                                                           \
    }

void KVF__LEVEL(kvf__delta_fwd_)(const kvf__delta *d)
{
    EACH_BLOCK(d, fwd_block)
}

void KVF__LEVEL(kvf__delta_bwd_)(const kvf__delta *d)
{
    EACH_BLOCK(d, bwd_block)
}
