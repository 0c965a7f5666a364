/* Un-merging: finds an MLP encoder that emits a given static prefix. Training can then continue in
 * the reparameterized form, for which Li & Liang 2021 (section 4.3) give no way back.
 *
 * Embedding and first layer are drawn as for a new run; with them fixed the hidden rows are too,
 * and the last layer is a linear least-squares problem (last_layer.c). P hidden rows are
 * independent almost surely while P <= min(M, G*D): the residual is then that of rounding. */
#include "encoder_int.h"
#include "encoder_run.h"
#include "merge_int.h"

#include <string.h>

enum { HIDDEN = 512 };

/* Opens the prefix of a prefix file. If a base is given, opens it on the base and stores the base's
 * hash. */
static kvf_status open_prefix(kvf_ctx *ctx, const kvf_unmerge_options *options, kvf_prefix **out)
{
    kvf_base *base = NULL;
    kvf_prefix *prefix = NULL;
    kvf__kind kind = KVF__KIND_ANY;

    KVF_TRY(kvf__kind_of(ctx, options->prefix, &kind));
    if (kind != KVF__KIND_PREFIX)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: is a file of kind %s, want a prefix file",
                         options->prefix, kvf__kind_name(kind));
    kvf_status st = kvf_prefix_open(ctx, options->prefix, KVF_CHECKPOINT_DEFAULT, &prefix);
    if (!st && !prefix->file.id.P && !prefix->file.id.neurons.N)
        st = kvf__fail(ctx, KVF_EUSAGE, "%s: has no virtual tokens", options->prefix);
    if (!st && options->base) st = kvf__base_open_exact(ctx, options->base, options->lora, &base);
    if (!st && base)
        st = kvf__identity_check(ctx, options->prefix, &prefix->file.id, base,
                                 options->allow_other_base);
    kvf_base_free(base);
    KVF__GIVE(st, out, prefix, kvf_prefix_free(prefix));
    return st;
}

static kvf_status solve(kvf_ctx *ctx, const kvf_unmerge_options *options, kvf_prefix *prefix,
                        kvf__encoder **out, double *residual)
{
    const kvf__identity *id = &prefix->file.id;
    const kvf__encoder_shape shape = {
        .L = id->L,
        .G = id->G,
        .P = id->P,
        .D = id->D,
        .heads = id->heads,
        .neurons = id->neurons,
        .M = options->encoder_hidden ? options->encoder_hidden : HIDDEN,
    };
    kvf__encoder *encoder = NULL;

    KVF_TRY(kvf__encoder_create(ctx, "mlp", &shape, &encoder));
    kvf__encoder_init_random(encoder, false, options->seed);
    kvf_status st = kvf__encoder_init_target(
        ctx, encoder, (kvf__emitted){.prefix = &prefix->file.prefix}, residual);
    double of_neurons = 0;
    if (!st && id->neurons.N)
        st = kvf__encoder_init_neurons(ctx, encoder, &prefix->file.prefix.neurons, &of_neurons);
    if (of_neurons > *residual) *residual = of_neurons;
    if (!st)
        st = kvf__encoder_check_fit(ctx, encoder, options->prefix, *residual, options->approximate);
    if (!st)
        *out = encoder;
    else
        kvf__encoder_free(encoder);
    return st;
}

/* Records the origin of the run; options for rendering rows stay in the prefix's options. */
static kvf_status note_origin(kvf_ctx *ctx, const kvf_unmerge_options *options, kvf_prefix *prefix,
                              double residual)
{
    kvf_json **lineage = &prefix->file.lineage;
    KVF_TRY(kvf__lineage_add_hash(ctx, lineage, "unmerged_from", options->prefix));
    KVF_TRY(kvf__lineage_add(ctx, lineage, "unmerge_residual", kvf_json_new_real(residual)));
    return kvf__lineage_add(ctx, lineage, "unmerge_seed", kvf_json_new_int((int64_t)options->seed));
}

/* Views the prefix's values as a run, with another method. */
static kvf_status write_run(kvf_ctx *ctx, const kvf_unmerge_options *options,
                            const kvf_prefix *prefix, kvf__encoder *encoder)
{
    kvf__artifact run = kvf__prefix_view(prefix, KVF__KIND_RUN);
    run.layer_mask = prefix->file.prefix.layer_mask;
    run.neuron_mask = prefix->file.prefix.neurons.layer_mask;
    run.id.method = "mlp";
    kvf_status st = kvf__encoder_write_run(ctx, options->out, options->force, encoder, &run);
    kvf_json_free(run.state);
    return st;
}

static kvf_status unmerge(kvf_ctx *ctx, const kvf_unmerge_options *options,
                          kvf_unmerge_result *result)
{
    kvf_prefix *prefix = NULL;
    kvf__encoder *encoder = NULL;
    kvf_unmerge_result r = {0};

    KVF_TRY(KVF__NOT_INPUTS(ctx, options->out, options->prefix, options->base));
    KVF_TRY(open_prefix(ctx, options, &prefix));
    kvf_status st = solve(ctx, options, prefix, &encoder, &r.residual);
    if (!st) st = note_origin(ctx, options, prefix, r.residual);
    if (!st) st = write_run(ctx, options, prefix, encoder);
    if (!st) {
        const kvf__params *params = kvf__encoder_params(encoder);
        r.P = prefix->file.id.P;
        r.M = kvf__encoder_shape_of(encoder)->M;
        for (size_t i = 0; i < params->n; i++)
            r.parameters += params->item[i].n;
        *result = r;
    }
    kvf__encoder_free(encoder);
    kvf_prefix_free(prefix);
    return st;
}

kvf_status kvf_unmerge(kvf_ctx *ctx, const kvf_unmerge_options *options, kvf_unmerge_result *result)
{
    KVF_TRY(KVF__NEED(ctx, options, result));
    KVF_TRY(KVF__NEED(ctx, options->prefix, options->out));
    KVF__RETURN(ctx, unmerge(ctx, options, result));
}
