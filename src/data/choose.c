/* Chooses some rows of a data set (--rows). Classes keep their shares, by the method of the largest
 * remainder, and each has at least one row. Tasks without classes take any rows. The choice depends
 * on the rows, their number and the seed only. */
#include "data_int.h"
#include "loader.h"
#include "rng.h"

#define CHOOSE_STREAM 0x726f7773 /* "rows" */

/* Rows by class: all of them, and those still to take. Tasks without classes have one. */
typedef struct quotas {
    size_t n;
    int64_t *all, *take; /* [n] */
} quotas;

static size_t class_of(const kvf__dataset *set, int64_t group)
{
    const bool classes = set->task == KVF__TASK_SEQ_CLS && set->names.n && set->sources;
    const int32_t gold = classes ? set->sources->group[group].gold : 0;
    return gold > 0 ? (size_t)gold : 0;
}

/* Returns how far a class is below its share of the rows, times the number of all rows. */
static int64_t lacking(const quotas *q, size_t class, int64_t rows, int64_t groups)
{
    return rows * q->all[class] - q->take[class] * groups;
}

/* Returns the class that lacks most, or with `give` the one that lacks least among those with more
 * than one row. */
static size_t extreme(const quotas *q, int64_t rows, int64_t groups, bool give)
{
    size_t best = q->n;
    for (size_t c = 0; c < q->n; c++) {
        if (give && q->take[c] < 2) continue;
        if (best == q->n) best = c;
        const int64_t more = lacking(q, c, rows, groups) - lacking(q, best, rows, groups);
        if (give ? more < 0 : more > 0) best = c;
    }
    return best;
}

/* Divides the rows among the classes. Returns the number of classes with rows. */
static int64_t divide(quotas *q, int64_t rows, int64_t groups)
{
    int64_t sum = 0, present = 0;
    for (size_t c = 0; c < q->n; c++) {
        const int64_t share = rows * q->all[c] / groups;
        q->take[c] = share || !q->all[c] ? share : 1;
        sum += q->take[c];
        present += q->all[c] > 0;
    }
    for (; sum < rows; sum++)
        q->take[extreme(q, rows, groups, false)]++;
    for (; sum > rows && rows >= present; sum--)
        q->take[extreme(q, rows, groups, true)]--;
    return present;
}

/* Goes through all groups in random order, and takes those whose class lacks rows. */
static kvf_status draw(kvf_ctx *ctx, const kvf__dataset *set, quotas *q, uint64_t seed,
                       bool *chosen)
{
    const int64_t groups = kvf__group_count(set);
    kvf__rng rng = kvf__rng_make(seed, (uint64_t)CHOOSE_STREAM << 32);
    int64_t *order = NULL;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)groups, sizeof *order, &order));
    kvf__rng_order(&rng, order, groups);
    for (int64_t i = 0; i < groups; i++) {
        int64_t *left = &q->take[class_of(set, order[i])];
        chosen[order[i]] = *left > 0;
        *left -= *left > 0;
    }
    kvf__free(order);
    return KVF_OK;
}

kvf_status kvf__choose_groups(kvf_ctx *ctx, const char *path, const kvf__dataset *set, int64_t rows,
                              uint64_t seed, bool *chosen)
{
    const int64_t groups = kvf__group_count(set);
    const size_t n = set->names.n ? set->names.n : 1;
    quotas q = {.n = n};
    if (rows > groups)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: --rows %lld: there are %lld rows to train on", path,
                         (long long)rows, (long long)groups);
    KVF_TRY(kvf__alloc_array(ctx, 2 * n, sizeof *q.all, &q.all));
    q.take = q.all + n;
    for (int64_t g = 0; g < groups; g++)
        q.all[class_of(set, g)]++;
    const int64_t present = divide(&q, rows, groups);
    kvf_status st = KVF_OK;
    if (rows < present)
        st = kvf__fail(ctx, KVF_EUSAGE, "%s: --rows %lld: want a row of each of the %lld classes",
                       path, (long long)rows, (long long)present);
    if (!st) st = draw(ctx, set, &q, seed, chosen);
    kvf__free(q.all);
    return st;
}
