/* How long things take in this run, for the time left: private to src/train. */
#ifndef KVF_PACE_H
#define KVF_PACE_H

#include "base_int.h"

struct kvf__trainer;

/* Seconds, by what was seen last; 0: nothing yet. */
typedef struct kvf__pace {
    double step, validation, save;
} kvf__pace;

/* The last ones count most: machines slow down and speed up. */
void kvf__pace_add(double *pace, double seconds);
/* How many of what comes every so many steps (0: every epoch) and at the end are left. */
int64_t kvf__pace_left_of(const struct kvf__trainer *trainer, int64_t every);
/* Seconds until the last step is done, validated and saved; NaN before the first one. */
double kvf__pace_left(const struct kvf__trainer *trainer);
/* Tokens of the held-out rows, of all tasks. */
int64_t kvf__valid_tokens(const struct kvf__trainer *trainer);

#endif
