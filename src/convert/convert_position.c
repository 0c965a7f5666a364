/* Moves a prefix to other positions on a base with rope. Attention depends only on the distance
 * between query and key (RoFormer, arXiv 2104.09864, equation 16). A prefix therefore keeps its
 * effect if its keys are rotated by the shift of the rows after it. Rows start at P in PEFT,
 * P-tuning v2 and cartridges, at 0 in AdapterHub. Key p has position position_start - P + p. */
#include "merge_int.h"
#include "options.h"

#include <stdlib.h>
#include <string.h>

static kvf_status check_base(kvf_ctx *ctx, const kvf_convert_position_options *options,
                             kvf__identity *id, const kvf_base *base, int64_t start)
{
    const kvf__desc *d = kvf__model_desc(base->model);

    if (d->position.kind != KVF__POS_ROPE)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: %s has no rotary positions (rope), so there is nothing to convert",
                         options->base, kvf_base_architecture(base));
    KVF_TRY(kvf__identity_check(ctx, options->prefix, id, base, options->allow_other_base));
    if (start < d->position.max) return KVF_OK;
    return kvf__fail(
        ctx, KVF_ESHAPE,
        "--position-start %lld leaves no position for text: the base has %lld positions",
        (long long)start, (long long)d->position.max);
}

static kvf_status convert(kvf_ctx *ctx, const kvf_convert_position_options *options,
                          const kvf_base *base, kvf__artifact *file, int64_t *from, int64_t *to)
{
    int64_t P = file->id.P, before = file->id.position_start, after = 0;

    if (file->id.infix)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: a prefix inside rows (--infix) is rotated for each row, so there is "
                         "nothing to convert",
                         options->prefix);
    KVF_TRY(kvf__position_parse(ctx, options->position_start, P, &after));
    KVF_TRY(check_base(ctx, options, &file->id, base, after));
    kvf__rope_move(kvf__model_desc(base->model), &file->prefix, before - P, after - P);
    file->id.position_start = after;
    KVF_TRY(kvf__lineage_add(ctx, &file->lineage, "converted_from_position_start",
                             kvf_json_new_int(before)));
    KVF_TRY(kvf__artifact_write(ctx, options->out, options->force, file));
    *from = before;
    *to = after;
    return KVF_OK;
}

static kvf_status convert_file(kvf_ctx *ctx, const kvf_convert_position_options *options,
                               int64_t *from, int64_t *to)
{
    kvf__artifact file = {0};
    kvf_base *base = NULL;

    KVF_TRY(KVF__NOT_INPUTS(ctx, options->out, options->prefix, options->base));
    KVF_TRY(kvf__artifact_read(ctx, options->prefix, KVF__KIND_PREFIX, &file));
    kvf_status st = kvf__base_open_exact(ctx, options->base, options->lora, &base);
    if (!st) st = convert(ctx, options, base, &file, from, to);
    kvf_base_free(base);
    kvf__artifact_done(&file);
    return st;
}

kvf_status kvf_convert_position(kvf_ctx *ctx, const kvf_convert_position_options *options,
                                int64_t *from, int64_t *to)
{
    KVF_TRY(KVF__NEED(ctx, options, from, to));
    KVF_TRY(KVF__NEED(ctx, options->prefix, options->out, options->base, options->position_start));
    KVF__RETURN(ctx, convert_file(ctx, options, from, to));
}
