/* The list of a model's products, derived from its description. */
#include "products.h"
#include "names.h"

/* in, out: sizes of the whole dense layer, as words of the shape alphabet (arch.h). */
typedef struct row {
    const char *in, *out;
    bool adds;
    kvf__product_weights weights;
} row;

#define NO_NORM KVF__W_ROLES, KVF__W_ROLES
#define NORM1   KVF__W_NORM1, KVF__W_NORM1_BETA
#define NORM2   KVF__W_NORM2, KVF__W_NORM2_BETA
#define QKV_N   9
#define QKV                                                                                        \
    {                                                                                              \
        KVF__W_QKV, KVF__W_Q, KVF__W_K, KVF__W_V, KVF__W_Q, KVF__W_MIXER_IN, KVF__W_MIXER_GATE,    \
            KVF__W_MIXER_BETA, KVF__W_MIXER_DECAY                                                  \
    }
#define QKV_BIAS                                                                                   \
    {                                                                                              \
        KVF__W_QKV_BIAS, KVF__W_Q_BIAS, KVF__W_K_BIAS, KVF__W_V_BIAS, KVF__W_ROLES, KVF__W_ROLES,  \
            KVF__W_ROLES, KVF__W_ROLES, KVF__W_ROLES                                               \
    }
enum { GATE_OF_Q = 4 }; /* place of the gates in that list */

static const row ROWS[KVF__PRODUCT_KINDS] = {
    [KVF__PRODUCT_QKV] = {"C", "J", false, {QKV, QKV_BIAS, QKV_N, NORM1}},
    [KVF__PRODUCT_OUT] = {"A", "C", true, {{KVF__W_OUT}, {KVF__W_OUT_BIAS}, 1, NO_NORM}},
    [KVF__PRODUCT_UP] = {"C",
                         "F",
                         false,
                         {{KVF__W_UP, KVF__W_GATE_UP}, {KVF__W_UP_BIAS, KVF__W_ROLES}, 2, NORM2}},
    [KVF__PRODUCT_GATE] =
        {"C",
         "F",
         false,
         {{KVF__W_GATE, KVF__W_GATE_UP}, {KVF__W_GATE_BIAS, KVF__W_ROLES}, 2, NORM2}},
    [KVF__PRODUCT_DOWN] = {"F", "C", true, {{KVF__W_DOWN}, {KVF__W_DOWN_BIAS}, 1, NO_NORM}},
    [KVF__PRODUCT_INPUT_GATE] = {"C",
                                 "I",
                                 false,
                                 {{KVF__W_INPUT_GATE}, {KVF__W_ROLES}, 1, NO_NORM}},
    [KVF__PRODUCT_INPUT_DOWN] = {"I", "C", true, {{KVF__W_INPUT_DOWN}, {KVF__W_ROLES}, 1, NO_NORM}},
    [KVF__PRODUCT_HEAD] = {"C",
                           "V",
                           false,
                           {{KVF__W_HEAD}, {KVF__W_HEAD_BIAS}, 1, KVF__W_FINAL, KVF__W_FINAL_BETA}},
    [KVF__PRODUCT_Q] = {"C", "HD", false, {{KVF__W_Q}, {KVF__W_Q_BIAS}, 1, NORM1}},
    [KVF__PRODUCT_KV] = {"C",
                         "2GD",
                         false,
                         {{KVF__W_K, KVF__W_V},
                          {KVF__W_K_BIAS, KVF__W_V_BIAS},
                          2,
                          KVF__W_ENCODER_FINAL,
                          KVF__W_ROLES}},
};

const kvf__product_weights *kvf__product_weights_of(kvf__product_kind kind)
{
    return &ROWS[kind].weights;
}

int64_t kvf__ffn_planes(int64_t F)
{
    return (F + KVF__PLANE - 1) / KVF__PLANE;
}

kvf__plane kvf__ffn_plane(int64_t F, int64_t p)
{
    const int64_t n = kvf__ffn_planes(F), unit = F % 16 ? 1 : 16, units = F / unit;
    const int64_t more = units % n; /* number of planes that are one unit wider */

    return (kvf__plane){.start = (units / n * p + (p < more ? p : more)) * unit,
                        .width = (units / n + (p < more)) * unit};
}

int64_t kvf__vocab_width(int64_t V, int64_t p)
{
    const int64_t left = V - p * KVF__VOCAB_PLANE;
    return left < KVF__VOCAB_PLANE ? left : KVF__VOCAB_PLANE;
}

kvf__product kvf__product_of(const kvf__desc *desc, int64_t unit, kvf__product_kind kind,
                             int64_t plane)
{
    const int64_t k = kvf__shape_size(desc, unit, ROWS[kind].in),
                  n = kvf__shape_size(desc, unit, ROWS[kind].out);
    const kvf__layer_shape layer = kvf__desc_layer(desc, unit);
    const kvf__plane ffn = kvf__ffn_plane(layer.F, plane);
    kvf__product p = {.kind = kind,
                      .unit = unit,
                      .plane = plane,
                      .n = n,
                      .all_n = n,
                      .k = k,
                      .all_k = k,
                      .adds = ROWS[kind].adds};

    if (kind == KVF__PRODUCT_UP || kind == KVF__PRODUCT_GATE) {
        const bool fused = kvf__weight_by_role(desc, KVF__W_GATE_UP) != NULL;
        p.n0 = ffn.start + (fused && kind == KVF__PRODUCT_UP ? layer.F : 0);
        p.n = ffn.width;
        if (fused) p.all_n = 2 * layer.F;
        /* added to gate's */
        p.gradient_adds = plane || (desc->block.gated && kind == KVF__PRODUCT_UP);
    } else if (kind == KVF__PRODUCT_DOWN) {
        p.k0 = ffn.start;
        p.k = ffn.width;
    } else if (kind == KVF__PRODUCT_KV) {
        p.gradient_adds = true; /* added to that of other layers */
    } else if (kind == KVF__PRODUCT_HEAD) {
        p.n0 = plane * KVF__VOCAB_PLANE;
        p.n = kvf__vocab_width(desc->V, plane);
        p.gradient_adds = true;
    }
    p.n_padded = kind == KVF__PRODUCT_HEAD ? KVF__VOCAB_PLANE : p.n;
    if (kind == KVF__PRODUCT_QKV && layer.from != unit) p.n = p.all_n = desc->H * layer.D;
    return p;
}

/* Lists the products before the planes: of the attention half kv first, q, out, or qkv and out;
 * then those of the half that reads the layer's input. */
static size_t products_before(const kvf__desc *desc, int64_t layer, kvf__product_kind kinds[4])
{
    const bool cross = kvf__layer_place(desc, layer) == KVF__PLACE_CROSS;
    size_t n = 0;

    if (cross) kinds[n++] = KVF__PRODUCT_KV;
    kinds[n++] = cross ? KVF__PRODUCT_Q : KVF__PRODUCT_QKV;
    kinds[n++] = KVF__PRODUCT_OUT;
    if (!desc->by_layer.inputs) return n;
    kinds[n++] = KVF__PRODUCT_INPUT_GATE;
    kinds[n++] = KVF__PRODUCT_INPUT_DOWN;
    return n;
}

size_t kvf__products_of_layer(const kvf__desc *desc, int64_t l)
{
    kvf__product_kind kinds[4];
    const size_t before = products_before(desc, l, kinds);
    const size_t planes = (size_t)kvf__ffn_planes(kvf__desc_layer(desc, l).F);

    return before + (kvf__layer_feeds(desc, l) ? (desc->block.gated ? 3 : 2) * planes : 0);
}

bool kvf__product_at(const kvf__desc *desc, int64_t unit, size_t i, kvf__product *out)
{
    static const kvf__product_kind FFN[] = {KVF__PRODUCT_UP, KVF__PRODUCT_GATE, KVF__PRODUCT_DOWN};
    const size_t each = desc->block.gated ? 3 : 2;
    kvf__product_kind kinds[4];

    if (unit >= desc->L) {
        *out = kvf__product_of(desc, unit, KVF__PRODUCT_HEAD, unit - desc->L);
        return i == 0;
    }
    const size_t before = products_before(desc, unit, kinds);
    if (i >= kvf__products_of_layer(desc, unit)) return false;
    if (i < before) {
        *out = kvf__product_of(desc, unit, kinds[i], 0);
        return true;
    }
    const size_t at = (i - before) % each;
    const kvf__product_kind kind = FFN[at == 1 && !desc->block.gated ? 2 : at];
    *out = kvf__product_of(desc, unit, kind, (int64_t)((i - before) / each));
    return true;
}

/* The lowest layer's backward pass ends at its prefix, before qkv. The last layer runs on labelled
 * rows from attention's output on. Cross-attention's keys have a backward pass if the encoder has
 * one. */
double kvf__model_work(const kvf__model *model, int64_t from, int64_t lowest, kvf__work_rows share,
                       bool head)
{
    const kvf__desc *d = &model->desc;
    double all = 0;
    kvf__product p;

    for (int64_t unit = from; unit < d->L + (head ? model->lm.n : 0); unit++)
        for (size_t i = 0; kvf__product_at(d, unit, i, &p); i++) {
            const bool qkv = p.kind == KVF__PRODUCT_QKV;
            const bool source = unit < d->encoder || p.kind == KVF__PRODUCT_KV;
            const bool labelled = unit >= d->L || (unit == d->L - 1 && !qkv);
            const double rows = source ? share.source : labelled ? share.labels : 1;
            const bool back = p.kind == KVF__PRODUCT_KV ? lowest < d->encoder
                              : qkv                     ? unit > lowest
                                                        : unit >= lowest;
            all += (1 + back) * rows * (double)p.k * (double)p.n;
        }
    return all;
}

kvf__packed_pair *kvf__vocab_plane(const kvf__model *model, int64_t p)
{
    return &model->lm.planes[model->store.late ? 0 : p];
}

kvf__packed_pair *kvf__product_packed(const kvf__model *model, const kvf__product *p)
{
    if (p->kind == KVF__PRODUCT_HEAD) return kvf__vocab_plane(model, p->plane);
    kvf__layer_weights *w = model->layers[p->unit].w;
    kvf__packed_pair *const pairs[] = {
        [KVF__PRODUCT_QKV] = &w->qkv,
        [KVF__PRODUCT_OUT] = &w->out,
        [KVF__PRODUCT_UP] = &w->up[p->plane],
        [KVF__PRODUCT_GATE] = &w->gate[p->plane],
        [KVF__PRODUCT_DOWN] = &w->down[p->plane],
        [KVF__PRODUCT_INPUT_GATE] = &w->input_gate,
        [KVF__PRODUCT_INPUT_DOWN] = &w->input_down,
        [KVF__PRODUCT_Q] = &w->qkv,
        [KVF__PRODUCT_KV] = &w->kv,
    };
    return pairs[p->kind];
}

/* The head is never eight-bit: probabilities need more precision. */
kvf__dtype kvf__product_type(const kvf__model *model, const kvf__product *p)
{
    return model->int8 && p->kind != KVF__PRODUCT_HEAD ? KVF__I8 : model->act;
}

kvf__dtype kvf__product_dst(const kvf__model *model, const kvf__product *p)
{
    return p->adds || p->kind == KVF__PRODUCT_HEAD ? KVF__F32 : model->act;
}

const kvf__slot *kvf__product_slot(const kvf__desc *desc, const kvf__slots *slots,
                                   const kvf__product *p, int i, const kvf__slot **bias)
{
    const kvf__product_weights *of = &ROWS[p->kind].weights;
    const bool k_is_v = p->unit < desc->L && kvf__desc_layer(desc, p->unit).k_is_v;

    for (int at = 0; at < of->n; at++) {
        const bool again = k_is_v && of->weight[at] == KVF__W_V;
        if (at == GATE_OF_Q && !desc->block.out_gate) continue;
        const kvf__slot *slot = kvf__slot_of(desc, slots, again ? KVF__W_K : of->weight[at],
                                             p->unit);
        if (!slot || i-- > 0) continue;
        if (bias) *bias = kvf__slot_of(desc, slots, of->bias[at], p->unit);
        return slot;
    }
    return NULL;
}

void kvf__product_rows(const kvf__desc *desc, const kvf__slot *slot, int i, int64_t *first,
                       int64_t *rows)
{
    const bool gated = desc->block.out_gate && slot->role == KVF__W_Q;

    *rows = kvf__slot_rows(slot) / (gated ? 2 : 1);
    *first = gated && i ? *rows : 0;
}

int64_t kvf__padded_rows(const kvf__model *model, int64_t n)
{
    int64_t step = n <= 8 ? 1 : n <= 64 ? 8 : model->row_step;
    return (n + step - 1) / step * step;
}
