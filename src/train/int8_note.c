/* What eight-bit products change in the base's own loss (--precision int8): said once, before a run
 * begins, on the first rows that it would be validated on. A base with channels far larger than the
 * others loses more than one without, and this is where it shows. */
#include "trainer.h"

#include <math.h>

enum { MOST_ROWS = 64, MOST_TOKENS = 4096 };

/* Whole groups, at least one; views. */
static kvf__dataset first_rows(const kvf__dataset *set)
{
    kvf__dataset first = *set;
    const int64_t groups = set->group ? set->n_groups : set->n;

    first.n = first.n_labels = 0;
    for (int64_t g = 0; g < groups; g++) {
        const int64_t n = set->group ? set->group[g + 1] : g + 1;
        if (first.n && (n > MOST_ROWS || set->start[n] > MOST_TOKENS)) break;
        first.n = n;
        first.n_groups = g + 1;
    }
    for (int64_t i = 0; i < first.n; i++)
        first.n_labels += kvf__example_labels(set, i);
    return first;
}

static kvf_status loss_of(kvf__trainer *t, kvf_base *base, const kvf__dataset *rows, double *loss)
{
    const kvf__evaluator_options how = {.share_prefixes = !t->options.share_off};
    const kvf__subject bare = {.head = t->rows.task->head};
    kvf__evaluator *evaluator = NULL;

    KVF_TRY(kvf__evaluator_create(t->ctx, base, rows, &how, &evaluator));
    kvf_status st = kvf__evaluator_run(t->ctx, evaluator, &bare, loss, NULL);
    kvf__evaluator_free(evaluator);
    return st;
}

static kvf_status loss_in_bf16(kvf__trainer *t, const kvf__dataset *rows, double *loss)
{
    kvf_base *base = NULL;

    KVF_TRY(kvf__base_copy_bf16(t->ctx, t->base, &base));
    kvf_status st = loss_of(t, base, rows, loss);
    kvf_base_free(base);
    return st;
}

kvf_status kvf__trainer_note_int8(kvf__trainer *t)
{
    const kvf__train_task *task = t->rows.task;
    double loss = NAN, want = NAN;

    if (t->base->precision != KVF_PRECISION_INT8 || t->output.is_resumed || kvf__ranks_follows(t))
        return KVF_OK;
    const kvf__dataset rows = first_rows(task->valid.n ? &task->valid : &task->data);
    if (!rows.n_labels) return KVF_OK;
    KVF_TRY(loss_of(t, t->base, &rows, &loss));
    KVF_TRY(loss_in_bf16(t, &rows, &want));
    kvf__trainer_note(t, "int8: loss of the bare base on %lld rows %.4f, in bf16 %.4f",
                      (long long)rows.n, loss, want);
    return KVF_OK;
}
