/* Master values of trained weights (port `block`): f32, with the shape and name of Hugging Face,
 * each with a gradient.
 *
 * The model reads all its weights through slots. Slots of trained weights view the masters instead
 * of the file, so packing, embedding rows and hashes need no special case. A tied head is not a
 * slot: its gradient is added to the embedding's. Pooler and masked-LM head stay frozen, because
 * they belong to heads. */
#include "arena.h"
#include "model_priv.h"
#include "names.h"
#include "slot.h"

#include <string.h>

struct kvf__masters {
    kvf__slots slots; /* slots of the whole model */
    kvf__params params;
    int64_t L, n;  /* n: elements of all trained weights */
    bool backward; /* gradients are allocated */
    float *values; /* [n] */
    float *grads;  /* [n] or NULL */
    /* [KVF__W_ROLES, L] pointers into grads; weights outside the layers are at layer 0 */
    float **grad;
};

static bool is_trained(const kvf__slot *slot, const kvf__train *train)
{
    const kvf__role role = (kvf__role)slot->role;

    if (slot->aside || role == KVF__W_POOLER || role == KVF__W_POOLER_BIAS) return false;
    return train->what == KVF__TRAIN_EVERYTHING ||
           (kvf__role_is_norm(role) && !train->frozen_norms);
}

static void lay_out(void *object, kvf__carver *carve)
{
    kvf__masters *m = object;

    m->values = kvf__carve(carve, m->n, 1, sizeof(float));
    if (m->backward) m->grads = kvf__carve(carve, m->n, 1, sizeof(float));
    m->grad = kvf__carve(carve, KVF__W_ROLES, m->L, sizeof *m->grad);
}

/* Copies the slot's values to a master, and makes the slot a view of it. */
static kvf_status add_master(kvf_ctx *ctx, kvf__masters *m, kvf__slot *slot, int64_t at)
{
    kvf__param param = {.name = slot->name,
                        .value = m->values + at,
                        .grad = m->grads ? m->grads + at : NULL,
                        .rank = slot->view.rank,
                        .n = kvf__view_count(&slot->view),
                        .lr_scale = 1};

    memcpy(param.dim, slot->view.dim, (size_t)slot->view.rank * sizeof param.dim[0]);
    kvf__slot_read_hf(slot, param.value);
    m->grad[slot->role * m->L + slot->layer] = param.grad;
    slot->view.data = param.value;
    slot->view.dtype = KVF__F32;
    slot->permuted_heads = 0;
    slot->file_by_head = slot->by_head > 0;
    slot->one = slot->one != 0;
    slot->add = NULL;
    return kvf__params_add(ctx, &m->params, &param);
}

static kvf_status add_masters(kvf_ctx *ctx, kvf__masters *m, const kvf__slots *slots,
                              const kvf__train *train)
{
    int64_t at = 0;

    KVF_TRY(kvf__slots_copy(ctx, slots, &m->slots));
    for (size_t i = 0; i < m->slots.n; i++) {
        const int64_t n = kvf__view_count(&m->slots.items[i].view);
        if (!is_trained(&m->slots.items[i], train)) continue;
        KVF_TRY(add_master(ctx, m, &m->slots.items[i], at));
        at += n;
    }
    return KVF_OK;
}

kvf_status kvf__masters_create(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                               const kvf__train *train, bool backward, kvf__masters **out)
{
    kvf__masters made = {.L = desc->L, .backward = backward}, *masters = NULL;

    for (size_t i = 0; i < slots->n; i++)
        if (is_trained(&slots->items[i], train)) made.n += kvf__view_count(&slots->items[i].view);
    KVF_TRY(kvf__carve_object(ctx, lay_out, &made, sizeof made, &masters));
    kvf_status st = add_masters(ctx, masters, slots, train);
    KVF__GIVE(st, out, masters, kvf__masters_free(masters));
    return st;
}

void kvf__masters_free(kvf__masters *masters)
{
    if (!masters) return;
    kvf__slots_done(&masters->slots);
    kvf__params_done(&masters->params);
    kvf__free(masters);
}

const kvf__slots *kvf__masters_slots(const kvf__masters *masters)
{
    return &masters->slots;
}

float *kvf__masters_grad(const kvf__masters *masters, int role, int64_t layer)
{
    return masters && role < KVF__W_ROLES ? masters->grad[role * masters->L + layer] : NULL;
}

kvf__params *kvf__masters_params(kvf__masters *masters)
{
    return &masters->params;
}
