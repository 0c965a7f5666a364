/* Opens what conditions a base: a prefix file as it stands, or a run file through its live encoder.
 * Both end as the same tensor; a test holds them to be equal bit for bit. */
#include "encoder_int.h"
#include "load_int.h"
#include "low_rank.h"

#include <string.h>

/* The template that its rows had, if any. Of a prefix: one that names no virtual tokens; else the
 * prefix stands for them. */
static kvf_status take_pattern(kvf_ctx *ctx, const kvf_json *options, kvf_prefix *prefix)
{
    const char *text = kvf_json_str(kvf_json_get(options, "p-template"), NULL);
    bool has_virtual = text && (strstr(text, "{p}") || strstr(text, "{p:"));
    if (!text || !*text || (has_virtual && !prefix->vectors.P)) return KVF_OK;
    return kvf__strdup(ctx, text, &prefix->pattern);
}

/* Everything of the file is taken over. Of a base it is the head: weights apart, it says no more
 * than a prefix of length 0 would. */
static kvf_status from_file(kvf_ctx *ctx, const char *path, kvf__artifact *file, kvf_prefix *prefix)
{
    if (!file->id.task)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: is a base file without a head, want a prefix, embeddings, adapter or "
                         "run file",
                         path);
    if (file->kind == KVF__KIND_ADAPTER) KVF_TRY(kvf__block_form(ctx, path, file, &prefix->form));
    prefix->id = file->id;
    prefix->prefix = file->prefix;
    prefix->vectors = file->vectors;
    prefix->pattern = file->pattern;
    prefix->block = file->values;
    prefix->head = file->head;
    prefix->options = file->options;
    prefix->lineage = file->lineage;
    prefix->step = -1;
    file->id = (kvf__identity){0};
    file->prefix = (kvf__prefix){0};
    file->vectors = (kvf__vectors){0};
    file->pattern = NULL;
    file->values = (kvf__params_owned){0};
    file->head = (kvf__head_values){0};
    file->options = file->lineage = NULL;
    return file->kind == KVF__KIND_PREFIX || file->kind == KVF__KIND_BASE
               ? take_pattern(ctx, prefix->options, prefix)
               : KVF_OK;
}

static kvf_status kind_of_base(kvf_ctx *ctx, const char *path, kvf__file_kind *out)
{
    char *found = NULL;
    KVF_TRY(kvf__hub_find(ctx, path, &found));
    kvf_status st = kvf__file_kind_of(ctx, found, out);
    kvf__free(found);
    return st;
}

kvf_status kvf_base_has_head(kvf_ctx *ctx, const char *path, bool *out)
{
    kvf__file_kind kind = KVF__FILE_UNKNOWN;
    kvf__kind held = KVF__KIND_ANY;
    kvf__artifact task = {0};

    *out = false;
    KVF_TRY(kind_of_base(ctx, path, &kind));
    if (kind != KVF__FILE_HDF5) return KVF_OK;
    KVF_TRY(kvf__kind_of(ctx, path, &held));
    if (held != KVF__KIND_BASE) return KVF_OK;
    KVF_TRY(kvf__artifact_read(ctx, path, held, &task));
    *out = task.id.task != NULL;
    kvf__artifact_done(&task);
    return KVF_OK;
}

/* Which parameter tells the hidden width of an encoder, and of which form it is then. */
static const struct {
    const char *name, *form;
    int dim;
} WIDTHS[] = {{"transform.0.weight", NULL, 0},
              {"lstm_head.weight_hh_l0", "lstm", 1},
              {"mlp_head.0.weight", "mlp", 0}};

static const kvf__param *find(const kvf__params *params, const char *name)
{
    for (size_t i = 0; i < params->n; i++)
        if (!strcmp(params->item[i].name, name)) return &params->item[i];
    return NULL;
}

/* M, form and C as a parameter list has them; 0 and NULL where it has none. */
static void read_widths(const kvf__params *params, kvf__encoder_shape *shape)
{
    const kvf__param *embedding = find(params, "embedding.weight");
    if (embedding && embedding->rank == 2) shape->C = embedding->dim[1];
    for (size_t i = 0; i < sizeof WIDTHS / sizeof WIDTHS[0]; i++) {
        const kvf__param *param = find(params, WIDTHS[i].name);
        if (!param || param->rank != 2) continue;
        shape->M = param->dim[WIDTHS[i].dim];
        shape->form = WIDTHS[i].form;
        return;
    }
}

static kvf_status pick_state(kvf_ctx *ctx, const char *path, const kvf__artifact *run,
                             kvf_checkpoint checkpoint, const kvf__params **values, int64_t *step)
{
    bool has_best = run->best.params.n > 0;
    if (checkpoint == KVF_CHECKPOINT_BEST && !has_best)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: no best checkpoint yet: no validation ran", path);
    bool best = has_best && checkpoint != KVF_CHECKPOINT_LAST;
    *values = best ? &run->best.params : &run->values.params;
    *step = best ? run->best_step : kvf_json_int(kvf_json_get(run->state, "step"), 0);
    return KVF_OK;
}

/* "base NAME". */
static const char *base_of(const kvf__identity *id, char buf[256])
{
    const bool named = id->base_name && *id->base_name;
    snprintf(buf, 256, named ? "base %s" : "another base", id->base_name);
    return buf;
}

/* A method that reads the base cannot emit without it, nor beside one of another shape. */
static kvf_status check_base(kvf_ctx *ctx, const char *path, const kvf__artifact *run,
                             const kvf_base *base)
{
    const kvf__method *method = kvf__method_find(run->id.method);
    if (!method || !method->reads_base) return KVF_OK;
    if (!base)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: method %s reads the base it was trained on: name it with --base",
                         path, method->name);
    const kvf__desc *d = kvf__model_desc(base->model);
    char name[256];
    if (run->id.L == d->L && run->id.G == d->G && run->id.D == d->D) return KVF_OK;
    return kvf__fail(
        ctx, KVF_EMISMATCH,
        "%s: the run is for %s, L=%lld G=%lld D=%lld, the base has L=%lld G=%lld D=%lld", path,
        base_of(&run->id, name), (long long)run->id.L, (long long)run->id.G, (long long)run->id.D,
        (long long)d->L, (long long)d->G, (long long)d->D);
}

kvf_status kvf__encoder_from_run(kvf_ctx *ctx, const char *path, const kvf__artifact *run,
                                 const kvf_base *base, kvf_checkpoint checkpoint,
                                 kvf__encoder **out, int64_t *step)
{
    const kvf__params *values = NULL;
    int64_t at = 0;
    KVF_TRY(pick_state(ctx, path, run, checkpoint, &values, &at));
    KVF_TRY(check_base(ctx, path, run, base));
    kvf__encoder_shape shape = {.L = run->id.L, .G = run->id.G, .P = run->id.P, .D = run->id.D};
    const kvf__method *method = kvf__method_find(run->id.method);
    kvf__encoder *encoder = NULL;
    read_widths(values, &shape);
    if (base) shape.C = kvf__model_desc(base->model)->C;
    kvf_status st = method && method->reads_base
                        ? kvf__encoder_on_base(ctx, base, run->id.method, &shape, &encoder)
                        : kvf__encoder_create(ctx, run->id.method, &shape, &encoder);
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

/* The head that belongs to the encoder's state. */
static kvf_status take_head(kvf_ctx *ctx, kvf__artifact *run, kvf_checkpoint checkpoint,
                            kvf_prefix *prefix)
{
    kvf__head_values *last = &run->head;
    bool best = run->best_head.params.n && checkpoint != KVF_CHECKPOINT_LAST;
    KVF_TRY(kvf__head_values_copy(ctx, best ? &run->best_head.params : &last->params.params,
                                  last->labels, last->n_labels, last->regression, &prefix->head));
    KVF_TRY(kvf__head_words_copy(ctx, last->words, &prefix->head));
    prefix->head.n_tasks = last->n_tasks; /* taken over */
    prefix->head.tasks = last->tasks;
    last->n_tasks = 0;
    last->tasks = NULL;
    return KVF_OK;
}

/* What the encoder emits now, by its port. */
static kvf_status emit(kvf_ctx *ctx, kvf__encoder *encoder, const uint8_t *layer_mask,
                       kvf_prefix *prefix)
{
    const kvf__encoder_shape *s = kvf__encoder_shape_of(encoder);
    if (kvf__encoder_method(encoder)->port == KVF__PORT_EMBED) {
        KVF_TRY(kvf__vectors_init(ctx, &prefix->vectors, s->P, s->C));
        return kvf__encoder_fwd(ctx, encoder, (kvf__emitted){.vectors = &prefix->vectors});
    }
    KVF_TRY(kvf__prefix_init(ctx, &prefix->prefix, s->L, s->G, s->P, s->D));
    memcpy(prefix->prefix.layer_mask, layer_mask, (size_t)s->L);
    return kvf__encoder_fwd(ctx, encoder, (kvf__emitted){.prefix = &prefix->prefix});
}

static kvf_status emitted_values(kvf_ctx *ctx, const char *path, const kvf__artifact *run,
                                 const kvf_base *base, kvf_checkpoint checkpoint,
                                 kvf_prefix *prefix)
{
    kvf__encoder *encoder = NULL;
    KVF_TRY(kvf__encoder_from_run(ctx, path, run, base, checkpoint, &encoder, &prefix->step));
    kvf_status st = emit(ctx, encoder, run->layer_mask, prefix);
    const kvf__params *values = NULL;
    int64_t step = 0;
    if (!st) st = pick_state(ctx, path, run, checkpoint, &values, &step);
    if (!st)
        st = kvf__block_beside(ctx, run->options, values, kvf__encoder_params(encoder), prefix);
    kvf__encoder_free(encoder);
    return st;
}

static bool is_block(const kvf__artifact *run)
{
    const kvf__method *method = kvf__method_find(run->id.method);
    return method && method->port == KVF__PORT_BLOCK;
}

static kvf_status block_values(kvf_ctx *ctx, const char *path, kvf__artifact *run,
                               kvf_checkpoint checkpoint, kvf_prefix *prefix)
{
    const kvf__params *values = NULL;
    KVF_TRY(pick_state(ctx, path, run, checkpoint, &values, &prefix->step));
    return kvf__block_from_run(ctx, path, run, values == &run->best.params, prefix);
}

static kvf_status from_run(kvf_ctx *ctx, const char *path, kvf__artifact *run, const kvf_base *base,
                           kvf_checkpoint checkpoint, kvf_prefix *prefix)
{
    KVF_TRY(is_block(run) ? block_values(ctx, path, run, checkpoint, prefix)
                          : emitted_values(ctx, path, run, base, checkpoint, prefix));
    KVF_TRY(kvf__identity_copy(ctx, &run->id, &prefix->id));
    KVF_TRY(take_head(ctx, run, checkpoint, prefix));
    KVF_TRY(take_pattern(ctx, run->options, prefix));
    prefix->from_run = true;
    prefix->options = run->options;
    prefix->lineage = run->lineage;
    run->options = run->lineage = NULL;
    return KVF_OK;
}

/* Of what is no file of ours: what takes it, or what makes one of it. */
static kvf_status point_on(kvf_ctx *ctx, const char *path, kvf_status status)
{
    char line[2048];
    kvf__file_kind kind = KVF__FILE_UNKNOWN;
    snprintf(line, sizeof line, "%s", kvf_ctx_error(ctx));
    (void)kvf__file_kind_of(ctx, path, &kind);
    if (kind == KVF__FILE_PEFT_DIR)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: is a PEFT folder: `kvfold import %s --out PREFIX.h5` makes a prefix "
                         "file of it",
                         path, path);
    if (kind == KVF__FILE_HF_DIR || kind == KVF__FILE_GGUF)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: is a base, not a prefix: --base takes it", path);
    return kvf__fail(ctx, status, "%s", line);
}

kvf_status kvf_prefix_needs_base(kvf_ctx *ctx, const char *path, bool *out)
{
    kvf__kind kind = KVF__KIND_ANY;
    kvf__identity id = {0};
    kvf_status st = kvf__kind_of(ctx, path, &kind);
    if (st) return point_on(ctx, path, st);
    *out = false;
    if (kind != KVF__KIND_RUN) return KVF_OK;
    KVF_TRY(kvf__artifact_identity(ctx, path, kind, &id));
    const kvf__method *method = kvf__method_find(id.method);
    *out = method && method->reads_base;
    kvf__identity_done(&id);
    return KVF_OK;
}

kvf_status kvf_prefix_open(kvf_ctx *ctx, const char *path, kvf_checkpoint checkpoint,
                           kvf_prefix **out)
{
    return kvf_prefix_open_on(ctx, path, NULL, checkpoint, out);
}

kvf_status kvf_prefix_open_on(kvf_ctx *ctx, const char *path, const kvf_base *base,
                              kvf_checkpoint checkpoint, kvf_prefix **out)
{
    kvf__artifact file = {0};
    kvf_prefix *prefix = NULL;
    kvf_status st = kvf__artifact_read(ctx, path, KVF__KIND_ANY, &file);
    if (st) return point_on(ctx, path, st);
    st = kvf__alloc(ctx, sizeof *prefix, &prefix);
    if (!st)
        st = file.kind == KVF__KIND_RUN ? from_run(ctx, path, &file, base, checkpoint, prefix)
                                        : from_file(ctx, path, &file, prefix);
    kvf__artifact_done(&file);
    if (!st) st = kvf__strdup(ctx, path, &prefix->path);
    if (!st && *prefix->id.task && !prefix->head.n_tasks &&
        kvf__task_parse(ctx, prefix->id.task, &prefix->task))
        /* the word stands in the file, not on the command line */
        st = kvf__fail_prefix(ctx, KVF_EUNSUPPORTED, "%s", path);
    if (st)
        kvf_prefix_free(prefix);
    else
        *out = prefix;
    return st;
}

kvf_status kvf_prefix_use_head(kvf_ctx *ctx, kvf_prefix *prefix, const char *name)
{
    kvf__head_values head = {0};
    const char *word = NULL;
    kvf__task task;
    char *copy = NULL;
    KVF_TRY(kvf__head_values_pick(ctx, prefix->path, &prefix->head, name, &word, &head));
    kvf_status st = kvf__task_parse(ctx, word, &task);
    if (!st) st = kvf__low_rank_alloc(ctx, prefix->path, &head.params.params, &prefix->prefix);
    if (!st) st = kvf__strdup(ctx, word, &copy);
    if (st) {
        kvf__head_values_done(&head);
        return st;
    }
    kvf__free(prefix->id.task);
    prefix->id.task = copy;
    prefix->task = task;
    kvf__head_values_done(&prefix->head);
    prefix->head = head;
    return KVF_OK;
}

kvf__artifact kvf__prefix_view(const kvf_prefix *prefix, kvf__kind kind)
{
    return (kvf__artifact){
        .kind = kind,
        .id = prefix->id,
        .prefix = prefix->prefix,
        .vectors = prefix->vectors,
        .pattern = prefix->pattern,
        .values = prefix->block,
        .head = prefix->head,
        .options = prefix->options,
        .lineage = prefix->lineage,
    };
}

void kvf_prefix_free(kvf_prefix *prefix)
{
    if (!prefix) return;
    kvf__identity_done(&prefix->id);
    kvf__prefix_done(&prefix->prefix);
    kvf__vectors_done(&prefix->vectors);
    kvf__params_owned_done(&prefix->block);
    kvf__free(prefix->pattern);
    kvf__head_values_done(&prefix->head);
    kvf_json_free(prefix->options);
    kvf_json_free(prefix->lineage);
    kvf__free(prefix->path);
    kvf__free(prefix);
}

int64_t kvf_prefix_length(const kvf_prefix *prefix)
{
    return prefix->id.P;
}

int64_t kvf_prefix_position_start(const kvf_prefix *prefix)
{
    return prefix->id.position_start;
}

const char *kvf_prefix_base_hash(const kvf_prefix *prefix)
{
    return prefix->id.base_hash;
}

kvf_status kvf__prefix_fits(kvf_ctx *ctx, const kvf_prefix *prefix, const kvf_base *base,
                            bool allow_other_base)
{
    const kvf__desc *d = kvf__model_desc(base->model);
    const kvf__identity *id = &prefix->id;
    char names[512], name[256];
    if (prefix->head.n_tasks)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: holds heads of several tasks: --head names one of %s", prefix->path,
                         kvf__head_names(&prefix->head, names, sizeof names));
    if (id->L != d->L || id->G != d->G || id->D != d->D)
        return kvf__fail(
            ctx, KVF_EMISMATCH,
            "%s: the prefix is for %s, L=%lld G=%lld D=%lld, the base has L=%lld G=%lld D=%lld",
            base->path, base_of(id, name), (long long)id->L, (long long)id->G, (long long)id->D,
            (long long)d->L, (long long)d->G, (long long)d->D);
    if (prefix->vectors.P && prefix->vectors.C != d->C)
        return kvf__fail(
            ctx, KVF_EMISMATCH,
            "%s: the virtual tokens, for %s, are %lld wide, the base's embeddings %lld", base->path,
            base_of(id, name), (long long)prefix->vectors.C, (long long)d->C);
    if (allow_other_base) return KVF_OK;
    if (*id->base_architecture && strcmp(id->base_architecture, d->arch_name))
        return kvf__fail(
            ctx, KVF_EMISMATCH,
            "%s: the prefix is for %s, architecture %s, the base is %s (--allow-other-base "
            "overrides)",
            base->path, base_of(id, name), id->base_architecture, d->arch_name);
    if (!*id->base_hash)
        return kvf__fail(
            ctx, KVF_EMISMATCH,
            "%s: the prefix does not say which base it is for (--allow-other-base uses it anyway)",
            base->path);
    if (strcmp(id->base_hash, base->hash))
        return kvf__fail(
            ctx, KVF_EMISMATCH,
            "%s: the prefix is for base %s (%s), this one is %s (--allow-other-base overrides)",
            base->path, id->base_name, id->base_hash, base->hash);
    return KVF_OK;
}
