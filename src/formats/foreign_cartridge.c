/* Cartridges (HazyResearch, cartridges/cache.py; Eyuboglu et al. 2025, arXiv 2506.06266): keys and
 * values of every layer, [1, G, T, D], as parameters. The first virtual tokens may be frozen ones
 * with tensors of their own ("fixed", in older files "frozen"); they lead. Keys lie as in a cache,
 * rotated for positions 0 to P - 1, and rows start at P. Their program saves a dictionary of lists,
 * of which the conversion makes "trainable_keys.0" and so on. */
#include "foreign.h"

#include <string.h>

static const char *const HALVES[] = {"keys", "values"};

static const kvf__view *find(const kvf__table *table, const char *group, int half, int64_t l)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s.%lld", group, HALVES[half], (long long)l);
    return kvf__table_find(table, name);
}

static int64_t count_layers(const kvf__table *table)
{
    int64_t L = 0;
    while (find(table, "trainable", 0, L) || find(table, "trainable", 1, L))
        L++;
    return L;
}

/* NULL: it freezes nothing. */
static const char *frozen_group(const kvf__table *table)
{
    static const char *const GROUPS[] = {"fixed", "frozen"};
    for (int i = 0; i < 2; i++)
        if (find(table, GROUPS[i], 0, 0) || find(table, GROUPS[i], 1, 0)) return GROUPS[i];
    return NULL;
}

/* One half of a layer: [1, G, T, D], equal for all but T, and that equal within a group. */
static kvf_status check(kvf_ctx *ctx, const char *where, const char *group, int half, int64_t l,
                        const kvf__view *view, const kvf__view *like, int64_t T)
{
    char name[64], text[128];
    snprintf(name, sizeof name, "%s_%s.%lld", group, HALVES[half], (long long)l);
    KVF_TRY(kvf__foreign_check_view(ctx, where, name, view, 4));
    if (view->dim[0] == 1 && view->dim[1] == like->dim[1] && view->dim[2] == T &&
        view->dim[3] == like->dim[3])
        return KVF_OK;
    return kvf__fail(ctx, KVF_ESHAPE, "%s: \"%s\" is %s, want [1, %lld, %lld, %lld]", where, name,
                     kvf__shape_text(text, view->rank, view->dim), (long long)like->dim[1],
                     (long long)T, (long long)like->dim[3]);
}

static kvf_status check_group(kvf_ctx *ctx, const char *where, const kvf__table *table,
                              const char *group, int64_t L, int64_t T, const kvf__view *like)
{
    for (int64_t l = 0; l < L; l++)
        for (int half = 0; half < 2; half++)
            KVF_TRY(check(ctx, where, group, half, l, find(table, group, half, l), like, T));
    return KVF_OK;
}

/* Tokens of one group into their place of every layer. */
static void read_group(const kvf__table *table, const char *group, int64_t first, int64_t T,
                       kvf__prefix *to)
{
    for (int64_t l = 0; l < to->L; l++)
        for (int half = 0; half < 2; half++) {
            const kvf__view *view = find(table, group, half, l);
            size_t bytes = kvf__dtype_block_bytes(view->dtype);
            for (int64_t g = 0; g < to->G; g++)
                kvf__to_f32(view->dtype, (const char *)view->data + (size_t)(g * T * to->D) * bytes,
                            to->kv + (((2 * l + half) * to->G + g) * to->P + first) * to->D,
                            T * to->D);
        }
}

kvf_status kvf__foreign_cartridge(kvf_ctx *ctx, const char *where, kvf__foreign *f)
{
    const kvf__table *table = &f->weights.table;
    const char *frozen = frozen_group(table);
    const kvf__view *like = find(table, "trainable", 0, 0),
                    *first = frozen ? find(table, frozen, 0, 0) : NULL;
    int64_t L = count_layers(table), fixed = 0;

    KVF_TRY(kvf__foreign_check_view(ctx, where, "trainable_keys.0", like, 4));
    if (frozen) {
        KVF_TRY(kvf__foreign_check_view(ctx, where, "fixed_keys.0", first, 4));
        fixed = first->dim[2];
    }
    if (table->n != (size_t)(2 * L * (frozen ? 2 : 1)))
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: %zu tensors, want keys and values of %lld layers%s and no others",
                         where, table->n, (long long)L, frozen ? ", fixed and trainable," : "");
    /* all of them before any memory is taken for the whole */
    if (frozen) KVF_TRY(check_group(ctx, where, table, frozen, L, fixed, like));
    KVF_TRY(check_group(ctx, where, table, "trainable", L, like->dim[2], like));
    KVF_TRY(kvf__prefix_init(ctx, &f->prefix, L, like->dim[1], fixed + like->dim[2], like->dim[3]));
    if (frozen) read_group(table, frozen, 0, fixed, &f->prefix);
    read_group(table, "trainable", fixed, like->dim[2], &f->prefix);
    return KVF_OK;
}
