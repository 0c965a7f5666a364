/* What a run says of its base alone, before and after its first step. */
#include "base_notes.h"

#include <math.h>

/* ---- never pretrained? ----------------------------------------------------------------------- */

/* What a run says of a frozen base that was never pretrained: its own loss on the rows of the first
 * step is that of guessing, ln V, and no prefix finds in it what is not there (the literature's
 * control: prefixes on random weights do not learn).
 *
 * Asked once, after the first step, of prefixes of language models, and only where that step's own
 * loss is near ln V or above: a pretrained base pays nothing. */
#define NEAR 0.05 /* of ln V, on both sides */

static bool is_asked(const kvf__run *run, const kvf__train_rows *rows, double guess)
{
    const bool lm = rows->now->kind == KVF__TASK_LM && !rows->now->head && !rows->teacher.k;
    return lm && run->progress.step == 1 && run->method->port == KVF__PORT_KV && !run->id.infix &&
           kvf__ranks_size(run->ranks) == 1 && run->progress.train_loss > (1 - 2 * NEAR) * guess;
}

kvf_status kvf__note_untrained(kvf__run *run, const kvf__train_rows *rows, kvf__pass *pass)
{
    const kvf__batch *batch = &rows->batcher.batch;
    const int64_t V = kvf__model_desc(run->base->model)->V;
    const kvf__input bare = {.batch = batch};
    const double guess = log((double)V);
    double sum = 0;

    if (!is_asked(run, rows, guess) || !batch->n_labels) return KVF_OK;
    KVF_TRY(kvf__pass_fwd(run->ctx, pass, &bare));
    KVF_TRY(kvf__pass_loss(run->ctx, pass, &(kvf__loss){.scale = 1}, &sum));
    const double loss = sum / (double)batch->n_labels;
    if (fabs(loss - guess) > NEAR * guess) return KVF_OK;
    kvf__run_note(run,
                  "the bare base's loss is %.2f, that of guessing among %lld tokens %.2f: it "
                  "looks never pretrained, and a prefix will not make up for that",
                  loss, (long long)V, guess);
    return KVF_OK;
}

/* ---- --precision int8 ------------------------------------------------------------------------ */

/* What eight-bit products change in the base's own loss (--precision int8): said once, before a run
 * begins, on the first rows that it would be validated on. A base with channels far larger than the
 * others loses more than one without, and this is where it shows. */
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

static kvf_status loss_of(const kvf__run *run, kvf_base *base, kvf__head *head,
                          const kvf__dataset *rows, double *loss)
{
    const kvf__evaluator_options how = {.share_prefixes = !run->options.share_off};
    const kvf__subject bare = {.head = head};
    kvf__evaluator *evaluator = NULL;

    KVF_TRY(kvf__evaluator_create(run->ctx, base, rows, &how, &evaluator));
    kvf_status st = kvf__evaluator_run(run->ctx, evaluator, &bare, loss, NULL);
    kvf__evaluator_free(evaluator);
    return st;
}

static kvf_status loss_in_bf16(const kvf__run *run, kvf__head *head, const kvf__dataset *rows,
                               double *loss)
{
    kvf_base *base = NULL;

    KVF_TRY(kvf__base_copy_bf16(run->ctx, run->base, &base));
    kvf_status st = loss_of(run, base, head, rows, loss);
    kvf_base_free(base);
    return st;
}

kvf_status kvf__note_int8(kvf__run *run, const kvf__train_rows *rows)
{
    const kvf__train_task *task = rows->task;
    double loss = NAN, want = NAN;

    if (run->base->precision != KVF_PRECISION_INT8 || run->output.is_resumed ||
        kvf__ranks_follows(run->ranks))
        return KVF_OK;
    const kvf__dataset first = first_rows(task->valid.n ? &task->valid : &task->data);
    if (!first.n_labels) return KVF_OK;
    KVF_TRY(loss_of(run, run->base, task->head, &first, &loss));
    KVF_TRY(loss_in_bf16(run, task->head, &first, &want));
    kvf__run_note(run, "int8: loss of the bare base on %lld rows %.4f, in bf16 %.4f",
                  (long long)first.n, loss, want);
    return KVF_OK;
}
