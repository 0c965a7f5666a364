/* A file driver for HDF5 on a descriptor; two open files share nothing.
 *
 * Reading: HDF5's own drivers open files by name, which may meanwhile belong to another file than
 * the checked one. Writing: a disk error is kept for the caller, and HDF5 continues. If HDF5 sees
 * an error while it closes a dataset, it loses track of that dataset; since 1.12 the next close of
 * a file then crashes. */
#include "h5_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

typedef struct fd_info { /* copied by HDF5 */
    int fd;
    int *failure;
} fd_info;

typedef struct fd_file {
    H5FD_t pub;   /* HDF5's; first */
    int fd;       /* a duplicate */
    int *failure; /* receives the errno of the first failed write, owned by the caller; NULL: for
                     reading */
    haddr_t allocated, end;
} fd_file;

static H5FD_t *fd_open(const char *name, unsigned flags, hid_t access, haddr_t most)
{
    const fd_info *from = H5Pget_driver_info(access);
    fd_file *file = calloc(1, sizeof *file);
    bool allowed = from && (from->failure || !(flags & H5F_ACC_RDWR));
    struct stat info;

    (void)name;
    (void)most;
    if (file) file->fd = allowed ? fcntl(from->fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (!file || file->fd < 0 || fstat(file->fd, &info) < 0) {
        if (file && file->fd >= 0) close(file->fd);
        free(file);
        return NULL;
    }
    file->failure = from->failure;
    file->end = (haddr_t)info.st_size;
    return &file->pub;
}

static herr_t fd_close(H5FD_t *file)
{
    close(((fd_file *)file)->fd);
    free(file);
    return 0;
}

/* Flags of HDF5's own driver of plain files (same bytes), without those for names and concurrent
 * readers. */
static herr_t fd_query(const H5FD_t *file, unsigned long *flags)
{
    (void)file;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
             H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DATA_SIEVE |
             H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
}

static haddr_t fd_get_eoa(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return ((const fd_file *)file)->allocated;
}

static herr_t fd_set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t at)
{
    (void)type;
    ((fd_file *)file)->allocated = at;
    return 0;
}

static haddr_t fd_get_eof(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return ((const fd_file *)file)->end;
}

/* Bytes past the end read as 0, as HDF5 expects. */
static herr_t fd_read(H5FD_t *file, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t n,
                      void *out)
{
    char *to = out;

    (void)type;
    (void)transfer;
    while (n > 0) {
        ssize_t got = pread(((fd_file *)file)->fd, to, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        to += got;
        at += (haddr_t)got;
        n -= (size_t)got;
    }
    memset(to, 0, n);
    return 0;
}

static herr_t fd_write(H5FD_t *file, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t n,
                       const void *from)
{
    fd_file *own = (fd_file *)file;
    const char *bytes = from;

    (void)type;
    (void)transfer;
    if (!own->failure) return -1;
    while (n > 0 && !*own->failure) {
        ssize_t written = pwrite(own->fd, bytes, n, (off_t)at);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            *own->failure = errno;
            break;
        }
        bytes += written;
        at += (haddr_t)written;
        n -= (size_t)written;
    }
    if (at > own->end) own->end = at;
    return 0;
}

/* Truncates the file to its allocated size. */
static herr_t fd_truncate(H5FD_t *file, hid_t transfer, hbool_t closing)
{
    fd_file *own = (fd_file *)file;

    (void)transfer;
    (void)closing;
    if (!own->failure || *own->failure || own->end == own->allocated) return 0;
    if (ftruncate(own->fd, (off_t)own->allocated) < 0) *own->failure = errno;
    own->end = own->allocated;
    return 0;
}

static const H5FD_class_t DRIVER = {
#ifdef H5FD_CLASS_VERSION
    .version = H5FD_CLASS_VERSION,
    .value = 511, /* the last unregistered number */
#endif
    .name = "kvfold_fd",
    .maxaddr = INT64_MAX,
    .fc_degree = H5F_CLOSE_WEAK,
    .fapl_size = sizeof(fd_info),
    .open = fd_open,
    .close = fd_close,
    .query = fd_query,
    .get_eoa = fd_get_eoa,
    .set_eoa = fd_set_eoa,
    .get_eof = fd_get_eof,
    .read = fd_read,
    .write = fd_write,
    .truncate = fd_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* The driver is unregistered after the last use of the file: HDF5 calls it to close the file after
 * releasing its own reference. */
bool kvf__h5_use_fd(hid_t access, int fd, int *failure, kvf__h5_id *driver)
{
    const fd_info info = {.fd = fd, .failure = failure};

    *driver = H5FDregister(&DRIVER);
    return *driver >= 0 && H5Pset_driver(access, *driver, &info) >= 0;
}

void kvf__h5_release_driver(kvf__h5_id *driver)
{
    if (*driver > 0) H5FDunregister(*driver);
    *driver = 0;
}
