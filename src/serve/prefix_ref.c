/* Loads a prefix for requests, with its head, the rendering of its prompts and the losses of its
 * run. A prefix that changes the base gets a base of its own. */
#include "prefix_ref.h"
#include "hash.h"
#include "session.h"

#include <math.h>
#include <string.h>

void kvf__prefix_ref_free(kvf__prefix_ref *ref)
{
    kvf__renderer_done(&ref->renderer);
    kvf__head_free(ref->head);
    kvf_base_free(ref->own_base);
    if (ref->classifier != ref->prefix) kvf_prefix_free(ref->classifier);
    kvf_prefix_free(ref->prefix);
    kvf__free(ref);
}

/* Opens a classifier. A prefix that changes the base gets a base of its own. */
static kvf_status open_classifier(kvf_ctx *ctx, const kvf_base *base, kvf__prefix_ref *ref)
{
    const kvf_base_options how = {
        .precision = base->precision, .weight_dtype = base->weight_dtype, .lora = base->lora};
    ref->classifier = ref->prefix;
    if (!kvf_prefix_changes_base(ref->prefix)) return KVF_OK;
    return kvf_base_open_for(ctx, base->path, &how, ref->prefix, &ref->own_base);
}

/* Opens the head stored in a base file that was trained for a task. */
static kvf_status open_own_head(kvf_ctx *ctx, const kvf_base *base, kvf__prefix_ref *ref)
{
    bool there = false;
    KVF_TRY(kvf__base_has_head(ctx, base->path, &there));
    if (!there) return KVF_OK;
    return kvf_prefix_open(ctx, base->path, KVF_CHECKPOINT_DEFAULT, &ref->classifier);
}

/* Finds the losses of the served step in the history of a run. */
static kvf_status find_losses(kvf_ctx *ctx, kvf__prefix_ref *ref)
{
    const kvf_prefix *prefix = ref->prefix;
    kvf__history history = {0};
    if (!prefix->from_run) return KVF_OK;
    KVF_TRY(kvf__artifact_history(ctx, prefix->path, &history));
    for (int64_t i = 0; i < history.n; i++)
        if (history.step[i] == prefix->step) {
            ref->train_loss = kvf__history_at(&history, KVF__COLUMN_train_loss, i);
            ref->valid_loss = kvf__history_at(&history, KVF__COLUMN_valid_loss, i);
        }
    kvf__history_done(&history);
    return KVF_OK;
}

static void add_prefix(kvf__hash *hash, const kvf__prefix *p)
{
    const kvf__neurons *neurons = &p->neurons;
    const int64_t sizes[] = {p->L, p->P, p->near, neurons->shape.L, neurons->shape.N};
    kvf__hash_add(hash, sizes, sizeof sizes);
    kvf__hash_add(hash, p->kv, kvf__prefix_count(p) * sizeof *p->kv);
    if (p->layer_mask) kvf__hash_add(hash, p->layer_mask, (size_t)p->L);
    if (p->log_weight)
        kvf__hash_add(hash, p->log_weight, kvf__prefix_weights(p) * sizeof *p->log_weight);
    if (!neurons->shape.N) return;
    kvf__hash_add(hash, neurons->w, kvf__neurons_count(neurons) * sizeof *neurons->w);
    kvf__hash_add(hash, neurons->layer_mask, (size_t)neurons->shape.L);
}

static kvf_status set_hash(kvf_ctx *ctx, kvf__prefix_ref *ref)
{
    const kvf__condition before = kvf__prefix_condition(ref->prefix);
    const int64_t place[] = {before.position_start, ref->prefix->file.id.infix};
    kvf__hash *hash = NULL;
    KVF_TRY(kvf__hash_create(ctx, &hash));
    kvf__hash_add(hash, place, sizeof place);
    if (before.prefix) add_prefix(hash, before.prefix);
    if (before.vectors)
        kvf__hash_add(hash, before.vectors->x,
                      (size_t)(before.vectors->P * before.vectors->C) * sizeof(float));
    kvf__hash_words(hash, ref->hash);
    kvf__hash_free(hash);
    return KVF_OK;
}

static kvf_status fill_ref(kvf_ctx *ctx, const kvf_base *base, const kvf_serve_options *options,
                           kvf__prefix_ref *ref)
{
    const kvf_prefix *prefix = ref->prefix;
    ref->train_loss = ref->valid_loss = NAN;
    if (prefix) KVF_TRY(find_losses(ctx, ref));
    KVF_TRY(kvf__renderer_for(ctx, base, prefix, options->chat_template, NULL, &ref->renderer));
    ref->ends = kvf__completion_ends(base, prefix, &ref->renderer.chat);
    if (!prefix) return open_own_head(ctx, base, ref);
    if (prefix->task != KVF__TASK_LM) return open_classifier(ctx, base, ref);
    if (options->cache_memory) KVF_TRY(set_hash(ctx, ref));
    return kvf__prefix_head(ctx, base, prefix, &ref->head);
}

/* Takes over the prefix on success. */
static kvf_status make_ref(kvf_ctx *ctx, const kvf_base *base, const kvf_serve_options *options,
                           kvf_prefix *prefix, kvf__prefix_ref **out)
{
    kvf__prefix_ref *ref = NULL;
    KVF_TRY(kvf__alloc(ctx, sizeof *ref, &ref));
    ref->prefix = prefix;
    ref->uses = 1;
    const kvf_status st = fill_ref(ctx, base, options, ref);
    if (st) {
        if (ref->classifier == prefix) ref->classifier = NULL;
        ref->prefix = NULL;
        kvf__prefix_ref_free(ref);
    } else {
        *out = ref;
    }
    return st;
}

kvf_status kvf__prefix_ref_base(kvf_ctx *ctx, const kvf_base *base,
                                const kvf_serve_options *options, kvf__prefix_ref **out)
{
    return make_ref(ctx, base, options, NULL, out);
}

/* Checks whether rows can use the prefix: prefixes of lm are computed together with others,
 * prefixes with a head alone. */
static kvf_status check_fit(kvf_ctx *ctx, const kvf_base *base, bool allow_other_base,
                            const kvf_prefix *prefix)
{
    if (prefix->task == KVF__TASK_LM && !prefix->file.head.n_tasks) {
        KVF_TRY(kvf__session_fits(ctx, prefix));
        KVF_TRY(kvf_prefix_check(ctx, prefix, base, allow_other_base));
    } else {
        KVF_TRY(kvf__prefix_fits(ctx, prefix, base, allow_other_base));
    }
    if (kvf__text_capacity(base, prefix) > 1) return KVF_OK;
    return kvf__fail(ctx, KVF_ESHAPE, "a prefix of %lld tokens leaves no room for rows",
                     (long long)prefix->file.id.P);
}

kvf_status kvf__prefix_ref_open(kvf_ctx *ctx, const kvf_base *base,
                                const kvf_serve_options *options, const char *name,
                                const char *path, const char *head, kvf__prefix_ref **out)
{
    kvf_prefix *prefix = NULL;
    KVF_TRY(kvf_prefix_open_on(ctx, path, base, options->checkpoint, &prefix));
    kvf_status st = head ? kvf_prefix_use_head(ctx, prefix, head) : KVF_OK;
    if (!st) st = check_fit(ctx, base, options->allow_other_base, prefix);
    if (st) st = kvf__fail_prefix(ctx, st, "%s", path);
    if (!st) st = make_ref(ctx, base, options, prefix, out);
    if (st) kvf_prefix_free(prefix);
    if (!st && !strcmp(kvf__prefix_row_form(prefix), "chat") &&
        !(*out)->renderer.render.wrap_prompts)
        kvf__log(ctx, KVF_LOG_WARN,
                 "%s: trained on chats: ask it at /v1/chat/completions; a prompt at "
                 "/v1/completions is plain text",
                 name);
    return st;
}

size_t kvf__prefix_ref_bytes(const kvf__prefix_ref *ref)
{
    const kvf__artifact *file = &ref->prefix->file;
    const size_t values = kvf__prefix_count(&file->prefix) +
                          kvf__neurons_count(&file->prefix.neurons) +
                          (size_t)(file->vectors.P * file->vectors.C) +
                          2 * (size_t)kvf__params_values(&file->head.params.params) +
                          (size_t)kvf__params_values(&file->values.params);
    return sizeof *ref + values * sizeof(float) +
           (ref->own_base ? (size_t)kvf__base_parameters(ref->own_base) * sizeof(float) : 0);
}
