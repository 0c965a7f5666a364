/* Export: a run or prefix as a PEFT folder, or as one safetensors file with the raw past key
 * values. */
#include "arch.h"
#include "open_prefix.h"
#include "peft.h"
#include "row_template.h"

#include <string.h>

/* PEFT puts its virtual tokens in front of all, and reads a text's class from the first state. */
static kvf_status check_vectors(kvf_ctx *ctx, const kvf_export_options *options,
                                const kvf_prefix *prefix)
{
    const kvf__arch *arch = kvf__arch_by_model_type(prefix->file.id.base_architecture);
    kvf__row_template pattern;
    KVF_TRY(kvf__row_template_init(ctx, prefix->file.pattern, prefix->file.vectors.P, &pattern));
    bool plain = kvf__row_template_plain(&pattern);
    kvf__row_template_done(&pattern);
    if (!plain)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: virtual tokens stand where the template \"%s\" says, in PEFT they "
                         "lead the row",
                         options->path, prefix->file.pattern);
    if (arch && !arch->block.causal && prefix->task == KVF__TASK_SEQ_CLS)
        return kvf__fail(
            ctx, KVF_EUNSUPPORTED,
            "%s: the class is read from [CLS], which in PEFT stands behind the virtual "
            "tokens: it would read the first of them",
            options->path);
    return KVF_OK;
}

static bool is_hub_id(const char *text)
{
    static const char WORD[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = strspn(text, WORD);
    if (n && text[n] == '/') {
        const size_t name = strspn(text + n + 1, WORD);
        n = name ? n + 1 + name : 0;
    }
    return n && !text[n] && text[0] != '.';
}

/* What transformers would take: else the adapter could not be loaded by it. */
static kvf_status check_base_id(kvf_ctx *ctx, const kvf_export_options *options, bool peft)
{
    const char *id = options->base_id;
    if (!id) return KVF_OK;
    if (!peft)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--base-id is for --format peft: safetensors has no place for it");
    if (is_hub_id(id) || kvf__is_dir(id)) return KVF_OK;
    return kvf__fail(
        ctx, KVF_EUSAGE,
        "--base-id \"%s\": want an id of the Hugging Face Hub, as org/name, or a folder "
        "that is there",
        id);
}

static kvf_status export_peft(kvf_ctx *ctx, const kvf_export_options *options,
                              const kvf_prefix *prefix)
{
    const bool at_input = prefix->file.vectors.P > 0;
    const kvf__peft_content what = {.id = &prefix->file.id,
                                    .prefix = at_input ? NULL : &prefix->file.prefix,
                                    .vectors = at_input ? &prefix->file.vectors : NULL,
                                    .head = &prefix->file.head,
                                    .base_id = options->base_id,
                                    .options = prefix->file.options,
                                    .lineage = prefix->file.lineage};
    if (at_input) KVF_TRY(check_vectors(ctx, options, prefix));
    return kvf__peft_write(ctx, options->out, options->force, &what);
}

static kvf_status export_safetensors(kvf_ctx *ctx, const char *out, bool force,
                                     const kvf_prefix *prefix)
{
    const kvf__identity *id = &prefix->file.id;
    const kvf__vectors *v = &prefix->file.vectors;
    kvf__tensor tokens = {
        .name = "prompt_embeddings",
        .view = {.data = v->x, .dtype = KVF__F32, .rank = 2, .dim = {v->P, v->C}},
    };
    if (v->P) return kvf__safetensors_write(ctx, out, force, &tokens, 1);
    if (id->raw_keys)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: the keys of a prefix inside rows (placement infix) are not rotated: "
                         "they are no past_key_values",
                         out);
    kvf__tensor tensor = {
        .name = "past_key_values",
        .view = {.data = prefix->file.prefix.kv,
                 .dtype = KVF__F32,
                 .rank = 6,
                 .dim = {id->L, 2, 1, id->G, id->P, id->D}},
    };
    return kvf__safetensors_write(ctx, out, force, &tensor, 1);
}

kvf_status kvf_export(kvf_ctx *ctx, const kvf_export_options *options)
{
    const bool peft = options->format == KVF_EXPORT_PEFT;
    kvf_prefix *prefix = NULL;
    bool needs_base = false;
    KVF_TRY(check_base_id(ctx, options, peft));
    KVF_TRY(kvf_check_not_input(ctx, options->out, options->path));
    KVF_TRY(kvf_prefix_needs_base(ctx, options->path, &needs_base));
    if (needs_base)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: its method reads the base: merge the run, then export the prefix",
                         options->path);
    KVF_TRY(kvf_prefix_open(ctx, options->path, options->checkpoint, &prefix));
    if (kvf_prefix_changes_base(prefix)) {
        kvf_status refused = kvf__fail(
            ctx, KVF_EUNSUPPORTED,
            "%s: method %s is no prefix: neither PEFT nor past key values "
            "have a form for it",
            options->path, prefix->file.id.method);
        kvf_prefix_free(prefix);
        return refused;
    }
    kvf_status st = options->head ? kvf_prefix_use_head(ctx, prefix, options->head) : KVF_OK;
    if (!st)
        st = peft ? export_peft(ctx, options, prefix)
                  : export_safetensors(ctx, options->out, options->force, prefix);
    kvf_prefix_free(prefix);
    return st;
}
