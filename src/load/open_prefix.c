/* Opening a prefix: from a prefix file, or from a run file through its encoder. Both give the same
 * tensor; a test checks that they are equal bit for bit. */
#include "data_int.h"
#include "encoder_int.h"
#include "encoder_run.h"
#include "low_rank.h"
#include "method.h"

#include <math.h>
#include <string.h>

/* Reads the template of its rows, if any. For a prefix it names no virtual tokens, because the
 * prefix replaces them. */
static kvf_status read_pattern(kvf_ctx *ctx, const kvf_json *options, kvf_prefix *prefix)
{
    const char *text = kvf_json_str(kvf_json_get(options, "p-template"), NULL);
    bool has_virtual = text && (strstr(text, "{p}") || strstr(text, "{p:"));
    if (!text || !*text || (has_virtual && !prefix->file.vectors.P)) return KVF_OK;
    return kvf__strdup(ctx, text, &prefix->file.pattern);
}

/* Takes all parts of the file. From a base file only the head, with a prefix of length 0. */
static kvf_status from_file(kvf_ctx *ctx, const char *path, kvf__artifact *file, kvf_prefix *prefix)
{
    if (!file->id.task)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: is a base file without a head, want a prefix, embeddings, adapter or "
                         "run file",
                         path);
    if (file->kind == KVF__KIND_ADAPTER) KVF_TRY(kvf__block_form(ctx, path, file, &prefix->form));
    prefix->file = *file;
    prefix->step = -1;
    *file = (kvf__artifact){0};
    const kvf__kind kind = prefix->file.kind;
    return kind == KVF__KIND_PREFIX || kind == KVF__KIND_BASE
               ? read_pattern(ctx, prefix->file.options, prefix)
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

kvf_status kvf__base_has_head(kvf_ctx *ctx, const char *path, bool *out)
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

/* Takes the head of the encoder's state. */
static kvf_status steal_head(kvf_ctx *ctx, kvf__artifact *run, kvf_checkpoint checkpoint,
                             kvf_prefix *prefix)
{
    kvf__head_values *last = &run->head;
    bool best = run->best_head.params.n && checkpoint != KVF_CHECKPOINT_LAST;
    KVF_TRY(kvf__head_values_copy(ctx, best ? &run->best_head.params : &last->params.params,
                                  last->labels, last->n_labels, last->regression,
                                  &prefix->file.head));
    KVF_TRY(kvf__head_words_copy(ctx, last->words, &prefix->file.head));
    prefix->file.head.n_tasks = last->n_tasks; /* ownership passes */
    prefix->file.head.tasks = last->tasks;
    last->n_tasks = 0;
    last->tasks = NULL;
    return KVF_OK;
}

/* Computes the encoder's output, depending on its port. */
static kvf_status emit(kvf_ctx *ctx, kvf__encoder *encoder, const kvf__artifact *run,
                       kvf_prefix *prefix)
{
    const kvf__encoder_shape *s = kvf__encoder_shape_of(encoder);
    if (kvf__encoder_method(encoder)->port == KVF__PORT_EMBED) {
        KVF_TRY(kvf__vectors_init(ctx, &prefix->file.vectors, s->P, s->C));
        return kvf__encoder_fwd(ctx, encoder, (kvf__emitted){.vectors = &prefix->file.vectors});
    }
    const kvf__kv_shape kv = kvf__encoder_kv(s);
    KVF_TRY(kvf__prefix_create(ctx, &prefix->file.prefix, &kv, s->P));
    prefix->file.prefix.near = kvf__identity_near(&run->id);
    memcpy(prefix->file.prefix.layer_mask, run->layer_mask, (size_t)s->L);
    KVF_TRY(
        kvf__prefix_set_state(ctx, &prefix->file.prefix, run->prefix.state, run->prefix.states));
    if (s->neurons.N) {
        KVF_TRY(kvf__neurons_create(ctx, &prefix->file.prefix.neurons, &s->neurons));
        memcpy(prefix->file.prefix.neurons.layer_mask, run->neuron_mask, (size_t)s->neurons.L);
    }
    return kvf__encoder_fwd(ctx, encoder, (kvf__emitted){.prefix = &prefix->file.prefix});
}

/* Takes a run's log-weights, if any. */
static kvf_status take_weights(kvf_ctx *ctx, const char *path, const kvf__params *values,
                               kvf__prefix *to)
{
    const kvf__param *w = kvf__params_find(values, KVF__LOG_WEIGHT);
    kvf__params list = {0}; /* expected parameter */
    char found[128], wanted[128];

    if (!w || !to->P) return KVF_OK;
    KVF_TRY(kvf__prefix_weigh(ctx, to));
    KVF_TRY(kvf__log_weight_param(ctx, to, NULL, &list));
    const kvf__param want = *list.item;
    kvf__params_done(&list);
    if (w->rank != want.rank || memcmp(w->dim, want.dim, (size_t)want.rank * sizeof *want.dim))
        return kvf__fail(ctx, KVF_ESHAPE, "%s: " KVF__LOG_WEIGHT " is %s, want %s", path,
                         kvf__shape_text(found, w->rank, w->dim),
                         kvf__shape_text(wanted, want.rank, want.dim));
    memcpy(to->log_weight, w->value, (size_t)w->n * sizeof *w->value);
    return kvf__prefix_check_weights(ctx, path, to);
}

/* Takes a run's trained state before rows, if there is one. */
static kvf_status take_state(kvf_ctx *ctx, const char *path, const kvf__params *values,
                             kvf__prefix *to)
{
    const kvf__param *state = kvf__params_find(values, KVF__MIXER_STATE);

    if (!state || !to->L) return KVF_OK;
    for (int64_t i = 0; i < state->n; i++)
        if (!isfinite(state->value[i]))
            return kvf__fail(ctx, KVF_ENUMERIC,
                             "%s: " KVF__MIXER_STATE ": value %lld is %g, want finite values", path,
                             (long long)i, (double)state->value[i]);
    return kvf__prefix_set_state(ctx, to, state->value, state->n);
}

static kvf_status emitted_values(kvf_ctx *ctx, const char *path, const kvf__artifact *run,
                                 const kvf_base *base, kvf_checkpoint checkpoint,
                                 kvf_prefix *prefix)
{
    kvf__encoder *encoder = NULL;
    KVF_TRY(kvf__encoder_from_run(ctx, path, run, base, checkpoint, &encoder, &prefix->step));
    kvf_status st = emit(ctx, encoder, run, prefix);
    const kvf__params *values = NULL;
    int64_t step = 0;
    if (!st) st = kvf__run_pick_state(ctx, path, run, checkpoint, &values, &step);
    if (!st) st = take_weights(ctx, path, values, &prefix->file.prefix);
    if (!st) st = take_state(ctx, path, values, &prefix->file.prefix);
    if (!st)
        st = kvf__block_beside(ctx, run->options, values, kvf__encoder_params(encoder), prefix);
    kvf__encoder_free(encoder);
    return st;
}

static bool is_block(const kvf__artifact *run)
{
    return kvf__method_find(run->id.method) && !kvf__method_has_length(run->id.method);
}

static kvf_status block_values(kvf_ctx *ctx, const char *path, kvf__artifact *run,
                               kvf_checkpoint checkpoint, kvf_prefix *prefix)
{
    const kvf__params *values = NULL;
    KVF_TRY(kvf__run_pick_state(ctx, path, run, checkpoint, &values, &prefix->step));
    return kvf__block_from_run(ctx, path, run, values == &run->best.params, prefix);
}

/* Adds the score of the best step to what the file tells of its run. */
static kvf_status keep_score(kvf_ctx *ctx, const kvf__artifact *run, kvf_prefix *prefix)
{
    char name[64];
    if (!kvf__run_has_best(run) || !run->best_metric || !prefix->file.lineage) return KVF_OK;
    snprintf(name, sizeof name, "run_%s", run->best_metric);
    return kvf_json_set(prefix->file.lineage, name, kvf_json_new_real(run->best_value))
               ? KVF_OK
               : kvf__fail(ctx, KVF_ENOMEM, "out of memory");
}

static kvf_status from_run(kvf_ctx *ctx, const char *path, kvf__artifact *run, const kvf_base *base,
                           kvf_checkpoint checkpoint, kvf_prefix *prefix)
{
    KVF_TRY(is_block(run) ? block_values(ctx, path, run, checkpoint, prefix)
                          : emitted_values(ctx, path, run, base, checkpoint, prefix));
    KVF_TRY(kvf__identity_copy(ctx, &run->id, &prefix->file.id));
    KVF_TRY(steal_head(ctx, run, checkpoint, prefix));
    KVF_TRY(read_pattern(ctx, run->options, prefix));
    prefix->from_run = true;
    prefix->file.options = run->options;
    prefix->file.lineage = run->lineage;
    run->options = run->lineage = NULL;
    return prefix->step == run->best_step ? keep_score(ctx, run, prefix) : KVF_OK;
}

/* Suggests the command that accepts, or converts, a foreign file; path: as it was given. */
static kvf_status point_on(kvf_ctx *ctx, const char *path, const char *file, kvf_status status)
{
    char line[2048];
    kvf__file_kind kind = KVF__FILE_UNKNOWN;
    snprintf(line, sizeof line, "%s", kvf_ctx_error(ctx));
    const kvf_status found = kvf__file_kind_of(ctx, file, &kind);
    if (found == KVF_EUNSUPPORTED || found == KVF_EFORMAT) return found;
    if (kind == KVF__FILE_PEFT_DIR)
        return kvf__fail(
            ctx, KVF_EFORMAT,
            "%s: is a PEFT folder: `kvfold import %s --out PREFIX.h5` converts it to a prefix file",
            path, path);
    if (kind == KVF__FILE_HF_DIR || kind == KVF__FILE_GGUF)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: is a base, not a prefix: use it with --base",
                         kind == KVF__FILE_GGUF ? file : path);
    return kvf__fail(ctx, status, "%s", line);
}

static kvf_status file_needs_base(kvf_ctx *ctx, const char *path, const char *file, bool *out)
{
    kvf__kind kind = KVF__KIND_ANY;
    kvf__identity id = {0};
    kvf_status st = kvf__kind_of(ctx, file, &kind);
    if (st) return point_on(ctx, path, file, st);
    *out = false;
    if (kind != KVF__KIND_RUN) return KVF_OK;
    KVF_TRY(kvf__artifact_identity(ctx, file, kind, &id));
    const kvf__method *method = kvf__method_find(id.method);
    *out = method && method->reads_base;
    kvf__identity_done(&id);
    return KVF_OK;
}

kvf_status kvf__prefix_needs_base(kvf_ctx *ctx, const char *path, bool *out)
{
    char *file = NULL;
    KVF_TRY(kvf__hub_find_prefix(ctx, path, &file));
    kvf_status st = file_needs_base(ctx, path, file, out);
    kvf__free(file);
    return st;
}

kvf_status kvf_prefix_open(kvf_ctx *ctx, const char *path, kvf_checkpoint checkpoint,
                           kvf_prefix **out)
{
    return kvf_prefix_open_on(ctx, path, NULL, checkpoint, out);
}

kvf_status kvf__prefix_of(kvf_ctx *ctx, const char *path, kvf__artifact *file, const kvf_base *base,
                          kvf_checkpoint checkpoint, kvf_prefix **out)
{
    kvf_prefix *prefix = NULL;
    KVF_TRY(kvf__alloc(ctx, sizeof *prefix, &prefix));
    kvf_status st = file->kind == KVF__KIND_RUN
                        ? from_run(ctx, path, file, base, checkpoint, prefix)
                        : from_file(ctx, path, file, prefix);
    if (!st) st = kvf__strdup(ctx, path, &prefix->path);
    if (!st && *prefix->file.id.task && !prefix->file.head.n_tasks &&
        kvf__task_parse(ctx, prefix->file.id.task, &prefix->task))
        /* the name is in the file, not on the command line */
        st = kvf__fail_prefix(ctx, KVF_EUNSUPPORTED, "%s", path);
    KVF__GIVE(st, out, prefix, kvf_prefix_free(prefix));
    return st;
}

static kvf_status open_on(kvf_ctx *ctx, const char *name, const char *path, const kvf_base *base,
                          kvf_checkpoint checkpoint, kvf_prefix **out)
{
    kvf__artifact file = {0};
    kvf_status st = kvf__artifact_read(ctx, path, KVF__KIND_ANY, &file);
    if (st) return point_on(ctx, name, path, st);
    st = kvf__prefix_of(ctx, path, &file, base, checkpoint, out);
    kvf__artifact_done(&file);
    return st;
}

static kvf_status open_named(kvf_ctx *ctx, const char *path, const kvf_base *base,
                             kvf_checkpoint checkpoint, kvf_prefix **out)
{
    char *file = NULL;
    KVF_TRY(kvf__hub_find_prefix(ctx, path, &file));
    kvf_status st = open_on(ctx, path, file, base, checkpoint, out);
    kvf__free(file);
    return st;
}

kvf_status kvf_prefix_open_on(kvf_ctx *ctx, const char *path, const kvf_base *base,
                              kvf_checkpoint checkpoint, kvf_prefix **out)
{
    KVF_TRY(KVF__NEED(ctx, path, out));
    KVF_TRY(KVF__CHECK_ENUM(ctx, checkpoint, KVF_CHECKPOINT_LAST));
    KVF__RETURN(ctx, open_named(ctx, path, base, checkpoint, out));
}

kvf_status kvf_prefix_use_head(kvf_ctx *ctx, kvf_prefix *prefix, const char *name)
{
    KVF_TRY(KVF__NEED(ctx, prefix, name));
    kvf__head_values head = {0};
    const char *word = NULL;
    kvf__task task;
    char *copy = NULL;
    KVF_TRY(kvf__head_values_pick(ctx, prefix->path, &prefix->file.head, name, &word, &head));
    kvf_status st = kvf__task_parse(ctx, word, &task);
    if (!st) st = kvf__low_rank_alloc(ctx, prefix->path, &head.params.params, &prefix->file.prefix);
    if (!st) st = kvf__strdup(ctx, word, &copy);
    if (st) {
        kvf__head_values_done(&head);
        return st;
    }
    kvf__free(prefix->file.id.task);
    prefix->file.id.task = copy;
    prefix->task = task;
    kvf__head_values_done(&prefix->file.head);
    prefix->file.head = head;
    return KVF_OK;
}

kvf__artifact kvf__prefix_view(const kvf_prefix *prefix, kvf__kind kind)
{
    kvf__artifact view = prefix->file;

    view.kind = kind;
    view.dtype = KVF__F32;
    return view;
}

void kvf_prefix_free(kvf_prefix *prefix)
{
    if (!prefix) return;
    kvf__artifact_done(&prefix->file);
    kvf__free(prefix->path);
    kvf__free(prefix);
}

kvf__condition kvf__prefix_condition(const kvf_prefix *prefix)
{
    kvf__condition condition = {0};
    if (!prefix) return condition;
    if (prefix->file.prefix.P || prefix->file.prefix.neurons.shape.N)
        condition.prefix = &prefix->file.prefix;
    if (prefix->file.vectors.P) condition.vectors = &prefix->file.vectors;
    condition.position_start = prefix->file.id.position_start;
    return condition;
}

const char *kvf_prefix_task(const kvf_prefix *prefix)
{
    if (!prefix) return NULL;
    return prefix->file.head.n_tasks ? KVF__MULTI_TASK : kvf__task_name(prefix->task);
}

const char *kvf_prefix_label(const kvf_prefix *prefix, size_t i)
{
    return prefix && i < prefix->file.head.n_labels ? prefix->file.head.labels[i] : NULL;
}

const char *kvf_prefix_head(const kvf_prefix *prefix, size_t i)
{
    return prefix && i < prefix->file.head.n_tasks ? prefix->file.head.tasks[i].name : NULL;
}

int64_t kvf_prefix_length(const kvf_prefix *prefix)
{
    return prefix ? prefix->file.id.P : 0;
}

int64_t kvf_prefix_position_start(const kvf_prefix *prefix)
{
    return prefix ? prefix->file.id.position_start : 0;
}

const char *kvf_prefix_base_hash(const kvf_prefix *prefix)
{
    return prefix ? prefix->file.id.base_hash : NULL;
}
