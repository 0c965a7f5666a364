/* HDF5 files that are valid as such, but lie: copies of files of ours whose shapes, types,
 * attributes and links are not what docs/format.md says. */
#ifndef KVF_H5_LIES_H
#define KVF_H5_LIES_H

#include "rng.h"

/* Writes a copy of the HDF5 file `from` to the path `to`, with one to three lies in it or with one
 * size replaced by another wherever it occurs. False if HDF5 fails. */
bool h5_lies_copy(kvf__rng *rng, const char *from, const char *to);

#endif
