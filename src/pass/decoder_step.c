/* A step of generation: one parallel region, in which every thread computes its part of each
 * layer's rows and waits five times for the others:
 *
 *   norm, q k v of its heads, rope, cache | attention of its heads | out | norm, its part of the
 *   feed-forward width | down
 *
 * Each number is computed by one thread in a fixed order, so bits do not depend on the number of
 * threads. The blocks are those of pass_fwd.c, with unfolded norms. */
#include "attention.h"
#include "decoder_priv.h"
#include "names.h"
#include "pass_inputs.h"
#include "team.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { ROWS_UNIT = 16 }; /* rows of a matrix are divided in such units: a cache line of y */

typedef kvf__worker worker;

static void part_of(const worker *w, int64_t total, int64_t unit, int64_t *from, int64_t *to)
{
    kvf__team_part(total, unit, w->t, w->n, from, to);
}

/* ---- products -------------------------------------------------------------------------------- */

/* Multiplies rows first .. first + n - 1 of a matrix, in file order, with x; y: the column for
 * `first`. */
static void multiply(const worker *w, const kvf__raw *raw, int64_t first, int64_t n, const float *x,
                     float *y, int64_t ldy, bool add)
{
    const kvf__view *view = &raw->slot->view;
    const kvf__matvec_call call = {.w = (const uint8_t *)view->data +
                                        (size_t)(raw->first + first) *
                                            kvf__matvec_row_bytes(view->dtype, raw->K),
                                   .dtype = view->dtype,
                                   .n = n,
                                   .K = raw->K,
                                   .x = x,
                                   .M = w->step->n,
                                   .ldx = raw->K,
                                   .y = y,
                                   .ldy = ldy,
                                   .add = add,
                                   .bf16 = w->decoder->model->act == KVF__BF16 && !w->step->as_one,
                                   .scratch = w->own->product};

    if (n > 0) w->decoder->matvec->run(&call);
}

static void add_bias(const worker *w, const float *bias, int64_t n, float *y, int64_t ldy)
{
    for (int64_t m = 0; bias && m < w->step->n; m++)
        for (int64_t i = 0; i < n; i++)
            y[m * ldy + i] += bias[i];
}

/* Computes this thread's rows of a matrix, as columns of y. */
static void multiply_part(const worker *w, const kvf__raw *raw, const float *x, float *y, bool add)
{
    int64_t from, to;
    part_of(w, raw->rows, ROWS_UNIT, &from, &to);
    multiply(w, raw, from, to - from, x, y + from, raw->rows, add);
    add_bias(w, raw->bias ? raw->bias + from : NULL, to - from, y + from, raw->rows);
}

/* Applies a norm, if any, to n rows of x [n, C], into this thread's xhat. */
static void normalise_rows(const worker *w, const kvf__raw_norm *norm, const float *x, int64_t n)
{
    const kvf__desc *d = &w->decoder->model->desc;
    const int64_t C = d->C;

    if (!norm->gamma) {
        memcpy(w->own->xhat, x, (size_t)(n * C) * sizeof *x);
        return;
    }
    w->decoder->model->kernels->norm_fwd(KVF__F32, w->own->xhat, w->own->rstd, x, n, C,
                                         d->block.norm == KVF__RMSNORM, d->norm_eps);
    for (int64_t m = 0; m < n; m++) {
        float *row = w->own->xhat + m * C;
        for (int64_t c = 0; c < C; c++)
            row[c] *= norm->gamma[c];
        for (int64_t c = 0; norm->beta && c < C; c++)
            row[c] += norm->beta[c];
    }
}

static void normalise(const worker *w, const kvf__raw_norm *norm)
{
    normalise_rows(w, norm, w->decoder->x, w->step->n);
}

/* ---- virtual neurons ------------------------------------------------------------------------- */

/* Returns the neurons of row m in layer l; NULL: none. */
static const kvf__neurons *neurons_of(const worker *w, int64_t l, int64_t m)
{
    const kvf__prefix *prefix = kvf__step_row_at(w->step, m).condition.prefix;
    const kvf__neurons *neurons = prefix ? &prefix->neurons : NULL;
    return neurons && neurons->shape.N && neurons->layer_mask[l] ? neurons : NULL;
}

/* Computes this thread's part of a product of row m with the keys [N, C]. */
static void multiply_keys(const worker *w, const float *keys, const float *bias, int64_t N,
                          int64_t m, float *h)
{
    const int64_t C = w->decoder->model->desc.C;
    int64_t from, to;

    part_of(w, N, ROWS_UNIT, &from, &to);
    const kvf__matvec_call call = {.w = (const uint8_t *)(keys + from * C),
                                   .dtype = KVF__F32,
                                   .n = to - from,
                                   .K = C,
                                   .x = w->own->xhat + m * C,
                                   .M = 1,
                                   .ldx = C,
                                   .y = h + from,
                                   .ldy = N,
                                   .scratch = w->own->product};
    if (from < to) w->decoder->matvec->run(&call);
    for (int64_t i = from; bias && i < to; i++)
        h[i] += bias[i];
}

/* Computes this thread's part of the neurons' activations of every row. */
static void widen_neurons(const worker *w, int64_t l)
{
    const kvf__decoder *decoder = w->decoder;
    int64_t from, to;

    for (int64_t m = 0; m < w->step->n; m++) {
        const kvf__neurons *neurons = neurons_of(w, l, m);
        if (!neurons) continue;
        const kvf__neurons_layer at = kvf__neurons_at(neurons, l);
        const int64_t N = neurons->shape.N, row = m * decoder->neurons;
        multiply_keys(w, at.key, at.bias, N, m, decoder->n1 + row);
        if (at.up) multiply_keys(w, at.up, NULL, N, m, decoder->n2 + row);
        part_of(w, N, ROWS_UNIT, &from, &to);
        if (from < to)
            kvf__model_activate(decoder->model, KVF__F32, decoder->n1 + row + from,
                                at.up ? decoder->n2 + row + from : NULL, decoder->ng + row + from,
                                to - from);
    }
}

/* Adds the neurons' output to this thread's columns of y [n, C]. */
static void add_neurons(const worker *w, int64_t l, float *y)
{
    const int64_t C = w->decoder->model->desc.C;
    int64_t from, to;

    part_of(w, C, ROWS_UNIT, &from, &to);
    for (int64_t m = 0; m < w->step->n; m++) {
        const kvf__neurons *neurons = neurons_of(w, l, m);
        const float *g = w->decoder->ng + m * w->decoder->neurons, *value;
        if (!neurons) continue;
        value = kvf__neurons_at(neurons, l).value;
        for (int64_t i = 0; i < neurons->shape.N; i++, value += C)
            for (int64_t c = from; c < to; c++)
                y[m * C + c] += g[i] * value[c];
    }
}

/* Adds a half's last product, and the neurons of layer l (-1: none), to the stream, after a norm if
 * there is one. */
static void add_half(const worker *w, const kvf__raw *raw, const kvf__raw_norm *norm,
                     const float *in, int64_t l)
{
    const kvf__decoder *decoder = w->decoder;
    const int64_t C = decoder->model->desc.C;

    if (!norm->gamma) {
        multiply_part(w, raw, in, decoder->x, true);
        if (l >= 0) add_neurons(w, l, decoder->x);
        kvf__team_wait(w->team, w->n);
        return;
    }
    multiply_part(w, raw, in, decoder->half, false);
    if (l >= 0) add_neurons(w, l, decoder->half);
    kvf__team_wait(w->team, w->n);
    for (int64_t m = w->t; m < w->step->n; m += w->n) {
        normalise_rows(w, norm, decoder->half + m * C, 1);
        for (int64_t c = 0; c < C; c++)
            decoder->x[m * C + c] += w->own->xhat[c];
    }
    kvf__team_wait(w->team, w->n);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Computes 1 / rms over all queries of every row, and over all keys, if these are normed as one.
 * Every thread repeats it. */
static void find_whole_rstd(const worker *w)
{
    const kvf__desc *d = &w->decoder->model->desc;

    for (int64_t m = 0; m < w->step->n; m++)
        for (int i = 0; i < 2; i++) {
            const int64_t n = (i ? d->G : d->H) * d->D, first = i ? d->H * d->D : 0;
            const float *x = w->decoder->qkv + m * (d->H + 2 * d->G) * d->D + first;
            double square = 0;
            for (int64_t c = 0; c < n; c++)
                square += (double)x[c] * (double)x[c];
            w->own->whole_rstd[i * w->decoder->rows + m] =
                (float)(1 / sqrt(square / (double)n + (double)d->norm_eps));
        }
}

/* Applies RMSNorm to head h of row m's queries or keys, alone or as a part of all heads. */
static void normalise_head(const worker *w, int64_t l, float *head, int64_t m, int64_t h)
{
    const kvf__desc *d = &w->decoder->model->desc;
    const int64_t D = kvf__desc_layer(d, l).D;
    const float *gamma = w->decoder->model->layers[l].head_gamma + h * D;

    if (d->block.qk_norm == KVF__QK_WHOLE) {
        const float rstd = w->own->whole_rstd[(h >= d->H) * w->decoder->rows + m];
        for (int64_t i = 0; i < D; i++)
            head[i] *= rstd * gamma[i];
        return;
    }
    w->decoder->model->kernels->norm_fwd(KVF__F32, w->own->head, w->own->rstd, head, 1, D, true,
                                         d->norm_eps);
    for (int64_t i = 0; i < D; i++)
        head[i] = w->own->head[i] * gamma[i];
}

static void rotate(const worker *w, int64_t l, float *head, int64_t position)
{
    const kvf__model *m = w->decoder->model;
    const int64_t half = kvf__desc_layer(&m->desc, l).R / 2;
    const kvf__rope_table *table = kvf__rope_of(m, l);
    const float *c = table->cos + position * half, *s = table->sin + position * half;

    for (int64_t i = 0; i < half; i++) {
        const float a = head[i], b = head[i + half];
        head[i] = a * c[i] - b * s[i];
        head[i + half] = b * c[i] + a * s[i];
    }
}

/* Returns the cache address of key or value head h of row m's token. */
static char *cached_head(const worker *w, const kvf__layer_shape *layer, int64_t m, int64_t h)
{
    const kvf__cache *cache = w->decoder->cache;
    const int64_t H = w->decoder->model->desc.H, kv = h >= H + layer->G;
    const int64_t g = h - H - kv * layer->G, slot = kvf__row_slot(w->step->slot, m);
    const int64_t token = kvf__step_length(w->decoder, w->step, m);
    const int64_t at = (g * cache->reserved[slot] + token) * layer->D;

    return (char *)kvf__cache_at(cache, layer->from, slot, (int)kv) +
           (size_t)at * kvf__act_size(cache->act);
}

/* Finishes head h of row m of qkv, counted over q, k and v: norm, rope and bias. A key or value is
 * stored in the cache; shared ones come from their layer. */
static void finish_head(const worker *w, int64_t l, int64_t m, int64_t h)
{
    const kvf__desc *d = &w->decoder->model->desc;
    const kvf__layer_shape layer = kvf__desc_layer(d, l);
    const kvf__dtype act = w->decoder->cache->act;
    float *head = w->decoder->qkv + m * kvf__qkv_width(d, l) + h * layer.D;

    if (h >= d->H + 2 * layer.G) return; /* a gate */
    if (h >= d->H && layer.from != l) {
        kvf__to_f32(act, cached_head(w, &layer, m, h), head, layer.D);
        return;
    }
    if (d->block.qk_norm && (h < d->H + layer.G || d->block.v_norm))
        normalise_head(w, l, head, m, h);
    if (d->position.kind == KVF__POS_ROPE && h < d->H + layer.G)
        rotate(w, l, head, w->decoder->position[m]);
    const float by = h < d->H ? kvf__query_scale(&d->position, w->decoder->position[m]) : 1;
    for (int64_t i = 0; by != 1 && i < layer.D; i++)
        head[i] *= by;
    if (h >= d->H) kvf__from_f32(act, head, cached_head(w, &layer, m, h), layer.D);
}

/* Reorders a head from the products' order to that of Hugging Face (slot.c), and adds its bias. */
static void place_head(const worker *w, const kvf__raw *raw, float *head, int64_t D,
                       const float *bias)
{
    if (raw->slot->permuted_heads) {
        memcpy(w->own->head, head, (size_t)D * sizeof *head);
        for (int64_t i = 0; i < D; i++)
            head[i / 2 + i % 2 * (D / 2)] = w->own->head[i];
    }
    for (int64_t i = 0; bias && i < D; i++)
        head[i] += bias[i];
}

/* Computes heads from .. to - 1 of q, k, v and gates. */
static void project_heads(const worker *w, int64_t l, int64_t from, int64_t to)
{
    const kvf__desc *d = &w->decoder->model->desc;
    const kvf__layer_shape layer = kvf__desc_layer(d, l);
    const int64_t D = layer.D, ld = kvf__qkv_width(d, l);
    float *qkv = w->decoder->qkv;
    int64_t first = 0; /* first head of a part */

    for (int i = 0; i < 4; i++) {
        const kvf__raw *raw = &w->decoder->layers[l].qkv[i];
        if (!raw->slot) break;
        const int64_t end = first + raw->rows / D;
        const int64_t a = from > first ? from : first, b = to < end ? to : end;
        for (int64_t h = a; raw->slot->file_by_head && h < b; h++) {
            const int64_t own = h - first + raw->first / D; /* among the heads of the matrix */
            multiply(w, raw, (own % d->H * raw->slot->parts + own / d->H) * D - raw->first, D,
                     w->own->xhat, qkv + h * D, ld, false);
        }
        if (a < b && !raw->slot->file_by_head)
            multiply(w, raw, (a - first) * D, (b - a) * D, w->own->xhat, qkv + a * D, ld, false);
        for (int64_t h = a; h < b; h++)
            for (int64_t m = 0; m < w->step->n; m++)
                place_head(w, raw, qkv + m * ld + h * D, D,
                           raw->bias ? raw->bias + (h - first) * D : NULL);
        first = end;
    }
}

/* Computes this thread's heads of q, k and v. */
static void project(const worker *w, int64_t l)
{
    const kvf__desc *d = &w->decoder->model->desc;
    int64_t from, to;

    part_of(w, kvf__qkv_width(d, l) / kvf__desc_layer(d, l).D, 1, &from, &to);
    project_heads(w, l, from, to);
    if (d->block.qk_norm == KVF__QK_WHOLE) {
        kvf__team_wait(w->team, w->n);
        find_whole_rstd(w);
        kvf__team_wait(w->team, w->n);
    }
    for (int64_t h = from; h < to; h++)
        for (int64_t m = 0; m < w->step->n; m++)
            finish_head(w, l, m, h);
}

/* Computes this thread's columns of the first product of a mixer. */
static void project_mixer(const worker *w, int64_t l)
{
    const int64_t J = kvf__qkv_width(&w->decoder->model->desc, l);
    int64_t first = 0, from, to;

    for (int i = 0; i < 4; i++) {
        const kvf__raw *raw = &w->decoder->layers[l].qkv[i];
        if (!raw->slot) break;
        part_of(w, raw->rows, ROWS_UNIT, &from, &to);
        multiply(w, raw, from, to - from, w->own->xhat, w->decoder->qkv + first + from, J, false);
        first += raw->rows;
    }
}

/* Sets the segments before each row in layer l: its prefix, and its cache. */
static void lay_segments(const worker *w, int64_t l)
{
    const kvf__cache *cache = w->decoder->cache;
    const int64_t from = kvf__desc_layer(&w->decoder->model->desc, l).from;
    kvf__kvseg *segs = w->own->segs;

    for (int64_t m = 0; m < w->step->n; m++) {
        const int64_t slot = kvf__row_slot(w->step->slot, m);
        segs[2 * m] = kvf__prefix_segment(kvf__step_row_at(w->step, m).condition.prefix, from,
                                          NULL);
        segs[2 * m + 1] = kvf__cache_segment(cache, from, slot);
        segs[2 * m + 1].len = kvf__step_length(w->decoder, w->step, m);
        w->own->rows[m] = (kvf__attn_row){
            .start = m, .len = 1, .n_segs = 2, .seg = {(int32_t)(2 * m), (int32_t)(2 * m + 1)}};
    }
}

/* Multiplies the output of head h of row m by the sigmoid of its gate. */
static void apply_gate(const worker *w, int64_t l, int64_t m, int64_t h)
{
    const kvf__desc *d = &w->decoder->model->desc;
    const int64_t J = kvf__qkv_width(d, l), D = kvf__desc_layer(d, l).D;
    const float *gate = w->decoder->qkv + (m + 1) * J - (d->H - h) * D;
    float *out = w->decoder->att + (m * d->H + h) * D;

    for (int64_t c = 0; c < D; c++)
        out[c] *= kvf__sigmoid(gate[c]);
}

/* Computes this thread's pairs of a row and a query head. */
static void attend(const worker *w, int64_t l)
{
    const kvf__desc *d = &w->decoder->model->desc;
    kvf__attn attn = kvf__model_attn(w->decoder->model, l);
    int64_t from, to;

    attn.segs = w->own->segs;
    attn.N = w->step->n;
    attn.act = KVF__F32;
    attn.qkv = w->decoder->qkv;
    attn.out = w->decoder->att;
    attn.lse = w->decoder->lse;
    lay_segments(w, l);
    part_of(w, w->step->n * d->H, 1, &from, &to);
    for (int64_t i = from; i < to; i++) {
        w->decoder->model->kernels->attn_head(&attn, &w->own->rows[i / d->H], i % d->H,
                                              w->own->attention);
        if (d->block.out_gate) apply_gate(w, l, i / d->H, i % d->H);
    }
}

/* ---- feed-forward ---------------------------------------------------------------------------- */

static void widen(const worker *w, const kvf__raw_layer *layer)
{
    const kvf__decoder *decoder = w->decoder;
    const int64_t F = layer->up.rows;
    int64_t from, to;

    multiply_part(w, decoder->h2 ? &layer->gate : &layer->up, w->own->xhat, decoder->h1, false);
    if (decoder->h2) multiply_part(w, &layer->up, w->own->xhat, decoder->h2, false);
    part_of(w, F, ROWS_UNIT, &from, &to);
    for (int64_t at = from; at < w->step->n * F && from < to; at += F)
        kvf__model_activate(decoder->model, KVF__F32, decoder->h1 + at,
                            decoder->h2 ? decoder->h2 + at : NULL, decoder->g + at, to - from);
}

/* ---- inputs of layers (pass_inputs.c) -------------------------------------------------------- */

/* Computes the inputs of all layers, from the embeddings. */
static void make_inputs(const worker *w)
{
    const kvf__decoder *decoder = w->decoder;
    const kvf__model *model = decoder->model;
    const int64_t I = model->desc.by_layer.inputs, LI = model->desc.L * I;

    if (!decoder->inputs_of.slot) return;
    multiply_part(w, &decoder->inputs_of, decoder->x, decoder->inputs, false);
    kvf__team_wait(w->team, w->n);
    for (int64_t m = w->t; m < w->step->n; m += w->n) {
        kvf__slot_row(&model->inputs.tokens, w->step->ids[m], w->own->of_token);
        for (int64_t at = 0; at < LI; at += I)
            kvf__finish_input(model, decoder->inputs + m * LI + at, w->own->of_token + at);
    }
    kvf__team_wait(w->team, w->n);
}

/* Runs the half that reads layer l's input, and scales the stream. */
static void read_input(const worker *w, int64_t l)
{
    const kvf__decoder *decoder = w->decoder;
    const kvf__model *model = decoder->model;
    const kvf__raw_layer *layer = &decoder->layers[l];
    const int64_t I = model->desc.by_layer.inputs, C = model->desc.C;
    const float *scale = model->layers[l].scale;
    int64_t from, to;

    if (layer->input_gate.slot) {
        multiply_part(w, &layer->input_gate, decoder->x, decoder->h1, false);
        part_of(w, I, ROWS_UNIT, &from, &to);
        for (int64_t m = 0; m < w->step->n && from < to; m++)
            kvf__model_activate(model, KVF__F32, decoder->h1 + m * I + from,
                                decoder->inputs + (m * model->desc.L + l) * I + from,
                                decoder->g + m * I + from, to - from);
        kvf__team_wait(w->team, w->n);
        add_half(w, &layer->input_down, &layer->out_norm3, decoder->g, -1);
    }
    if (!scale) return;
    for (int64_t m = w->t; m < w->step->n; m += w->n)
        for (int64_t c = 0; c < C; c++)
            decoder->x[m * C + c] *= *scale;
    kvf__team_wait(w->team, w->n);
}

/* ---- the step -------------------------------------------------------------------------------- */

static void embed(const worker *w)
{
    const kvf__model *m = w->decoder->model;

    for (int64_t r = w->t; r < w->step->n; r += w->n)
        kvf__embed_sum(m, m->embed.stack, w->step->ids[r], 0, w->decoder->position[r],
                       w->decoder->x + r * m->desc.C, w->own->xhat);
}

static const kvf__slot *head_of(const worker *w, int64_t r)
{
    const kvf__slot *own = kvf__step_row_at(w->step, r).head;
    return own ? own : w->decoder->head.slot;
}

/* Computes logits; adjacent rows with the same head share a product. */
static void multiply_heads(const worker *w)
{
    const kvf__raw *base = &w->decoder->head;
    for (int64_t r = 0, end; r < w->step->n; r = end) {
        const kvf__raw head = {.slot = head_of(w, r), .rows = base->rows, .K = base->K};
        kvf__step part = *w->step;
        worker own = *w;
        for (end = r + 1; end < w->step->n && head_of(w, end) == head.slot;)
            end++;
        part.n = end - r;
        own.step = &part;
        multiply_part(&own, &head, w->own->xhat + r * base->K, w->logits + r * base->rows, false);
    }
}

static void work(const worker *w)
{
    const kvf__decoder *decoder = w->decoder;

    embed(w);
    kvf__team_wait(w->team, w->n);
    make_inputs(w);
    for (int64_t l = 0; l < decoder->model->desc.L; l++) {
        const kvf__raw_layer *layer = &decoder->layers[l];
        const bool mixes = kvf__layer_mixes(&decoder->model->desc, l);
        normalise(w, &layer->norm1);
        if (mixes)
            project_mixer(w, l);
        else
            project(w, l);
        kvf__team_wait(w->team, w->n);
        if (mixes)
            kvf__decoder_mix(w, l);
        else
            attend(w, l);
        kvf__team_wait(w->team, w->n);
        const bool parallel = decoder->model->desc.block.parallel;
        if (parallel) { /* norm of the stream before the attention half adds to it */
            normalise(w, &layer->norm2);
            kvf__team_wait(w->team, w->n);
        }
        add_half(w, &layer->out, &layer->out_norm1, decoder->att, -1);
        if (!parallel) normalise(w, &layer->norm2);
        widen(w, layer);
        widen_neurons(w, l);
        kvf__team_wait(w->team, w->n);
        add_half(w, &layer->down, &layer->out_norm2, decoder->g, l);
        read_input(w, l);
    }
    normalise(w, &decoder->final);
    multiply_heads(w);
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Checks and sets the row's position. */
static kvf_status check_position(kvf_ctx *ctx, const kvf__decoder *decoder, const kvf__step *step,
                                 int64_t r)
{
    const kvf__desc *d = &decoder->model->desc;
    const kvf__step_row before = kvf__step_row_at(step, r);
    const int64_t position = before.condition.position_start + kvf__step_length(decoder, step, r),
                  P = before.condition.prefix ? before.condition.prefix->P : 0;

    if (before.condition.position_start < 0 || position >= d->position.max)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "step: row %lld is at position %lld after a prefix of %lld, but the model "
                         "has %lld positions",
                         (long long)r, (long long)position, (long long)P,
                         (long long)d->position.max);
    decoder->position[r] = (int32_t)(d->position.first + position);
    return KVF_OK;
}

static kvf_status check_row(kvf_ctx *ctx, const kvf__decoder *decoder, const kvf__step *step,
                            int64_t r)
{
    const kvf__desc *d = &decoder->model->desc;
    const kvf__cache *cache = decoder->cache;
    const int64_t slot = kvf__row_slot(step->slot, r);

    if (step->ids[r] < 0 || step->ids[r] >= d->V)
        return kvf__fail(ctx, KVF_ESHAPE, "step: row %lld has id %ld, the vocabulary ends at %lld",
                         (long long)r, (long)step->ids[r], (long long)d->V - 1);
    if (slot < 0 || slot >= cache->slots ||
        kvf__step_length(decoder, step, r) >= cache->reserved[slot])
        return kvf__fail(
            ctx, KVF_ESHAPE,
            "step: row %lld in slot %lld, but the cache has %lld slots of at most %lld tokens",
            (long long)r, (long long)slot, (long long)cache->slots, (long long)cache->capacity);
    for (int64_t other = 0; other < r - kvf__step_behind(step, r); other++)
        if (kvf__row_slot(step->slot, other) == slot)
            return kvf__fail(ctx, KVF_ESHAPE, "step: rows %lld and %lld both use slot %lld",
                             (long long)other, (long long)r, (long long)slot);
    KVF_TRY(kvf__prefix_check(ctx, decoder->model, kvf__step_row_at(step, r).condition.prefix,
                              decoder->P, decoder->neurons));
    return check_position(ctx, decoder, step, r);
}

static kvf_status check_step(kvf_ctx *ctx, const kvf__decoder *decoder, const kvf__step *step)
{
    if (step->n < 1 || step->n > decoder->rows)
        return kvf__fail(ctx, KVF_ESHAPE, "step: %lld rows, the decoder was made for 1 to %lld",
                         (long long)step->n, (long long)decoder->rows);
    for (int64_t r = 0; r < step->n; r++)
        KVF_TRY(check_row(ctx, decoder, step, r));
    return KVF_OK;
}

kvf_status kvf__decoder_step(kvf_ctx *ctx, kvf__decoder *decoder, const kvf__step *step,
                             float *logits)
{
    kvf__team team;

    KVF_TRY(kvf__ctx_check_stop(ctx));
    KVF_TRY(check_step(ctx, decoder, step));
    KVF_TRY(kvf__rope_extend(ctx, decoder->model, decoder->position, step->n));
    kvf__team_init(&team);
#pragma omp parallel num_threads(decoder->threads)
    {
        const int t = omp_get_thread_num(), n = omp_get_num_threads();
        const worker w = {.decoder = decoder,
                          .step = step,
                          .team = &team,
                          .own = &decoder->own[t],
                          .logits = logits,
                          .t = t,
                          .n = n};
        work(&w);
    }
    if (decoder->model->desc.factors.logit_cap > 0)
        kvf__cap_logits(decoder->model->desc.factors.logit_cap, logits,
                        step->n * decoder->model->desc.V);
    for (int64_t r = 0; r < step->n; r++)
        decoder->cache->length[kvf__row_slot(step->slot, r)]++;
    return KVF_OK;
}
