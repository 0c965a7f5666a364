/* Foreign model files: safetensors (one file or sharded) and GGUF v3. Both become one kvf__table of
 * views over read-only maps, and metadata as JSON. Formats: safetensors' README, ggml's
 * docs/gguf.md. Both readers apply the reference checks, and check every length against the
 * remaining bytes. */
#ifndef KVF_FILE_INT_H
#define KVF_FILE_INT_H

#include "base_int.h"
#include "infile.h"
#include "view.h"

/* An open model: the maps stay open until close, and the table views them. */
typedef struct kvf__weights {
    kvf__table table;
    /* safetensors: __metadata__ or NULL. GGUF: object of all scalar keys; arrays appear as
     * {"array": type name, "count": n} unless they have at most 64 elements. */
    kvf_json *meta;
    kvf__mapfile *maps;
    size_t n_maps;
    struct kvf__gguf_kv *arrays; /* GGUF arrays, for kvf__gguf_strings() and the like */
    size_t n_arrays;
    size_t metadata_bytes, alignment; /* GGUF: where the section of tensors begins; of their data */
} kvf__weights;

kvf_status kvf__safetensors_open(kvf_ctx *ctx, const char *path, kvf__weights *out);
/* Opens a folder's model.safetensors, or the shards of model.safetensors.index.json. */
kvf_status kvf__safetensors_open_dir(kvf_ctx *ctx, const char *dir, kvf__weights *out);
kvf_status kvf__gguf_open(kvf_ctx *ctx, const char *path, kvf__weights *out);
void kvf__weights_close(kvf__weights *weights); /* {0} and partially opened ones are allowed */

/* Callbacks of kvf__model_options for the source file (weights: a kvf__weights *). forget: releases
 * its pages, which for an f32 file take as much memory as the packed model. */
void kvf__weights_forget(void *weights);
/* advise: bytes of the table's views will be read soon, or not for a while. No effect outside of
 * the maps. */
void kvf__weights_advise(void *weights, const void *at, size_t bytes, bool soon);
/* read: kvf__mapfile_read from the map that contains them. */
bool kvf__weights_read(void *weights, const void *at, size_t bytes, void *out);

/* The parsers below: bytes in memory, which must outlive the table; `where` names them in errors.
 * They append to *weights, initially {0}. After a failure it may be partially filled, so close it
 * in any case. */
kvf_status kvf__safetensors_parse(kvf_ctx *ctx, const char *where, const void *bytes, size_t n,
                                  kvf__weights *weights);
kvf_status kvf__gguf_parse(kvf_ctx *ctx, const char *where, const void *bytes, size_t n,
                           kvf__weights *weights);
/* Computes the product of the nonzero dimensions, so that any part of it may be multiplied later;
 * false on overflow. */
bool kvf__shape_count(const kvf__view *view, size_t *count, bool *empty);
/* Returns the type name, also of types without arithmetic. */
const char *kvf__view_type_name(const kvf__view *view);
/* ENUMERIC: WHERE: "NAME" holds nan, want finite values. */
kvf_status kvf__check_finite(kvf_ctx *ctx, const char *where, const char *name, const float *values,
                             int64_t n);
/* Opens a map and appends it to weights->maps, which has room for it. */
kvf_status kvf__weights_map(kvf_ctx *ctx, const char *path, kvf__weights *weights);
/* A parser of a file. */
typedef kvf_status (*kvf__parse)(kvf_ctx *ctx, const char *where, const void *bytes, size_t n,
                                 kvf__weights *weights);
kvf_status kvf__weights_open_with(kvf_ctx *ctx, const char *path, kvf__parse parse,
                                  kvf__weights *out);

/* Arrays of a GGUF: element count, or -1 (and no arrays) if the key is absent or of another element
 * type. Strings: pointers and lengths into the map, in one allocated array each, freed with
 * kvf__free(). Floats: f32 and f64. Ints: every width; EFORMAT: a value does not fit. */
kvf_status kvf__gguf_strings(kvf_ctx *ctx, const kvf__weights *weights, const char *key,
                             const char *const **texts, const size_t **bytes, int64_t *count);
kvf_status kvf__gguf_floats(kvf_ctx *ctx, const kvf__weights *weights, const char *key,
                            float **values, int64_t *count);
kvf_status kvf__gguf_ints(kvf_ctx *ctx, const kvf__weights *weights, const char *key,
                          int32_t **values, int64_t *count);

/* Writes an open GGUF again, whole or not at all, with another number in its metadata and other
 * tensors. EUNSUPPORTED: the key is not one whole number. */
typedef struct kvf__gguf_change {
    const char *key; /* NULL: the metadata is kept as it is */
    uint64_t value;
    const kvf__view *views; /* [table.n], types and shapes; data NULL: `make` writes the bytes */
    kvf_status (*make)(kvf_ctx *ctx, const void *user, size_t i, uint8_t *out);
    const void *user;
} kvf__gguf_change;
kvf_status kvf__gguf_rewrite(kvf_ctx *ctx, const char *path, bool force, const kvf__weights *old,
                             const kvf__gguf_change *change);

/* Contents of a path, recognised by first bytes (a folder: by its files). */
typedef enum kvf__file_kind {
    KVF__FILE_UNKNOWN,
    KVF__FILE_HDF5,
    KVF__FILE_SAFETENSORS,
    KVF__FILE_GGUF,
    KVF__FILE_LLAMA_STATE, /* llama_state.h */
    KVF__FILE_HF_DIR,
    KVF__FILE_PEFT_DIR
} kvf__file_kind;
/* EIO: it cannot be read; EUNSUPPORTED: its only weights are a torch pickle. */
kvf_status kvf__file_kind_of(kvf_ctx *ctx, const char *path, kvf__file_kind *out);
/* Opens the tensors of a foreign file or folder of that kind. */
kvf_status kvf__weights_open(kvf_ctx *ctx, const char *path, kvf__file_kind kind,
                             kvf__weights *out);

/* Writes a safetensors file with {"format":"pt"}, whole or not at all, with tensors in the order of
 * the reference writer. */
kvf_status kvf__safetensors_write(kvf_ctx *ctx, const char *path, bool force,
                                  const kvf__tensor *tensors, size_t n);
/* Writes with another __metadata__, an object of strings, whose ownership passes. */
kvf_status kvf__safetensors_write_with(kvf_ctx *ctx, const char *path, bool force,
                                       const kvf__tensor *tensors, size_t n, kvf_json *metadata);

#endif
