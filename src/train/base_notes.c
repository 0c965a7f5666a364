/* Notes about the base of a run: whether it seems untrained, and what int8 costs. */
#include "base_notes.h"

#include <math.h>

/* ---- never pretrained? ----------------------------------------------------------------------- */

/* A frozen base that was never pretrained has the loss of guessing, ln V, on the rows of the first
 * step. A prefix cannot help it: the control experiment of the literature.
 *
 * The check runs once, after the first step of a language model's prefix, and only if that step's
 * own loss is near ln V or above. A pretrained base costs nothing. */
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
                  "the bare base has a loss of %.2f, and guessing among %lld tokens has %.2f: the "
                  "base seems untrained, and a prefix cannot compensate for that",
                  loss, (long long)V, guess);
    return KVF_OK;
}

/* ---- --precision int8 ------------------------------------------------------------------------ */

/* Compares the base's own loss in int8 and in bf16 on the first validation rows, once before a run.
 * A base with a few very large channels loses more in int8 than others do. */
enum { MOST_ROWS = 64, MOST_TOKENS = 4096 };

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
    const kvf__dataset first = kvf__dataset_first(task->valid.n ? &task->valid : &task->data,
                                                  MOST_ROWS, MOST_TOKENS);
    if (!first.n_labels) return KVF_OK;
    KVF_TRY(loss_of(run, run->base, task->head, &first, &loss));
    KVF_TRY(loss_in_bf16(run, task->head, &first, &want));
    kvf__run_note(run, "int8: on %lld rows the bare base has loss %.4f, in bf16 %.4f",
                  (long long)first.n, loss, want);
    return KVF_OK;
}
