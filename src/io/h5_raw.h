/* HDF5 itself, for h5*.c only. */
#ifndef KVF_H5_RAW_H
#define KVF_H5_RAW_H

#include "h5.h"

#include <hdf5.h>

/* The file's type for a dtype: little-endian IEEE, and two-byte floats with bfloat16's fields as
 * h5py writes them. A copy to be closed; negative if HDF5 fails. */
hid_t kvf__h5_type(kvf__dtype dtype);
/* The file of a descriptor, of which HDF5 keeps a duplicate, for reading (h5_fd.c); access
 * is changed, path is the name that HDF5 gives it. *driver is released when the file is closed,
 * also on failure; 0 is none. */
hid_t kvf__h5_open_fd(const char *path, int fd, hid_t access, kvf__h5_id *driver);
void kvf__h5_release_driver(kvf__h5_id *driver);
/* Of a file or a group: children and attributes keep the order in which they were made, all in the
 * (checksummed) object header; no times are stored. To be closed (h5_group.c). */
hid_t kvf__h5_creation(hid_t class);
/* By what a group is listed: the order of creation where it keeps that, else names. order_of:
 * H5Pget_link_creation_order of children, H5Pget_attr_creation_order of attributes. */
H5_index_t kvf__h5_index(hid_t group, herr_t (*order_of)(hid_t creation, unsigned *order));
/* Variable-length UTF-8, the one type of text that is written (h5_text.c); to be closed. */
hid_t kvf__h5_text_type(void);

#endif
