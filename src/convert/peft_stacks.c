/* PREFIX_TUNING of PEFT on encoder-decoders (peft_model.py, get_prompt, of 0.21): keys and values
 * of the decoder's self-attention only.
 *
 * For SEQ_2_SEQ_LM, PEFT writes its N layers twice in a row. It takes the list four entries at a
 * time, two for self-attention and two for cross-attention, and then empties the latter. So
 * self-attention of block b reads layer 2 b mod N; other layers have no effect. The export has N =
 * 2 * blocks layers, so that each block has its own layer. Odd layers are zeros.
 *
 * The keys are read from a cache. T5's decoder gives tokens of a cache a relative bias: see `near`
 * in prefix.h. */
#include "peft_stacks.h"
#include "arch.h"
#include "file_int.h"

#include <string.h>

/* Checks that the positions agree: PEFT's decoder starts at position P, like kvfold's, or has a
 * bias that depends only on distance. */
static kvf_status find_family(kvf_ctx *ctx, const char *where, const char *name, bool *near)
{
    const kvf__arch *arch = kvf__arch_by_model_type(name);

    *near = arch && arch->positions == KVF__POS_BIAS;
    if (*near || (arch && !arch->starts_at_0)) return KVF_OK;
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "%s: PEFT cannot represent a prefix of %s exactly: use --format safetensors",
                     where, name);
}

/* Returns the layer of the self-attention of decoder block b, after an encoder of this many layers
 * (stacks.h). */
static int64_t layer_of(int64_t encoder, int64_t b)
{
    return encoder + 2 * b;
}

static void copy_layer(kvf__prefix *to, int64_t at, const kvf__prefix *from, int64_t l)
{
    const size_t n = (size_t)(2 * to->G * to->P * to->D);

    memcpy(to->kv + (size_t)at * n, from->kv + (size_t)l * n, n * sizeof *to->kv);
}

kvf_status kvf__peft_stacks_export(kvf_ctx *ctx, const char *where, const kvf__artifact *file,
                                   kvf__prefix *out, kvf__identity *id)
{
    const kvf__prefix *from = &file->prefix;
    const int64_t encoder = file->id.encoder_layers, blocks = (file->id.L - encoder) / 2;
    bool near = false;

    KVF_TRY(find_family(ctx, where, file->id.base_architecture, &near));
    for (int64_t l = 0; l < from->L; l++)
        if ((bool)from->layer_mask[l] != (l >= encoder && (l - encoder) % 2 == 0))
            return kvf__fail(ctx, KVF_EUNSUPPORTED,
                             "%s: layer %lld has %s prefix, but in PEFT exactly the layers of the "
                             "decoder's self-attention have one (--places peft)",
                             where, (long long)l, from->layer_mask[l] ? "a" : "no");
    if (near && !file->id.relative_bias)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: its keys have no relative bias, but PEFT adds the decoder's: train "
                         "with --places peft",
                         where);
    KVF_TRY(kvf__prefix_init(ctx, out, 2 * blocks, from->G, from->P, from->D));
    for (int64_t b = 0; b < blocks; b++)
        copy_layer(out, 2 * b, from, layer_of(encoder, b));
    *id = file->id;
    id->L = out->L;
    return KVF_OK;
}

kvf_status kvf__peft_stacks_import(kvf_ctx *ctx, const char *where, const kvf__peft *peft,
                                   kvf__identity *id, kvf__prefix *prefix)
{
    const int64_t encoder = id->encoder_layers, blocks = (prefix->L - encoder) / 2;
    const int64_t layer = 2 * prefix->G * prefix->D, N = peft->width / layer;
    kvf__prefix theirs = {0};

    KVF_TRY(find_family(ctx, where, id->base_architecture, &id->relative_bias));
    if (id->relative_bias) id->position_start = 0; /* as in runs on such a base */
    if (peft->width % layer || N < blocks)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "%s: prompt_embeddings is [%lld, %lld], want [%lld, n * %lld] with n at "
                         "least %lld, the number of decoder layers",
                         where, (long long)peft->P, (long long)peft->width, (long long)peft->P,
                         (long long)layer, (long long)blocks);
    KVF_TRY(kvf__prefix_init(ctx, &theirs, N, prefix->G, peft->P, prefix->D));
    kvf__prefix_from_flat(&theirs, peft->flat);
    memset(prefix->layer_mask, 0, (size_t)prefix->L * sizeof *prefix->layer_mask);
    for (int64_t b = 0; b < blocks; b++) {
        copy_layer(prefix, layer_of(encoder, b), &theirs, 2 * b % N);
        prefix->layer_mask[layer_of(encoder, b)] = 1;
    }
    kvf__prefix_done(&theirs);
    return KVF_OK;
}
