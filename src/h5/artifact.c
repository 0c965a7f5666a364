/* Files of every kind, written and read according to their table rows. The order of calls
 * determines that of the bytes, so equal content gives equal files (docs/format.md). */
#include "artifact_priv.h"

#include <math.h>
#include <string.h>

/* Only the attributes of a base: base_file.c handles its weights and texts. */
static const kvf__kind_row BASE = {.name = "base", .object = "weights", .optional = true};

static const kvf__kind_row *const ROWS[] = {
    [KVF__KIND_RUN] = &kvf__run_row,
    [KVF__KIND_PREFIX] = &kvf__prefix_row,
    [KVF__KIND_EMBEDDINGS] = &kvf__embeddings_row,
    [KVF__KIND_ADAPTER] = &kvf__adapter_row,
    [KVF__KIND_BASE] = &BASE,
};
enum { KINDS = sizeof ROWS / sizeof ROWS[0] };

const char *kvf__kind_name(kvf__kind kind)
{
    return ROWS[kind]->name;
}

static const char NEURON_MASK[] = "neuron_mask";

/* ---- writing --------------------------------------------------------------------------------- */

const uint8_t *kvf__artifact_mask(const kvf__artifact *a)
{
    return a->layer_mask ? a->layer_mask : a->prefix.layer_mask;
}

/* Writes /mixer_state [n]: the state of layers without attention before a row (desc.h). */
static void write_state(kvf__h5 *h5, const kvf__prefix *prefix)
{
    static const char *const LABELS[] = {"value"};
    const kvf__h5_spec spec = {.name = KVF__MIXER_STATE,
                               .dtype = KVF__F32,
                               .rank = 1,
                               .dim = &prefix->states,
                               .labels = LABELS};

    kvf__h5_data_write(h5, h5->file, &spec, prefix->state, NULL);
}

static void read_state(kvf__h5 *h5, kvf__artifact *a)
{
    float *state = NULL;
    char text[128];

    if (h5->status || !kvf__h5_has(h5, h5->file, KVF__MIXER_STATE)) return;
    kvf__h5_data data = kvf__h5_data_open(h5, h5->file, KVF__MIXER_STATE);
    if (data.dtype != KVF__F32 || data.rank != 1 || data.count < 1)
        kvf__h5_fail(h5, data.id, KVF_ESHAPE, "%s of %s, want [n] of f32",
                     kvf__shape_text(text, data.rank, data.dim), kvf__dtype_name(data.dtype));
    KVF__H5_TRY(h5, kvf__alloc(h5->ctx, data.bytes, &state));
    kvf__h5_data_read(h5, &data, state, data.bytes);
    for (int64_t i = 0; i < data.count && !h5->status; i++)
        if (!isfinite(state[i]))
            kvf__h5_fail(h5, data.id, KVF_ENUMERIC, "value %lld is %g, want finite values",
                         (long long)i, (double)state[i]);
    if (!h5->status) {
        a->prefix.state = state;
        a->prefix.states = data.count;
        state = NULL;
    }
    kvf__free(state);
    kvf__h5_release(&data.id);
}

void kvf__artifact_write_facts(kvf__h5 *h5, kvf__h5_id at, const kvf__artifact *a)
{
    const kvf__kind_row *row = ROWS[a->kind];

    kvf__identity_write(h5, at, !row->open, &a->id);
    if (row->masked) kvf__h5_put_u8s(h5, at, "layer_mask", kvf__artifact_mask(a), a->id.L);
    if (row->masked && a->id.neurons.N)
        kvf__h5_put_u8s(h5, at, NEURON_MASK,
                        a->neuron_mask ? a->neuron_mask : a->prefix.neurons.layer_mask,
                        a->id.neurons.L);
    if (row->write_attrs) row->write_attrs(h5, at, a);
    kvf__head_write(h5, a->id.task, &a->head);
    if (row->write_rest) row->write_rest(h5, a);
    if (a->prefix.state) write_state(h5, &a->prefix);
    kvf__attrs_write(h5, h5->file, "options", a->options);
    kvf__attrs_write(h5, h5->file, "lineage", a->lineage);
}

unsigned kvf__artifact_features(const kvf__artifact *a)
{
    const uint8_t *mask = kvf__artifact_mask(a);
    unsigned features = 0;

    if (a->id.encoder_layers) features |= KVF__ENCODER_DECODER;
    if (a->id.heads) features |= KVF__HEADS_BY_LAYER;
    if (a->id.infix) features |= KVF__INFIX;
    if (mask && memchr(mask, 0, (size_t)a->id.L)) features |= KVF__LAYER_MASK;
    if (a->prefix.log_weight || kvf__params_find(&a->values.params, KVF__LOG_WEIGHT))
        features |= KVF__LOG_WEIGHTS;
    if (a->id.neurons.N) features |= KVF__NEURONS;
    if (a->prefix.state || kvf__params_find(&a->values.params, KVF__MIXER_STATE))
        features |= KVF__STATE;
    return features;
}

kvf_status kvf__artifact_write(kvf_ctx *ctx, const char *path, bool force,
                               const kvf__artifact *artifact)
{
    const kvf__kind_row *row = ROWS[artifact->kind];

    if (!row || !row->write)
        return kvf__fail(ctx, KVF_EINTERNAL, "%s: files of this kind are not written here", path);
    KVF_TRY(row->check(ctx, path, artifact));
    kvf__h5 h5 = kvf__h5_create(ctx, path, force, row->name, kvf__artifact_features(artifact));
    kvf__h5_id at = row->write(&h5, artifact);
    kvf__artifact_write_facts(&h5, at, artifact);
    kvf__h5_release(&at);
    return kvf__h5_close(&h5);
}

/* ---- reading --------------------------------------------------------------------------------- */

static kvf__kind read_kind(kvf__h5 *h5)
{
    char *word = kvf__h5_get_text(h5, h5->file, "kvfold_kind");
    kvf__kind found = KVF__KIND_ANY;

    for (int i = KVF__KIND_RUN; i < KINDS && word; i++)
        if (strcmp(word, ROWS[i]->name) == 0) found = (kvf__kind)i;
    if (word && !found)
        kvf__h5_fail(h5, h5->file, KVF_EUNSUPPORTED,
                     "kvfold_kind is \"%s\", want run, prefix, embeddings, adapter or base", word);
    kvf__free(word);
    return found;
}

kvf__h5 kvf__artifact_open(kvf_ctx *ctx, const char *path, kvf__kind *kind)
{
    kvf__h5 h5 = kvf__h5_open(ctx, path, *kind ? ROWS[*kind]->name : NULL);

    if (!*kind) *kind = read_kind(&h5);
    return h5;
}

kvf_status kvf__kind_of(kvf_ctx *ctx, const char *path, kvf__kind *out)
{
    kvf__kind kind = KVF__KIND_ANY;
    kvf__h5 h5 = kvf__artifact_open(ctx, path, &kind);

    KVF_TRY(kvf__h5_close(&h5));
    *out = kind;
    return KVF_OK;
}

static void read_values(kvf__h5 *h5, const kvf__kind_row *row, const kvf__h5_data *at, bool all,
                        kvf__artifact *a)
{
    if (row->masked) a->layer_mask = kvf__mask_read(h5, at->id, "layer_mask", a->id.L);
    if (row->masked && a->id.neurons.N)
        a->neuron_mask = kvf__mask_read(h5, at->id, NEURON_MASK, a->id.neurons.L);
    if (row->read && !h5->status) row->read(h5, at, a);
    read_state(h5, a);
    if (!h5->status) kvf__h5_check_features(h5, kvf__artifact_features(a));
    kvf__head_read(h5, a->id.task, &a->head);
    if (row->read_rest) row->read_rest(h5, all, a);
    a->options = kvf__attrs_read(h5, h5->file, "options");
    a->lineage = kvf__attrs_read(h5, h5->file, "lineage");
}

kvf__h5_data kvf__artifact_read_from(kvf__h5 *h5, kvf__read_part what, kvf__artifact *a)
{
    const kvf__kind_row *row = ROWS[a->kind];
    kvf__h5_data at = {.id = KVF__H5_NONE};

    if (h5->status) return at;
    if (row->open)
        at = row->open(h5);
    else
        at.id = kvf__h5_group_open(h5, h5->file, row->object);
    if (row->optional && !kvf__h5_has_attr(h5, at.id, "task")) return at;
    kvf__identity_read(h5, at.id, row->open ? &at : NULL, &a->id);
    if (what > KVF__READ_IDENTITY) read_values(h5, row, &at, what == KVF__READ_ALL, a);
    return at;
}

static kvf_status read_file(kvf_ctx *ctx, const char *path, kvf__kind kind, kvf__read_part what,
                            kvf__artifact *out)
{
    kvf__artifact a = {.kind = kind};
    kvf__h5 h5 = kvf__artifact_open(ctx, path, &a.kind);
    kvf__h5_data at = kvf__artifact_read_from(&h5, what, &a);

    kvf__h5_release(&at.id);
    kvf_status st = kvf__h5_close(&h5);
    KVF__GIVE(st, out, a, kvf__artifact_done(&a));
    return st;
}

kvf_status kvf__artifact_read(kvf_ctx *ctx, const char *path, kvf__kind kind, kvf__artifact *out)
{
    return read_file(ctx, path, kind, KVF__READ_VALUES, out);
}

kvf_status kvf__artifact_read_all(kvf_ctx *ctx, const char *path, kvf__kind kind,
                                  kvf__artifact *out)
{
    return read_file(ctx, path, kind, KVF__READ_ALL, out);
}

kvf_status kvf__artifact_identity(kvf_ctx *ctx, const char *path, kvf__kind kind,
                                  kvf__identity *out)
{
    kvf__artifact a = {0};

    KVF_TRY(read_file(ctx, path, kind, KVF__READ_IDENTITY, &a));
    *out = a.id; /* it has no other attributes */
    return KVF_OK;
}

kvf_status kvf__artifact_history(kvf_ctx *ctx, const char *path, kvf__history *out)
{
    kvf__h5 h5 = kvf__h5_open(ctx, path, kvf__run_row.name);
    kvf__history history = {0};

    kvf__history_read(&h5, &history);
    kvf_status st = kvf__h5_close(&h5);
    KVF__GIVE(st, out, history, kvf__history_done(&history));
    return st;
}

void kvf__artifact_done(kvf__artifact *a)
{
    kvf__identity_done(&a->id);
    kvf__head_values_done(&a->head);
    kvf_json_free(a->options);
    kvf_json_free(a->lineage);
    kvf__prefix_done(&a->prefix);
    kvf__vectors_done(&a->vectors);
    kvf__free(a->pattern);
    kvf__params_owned_done(&a->values);
    kvf__free(a->activation);
    kvf__free(a->placement);
    kvf__free(a->layer_mask);
    kvf__free(a->neuron_mask);
    kvf__params_owned_done(&a->best);
    kvf__params_owned_done(&a->best_head);
    kvf__free(a->best_metric);
    kvf__params_owned_done(&a->m);
    kvf__params_owned_done(&a->v);
    kvf_json_free(a->state);
    kvf__history_done(&a->history);
    *a = (kvf__artifact){0};
}
