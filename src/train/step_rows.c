/* Which rows a step computes: its task, its rows, and of several processes this one's, in parts
 * that
 * --grad-accum asks for. The loss is weighted by its terms over the whole step (label tokens, rows,
 * words or questions), so neither parts nor processes change what is computed. */
#include "trainer.h"

#include <string.h>

#define MIX_STREAM 0x6d697874 /* "mixt" */

/* ---- whose step ------------------------------------------------------------------------------ */

/* How often a task is drawn, by --mix: as all others, or by its rows (questions). */
static int64_t weight_of(const kvf__trainer *t, const kvf__train_task *task)
{
    return t->options.equal_mix ? 1 : kvf__group_count(&task->data);
}

static kvf__train_task *draw_task(const kvf__trainer *t, int64_t step)
{
    const kvf__train_rows *rows = &t->rows;
    kvf__rng rng = kvf__rng_make(t->options.seed, (uint64_t)MIX_STREAM << 32);
    int64_t total = 0, at = 0;
    size_t i = 0;
    if (rows->n == 1) return rows->task;
    for (size_t k = 0; k < rows->n; k++)
        total += weight_of(t, &rows->task[k]);
    rng.stream += (uint64_t)step; /* a step's draw may consume several values */
    int64_t found = (int64_t)kvf__rng_below(&rng, (uint64_t)total);
    for (; i + 1 < rows->n; i++) {
        at += weight_of(t, &rows->task[i]);
        if (found < at) break;
    }
    return &rows->task[i];
}

const int64_t *kvf__rows_draw(kvf__trainer *t, int64_t step, int64_t *n)
{
    kvf__train_rows *rows = &t->rows;
    rows->now = draw_task(t, step);
    const int64_t *examples = kvf__sampler_next(&rows->now->sampler, n, &rows->epoch_end);
    if (kvf__tasks_are_named(t)) rows->epoch_end = (step + 1) % rows->epoch_steps == 0;
    return examples;
}

void kvf__rows_rewind(kvf__trainer *t)
{
    for (size_t i = 0; i < t->rows.n; i++)
        kvf__sampler_rewind(&t->rows.task[i].sampler);
}

void kvf__rows_seek(kvf__trainer *t)
{
    int64_t n;
    kvf__rows_rewind(t);
    kvf__base_kl_seek_step(t);
    for (int64_t step = 0; step < t->progress.step; step++)
        kvf__rows_draw(t, step, &n);
}

/* ---- the rows of a step ---------------------------------------------------------------------- */

/* Rows of the part that begins at `first`: questions stay whole. */
static int64_t part_rows(const kvf__trainer *t, const kvf__step_rows *rows, int64_t first)
{
    int64_t parts = t->options.grad_accum;
    return kvf__whole_groups(&t->rows.now->data, rows->examples + first, rows->n - first,
                             (rows->n + parts - 1) / parts);
}

static void fill_batcher(kvf__trainer *t, const int64_t *examples, int64_t n)
{
    kvf__batcher_fill(&t->rows.batcher, &t->rows.now->data, examples, n);
}

/* What the step's loss is a mean of. */
static int64_t count_terms(kvf__trainer *t, const kvf__step_rows *rows)
{
    const kvf__train_task *task = t->rows.now;
    const bool lm = kvf__head_is_lm(task->head);
    int64_t terms = 0;
    for (int64_t i = 0; lm && i < rows->n; i++)
        terms += kvf__example_labels(&task->data, rows->examples[i]);
    for (int64_t first = 0, n; !lm && first < rows->n; first += n) {
        n = part_rows(t, rows, first);
        fill_batcher(t, rows->examples + first, n);
        terms += kvf__head_terms(task->head, &t->rows.batcher.batch);
    }
    return terms;
}

kvf_status kvf__step_rows_begin(kvf__trainer *t, kvf__step_rows *rows)
{
    const kvf__feed *feed = t->rows.feed;
    *rows = (kvf__step_rows){0};
    t->timer.mark = kvf__clock();
    rows->examples = kvf__rows_draw(t, t->progress.step, &rows->n);
    if (feed && feed->renew) KVF_TRY(feed->renew(feed->user, t, rows->examples, rows->n));
    rows->terms = count_terms(t, rows);
    rows->scale = rows->terms ? (float)(1.0 / (double)rows->terms) : 0;
    kvf__ranks_rows(t, &rows->examples, &rows->n);
    t->progress.tokens += kvf__ranks_other_tokens(t);
    return KVF_OK;
}

bool kvf__step_rows_part(const kvf__trainer *t, kvf__step_rows *rows)
{
    if (rows->done >= rows->n) return false;
    rows->part = part_rows(t, rows, rows->done);
    rows->done += rows->part;
    return true;
}

bool kvf__step_rows_peek(kvf__trainer *t, kvf__step_rows *rows)
{
    if (!kvf__step_rows_part(t, rows)) return false;
    fill_batcher(t, rows->examples + rows->done - rows->part, rows->part);
    return true;
}

bool kvf__step_rows_next(kvf__trainer *t, kvf__step_rows *rows)
{
    if (!kvf__step_rows_peek(t, rows)) return false;
    for (int64_t i = rows->done - rows->part; i < rows->done; i++)
        t->progress.tokens += kvf__example_length(&t->rows.now->data, rows->examples[i]);
    kvf__step_lap(t, KVF__STEP_BATCH);
    if (t->rows.batcher.batch.n_labels) t->progress.computed_tokens += t->rows.batcher.sizes.tokens;
    return true;
}
