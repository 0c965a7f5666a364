/* Internals of a run with several processes: ranks.c sets it up and ends it, ranks_step.c computes
 * a step. */
#ifndef KVF_RANKS_INT_H
#define KVF_RANKS_INT_H

#include "dist_int.h"
#include "run.h"

enum { KVF__RANKS_LINE = 512 }; /* size of an error line sent between ranks, in bytes */

/* Rows that stay on one rank when a step is divided. */
typedef struct kvf__unit {
    int64_t tokens, index;
} kvf__unit;

struct kvf__ranks {
    kvf__dist *dist;
    int rank, size;
    bool decided;                /* the decisions of rank 0 were distributed */
    bool divided;                /* validation and the retention set are divided */
    int signal;                  /* signal received by any rank; 0: none */
    const kvf__prefix *gradient; /* gradient of the prefix; NULL: none */
    int64_t next_layer;          /* next layer of it to sum; -1: none is left */
    int64_t computed;            /* the run's computed_tokens after the previous step */
    double waited;               /* dist->waited before the first step */

    /* [capacity] scratch memory of divide() */
    int64_t capacity;
    int64_t *rows;               /* rows of this rank */
    kvf__unit *units;            /* units by descending number of tokens */
    int32_t *owner;              /* rank of each unit, in step order */
    int64_t *load;               /* [size] tokens per rank */
    struct kvf__report *reports; /* [size] reports, on rank 0 */
};

typedef struct kvf__order {
    int32_t kind, status, signal;
} kvf__order;

/* Result of a rank's part of a step. */
typedef struct kvf__report {
    int32_t status, signal;
    double loss_sum;
    int64_t computed_tokens;
    char line[KVF__RANKS_LINE];
} kvf__report;

/* Replaces this rank's error line by that of another rank, with its name. */
kvf_status kvf__ranks_fail(const kvf__run *run, int rank, kvf_status status, const char *line);

#endif
