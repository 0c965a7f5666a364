/* Folding a run that trained every weight to a base file. It has the config and tokenizer of the
 * original base (for a GGUF, made from its metadata) and the head of the task. A run of method head
 * becomes a base file too, with unchanged weights.
 *
 * A run that also trained virtual tokens folds to two files: the base file, and the usual file of
 * the virtual tokens, made on the new base. */
#include "merge_int.h"
#include "outfile.h"

#include <math.h>
#include <string.h>

static kvf_status check_base(kvf_ctx *ctx, const kvf_merge_options *options, const kvf_prefix *live)
{
    if (options->base) return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE,
                     "%s: method %s folds to a base with the config and tokenizer of the original "
                     "one: name that with --base",
                     options->run, live->file.id.method);
}

/* Writes the base file `out`; task NULL: without a head. */
static kvf_status write_base(kvf_ctx *ctx, const kvf_merge_options *options, const kvf_prefix *live,
                             kvf__artifact *task, const char *out)
{
    kvf_base *base = NULL;

    KVF_TRY(kvf__base_open_exact(ctx, options->base, options->lora, &base));
    kvf_status st = kvf__prefix_fits(ctx, live, base, options->allow_other_base);
    if (!st)
        st = kvf__base_from_values(ctx, base, &live->file.values.params, task, out, options->force);
    if (!st) st = kvf__verify_base(ctx, out, live, task);
    kvf_base_free(base);
    return st;
}

/* Writes the base file with the head of the run. The head's attributes are those of the run, except
 * the hash. The head is borrowed. */
static kvf_status write_with_head(kvf_ctx *ctx, const kvf_merge_options *options,
                                  const kvf_prefix *live)
{
    kvf__artifact task = kvf__prefix_view(live, KVF__KIND_BASE);

    if (live->task == KVF__TASK_LM) return write_base(ctx, options, live, NULL, options->out);
    KVF_TRY(kvf__identity_copy(ctx, &live->file.id, &task.id));
    kvf_status st = write_base(ctx, options, live, &task, options->out);
    kvf__identity_done(&task.id);
    return st;
}

kvf_status kvf__fold_base(kvf_ctx *ctx, const kvf_merge_options *options, const kvf_prefix *live,
                          kvf_merge_result *result)
{
    KVF_TRY(check_base(ctx, options, live));
    KVF_TRY(write_with_head(ctx, options, live));
    result->max_abs_diff = 0;
    result->rank = 1;
    const kvf__params *values = &live->file.values.params;
    if (!values->n) values = &live->file.head.params.params;
    for (size_t i = 0; i < values->n; i++)
        result->shape[0] += values->item[i].n;
    return KVF_OK;
}

/* ---- with virtual tokens --------------------------------------------------------------------- */

static kvf_status check_out_base(kvf_ctx *ctx, const kvf_merge_options *options,
                                 const kvf_prefix *live)
{
    if (!options->out_base)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: trained the base and virtual tokens (--unfreeze base) and folds to "
                         "two files: name the base file with --out-base",
                         options->run);
    KVF_TRY(check_base(ctx, options, live));
    KVF_TRY(KVF__NOT_INPUTS(ctx, options->out_base, options->run, options->base, options->probe));
    if (!strcmp(options->out_base, options->out))
        return kvf__fail(ctx, KVF_EUSAGE, "%s: --out and --out-base name one file", options->out);
    /* check before the base is written, which takes longest */
    return kvf__check_output(ctx, options->out, options->force);
}

kvf_status kvf__fold_trained_base(kvf_ctx *ctx, const kvf_merge_options *options, kvf_prefix *live)
{
    kvf_base *base = NULL;
    char *hash = NULL;

    KVF_TRY(check_out_base(ctx, options, live));
    KVF_TRY(write_base(ctx, options, live, NULL, options->out_base));
    KVF_TRY(kvf__base_open_exact(ctx, options->out_base, NULL, &base));
    kvf_status st = kvf__strdup(ctx, kvf_base_hash(base), &hash);
    kvf_base_free(base);
    if (st) return st;
    kvf__free(live->file.id.base_hash);
    live->file.id.base_hash = hash;
    kvf__params_owned_done(&live->file.values);
    live->form = (kvf__train){0};
    return KVF_OK;
}
