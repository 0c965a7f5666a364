/* Selects the rows of a step: its task, its rows, the part of this process, in the parts of
 * --grad-accum. The loss is weighted by the terms of the whole step (label tokens, rows, words or
 * questions), so neither parts nor processes change the result. */
#include "rng.h"
#include "train_rows.h"

#define MIX_STREAM 0x6d697874 /* "mixt" */

/* ---- whose step ------------------------------------------------------------------------------ */

/* Returns the weight of a task in drawing by --mix: equal, or its number of rows (questions). */
static int64_t weight_of(const kvf__run *run, const kvf__train_task *task)
{
    return run->options.equal_mix ? 1 : kvf__group_count(&task->data);
}

static kvf__train_task *draw_task(const kvf__run *run, const kvf__train_rows *rows, int64_t step)
{
    kvf__rng rng = kvf__rng_make(run->options.seed, (uint64_t)MIX_STREAM << 32);
    int64_t total = 0, at = 0;
    size_t i = 0;
    if (rows->n == 1) return rows->task;
    for (size_t k = 0; k < rows->n; k++)
        total += weight_of(run, &rows->task[k]);
    rng.stream += (uint64_t)step; /* drawing a step may consume several values */
    int64_t found = (int64_t)kvf__rng_below(&rng, (uint64_t)total);
    for (; i + 1 < rows->n; i++) {
        at += weight_of(run, &rows->task[i]);
        if (found < at) break;
    }
    return &rows->task[i];
}

const int64_t *kvf__rows_draw(const kvf__run *run, kvf__train_rows *rows, int64_t step, int64_t *n)
{
    rows->now = draw_task(run, rows, step);
    const int64_t *examples = kvf__sampler_next(&rows->now->sampler, n, &rows->epoch_end);
    if (kvf__tasks_are_named(rows)) rows->epoch_end = (step + 1) % rows->epoch_steps == 0;
    return examples;
}

void kvf__rows_rewind(kvf__train_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++)
        kvf__sampler_rewind(&rows->task[i].sampler);
}

void kvf__rows_seek(const kvf__run *run, kvf__train_rows *rows)
{
    int64_t n;
    kvf__rows_rewind(rows);
    for (int64_t step = 0; step < run->progress.step; step++)
        kvf__rows_draw(run, rows, step, &n);
}

/* ---- the rows of a step ---------------------------------------------------------------------- */

/* Returns the number of rows in the part that begins at `first`. Questions stay whole. */
static int64_t part_rows(const kvf__run *run, const kvf__train_rows *rows,
                         const kvf__step_rows *step, int64_t first)
{
    int64_t parts = run->options.grad_accum;
    return kvf__whole_groups(&rows->now->data, step->examples + first, step->n - first,
                             (step->n + parts - 1) / parts);
}

static void fill_batcher(kvf__train_rows *rows, const int64_t *examples, int64_t n)
{
    kvf__batcher_fill(&rows->batcher, &rows->now->data, examples, n);
}

/* Counts the terms over which the step's loss is a mean. */
static int64_t count_terms(const kvf__run *run, kvf__train_rows *rows, const kvf__step_rows *step)
{
    const kvf__train_task *task = rows->now;
    const bool lm = kvf__head_is_lm(task->head);
    int64_t terms = 0;
    for (int64_t i = 0; lm && i < step->n; i++)
        terms += kvf__example_labels(&task->data, step->examples[i]);
    for (int64_t first = 0, n; !lm && first < step->n; first += n) {
        n = part_rows(run, rows, step, first);
        fill_batcher(rows, step->examples + first, n);
        terms += kvf__head_terms(task->head, &rows->batcher.batch);
    }
    return terms;
}

void kvf__step_rows_count(kvf__run *run, kvf__train_rows *rows, kvf__step_rows *step)
{
    step->terms = count_terms(run, rows, step);
    step->scale = step->terms ? (float)(1.0 / (double)step->terms) : 0;
    kvf__ranks_rows(run->ranks, &rows->now->data, &step->examples, &step->n);
    run->progress.tokens += kvf__ranks_other_tokens(run->ranks);
}

bool kvf__step_rows_part(const kvf__run *run, const kvf__train_rows *rows, kvf__step_rows *step)
{
    if (step->done >= step->n) return false;
    step->part = part_rows(run, rows, step, step->done);
    step->done += step->part;
    return true;
}

bool kvf__step_rows_peek(const kvf__run *run, kvf__train_rows *rows, kvf__step_rows *step)
{
    if (!kvf__step_rows_part(run, rows, step)) return false;
    fill_batcher(rows, step->examples + step->done - step->part, step->part);
    return true;
}

bool kvf__step_rows_next(kvf__run *run, kvf__train_rows *rows, kvf__step_rows *step)
{
    if (!kvf__step_rows_peek(run, rows, step)) return false;
    for (int64_t i = step->done - step->part; i < step->done; i++)
        run->progress.tokens += kvf__example_length(&rows->now->data, step->examples[i]);
    if (rows->batcher.batch.n_labels) run->progress.computed_tokens += rows->batcher.sizes.tokens;
    return true;
}
