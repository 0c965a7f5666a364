/* AdapterHub's prefix tuning (adapters 1.x, methods/prefix_tuning.py), as save_adapter() writes it.
 *
 * One pool holds the prefixes of all layers, and every attention module refers to it, so the same
 * tensors are in the file once for each layer and once more:
 * PLACE.prefix_tunings.NAME.self_prefix.{wte.weight,control_trans...}. Rows after such a prefix
 * keep the positions they have without it. The output is [P, 2L', G, D] over the layers L' that
 * leave_out leaves. */
#include "foreign.h"

#include <string.h>

static const char POOL[] = ".prefix_tunings.", PLACE[] = "self_prefix.";
/* What follows the place, in the order of the fields of parts. */
static const char *const PARTS[] = {
    "wte.weight",           "control_trans",          "control_trans.0.weight",
    "control_trans.0.bias", "control_trans.2.weight", "control_trans.2.bias"};
enum { WTE, FLAT, W0, B0, W2, B2, N_PARTS };

static bool same_view(const kvf__view *a, const kvf__view *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) &&
           !memcmp(a->data, b->data, kvf__view_bytes(a));
}

/* Finds the part that a tensor is. *name, *n: of the prefix, which must be one in the whole file.
 */
static kvf_status sort_part(kvf_ctx *ctx, const char *where, const kvf__tensor *tensor,
                            const kvf__view **parts, const char **name, size_t *n)
{
    const char *at = strstr(tensor->name, POOL);
    if (!at)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: holds \"%.160s\", which is no part of a prefix", where, tensor->name);
    at += sizeof POOL - 1;
    size_t length = strcspn(at, ".");
    if (!*name) {
        *name = at;
        *n = length;
    }
    if (length != *n || strncmp(at, *name, length))
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: holds several prefixes (%.*s, %.*s): save one",
                         where, (int)*n, *name, (int)length, at);
    at += length + (at[length] == '.');
    if (strncmp(at, PLACE, sizeof PLACE - 1))
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: \"%.160s\" is of an encoder-decoder model, want self_prefix", where,
                         tensor->name);
    at += sizeof PLACE - 1;
    int part = 0;
    while (part < N_PARTS && strcmp(at, PARTS[part]))
        part++;
    if (part == N_PARTS)
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: \"%.160s\" has no place in a prefix", where,
                         tensor->name);
    if (parts[part] && !same_view(parts[part], &tensor->view))
        return kvf__fail(ctx, KVF_EFORMAT, "%s: \"%.160s\" differs from its copies", where,
                         tensor->name);
    parts[part] = &tensor->view;
    return KVF_OK;
}

/* What is not in the tensors. */
static kvf_status read_config(kvf_ctx *ctx, const char *where, kvf__foreign *f, bool *flat)
{
    const kvf_json *c = kvf_json_get(f->config, "config");
    const char *architecture = kvf_json_str(kvf_json_get(c, "architecture"), NULL);

    if (!c)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: no adapter_config.json of AdapterHub beside it, which says what its "
                         "tensors mean",
                         where);
    if (!architecture || strcmp(architecture, "prefix_tuning"))
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: architecture in adapter_config.json is \"%.60s\", want prefix_tuning",
                         where, architecture ? architecture : "");
    if (kvf_json_bool(kvf_json_get(c, "use_gating"), false))
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: use_gating: its keys and values depend on the row", where);
    *flat = kvf_json_bool(kvf_json_get(c, "flat"), false);
    f->activation = kvf_json_str(kvf_json_get(c, "non_linearity"), NULL);
    if (kvf_json_size(kvf_json_get(c, "leave_out"))) f->leave_out = kvf_json_get(c, "leave_out");
    f->model_class = kvf_json_str(kvf_json_get(f->config, "model_class"), NULL);
    f->starts_at_0 = true;
    return KVF_OK;
}

kvf_status kvf__foreign_adapterhub(kvf_ctx *ctx, const char *where, kvf__foreign *f)
{
    const kvf__view *parts[N_PARTS] = {0};
    const char *name = NULL;
    size_t n = 0;
    bool flat = false;

    KVF_TRY(read_config(ctx, where, f, &flat));
    for (size_t i = 0; i < f->weights.table.n; i++)
        KVF_TRY(sort_part(ctx, where, &f->weights.table.items[i], parts, &name, &n));
    int first = flat ? FLAT : WTE;
    KVF_TRY(kvf__foreign_check_view(ctx, where, PARTS[first], parts[first], flat ? 1 : 2));
    f->table = *parts[first];
    for (int part = 0; part < N_PARTS; part++)
        if (parts[part] && flat != (part == FLAT))
            return kvf__fail(ctx, KVF_EFORMAT, "%s: %s, but flat is %s in adapter_config.json",
                             where, PARTS[part], flat ? "true" : "false");
    if (flat) return KVF_OK;
    KVF_TRY(kvf__foreign_add_layer(ctx, where, "control_trans.0", parts[W0], parts[B0], f));
    return kvf__foreign_add_layer(ctx, where, "control_trans.2", parts[W2], parts[B2], f);
}
