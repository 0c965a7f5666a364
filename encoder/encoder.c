/* The table of encoder kinds and their common part: parameter memory, initial values, loading by
 * name. A kind works on a flat view [P, width]: PEFT's layout [P, 2*L*G*D] of a prefix (prefix.h),
 * or the vectors themselves. */
#include "arena.h"
#include "encoder_priv.h"
#include "rng.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const kvf__encoder_kind *const KINDS[] = {&kvf__enc_mlp,          &kvf__enc_direct,
                                                 &kvf__enc_projected,    &kvf__enc_prompt,
                                                 &kvf__enc_ptuning_lstm, &kvf__enc_ptuning_mlp};
#define N_KINDS (sizeof KINDS / sizeof KINDS[0])
static const double MOST_RESIDUAL = 1e-2; /* largest relative residual that counts as reached */

static const kvf__encoder_kind *find_kind(const char *method, const char *form)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (!strcmp(KINDS[i]->method, method) &&
            (!form || (KINDS[i]->form && !strcmp(KINDS[i]->form, form))))
            return KINDS[i];
    return NULL;
}

bool kvf__encoder_needs_projections(const char *method)
{
    const kvf__encoder_kind *kind = find_kind(method, NULL);
    return kind && kind->projected;
}

bool kvf__encoder_reaches(const char *method)
{
    const kvf__encoder_kind *kind = find_kind(method, NULL);
    return kind && kind->shift;
}

static void lay(void *object, kvf__carver *carver)
{
    kvf__encoder *e = object;
    const int64_t P = e->shape.P, between = e->lstm.layer[0] ? 2 * e->shape.M : 0;
    int64_t work = 0;

    for (size_t i = 0; i < e->params.n; i++) {
        kvf__param *param = &e->params.item[i];
        param->value = kvf__carve(carver, param->n, 1, sizeof(float));
        if (!param->outer) param->grad = kvf__carve(carver, param->n, 1, sizeof(float));
    }
    e->flat = kvf__carve(carver, P, e->width, sizeof(float));
    for (int i = 0; i < e->n_linears; i++) {
        kvf__encoder_linear *l = &e->linears[i];
        bool last = i + 1 == e->n_linears;
        if (e->params.item[l->weight].outer) l->x = kvf__carve(carver, P, l->in, sizeof(float));
        l->dy = last ? e->flat : kvf__carve(carver, P, l->out, sizeof(float));
    }
    e->lstm.between = kvf__carve(carver, P, between, sizeof(float));
    e->lstm.dbetween = kvf__carve(carver, P, between, sizeof(float));
    e->lstm.dy = kvf__carve(carver, P, between, sizeof(float));
    for (int64_t l = 0; e->kind->projected && l < e->projections.L; l++) {
        const int64_t n = (int64_t)kvf__kv_projection_work(&e->projections.layer[l], P);
        if (n > work) work = n;
    }
    if (work) e->work = kvf__carve(carver, work, 1, sizeof(float));
}

static kvf_status build(kvf_ctx *ctx, const char *method, const kvf__encoder_shape *shape,
                        kvf__encoder *encoder)
{
    const kvf__encoder_kind *kind = find_kind(method, shape->form);
    const kvf__method *row = kvf__method_find(method);
    if (!kind || !row)
        return kvf__fail(ctx, KVF_EUSAGE, "method \"%s\" is not known; known: %s", method,
                         KVF__METHOD_NAMES);
    if (shape->P < (shape->neurons.N ? 0 : 1))
        return kvf__fail(ctx, KVF_EUSAGE, "prefix length must be at least 1");
    if (kind->hidden && shape->P && shape->M < 1)
        return kvf__fail(ctx, KVF_EUSAGE, "hidden width of the encoder must be at least 1");
    encoder->kind = kind;
    encoder->shape = *shape;
    encoder->shape.projections = NULL;
    const kvf__kv_shape kv = kvf__encoder_kv(shape);
    encoder->shape.heads = NULL;
    KVF_TRY(kvf__kv_copy_heads(ctx, &kv, &encoder->heads));
    encoder->shape.heads = encoder->heads;
    if (!kind->hidden) encoder->shape.M = 0;
    encoder->shape.form = kind->form;
    encoder->method = row;
    encoder->width = row->port == KVF__PORT_EMBED ? shape->C : 2 * kvf__kv_at(&kv, kv.L).width;
    if (encoder->emits_neurons)
        encoder->width = shape->neurons.L * kvf__neuron_values(&shape->neurons);
    if (!shape->P) return KVF_OK;
    KVF_TRY(kind->describe(ctx, encoder));
    return kvf__carve_block(ctx, lay, encoder, &encoder->memory);
}

/* Returns the hidden width of the neurons' part. Its last layer emits three vectors of width C for
 * each layer, so with the full width it would be most of the memory of a run. N outputs need at
 * least N hidden units; twice as many keep the solve for the start well conditioned. */
static int64_t hidden_of_neurons(int64_t M, int64_t N)
{
    const int64_t least = M / 4 > 2 * N ? M / 4 : 2 * N;
    return least < M ? least : M;
}

/* Builds the second part. */
static kvf_status build_neurons(kvf_ctx *ctx, const char *method, const kvf__encoder_shape *shape,
                                kvf__encoder *encoder)
{
    kvf__encoder_shape own = *shape;
    if (!shape->neurons.N) return KVF_OK;
    own.P = shape->neurons.N;
    own.C = shape->neurons.C;
    own.M = shape->neurons_M ? shape->neurons_M : hidden_of_neurons(shape->M, shape->neurons.N);
    KVF_TRY(kvf__alloc(ctx, sizeof *encoder->next, &encoder->next));
    encoder->next->emits_neurons = true;
    return build(ctx, method, &own, encoder->next);
}

/* Lists the parameters of both parts; the list of a single part is its own. */
static kvf_status list_parts(kvf_ctx *ctx, kvf__encoder *encoder)
{
    for (const kvf__encoder *part = encoder; part && encoder->next; part = part->next)
        KVF_TRY(kvf__params_append(ctx, &encoder->all, &part->params));
    return kvf__params_append(ctx, &encoder->all_steps, &encoder->all);
}

kvf_status kvf__encoder_create(kvf_ctx *ctx, const char *method, const kvf__encoder_shape *shape,
                               kvf__encoder **out)
{
    kvf__encoder *encoder = NULL;
    kvf_status st = kvf__alloc(ctx, sizeof *encoder, &encoder);
    if (st && shape->projections) kvf__kv_projections_done(shape->projections);
    if (st) return st;
    if (shape->projections) {
        encoder->projections = *shape->projections;
        *shape->projections = (kvf__kv_projections){0};
    }
    st = build(ctx, method, shape, encoder);
    if (!st) st = build_neurons(ctx, method, shape, encoder);
    if (!st) st = list_parts(ctx, encoder);
    KVF__GIVE(st, out, encoder, kvf__encoder_free(encoder));
    return st;
}

void kvf__encoder_free(kvf__encoder *encoder)
{
    if (!encoder) return;
    kvf__encoder_free(encoder->next);
    kvf__params_done(&encoder->all);
    kvf__params_done(&encoder->all_steps);
    for (int i = 0; i < KVF__ENCODER_LSTMS; i++)
        kvf__lstm_free(encoder->lstm.layer[i]);
    kvf__params_done(&encoder->params);
    kvf__params_done(&encoder->natural.list);
    kvf__free(encoder->natural.memory);
    kvf__kv_projections_done(&encoder->projections);
    kvf__free(encoder->names);
    kvf__free(encoder->heads);
    kvf__free(encoder->memory);
    kvf__free(encoder);
}

const kvf__method *kvf__encoder_method(const kvf__encoder *encoder)
{
    return encoder->method;
}

const kvf__encoder_shape *kvf__encoder_shape_of(const kvf__encoder *encoder)
{
    return &encoder->shape;
}

kvf__params *kvf__encoder_params(kvf__encoder *encoder)
{
    if (!encoder->next) return &encoder->params;
    encoder->all.n = 0; /* gradients and rates may have moved; there is room for all */
    for (const kvf__encoder *part = encoder; part; part = part->next)
        for (size_t i = 0; i < part->params.n; i++)
            encoder->all.item[encoder->all.n++] = part->params.item[i];
    return &encoder->all;
}

/* Aborts on another shape, which is a bug: shapes are checked where files and options are read. */
static void expect_shape(const kvf__encoder *encoder, kvf__emitted e)
{
    const kvf__encoder_shape *s = &encoder->shape;
    bool kv = encoder->method->port == KVF__PORT_KV;
    assert(kv ? e.prefix && !e.vectors : e.vectors && !e.prefix);
    const kvf__kv_shape want = kvf__encoder_kv(s);
    const kvf__kv_shape have = kv ? kvf__prefix_shape(e.prefix) : want;
    bool fits = kv ? e.prefix->P == s->P && kvf__kv_same(&have, &want)
                   : e.vectors->P == s->P && e.vectors->C == s->C;
    if (encoder->next) fits = fits && kvf__neuron_shape_same(&e.prefix->neurons.shape, &s->neurons);
    assert(fits);
    (void)fits;
}

kvf_status kvf__encoder_fwd(kvf_ctx *ctx, kvf__encoder *encoder, kvf__emitted out)
{
    expect_shape(encoder, out);
    if (out.vectors) return encoder->kind->fwd(ctx, encoder, out.vectors->x);
    for (kvf__encoder *part = encoder; part; part = part->next) {
        if (part->shape.P) KVF_TRY(part->kind->fwd(ctx, part, part->flat));
        if (part->emits_neurons)
            kvf__neurons_from_flat(&out.prefix->neurons, part->flat);
        else if (part->shape.P)
            kvf__prefix_from_flat(out.prefix, part->flat);
    }
    kvf__prefix_clear_masked(out.prefix);
    return KVF_OK;
}

/* Writes what a part emits to its flat view. */
static void to_flat(const kvf__encoder *part, const kvf__emitted *emitted, float *flat)
{
    if (emitted->vectors)
        memcpy(flat, emitted->vectors->x, (size_t)(part->shape.P * part->width) * sizeof *flat);
    else if (part->emits_neurons)
        kvf__neurons_to_flat(&emitted->prefix->neurons, flat);
    else
        kvf__prefix_to_flat(emitted->prefix, flat);
}

kvf_status kvf__encoder_bwd(kvf_ctx *ctx, kvf__encoder *encoder, kvf__emitted gradient)
{
    expect_shape(encoder, gradient);
    for (kvf__encoder *part = encoder; part; part = part->next) {
        if (!part->shape.P) continue;
        to_flat(part, &gradient, part->flat);
        KVF_TRY(part->kind->bwd(ctx, part));
    }
    return KVF_OK;
}

/* ---- starting values ------------------------------------------------------------------------- */

static void fill_normal(const kvf__param *param, double deviation, uint64_t seed, uint64_t stream)
{
    kvf__rng rng = kvf__rng_make(seed, stream);
    for (int64_t i = 0; i < param->n; i++)
        param->value[i] = (float)(deviation * kvf__rng_normal(&rng));
}

static void fill_uniform(const kvf__param *param, double bound, uint64_t seed, uint64_t stream)
{
    kvf__rng rng = kvf__rng_make(seed, stream);
    for (int64_t i = 0; i < param->n; i++)
        param->value[i] = (float)(bound * (2 * kvf__rng_uniform(&rng) - 1));
}

static void fill_zero(const kvf__param *param)
{
    memset(param->value, 0, (size_t)param->n * sizeof(float));
}

/* Returns the number of inputs of the layer that owns parameter i; for an LSTM, its state size. */
static int64_t inputs_of(const kvf__encoder *encoder, size_t i)
{
    for (int l = 0; l < encoder->n_linears; l++)
        if (i == encoder->linears[l].weight || i == encoder->linears[l].weight + 1)
            return encoder->linears[l].in;
    return encoder->shape.M ? encoder->shape.M : 1;
}

void kvf__encoder_init_random(kvf__encoder *encoder, bool ptuning_v2, uint64_t seed)
{
    /* as in torch: an embedding N(0, 1), an LSTM or a linear layer U(+-1/sqrt(inputs)) */
    const bool small = ptuning_v2 || encoder->kind->projected;
    if (encoder->next) kvf__encoder_init_random(encoder->next, ptuning_v2, seed + 1);
    for (size_t i = 0; i < encoder->params.n; i++) {
        const kvf__param *param = &encoder->params.item[i];
        if (small && param->rank == 1)
            fill_zero(param);
        else if (small || i == 0)
            fill_normal(param, small ? 0.02 : 1, seed, i);
        else
            fill_uniform(param, 1 / sqrt((double)inputs_of(encoder, i)), seed, i);
    }
}

kvf_status kvf__encoder_init_zero(kvf_ctx *ctx, kvf__encoder *encoder)
{
    const kvf__kv_projection *base = encoder->kind->projected ? encoder->projections.layer : NULL;
    if (base && (base->bk || base->bv))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--init zero: method projected emits the biases of this base, not zeros");
    /* with linear layers only the last one: weight and bias */
    for (size_t i = encoder->n_linears ? encoder->params.n - 2 : 0; i < encoder->params.n; i++)
        fill_zero(&encoder->params.item[i]);
    return KVF_OK;
}

void kvf__encoder_init_words(kvf__encoder *encoder, const float *words, int64_t stride)
{
    for (size_t l = 0; l < encoder->params.n; l++)
        memcpy(encoder->params.item[l].value, words + (int64_t)l * stride,
               (size_t)encoder->params.item[l].n * sizeof(float));
}

/* Sets change = want - emitted in f64; returns |change| / |want|. */
static double distance(const float *want, const float *emitted, double *change, size_t n)
{
    double diff = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        change[i] = (double)want[i] - (double)emitted[i];
        diff += change[i] * change[i];
        norm += (double)want[i] * (double)want[i];
    }
    return norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}

/* Makes a part emit `want` [P, width]. */
static kvf_status reach(kvf_ctx *ctx, kvf__encoder *part, const float *want, double *change,
                        double *residual)
{
    const size_t n = (size_t)(part->shape.P * part->width);
    /* The second shift corrects the rounding of the solved weights to f32. The last round only
     * measures. */
    for (int round = 0; round < 3; round++) {
        KVF_TRY(part->kind->fwd(ctx, part, part->flat));
        *residual = distance(want, part->flat, change, n);
        if (round < 2) KVF_TRY(part->kind->shift(ctx, part, change));
    }
    return KVF_OK;
}

/* Makes a part emit what it emits of the target. */
static kvf_status reach_target(kvf_ctx *ctx, kvf__encoder *part, const kvf__emitted *target,
                               double *residual)
{
    if (!part->kind->shift)
        return kvf__fail(ctx, KVF_EUSAGE, "method %s cannot start from a given prefix",
                         part->kind->method);
    size_t n = (size_t)(part->shape.P * part->width);
    double *change = NULL, left = 0;
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *change + sizeof(float), &change));
    float *want = (float *)(void *)(change + n);
    to_flat(part, target, want);
    kvf_status st = reach(ctx, part, want, change, &left);
    kvf__free(change);
    if (!st) *residual = left;
    return st;
}

kvf_status kvf__encoder_init_target(kvf_ctx *ctx, kvf__encoder *encoder, kvf__emitted target,
                                    double *residual)
{
    expect_shape(encoder, target);
    *residual = 0;
    return encoder->shape.P ? reach_target(ctx, encoder, &target, residual) : KVF_OK;
}

kvf_status kvf__encoder_init_neurons(kvf_ctx *ctx, kvf__encoder *encoder,
                                     const kvf__neurons *target, double *residual)
{
    kvf__prefix alone = {.neurons = *target};
    /* from a last layer of zeros, so that the columns of zeros stay zero */
    KVF_TRY(kvf__encoder_init_zero(ctx, encoder->next));
    return reach_target(ctx, encoder->next, &(kvf__emitted){.prefix = &alone}, residual);
}

kvf_status kvf__encoder_check_fit(kvf_ctx *ctx, const kvf__encoder *encoder, const char *where,
                                  double residual, bool approximate)
{
    if (approximate || residual <= MOST_RESIDUAL) return KVF_OK;
    return kvf__fail(
        ctx, KVF_EUSAGE,
        "%s: method %s with M = %lld reaches a relative error of %.1e, want at most %.0e: use a "
        "wider --encoder-hidden (P is %lld), or --approximate to accept the error",
        where, encoder->kind->method, (long long)encoder->shape.M, residual, MOST_RESIDUAL,
        (long long)encoder->shape.P);
}

static bool same_dims(const kvf__param *a, const kvf__param *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]);
}

kvf_status kvf__encoder_load(kvf_ctx *ctx, kvf__encoder *encoder, const char *where,
                             const kvf__params *from)
{
    char found[128], want[128];
    if (encoder->next) KVF_TRY(kvf__encoder_load(ctx, encoder->next, where, from));
    for (size_t i = 0; i < encoder->params.n; i++) {
        const kvf__param *param = &encoder->params.item[i],
                         *source = kvf__params_find(from, param->name);
        if (!source) return kvf__fail(ctx, KVF_EFORMAT, "%s: %s is missing", where, param->name);
        if (!same_dims(param, source))
            return kvf__fail(ctx, KVF_ESHAPE, "%s: %s is %s, want %s", where, param->name,
                             kvf__shape_text(found, source->rank, source->dim),
                             kvf__shape_text(want, param->rank, param->dim));
    }
    for (size_t i = 0; i < encoder->params.n; i++) {
        kvf__param *param = &encoder->params.item[i];
        memcpy(param->value, kvf__params_find(from, param->name)->value,
               (size_t)param->n * sizeof(float));
    }
    return KVF_OK;
}

static kvf_status read_param(kvf_ctx *ctx, const kvf__param *param, const char *where,
                             const kvf__table *table)
{
    char found[128], want[128];
    const kvf__view *view = kvf__table_find(table, param->name);
    if (!view) return kvf__fail(ctx, KVF_EFORMAT, "%s: %s is missing", where, param->name);
    bool fits = view->rank == param->rank &&
                !memcmp(view->dim, param->dim, (size_t)param->rank * sizeof param->dim[0]);
    if (!fits || !kvf__dtype_is_float(view->dtype))
        return kvf__fail(ctx, KVF_ESHAPE, "%s: %s is %s %s, want a float tensor %s", where,
                         param->name, kvf__dtype_name(view->dtype),
                         kvf__shape_text(found, view->rank, view->dim),
                         kvf__shape_text(want, param->rank, param->dim));
    kvf__to_f32(view->dtype, view->data, param->value, param->n);
    return KVF_OK;
}

kvf_status kvf__encoder_read_table(kvf_ctx *ctx, kvf__encoder *encoder, const char *where,
                                   const kvf__table *table)
{
    const kvf__params *all = kvf__encoder_params(encoder);
    const kvf__encoder *next = encoder->next;
    for (size_t i = 0; i < table->n; i++)
        if (!kvf__params_find(all, table->items[i].name))
            return kvf__fail(ctx, KVF_EFORMAT, "%s: %s is not a parameter of method %s%s", where,
                             table->items[i].name, encoder->kind->method,
                             next ? "" : " without neurons");
    if (!next || !kvf__table_find(table, next->params.item[0].name)) all = &encoder->params;
    for (size_t i = 0; i < all->n; i++)
        KVF_TRY(read_param(ctx, &all->item[i], where, table));
    return KVF_OK;
}

kvf_status kvf__encoder_lr_units(kvf_ctx *ctx, kvf__encoder *encoder, bool per_parameter, double *k)
{
    if (encoder->next) KVF_TRY(kvf__encoder_lr_units(ctx, encoder->next, per_parameter, k + 1));
    for (size_t i = 0; i < encoder->params.n; i++)
        encoder->params.item[i].lr_scale = 1;
    if (per_parameter) {
        *k = 1;
        return KVF_OK;
    }
    const bool measures = encoder->kind->lr_units && encoder->params.n;
    *k = measures ? *k : 1;
    return measures ? encoder->kind->lr_units(ctx, encoder, k) : KVF_OK;
}

void kvf__encoder_scale_neurons(kvf__encoder *encoder, double factor)
{
    if (!encoder->next) return;
    for (size_t i = 0; i < encoder->next->params.n; i++)
        encoder->next->params.item[i].lr_scale *= factor;
    kvf__params *steps = &encoder->next->natural.list;
    if (steps->n) steps->item[steps->n - 1].lr_scale *= factor;
}

void kvf__encoder_slow_below_last(kvf__encoder *encoder, double factor)
{
    if (!encoder->n_linears) return;
    const size_t last = encoder->linears[encoder->n_linears - 1].weight;
    for (size_t i = 0; i < last; i++)
        encoder->params.item[i].lr_scale *= factor;
}
