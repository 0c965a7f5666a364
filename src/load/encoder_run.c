/* An encoder for a base: with the values of a checkpoint, or written as an untrained run. This is
 * the only code that passes parts of a base to an encoder, which never sees the model. */
#include "encoder_run.h"

#include "encoder_int.h"
#include "method.h"

#include <string.h>

kvf_status kvf__encoder_on_base(kvf_ctx *ctx, const kvf_base *base, const char *method,
                                const kvf__encoder_shape *shape, kvf__encoder **out)
{
    const kvf__desc *d = kvf__model_desc(base->model);
    kvf__kv_projections projections = {0};
    kvf__encoder_shape whole = *shape;

    const kvf__kv_shape kv = kvf__desc_kv(d);

    whole.L = kv.L;
    whole.G = kv.G;
    whole.D = kv.D;
    whole.heads = kv.heads;
    whole.C = d->C;
    if (kvf__encoder_needs_projections(method) && shape->P > 0) {
        KVF_TRY(kvf__model_kv_projections(ctx, base->model, &base->slots, shape->P, &projections));
        whole.projections = &projections;
    }
    return kvf__encoder_create(ctx, method, &whole, out);
}

/* The parameter that shows an encoder's hidden width, and the form of that encoder. */
static const struct {
    const char *name, *form;
    int dim;
} WIDTHS[] = {{"transform.0.weight", NULL, 0},
              {"lstm_head.weight_hh_l0", "lstm", 1},
              {"mlp_head.0.weight", "mlp", 0}};

/* Reads hidden widths, form and C from a parameter list; 0 and NULL if absent. */
static void read_widths(const kvf__params *params, kvf__encoder_shape *shape)
{
    const kvf__param *embedding = kvf__params_find(params, "embedding.weight");
    const kvf__param *neurons = kvf__params_find(params, "neurons.transform.0.weight");
    if (embedding && embedding->rank == 2) shape->C = embedding->dim[1];
    if (neurons && neurons->rank == 2) shape->neurons_M = neurons->dim[0];
    for (size_t i = 0; i < sizeof WIDTHS / sizeof WIDTHS[0]; i++) {
        const kvf__param *param = kvf__params_find(params, WIDTHS[i].name);
        if (!param || param->rank != 2) continue;
        shape->M = param->dim[WIDTHS[i].dim];
        shape->form = WIDTHS[i].form;
        return;
    }
}

kvf_status kvf__run_pick_state(kvf_ctx *ctx, const char *path, const kvf__artifact *run,
                               kvf_checkpoint checkpoint, const kvf__params **values, int64_t *step)
{
    bool has_best = kvf__run_has_best(run);
    if (checkpoint == KVF_CHECKPOINT_BEST && !has_best)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: no best checkpoint yet: no validation ran", path);
    bool best = has_best && checkpoint != KVF_CHECKPOINT_LAST;
    *values = best ? &run->best.params : &run->values.params;
    *step = best ? run->best_step : kvf__int_at(run->state, "step");
    return KVF_OK;
}

/* Checks that a method that reads the base has one, with the right shape. */
static kvf_status check_base(kvf_ctx *ctx, const char *path, const kvf__artifact *run,
                             const kvf_base *base)
{
    const kvf__method *method = kvf__method_find(run->id.method);
    if (!method || !method->reads_base) return KVF_OK;
    if (!base)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: method %s reads the base it was trained on: name it with --base",
                         path, method->name);
    const kvf__kv_shape want = kvf__desc_kv(kvf__model_desc(base->model));
    const kvf__kv_shape have = kvf__identity_kv(&run->id);
    char name[256], found[KVF__KV_TEXT], wanted[KVF__KV_TEXT];
    if (kvf__kv_same(&have, &want)) return KVF_OK;
    return kvf__fail(ctx, KVF_EMISMATCH, "%s: the run is for %s, %s, but the base has %s", path,
                     kvf__base_words(&run->id, name), kvf__heads_text(found, &have),
                     kvf__heads_text(wanted, &want));
}

kvf_status kvf__encoder_from_run(kvf_ctx *ctx, const char *path, const kvf__artifact *run,
                                 const kvf_base *base, kvf_checkpoint checkpoint,
                                 kvf__encoder **out, int64_t *step)
{
    const kvf__params *values = NULL;
    int64_t at = 0;
    KVF_TRY(kvf__run_pick_state(ctx, path, run, checkpoint, &values, &at));
    KVF_TRY(check_base(ctx, path, run, base));
    kvf__encoder_shape shape = {.L = run->id.L,
                                .G = run->id.G,
                                .P = run->id.P,
                                .D = run->id.D,
                                .heads = run->id.heads,
                                .neurons = run->id.neurons};
    const kvf__method *method = kvf__method_find(run->id.method);
    kvf__encoder *encoder = NULL;
    read_widths(values, &shape);
    if (base) shape.C = kvf__model_desc(base->model)->C;
    kvf_status st = method && method->reads_base
                        ? kvf__encoder_on_base(ctx, base, run->id.method, &shape, &encoder)
                        : kvf__encoder_create(ctx, run->id.method, &shape, &encoder);
    if (st == KVF_EUSAGE) /* no option: a width that read_widths() did not find */
        return kvf__fail_prefix(ctx, KVF_EFORMAT, "%s: the encoder's values are not complete",
                                path);
    if (st) return kvf__fail_prefix(ctx, st, "%s", path);
    st = kvf__encoder_load(ctx, encoder, path, values);
    if (st) {
        kvf__encoder_free(encoder);
        return st;
    }
    *out = encoder;
    *step = at;
    return KVF_OK;
}

kvf_status kvf__encoder_write_run(kvf_ctx *ctx, const char *path, bool force, kvf__encoder *encoder,
                                  kvf__artifact *run)
{
    if (!run->layer_mask) {
        KVF_TRY(kvf__alloc(ctx, (size_t)run->id.L, &run->layer_mask));
        memset(run->layer_mask, 1, (size_t)run->id.L);
    }
    run->state = kvf_json_object();
    if (!kvf_json_set(run->state, "step", kvf_json_new_int(0)))
        return kvf__fail(ctx, KVF_ENOMEM, "%s: out of memory", path);
    kvf_status st = kvf__log_weight_param(ctx, &run->prefix, NULL, &run->values.params);
    if (!st) st = kvf__params_append(ctx, &run->values.params, kvf__encoder_params(encoder));
    if (!st) st = kvf__artifact_write(ctx, path, force, run);
    kvf__params_done(&run->values.params); /* the encoder and the prefix own the values */
    return st;
}
