/* Cache for the input of the lowest layer with a prefix (--keep-states), for each row over the
 * epochs of a run, and for each batch of its validations. Nothing below that layer depends on
 * trained values. */
#ifndef KVF_KEPT_STATES_H
#define KVF_KEPT_STATES_H

#include "batcher.h"
#include "pass.h"

/* A row is identified by its tokens, types and positions, so runs on one base share rows. On an
 * encoder-decoder it is a row of the source. Validation batches depend only on the data, so each is
 * cached whole, with the same bits as without a cache. */
typedef struct kvf__states kvf__states;
typedef struct kvf__states_plan {
    int64_t layer;        /* layer that the states enter, above 0 */
    int64_t width;        /* width C */
    int64_t rows, tokens; /* totals over all data; a batch cached whole counts as a row */
    int64_t batch_tokens; /* most tokens in a batch with cached states */
    const char *base;     /* hash and precision of the base, because the store may be shared; NULL:
                           * not shared */
    const char *precision;
    size_t memory;      /* bytes cached in memory; the rest goes to a file */
    const char *beside; /* the file is in the folder of this path; it has no name, so it disappears
                         * with the process */
} kvf__states_plan;
kvf_status kvf__states_create(kvf_ctx *ctx, const kvf__states_plan *plan, kvf__states **out);
/* Prepares for later runs, which may enter another layer: keeps the cached states and makes space
 * for more rows and tokens. */
kvf_status kvf__states_reserve(kvf__states *states, const kvf__states_plan *plan);
/* Sets *out to true if these rows have no space yet. `numbers` separates runs whose states differ.
 */
kvf_status kvf__states_new_rows(kvf__states *states, const void *rows, const int64_t numbers[3],
                                bool *out);
void kvf__states_free(kvf__states *states);

/* Sets input->entry for its batch, if every row is cached, or with `fixed` the whole batch. NULL:
 * does nothing, also below. */
void kvf__states_enter(kvf__states *states, kvf__input *input, bool fixed);
/* Caches new states after the forward pass. Without space they are computed again each time. */
void kvf__states_keep(kvf__states *states, const kvf__input *input);
/* Returns a message, once, if there is no more space; else NULL. */
const char *kvf__states_news(kvf__states *states);
typedef struct kvf__states_counts {
    int64_t computed, taken;   /* tokens of batches that computed the lower layers, and that did not
                                */
    int64_t items;             /* cached rows and whole batches */
    size_t in_memory, in_file; /* bytes of states in memory and in the file */
} kvf__states_counts;
kvf__states_counts kvf__states_count(const kvf__states *states);

#endif
