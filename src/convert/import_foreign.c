/* Other programs' prefixes (foreign.h), imported. Their embedding, linear, tanh, linear is kvfold's
 * own `mlp` where the embedding is G*D wide, and becomes a run at step 0; anything else, another
 * non-linearity, depth or width, is run once and becomes the prefix that it emits. */
#include "encoder_int.h"
#include "encoder_run.h"
#include "import.h"

#include <math.h>
#include <string.h>
#include <strings.h>

/* What an import knows of its target. */
typedef struct target {
    const kvf_import_options *options;
    const kvf_base *base; /* NULL: the prefix has its shape itself */
    const kvf__foreign *f;
    uint8_t *mask;  /* [L], 0: left out */
    int64_t layers; /* with a prefix */
    int64_t width;  /* 2 * layers * G * D: of a row of theirs */
    kvf__identity id;
    kvf__head_values head;
} target;

static void target_done(target *t)
{
    kvf__free(t->mask);
    kvf__identity_done(&t->id);
    kvf__head_values_done(&t->head);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static kvf_status read_mask(kvf_ctx *ctx, target *t)
{
    const kvf_json *out = t->f->leave_out;
    int64_t L = t->id.L;

    KVF_TRY(kvf__alloc(ctx, (size_t)L, &t->mask));
    memset(t->mask, 1, (size_t)L);
    t->layers = L;
    for (size_t i = 0; i < kvf_json_size(out); i++) {
        int64_t l = kvf_json_int(kvf_json_at(out, i), -1);
        if (l < 0 || l >= L || !t->mask[l])
            return kvf__fail(ctx, KVF_EFORMAT,
                             "%s: leave_out[%zu] of its config is no layer of 0 to %lld, or twice",
                             t->options->path, i, (long long)L - 1);
        t->mask[l] = 0;
        t->layers--;
    }
    if (t->layers) return KVF_OK;
    return kvf__fail(ctx, KVF_EFORMAT, "%s: leave_out of its config leaves no layer",
                     t->options->path);
}

static kvf_status check_width(kvf_ctx *ctx, const target *t, const char *what, int64_t found)
{
    if (found == t->width) return KVF_OK;
    return kvf__fail(ctx, KVF_ESHAPE,
                     "%s: %s %lld wide, but 2 * %lld layers * %lld heads * %lld of the base want "
                     "%lld",
                     t->options->path, what, (long long)found, (long long)t->layers,
                     (long long)t->id.G, (long long)t->id.D, (long long)t->width);
}

/* P of what they have, and whether it fits the base. */
static kvf_status measure(kvf_ctx *ctx, target *t)
{
    const kvf__foreign *f = t->f;
    const kvf__view *table = &f->table;

    t->width = 2 * t->layers * t->id.G * t->id.D;
    if (f->layers) {
        t->id.P = table->dim[0];
        return check_width(ctx, t, "its last layer is", f->layer[f->layers - 1].weight.dim[0]);
    }
    if (table->rank == 2) {
        t->id.P = table->dim[0];
        return check_width(ctx, t, "its rows are", table->dim[1]);
    }
    t->id.P = table->dim[0] / t->width;
    if (t->id.P && table->dim[0] % t->width == 0) return KVF_OK;
    return kvf__fail(
        ctx, KVF_ESHAPE,
        "%s: its prefix has %lld elements, no multiple of 2 * %lld layers * %lld heads "
        "* %lld of the base",
        t->options->path, (long long)table->dim[0], (long long)t->layers, (long long)t->id.G,
        (long long)t->id.D);
}

static kvf_status check_finite(kvf_ctx *ctx, const char *path, const char *what, const float *x,
                               size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return kvf__fail(ctx, KVF_ENUMERIC, "%s: %s[%zu] is %g, want finite values", path, what,
                             i, (double)x[i]);
    return KVF_OK;
}

/* ---- as a run -------------------------------------------------------------------------------- */

static bool is_our_mlp(const target *t)
{
    const kvf__foreign *f = t->f;
    return f->layers == 2 && f->activation && !strcasecmp(f->activation, "tanh") &&
           f->table.dim[1] == t->id.G * t->id.D;
}

/* Rows of the last layer, of which left-out layers have none (theirs stay zero here). */
static void copy_rows(const target *t, const kvf__view *view, int64_t columns, float *to)
{
    int64_t part = 2 * t->id.G * t->id.D * columns;
    const char *from = view->data;
    for (int64_t l = 0; l < t->id.L; l++) {
        if (!t->mask[l]) continue;
        kvf__to_f32(view->dtype, from, to + l * part, part);
        from += (size_t)part * kvf__dtype_block_bytes(view->dtype);
    }
}

static kvf_status fill_encoder(kvf_ctx *ctx, const target *t, kvf__encoder *encoder)
{
    const kvf__foreign *f = t->f;
    const kvf__params *params = kvf__encoder_params(encoder);
    const kvf__view *const views[] = {&f->table, &f->layer[0].weight, &f->layer[0].bias,
                                      &f->layer[1].weight, &f->layer[1].bias};
    for (size_t i = 0; i < 5; i++) {
        kvf__param *param = &params->item[i];
        if (i < 3)
            kvf__to_f32(views[i]->dtype, views[i]->data, param->value, param->n);
        else
            copy_rows(t, views[i], i == 3 ? param->dim[1] : 1, param->value);
        KVF_TRY(check_finite(ctx, t->options->path, param->name, param->value, (size_t)param->n));
    }
    return KVF_OK;
}

static kvf_status write_run(kvf_ctx *ctx, const target *t)
{
    const kvf__encoder_shape shape = {
        .L = t->id.L, .G = t->id.G, .P = t->id.P, .D = t->id.D, .M = t->f->layer[0].weight.dim[0]};
    kvf__encoder *encoder = NULL;
    kvf__artifact run = {.kind = KVF__KIND_RUN,
                         .id = t->id,
                         .head = t->head,
                         .layer_mask = t->mask}; /* all viewed */

    KVF_TRY(kvf__encoder_create(ctx, "mlp", &shape, &encoder));
    kvf_status st = fill_encoder(ctx, t, encoder);
    if (!st) st = kvf__encoder_write_run(ctx, t->options->out, t->options->force, encoder, &run);
    kvf__encoder_free(encoder);
    kvf_json_free(run.state);
    return st;
}

/* ---- as a prefix ----------------------------------------------------------------------------- */

/* flat [P, width] of theirs to the prefix; left-out layers are zeros and masked. */
static kvf_status spread(kvf_ctx *ctx, const target *t, const float *flat, kvf__prefix *prefix)
{
    int64_t part = 2 * t->id.G * t->id.D, width = part * t->id.L;
    float *whole = NULL;

    KVF_TRY(kvf__alloc_array(ctx, (size_t)(t->id.P * width), sizeof *whole, &whole));
    for (int64_t p = 0; p < t->id.P; p++) {
        const float *from = flat + p * t->width;
        for (int64_t l = 0; l < t->id.L; l++) {
            if (!t->mask[l]) continue;
            memcpy(whole + p * width + l * part, from, (size_t)part * sizeof *whole);
            from += part;
        }
    }
    kvf__prefix_from_flat(prefix, whole);
    memcpy(prefix->layer_mask, t->mask, (size_t)t->id.L);
    kvf__free(whole);
    return KVF_OK;
}

static kvf_status emit(kvf_ctx *ctx, const target *t, kvf__prefix *prefix)
{
    float *flat = NULL;
    size_t n = 0;

    KVF_TRY(kvf__prefix_init(ctx, prefix, t->id.L, t->id.G, t->id.P, t->id.D));
    if (t->f->prefix.kv) {
        memcpy(prefix->kv, t->f->prefix.kv, kvf__prefix_count(prefix) * sizeof *prefix->kv);
        return KVF_OK;
    }
    if (!kvf__mul((size_t)t->id.P, (size_t)t->width, &n))
        return kvf__fail(ctx, KVF_ENOMEM, "%s: out of memory", t->options->path);
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *flat, &flat));
    kvf_status st = kvf__foreign_emit(ctx, t->f, t->id.P, t->width, flat);
    if (st)
        kvf__fail_prefix(ctx, st, "%s", t->options->path);
    else
        st = spread(ctx, t, flat, prefix);
    kvf__free(flat);
    return st;
}

static kvf_status write_prefix(kvf_ctx *ctx, const target *t)
{
    kvf__artifact file = {
        .kind = KVF__KIND_PREFIX, .id = t->id, .dtype = KVF__F32, .head = t->head};
    kvf_status st = emit(ctx, t, &file.prefix);
    if (!st)
        st = check_finite(ctx, t->options->path, "its prefix", file.prefix.kv,
                          kvf__prefix_count(&file.prefix));
    if (!st) st = kvf__artifact_write(ctx, t->options->out, t->options->force, &file);
    kvf__prefix_done(&file.prefix);
    return st;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* A prefix that has its shape is compared with the base; others get theirs from it. */
static kvf_status shape_target(kvf_ctx *ctx, target *t)
{
    const kvf__prefix *own = &t->f->prefix;
    const kvf__desc *d = t->base ? kvf__model_desc(t->base->model) : NULL;

    if (!own->kv) {
        if (!d)
            return kvf__fail(ctx, KVF_EUSAGE,
                             "%s: %s does not say L, G and D: name the base with --base",
                             t->options->path, t->f->format);
        if (d->by_layer.shape)
            return kvf__fail(ctx, KVF_EUNSUPPORTED,
                             "%s: layers of %s differ, which %s does not know", t->options->path,
                             d->arch_name, t->f->format);
        t->id.L = d->L;
        t->id.G = d->G;
        t->id.D = d->D;
        KVF_TRY(read_mask(ctx, t));
        return measure(ctx, t);
    }
    t->id.L = own->L;
    t->id.G = own->G;
    t->id.D = own->D;
    t->id.P = own->P;
    if (!d) return KVF_OK;
    const kvf__kv_shape have = kvf__prefix_shape(own), want = kvf__desc_kv(d);
    char found[KVF__KV_TEXT], wanted[KVF__KV_TEXT];
    if (kvf__kv_same(&have, &want)) return KVF_OK;
    return kvf__fail(ctx, KVF_ESHAPE, "%s: is for %s, the base has %s", t->options->path,
                     kvf__heads_text(found, &have), kvf__heads_text(wanted, &want));
}

static kvf_status import_target(kvf_ctx *ctx, target *t, char *kind)
{
    const kvf__foreign *f = t->f;
    const char *task = NULL;

    KVF_TRY(shape_target(ctx, t));
    KVF_TRY(kvf__foreign_task(ctx, t->options, f, &task));
    const bool run = !f->prefix.kv && is_our_mlp(t);
    KVF_TRY(kvf__import_stamp(ctx, t->base, "", run ? "mlp" : "direct", task, &t->id));
    if (f->starts_at_0) t->id.position_start = 0;
    KVF_TRY(kvf__foreign_head(ctx, t->options, t->base, f, task, &t->head));
    KVF_TRY(run ? write_run(ctx, t) : write_prefix(ctx, t));
    strcpy(kind, run ? "run" : "prefix");
    return KVF_OK;
}

kvf_status kvf__import_foreign(kvf_ctx *ctx, const kvf_import_options *options,
                               const kvf_base *base, const kvf__foreign *foreign, char *kind)
{
    target t = {.options = options, .base = base, .f = foreign};
    kvf_status st = import_target(ctx, &t, kind);

    target_done(&t);
    return st;
}
