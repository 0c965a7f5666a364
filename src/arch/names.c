/* Names and shapes from the weight rows of arch.c: filling in patterns, evaluating shape words, and
 * finding slots by role.
 *
 * A pattern's '#' is the layer number; a shape word is a product of letters of the shape
 * alphabet. */
#include "names.h"
#include "slot.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

bool kvf__name_format(char out[KVF__NAME_BYTES], const char *prefix, const char *pattern,
                      int64_t layer)
{
    const char *mark = strchr(pattern, '#');
    int n;

    if (mark)
        n = snprintf(out, KVF__NAME_BYTES, "%s%.*s%lld%s", prefix, (int)(mark - pattern), pattern,
                     (long long)layer, mark + 1);
    else
        n = snprintf(out, KVF__NAME_BYTES, "%s%s", prefix, pattern);
    return n > 0 && n < KVF__NAME_BYTES;
}

bool kvf__name_matches(const char *name, const char *pattern)
{
    for (; *pattern; pattern++) {
        if (*pattern != '#') {
            if (*name++ != *pattern) return false;
            continue;
        }
        if (!isdigit((unsigned char)*name)) return false;
        while (isdigit((unsigned char)*name))
            name++;
    }
    return !*name;
}

bool kvf__role_is_norm(kvf__role role)
{
    switch (role) {
    case KVF__W_EMBED_NORM:
    case KVF__W_EMBED_NORM_BETA:
    case KVF__W_NORM1:
    case KVF__W_NORM1_BETA:
    case KVF__W_Q_NORM:
    case KVF__W_K_NORM:
    case KVF__W_OUT_NORM1:
    case KVF__W_NORM2:
    case KVF__W_NORM2_BETA:
    case KVF__W_OUT_NORM2:
    case KVF__W_INPUT_NORM:
    case KVF__W_OUT_NORM3:
    case KVF__W_MIXER_NORM:
    case KVF__W_FINAL:
    case KVF__W_FINAL_BETA:
        return true;
    default:
        return false;
    }
}

bool kvf__weight_in_layer(const kvf__weight *weight)
{
    return strchr(weight->hf, '#') != NULL;
}

static bool is_wanted(const kvf__desc *desc, const kvf__weight *weight, int64_t layer)
{
    const kvf__layer_shape shape = kvf__desc_layer(desc, layer);

    if ((weight->flags & KVF__W_NOT_FIRST) && !layer) return false;
    if ((weight->flags & KVF__W_IF_KV) && shape.from != layer) return false;
    if ((weight->flags & KVF__W_IF_V) && shape.k_is_v) return false;
    if ((weight->flags & KVF__W_IF_INPUTS) && !desc->by_layer.inputs) return false;
    if ((weight->flags & KVF__W_IF_ATTENTION) && kvf__layer_mixes(desc, layer)) return false;
    if ((weight->flags & KVF__W_IF_MIXER) && !kvf__layer_mixes(desc, layer)) return false;
    if ((weight->flags & KVF__W_IF_QKV) && !desc->block.qkv_bias) return false;
    if ((weight->flags & KVF__W_IF_OUT) && !desc->block.out_bias) return false;
    if ((weight->flags & KVF__W_IF_MLP) && !desc->block.mlp_bias) return false;
    if ((weight->flags & KVF__W_IF_QK_NORM) && !desc->block.qk_norm) return false;
    if ((weight->flags & KVF__W_IF_HEAD_BIAS) && !desc->head_bias) return false;
    if ((weight->flags & KVF__W_IF_UNTIED) && (desc->tied || desc->headless)) return false;
    if ((weight->flags & KVF__W_IF_EMBED_OUT) && desc->E == desc->C) return false;
    if ((weight->flags & KVF__W_IF_GATED) && !desc->block.gated) return false;
    if ((weight->flags & KVF__W_IF_PLAIN) && desc->block.gated) return false;
    return true;
}

/* Returns whether the weight exists in layers of this place. */
static bool in_place(const kvf__desc *desc, const kvf__weight *weight, int64_t layer)
{
    static const unsigned PLACES[] = {[KVF__PLACE_ONLY] = ~0u,
                                      [KVF__PLACE_ENCODER] = KVF__W_IN_ENCODER,
                                      [KVF__PLACE_DECODER] = KVF__W_IN_DECODER,
                                      [KVF__PLACE_CROSS] = KVF__W_IN_CROSS};
    const unsigned places = weight->flags & KVF__W_PLACES;

    return !places || places & PLACES[kvf__layer_place(desc, layer)];
}

/* Returns the columns of the first product of a layer's attention half, or of its mixer. */
static int64_t in_width(const kvf__desc *desc, const kvf__layer_shape *layer)
{
    const kvf__mixer *m = &desc->mixer;

    if (layer->G || !m->kind)
        return (desc->H * (1 + desc->block.out_gate) + 2 * layer->G) * layer->D;
    if (m->kind == KVF__MIXER_CONV) return 3 * desc->C;
    return kvf__mixer_channels(desc) + m->value_heads * (m->value_dim + 2);
}

/* Returns the width of what its last product reads. */
static int64_t out_width(const kvf__desc *desc, const kvf__layer_shape *layer)
{
    const kvf__mixer *m = &desc->mixer;

    if (layer->G || !m->kind) return desc->H * layer->D;
    return m->kind == KVF__MIXER_CONV ? desc->C : m->value_heads * m->value_dim;
}

static int64_t letter_value(const kvf__desc *desc, const kvf__layer_shape *layer, char letter)
{
    static const char LETTERS[] = "VCEFHGDRSLIXYJAQWNM12";
    const int64_t values[] = {desc->V,
                              desc->C,
                              desc->E,
                              layer->F,
                              desc->H,
                              layer->G,
                              layer->D,
                              2 * desc->position.relative.span,
                              desc->H + 2 * layer->G,
                              desc->L,
                              desc->by_layer.inputs,
                              desc->position.max + desc->position.first,
                              desc->types,
                              in_width(desc, layer),
                              out_width(desc, layer),
                              kvf__mixer_channels(desc),
                              desc->mixer.kernel,
                              desc->mixer.value_heads,
                              desc->mixer.value_dim,
                              1,
                              2};
    const char *at = strchr(LETTERS, letter);

    assert(at && *at); /* a letter of a shape in arch.c */
    return values[at - LETTERS];
}

int64_t kvf__shape_size(const kvf__desc *desc, int64_t layer, const char *word)
{
    const kvf__layer_shape shape = kvf__desc_layer(desc, layer);
    int64_t size = 1;

    for (; *word && *word != ' '; word++)
        size *= letter_value(desc, &shape, *word);
    return size;
}

int64_t kvf__shape_most(const kvf__desc *desc, const char *word)
{
    int64_t most = kvf__shape_size(desc, 0, word);

    for (int64_t l = 1; desc->by_layer.shape && l < desc->L; l++)
        if (kvf__shape_size(desc, l, word) > most) most = kvf__shape_size(desc, l, word);
    return most;
}

int kvf__weight_shape(const kvf__desc *desc, const kvf__weight *weight, int64_t layer,
                      int64_t dim[KVF__MAX_RANK])
{
    int rank = 0;

    for (const char *word = weight->shape; word; word = strchr(word, ' ')) {
        word += *word == ' ';
        if (desc->gguf && *word == '1') continue; /* llama.cpp squeezes it */
        dim[rank++] = kvf__shape_size(desc, layer, word);
    }
    if (desc->gguf && (weight->flags & KVF__W_CONV1D)) {
        int64_t swap = dim[0];
        dim[0] = dim[1];
        dim[1] = swap;
    }
    return rank;
}

const kvf__weight *kvf__weight_by_role(const kvf__desc *desc, kvf__role role)
{
    if (desc->headless && role == KVF__W_HEAD) return NULL;
    for (size_t i = 0; i < desc->arch->n_weights; i++)
        if (desc->arch->weights[i].role == role) return &desc->arch->weights[i];
    return NULL;
}

kvf__neuron_shape kvf__desc_neurons(const kvf__desc *desc, int64_t N)
{
    return (kvf__neuron_shape){
        .L = desc->L,
        .N = N,
        .C = desc->C,
        .gated = desc->block.gated,
        .biased = !desc->block.gated && kvf__desc_has(desc, KVF__W_UP_BIAS, desc->L - 1),
    };
}

bool kvf__desc_has(const kvf__desc *desc, kvf__role role, int64_t layer)
{
    for (size_t i = 0; i < desc->arch->n_weights; i++) {
        const kvf__weight *weight = &desc->arch->weights[i];
        if (weight->role == role && in_place(desc, weight, layer) && is_wanted(desc, weight, layer))
            return true;
    }
    return false;
}

const kvf__slot *kvf__slots_find(const kvf__slots *slots, const char *name)
{
    int64_t at;

    if (!kvf__map_get(&slots->index, name, strlen(name), &at)) return NULL;
    return &slots->items[at];
}

const kvf__slot *kvf__slot_of(const kvf__desc *desc, const kvf__slots *slots, kvf__role role,
                              int64_t layer)
{
    char name[KVF__NAME_BYTES];

    for (size_t i = 0; i < desc->arch->n_weights; i++) {
        const kvf__weight *weight = &desc->arch->weights[i];
        if (weight->role != role || !in_place(desc, weight, layer)) continue;
        const char *prefix = weight->flags & KVF__W_OUTSIDE ? "" : desc->arch->prefix;
        if (!kvf__name_format(name, prefix, weight->hf, kvf__layer_number(desc, layer))) continue;
        const kvf__slot *slot = kvf__slots_find(slots, name);
        if (slot) return slot;
    }
    return NULL;
}

kvf_status kvf__each_weight(const kvf__desc *desc, kvf__each_weight_fn each, void *user)
{
    const kvf__arch *arch = desc->arch;
    size_t from = 0, to;

    while (from < arch->n_weights) {
        bool in_layer = kvf__weight_in_layer(&arch->weights[from]);
        for (to = from + 1; in_layer && to < arch->n_weights; to++)
            if (!kvf__weight_in_layer(&arch->weights[to])) break;
        for (int64_t layer = 0; layer < (in_layer ? desc->L : 1); layer++)
            for (size_t i = from; i < to; i++)
                if (is_wanted(desc, &arch->weights[i], layer) &&
                    (!in_layer || in_place(desc, &arch->weights[i], layer)))
                    KVF_TRY(each(user, &arch->weights[i], layer));
        from = to;
    }
    return KVF_OK;
}

typedef struct visit {
    const kvf__desc *desc;
    kvf__weight_fn each;
    void *user;
} visit;

static kvf_status visit_weight(void *user, const kvf__weight *weight, int64_t layer)
{
    const visit *v = user;
    char name[KVF__NAME_BYTES];
    int64_t dim[KVF__MAX_RANK];

    if (weight->flags & KVF__W_ASIDE) return KVF_OK;
    const char *prefix = weight->flags & KVF__W_OUTSIDE ? "" : v->desc->arch->prefix;
    bool fits = kvf__name_format(name, prefix, weight->hf, kvf__layer_number(v->desc, layer));
    assert(fits); /* our own table, with a layer count bounded by desc_check */
    (void)fits;
    return v->each(v->user, name, kvf__weight_shape(v->desc, weight, layer, dim), dim);
}

kvf_status kvf__desc_weights(const kvf__desc *desc, kvf__weight_fn each, void *user)
{
    visit v = {desc, each, user};
    return kvf__each_weight(desc, visit_weight, &v);
}
