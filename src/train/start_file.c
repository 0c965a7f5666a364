/* Initial values from files: --init-from, --init-kv, --init-encoder, and their heads. */
#include "encoder_run.h"
#include "low_rank.h"
#include "start.h"

#include <string.h>

/* Compares the placement: keys of a prefix before rows are stored rotated, those of a prefix inside
 * rows are not. */
static kvf_status same_placement(kvf__run *run, const char *path, const kvf__identity *from)
{
    if (from->position_start != run->id.position_start)
        kvf__run_note(run,
                      "%s: text after its prefix starts at position %lld, but in this run at %lld; "
                      "use --position-start %lld to keep it",
                      path, (long long)from->position_start, (long long)run->id.position_start,
                      (long long)from->position_start);
    if (from->relative_bias != run->id.relative_bias)
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "%s: its keys use %s relative bias, but this run's %s (see --places peft)",
                         path, from->relative_bias ? "the decoder's" : "no",
                         from->relative_bias ? "none" : "do");
    if (from->infix == run->id.infix) return KVF_OK;
    return kvf__fail(run->ctx, KVF_EUSAGE, "%s: its prefix is placed %s rows, but this run's %s",
                     path, from->infix ? "inside" : "before", from->infix ? "before" : "inside");
}

static kvf_status copy_target(const kvf__run *run, const char *path, const kvf_prefix *file,
                              kvf__emitted target)
{
    bool vectors = file->file.vectors.P > 0;
    if (vectors != (target.vectors != NULL))
        return kvf__fail(run->ctx, KVF_EUSAGE, "%s: holds %s, from which method %s cannot start",
                         path, vectors ? "virtual tokens at the input" : "keys and values",
                         run->options.method);
    if (file->file.id.P != run->id.P)
        return kvf__fail(run->ctx, KVF_ESHAPE, "%s: P is %lld, but --prefix-length is %lld", path,
                         (long long)file->file.id.P, (long long)run->id.P);
    if (vectors && file->file.vectors.C != target.vectors->C)
        return kvf__fail(run->ctx, KVF_EMISMATCH,
                         "%s: its virtual tokens have width %lld, but the base's embeddings %lld",
                         path, (long long)file->file.vectors.C, (long long)target.vectors->C);
    if (vectors)
        memcpy(target.vectors->x, file->file.vectors.x,
               (size_t)(file->file.vectors.P * file->file.vectors.C) * sizeof(float));
    else
        memcpy(target.prefix->kv, file->file.prefix.kv,
               kvf__prefix_count(target.prefix) * sizeof(float));
    const kvf__prefix *from = &file->file.prefix;
    return vectors ? KVF_OK
                   : kvf__prefix_set_state(run->ctx, target.prefix, from->state, from->states);
}

/* Starts from the neurons of a file, if it has any. */
static kvf_status neurons_from(kvf__run *run, kvf__tuned *tuned, const char *path,
                               const kvf__neurons *from)
{
    double residual = 0;
    if (!from->shape.N) return KVF_OK;
    if (!kvf__neuron_shape_same(&from->shape, &run->id.neurons))
        return kvf__fail(run->ctx, KVF_ESHAPE,
                         "%s: has %lld virtual neurons in each layer: give --ffn-length %lld", path,
                         (long long)from->shape.N, (long long)from->shape.N);
    KVF_TRY(kvf__encoder_init_neurons(run->ctx, tuned->encoder, from, &residual));
    tuned->neurons_begun = true;
    return kvf__encoder_check_fit(run->ctx, tuned->encoder, path, residual,
                                  run->options.approximate);
}

/* Uses the prefix of a file as the target. Heads are selected separately, by their labels. */
static kvf_status target_of_file(kvf__run *run, kvf__tuned *tuned, const char *path,
                                 kvf_prefix *file, kvf__emitted target)
{
    KVF_TRY(kvf__identity_check(run->ctx, path, &file->file.id, run->base,
                                run->options.allow_other_base));
    if (kvf_prefix_changes_base(file))
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "%s: method %s changes the base, but method %s does not", path,
                         file->file.id.method, run->options.method);
    KVF_TRY(same_placement(run, path, &file->file.id));
    KVF_TRY(copy_target(run, path, file, target));
    KVF_TRY(neurons_from(run, tuned, path, &file->file.prefix.neurons));
    return kvf__log_weight_from(run, tuned, path, file->file.prefix.log_weight);
}

kvf_status kvf__start_reach(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows,
                            kvf_prefix *file, kvf__start_target *find, double *residual)
{
    kvf__prefix prefix = {0};
    kvf__vectors vectors = {0};
    kvf__emitted target = {0};
    char words[32];
    kvf_status st;
    if (tuned->emitted.vectors) {
        target.vectors = &vectors;
        st = kvf__vectors_init(run->ctx, &vectors, tuned->vectors.P, tuned->vectors.C);
    } else {
        target.prefix = &prefix;
        st = kvf__prefix_like(run->ctx, &prefix, &tuned->prefix);
    }
    if (!st)
        st = file ? target_of_file(run, tuned, file->path, file, target)
                  : find(run, tuned, rows, target);
    if (!st && target.prefix && prefix.state)
        st = kvf__prefix_set_state(run->ctx, &tuned->prefix, prefix.state, prefix.states);
    if (!st) st = kvf__encoder_init_target(run->ctx, tuned->encoder, target, residual);
    snprintf(words, sizeof words, "--init %s", run->options.init);
    if (!st)
        st = kvf__encoder_check_fit(run->ctx, tuned->encoder, file ? file->path : words, *residual,
                                    run->options.approximate);
    kvf__prefix_done(&prefix);
    kvf__vectors_done(&vectors);
    return st;
}

/* ---- the head of a file ---------------------------------------------------------------------- */

/* Returns why a stored head does not fit the task's labels; NULL: it fits. */
static const char *other_question(const kvf__train_task *task, const kvf__head_task *head,
                                  char *const *words)
{
    const kvf__label_set *names = &task->data.names;
    const char *why = NULL;
    if (strcmp(head->task, kvf__task_name(task->kind))) return "another task";
    if (head->n_labels != names->n || head->regression != task->data.regression)
        return "other labels";
    for (size_t i = 0; i < names->n; i++) {
        if (kvf__label_set_find(names, head->labels[i]) < 0) return "other labels";
        if (strcmp(head->labels[i], names->names[i])) why = "the order of the labels differs";
    }
    if (!why && !words != !task->words)
        why = words ? "its labels are words (--verbalizer)"
                    : "this run's labels are words (--verbalizer)";
    return why;
}

/* Takes the language-model head of a file. A prefix trained with its own head is of little use
 * without it. */
static kvf_status lm_head_from(kvf__run *run, kvf__train_rows *rows, const char *path,
                               const char *what, const char *kind, const kvf__params *stored)
{
    kvf__head *head = rows->task->head;
    bool own = stored->n && !strcmp(kind, kvf__task_name(KVF__TASK_LM));
    if (own && !head)
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "%s: has a trained language-model head: use --train-head too", path);
    kvf__run_note(run, "initialized from %s: %s%s%s", path, what,
                  own         ? " and head"
                  : stored->n ? "; head not used: another task"
                              : "",
                  !own && head ? "; head of the base" : "");
    return own ? kvf__head_load(run->ctx, kvf__head_params(head), path, stored) : KVF_OK;
}

/* Takes the head of a task from a file with one or more, if one has the same labels: the head of
 * the same name, else the first. */
static kvf_status task_head_from(kvf__run *run, const char *path, const char *what,
                                 const char *kind, const kvf__head_values *from,
                                 const kvf__train_task *task)
{
    const char *name = task->name;
    kvf__params *params = kvf__task_head_params(task);
    const kvf__head_task whole = {.task = (char *)kind,
                                  .n_labels = from->n_labels,
                                  .labels = from->labels,
                                  .regression = from->regression};
    const kvf__head_task *found = NULL;
    const char *why = from->n_tasks ? "no task of that file has these labels"
                                    : other_question(task, &whole, from->words);
    for (size_t i = 0; i < from->n_tasks; i++)
        if (!other_question(task, &from->tasks[i], NULL) &&
            (!found || (name && !strcmp(from->tasks[i].name, name))))
            found = &from->tasks[i];
    if (!why) found = &whole;
    if (!found) {
        kvf__run_note(run, "initialized from %s: %s; the head%s%s is new: %s", path, what,
                      name ? " of " : "", name ? name : "", why);
        return KVF_OK;
    }
    kvf__run_note(run, "initialized from %s: %s and head%s%s", path, what, found->name ? " " : "",
                  found->name ? found->name : "");
    if (!found->name) return kvf__head_load(run->ctx, params, path, &from->params.params);
    kvf__head_values one = {0};
    KVF_TRY(kvf__head_values_pick(run->ctx, path, from, found->name, &kind, &one));
    kvf_status st = kvf__head_load(run->ctx, params, path, &one.params.params);
    kvf__head_values_done(&one);
    return st;
}

/* Takes the heads of a file. `what` names its other values in the message. */
static kvf_status heads_from(kvf__run *run, kvf__train_rows *rows, const char *path,
                             const char *what, const char *kind, const kvf__head_values *from)
{
    const kvf__params *stored = &from->params.params;
    for (size_t i = 0; i < stored->n; i++)
        if (strstr(stored->item[i].name, "/" KVF__LOW_RANK_U))
            return kvf__fail(run->ctx, KVF_EUSAGE,
                             "%s: each task has its own prefix (low-rank): use the file that merge "
                             "--head NAME makes",
                             path);
    bool any = false;
    for (size_t i = 0; i < rows->n; i++) {
        if (kvf__head_is_lm(rows->task[i].head)) continue;
        any = true;
        KVF_TRY(task_head_from(run, path, what, kind, from, &rows->task[i]));
    }
    return any ? KVF_OK : lm_head_from(run, rows, path, what, kind, stored);
}

/* ---- --init-from ----------------------------------------------------------------------------- */

/* Copies the weights of the base that a run trained with its encoder. */
static kvf_status base_from_run(const kvf__run *run, const kvf__tuned *tuned, const char *path,
                                const kvf__artifact *saved, kvf__encoder *source, const char **what)
{
    const kvf__params *values = saved->best.params.n ? &saved->best.params : &saved->values.params;
    kvf_prefix beside = {0};
    kvf_status st = kvf__block_beside(run->ctx, saved->options, values, kvf__encoder_params(source),
                                      &beside);
    if (!st && beside.file.values.params.n) {
        *what = "its encoder, its base";
        st = tuned->base
                 ? kvf__block_load(run->ctx, path, &beside.file.values.params, run->base->model)
                 : kvf__fail(run->ctx, KVF_EUSAGE,
                             "%s: includes trained weights of the base: use --unfreeze base, or "
                             "the files that merge --out-base makes",
                             path);
    }
    kvf__params_owned_done(&beside.file.values);
    return st;
}

static kvf_status weights_from_run(const kvf__run *run, kvf__tuned *tuned, const char *path,
                                   const kvf__artifact *saved)
{
    const kvf__params *values = NULL;
    int64_t step;
    KVF_TRY(kvf__run_pick_state(run->ctx, path, saved, KVF_CHECKPOINT_DEFAULT, &values, &step));
    const kvf__param *w = kvf__params_find(values, KVF__LOG_WEIGHT);
    if (w && w->n != (int64_t)kvf__prefix_weights(&tuned->prefix))
        return kvf__fail(run->ctx, KVF_ESHAPE, "%s: " KVF__LOG_WEIGHT " has %lld values, want %zu",
                         path, (long long)w->n, kvf__prefix_weights(&tuned->prefix));
    return w ? kvf__log_weight_from(run, tuned, path, w->value) : KVF_OK;
}

/* Copies the parameters of a run of the same method one by one. */
static kvf_status values_from_run(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows,
                                  const char *path, kvf__artifact *saved)
{
    kvf__encoder *source = NULL;
    const char *what = "its encoder";
    int64_t step = 0;
    kvf_status st = kvf__identity_check(run->ctx, path, &saved->id, run->base,
                                        run->options.allow_other_base);
    if (!st) st = same_placement(run, path, &saved->id);
    if (!st && saved->id.neurons.N != run->id.neurons.N)
        st = saved->id.neurons.N
                 ? kvf__fail(run->ctx, KVF_ESHAPE,
                             "%s: has %lld virtual neurons in each layer: give --ffn-length %lld",
                             path, (long long)saved->id.neurons.N, (long long)saved->id.neurons.N)
                 : kvf__fail(run->ctx, KVF_ESHAPE,
                             "%s: has no virtual neurons: merge it, and start --ffn-length from "
                             "the prefix file",
                             path);
    if (!st)
        st = kvf__encoder_from_run(run->ctx, path, saved, run->base, KVF_CHECKPOINT_DEFAULT,
                                   &source, &step);
    if (!st) st = kvf__encoder_load(run->ctx, tuned->encoder, path, kvf__encoder_params(source));
    tuned->neurons_begun = !st;
    if (!st) st = weights_from_run(run, tuned, path, saved);
    if (!st) st = base_from_run(run, tuned, path, saved, source, &what);
    kvf__encoder_free(source);
    if (st) return st;
    kvf__head_values head = saved->head; /* a view of the state in use */
    if (saved->best_head.params.n) head.params = saved->best_head;
    return heads_from(run, rows, path, what, saved->id.task, &head);
}

kvf_status kvf__start_safetensors(kvf__run *run, kvf__tuned *tuned, const char *path)
{
    kvf__weights weights = {0};
    KVF_TRY(kvf__safetensors_open(run->ctx, path, &weights));
    kvf_status st = kvf__encoder_read_table(run->ctx, tuned->encoder, path, &weights.table);
    kvf__weights_close(&weights);
    return st;
}

/* Uses the prefix or virtual tokens of a file as the target. with_head: false for --init-kv, which
 * takes nothing else. */
kvf_status kvf__start_prefix(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows,
                             const char *path, bool with_head)
{
    kvf_prefix *file = NULL;
    double residual = 0;
    char what[80];
    KVF_TRY(kvf_prefix_open_on(run->ctx, path, run->base, KVF_CHECKPOINT_DEFAULT, &file));
    kvf_status st = kvf__start_reach(run, tuned, rows, file, NULL, &residual);
    snprintf(what, sizeof what, "its %s (relative error %.1e)",
             file->file.vectors.P ? "virtual tokens" : "keys and values", residual);
    if (!st && with_head)
        st = heads_from(run, rows, path, what, file->file.id.task, &file->file.head);
    else if (!st)
        kvf__run_note(run, "initialized from %s: %s%s", path, what,
                      file->file.head.params.params.n ? "; head not used (--init-from uses it)"
                                                      : "");
    kvf_prefix_free(file);
    return st;
}

kvf_status kvf__start_file(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows,
                           const char *path)
{
    kvf__kind kind = KVF__KIND_ANY;
    kvf__artifact saved = {0};
    KVF_TRY(kvf__kind_of(run->ctx, path, &kind));
    if (kind != KVF__KIND_RUN) return kvf__start_prefix(run, tuned, rows, path, true);
    kvf_status st = kvf__artifact_read(run->ctx, path, kind, &saved);
    if (!st)
        st = strcmp(saved.id.method, run->options.method)
                 ? kvf__start_prefix(run, tuned, rows, path, true)
                 : values_from_run(run, tuned, rows, path, &saved);
    kvf__artifact_done(&saved);
    return st;
}

/* Port block starts from the unchanged base, and adapters from zero. --init-from copies values of
 * the same shape. A base file contributes only its head, since it is the base itself. */
kvf_status kvf__start_block(kvf__run *run, kvf__train_rows *rows)
{
    const char *path = run->options.init_from;
    kvf__adapters *adapters = kvf__model_adapters(run->base->model);
    kvf_prefix *file = NULL;
    if (adapters) kvf__adapters_init(adapters, run->options.seed);
    if (!path) return KVF_OK;
    KVF_TRY(kvf_prefix_open(run->ctx, path, KVF_CHECKPOINT_DEFAULT, &file));
    kvf_status st = kvf__identity_check(run->ctx, path, &file->file.id, run->base,
                                        run->options.allow_other_base);
    if (!st && (adapters || file->file.values.params.n || file->from_run || file->file.id.P))
        st = kvf__block_load(run->ctx, path, &file->file.values.params, run->base->model);
    if (!st)
        st = heads_from(run, rows, path, adapters ? "its adapters" : "its weights",
                        file->file.id.task, &file->file.head);
    kvf_prefix_free(file);
    return st;
}
