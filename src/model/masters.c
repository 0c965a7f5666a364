/* Master values of trained weights (port `block`): f32, in the shape and by the name of Hugging
 * Face, each with a gradient.
 *
 * The model reads all its weights through slots. Trained ones get slots that view the masters in
 * place of the file, so that packing, embedding rows and hashes see what was trained without
 * knowing of it. A tied head is no slot: its gradient adds to the embedding's. Pooler and masked-LM
 * head stay frozen: they belong to heads. */
#include "arch.h"
#include "slot.h"

#include <string.h>

struct kvf__masters {
    kvf__slots slots; /* all of the model's */
    kvf__params params;
    float *values, *grads;
    int64_t L;
    float **grad; /* [KVF__W_ROLES, L] */
};

static bool is_trained(const kvf__slot *slot, kvf__role role, kvf__train_what what)
{
    if (!slot || slot->aside || role == KVF__W_POOLER || role == KVF__W_POOLER_BIAS) return false;
    return what == KVF__TRAIN_EVERYTHING || kvf__role_is_norm(role);
}

/* Calls each for every trained weight in the order of the slots. */
typedef struct visit {
    kvf_ctx *ctx;
    const kvf__desc *desc;
    kvf__masters *masters;
    size_t *first; /* [slots] where a trained weight begins in values; SIZE_MAX: frozen */
    size_t n;      /* elements in all */
    bool backward; /* gradients are wanted */
} visit;

static size_t slot_index(const kvf__masters *masters, const kvf__slot *slot)
{
    return (size_t)(slot - masters->slots.items);
}

static void choose(visit *v, kvf__train_what what)
{
    kvf__masters *m = v->masters;

    for (size_t i = 0; i < m->slots.n; i++)
        v->first[i] = SIZE_MAX;
    for (int role = 0; role < KVF__W_ROLES; role++)
        for (int64_t l = 0; l < m->L; l++) {
            const kvf__slot *slot = kvf__slot_of(v->desc, &m->slots, (kvf__role)role, l);
            if (is_trained(slot, (kvf__role)role, what)) v->first[slot_index(m, slot)] = 0;
        }
    for (size_t i = 0; i < m->slots.n; i++) {
        if (v->first[i] == SIZE_MAX) continue;
        v->first[i] = v->n;
        v->n += (size_t)kvf__view_count(&m->slots.items[i].view);
    }
}

/* The slot's values become a master, and the slot a view of it. */
static kvf_status take(visit *v, size_t i)
{
    kvf__masters *m = v->masters;
    kvf__slot *slot = &m->slots.items[i];
    kvf__param param = {.name = slot->name,
                        .value = m->values + v->first[i],
                        .grad = m->grads ? m->grads + v->first[i] : NULL,
                        .rank = slot->view.rank,
                        .n = kvf__view_count(&slot->view),
                        .lr_scale = 1};

    memcpy(param.dim, slot->view.dim, (size_t)slot->view.rank * sizeof param.dim[0]);
    kvf__slot_read(slot, param.value);
    slot->view.data = param.value;
    slot->view.dtype = KVF__F32;
    slot->permuted_heads = 0;
    return kvf__params_add(v->ctx, &m->params, &param);
}

static void index_grads(const visit *v)
{
    kvf__masters *m = v->masters;

    for (int role = 0; role < KVF__W_ROLES; role++)
        for (int64_t l = 0; l < m->L; l++) {
            const kvf__slot *slot = kvf__slot_of(v->desc, &m->slots, (kvf__role)role, l);
            size_t first = slot ? v->first[slot_index(m, slot)] : SIZE_MAX;
            if (m->grads && first != SIZE_MAX) m->grad[role * m->L + l] = m->grads + first;
        }
}

static kvf_status build(visit *v, kvf__train_what what)
{
    kvf__masters *m = v->masters;

    choose(v, what);
    KVF_TRY(kvf__alloc_array(v->ctx, v->n, sizeof(float), &m->values));
    if (v->backward) KVF_TRY(kvf__alloc_array(v->ctx, v->n, sizeof(float), &m->grads));
    KVF_TRY(kvf__alloc_array(v->ctx, (size_t)(KVF__W_ROLES * m->L), sizeof *m->grad, &m->grad));
    for (size_t i = 0; i < m->slots.n; i++)
        if (v->first[i] != SIZE_MAX) KVF_TRY(take(v, i));
    index_grads(v);
    return KVF_OK;
}

kvf_status kvf__masters_create(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                               const kvf__train *train, bool backward, kvf__masters **out)
{
    visit v = {.ctx = ctx, .desc = desc, .backward = backward};
    kvf_status st;

    st = kvf__alloc(ctx, sizeof *v.masters, &v.masters);
    if (st) goto out;
    v.masters->L = desc->L;
    st = kvf__slots_copy(ctx, slots, &v.masters->slots);
    if (st) goto out;
    st = kvf__alloc_array(ctx, slots->n, sizeof *v.first, &v.first);
    if (st) goto out;
    st = build(&v, train->what);
    if (st) goto out;

    *out = v.masters;
    v.masters = NULL;
out:
    kvf__free(v.first);
    kvf__masters_free(v.masters);
    return st;
}

void kvf__masters_free(kvf__masters *masters)
{
    if (!masters) return;
    kvf__slots_done(&masters->slots);
    kvf__params_done(&masters->params);
    kvf__free(masters->values);
    kvf__free(masters->grads);
    kvf__free(masters->grad);
    kvf__free(masters);
}

const kvf__slots *kvf__masters_slots(const kvf__masters *masters)
{
    return &masters->slots;
}

float *kvf__masters_grad(const kvf__masters *masters, int role, int64_t layer)
{
    return masters ? masters->grad[role * masters->L + layer] : NULL;
}

kvf__params *kvf__masters_params(kvf__masters *masters)
{
    return &masters->params;
}
