/* Validation and the retention set over several processes. */
#include "ranks_int.h"

kvf_status kvf__ranks_divide(kvf__trainer *t)
{
    if (!t->ranks || t->ranks->size < 2) return KVF_OK;
    kvf__dist *dist = t->ranks->dist;
    kvf__evaluator *retention = kvf__retention_evaluator(t);
    for (size_t i = 0; i < t->rows.n; i++)
        if (t->rows.task[i].evaluator)
            KVF_TRY(kvf__evaluator_divide(t->ctx, t->rows.task[i].evaluator, dist));
    if (retention) KVF_TRY(kvf__evaluator_divide(t->ctx, retention, dist));
    t->ranks->divided = true;
    return KVF_OK;
}

static kvf_status order(kvf__trainer *t, kvf__order_kind kind)
{
    bool orders = t->ranks && t->ranks->divided && !t->ranks->rank;
    return orders ? kvf__ranks_order(t, kind) : KVF_OK;
}

kvf_status kvf__ranks_validate(kvf__trainer *t)
{
    return order(t, KVF__ORDER_VALIDATE);
}

kvf_status kvf__ranks_retention(kvf__trainer *t)
{
    return order(t, KVF__ORDER_RETENTION);
}
