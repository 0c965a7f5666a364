/* The natural step of a reparameterized prefix (docs/maths.md): the optimizer keeps moments
 * of the emitted prefix, as for method direct, and the last layer realises the resulting step.
 *
 *   emitted = A W^T, A = [h | 1], W = [W2 | b2]       wanted: emitted += change
 *   W += change^T (A A^T + ridge)^-1 A                the smallest such W, up to the ridge
 *
 * The gradients of all virtual tokens meet in every weight of W2. With moments per weight the
 * tokens slow each other down by about sqrt(P). Here each moves independently, and the moments need
 * only P/M of the memory. */
#include "arena.h"
#include "encoder_priv.h"
#include "matmul.h"

#include <string.h>

bool kvf__encoder_is_reparameterized(const kvf__encoder *encoder)
{
    const int linears = encoder->next ? encoder->next->n_linears : encoder->n_linears;
    return encoder->method->port == KVF__PORT_KV && linears > 0;
}

static void lay(void *object, kvf__carver *carver)
{
    kvf__encoder *e = object;
    const int64_t P = e->shape.P;
    e->natural.change = kvf__carve(carver, P, e->width, sizeof(float));
    e->natural.solved = kvf__carve(carver, P, e->width, sizeof(float));
    e->natural.inverse = kvf__carve(carver, P, P, sizeof(float));
    e->natural.gram = kvf__carve(carver, 2 * P, P, sizeof(double));
}

kvf_status kvf__encoder_make_natural(kvf_ctx *ctx, kvf__encoder *encoder)
{
    kvf__params *list = &encoder->natural.list;

    if (encoder->next) KVF_TRY(kvf__encoder_make_natural(ctx, encoder->next));
    if (!encoder->shape.P) return KVF_OK;
    const kvf__encoder_linear *last = &encoder->linears[encoder->n_linears - 1];
    for (size_t i = 0; i < last->weight; i++)
        KVF_TRY(kvf__params_add(ctx, list, &encoder->params.item[i]));
    KVF_TRY(kvf__carve_block(ctx, lay, encoder, &encoder->natural.memory));
    const kvf__param prefix = {.name = encoder->emits_neurons ? "neurons" : "prefix",
                               .value = encoder->natural.change,
                               .grad = encoder->flat,
                               .rank = 2,
                               .dim = {encoder->shape.P, encoder->width},
                               .n = encoder->shape.P * encoder->width,
                               .lr_scale = 1};
    return kvf__params_add(ctx, list, &prefix);
}

/* Returns the list of one part. */
static const kvf__params *steps_of(kvf__encoder *part)
{
    kvf__params *list = &part->natural.list;
    if (!list->n) return &part->params;
    /* the last item's rate stays */
    memcpy(list->item, part->params.item, (list->n - 1) * sizeof *list->item);
    return list;
}

const kvf__params *kvf__encoder_steps(kvf__encoder *encoder)
{
    kvf__params *all = &encoder->all_steps; /* has room for all parameters */
    if (!encoder->next) return steps_of(encoder);
    all->n = 0;
    for (kvf__encoder *part = encoder; part; part = part->next) {
        const kvf__params *own = steps_of(part);
        for (size_t i = 0; i < own->n; i++)
            all->item[all->n++] = own->item[i];
    }
    return all;
}

void kvf__encoder_values_by_muon(kvf__encoder *encoder)
{
    for (kvf__encoder *part = encoder; part; part = part->next) {
        kvf__params *list = part->natural.list.n ? &part->natural.list : &part->params;
        kvf__param *values = list->n ? &list->item[list->n - 1] : NULL;
        if (!values) continue;
        values->muon_heads = part->emits_neurons ? 1 : part->shape.G;
        values->muon_width = part->emits_neurons ? part->shape.C : part->shape.D;
        values->muon_unit = part->emits_neurons ? kvf__neuron_values(&part->shape.neurons)
                                                : 2 * part->shape.G * part->shape.D;
    }
}

kvf_status kvf__encoder_take_step(kvf_ctx *ctx, kvf__encoder *encoder, double decay)
{
    const int64_t P = encoder->shape.P, N = encoder->width;
    float *solved = encoder->natural.solved, *change = encoder->natural.change;

    if (encoder->next) KVF_TRY(kvf__encoder_take_step(ctx, encoder->next, decay));
    if (!encoder->natural.list.n) return KVF_OK;
    const kvf__encoder_linear *last = &encoder->linears[encoder->n_linears - 1];
    float *w = encoder->params.item[last->weight].value;
    float *b = encoder->params.item[last->weight + 1].value;
    kvf__last_layer_inverse(encoder->natural.inverse, encoder->natural.gram, last->x, P, last->in);
    KVF_TRY(kvf__sgemm(ctx, false, false, P, N, P, encoder->natural.inverse, P, change, N, 0,
                       solved, N));
    KVF_TRY(kvf__sgemm(ctx, true, false, N, last->in, P, solved, N, last->x, last->in, (float)decay,
                       w, last->in));
    for (int64_t n = 0; n < N; n++) {
        float sum = 0;
        for (int64_t p = 0; p < P; p++)
            sum += solved[p * N + n];
        b[n] = (float)decay * b[n] + sum;
    }
    memset(change, 0, (size_t)(P * N) * sizeof *change);
    return KVF_OK;
}
