/* One row through one unit of a mixer (pass_mixer.h), forward and backward. Values are f32 here,
 * whatever the pass stores.
 *
 * The first product of a delta rule's layer has, per token, the inputs of the convolution q | k | v
 * of all heads, then gates [value_heads, value_dim], beta [value_heads] and decay [value_heads].
 * Queries and keys are divided by their length, and queries by the root of it too
 * (modeling_qwen3_5.py). The backward pass computes everything but the first product again. */
#include "delta.h"
#include "names.h"
#include "pass_mixer.h"

#include <math.h>
#include <string.h>

static const float LENGTH_EPS = 1e-6f;

static int64_t tail_of(const kvf__desc *d)
{
    return d->mixer.kernel - 1;
}

/* ---- units ----------------------------------------------------------------------------------- */

int64_t kvf__mixer_units(const kvf__desc *d)
{
    if (d->mixer.kind == KVF__MIXER_DELTA) return d->mixer.key_heads;
    return (d->C + KVF__MIXER_CHANNELS - 1) / KVF__MIXER_CHANNELS;
}

static int64_t heads_of_key(const kvf__desc *d)
{
    return d->mixer.value_heads / d->mixer.key_heads;
}

/* Returns the place among the weights' value heads of head i of a unit: in a GGUF a key head serves
 * not consecutive heads, but every key_heads-th. */
static int64_t value_head(const kvf__desc *d, int64_t unit, int64_t i)
{
    return d->gguf ? i * d->mixer.key_heads + unit : unit * heads_of_key(d) + i;
}

/* Returns the channels of a unit of a short convolution. */
static int64_t channels_of(const kvf__desc *d, int64_t unit)
{
    const int64_t left = d->C - unit * KVF__MIXER_CHANNELS;
    return left < KVF__MIXER_CHANNELS ? left : KVF__MIXER_CHANNELS;
}

int kvf__mixer_pieces(const kvf__desc *d, int64_t unit, kvf__mixer_piece piece[KVF__MIXER_PIECES])
{
    const kvf__mixer *m = &d->mixer;
    const int64_t tail = tail_of(d), K = m->key_dim, V = m->value_dim;

    if (m->kind == KVF__MIXER_CONV) {
        piece[0] = (kvf__mixer_piece){unit * KVF__MIXER_CHANNELS * tail,
                                      channels_of(d, unit) * tail};
        return 1;
    }
    const int64_t each = heads_of_key(d);
    piece[0] = (kvf__mixer_piece){unit * K * tail, K * tail};
    piece[1] = (kvf__mixer_piece){(m->key_heads + unit) * K * tail, K * tail};
    piece[2] = (kvf__mixer_piece){(2 * m->key_heads * K + unit * each * V) * tail, each * V * tail};
    piece[3] = (kvf__mixer_piece){kvf__mixer_channels(d) * tail + unit * each * K * V,
                                  each * K * V};
    return 4;
}

int64_t kvf__mixer_unit_state(const kvf__desc *d)
{
    kvf__mixer_piece piece[KVF__MIXER_PIECES];
    const int pieces = kvf__mixer_pieces(d, 0, piece);
    int64_t n = 0;

    for (int i = 0; i < pieces; i++)
        n += piece[i].n;
    return n;
}

void kvf__mixer_take(const kvf__desc *d, int64_t unit, const float *from, float *state)
{
    kvf__mixer_piece piece[KVF__MIXER_PIECES];
    const int pieces = kvf__mixer_pieces(d, unit, piece);

    for (int i = 0; i < pieces; state += piece[i++].n)
        if (from)
            memcpy(state, from + piece[i].at, (size_t)piece[i].n * sizeof *state);
        else
            memset(state, 0, (size_t)piece[i].n * sizeof *state);
}

void kvf__mixer_put(const kvf__desc *d, int64_t unit, const float *state, float *to)
{
    kvf__mixer_piece piece[KVF__MIXER_PIECES];
    const int pieces = kvf__mixer_pieces(d, unit, piece);

    for (int i = 0; i < pieces; state += piece[i++].n)
        memcpy(to + piece[i].at, state, (size_t)piece[i].n * sizeof *state);
}

/* ---- the convolution ------------------------------------------------------------------------- */

/* Columns of a matrix [n, ld] of the type act. */
typedef struct columns {
    const kvf__mixer_row *row;
    int64_t ld, first, n;
} columns;

static columns in_columns(const kvf__mixer_row *row, int64_t first, int64_t n)
{
    return (columns){row, kvf__shape_size(&row->model->desc, row->layer, "J"), first, n};
}

static void read_columns(const columns *c, const void *from, float *to)
{
    const kvf__dtype act = c->row->act;

    for (int64_t t = 0; t < c->row->n; t++)
        kvf__to_f32(act, (const char *)from + (size_t)(t * c->ld + c->first) * kvf__act_size(act),
                    to + t * c->n, c->n);
}

static void write_columns(const columns *c, const float *from, void *to)
{
    const kvf__dtype act = c->row->act;

    for (int64_t t = 0; t < c->row->n; t++)
        kvf__from_f32(act, from + t * c->n,
                      (char *)to + (size_t)(t * c->ld + c->first) * kvf__act_size(act), c->n);
}

/* Copies between a state [n, tail] and the rows [tail, n] before a row's own inputs. */
static void read_tail(const float *state, int64_t tail, int64_t n, float *x)
{
    for (int64_t j = 0; j < tail; j++)
        for (int64_t c = 0; c < n; c++)
            x[j * n + c] = state[c * tail + j];
}

static void write_tail(const float *x, int64_t tail, int64_t n, float *state)
{
    for (int64_t j = 0; j < tail; j++)
        for (int64_t c = 0; c < n; c++)
            state[c * tail + j] = x[j * n + c];
}

/* Computes y [n, W] of x [tail + n, W]; w: taps of the first channel, each [channels]. */
static void conv_fwd(const kvf__mixer_row *row, const float *w, int64_t W, const float *x, float *y)
{
    const kvf__desc *d = &row->model->desc;
    const int64_t channels = kvf__mixer_channels(d);

    for (int64_t t = 0; t < row->n; t++, y += W, x += W) {
        memset(y, 0, (size_t)W * sizeof *y);
        for (int64_t j = 0; j < d->mixer.kernel; j++)
            for (int64_t c = 0; c < W; c++)
                y[c] += w[j * channels + c] * x[j * W + c];
    }
}

/* Computes dx [tail + n, W] of dy [n, W]; dstate [W, tail]: gradient of the state after the row on
 * entry, of that before it on return. */
static void conv_bwd(const kvf__mixer_row *row, const float *w, int64_t W, const float *dy,
                     float *dstate, float *dx)
{
    const kvf__desc *d = &row->model->desc;
    const int64_t channels = kvf__mixer_channels(d), tail = tail_of(d);

    memset(dx, 0, (size_t)(row->n * W) * sizeof *dx);
    read_tail(dstate, tail, W, dx + row->n * W);
    for (int64_t t = 0; t < row->n; t++)
        for (int64_t j = 0; j < d->mixer.kernel; j++)
            for (int64_t c = 0; c < W; c++)
                dx[(t + j) * W + c] += w[j * channels + c] * dy[t * W + c];
    write_tail(dx, tail, W, dstate);
}

/* ---- short convolutions ---------------------------------------------------------------------- */

/* Arrays of a unit: [tail + n, W], the others [n, W]. */
typedef struct short_arrays {
    float *x, *b, *c, *in, *y, *dy, *dx;
} short_arrays;

static short_arrays short_at(const kvf__mixer_row *row, int64_t W)
{
    const int64_t n = row->n * W, tail = tail_of(&row->model->desc) * W;
    short_arrays a = {.x = row->scratch};

    a.b = a.x + tail + n;
    a.c = a.b + n;
    a.in = a.c + n;
    a.y = a.in + n;
    a.dy = a.y + n;
    a.dx = a.dy + n;
    return a;
}

/* Reads b, c and x, and computes y, the output of the convolution. */
static void short_conv(const kvf__mixer_row *row, int64_t W, const short_arrays *a)
{
    const kvf__desc *d = &row->model->desc;
    const int64_t first = row->unit * KVF__MIXER_CHANNELS, tail = tail_of(d);
    float *const to[] = {a->b, a->c, a->in};

    for (int i = 0; i < 3; i++) {
        const columns c = in_columns(row, i * d->C + first, W);
        read_columns(&c, row->in, to[i]);
    }
    read_tail(row->state, tail, W, a->x);
    for (int64_t i = 0; i < row->n * W; i++)
        a->x[tail * W + i] = a->b[i] * a->in[i];
    conv_fwd(row, row->model->layers[row->layer].mixer.conv + first, W, a->x, a->y);
}

static void short_fwd(const kvf__mixer_row *row)
{
    const kvf__desc *d = &row->model->desc;
    const int64_t W = channels_of(d, row->unit), first = row->unit * KVF__MIXER_CHANNELS;
    const short_arrays a = short_at(row, W);
    const columns out = {row, d->C, first, W};

    short_conv(row, W, &a);
    write_tail(a.x + row->n * W, tail_of(d), W, row->state);
    if (!row->out) return;
    for (int64_t i = 0; i < row->n * W; i++)
        a.y[i] *= a.c[i];
    write_columns(&out, a.y, row->out);
}

static void short_bwd(const kvf__mixer_row *row)
{
    const kvf__desc *d = &row->model->desc;
    const int64_t W = channels_of(d, row->unit), first = row->unit * KVF__MIXER_CHANNELS;
    const short_arrays a = short_at(row, W);
    const columns out = {row, d->C, first, W};
    float *const from[] = {a.b, a.c, a.in};

    short_conv(row, W, &a);
    read_columns(&out, row->dout, a.dy);
    for (int64_t i = 0; i < row->n * W; i++) {
        const float dy = a.dy[i];
        a.dy[i] = dy * a.c[i];
        a.c[i] = dy * a.y[i];
    }
    conv_bwd(row, row->model->layers[row->layer].mixer.conv + first, W, a.dy, row->dstate, a.dx);
    for (int64_t i = 0; i < row->n * W; i++) {
        const float dx = a.dx[tail_of(d) * W + i], b = a.b[i];
        a.b[i] = dx * a.in[i];
        a.in[i] = dx * b;
    }
    for (int i = 0; i < 3; i++) {
        const columns c = in_columns(row, i * d->C + first, W);
        write_columns(&c, from[i], row->din);
    }
}

/* ---- the gated delta rule -------------------------------------------------------------------- */

/* Arrays of a unit. W: the larger of K and V. */
typedef struct delta_arrays {
    float *x, *u, *slope;     /* [tail + n, W], [n, W]: input and output of a convolution, silu' */
    float *q, *k, *dq, *dk;   /* [n, K] of the key head */
    float *qr, *kr;           /* [n] factors that they were multiplied by */
    float *q_slope, *k_slope; /* [n, K] */
    float *v, *out, *dout, *dv, *z, *dz;    /* [n, V] of a value head */
    float *decay, *beta, *a, *dlog, *dbeta; /* [n] */
    float *start;                           /* [K, V] S before the row */
    float *delta;                           /* scratch of delta.h */
} delta_arrays;

/* Lays the arrays out from scratch memory on; returns their floats. scratch NULL: counts. */
static int64_t delta_lay(const kvf__desc *d, int64_t n, float *scratch, delta_arrays *a)
{
    const int64_t K = d->mixer.key_dim, V = d->mixer.value_dim, W = K > V ? K : V;
    const int64_t tail = tail_of(d);
    const struct {
        float **to;
        int64_t n;
    } list[] = {{&a->x, (tail + n) * W},
                {&a->u, (tail + n) * W},
                {&a->slope, n * W},
                {&a->q, n * K},
                {&a->k, n * K},
                {&a->dq, n * K},
                {&a->dk, n * K},
                {&a->qr, n},
                {&a->kr, n},
                {&a->q_slope, n * K},
                {&a->k_slope, n * K},
                {&a->v, n * V},
                {&a->out, n * V},
                {&a->dout, n * V},
                {&a->dv, n * V},
                {&a->z, n * V},
                {&a->dz, n * V},
                {&a->decay, n},
                {&a->beta, n},
                {&a->a, n},
                {&a->dlog, n},
                {&a->dbeta, n},
                {&a->start, K * V},
                {&a->delta, kvf__delta_scratch(n, K)}};
    int64_t at = 0;

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        *list[i].to = scratch ? scratch + at : NULL;
        at += (list[i].n + 15) / 16 * 16;
    }
    return at;
}

int64_t kvf__mixer_scratch(const kvf__desc *d, int64_t n)
{
    delta_arrays a;

    if (d->mixer.kind == KVF__MIXER_DELTA) return delta_lay(d, n, NULL, &a);
    return KVF__MIXER_CHANNELS * (7 * n + 2 * tail_of(d));
}

/* Computes y [n, W] = silu(conv(channels first .. first + W - 1)) and slope, silu' of it; advances
 * the state [W, tail]. */
static void activated_conv(const kvf__mixer_row *row, int64_t first, int64_t W, float *state,
                           const delta_arrays *a, float *y, float *slope)
{
    const kvf__model *m = row->model;
    const int64_t tail = tail_of(&m->desc);
    const columns c = in_columns(row, first, W);

    read_tail(state, tail, W, a->x);
    read_columns(&c, row->in, a->x + tail * W);
    write_tail(a->x + row->n * W, tail, W, state);
    conv_fwd(row, m->layers[row->layer].mixer.conv + first, W, a->x, slope);
    m->kernels->act_fwd(KVF__F32, KVF__SILU, slope, y, row->n * W);
}

/* Backward of activated_conv: dy [n, W] is overwritten; writes the columns of din. */
static void activated_conv_bwd(const kvf__mixer_row *row, int64_t first, int64_t W, float *dstate,
                               const delta_arrays *a, float *dy, const float *slope)
{
    const columns c = in_columns(row, first, W);

    for (int64_t i = 0; i < row->n * W; i++)
        dy[i] *= slope[i];
    conv_bwd(row, row->model->layers[row->layer].mixer.conv + first, W, dy, dstate, a->u);
    write_columns(&c, a->u + tail_of(&row->model->desc) * W, row->din);
}

/* Divides rows x [n, K] by their length, times `by`; keeps the factors. */
static void shorten(float *x, int64_t n, int64_t K, float by, float *factor)
{
    for (int64_t t = 0; t < n; t++, x += K) {
        float square = 0;
        for (int64_t i = 0; i < K; i++)
            square += x[i] * x[i];
        factor[t] = 1 / sqrtf(square + LENGTH_EPS);
        for (int64_t i = 0; i < K; i++)
            x[i] *= factor[t] * by;
    }
}

/* Turns dx from the gradient of shorten's output x into that of its input. */
static void shorten_bwd(const float *x, float *dx, int64_t n, int64_t K, float by,
                        const float *factor)
{
    for (int64_t t = 0; t < n; t++, x += K, dx += K) {
        float dot = 0;
        for (int64_t i = 0; i < K; i++)
            dot += x[i] * dx[i];
        for (int64_t i = 0; i < K; i++)
            dx[i] = factor[t] * (by * dx[i] - x[i] / by * dot);
    }
}

/* Computes queries and keys of the unit; advances their states. */
static void read_keys(const kvf__mixer_row *row, const delta_arrays *a)
{
    const kvf__mixer *m = &row->model->desc.mixer;
    const int64_t K = m->key_dim, tail = tail_of(&row->model->desc);

    activated_conv(row, row->unit * K, K, row->state, a, a->q, a->q_slope);
    activated_conv(row, (m->key_heads + row->unit) * K, K, row->state + K * tail, a, a->k,
                   a->k_slope);
    shorten(a->q, row->n, K, 1 / sqrtf((float)K), a->qr);
    shorten(a->k, row->n, K, 1, a->kr);
}

/* Computes value, beta, decay and gate of value head h; advances its convolution's state. */
static void read_values(const kvf__mixer_row *row, int64_t h, float *state, const delta_arrays *a)
{
    const kvf__desc *d = &row->model->desc;
    const kvf__layer *w = &row->model->layers[row->layer];
    const kvf__mixer *m = &d->mixer;
    const int64_t V = m->value_dim, channels = kvf__mixer_channels(d), heads = m->value_heads;
    const columns z = in_columns(row, channels + h * V, V),
                  b = in_columns(row, channels + heads * V + h, 1),
                  decay = in_columns(row, channels + heads * (V + 1) + h, 1);

    activated_conv(row, 2 * m->key_heads * m->key_dim + h * V, V, state, a, a->v, a->slope);
    read_columns(&z, row->in, a->z);
    read_columns(&b, row->in, a->beta);
    read_columns(&decay, row->in, a->a);
    for (int64_t t = 0; t < row->n; t++) {
        const float x = a->a[t] + w->mixer.step[h];
        a->beta[t] = kvf__sigmoid(a->beta[t]);
        a->a[t] = x;
        a->decay[t] = expf(w->mixer.rate[h] * (x > 20 ? x : log1pf(expf(x))));
    }
}

static kvf__delta delta_of(const kvf__mixer_row *row, float *S, const delta_arrays *a)
{
    const kvf__mixer *m = &row->model->desc.mixer;

    return (kvf__delta){.n = row->n,
                        .K = m->key_dim,
                        .V = m->value_dim,
                        .q = a->q,
                        .k = a->k,
                        .v = a->v,
                        .decay = a->decay,
                        .beta = a->beta,
                        .state = S,
                        .out = a->out,
                        .dout = a->dout,
                        .dq = a->dq,
                        .dk = a->dk,
                        .dv = a->dv,
                        .dlog_decay = a->dlog,
                        .dbeta = a->dbeta,
                        .scratch = a->delta};
}

static float rstd_of(const float *x, int64_t V, float eps)
{
    float square = 0;

    for (int64_t i = 0; i < V; i++)
        square += x[i] * x[i];
    return 1 / sqrtf(square / (float)V + eps);
}

/* Replaces out by gamma norm(out) silu(z). */
static void gate_fwd(const kvf__mixer_row *row, const delta_arrays *a)
{
    const kvf__desc *d = &row->model->desc;
    const int64_t V = d->mixer.value_dim;
    const float *gamma = row->model->layers[row->layer].mixer.gamma;

    row->model->kernels->act_fwd(KVF__F32, KVF__SILU, a->z, a->dz, row->n * V);
    for (int64_t t = 0; t < row->n; t++) {
        float *out = a->out + t * V;
        const float rstd = rstd_of(out, V, d->norm_eps), *g = a->dz + t * V;
        for (int64_t i = 0; i < V; i++)
            out[i] *= rstd * gamma[i] * g[i];
    }
}

/* Turns dout into the gradient of the delta rule's output `out`; z becomes its gradient. */
static void gate_bwd(const kvf__mixer_row *row, const delta_arrays *a)
{
    const kvf__desc *d = &row->model->desc;
    const int64_t V = d->mixer.value_dim;
    const float *gamma = row->model->layers[row->layer].mixer.gamma;

    row->model->kernels->act_fwd(KVF__F32, KVF__SILU, a->z, a->dz, row->n * V); /* z: silu' */
    for (int64_t t = 0; t < row->n; t++) {
        const float *out = a->out + t * V, *g = a->dz + t * V;
        float *dout = a->dout + t * V, *dz = a->z + t * V, dot = 0;
        const float rstd = rstd_of(out, V, d->norm_eps);
        for (int64_t i = 0; i < V; i++) {
            dz[i] *= dout[i] * gamma[i] * out[i] * rstd;
            dout[i] *= gamma[i] * g[i];
            dot += dout[i] * out[i];
        }
        dot *= rstd * rstd / (float)V;
        for (int64_t i = 0; i < V; i++)
            dout[i] = rstd * (dout[i] - out[i] * dot);
    }
}

/* Places of a value head's parts in a unit's state: [tails of q and k, of v by head, S by head]. */
static float *tail_at(const kvf__desc *d, int64_t i, float *state)
{
    return state + (2 * d->mixer.key_dim + i * d->mixer.value_dim) * tail_of(d);
}

static float *state_at(const kvf__desc *d, int64_t i, float *state)
{
    return tail_at(d, heads_of_key(d), state) + i * d->mixer.key_dim * d->mixer.value_dim;
}

static void delta_fwd(const kvf__mixer_row *row)
{
    const kvf__desc *d = &row->model->desc;
    const int64_t V = d->mixer.value_dim, each = heads_of_key(d);
    delta_arrays a;

    delta_lay(d, row->n, row->scratch, &a);
    read_keys(row, &a);
    for (int64_t i = 0; i < each; i++) {
        const int64_t h = value_head(d, row->unit, i);
        const columns out = {row, d->mixer.value_heads * V, h * V, V};
        read_values(row, h, tail_at(d, i, row->state), &a);
        const kvf__delta delta = delta_of(row, state_at(d, i, row->state), &a);
        row->model->kernels->delta_fwd(&delta);
        if (!row->out) continue;
        gate_fwd(row, &a);
        write_columns(&out, a.out, row->out);
    }
}

/* Writes the gradients of beta and decay from those of their functions. */
static void scalars_bwd(const kvf__mixer_row *row, int64_t h, const delta_arrays *a)
{
    const kvf__desc *d = &row->model->desc;
    const int64_t channels = kvf__mixer_channels(d), heads = d->mixer.value_heads,
                  V = d->mixer.value_dim;
    const float rate = row->model->layers[row->layer].mixer.rate[h];
    const columns b = in_columns(row, channels + heads * V + h, 1),
                  decay = in_columns(row, channels + heads * (V + 1) + h, 1),
                  z = in_columns(row, channels + h * V, V);

    for (int64_t t = 0; t < row->n; t++) {
        a->dbeta[t] *= a->beta[t] * (1 - a->beta[t]);
        a->dlog[t] *= rate * kvf__sigmoid(a->a[t]);
    }
    write_columns(&b, a->dbeta, row->din);
    write_columns(&decay, a->dlog, row->din);
    write_columns(&z, a->z, row->din);
}

static void delta_bwd(const kvf__mixer_row *row)
{
    const kvf__desc *d = &row->model->desc;
    const kvf__mixer *m = &d->mixer;
    const int64_t K = m->key_dim, V = m->value_dim, each = heads_of_key(d), tail = tail_of(d);
    const size_t n = (size_t)row->n * sizeof(float), S = (size_t)(K * V) * sizeof(float);
    delta_arrays a;

    delta_lay(d, row->n, row->scratch, &a);
    read_keys(row, &a);
    memset(a.dq, 0, n * (size_t)K);
    memset(a.dk, 0, n * (size_t)K);
    for (int64_t i = 0; i < each; i++) {
        const int64_t h = value_head(d, row->unit, i);
        const columns out = {row, m->value_heads * V, h * V, V};
        read_values(row, h, tail_at(d, i, row->state), &a);
        kvf__delta delta = delta_of(row, state_at(d, i, row->state), &a);
        memcpy(a.start, delta.state, S);
        row->model->kernels->delta_fwd(&delta);
        read_columns(&out, row->dout, a.dout);
        gate_bwd(row, &a);
        memset(a.dlog, 0, n);
        memset(a.dbeta, 0, n);
        delta.state = a.start;
        delta.dstate = state_at(d, i, row->dstate);
        row->model->kernels->delta_bwd(&delta);
        scalars_bwd(row, h, &a);
        activated_conv_bwd(row, 2 * m->key_heads * K + h * V, V, tail_at(d, i, row->dstate), &a,
                           a.dv, a.slope);
    }
    shorten_bwd(a.q, a.dq, row->n, K, 1 / sqrtf((float)K), a.qr);
    shorten_bwd(a.k, a.dk, row->n, K, 1, a.kr);
    activated_conv_bwd(row, row->unit * K, K, row->dstate, &a, a.dq, a.q_slope);
    activated_conv_bwd(row, (m->key_heads + row->unit) * K, K, row->dstate + K * tail, &a, a.dk,
                       a.k_slope);
}

void kvf__mixer_row_fwd(const kvf__mixer_row *row)
{
    if (row->model->desc.mixer.kind == KVF__MIXER_CONV)
        short_fwd(row);
    else
        delta_fwd(row);
}

void kvf__mixer_row_bwd(const kvf__mixer_row *row)
{
    if (row->model->desc.mixer.kind == KVF__MIXER_CONV)
        short_bwd(row);
    else
        delta_bwd(row);
}
