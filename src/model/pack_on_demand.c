/* Packing just before use: all layers share the packed memory of one, all planes of the head that
 * of one plane. A layer or plane is packed there when the pass reaches it, in the directions that
 * it is about to use, from slots in memory (stored.c) or in the file; so what stays in memory does
 * not grow with the base. The packed bytes are those that would have been kept, hence the same bits
 * come out of a pass.
 *
 * In the file, the pages of the layer that comes next are asked for before the one at hand is
 * packed, so that they are read while that is packed and computed, and those of a packed one are
 * let go. */
#include "creation.h"

#include <string.h>

enum { FORWARD = KVF__PACK_FORWARD, BACKWARD = KVF__PACK_BACKWARD };

static const kvf__packed_at NOTHING = {-1, -1};

/* Directions in which `at` is not packed yet. */
static unsigned missing(const kvf__packed_at *window, int64_t at, unsigned directions)
{
    if (window->forward == at) directions &= ~(unsigned)FORWARD;
    if (window->backward == at) directions &= ~(unsigned)BACKWARD;
    return directions;
}

static void set_directions(kvf__creation *c, unsigned directions)
{
    c->packer.forward = (directions & FORWARD) != 0;
    c->packer.backward = (directions & BACKWARD) != 0;
}

/* What is half packed is neither the old nor the new. */
static void leave(kvf__packed_at *window, unsigned directions)
{
    if (directions & FORWARD) window->forward = -1;
    if (directions & BACKWARD) window->backward = -1;
}

static void arrive(kvf__packed_at *window, int64_t at, unsigned directions)
{
    if (directions & FORWARD) window->forward = at;
    if (directions & BACKWARD) window->backward = at;
}

/* ---- pages ----------------------------------------------------------------------------------- */

static void advise(const kvf__creation *c, const kvf__view *view, bool soon)
{
    if (c->options.advise && view->data)
        c->options.advise(c->options.user, view->data, kvf__view_bytes(view), soon);
}

static void advise_layer(const kvf__creation *c, int64_t layer, bool soon)
{
    if (layer < 0 || layer >= c->desc->L) return;
    for (size_t i = 0; kvf__stored_role(i) < KVF__W_ROLES; i++) {
        const kvf__slot *slot = kvf__creation_slot(c, (kvf__role)kvf__stored_role(i), layer);
        if (slot) advise(c, &slot->view, soon);
    }
}

/* The rows of the head that a plane has. */
static void advise_plane(const kvf__creation *c, int64_t plane, bool soon)
{
    kvf__view view = c->model->lm.slot.view;
    int64_t from = plane * KVF__VOCAB_PLANE, left = c->desc->V - from;
    if (plane >= c->model->lm.n) return;
    size_t row = kvf__view_bytes(&view) / (size_t)view.dim[0];

    view.data = (const uint8_t *)view.data + (size_t)from * row;
    view.dim[0] = left < KVF__VOCAB_PLANE ? left : KVF__VOCAB_PLANE;
    advise(c, &view, soon);
}

/* ---- reaching -------------------------------------------------------------------------------- */

kvf_status kvf__model_ensure_packed(kvf_ctx *ctx, kvf__model *model, int64_t l, unsigned directions)
{
    kvf__creation *c = model->train.again;

    if (!model->store.late) return KVF_OK;
    directions = missing(&model->store.layer_at, l, directions);
    if (!directions) return KVF_OK;
    c->ctx = c->packer.ctx = ctx;
    leave(&model->store.layer_at, directions);
    set_directions(c, directions);
    if (l == 0 && directions == FORWARD) advise(c, &model->embed.tokens.view, false);
    advise_layer(c, directions & BACKWARD ? l - 1 : l + 1, true);
    KVF_TRY(kvf__creation_pack_layer(c, l));
    advise_layer(c, l, false);
    arrive(&model->store.layer_at, l, directions);
    return KVF_OK;
}

kvf_status kvf__model_ensure_plane_packed(kvf_ctx *ctx, kvf__model *model, int64_t plane,
                                          unsigned directions)
{
    kvf__creation *c = model->train.again;

    if (!model->store.late) return KVF_OK;
    directions = missing(&model->store.plane_at, plane, directions);
    if (!directions) return KVF_OK;
    c->ctx = c->packer.ctx = ctx;
    leave(&model->store.plane_at, directions);
    set_directions(c, directions);
    advise_plane(c, plane + 1, true);
    KVF_TRY(kvf__creation_pack_plane(c, plane));
    advise_plane(c, plane, false);
    arrive(&model->store.plane_at, plane, directions);
    return KVF_OK;
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Packed weights are those of another layer, norms its own. */
static void share_layer(kvf__layer *to, const kvf__layer *from)
{
    kvf__layer own = *to;

    *to = *from;
    to->gamma1 = own.gamma1;
    to->beta1 = own.beta1;
    to->gamma2 = own.gamma2;
    to->beta2 = own.beta2;
    to->head_gamma = own.head_gamma;
}

kvf_status kvf__creation_share(kvf__creation *c)
{
    kvf__model *model = c->model;
    const unsigned directions = FORWARD | (model->backward ? BACKWARD : 0);

    model->store.layer_at = model->store.plane_at = NOTHING;
    KVF_TRY(kvf__model_ensure_packed(c->ctx, model, 0, directions));
    for (int64_t l = 1; l < c->desc->L; l++)
        share_layer(&model->layers[l], &model->layers[0]);
    if (!model->lm.n) return KVF_OK;
    KVF_TRY(kvf__model_ensure_plane_packed(c->ctx, model, 0, directions));
    for (int64_t p = 1; p < model->lm.n; p++) {
        model->lm.packed[p] = model->lm.packed[0];
        if (model->lm.packed_t) model->lm.packed_t[p] = model->lm.packed_t[0];
    }
    return KVF_OK;
}
