/* When things are due in a run, and how long they take, for the time left. */
#ifndef KVF_PACE_H
#define KVF_PACE_H

#include "train_rows.h"

/* The last ones count most: machines slow down and speed up. */
void kvf__pace_add(double *pace, double seconds);
/* Whether what is done every so many steps (0: at the end of an epoch), and at the end, is done
 * after the step that is done; and how many of these are left. */
bool kvf__pace_is_due(const kvf__run *run, const kvf__train_rows *rows, int64_t every);
int64_t kvf__pace_left_of(const kvf__run *run, const kvf__train_rows *rows, int64_t every);
/* Seconds until the last step is done, validated and saved; NaN before the first one. */
double kvf__pace_left(const kvf__run *run, const kvf__train_rows *rows);
/* Tokens of the held-out rows, of all tasks. */
int64_t kvf__valid_tokens(const kvf__train_rows *rows);

#endif
