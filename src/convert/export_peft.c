/* Export as an adapter folder of PEFT. */
#include "arch.h"
#include "export.h"
#include "peft_stacks.h"
#include "row_template.h"

/* Checks virtual tokens: PEFT puts them before the whole row, and reads a text's class from the
 * first state. */
static kvf_status check_vectors(kvf_ctx *ctx, const kvf_export_options *options,
                                const kvf_prefix *prefix)
{
    kvf__row_template pattern;
    KVF_TRY(kvf__row_template_init(ctx, prefix->file.pattern, prefix->file.vectors.P, &pattern));
    bool plain = kvf__row_template_plain(&pattern);
    kvf__row_template_done(&pattern);
    if (!plain)
        return kvf__fail(
            ctx, KVF_EUNSUPPORTED,
            "%s: the template \"%s\" places the virtual tokens, but PEFT puts them before the row",
            options->path, prefix->file.pattern);
    return prefix->task == KVF__TASK_SEQ_CLS
               ? kvf__check_block_user(ctx, options, prefix, KVF__BLOCK_PROMPT_CLASS)
               : KVF_OK;
}

kvf__peft_content kvf__peft_facts(const kvf_export_options *options, const kvf_prefix *prefix)
{
    return (kvf__peft_content){.id = &prefix->file.id,
                               .head = &prefix->file.head,
                               .base_id = options->base_id,
                               .options = prefix->file.options,
                               .lineage = prefix->file.lineage};
}

kvf_status kvf__peft_form_of(kvf_ctx *ctx, const kvf_export_options *options,
                             const kvf_prefix *prefix, kvf__peft_form *out)
{
    const kvf__artifact *file = &prefix->file;
    const kvf__arch *arch = kvf__arch_by_model_type(file->id.base_architecture);
    const bool at_input = file->vectors.P > 0, stacks = file->id.encoder_layers > 0;

    KVF_TRY(kvf__check_block_user(ctx, options, prefix, KVF__BLOCK_PAST));
    if (arch && arch->takes_no_cache && file->prefix.P)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: PEFT cannot load the prefix, because models of type %s in "
                         "transformers take no past keys and values",
                         options->path, arch->name);
    if (file->prefix.heads)
        return kvf__fail(
            ctx, KVF_EUNSUPPORTED,
            "%s: its heads differ by layer, which PEFT does not support: use --format safetensors",
            options->path);
    out->what = kvf__peft_facts(options, prefix);
    if (stacks) {
        out->what.id = &out->id;
        out->what.prefix = &out->stacks;
        KVF_TRY(kvf__peft_stacks_export(ctx, options->path, file, &out->stacks, &out->id));
    } else if (at_input) {
        out->what.vectors = &file->vectors;
        KVF_TRY(check_vectors(ctx, options, prefix));
    } else {
        out->what.prefix = &file->prefix;
    }
    return kvf__peft_check(ctx, options->out, &out->what);
}

kvf_status kvf__export_peft(kvf_ctx *ctx, const kvf_export_options *options,
                            const kvf_prefix *prefix)
{
    kvf__peft_form form = {0};
    kvf_status st = kvf__peft_form_of(ctx, options, prefix, &form);

    if (!st) st = kvf__peft_write(ctx, options->out, options->force, &form.what);
    kvf__prefix_done(&form.stacks);
    return st;
}
