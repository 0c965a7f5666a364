/* Random names, values, types and shapes of HDF5. */
#ifndef KVF_H5_DRAW_H
#define KVF_H5_DRAW_H

#include "rng.h"

#include <hdf5.h>

enum { H5_MOST_VALUES = 1 << 20 }; /* bytes that are written as values of one object */

static inline size_t h5_draw(kvf__rng *rng, size_t n)
{
    return (size_t)kvf__rng_below(rng, n);
}

#define DRAW(rng, list) ((list)[h5_draw(rng, sizeof(list) / sizeof(list)[0])])

/* Texts are valid until the next one is drawn. */
const char *h5_draw_name(kvf__rng *rng);
const char *h5_draw_text(kvf__rng *rng);
int64_t h5_draw_size(kvf__rng *rng, int64_t old);
int64_t h5_draw_integer(kvf__rng *rng, int64_t old);
double h5_draw_real(kvf__rng *rng);
/* Types and spaces are to be closed. */
hid_t h5_draw_type(kvf__rng *rng);
void h5_draw_shape(kvf__rng *rng, int *rank, hsize_t dim[H5S_MAX_RANK]); /* changes the shape */
hid_t h5_draw_space(kvf__rng *rng, int rank, const hsize_t *dim, bool growing);
int h5_shape_of(hid_t space, hsize_t dim[H5S_MAX_RANK]); /* the rank */
bool h5_is_plain(hid_t type);
/* n values of a plain type, perhaps the old ones again, or texts. NULL for other types, and for
 * more than H5_MOST_VALUES bytes. The caller frees them. */
void *h5_draw_values(kvf__rng *rng, hid_t type, size_t n, const void *old, size_t old_bytes);

#endif
