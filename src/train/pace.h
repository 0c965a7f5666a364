/* The schedule of validations and saves, and the time left of a run. */
#ifndef KVF_PACE_H
#define KVF_PACE_H

#include "train_rows.h"

/* Adds a measurement to a running mean that favours recent ones. */
void kvf__pace_add(double *pace, double seconds);
/* every: interval in steps; 0: an epoch. Returns true if the finished step ends an interval or the
 * run; and the number of remaining intervals. */
bool kvf__pace_is_due(const kvf__run *run, const kvf__train_rows *rows, int64_t every);
int64_t kvf__pace_left_of(const kvf__run *run, const kvf__train_rows *rows, int64_t every);
/* Seconds until the last step is done, validated and saved; NaN before the first one. */
double kvf__pace_left(const kvf__run *run, const kvf__train_rows *rows);
/* Cost of a forward pass relative to a step, per token. */
#define KVF__FORWARD_SHARE 0.45
/* Number of tokens of the held-out rows of all tasks. */
int64_t kvf__valid_tokens(const kvf__train_rows *rows);

#endif
