/* From a table of named tensors to slots: every weight of the description is found by name and
 * checked for shape and type.
 *
 * Files have the base-model prefix, none, or that of another model (question answering of Llama),
 * so each name is tried in all forms. Tied heads follow transformers 5. An equal copy is dropped,
 * and a head that differs from the embedding is used with a warning. If a file has only the head,
 * it is used as the embedding. */
#include "names.h"
#include "slot.h"

#include <string.h>

/* Prefixes besides the family's own. */
static const char *const prefixes[] = {"",
                                       "model.",
                                       "transformer.",
                                       "encoder.",
                                       "model.language_model.",
                                       "language_model.model.",
                                       "nomic_bert.encoder."};
#define N_PREFIXES (sizeof prefixes / sizeof *prefixes)

typedef struct binding {
    kvf_ctx *ctx;
    const char *where;
    const kvf__desc *desc;
    const kvf__table *table;
    bool *used; /* [table->n] */
    kvf__slots slots;
} binding;

static bool find_tensor(const binding *b, const char *name, int64_t *at)
{
    return kvf__map_get(&b->table->index, name, strlen(name), at);
}

/* Finds a name in the file, also with an old spelling of its suffix. */
static bool find_renamed(const binding *b, const char *name, int64_t *at)
{
    const kvf__pair *pair = b->desc->arch->renamed;
    size_t n = strlen(name);
    char old[KVF__NAME_BYTES];

    if (find_tensor(b, name, at)) return true;
    for (; pair && pair->first; pair++) {
        size_t tail = strlen(pair->first);
        if (n < tail || strcmp(name + n - tail, pair->first) != 0) continue;
        int length = snprintf(old, sizeof old, "%.*s%s", (int)(n - tail), name, pair->second);
        if (length < (int)sizeof old && find_tensor(b, old, at)) return true;
    }
    return false;
}

/* Finds the tensor of a weight under any of its names. canonical: name for errors and slots. */
static bool find_weight(const binding *b, const kvf__weight *weight, int64_t layer,
                        char canonical[KVF__NAME_BYTES], int64_t *at)
{
    bool outside = weight->flags & KVF__W_OUTSIDE;
    char name[KVF__NAME_BYTES];
    layer = kvf__layer_number(b->desc, layer);

    if (!kvf__name_format(canonical, outside ? "" : b->desc->arch->prefix, weight->hf, layer))
        return false;
    if (b->desc->gguf)
        return weight->gguf && kvf__name_format(name, "", weight->gguf, layer) &&
               find_tensor(b, name, at);
    if (find_renamed(b, canonical, at)) return true;
    if (outside && kvf__name_format(name, "language_model.", weight->hf, layer))
        return find_renamed(b, name, at);
    for (size_t i = 0; !outside && i < N_PREFIXES; i++)
        if (kvf__name_format(name, prefixes[i], weight->hf, layer) && find_renamed(b, name, at))
            return true;
    return false;
}

static kvf_status check_tensor(const binding *b, const kvf__weight *weight, int64_t layer,
                               const kvf__tensor *tensor)
{
    const kvf__view *view = &tensor->view;
    int64_t dim[KVF__MAX_RANK];
    int rank = kvf__weight_shape(b->desc, weight, layer, dim);
    char found[128], expected[128];

    if (view->rank != rank || memcmp(view->dim, dim, (size_t)rank * sizeof *dim))
        return kvf__fail(b->ctx, KVF_ESHAPE, "%s: %s is %s, expected %s", b->where, tensor->name,
                         kvf__shape_text(found, view->rank, view->dim),
                         kvf__shape_text(expected, rank, dim));
    if (!kvf__dtype_is_float(view->dtype))
        return kvf__fail(b->ctx, KVF_EUNSUPPORTED,
                         "%s: %s has type %s, expected a float or a "
                         "supported quantised type",
                         b->where, tensor->name,
                         view->other_name ? view->other_name : kvf__dtype_name(view->dtype));
    bool whole_row = rank < 2 && (weight->flags & (KVF__W_PERMUTED_H | KVF__W_PERMUTED_G));
    int64_t block = kvf__dtype_block(view->dtype);
    if (dim[rank - 1] % block || (whole_row && block > 1))
        return kvf__fail(
            b->ctx, KVF_EFORMAT, "%s: %s has rows of %lld values, blocks of %s hold %lld", b->where,
            tensor->name, (long long)dim[rank - 1], kvf__dtype_name(view->dtype), (long long)block);
    return KVF_OK;
}

/* Narrows a fused tensor to the rows of q, k or v. */
static void take_part(const kvf__desc *desc, const kvf__weight *weight, kvf__view *view)
{
    const int64_t q = desc->H * desc->D, kv = desc->G * desc->D;
    const int64_t first = weight->role == KVF__W_Q ? 0 : weight->role == KVF__W_K ? q : q + kv;

    if (view->rank < 1 || view->dim[0] != q + 2 * kv) return;
    const size_t row = kvf__view_bytes(view) / (size_t)view->dim[0];
    view->data = (const uint8_t *)view->data + (size_t)first * row;
    view->dim[0] = weight->role == KVF__W_Q ? q : kv;
}

/* Describes the order of value heads in a GGUF, where key head k serves heads k, k + keys, ... */
static struct kvf__tiles tiles_of(const kvf__desc *desc, const kvf__weight *weight, int64_t layer,
                                  const kvf__view *view)
{
    const kvf__mixer *m = &desc->mixer;
    struct kvf__tiles t = {.outer = 1, .keys = m->key_heads, .heads = m->value_heads};
    const int64_t keys_first = 2 * m->key_heads * m->key_dim;

    if (!desc->gguf || m->value_heads == m->key_heads || !kvf__layer_mixes(desc, layer))
        return (struct kvf__tiles){0};
    switch (weight->role) {
    case KVF__W_MIXER_IN:
    case KVF__W_MIXER_CONV:
        t.before = keys_first * view->dim[view->rank - 1];
        return t;
    case KVF__W_MIXER_GATE:
    case KVF__W_MIXER_BETA:
    case KVF__W_MIXER_DECAY:
    case KVF__W_MIXER_STEP:
    case KVF__W_MIXER_RATE:
        return t;
    case KVF__W_OUT:
        t.outer = view->dim[0];
        return t;
    default:
        return (struct kvf__tiles){0};
    }
}

static kvf_status add_slot(binding *b, const kvf__weight *weight, int64_t layer,
                           const char *canonical, int64_t at)
{
    kvf__slot *slot = &b->slots.items[b->slots.n];
    const kvf__desc *desc = b->desc;
    kvf__tensor tensor = b->table->items[at];

    if (weight->flags & KVF__W_OF_QKV) take_part(desc, weight, &tensor.view);
    KVF_TRY(check_tensor(b, weight, layer, &tensor));
    KVF_TRY(
        kvf__map_put(b->ctx, &b->slots.index, canonical, strlen(canonical), (int64_t)b->slots.n));
    snprintf(slot->name, sizeof slot->name, "%s", canonical);
    slot->view = tensor.view;
    slot->role = (int)weight->role;
    slot->layer = kvf__weight_in_layer(weight) ? layer : 0;
    slot->aside = weight->flags & KVF__W_ASIDE;
    slot->conv1d = !desc->gguf && (weight->flags & KVF__W_CONV1D);
    bool permuted = desc->gguf && desc->arch->gguf_permuted;
    if (permuted && (weight->flags & KVF__W_PERMUTED_H)) slot->permuted_heads = desc->H;
    if (permuted && (weight->flags & KVF__W_PERMUTED_G)) slot->permuted_heads = desc->G;
    slot->by_head = weight->flags & (KVF__W_BY_HEAD | KVF__W_AND_GATE) ? desc->H : 0;
    slot->parts = weight->flags & KVF__W_AND_GATE ? 2 : 3;
    slot->file_by_head = slot->by_head && (!desc->gguf || weight->flags & KVF__W_AND_GATE);
    slot->minus_exp = desc->gguf && (weight->flags & KVF__W_LOG);
    slot->tiles = tiles_of(desc, weight, layer, &slot->view);
    if (weight->flags & KVF__W_PLUS_ONE) slot->one = desc->gguf ? -1 : 1;
    b->used[at] = true;
    b->slots.n++;
    return KVF_OK;
}

static bool matches_behind(const char *name, const char *prefix, const char *pattern)
{
    size_t n = strlen(prefix);
    return !strncmp(name, prefix, n) && kvf__name_matches(name + n, pattern);
}

static bool is_buffer(const binding *b, const char *name)
{
    for (const char *const *pattern = b->desc->arch->buffers; *pattern; pattern++) {
        if (matches_behind(name, b->desc->arch->prefix, *pattern)) return true;
        for (size_t i = 0; i < N_PREFIXES; i++)
            if (matches_behind(name, prefixes[i], *pattern)) return true;
    }
    return false;
}

/* Finds the embedding under another name: safetensors' save_model keeps only one of several shared
 * tensors. */
static bool find_shared(const binding *b, const kvf__weight *weight, int64_t *at)
{
    static const char SHARED[] =
        "embed_tokens.weight"; /* equal, whatever tie_word_embeddings says */
    int64_t dim[KVF__MAX_RANK];
    const int rank = kvf__weight_shape(b->desc, weight, 0, dim);

    for (size_t i = 0; i < b->table->n; i++) {
        const kvf__tensor *t = &b->table->items[i];
        const size_t n = strlen(t->name), tail = sizeof SHARED - 1;
        const bool same = n >= tail && !strcmp(t->name + n - tail, SHARED);
        *at = (int64_t)i;
        if ((b->desc->tied || same) && t->view.rank == rank && is_buffer(b, t->name) &&
            !memcmp(t->view.dim, dim, (size_t)rank * sizeof *dim))
            return true;
    }
    return false;
}

static kvf_status bind_weight(void *user, const kvf__weight *weight, int64_t layer)
{
    binding *b = user;
    char name[KVF__NAME_BYTES], head_name[KVF__NAME_BYTES];
    int64_t at;

    bool found = find_weight(b, weight, layer, name, &at);
    if (!found && weight->role == KVF__W_TOKENS && b->desc->tied) {
        const kvf__weight *head = kvf__weight_by_role(b->desc, KVF__W_HEAD);
        found = head && find_weight(b, head, 0, head_name, &at);
    }
    if (!found && weight->role == KVF__W_TOKENS) found = find_shared(b, weight, &at);
    if (found) return add_slot(b, weight, layer, name, at);
    if (weight->flags & KVF__W_OPTIONAL) return KVF_OK;
    if (b->desc->gguf && weight->gguf)
        kvf__name_format(name, "", weight->gguf, kvf__layer_number(b->desc, layer));
    return kvf__fail(b->ctx, KVF_EFORMAT, "%s: tensor %s is missing%s", b->where, name,
                     b->desc->encoder ? "; kvfold needs both stacks, encoder and decoder" : "");
}

static kvf_status bind_tied_head(binding *b)
{
    const kvf__weight *head = kvf__weight_by_role(b->desc, KVF__W_HEAD);
    const kvf__slot *tokens = kvf__slot_of(b->desc, &b->slots, KVF__W_TOKENS, 0);
    char name[KVF__NAME_BYTES];
    int64_t at;

    if (!b->desc->tied || !head || !find_weight(b, head, 0, name, &at) || b->used[at])
        return KVF_OK;
    const kvf__view *copy = &b->table->items[at].view;
    KVF_TRY(check_tensor(b, head, 0, &b->table->items[at]));
    if (copy->dtype == tokens->view.dtype &&
        !memcmp(copy->data, tokens->view.data, kvf__view_bytes(copy))) {
        b->used[at] = true;
        return KVF_OK;
    }
    kvf__log(b->ctx, KVF_LOG_WARN,
             "%s: %s differs from %s although the config ties them: both are "
             "used",
             b->where, name, tokens->name);
    return add_slot(b, head, 0, name, at);
}

static void log_surplus(const binding *b)
{
    const char *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < b->table->n; i++) {
        if (b->used[i] || is_buffer(b, b->table->items[i].name)) continue;
        if (!first) first = b->table->items[i].name;
        n++;
    }
    if (n)
        kvf__log(b->ctx, KVF_LOG_WARN, "%s: %zu tensor%s not used by architecture %s, first %s",
                 b->where, n, n > 1 ? "s are" : " is", b->desc->arch_name, first);
}

kvf__slot *kvf__slot_of_module(const kvf__desc *desc, const kvf__slots *slots, const char *module)
{
    const char *own = desc->arch->prefix;
    char name[KVF__NAME_BYTES];
    int64_t at;

    for (size_t i = 0; i <= N_PREFIXES; i++) {
        const char *prefix = i ? prefixes[i - 1] : own;
        const size_t n = strlen(prefix);
        if (strncmp(module, prefix, n) != 0) continue;
        for (int with = 0; with < 2; with++) {
            int length = snprintf(name, sizeof name, "%s%s.weight", with ? own : "", module + n);
            if (length < (int)sizeof name && kvf__map_get(&slots->index, name, (size_t)length, &at))
                return &slots->items[at];
        }
    }
    return NULL;
}

kvf_status kvf__bind(kvf_ctx *ctx, const char *where, const kvf__desc *desc,
                     const kvf__table *table, kvf__slots *out)
{
    binding b = {.ctx = ctx, .where = where, .desc = desc, .table = table};
    size_t most = desc->arch->n_weights * ((size_t)desc->L + 1);

    kvf_status st = kvf__alloc_array(ctx, table->n, sizeof *b.used, &b.used);
    if (!st) st = kvf__alloc_array(ctx, most, sizeof *b.slots.items, &b.slots.items);
    if (!st) st = kvf__each_weight(desc, bind_weight, &b);
    if (!st) st = bind_tied_head(&b);
    if (!st) {
        log_surplus(&b);
        *out = b.slots;
    } else {
        kvf__slots_done(&b.slots);
    }
    kvf__free(b.used);
    return st;
}
