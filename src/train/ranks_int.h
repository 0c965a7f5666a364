/* A run over several processes, inside: ranks.c sets it up and ends it, ranks_step.c does a step.
 */
#ifndef KVF_RANKS_INT_H
#define KVF_RANKS_INT_H

#include "dist_int.h"
#include "run.h"

enum { KVF__RANKS_LINE = 512 }; /* bytes of an error line that travels */

/* Rows that stay together when a step's are divided. */
typedef struct kvf__unit {
    int64_t tokens, index;
} kvf__unit;

struct kvf__ranks {
    kvf__dist *dist;
    int rank, size;
    bool decided;                /* the other ranks know what the first one decided */
    bool divided;                /* validation and the retention set are */
    int signal;                  /* that reached any rank, 0: none */
    const kvf__prefix *gradient; /* of the prefix; NULL: none */
    int64_t next_layer;          /* of it to be summed, -1: none is left */
    int64_t computed;            /* the run's computed_tokens after the step before */
    double waited;               /* dist->waited before the first step */

    /* [capacity] scratch of a division */
    int64_t capacity;
    int64_t *rows;               /* this rank's */
    kvf__unit *units;            /* by tokens, the largest first */
    int32_t *owner;              /* of a unit, in the order of the step */
    int64_t *load;               /* [size] tokens */
    struct kvf__report *reports; /* [size], on the first rank */
};

typedef struct kvf__order {
    int32_t kind, status, signal;
} kvf__order;

/* How a rank's part of a step went. */
typedef struct kvf__report {
    int32_t status, signal;
    double loss_sum;
    int64_t computed_tokens;
    char line[KVF__RANKS_LINE];
} kvf__report;

/* Puts a line of another rank, with its name, in place of this one's. */
kvf_status kvf__ranks_fail(const kvf__run *run, int rank, kvf_status status, const char *line);

#endif
