/* What a run says of a frozen base that was never pretrained: its own loss on the rows of the first
 * step is that of guessing, ln V, and no prefix finds in it what is not there (the literature's
 * control: prefixes on random weights do not learn).
 *
 * Asked once, after the first step, of prefixes of language models, and only where that step's own
 * loss is near ln V or above: a pretrained base pays nothing. */
#include "trainer.h"

#include <math.h>

#define NEAR 0.05 /* of ln V, on both sides */

static bool is_asked(const kvf__trainer *t, double guess)
{
    const bool lm = t->rows.now->kind == KVF__TASK_LM && !t->rows.now->head && !t->teacher.k;
    return lm && t->progress.step == 1 && t->tuned.method->port == KVF__PORT_KV && !t->id.infix &&
           kvf__ranks_size(t) == 1 && t->progress.train_loss > (1 - 2 * NEAR) * guess;
}

kvf_status kvf__trainer_check_base(kvf__trainer *t)
{
    const kvf__batch *batch = &t->rows.batcher.batch;
    const int64_t V = kvf__model_desc(t->base->model)->V;
    const kvf__input bare = {.batch = batch};
    const double guess = log((double)V);
    double sum = 0;

    if (!is_asked(t, guess) || !batch->n_labels) return KVF_OK;
    KVF_TRY(kvf__pass_fwd(t->ctx, t->pass, &bare));
    KVF_TRY(kvf__pass_loss(t->ctx, t->pass, &(kvf__loss){.scale = 1}, &sum));
    const double loss = sum / (double)batch->n_labels;
    if (fabs(loss - guess) > NEAR * guess) return KVF_OK;
    kvf__trainer_note(t,
                      "the bare base's loss is %.2f, that of guessing among %lld tokens %.2f: it "
                      "looks never pretrained, and a prefix will not make up for that",
                      loss, (long long)V, guess);
    return KVF_OK;
}
