/* The history of a run: measurements of each step, as stored in files. */
#ifndef KVF_HISTORY_H
#define KVF_HISTORY_H

#include "view.h"

/* The columns of a run's history, in the file's order: the only list of them. All code that
 * keeps, stores, reads, resumes, logs, compares or draws columns uses it.
 *
 *   X(name, type, of, units, curve, title, mean)
 *
 *   name   of the member, of the dataset in /history and of the key of --log
 *   of     source of the values; a run without it has no such column (NULL; no dataset)
 *   units  NULL: a plain number
 *   curve  its tag in TensorBoard; NULL: none, or the metric's
 *   title  in the report; NULL: not shown there, or the metric's name
 *   mean   a point for several steps is their mean; else their last value */
#define KVF__HISTORY(X)                                                                            \
    X(step, int64_t, STEP, "steps", NULL, "step", false)                                           \
    X(train_loss, double, STEP, "nats per token", "train/loss", "train loss", true)                \
    X(valid_loss, double, EVAL, "nats per token", "valid/loss", "valid loss", false)               \
    X(valid_metric, double, EVAL, NULL, NULL, NULL, false)                                         \
    X(lr, double, STEP, NULL, "train/lr", "learning rate", false)                                  \
    X(grad_norm, double, STEP, "L2 norm", "train/grad_norm", "gradient norm", true)                \
    X(prefix_norm, double, STEP, "L2 norm", "train/prefix_norm", "prefix norm", false)             \
    X(tokens, int64_t, STEP, "tokens", NULL, NULL, false)                                          \
    X(retention_loss, double, RETENTION, "nats per token", "retention/loss", "retention", false)   \
    X(kl_to_base, double, ANCHOR, "nats per token", "train/kl_to_base", "KL to base", true)

typedef enum kvf__measured {
    KVF__OF_STEP,
    KVF__OF_EVAL,      /* NaN for steps without a validation */
    KVF__OF_RETENTION, /* --retention set */
    KVF__OF_ANCHOR     /* --kl-to-base */
} kvf__measured;

enum {
#define X(name, type, of, units, curve, title, mean) KVF__COLUMN_##name,
    KVF__HISTORY(X)
#undef X
        KVF__COLUMNS
};

typedef struct kvf__column {
    const char *name, *units, *curve, *title;
    kvf__measured of;
    kvf__dtype dtype; /* I64 or F64 */
    bool mean;
} kvf__column;
extern const kvf__column kvf__columns[KVF__COLUMNS];

/* One row per finished step: arrays of n, by name or in the list's order. valid_metric: the metric
 * that selects /best. */
typedef struct kvf__history {
    int64_t n;
    union {
        struct {
#define X(name, type, of, units, curve, title, mean) type *name;
            KVF__HISTORY(X)
#undef X
        };
        void *column[KVF__COLUMNS];
    };
} kvf__history;
/* NaN: no such column */
double kvf__history_at(const kvf__history *history, int column, int64_t row);
void kvf__history_done(kvf__history *history);

#endif
