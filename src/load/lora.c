/* A LoRA folded into a base: W + scale * B A in f32, whenever a weight is read from its file (after
 * dequantization, if quantized). Only the factors are kept, so bases larger than memory remain
 * possible. */
#include "lora.h"
#include "arch.h"
#include "hash.h"

#include <stdlib.h>
#include <string.h>

static kvf_status check_shape(kvf_ctx *ctx, const kvf_base *base, const kvf__lora_module *m,
                              const kvf__slot *slot)
{
    char found[128], wanted[128];
    const int64_t dim[] = {m->b->dim[0], m->a->dim[1]}; /* out, in */
    const int64_t out = slot->view.dim[slot->conv1d ? 1 : 0];
    const int64_t in = slot->view.dim[slot->conv1d ? 0 : 1];

    if (dim[0] == out && dim[1] == in) return KVF_OK;
    return kvf__fail(ctx, KVF_EMISMATCH, "%s: %s: B A has shape %s, but the base's weight has %s",
                     base->lora, m->name, kvf__shape_text(found, 2, dim),
                     kvf__shape_text(wanted, 2, (const int64_t[]){out, in}));
}

static kvf_status find_slot(kvf_ctx *ctx, const kvf_base *base, const kvf__desc *desc,
                            const kvf__lora_module *m, kvf__slot **out)
{
    kvf__slot *slot = kvf__slot_of_module(desc, &base->slots, m->name);

    if (!slot || slot->view.rank != 2 || slot->role == KVF__W_TOKENS ||
        slot->role == KVF__W_POSITIONS || slot->role == KVF__W_TYPES)
        return kvf__fail(ctx, KVF_EMISMATCH, "%s: %.120s is not a separate linear layer of %s (%s)",
                         base->lora, m->name, base->path, desc->arch_name);
    if (slot->tiles.keys)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: %.120s: a GGUF of %s orders these values otherwise; use the folder "
                         "that the GGUF was made of",
                         base->lora, m->name, desc->arch_name);
    if (slot->add)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: %.120s is listed twice", base->lora, m->name);
    KVF_TRY(check_shape(ctx, base, m, slot));
    *out = slot;
    return KVF_OK;
}

static void transpose(const float *from, int64_t rows, int64_t columns, float *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            to[c * rows + r] = from[r * columns + c];
}

/* memory: for the two factors of the fold, then for transposing A or B. */
static void lay_factors(const kvf__lora_module *m, bool conv1d, float *memory, kvf__low_rank *fold)
{
    const int64_t r = m->a->dim[0], n_a = r * m->a->dim[1], n_b = r * m->b->dim[0];
    float *left = memory, *right = memory + (conv1d ? n_a : n_b), *spare = memory + n_a + n_b;

    kvf__to_f32(m->b->dtype, m->b->data, conv1d ? spare : left, n_b);
    if (conv1d) transpose(spare, m->b->dim[0], r, right);
    kvf__to_f32(m->a->dtype, m->a->data, conv1d ? spare : right, n_a);
    if (conv1d) transpose(spare, r, m->a->dim[1], left);
    for (int64_t i = 0; i < (conv1d ? n_a : n_b); i++)
        left[i] = (float)(m->scale * (double)left[i]);
    *fold = (kvf__low_rank){.left = left, .right = right, .r = r};
}

static kvf_status fold_module(kvf_ctx *ctx, const kvf__desc *desc, const kvf__lora_module *m,
                              kvf_base *base)
{
    const int64_t n_a = kvf__view_count(m->a), n_b = kvf__view_count(m->b);
    kvf__low_rank *fold = &base->folds[base->n_folds];
    kvf__slot *slot = NULL;
    float *memory = NULL;

    KVF_TRY(find_slot(ctx, base, desc, m, &slot));
    const int64_t spare = !slot->conv1d ? 0 : n_a > n_b ? n_a : n_b;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)(n_a + n_b + spare), sizeof *memory, &memory));
    lay_factors(m, slot->conv1d, memory, fold);
    base->n_folds++;
    slot->add = fold;
    return kvf__check_finite(ctx, base->lora, m->name, memory, n_a + n_b);
}

/* ---- identity -------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const kvf__lora_module *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Computes XXH3-128 of the base's hash and, in the order of names, of each weight's name, scale and
 * factors, independent of the arithmetic of their product. */
static kvf_status mix_hash(kvf_ctx *ctx, const kvf__desc *desc, const kvf__lora *lora,
                           kvf_base *base)
{
    kvf__hash *hash = NULL;
    kvf__buf text = {0};

    KVF_TRY(kvf__hash_create(ctx, &hash));
    kvf_status st = kvf__buf_printf(ctx, &text, "lora %s\n", base->hash);
    for (size_t i = 0; i < lora->n && !st; i++) {
        const kvf__lora_module *m = &lora->modules[i];
        const kvf__slot *slot = kvf__slot_of_module(desc, &base->slots, m->name);
        st = kvf__buf_printf(ctx, &text, "%s %.17g %lld %s %s\n", slot->name, m->scale,
                             (long long)m->a->dim[0], kvf__dtype_name(m->a->dtype),
                             kvf__dtype_name(m->b->dtype));
        if (st) break;
        kvf__hash_add(hash, text.data, text.n);
        kvf__hash_add(hash, m->a->data, kvf__view_bytes(m->a));
        kvf__hash_add(hash, m->b->data, kvf__view_bytes(m->b));
        text.n = 0;
    }
    if (!st) kvf__hash_hex(hash, base->hash);
    kvf__buf_done(&text);
    kvf__hash_free(hash);
    return st;
}

/* Returns "BASE+LORA", from the names of the folders. */
static kvf_status name_both(kvf_ctx *ctx, kvf_base *base)
{
    size_t end = strlen(base->lora);
    char *name = NULL;

    while (end > 1 && base->lora[end - 1] == '/')
        end--;
    size_t first = end;
    while (first > 0 && base->lora[first - 1] != '/')
        first--;
    KVF_TRY(
        kvf__asprintf(ctx, &name, "%s+%.*s", base->name, (int)(end - first), base->lora + first));
    kvf__free(base->name);
    base->name = name;
    return KVF_OK;
}

kvf_status kvf__lora_fold(kvf_ctx *ctx, const kvf__desc *desc, kvf_base *base)
{
    kvf__lora lora = {0};

    KVF_TRY(kvf__lora_open(ctx, base->lora, &lora));
    qsort(lora.modules, lora.n, sizeof *lora.modules, by_name);
    kvf_status st = kvf__alloc_array(ctx, lora.n, sizeof *base->folds, &base->folds);
    for (size_t i = 0; i < lora.n && !st; i++)
        st = fold_module(ctx, desc, &lora.modules[i], base);
    if (!st) st = mix_hash(ctx, desc, &lora, base);
    if (!st) st = name_both(ctx, base);
    kvf__lora_close(&lora);
    return st;
}
