/* What enters the lowest layer with a prefix, kept for each row over the epochs of a run, and for
 * each batch of its validations (--keep-states): below that layer nothing depends on what is
 * trained. */
#ifndef KVF_KEPT_STATES_H
#define KVF_KEPT_STATES_H

#include "batcher.h"
#include "pass.h"

/* A row is known by its tokens, their types and their positions, so runs on one base share what
 * they have in common. Of an encoder-decoder it is a row of the source. A validation's batches are
 * fixed by the data, so each is kept whole, with the bits that it has where nothing is kept. */
typedef struct kvf__states kvf__states;
typedef struct kvf__states_plan {
    int64_t layer;        /* that the states enter, above 0 */
    int64_t width;        /* C */
    int64_t rows, tokens; /* of all data; a batch that is kept whole counts as a row */
    int64_t batch_tokens; /* most in one batch, of those whose states are kept */
    const char *base;     /* its hash, and in which precision it is: the store may be of others too;
                             NULL: there is no other */
    const char *precision;
    size_t memory;      /* bytes kept in memory; the rest goes to a file */
    const char *beside; /* in the folder of this path; the file has no name, so that none is left
                           behind, however the process ends */
} kvf__states_plan;
kvf_status kvf__states_create(kvf_ctx *ctx, const kvf__states_plan *plan, kvf__states **out);
/* For runs to come, which may enter another layer: keeps what there is, and makes room for so many
 * rows and tokens more. */
kvf_status kvf__states_reserve(kvf__states *states, const kvf__states_plan *plan);
/* Is there no room yet for these rows of runs that differ from others in these numbers? */
kvf_status kvf__states_new_rows(kvf__states *states, const void *rows, const int64_t numbers[3],
                                bool *out);
void kvf__states_free(kvf__states *states);

/* Sets input->entry for its batch: known, if every row is kept, or with `fixed` the batch. NULL:
 * does nothing, as below. */
void kvf__states_enter(kvf__states *states, kvf__input *input, bool fixed);
/* After the forward pass: keeps what is new. Where there is no more room it is computed again each
 * time. */
void kvf__states_keep(kvf__states *states, const kvf__input *input);
/* A line that says that there is no more room, once; else NULL. */
const char *kvf__states_news(kvf__states *states);
typedef struct kvf__states_counts {
    int64_t computed, taken;   /* tokens of batches for which the layers below were, and not */
    int64_t items;             /* rows, and batches that are kept whole */
    size_t in_memory, in_file; /* bytes of states; the room for those in memory */
} kvf__states_counts;
kvf__states_counts kvf__states_count(const kvf__states *states);

#endif
