/* A fixed prefix beside the trained one (distill --distractor). In every other step rows read both,
 * as after `compose --mode parallel`, so the trained keys learn to be found among others. Depends
 * on the step only, so nothing is stored. */
#include "tuned.h"

#include <math.h>
#include <string.h>

kvf_status kvf__beside_alloc(const kvf__run *run, kvf__tuned *tuned, const kvf__train_rows *rows)
{
    const kvf__prefix *own = tuned->alone = tuned->condition.prefix;
    tuned->backward = tuned->gradient.prefix;
    if (!rows->beside) return KVF_OK;
    const kvf__kv_shape shape = kvf__prefix_shape(own);
    const int64_t P = own->P + rows->beside->P;
    KVF_TRY(kvf__prefix_create(run->ctx, &tuned->both, &shape, P));
    KVF_TRY(kvf__prefix_create(run->ctx, &tuned->dboth, &shape, P));
    if (own->log_weight || rows->beside->log_weight)
        KVF_TRY(kvf__prefix_weigh(run->ctx, &tuned->both));
    return tuned->dprefix.log_weight ? kvf__prefix_weigh(run->ctx, &tuned->dboth) : KVF_OK;
}

/* Returns `own` with the tokens of `both`, zeroed. */
static kvf__prefix widen(const kvf__prefix *own, const kvf__prefix *both)
{
    kvf__prefix wide = *own;
    wide.P = both->P;
    wide.kv = both->kv;
    wide.log_weight = both->log_weight;
    memset(wide.kv, 0, kvf__prefix_count(both) * sizeof *wide.kv);
    if (wide.log_weight)
        memset(wide.log_weight, 0, kvf__prefix_weights(both) * sizeof *wide.log_weight);
    return wide;
}

void kvf__beside_fwd(const kvf__run *run, kvf__tuned *tuned, const kvf__train_rows *rows)
{
    const kvf__prefix *own = tuned->alone;
    kvf__prefix *wide = &tuned->wide;
    if (!rows->beside || run->progress.step % 2 == 0) return;
    *wide = widen(own, &tuned->both);
    tuned->dwide = widen(tuned->gradient.prefix, &tuned->dboth);
    kvf__prefix_copy_tokens(wide, 0, own, 0, own->P);
    kvf__prefix_copy_tokens(wide, own->P, rows->beside, 0, rows->beside->P);
    for (size_t i = 0; wide->log_weight && i < kvf__prefix_weights(wide); i++)
        wide->log_weight[i] -= (float)log((double)rows->n_beside + 1); /* as in compose */
    tuned->condition.prefix = wide;
    tuned->backward = &tuned->dwide;
}

void kvf__beside_bwd(kvf__tuned *tuned)
{
    kvf__prefix *to = tuned->gradient.prefix;
    if (tuned->backward == to) return;
    kvf__prefix_copy_tokens(to, 0, tuned->backward, 0, to->P);
    tuned->condition.prefix = tuned->alone;
    tuned->backward = to;
}
