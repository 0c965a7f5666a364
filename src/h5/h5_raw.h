/* HDF5 itself, for h5*.c only. */
#ifndef KVF_H5_RAW_H
#define KVF_H5_RAW_H

#include "h5.h"

#include <hdf5.h>

/* Takes HDF5's lock for this thread, recursively, and keeps HDF5 from printing and from loading
 * plug-ins. Each call needs a kvf__h5_leave. False: impossible after a fork (h5_lock.c). broken:
 * suppress errors about objects that HDF5 failed to close. */
bool kvf__h5_enter(void);
void kvf__h5_leave(bool broken);
/* Returns the file type for a dtype: little-endian IEEE; two-byte floats with bfloat16's fields as
 * written by h5py. A copy, closed by the caller; negative if HDF5 fails. */
hid_t kvf__h5_type(kvf__dtype dtype);
/* Makes an access property list for the file of a descriptor, of which HDF5 keeps a duplicate
 * (h5_fd.c). failure NULL: for reading. Otherwise for writing, which then never fails for HDF5: the
 * errno of the first failed write is stored there until the file is closed. *driver is released
 * when the file is closed, also on failure; 0 is none. */
bool kvf__h5_use_fd(hid_t access, int fd, int *failure, kvf__h5_id *driver);
void kvf__h5_release_driver(kvf__h5_id *driver);
/* EIO, "PATH: /object: cannot VERB: reason": an earlier write failed. */
void kvf__h5_check_written(kvf__h5 *h5, kvf__h5_id at, const char *what);
/* Returns creation properties of a file or group: children and attributes keep their order of
 * creation, all in the (checksummed) object header; no times are stored. Closed by the caller
 * (h5_group.c). */
hid_t kvf__h5_creation(hid_t class);
/* Returns the index by which a group is listed: order of creation if the group keeps it, else
 * names. order_of: H5Pget_link_creation_order for children, H5Pget_attr_creation_order for
 * attributes. */
H5_index_t kvf__h5_index(hid_t group, herr_t (*order_of)(hid_t creation, unsigned *order));
/* A list of names that HDF5 returns one by one. Begin it for n names; the end returns NULL if there
 * were fewer (h5_group.c). kvf__h5_add_name returns the result for HDF5's operator. */
typedef struct kvf__h5_names {
    kvf__h5 *h5;
    char **names; /* [most] */
    size_t n, most;
} kvf__h5_names;
kvf__h5_names kvf__h5_names_begin(kvf__h5 *h5, size_t n);
herr_t kvf__h5_add_name(kvf__h5_names *list, hid_t at, const char *name);
char **kvf__h5_names_end(kvf__h5_names *list, hid_t at);
/* Returns variable-length UTF-8, the only text type that is written (h5_text.c); closed by the
 * caller. */
hid_t kvf__h5_text_type(void);
/* Returns whether a file's type is variable-length text of single-byte characters. HDF5 multiplies
 * a text's length by the character size in the file, and allocates the product. */
bool kvf__h5_is_text(hid_t type);

#endif
