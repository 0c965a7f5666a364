/* Valid HDF5 files with false contents: copies of kvfold's files whose shapes, types, attributes
 * and links contradict docs/format.md. */
#ifndef KVF_H5_LIES_H
#define KVF_H5_LIES_H

#include "rng.h"

/* Writes a copy of the HDF5 file `from` to the path `to`, with one to three false values in it or
 * with one size replaced throughout. False if HDF5 fails. */
bool h5_lies_copy(kvf__rng *rng, const char *from, const char *to);

#endif
