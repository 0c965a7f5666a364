/* Opens one of the compared files as tensors by name. Narrow types and int8 are compared by the
 * values that they represent. The tree of inspect has the other facts. */
#include "diff.h"

#include <string.h>

static kvf_status add(kvf_ctx *ctx, kvf__side *side, const char *name, kvf__view view)
{
    return kvf__table_add(ctx, &side->table, name, view);
}

static kvf_status add_params(kvf_ctx *ctx, kvf__side *side, const char *group,
                             const kvf__params *params)
{
    for (size_t i = 0; i < params->n; i++) {
        const kvf__param *p = &params->item[i];
        kvf__view view = {.data = p->value, .dtype = KVF__F32, .rank = p->rank};
        char *name = NULL;
        memcpy(view.dim, p->dim, (size_t)p->rank * sizeof *p->dim);
        KVF_TRY(kvf__asprintf(ctx, &name, "%s/%s", group, p->name));
        kvf_status st = add(ctx, side, name, view);
        kvf__free(name);
        if (st) return st;
    }
    return KVF_OK;
}

static kvf_status add_neurons(kvf_ctx *ctx, kvf__side *side, const kvf__neurons *neurons)
{
    const kvf__neuron_shape *s = &neurons->shape;
    kvf__neuron_array array[KVF__NEURON_ARRAYS];
    char name[64];

    for (int i = 0, n = s->N ? kvf__neuron_arrays(neurons, array) : 0; i < n; i++) {
        const kvf__view view = {.data = array[i].at,
                                .dtype = KVF__F32,
                                .rank = 3,
                                .dim = {s->L, s->N, array[i].columns}};
        snprintf(name, sizeof name, "prefix/neurons/%s", array[i].name);
        KVF_TRY(add(ctx, side, name, view));
    }
    return KVF_OK;
}

static kvf_status add_layers(kvf_ctx *ctx, kvf__side *side, const kvf__prefix *p)
{
    static const char *const HALVES[] = {"key", "value"};
    char name[64];

    for (int64_t half = 0; half < 2 * p->L; half++) {
        const kvf__prefix_layer at = kvf__prefix_at(p, half / 2);
        const kvf__view view = {.data = half % 2 ? at.v : at.k,
                                .dtype = KVF__F32,
                                .rank = 3,
                                .dim = {at.G, p->P, at.D}};
        snprintf(name, sizeof name, "prefix/%lld/%s", (long long)(half / 2), HALVES[half % 2]);
        KVF_TRY(add(ctx, side, name, view));
    }
    KVF_TRY(add_neurons(ctx, side, &p->neurons));
    if (!p->log_weight) return KVF_OK;
    const kvf__view weights = {
        .data = p->log_weight, .dtype = KVF__F32, .rank = 3, .dim = {p->L, p->G, p->P}};
    return add(ctx, side, "prefix/" KVF__LOG_WEIGHT, weights);
}

static kvf_status add_vectors(kvf_ctx *ctx, kvf__side *side, const kvf__vectors *v)
{
    const kvf__view view = {.data = v->x, .dtype = KVF__F32, .rank = 2, .dim = {v->P, v->C}};
    return v->x ? add(ctx, side, "embeddings/virtual", view) : KVF_OK;
}

static kvf_status add_history(kvf_ctx *ctx, kvf__side *side, const kvf__history *h)
{
    char name[64];

    for (int i = 0; i < KVF__COLUMNS; i++) {
        const kvf__view view = {
            .data = h->column[i], .dtype = kvf__columns[i].dtype, .rank = 1, .dim = {h->n}};
        snprintf(name, sizeof name, "history/%s", kvf__columns[i].name);
        if (view.data && h->n) KVF_TRY(add(ctx, side, name, view));
    }
    return KVF_OK;
}

/* Adds all tensors of a record of any kind. */
static kvf_status add_artifact(kvf_ctx *ctx, kvf__side *side)
{
    const kvf__artifact *own = &side->own;
    const struct {
        const char *group;
        const kvf__params *params;
    } groups[] = {
        {own->kind == KVF__KIND_ADAPTER ? "adapter" : "encoder", &own->values.params},
        {"head", &own->head.params.params},
        {"best/encoder", &own->best.params},
        {"best/head", &own->best_head.params},
        {"optimizer/m", &own->m.params},
        {"optimizer/v", &own->v.params},
    };

    KVF_TRY(add_layers(ctx, side, &own->prefix));
    KVF_TRY(add_vectors(ctx, side, &own->vectors));
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        KVF_TRY(add_params(ctx, side, groups[i].group, groups[i].params));
    return add_history(ctx, side, &own->history);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Moves the table to the side; the maps that it views stay in place. */
static void move_table(kvf__table *from, kvf__table *to)
{
    *to = *from;
    *from = (kvf__table){0};
}

static kvf_status open_own(kvf_ctx *ctx, kvf__side *side)
{
    if (!strcmp(side->kind, "base"))
        KVF_TRY(kvf__base_file_open(ctx, side->path, true, &side->texts));
    move_table(&side->texts.table, &side->table);
    KVF_TRY(kvf__artifact_read_all(ctx, side->path, KVF__KIND_ANY, &side->own));
    return add_artifact(ctx, side);
}

kvf_status kvf__side_open(kvf_ctx *ctx, const char *path, kvf__side *out)
{
    kvf__file_kind kind = KVF__FILE_UNKNOWN;

    out->path = path;
    KVF_TRY(kvf_inspect(ctx, path, &out->tree));
    KVF_TRY(kvf__file_kind_of(ctx, path, &kind));
    snprintf(out->kind, sizeof out->kind, "%s",
             kind == KVF__FILE_HF_DIR ? "base"
                                      : kvf_json_str(kvf_json_get(out->tree, "kind"), NULL));
    if (kind == KVF__FILE_HDF5) return open_own(ctx, out);
    if (kind == KVF__FILE_HF_DIR) KVF_TRY(kvf__base_texts(ctx, path, &out->texts));
    KVF_TRY(kvf__weights_open(ctx, path, kind, &out->weights));
    move_table(&out->weights.table, &out->table);
    return KVF_OK;
}

void kvf__side_close(kvf__side *side)
{
    kvf_json_free(side->tree);
    kvf__table_done(&side->table);
    kvf__artifact_done(&side->own);
    kvf__weights_close(&side->weights);
    kvf__base_file_done(&side->texts);
    *side = (kvf__side){0};
}
