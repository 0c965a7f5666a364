/* HDF5 itself, for h5*.c only. */
#ifndef KVF_H5_RAW_H
#define KVF_H5_RAW_H

#include "h5.h"

#include <hdf5.h>

/* Takes HDF5's lock for this thread, which may hold it already, and keeps HDF5 from printing and
 * from loading plug-ins; each such call needs one of kvf__h5_leave. False: it cannot be had, after
 * a fork (h5_lock.c). broken: errors about objects that HDF5 failed to close are not to be printed.
 */
bool kvf__h5_enter(void);
void kvf__h5_leave(bool broken);
/* The file's type for a dtype: little-endian IEEE, and two-byte floats with bfloat16's fields as
 * h5py writes them. A copy to be closed; negative if HDF5 fails. */
hid_t kvf__h5_type(kvf__dtype dtype);
/* Files with this access are the file of a descriptor, of which HDF5 keeps a duplicate (h5_fd.c).
 * failure NULL: for reading. Else for writing, which then never fails for HDF5: the errno of the
 * first write that did is set there, where 0 was, until the file is closed. *driver is released
 * when the file is closed, also on failure; 0 is none. */
bool kvf__h5_use_fd(hid_t access, int fd, int *failure, kvf__h5_id *driver);
void kvf__h5_release_driver(kvf__h5_id *driver);
/* EIO, "PATH: /object: cannot VERB: reason", if a write has failed. */
void kvf__h5_check_written(kvf__h5 *h5, kvf__h5_id at, const char *what);
/* Of a file or a group: children and attributes keep the order in which they were made, all in the
 * (checksummed) object header; no times are stored. To be closed (h5_group.c). */
hid_t kvf__h5_creation(hid_t class);
/* By what a group is listed: the order of creation where it keeps that, else names. order_of:
 * H5Pget_link_creation_order of children, H5Pget_attr_creation_order of attributes. */
H5_index_t kvf__h5_index(hid_t group, herr_t (*order_of)(hid_t creation, unsigned *order));
/* A list of names that HDF5 hands over one by one: begun for n of them, ended with NULL if there
 * were not so many (h5_group.c). kvf__h5_add_name returns what the operator of HDF5 has to. */
typedef struct kvf__h5_names {
    kvf__h5 *h5;
    char **names; /* [most] */
    size_t n, most;
} kvf__h5_names;
kvf__h5_names kvf__h5_names_begin(kvf__h5 *h5, size_t n);
herr_t kvf__h5_add_name(kvf__h5_names *list, hid_t at, const char *name);
char **kvf__h5_names_end(kvf__h5_names *list, hid_t at);
/* Variable-length UTF-8, the one type of text that is written (h5_text.c); to be closed. */
hid_t kvf__h5_text_type(void);
/* Whether a type of a file is variable-length text whose characters are single bytes. HDF5
 * multiplies a text's length by the size of a character that the file gives, and allocates the
 * product. */
bool kvf__h5_is_text(hid_t type);

#endif
