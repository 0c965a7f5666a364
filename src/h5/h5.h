/* HDF5 in plain types, for the readers and writers of our files. Only the files h5*.c include
 * hdf5.h. For src/h5 and inspect.
 *
 * A file that is written ends in a seal, one line after the bytes of HDF5 with the XXH3-128 of all
 * of them: HDF5 1.8 to 2.0 ignore it, and drop it when they open the file for writing. It is
 * checked before HDF5 sees a byte, because HDF5 keeps text and the places of chunks without a
 * checksum. A file without a seal (made or edited by h5py) is read too. */
#ifndef KVF_H5_H
#define KVF_H5_H

#include "infile.h"
#include "outfile.h"
#include "view.h"

typedef int64_t kvf__h5_id; /* a group, a dataset, or the file itself, which is "/" */
#define KVF__H5_NONE ((kvf__h5_id)-1)

/* One open file. Errors are sticky, as stdio's: the first failure is kept in `status`, its line in
 * the context, and every call after it does nothing and returns nothing (NULL, 0, false, NONE). So
 * readers and writers are plain lists of calls, and whoever opened the file asks once, at its
 * close. KVF__H5_NOTHING is "nothing". */
struct kvf__h5_data;
typedef struct kvf__h5 {
    kvf_ctx *ctx;
    const char *path;  /* viewed, named in every error line */
    kvf_status status; /* of the first failure */
    kvf__h5_id file;
    kvf__mapfile map;  /* reading: the file as it was tried, and what HDF5 has open */
    kvf__h5_id driver; /* by which it has the file (h5_fd.c) */
    size_t file_bytes; /* reading: size of the file, the bound of everything it may claim */
    size_t claimed;    /* reading: memory that its values and texts take so far */
    bool sealed;       /* reading: a seal follows HDF5's last byte */
    unsigned features; /* the file's, as kvf__feature */
    kvf__outfile out;  /* writing only */
    int *failure;      /* writing only: errno of a write that failed, 0: none did (h5_fd.c) */
    bool locked;       /* the lock of HDF5 is held until close, by the thread that opened */
    bool broken;       /* HDF5 failed, and may have lost track of objects */
} kvf__h5;
#define KVF__H5_NOTHING ((kvf__h5){.file = KVF__H5_NONE})

/* Makes a call that returns a kvf_status, unless something failed before, and keeps its failure. */
#define KVF__H5_TRY(h5, call)                                                                      \
    do {                                                                                           \
        if (!(h5)->status) (h5)->status = (call);                                                  \
    } while (0)

/* ---- files (h5.c, h5_seal.c) ----------------------------------------------------------------- */

/* A feature changes what the values of a file mean, so a reader must know it. /features lists the
 * names of a file's features; an unknown one is refused. */
typedef enum kvf__feature {
    KVF__ENCODER_DECODER = 1, /* layers of two stacks */
    KVF__HEADS_BY_LAYER = 2,
    KVF__INFIX = 4,      /* the prefix is inside rows */
    KVF__LAYER_MASK = 8, /* some layers have no prefix */
    KVF__LOG_WEIGHTS = 16
} kvf__feature;
/* Begins a file of that kind: the attributes kvfold_kind, kvfold_format, kvfold_version, and
 * /features are written. To be closed on failure too, as what kvf__h5_open returns. */
kvf__h5 kvf__h5_create(kvf_ctx *ctx, const char *path, bool force, const char *kind,
                       unsigned features);
kvf_json *kvf__h5_features(const kvf__h5 *h5); /* their names, a list */
/* EFORMAT: the file's features are not those that were found in it. */
void kvf__h5_check_features(kvf__h5 *h5, unsigned found);
/* Checks superblock, size and seal, then opens; kind NULL takes any kvfold file. */
kvf__h5 kvf__h5_open(kvf_ctx *ctx, const char *path, const char *kind);
/* Returns the first failure. A file that was written is whole on the disk under its name if there
 * was none; else nothing is left of it. "Nothing" is fine. */
kvf_status kvf__h5_close(kvf__h5 *h5);

/* Superblock version 2 or 3, the length that it gives, and the seal if there is one. */
kvf_status kvf__h5_check_bytes(kvf_ctx *ctx, const kvf__mapfile *map);
/* The same, and then in a sandbox in another process where the context has one (h5_sandbox.c): both
 * only once for a file that stays as it is. */
kvf_status kvf__h5_sandbox(kvf_ctx *ctx, const kvf__mapfile *map);
/* Whether the values of a dataset are left out: large ones, in a sandbox. */
bool kvf__h5_skips(const kvf__h5 *h5, const struct kvf__h5_data *data);
/* Part of it: no heap of texts that would lead HDF5 astray (h5_heap.c). */
kvf_status kvf__h5_check_heaps(kvf_ctx *ctx, const char *path, const uint8_t *data, size_t n);
/* The same for `count` references that lie at `at`: the elements of a list of texts. *bytes: the
 * sum of their lengths. */
kvf_status kvf__h5_check_texts(kvf_ctx *ctx, const kvf__mapfile *map, size_t at, size_t count,
                               size_t *bytes);
/* Appends the seal to the finished file of fd, which will be named `path`. */
kvf_status kvf__h5_seal(kvf_ctx *ctx, int fd, const char *path);

/* Counts memory for values or texts before it is allocated. EFORMAT: a file takes more in all than
 * 8 times its size and 32 MiB. Compressed zeros, and many names or references for the same bytes,
 * would have no other bound. */
void kvf__h5_claim(kvf__h5 *h5, kvf__h5_id at, size_t bytes);

/* "PATH: /object: ...", and the same for a call of HDF5 that failed just now, with its innermost
 * reason: "PATH: /object: cannot VERB: reason" (EIO in a file that is written, EFORMAT in one that
 * is read). */
void kvf__h5_fail(kvf__h5 *h5, kvf__h5_id at, kvf_status status, const char *fmt, ...)
    KVF__PRINTF(4, 5);
void kvf__h5_broken(kvf__h5 *h5, kvf__h5_id at, const char *fmt, ...) KVF__PRINTF(3, 4);

/* HDF5's version as "1.10.8". */
const char *kvf__h5_version(char buf[32]);

/* ---- groups (h5_group.c) --------------------------------------------------------------------- */

/* Groups and datasets that are returned are to be released. */
kvf__h5_id kvf__h5_group_create(kvf__h5 *h5, kvf__h5_id parent, const char *name);
bool kvf__h5_has(kvf__h5 *h5, kvf__h5_id parent, const char *name);
/* Hard links only. EFORMAT if absent or of another type. */
kvf__h5_id kvf__h5_group_open(kvf__h5 *h5, kvf__h5_id parent, const char *name);
/* The one way to open by name; `want` is "group" or "dataset". */
kvf__h5_id kvf__h5_child_open(kvf__h5 *h5, kvf__h5_id parent, const char *name, const char *want);
size_t kvf__h5_child_count(kvf__h5 *h5, kvf__h5_id group);
/* Names of the n children, in order of creation where the file keeps it, else by name. To be freed
 * with kvf__strings_free(); NULL on failure. All at once: HDF5 sorts the whole group to name one.
 */
enum { KVF__H5_NAME = 1024 };
char **kvf__h5_child_names(kvf__h5 *h5, kvf__h5_id group, size_t n);
void kvf__h5_release(kvf__h5_id *id); /* closes group or dataset, sets it to NONE */

/* ---- attributes (h5_attr.c) ------------------------------------------------------------------ */

void kvf__h5_put_text(kvf__h5 *h5, kvf__h5_id at, const char *name, const char *utf8);
void kvf__h5_put_i64(kvf__h5 *h5, kvf__h5_id at, const char *name, int64_t value);
void kvf__h5_put_f64(kvf__h5 *h5, kvf__h5_id at, const char *name, double value);
void kvf__h5_put_bool(kvf__h5 *h5, kvf__h5_id at, const char *name, bool value);
void kvf__h5_put_u8s(kvf__h5 *h5, kvf__h5_id at, const char *name, const uint8_t *values,
                     int64_t n);

bool kvf__h5_has_attr(kvf__h5 *h5, kvf__h5_id at, const char *name);
char *kvf__h5_get_text(kvf__h5 *h5, kvf__h5_id at, const char *name); /* to be freed */
int64_t kvf__h5_get_i64(kvf__h5 *h5, kvf__h5_id at, const char *name);
double kvf__h5_get_f64(kvf__h5 *h5, kvf__h5_id at, const char *name);
bool kvf__h5_get_bool(kvf__h5 *h5, kvf__h5_id at, const char *name);
void kvf__h5_get_u8s(kvf__h5 *h5, kvf__h5_id at, const char *name, uint8_t *values, int64_t n);

typedef enum kvf__h5_attr_type {
    KVF__H5_TEXT,
    KVF__H5_I64,
    KVF__H5_F64,
    KVF__H5_BOOL
} kvf__h5_attr_type;
size_t kvf__h5_attr_count(kvf__h5 *h5, kvf__h5_id at);
char **kvf__h5_attr_names(kvf__h5 *h5, kvf__h5_id at, size_t n); /* as kvf__h5_child_names */
/* EFORMAT for anything that is not a scalar of one of the four types. */
kvf__h5_attr_type kvf__h5_attr_type_of(kvf__h5 *h5, kvf__h5_id at, const char *name);

/* ---- datasets (h5_data_write.c, h5_data_read.c)
 * -------------------------------------------------------- */

typedef struct kvf__h5_spec {
    const char *name;
    kvf__dtype dtype; /* F32, F16, BF16, F64, I64, U8, I8 */
    int rank;
    const int64_t *dim;
    const int64_t *chunk; /* NULL: chosen by size, small ones contiguous; chunked ones get shuffle,
                             Fletcher32 */
    const char *const *labels; /* [rank], or NULL */
    bool contiguous;           /* in one piece whatever its size, without filters */
} kvf__h5_spec;
/* values: in the spec's dtype. *out: to add attributes, to be released; NULL if not wanted. */
void kvf__h5_data_write(kvf__h5 *h5, kvf__h5_id parent, const kvf__h5_spec *spec,
                        const void *values, kvf__h5_id *out);

/* A dataset that passed every check of docs/format.md. */
typedef struct kvf__h5_data {
    kvf__h5_id id; /* to be released */
    kvf__dtype dtype;
    int rank;
    int64_t dim[KVF__MAX_RANK];
    int64_t count;
    size_t bytes;  /* of the values */
    size_t stored; /* in the file */
    bool chunked;
    int64_t chunk[KVF__MAX_RANK];
    bool shuffle, deflate, fletcher32;
} kvf__h5_data;
kvf__h5_data kvf__h5_data_open(kvf__h5 *h5, kvf__h5_id parent, const char *name);
/* Fills `values`, `bytes` long, in the dataset's own dtype. A dataset of another size is refused:
 * room is often made from other fields of the file. */
void kvf__h5_data_read(kvf__h5 *h5, const kvf__h5_data *data, void *values, size_t bytes);
/* Where in the file they lie, in one piece, as they are in memory; EFORMAT if they do not. */
size_t kvf__h5_data_place(kvf__h5 *h5, const kvf__h5_data *data);
/* The label of one dimension, to be freed; NULL where there is none. */
char *kvf__h5_data_label(kvf__h5 *h5, const kvf__h5_data *data, int axis);

/* Lists of texts, [n], 1 to 16384 of them (h5_text.c). To be freed with kvf__strings_free(). */
void kvf__h5_texts_write(kvf__h5 *h5, kvf__h5_id parent, const char *name, char *const *texts,
                         size_t n);
char **kvf__h5_texts_read(kvf__h5 *h5, kvf__h5_id parent, const char *name, size_t *n);

#endif
