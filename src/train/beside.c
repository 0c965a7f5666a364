/* A fixed prefix beside the trained one (distill --distractor). In every other step rows read both,
 * as after `compose --mode parallel`, so the trained keys learn to be found among others. Depends
 * on the step only, so nothing is stored. */
#include "tuned.h"

#include <math.h>
#include <string.h>

/* Returns the prefix of this step; NULL: none. */
static const kvf__prefix *of_step(const kvf__run *run, const kvf__train_rows *rows)
{
    const int64_t step = run->progress.step;
    return rows->n_beside && step % 2 ? rows->beside + (size_t)(step / 2) % rows->n_beside : NULL;
}

int64_t kvf__beside_most(const kvf__train_rows *rows)
{
    int64_t most = 0;
    for (size_t i = 0; i < rows->n_beside; i++)
        if (rows->beside[i].P > most) most = rows->beside[i].P;
    return most;
}

kvf_status kvf__beside_alloc(const kvf__run *run, kvf__tuned *tuned, const kvf__train_rows *rows)
{
    const kvf__prefix *own = tuned->alone = tuned->condition.prefix;
    tuned->backward = tuned->gradient.prefix;
    if (!rows->n_beside) return KVF_OK;
    const kvf__kv_shape shape = kvf__prefix_shape(own);
    const int64_t P = own->P + kvf__beside_most(rows);
    KVF_TRY(kvf__prefix_create(run->ctx, &tuned->both, &shape, P));
    KVF_TRY(kvf__prefix_create(run->ctx, &tuned->dboth, &shape, P));
    if (own->log_weight) KVF_TRY(kvf__prefix_weigh(run->ctx, &tuned->both));
    return tuned->dprefix.log_weight ? kvf__prefix_weigh(run->ctx, &tuned->dboth) : KVF_OK;
}

/* Returns `own` with P tokens, in the memory of `both`. */
static kvf__prefix widen(const kvf__prefix *own, const kvf__prefix *both, int64_t P)
{
    kvf__prefix wide = *own;
    wide.P = P;
    wide.kv = both->kv;
    wide.log_weight = own->log_weight ? both->log_weight : NULL;
    return wide;
}

static void zero(kvf__prefix *prefix)
{
    memset(prefix->kv, 0, kvf__prefix_count(prefix) * sizeof *prefix->kv);
    if (prefix->log_weight)
        memset(prefix->log_weight, 0, kvf__prefix_weights(prefix) * sizeof *prefix->log_weight);
}

void kvf__beside_fwd(const kvf__run *run, kvf__tuned *tuned, const kvf__train_rows *rows)
{
    const kvf__prefix *other = of_step(run, rows), *own = tuned->alone;
    kvf__prefix *wide = &tuned->wide, *dwide = &tuned->dwide;
    if (!other) return;
    *wide = widen(own, &tuned->both, own->P + other->P);
    *dwide = widen(tuned->gradient.prefix, &tuned->dboth, wide->P);
    zero(wide); /* the other one may have no log-weights */
    zero(dwide);
    kvf__prefix_copy_tokens(wide, 0, own, 0, own->P);
    kvf__prefix_copy_tokens(wide, own->P, other, 0, other->P);
    for (size_t i = 0; wide->log_weight && i < kvf__prefix_weights(wide); i++)
        wide->log_weight[i] -= (float)log(2); /* both have the mass of one, as in compose */
    tuned->condition.prefix = wide;
    tuned->backward = dwide;
}

void kvf__beside_bwd(kvf__tuned *tuned)
{
    kvf__prefix *to = tuned->gradient.prefix;
    if (tuned->backward == to) return;
    kvf__prefix_copy_tokens(to, 0, tuned->backward, 0, to->P);
    tuned->condition.prefix = tuned->alone;
    tuned->backward = to;
}
