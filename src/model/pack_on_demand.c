/* Packing on demand: all layers of a place share the packed memory of one, and all planes of the
 * head that of one plane. A layer or plane is packed when the pass reaches it, in the directions
 * about to be used, from slots in memory (stored.c) or in the file. So memory does not grow with
 * the base. The packed bytes, and thus the results, are the same as with resident weights.
 *
 * For slots in the file, pages of the next layer are requested before the current one is packed, so
 * that they are read meanwhile; pages of a packed layer are released. */
#include "creation.h"

enum { FORWARD = KVF__PACK_FORWARD, BACKWARD = KVF__PACK_BACKWARD };

static const kvf__packed_at NOTHING = {-1, -1};

/* Returns the directions in which `at` is not packed yet. */
static unsigned missing(const kvf__packed_at *window, int64_t at, unsigned directions)
{
    if (window->forward == at) directions &= ~(unsigned)FORWARD;
    if (window->backward == at) directions &= ~(unsigned)BACKWARD;
    return directions;
}

static void set_packed(kvf__packed_at *window, int64_t at, unsigned directions)
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

/* Advises on the rows of the head in a plane. */
static void advise_plane(const kvf__creation *c, const kvf__product *p, bool soon)
{
    kvf__view rows = c->model->lm.slot.view;
    const size_t row = kvf__view_bytes(&rows) / (size_t)rows.dim[0];

    rows.data = (const uint8_t *)rows.data + (size_t)p->n0 * row;
    rows.dim[0] = p->n;
    advise(c, &rows, soon);
}

/* Advises on the sources of a unit; planes of the feed-forward width share a slot. */
static void advise_unit(const kvf__creation *c, int64_t unit, bool soon)
{
    const kvf__slot *slot;
    kvf__product p;

    for (size_t i = 0; kvf__product_at(c->desc, unit, i, &p); i++) {
        if (p.kind == KVF__PRODUCT_HEAD) {
            advise_plane(c, &p, soon);
            return;
        }
        if (p.plane) return;
        for (int part = 0; (slot = kvf__product_slot(c->desc, c->slots, &p, part, NULL)); part++)
            advise(c, &slot->view, soon);
    }
}

/* Returns the unit that a pass in these directions uses next; -1: one of the other kind, or
 * none. */
static int64_t next_unit(const kvf__model *model, int64_t unit, unsigned directions)
{
    const int64_t L = model->desc.L;

    if (unit < L && directions & BACKWARD) return unit - 1;
    return unit + 1 == L || unit + 1 == L + model->lm.n ? -1 : unit + 1;
}

/* ---- packing --------------------------------------------------------------------------------- */

kvf_status kvf__model_ensure_packed(kvf_ctx *ctx, kvf__model *model, int64_t unit,
                                    unsigned directions)
{
    kvf__creation *c = model->train.again;
    const bool layer = unit < model->desc.L;
    if (!model->store.late) return KVF_OK;
    kvf__packed_at *window = layer ? &model->store.layer_at[kvf__layer_place(&model->desc, unit)]
                                   : &model->store.plane_at;
    directions = missing(window, unit, directions);
    if (!directions) return KVF_OK;
    c->ctx = c->packer.ctx = ctx;
    /* half-packed contents are neither the old nor the new unit */
    set_packed(window, -1, directions);
    c->packer.forward = (directions & FORWARD) != 0;
    c->packer.backward = (directions & BACKWARD) != 0;
    if (unit == 0 && directions == FORWARD) advise(c, &model->embed.tokens.view, false);
    const int64_t next = next_unit(model, unit, directions);
    if (next >= 0) advise_unit(c, next, true);
    KVF_TRY(kvf__creation_pack_unit(c, unit));
    advise_unit(c, unit, false);
    set_packed(window, unit, directions);
    return KVF_OK;
}

kvf_status kvf__creation_pack_first(kvf__creation *c)
{
    kvf__model *model = c->model;
    const unsigned directions = FORWARD | (model->backward ? BACKWARD : 0);

    model->store.plane_at = NOTHING;
    for (int place = 0; place < KVF__PLACES; place++)
        model->store.layer_at[place] = NOTHING;
    for (int64_t l = 0; l < model->desc.L; l++)
        if (kvf__layer_is_first(&model->desc, l))
            KVF_TRY(kvf__model_ensure_packed(c->ctx, model, l, directions));
    return model->lm.n ? kvf__model_ensure_packed(c->ctx, model, model->desc.L, directions)
                       : KVF_OK;
}
