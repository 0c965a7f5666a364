/* HDF5 behind plain types: what prefix_file.c, run_file.c, json_attrs.c and inspect*.c use of it.
 * Only the files h5*.c include hdf5.h. Private to src/io.
 *
 * A file that is written ends in a seal, one line behind the bytes of HDF5 with the XXH3-128 of all
 * of them: HDF5 1.8 to 2.0 ignore it, and drop it when they open the file for writing. It is
 * checked before HDF5 sees a byte, because HDF5 keeps text and the places of chunks without a
 * checksum. A file without a seal (made or edited by h5py) is read too. */
#ifndef KVF_H5_PRIV_H
#define KVF_H5_PRIV_H

#include "h5_int.h"
#include "outfile.h"

typedef int64_t kvf__h5_id; /* a group, a dataset, or the file itself, which stands for "/" */
#define KVF__H5_NONE ((kvf__h5_id)-1)

/* One open file. KVF__H5_NOTHING is "nothing". */
struct kvf__h5_data;
typedef struct kvf__h5 {
    kvf_ctx *ctx;
    const char *path; /* viewed, named in every error line */
    kvf__h5_id file;
    kvf__mapfile map;  /* reading: the file as it was tried, and what HDF5 has open */
    kvf__h5_id driver; /* reading: by which it has that (h5_fd.c) */
    size_t file_bytes; /* reading: what the file holds, the bound of everything it may claim */
    bool sealed;       /* reading: a seal lies behind HDF5's last byte */
    kvf__outfile out;  /* writing only */
    int fd;            /* writing only: HDF5's own of the temporary, again */
    bool hushed;       /* HDF5's own printing and plug-ins are off until close */
    bool broken;       /* HDF5 failed: it stays hushed */
    int (*print)(int64_t, void *);
    void *print_user;
    unsigned plugins;
} kvf__h5;
#define KVF__H5_NOTHING ((kvf__h5){.file = KVF__H5_NONE, .fd = -1})

/* ---- files (h5.c, h5_seal.c) ----------------------------------------------------------------- */

/* Begins a file of that kind: kvfold_kind, kvfold_format, kvfold_version are written. */
kvf_status kvf__h5_create(kvf_ctx *ctx, const char *path, bool force, const char *kind,
                          kvf__h5 *out);
/* Whole on the disk under its name; the file is closed, whether or not this succeeds. */
kvf_status kvf__h5_commit(kvf__h5 *h5);
/* Checks superblock, size and seal, then opens; kind NULL takes any kvfold file of format 1. */
kvf_status kvf__h5_open(kvf_ctx *ctx, const char *path, const char *kind, kvf__h5 *out);
/* Also drops what was not committed. "Nothing" is fine. */
void kvf__h5_close(kvf__h5 *h5);

/* Superblock version 2 or 3, as many bytes as it says, and the seal if there is one. */
kvf_status kvf__h5_check_bytes(kvf_ctx *ctx, const kvf__mapfile *map);
/* The same, and then in a sandbox in another process where the context has one (h5_sandbox.c): both
 * only once for a file that stays as it is. */
kvf_status kvf__h5_sandbox(kvf_ctx *ctx, const kvf__mapfile *map);
/* Whether the values of a dataset are left out: large ones, in a sandbox. */
bool kvf__h5_skips(const kvf__h5 *h5, const struct kvf__h5_data *data);
/* Part of it: no heap of texts that would lead HDF5 astray (h5_heap.c). */
kvf_status kvf__h5_check_heaps(kvf_ctx *ctx, const char *path, const uint8_t *data, size_t n);
/* The same for `count` references that lie at `at`: the elements of a list of texts. */
kvf_status kvf__h5_check_texts(kvf_ctx *ctx, const kvf__mapfile *map, size_t at, size_t count);
/* Appends the seal to the finished file behind fd, which will be named `path`. */
kvf_status kvf__h5_seal(kvf_ctx *ctx, int fd, const char *path);

/* "PATH: /object: ...", and the same for a call of HDF5 that failed just now, with its innermost
 * reason: "PATH: /object: cannot VERB: reason" (EIO in a file that is written, EFORMAT in one that
 * is read). */
kvf_status kvf__h5_fail(const kvf__h5 *h5, kvf__h5_id at, kvf_status status, const char *fmt, ...)
    KVF__PRINTF(4, 5);
kvf_status kvf__h5_broken(kvf__h5 *h5, kvf__h5_id at, const char *fmt, ...) KVF__PRINTF(3, 4);

/* ---- groups (h5_group.c) --------------------------------------------------------------------- */

kvf_status kvf__h5_group_create(kvf__h5 *h5, kvf__h5_id parent, const char *name, kvf__h5_id *out);
kvf_status kvf__h5_has(kvf__h5 *h5, kvf__h5_id parent, const char *name, bool *out);
/* Hard links only. EFORMAT if absent or of another type. */
kvf_status kvf__h5_group_open(kvf__h5 *h5, kvf__h5_id parent, const char *name, kvf__h5_id *out);
/* The one way to open by name; `want` is "group" or "dataset". */
kvf_status kvf__h5_child_open(kvf__h5 *h5, kvf__h5_id parent, const char *name, const char *want,
                              kvf__h5_id *out);
kvf_status kvf__h5_child_count(kvf__h5 *h5, kvf__h5_id group, size_t *out);
/* In order of creation where the file keeps it, else by name. *out to be freed. */
kvf_status kvf__h5_child_name(kvf__h5 *h5, kvf__h5_id group, size_t index, char **out);
void kvf__h5_release(kvf__h5_id *id); /* closes group or dataset, sets it to NONE */

/* ---- attributes (h5_attr.c) ------------------------------------------------------------------ */

kvf_status kvf__h5_put_text(kvf__h5 *h5, kvf__h5_id at, const char *name, const char *utf8);
kvf_status kvf__h5_put_i64(kvf__h5 *h5, kvf__h5_id at, const char *name, int64_t value);
kvf_status kvf__h5_put_f64(kvf__h5 *h5, kvf__h5_id at, const char *name, double value);
kvf_status kvf__h5_put_bool(kvf__h5 *h5, kvf__h5_id at, const char *name, bool value);
kvf_status kvf__h5_put_u8s(kvf__h5 *h5, kvf__h5_id at, const char *name, const uint8_t *values,
                           int64_t n);

kvf_status kvf__h5_has_attr(kvf__h5 *h5, kvf__h5_id at, const char *name, bool *out);
kvf_status kvf__h5_get_text(kvf__h5 *h5, kvf__h5_id at, const char *name,
                            char **out); /* to be freed */
kvf_status kvf__h5_get_i64(kvf__h5 *h5, kvf__h5_id at, const char *name, int64_t *out);
kvf_status kvf__h5_get_f64(kvf__h5 *h5, kvf__h5_id at, const char *name, double *out);
kvf_status kvf__h5_get_u8s(kvf__h5 *h5, kvf__h5_id at, const char *name, uint8_t *values,
                           int64_t n);

typedef enum kvf__h5_attr_type {
    KVF__H5_TEXT,
    KVF__H5_I64,
    KVF__H5_F64,
    KVF__H5_BOOL
} kvf__h5_attr_type;
kvf_status kvf__h5_get_bool(kvf__h5 *h5, kvf__h5_id at, const char *name, bool *out);
kvf_status kvf__h5_attr_count(kvf__h5 *h5, kvf__h5_id at, size_t *out);
kvf_status kvf__h5_attr_name(kvf__h5 *h5, kvf__h5_id at, size_t index,
                             char **out); /* order as children */
/* EFORMAT for anything that is not a scalar of one of the four types. */
kvf_status kvf__h5_attr_type_of(kvf__h5 *h5, kvf__h5_id at, const char *name,
                                kvf__h5_attr_type *out);

/* A group's attributes as one object of scalars, and back (json_attrs.c). null is stored as NaN.
 * name: the group, made only if value is not NULL; a missing group reads as NULL. */
kvf_status kvf__attrs_write(kvf__h5 *h5, kvf__h5_id parent, const char *name,
                            const kvf_json *value);
kvf_status kvf__attrs_read(kvf__h5 *h5, kvf__h5_id parent, const char *name, kvf_json **out);

/* ---- datasets (h5_data.c, h5_check.c) -------------------------------------------------------- */

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
/* values: in the spec's dtype. *out, to be released, may be asked for to add attributes; NULL if
 * not wanted. */
kvf_status kvf__h5_data_write(kvf__h5 *h5, kvf__h5_id parent, const kvf__h5_spec *spec,
                              const void *values, kvf__h5_id *out);

/* A dataset that passed every check of docs/format.md. */
typedef struct kvf__h5_data {
    kvf__h5_id id;
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
kvf_status kvf__h5_data_open(kvf__h5 *h5, kvf__h5_id parent, const char *name, kvf__h5_data *out);
/* data->bytes bytes, in the dataset's own dtype. */
kvf_status kvf__h5_data_read(kvf__h5 *h5, const kvf__h5_data *data, void *values);
/* Where in the file they lie, in one piece, as they are in memory; EFORMAT if they do not. */
kvf_status kvf__h5_data_place(kvf__h5 *h5, const kvf__h5_data *data, size_t *at);
/* The label of one dimension, to be freed; NULL where there is none. */
kvf_status kvf__h5_data_label(kvf__h5 *h5, const kvf__h5_data *data, int axis, char **out);

/* Lists of texts, [n], 1 to 16384 of them (h5_text.c). *out and each text in it are to be freed. */
kvf_status kvf__h5_texts_write(kvf__h5 *h5, kvf__h5_id parent, const char *name, char *const *texts,
                               size_t n);
kvf_status kvf__h5_texts_read(kvf__h5 *h5, kvf__h5_id parent, const char *name, char ***out,
                              size_t *n);

/* ---- shared by prefix and run (identity.c) --------------------------------------------------- */

/* base_* on the root, the rest on `at`; L, G, P, D too where with_shape. */
kvf_status kvf__identity_write(kvf__h5 *h5, kvf__h5_id at, bool with_shape,
                               const kvf__identity *id);
kvf_status kvf__identity_read(kvf__h5 *h5, kvf__h5_id at, bool with_shape, kvf__identity *out);
/* [L] of 0 and 1. */
kvf_status kvf__mask_read(kvf__h5 *h5, kvf__h5_id at, int64_t L, uint8_t **out);

/* Reads a prefix from an open file; *data, to be released by the caller, tells how it is stored. */
kvf_status kvf__prefix_read_from(kvf__h5 *h5, kvf__h5_data *data, kvf__prefix_file *out);

/* Its values as they are stored (prefix_store.c): `values` in the dtype; scale [L, 2, G], of int8
 * only. ENUMERIC: the dtype cannot hold one. */
size_t kvf__prefix_scales(const kvf__prefix *prefix); /* L * 2 * G */
kvf_status kvf__prefix_encode(kvf_ctx *ctx, const char *where, kvf__dtype dtype,
                              const kvf__prefix *prefix, void *values, float *scale);
void kvf__prefix_decode(kvf__dtype dtype, const void *values, const float *scale,
                        kvf__prefix *prefix);

/* The same of virtual tokens. */
kvf_status kvf__embeddings_read_from(kvf__h5 *h5, kvf__h5_data *data, kvf__embeddings_file *out);

/* Into a base file that is written; weights: its group (base_task.c). */
kvf_status kvf__base_task_write(kvf__h5 *h5, kvf__h5_id weights, const kvf__base_task *task);

/* /history (run_history.c). */
kvf_status kvf__history_write(kvf__h5 *h5, const kvf__history *history);
kvf_status kvf__history_read(kvf__h5 *h5, kvf__history *out);

/* Several heads: /heads/<name>/<parameter>, labels, attributes task and regression (heads_file.c);
 * kvf__head_write and read call them where the task is KVF__MULTI_TASK. */
kvf_status kvf__heads_write(kvf__h5 *h5, const kvf__head_values *head);
kvf_status kvf__heads_read(kvf__h5 *h5, kvf__head_values *out);
/* Names of labels: named, in UTF-8, and no two alike. */
kvf_status kvf__labels_check(kvf__h5 *h5, kvf__h5_id at, char *const *labels, size_t n,
                             kvf_status status);
/* One dataset of a group as a parameter; `name` is taken over. */
kvf_status kvf__run_params_read_one(kvf__h5 *h5, kvf__h5_id group, char *name,
                                    kvf__params_owned *params);
/* As kvf__run_params_read, where groups named as the tasks of `heads` hold theirs, as
 * "NAME/parameter". */
kvf_status kvf__run_params_read_tasks(kvf__h5 *h5, kvf__h5_id group, const kvf__head_values *heads,
                                      kvf__params_owned *out);

/* /head (head_file.c). What is read belongs to the caller on failure too. EFORMAT: a head where
 * `task` has none, or none where it has one. */
kvf_status kvf__head_write(kvf__h5 *h5, const char *task, const kvf__head_values *head);
kvf_status kvf__head_read(kvf__h5 *h5, const char *task, kvf__head_values *out);
/* /head, /options and /lineage (file_end.c). As kvf__head_read. */
kvf_status kvf__file_end_write(kvf__h5 *h5, const char *task, const kvf__head_values *head,
                               const kvf_json *options, const kvf_json *lineage);
kvf_status kvf__file_end_read(kvf__h5 *h5, const char *task, kvf__head_values *head,
                              kvf_json **options, kvf_json **lineage);

/* More than any model has: a hostile file is refused before its names are read. */
enum { KVF__MOST_PARAMS = 65536 };

/* The parameters of one group, all f32 of rank 1 to 4 (run_params.c). *out, to be released, is the
 * group; NULL if it is not wanted. What is read belongs to the caller on failure too: it may be
 * half read. except: a child that is no parameter, NULL if all are. */
kvf_status kvf__run_params_write(kvf__h5 *h5, kvf__h5_id parent, const char *name,
                                 const kvf__params *params, kvf__h5_id *out);
kvf_status kvf__run_params_read(kvf__h5 *h5, kvf__h5_id group, const char *except,
                                kvf__params_owned *out);
/* Names, order and shapes of `got`, read from `group`, must be those of `whose` ("encoder"). */
kvf_status kvf__run_params_same(kvf__h5 *h5, kvf__h5_id group, const kvf__params *got,
                                const kvf__params *want, const char *whose);

#endif
