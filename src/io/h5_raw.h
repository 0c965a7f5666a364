/* HDF5 itself, for h5*.c only. */
#ifndef KVF_H5_RAW_H
#define KVF_H5_RAW_H

#include "h5_priv.h"

#include <hdf5.h>

/* The file's type for a dtype: little-endian IEEE, and two-byte floats with the fields of
 * INTEROP 9.1. A copy to be closed; negative if HDF5 fails. */
hid_t kvf__h5_type(kvf__dtype dtype);
/* Variable-length UTF-8, the one type of text that is written (h5_text.c); to be closed. */
hid_t kvf__h5_text_type(void);

#endif
