/* Starting values of the encoder. `text` and `vocab` take the keys and values that the bare base
 * computes for P real tokens: a prefix that already lies where the base's own K/V lie; or, at port
 * embed, the tokens' embeddings. Encoders that end in a linear layer reach such a target exactly,
 * by solving that layer; one whose parameters are inputs of layers takes the embeddings too. */
#include "low_rank.h"
#include "train_int.h"

#include <string.h>

#define VOCAB_STREAM 0x766f6361 /* "voca": apart from the streams of random weights */

static kvf_status text_ids(kvf__trainer *t, int32_t *ids)
{
    kvf__render plain = t->renderer.render;
    plain.wrap_prompts = false;
    plain.pattern = NULL;
    kvf__ids found = {0};
    kvf_status st = kvf__render_prompt(t->ctx, &plain, t->options.init_text, &found);
    if (!st && !found.n) st = kvf__fail(t->ctx, KVF_EUSAGE, "--init-text: the text has no tokens");
    for (int64_t p = 0; !st && p < t->id.P; p++)
        ids[p] = found.data[(size_t)p % found.n];
    kvf__ids_done(&found);
    return st;
}

static void vocab_ids(kvf__trainer *t, int32_t *ids)
{
    const kvf__tokenizer *tokenizer = t->base->tokenizer;
    kvf__rng rng = kvf__rng_make(t->options.seed, (uint64_t)VOCAB_STREAM << 32);
    uint64_t V = (uint64_t)kvf__vocab_size(tokenizer);
    for (int64_t p = 0; p < t->id.P; p++) {
        /* A vocabulary without ordinary tokens would never end the search: after many tries any id
         * will do. */
        int tries = 0;
        do
            ids[p] = (int32_t)kvf__rng_below(&rng, V);
        while (!kvf__token_is_ordinary(tokenizer, ids[p]) && ++tries < 100000);
    }
}

/* The tokens that `text` or `vocab` start from: *ids [P]. */
static kvf_status start_ids(kvf__trainer *t, int32_t **out)
{
    int32_t *ids = NULL;
    KVF_TRY(kvf__alloc_array(t->ctx, (size_t)t->id.P, sizeof *ids, &ids));
    kvf_status st = KVF_OK;
    if (!strcmp(t->options.init, "text"))
        st = text_ids(t, ids);
    else
        vocab_ids(t, ids);
    if (st)
        kvf__free(ids);
    else
        *out = ids;
    return st;
}

static kvf_status target_from_base(kvf__trainer *t, kvf__emitted target)
{
    int32_t *ids = NULL;
    KVF_TRY(start_ids(t, &ids));
    kvf_status st = target.prefix ? kvf__base_keys_values(t->ctx, t->base, ids, target.prefix)
                                  : KVF_OK;
    if (!st && t->id.raw_keys)
        st = kvf__model_turn_prefix(t->ctx, t->base->model, target.prefix, target.prefix, 0, true);
    if (!st && target.vectors)
        kvf__model_embedding(t->base->model, ids, t->id.P, target.vectors->x);
    kvf__free(ids);
    return st;
}

static kvf_status start_from_words(kvf__trainer *t)
{
    int64_t P = t->id.P, C = kvf__model_desc(t->base->model)->C;
    int32_t *ids = NULL;
    float *embeddings = NULL;
    kvf_status st;

    st = start_ids(t, &ids);
    if (st) goto out;
    st = kvf__alloc_array(t->ctx, (size_t)(P * C), sizeof *embeddings, &embeddings);
    if (st) goto out;
    kvf__model_embedding(t->base->model, ids, P, embeddings);
    kvf__encoder_init_words(t->encoder, embeddings);
    kvf__trainer_note(t, "start: %s, embeddings of words", t->options.init);
out:
    kvf__free(ids);
    kvf__free(embeddings);
    return st;
}

/* Keys that stand before rows are rotated, those inside are not. */
static kvf_status same_placement(kvf__trainer *t, const char *path, const kvf__identity *from)
{
    if (from->position_start != t->id.position_start)
        kvf__trainer_note(t, "%s: rows behind it started at position %lld, here they start at %lld",
                          path, (long long)from->position_start, (long long)t->id.position_start);
    if (from->infix == t->id.infix) return KVF_OK;
    return kvf__fail(t->ctx, KVF_EUSAGE, "%s: its prefix stands %s rows, this run's %s", path,
                     from->infix ? "inside" : "before", from->infix ? "before" : "inside");
}

static kvf_status copy_target(kvf__trainer *t, const char *path, const kvf_prefix *file,
                              kvf__emitted target)
{
    bool vectors = file->vectors.P > 0;
    if (vectors != (target.vectors != NULL))
        return kvf__fail(t->ctx, KVF_EUSAGE, "%s: holds %s, which method %s does not start from",
                         path, vectors ? "virtual tokens at the input" : "keys and values",
                         t->options.method);
    if (file->id.P != t->id.P)
        return kvf__fail(t->ctx, KVF_ESHAPE, "%s: P is %lld, --prefix-length %lld", path,
                         (long long)file->id.P, (long long)t->id.P);
    if (vectors)
        memcpy(target.vectors->x, file->vectors.x,
               (size_t)(file->vectors.P * file->vectors.C) * sizeof(float));
    else
        memcpy(target.prefix->kv, file->prefix.kv,
               kvf__prefix_count(target.prefix) * sizeof(float));
    return KVF_OK;
}

static kvf_status target_from_file(kvf__trainer *t, const char *path, kvf__emitted target)
{
    kvf_prefix *file = NULL;
    KVF_TRY(kvf_prefix_open_on(t->ctx, path, t->base, KVF_CHECKPOINT_DEFAULT, &file));
    kvf_status st = kvf_prefix_check(t->ctx, file, t->base, t->options.allow_other_base);
    if (!st) st = same_placement(t, path, &file->id);
    if (!st) st = copy_target(t, path, file, target);
    kvf_prefix_free(file);
    return st;
}

/* Whether a task's head answers the question that the trainer's data ask. */
static bool same_labels(const kvf__trainer *t, const kvf__head_task *task)
{
    if (strcmp(task->task, kvf__task_name(t->task)) || task->n_labels != t->data.names.n ||
        task->regression != t->data.regression)
        return false;
    for (size_t i = 0; i < task->n_labels; i++)
        if (strcmp(task->labels[i], t->data.names.names[i])) return false;
    return true;
}

/* Whether the run's head says the same of the same labels. */
static bool same_question(const kvf__trainer *t, const kvf__run_file *run)
{
    const kvf__head_values *stored = &run->head;
    if (strcmp(run->id.task, t->id.task) || stored->n_labels != t->data.names.n ||
        stored->regression != t->data.regression || !stored->words != !t->words)
        return false;
    for (size_t i = 0; i < stored->n_labels; i++)
        if (strcmp(stored->labels[i], t->data.names.names[i])) return false;
    return true;
}

/* A prefix that was trained with a head of its own says little without it. */
static kvf_status own_head_from_run(kvf__trainer *t, const char *path, const kvf__params *stored)
{
    if (stored->n && !t->lm_head)
        return kvf__fail(t->ctx, KVF_EUSAGE,
                         "%s: has a language-model head of its own: want --train-head too", path);
    kvf__trainer_note(t, "start: %s, its encoder%s", path, stored->n ? " and head" : "");
    return stored->n ? kvf__head_load(t->ctx, kvf__lm_head_params(t->lm_head), path, stored)
                     : KVF_OK;
}

/* The head of one task, from a run of several or of one, if one of its heads says the same of the
 * same labels: that of the same name, else the first. */
static kvf_status head_from_any(kvf__trainer *t, const char *path, const kvf__run_file *run,
                                const char *name, kvf__head *head)
{
    const kvf__params *best = run->best_head.params.n ? &run->best_head.params
                                                      : &run->head.params.params;
    const kvf__head_values *from = &run->head;
    const kvf__head_task whole = {.task = run->id.task,
                                  .n_labels = from->n_labels,
                                  .labels = from->labels,
                                  .regression = from->regression};
    const kvf__head_task *found = NULL;
    for (size_t i = 0; i < from->n_tasks; i++)
        if (same_labels(t, &from->tasks[i]) &&
            (!found || (name && !strcmp(from->tasks[i].name, name))))
            found = &from->tasks[i];
    if (!from->n_tasks && !from->words && same_labels(t, &whole)) found = &whole;
    if (!found || !head) {
        kvf__trainer_note(t, "start: %s, its encoder%s%s%s", path, head ? "; the head" : "",
                          head && name ? " of "
                          : head       ? " is new"
                                       : "",
                          head && name ? name : "");
        return KVF_OK;
    }
    kvf__trainer_note(t, "start: %s, its encoder and head%s%s", path, found->name ? " " : "",
                      found->name ? found->name : "");
    if (!found->name) return kvf__head_load(t->ctx, kvf__head_params(head), path, best);
    const kvf__head_values all = {
        .params.params = *best, .n_tasks = from->n_tasks, .tasks = from->tasks};
    kvf__head_values one = {0};
    const char *task = NULL;
    KVF_TRY(kvf__head_values_pick(t->ctx, path, &all, found->name, &task, &one));
    kvf_status st = kvf__head_load(t->ctx, kvf__head_params(head), path, &one.params.params);
    kvf__head_values_done(&one);
    return st;
}

static kvf_status heads_from_run(kvf__trainer *t, const char *path, const kvf__run_file *run)
{
    const kvf__params *stored = &run->head.params.params;
    for (size_t i = 0; i < stored->n; i++)
        if (strstr(stored->item[i].name, "/" KVF__LOW_RANK_U))
            return kvf__fail(t->ctx, KVF_EUSAGE,
                             "%s: each of its tasks has a prefix of its own (low-rank): start from "
                             "what merge --head NAME makes of it",
                             path);
    if (!t->n_jobs) return head_from_any(t, path, run, NULL, t->head);
    for (size_t i = 0; i < t->n_jobs; i++) {
        const kvf__dataset summary = t->data;
        t->task = t->jobs[i].task;
        t->data = t->jobs[i].data; /* a view, for its labels */
        kvf_status st = head_from_any(t, path, run, t->jobs[i].name, t->jobs[i].head);
        t->data = summary;
        if (st) return st;
    }
    return KVF_OK;
}

/* The head too, where it fits; a note says what is taken. */
static kvf_status head_from_run(kvf__trainer *t, const char *path, const kvf__run_file *run)
{
    if (t->n_jobs || run->head.n_tasks) return heads_from_run(t, path, run);
    const kvf__params *values = run->best_head.params.n ? &run->best_head.params
                                                        : &run->head.params.params;
    if (t->task == KVF__TASK_LM && !strcmp(run->id.task, t->id.task))
        return own_head_from_run(t, path, values);
    if (!t->head || !same_question(t, run)) {
        kvf__trainer_note(t, "start: %s, its encoder%s", path,
                          !t->head                            ? ""
                          : !strcmp(run->id.task, t->id.task) ? "; the head is new: other labels"
                                                              : "; the head is new: another task");
        return KVF_OK;
    }
    kvf__trainer_note(t, "start: %s, its encoder and head", path);
    return kvf__head_load(t->ctx, kvf__head_params(t->head), path, values);
}

/* --init-from a run of the same method copies its parameters; any other kvfold file serves as a
 * target. */
static kvf_status values_from_run(kvf__trainer *t, const char *path, bool *done)
{
    char kind[16];
    kvf__run_file run = {0};
    kvf__encoder *source = NULL;
    int64_t step = 0;
    KVF_TRY(kvf__h5_kind(t->ctx, path, kind));
    if (strcmp(kind, "run")) return KVF_OK;
    kvf_status st = kvf__run_file_read(t->ctx, path, false, &run);
    if (!st) st = same_placement(t, path, &run.id);
    if (!st && !strcmp(run.id.method, t->options.method)) {
        st = kvf__encoder_from_run(t->ctx, path, &run, t->base, KVF_CHECKPOINT_DEFAULT, &source,
                                   &step);
        if (!st) st = kvf__encoder_load(t->ctx, t->encoder, path, kvf__encoder_params(source));
        if (!st) st = head_from_run(t, path, &run);
        *done = true;
    }
    kvf__encoder_free(source);
    kvf__run_file_done(&run);
    return st;
}

static kvf_status values_from_safetensors(kvf__trainer *t, const char *path)
{
    kvf__weights weights = {0};
    KVF_TRY(kvf__safetensors_open(t->ctx, path, &weights));
    kvf_status st = kvf__encoder_read_table(t->ctx, t->encoder, path, &weights.table);
    kvf__weights_close(&weights);
    return st;
}

static kvf_status reach_target(kvf__trainer *t, const char *file)
{
    kvf__prefix prefix = {0};
    kvf__vectors vectors = {0};
    kvf__emitted target = {0};
    double residual = 0;
    kvf_status st;
    if (t->emitted.vectors) {
        target.vectors = &vectors;
        st = kvf__vectors_init(t->ctx, &vectors, t->vectors.P, t->vectors.C);
    } else {
        target.prefix = &prefix;
        st = kvf__prefix_init(t->ctx, &prefix, t->id.L, t->id.G, t->id.P, t->id.D);
    }
    if (!st) st = file ? target_from_file(t, file, target) : target_from_base(t, target);
    if (!st) st = kvf__encoder_init_target(t->ctx, t->encoder, target, &residual);
    if (!st)
        kvf__trainer_note(t, "start: %s, relative residual %.1e", file ? file : t->options.init,
                          residual);
    kvf__prefix_done(&prefix);
    kvf__vectors_done(&vectors);
    return st;
}

/* Port block starts from the base as it is; adapters at nothing. --init-from: from where others
 * came, in the same shape. */
static kvf_status block_values(kvf__trainer *t)
{
    kvf__adapters *adapters = kvf__model_adapters(t->base->model);
    kvf_prefix *file = NULL;
    if (adapters) kvf__adapters_init(adapters, t->options.seed);
    if (!t->options.init_from) return KVF_OK;
    KVF_TRY(kvf_prefix_open(t->ctx, t->options.init_from, KVF_CHECKPOINT_DEFAULT, &file));
    kvf_status st = kvf__prefix_fits(t->ctx, file, t->base, t->options.allow_other_base);
    if (!st)
        st = kvf__block_load(t->ctx, t->options.init_from, &file->block.params, t->base->model);
    kvf_prefix_free(file);
    return st;
}

kvf_status kvf__trainer_start_values(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    bool done = false;
    if (!t->encoder) return block_values(t);
    if (o->init_encoder) return values_from_safetensors(t, o->init_encoder);
    KVF_TRY(kvf__encoder_init_random(t->ctx, t->encoder, o->init_scheme, o->seed));
    if (o->init_from) {
        KVF_TRY(values_from_run(t, o->init_from, &done));
        return done ? KVF_OK : reach_target(t, o->init_from);
    }
    if (!strcmp(o->init, "random")) return KVF_OK;
    if (!strcmp(o->init, "zero")) return kvf__encoder_init_zero(t->ctx, t->encoder);
    if (strcmp(o->init, "kv") && kvf__encoder_takes_words(o->method)) return start_from_words(t);
    return reach_target(t, strcmp(o->init, "kv") ? NULL : o->init_kv);
}
