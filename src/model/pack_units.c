/* Packing a unit of a model, a layer or a plane of the head: stacking its matrices, and folding the
 * preceding norm. */
#include "creation.h"

kvf_status kvf__creation_prepare(kvf__creation *c)
{
    const kvf__desc *d = c->desc;
    size_t matrix = 0, widest = 0, n;
    kvf__product p;

    /* find the largest product of the layers and of the head */
    for (int64_t unit = 0; unit <= d->L; unit += d->by_layer.shape ? 1 : d->L)
        for (size_t i = 0; kvf__product_at(d, unit, i, &p); i++) {
            const int64_t side = p.k > p.n_padded ? p.k : p.n_padded;
            if (!kvf__mul((size_t)p.k, (size_t)p.n_padded, &n))
                return kvf__fail(
                    c->ctx, KVF_ENOMEM,
                    "out of memory: a matrix of %lld x %lld is more than memory can address",
                    (long long)p.k, (long long)p.n_padded);
            if (n > matrix) matrix = n;
            if ((size_t)side > widest) widest = (size_t)side;
        }
    KVF_TRY(kvf__packer_init(c->ctx, &c->packer, matrix, widest, widest));
    c->packer.mm = c->model->mm;
    c->packer.forward = true;
    c->packer.backward = c->model->backward;
    KVF_TRY(kvf__alloc_array(c->ctx, (size_t)d->C, sizeof(float), &c->gamma));
    return kvf__alloc_array(c->ctx, (size_t)d->C, sizeof(float), &c->beta);
}

/* Sets the norm before a product, if it has one and norms are folded. */
static void put_norm(kvf__creation *c, const kvf__product *p, kvf__dense *dense)
{
    const kvf__product_weights *of = kvf__product_weights_of(p->kind);

    if (of->gamma == KVF__W_ROLES || c->desc->block.post_norm || c->model->unfolded) return;
    const kvf__slot *gamma = kvf__creation_slot(c, of->gamma, p->unit),
                    *beta = kvf__creation_slot(c, of->beta, p->unit);
    if (!gamma) return;
    kvf__slot_row(gamma, 0, c->gamma);
    for (int64_t i = 0; of->gamma == KVF__W_FINAL && i < c->desc->C; i++)
        c->gamma[i] *= c->desc->factors.head;
    dense->gamma = c->gamma;
    if (beta) kvf__slot_row(beta, 0, c->beta);
    dense->beta = beta ? c->beta : NULL;
}

kvf_status kvf__creation_pack_unit(kvf__creation *c, int64_t unit)
{
    const kvf__slot *weight;
    kvf__product p;

    for (size_t i = 0; kvf__product_at(c->desc, unit, i, &p); i++) {
        kvf__dense dense = {0};
        while ((weight = kvf__product_slot(c->desc, c->slots, &p, dense.n_parts,
                                           &dense.bias[dense.n_parts]))) {
            const int part = dense.n_parts++;
            dense.weight[part] = weight;
            kvf__product_rows(c->desc, weight, part, &dense.first[part], &dense.rows[part]);
        }
        if (p.kind == KVF__PRODUCT_HEAD) { /* if tied it has no slot of its own */
            dense.n_parts = 1;
            dense.weight[0] = &c->model->lm.slot;
            dense.bias[0] = kvf__creation_slot(c, KVF__W_HEAD_BIAS, p.unit);
        }
        put_norm(c, &p, &dense);
        c->packer.type = kvf__product_type(c->model, &p);
        KVF_TRY(kvf__pack_product(&c->packer, &dense, &p, kvf__product_packed(c->model, &p)));
    }
    return KVF_OK;
}
