/* --keep-states: whether a run can keep states, from which layer on, and what that saves. */
#include "trainer.h"

#include <stdlib.h>
#include <string.h>

/* Why these runs keep no states though they are asked to; NULL: they do, from *layer on. */
static const char *why_not(kvf__trainer *const *trainers, size_t n, int64_t *layer)
{
    int64_t lowest = INT64_MAX;
    for (size_t i = 0; i < n; i++) {
        const kvf__trainer *t = trainers[i];
        const kvf__desc *desc = kvf__model_desc(t->base->model);
        int64_t l = 0;
        const int64_t most = desc->encoder ? desc->encoder : t->id.L;
        if (t->options.base_dropout > 0)
            return "--base-dropout draws what they hold anew each step";
        if (desc->by_layer.shape || desc->by_layer.inputs)
            return "layers of this base read more than the states of the one below";
        if (t->ranks) return "each process sees other rows each epoch";
        while (l < most && !t->tuned.layer_mask[l])
            l++;
        if (l < lowest) lowest = l;
    }
    *layer = lowest;
    return lowest ? NULL : "layer 0 has a prefix (--layers, --places)";
}

kvf_status kvf__states_layer(kvf__trainer *const *trainers, size_t n, int64_t *out)
{
    kvf__trainer *t = trainers[0];
    int64_t layer = 0, size = -1;
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        KVF_TRY(kvf__states_size(t->ctx, trainers[i]->options.keep_states, &size));
        if (size < 0) return KVF_OK;
    }
    const char *why = why_not(trainers, n, &layer);
    if (why)
        kvf__trainer_note(t, "--keep-states: off, %s", why);
    else
        *out = layer;
    return KVF_OK;
}

static void note_ratio(kvf__trainer *t, int64_t layer, const kvf__batch_sizes *shares)
{
    const kvf__model *model = t->base->model;
    const bool lm = kvf__head_is_lm(t->rows.task->head);
    const double tokens = (double)shares->tokens;
    const kvf__work_rows rows = {.labels = (double)shares->labels / tokens,
                                 .source = (double)shares->source_tokens / tokens};
    const double kept = kvf__model_work(model, layer, layer, rows, lm);
    char below[40] = "layer 0 is";
    if (layer > 1) snprintf(below, sizeof below, "layers 0-%lld are", (long long)layer - 1);
    kvf__trainer_note(
        t,
        "states: %s computed once for each row; from then on a step has 1/%.2f of the "
        "multiply-adds of a prefix in all layers, 1/%.2f of those without --keep-states",
        below, kvf__model_work(model, 0, 0, rows, lm) / kept,
        kvf__model_work(model, 0, layer, rows, lm) / kept);
}

/* Adds the rows of a task, as far as no run before has them. */
static kvf_status count_task(const kvf__trainer *t, const kvf__train_task *task,
                             kvf__states *states, kvf__states_plan *plan)
{
    const int64_t numbers[] = {plan->layer, t->id.position_start, t->id.P};
    bool is_new;
    KVF_TRY(kvf__states_new_rows(states, task->data.start, numbers, &is_new));
    if (is_new) plan->rows += task->data.n;
    if (is_new) plan->tokens += task->data.start[task->data.n];
    if (!task->evaluator) return KVF_OK;
    kvf__evaluator_keep(task->evaluator, states);
    if (kvf__evaluator_tokens(task->evaluator) > plan->batch_tokens)
        plan->batch_tokens = kvf__evaluator_tokens(task->evaluator);
    KVF_TRY(kvf__states_new_rows(states, task->valid.start, numbers, &is_new));
    if (is_new) plan->rows += kvf__evaluator_batches(task->evaluator);
    if (is_new) plan->tokens += task->valid.start[task->valid.n];
    return KVF_OK;
}

static kvf_status make_room(kvf__trainer *const *trainers, size_t n, kvf__states_plan *plan,
                            kvf__states **states)
{
    kvf__trainer *t = trainers[0];
    kvf__states *made = NULL;
    if (!*states) KVF_TRY(kvf__states_create(t->ctx, plan, &made));
    if (made) *states = made;
    const int64_t before = kvf__states_count(*states).items;
    if (before)
        kvf__trainer_note(t, "states: %lld rows and batches are there from runs before",
                          (long long)before);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < trainers[i]->rows.n; k++)
            KVF_TRY(count_task(trainers[i], &trainers[i]->rows.task[k], *states, plan));
    return kvf__states_reserve(*states, plan);
}

kvf_status kvf__states_open(kvf__trainer *const *trainers, size_t n, const kvf__pass_limits *limits,
                            const kvf__batch_sizes *shares, kvf__states **states)
{
    kvf__trainer *t = trainers[0];
    const kvf__desc *desc = kvf__model_desc(t->base->model);
    kvf__states_plan plan = {.layer = limits->lowest,
                             .width = desc->C,
                             .batch_tokens = desc->encoder ? limits->source_tokens : limits->tokens,
                             .base = t->base->hash,
                             .precision = kvf__precision_name(t->base->precision),
                             .beside = t->options.out ? t->options.out : "."};
    bool alike = false;
    for (size_t i = 0; i < n; i++) {
        int64_t size = 0;
        KVF_TRY(kvf__states_size(t->ctx, trainers[i]->options.keep_states, &size));
        if ((size_t)size > plan.memory) plan.memory = (size_t)size;
    }
    KVF_TRY(kvf__model_rows_alike(t->ctx, t->base->model, plan.batch_tokens, &alike));
    if (!alike) {
        kvf__trainer_note(t, "--keep-states: off, %s",
                          t->options.stream_layers || t->options.weight_dtype
                              ? "not with --stream-layers or --weight-dtype"
                              : "on this CPU a row's bits depend on the other rows of its step");
        kvf__states_free(*states);
        *states = NULL;
        return KVF_OK;
    }
    note_ratio(t, limits->lowest, shares);
    return make_room(trainers, n, &plan, states);
}

void kvf__trainer_keep_states(kvf__trainer *t, kvf__states *states, const kvf__input *input)
{
    kvf__states_keep(states, input);
    const char *line = kvf__states_news(states);
    if (line) kvf__trainer_note(t, "%s", line);
}
