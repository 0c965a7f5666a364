/* --keep-states: decides whether a run can cache states, from which layer on, and reports the
 * saving. */
#include "states_plan.h"

#include <stdlib.h>
#include <string.h>

/* Returns why these runs cannot cache states; NULL: they can, from *layer on. */
static const char *why_not(const kvf__states_run *runs, size_t n, int64_t *layer)
{
    int64_t lowest = INT64_MAX;
    for (size_t i = 0; i < n; i++) {
        const kvf__run *run = runs[i].run;
        const kvf__desc *desc = kvf__model_desc(run->base->model);
        int64_t l = 0;
        const int64_t most = desc->encoder ? desc->encoder : run->id.L;
        if (run->options.base_dropout > 0) return "--base-dropout changes the states in each step";
        if (desc->by_layer.shape || desc->by_layer.inputs)
            return "layers of this base read more than the layer below";
        if (run->ranks) return "the rows of several processes change in each epoch";
        while (l < most && !runs[i].layer_mask[l])
            l++;
        if (l < lowest) lowest = l;
    }
    *layer = lowest;
    return lowest ? NULL : "layer 0 has a prefix (--layers, --places)";
}

kvf_status kvf__states_layer(const kvf__states_run *runs, size_t n, int64_t *out)
{
    kvf__run *run = runs[0].run;
    int64_t layer = 0, size = -1;
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        KVF_TRY(kvf__states_size(run->ctx, runs[i].run->options.keep_states, &size));
        if (size < 0) return KVF_OK;
    }
    const char *why = why_not(runs, n, &layer);
    if (why)
        kvf__run_note(run, "--keep-states is off: %s", why);
    else
        *out = layer;
    return KVF_OK;
}

static void note_ratio(const kvf__states_run *of, int64_t layer, const kvf__batch_sizes *shares)
{
    const kvf__model *model = of->run->base->model;
    const bool lm = kvf__head_is_lm(of->rows->task->head);
    const double tokens = (double)shares->tokens;
    const kvf__work_rows rows = {.labels = (double)shares->labels / tokens,
                                 .source = (double)shares->source_tokens / tokens};
    const double kept = kvf__model_work(model, layer, layer, rows, lm);
    char below[40] = "layer 0 is";
    if (layer > 1) snprintf(below, sizeof below, "layers 0-%lld are", (long long)layer - 1);
    kvf__run_note(
        of->run,
        "--keep-states: %s computed once for each row; later steps take 1/%.2f of the "
        "multiply-adds of a prefix in all layers, and 1/%.2f of those without --keep-states",
        below, kvf__model_work(model, 0, 0, rows, lm) / kept,
        kvf__model_work(model, 0, layer, rows, lm) / kept);
}

/* Counts the rows of a task that no earlier run has cached. */
static kvf_status count_task(const kvf__run *run, const kvf__train_task *task, kvf__states *states,
                             kvf__states_plan *plan)
{
    const int64_t numbers[] = {plan->layer, run->id.position_start, run->id.P};
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

static kvf_status make_room(const kvf__states_run *runs, size_t n, kvf__states_plan *plan,
                            kvf__states **states)
{
    kvf__run *run = runs[0].run;
    kvf__states *made = NULL;
    if (!*states) KVF_TRY(kvf__states_create(run->ctx, plan, &made));
    if (made) *states = made;
    const int64_t before = kvf__states_count(*states).items;
    if (before)
        kvf__run_note(run,
                      "--keep-states: %lld rows and batches are cached already by earlier runs",
                      (long long)before);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < runs[i].rows->n; k++)
            KVF_TRY(count_task(runs[i].run, &runs[i].rows->task[k], *states, plan));
    return kvf__states_reserve(*states, plan);
}

kvf_status kvf__states_open(const kvf__states_run *runs, size_t n, const kvf__pass_limits *limits,
                            const kvf__batch_sizes *shares, kvf__states **states)
{
    kvf__run *run = runs[0].run;
    const kvf__desc *desc = kvf__model_desc(run->base->model);
    kvf__states_plan plan = {.layer = limits->lowest,
                             .width = desc->C,
                             .batch_tokens = desc->encoder ? limits->source_tokens : limits->tokens,
                             .base = run->base->hash,
                             .precision = kvf__precision_name(run->base->precision),
                             .beside = run->options.out ? run->options.out : "."};
    bool alike = false;
    for (size_t i = 0; i < n; i++) {
        int64_t size = 0;
        KVF_TRY(kvf__states_size(run->ctx, runs[i].run->options.keep_states, &size));
        if ((size_t)size > plan.memory) plan.memory = (size_t)size;
    }
    KVF_TRY(kvf__model_rows_alike(run->ctx, run->base->model, plan.batch_tokens, &alike));
    if (!alike) {
        kvf__run_note(run, "--keep-states is off: %s",
                      run->options.stream_layers || run->options.weight_dtype
                          ? "--stream-layers and --weight-dtype do not support it"
                          : "on this CPU a row's bits depend on the other rows of its step");
        kvf__states_free(*states);
        *states = NULL;
        return KVF_OK;
    }
    note_ratio(&runs[0], limits->lowest, shares);
    return make_room(runs, n, &plan, states);
}

void kvf__run_keep_states(kvf__run *run, kvf__states *states, const kvf__input *input)
{
    kvf__states_keep(states, input);
    const char *line = kvf__states_news(states);
    if (line) kvf__run_note(run, "%s", line);
}
