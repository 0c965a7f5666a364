/* HDF5 in plain types, for the readers and writers of our files. Only h5*.c include hdf5.h. For
 * src/h5 and inspect.
 *
 * A written file ends in a seal, a line after the bytes of HDF5 with their XXH3-128. HDF5 1.8 to
 * 2.0 ignore it, and drop it when they open the file for writing. It is checked before HDF5 reads
 * the file, because HDF5 keeps text and chunk addresses without a checksum. Files without a seal
 * (made or edited by h5py) are read too. */
#ifndef KVF_H5_H
#define KVF_H5_H

#include "infile.h"
#include "outfile.h"
#include "view.h"

typedef int64_t kvf__h5_id; /* a group, a dataset, or the file itself, which is "/" */
#define KVF__H5_NONE ((kvf__h5_id)-1)

/* One open file. Errors are sticky, as in stdio: `status` keeps the first failure, its line is in
 * the context, and later calls do nothing and return nothing (NULL, 0, false, NONE). So readers and
 * writers are plain lists of calls, and the opener checks once, at close. KVF__H5_NOTHING is such
 * an empty file. */
struct kvf__h5_data;
typedef struct kvf__h5 {
    kvf_ctx *ctx;
    const char *path;  /* borrowed, named in every error line */
    kvf_status status; /* status of the first failure */
    kvf__h5_id file;
    kvf__mapfile map;  /* reading: the checked file, which HDF5 has open */
    kvf__h5_id driver; /* file driver (h5_fd.c) */
    size_t file_bytes; /* reading: size of the file, which bounds all lengths in it */
    size_t claimed;    /* reading: memory for its values and texts so far */
    bool sealed;       /* reading: the file has a seal */
    unsigned features; /* features of the file, bits of kvf__feature */
    kvf__outfile out;  /* writing only */
    int *failure;      /* writing only: errno of a failed write, 0: none (h5_fd.c) */
    bool locked;       /* the opening thread holds HDF5's lock until close */
    bool broken;       /* HDF5 failed, and may have lost track of objects */
} kvf__h5;
#define KVF__H5_NOTHING ((kvf__h5){.file = KVF__H5_NONE})

/* Runs a call that returns a kvf_status unless an earlier one failed, and keeps its failure. */
#define KVF__H5_TRY(h5, call)                                                                      \
    do {                                                                                           \
        if (!(h5)->status) (h5)->status = (call);                                                  \
    } while (0)

/* ---- files (h5.c, h5_seal.c) ----------------------------------------------------------------- */

/* A feature changes the meaning of a file's values, so a reader must support it. /features lists
 * their names; an unknown one is refused. */
typedef enum kvf__feature {
    KVF__ENCODER_DECODER = 1, /* layers of two stacks */
    KVF__HEADS_BY_LAYER = 2,
    KVF__INFIX = 4,      /* the prefix is inside rows */
    KVF__LAYER_MASK = 8, /* some layers have no prefix */
    KVF__LOG_WEIGHTS = 16,
    KVF__NEURONS = 32, /* the prefix has virtual neurons */
    KVF__STATE = 64    /* rows begin with a state in layers without attention */
} kvf__feature;
/* Creates a file of that kind with the attributes kvfold_kind, kvfold_format, kvfold_version, and
 * /features. Must be closed even on failure, like that of kvf__h5_open. */
kvf__h5 kvf__h5_create(kvf_ctx *ctx, const char *path, bool force, const char *kind,
                       unsigned features);
kvf_json *kvf__h5_features(const kvf__h5 *h5); /* their names, a list */
/* EFORMAT: the file's features differ from those found in its content. */
void kvf__h5_check_features(kvf__h5 *h5, unsigned found);
/* Checks superblock, size and seal, then opens; kind NULL takes any kvfold file. */
kvf__h5 kvf__h5_open(kvf_ctx *ctx, const char *path, const char *kind);
/* Closes the file and returns the first failure. Without one a written file is complete on disk
 * under its name; otherwise it is removed. Accepts KVF__H5_NOTHING. */
kvf_status kvf__h5_close(kvf__h5 *h5);

/* Checks superblock version 2 or 3, the length in it, and the seal if there is one. */
kvf_status kvf__h5_check_bytes(kvf_ctx *ctx, const kvf__mapfile *map);
/* Checks the bytes, and then the file in a sandbox process if the context has one (h5_sandbox.c).
 * Both run once per unchanged file. */
kvf_status kvf__h5_sandbox(kvf_ctx *ctx, const kvf__mapfile *map);
/* Returns whether to skip the values of a dataset: large ones, in a sandbox. */
bool kvf__h5_skips(const kvf__h5 *h5, const struct kvf__h5_data *data);
/* Checks the heaps of texts, which could lead HDF5 astray (h5_heap.c). */
kvf_status kvf__h5_check_heaps(kvf_ctx *ctx, const char *path, const uint8_t *data, size_t n);
/* Checks `count` references at `at`, the elements of a list of texts. *bytes: the sum of their
 * lengths. */
kvf_status kvf__h5_check_texts(kvf_ctx *ctx, const kvf__mapfile *map, size_t at, size_t count,
                               size_t *bytes);
/* Appends the seal to the finished file of fd, to be named `path`. */
kvf_status kvf__h5_seal(kvf_ctx *ctx, int fd, const char *path);

/* Counts memory for values or texts before allocation. EFORMAT: a file needs more than 8 times its
 * size plus 32 MiB in total. This bounds compressed zeros, and many names or references for the
 * same bytes. */
void kvf__h5_claim(kvf__h5 *h5, kvf__h5_id at, size_t bytes);

/* Report "PATH: /object: ..."; and a failed call of HDF5 with its innermost reason: "PATH: /object:
 * cannot VERB: reason" (EIO for a written file, EFORMAT for a read one). */
void kvf__h5_fail(kvf__h5 *h5, kvf__h5_id at, kvf_status status, const char *fmt, ...)
    KVF__PRINTF(4, 5);
void kvf__h5_broken(kvf__h5 *h5, kvf__h5_id at, const char *fmt, ...) KVF__PRINTF(3, 4);

/* Returns HDF5's version as "1.10.8". */
const char *kvf__h5_version(char buf[32]);

/* ---- groups (h5_group.c) --------------------------------------------------------------------- */

/* The caller releases returned groups and datasets. */
kvf__h5_id kvf__h5_group_create(kvf__h5 *h5, kvf__h5_id parent, const char *name);
bool kvf__h5_has(kvf__h5 *h5, kvf__h5_id parent, const char *name);
/* Hard links only. EFORMAT: absent or of another type. */
kvf__h5_id kvf__h5_group_open(kvf__h5 *h5, kvf__h5_id parent, const char *name);
/* Opens a child by name, for all callers; `want` is "group" or "dataset". */
kvf__h5_id kvf__h5_child_open(kvf__h5 *h5, kvf__h5_id parent, const char *name, const char *want);
size_t kvf__h5_child_count(kvf__h5 *h5, kvf__h5_id group);
/* Returns the names of the n children, in order of creation if the file has it, else by name; freed
 * with kvf__strings_free(), NULL on failure. HDF5 sorts the whole group to find one name, so all
 * are read at once. */
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
char *kvf__h5_get_text(kvf__h5 *h5, kvf__h5_id at, const char *name); /* freed by the caller */
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
char **kvf__h5_attr_names(kvf__h5 *h5, kvf__h5_id at, size_t n); /* like kvf__h5_child_names */
/* EFORMAT: not a scalar of one of the four types. */
kvf__h5_attr_type kvf__h5_attr_type_of(kvf__h5 *h5, kvf__h5_id at, const char *name);

/* ---- datasets (h5_data_write.c, h5_data_read.c)
 * -------------------------------------------------------- */

typedef struct kvf__h5_spec {
    const char *name;
    kvf__dtype dtype; /* F32, F16, BF16, F64, I64, U8, I8 */
    int rank;
    const int64_t *dim;
    const int64_t *chunk;      /* NULL: chosen by size, contiguous for small ones; chunked ones get
                                  shuffle and Fletcher32 */
    const char *const *labels; /* [rank], or NULL */
    bool contiguous;           /* contiguous for any size, without filters */
} kvf__h5_spec;
/* values: in the spec's dtype. *out: the dataset, for adding attributes, released by the caller;
 * NULL: not wanted. */
void kvf__h5_data_write(kvf__h5 *h5, kvf__h5_id parent, const kvf__h5_spec *spec,
                        const void *values, kvf__h5_id *out);

/* A dataset that passed the checks of docs/format.md. */
typedef struct kvf__h5_data {
    kvf__h5_id id; /* released by the caller */
    kvf__dtype dtype;
    int rank;
    int64_t dim[KVF__MAX_RANK];
    int64_t count;
    size_t bytes;  /* size of the values */
    size_t stored; /* size in the file */
    bool chunked;
    int64_t chunk[KVF__MAX_RANK];
    bool shuffle, deflate, fletcher32;
} kvf__h5_data;
kvf__h5_data kvf__h5_data_open(kvf__h5 *h5, kvf__h5_id parent, const char *name);
/* Reads a dataset into `values`, `bytes` long, in its own dtype. A dataset of another size is
 * refused, because memory is often sized by other fields of the file. */
void kvf__h5_data_read(kvf__h5 *h5, const kvf__h5_data *data, void *values, size_t bytes);
/* Returns the offset of contiguous values in the file in memory format; EFORMAT otherwise. */
size_t kvf__h5_data_place(kvf__h5 *h5, const kvf__h5_data *data);
/* Returns the label of a dimension, freed by the caller; NULL: none. */
char *kvf__h5_data_label(kvf__h5 *h5, const kvf__h5_data *data, int axis);

/* Lists of 1 to 16384 texts [n] (h5_text.c), freed with kvf__strings_free(). */
void kvf__h5_texts_write(kvf__h5 *h5, kvf__h5_id parent, const char *name, char *const *texts,
                         size_t n);
char **kvf__h5_texts_read(kvf__h5 *h5, kvf__h5_id parent, const char *name, size_t *n);

#endif
