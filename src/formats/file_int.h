/* Foreign model files: safetensors (one file or sharded) and GGUF v3, both read into one kvf__table
 * of views over read-only maps, plus their metadata as JSON. Formats: safetensors' README, ggml's
 * docs/gguf.md; the reference checks of both readers are applied and every length is checked
 * against the bytes left.
 */
#ifndef KVF_FILE_INT_H
#define KVF_FILE_INT_H

#include "base_int.h"
#include "infile.h"
#include "view.h"

/* One open model: the maps stay open until close, the table views them. */
typedef struct kvf__weights {
    kvf__table table;
    /* safetensors: __metadata__ or NULL. GGUF: object of all scalar keys; arrays appear as
     * {"array": type name, "count": n} unless they have at most 64 elements. */
    kvf_json *meta;
    kvf__mapfile *maps;
    size_t n_maps;
    struct kvf__gguf_kv *arrays; /* GGUF arrays, by kvf__gguf_strings() and friends */
    size_t n_arrays;
} kvf__weights;

kvf_status kvf__safetensors_open(kvf_ctx *ctx, const char *path, kvf__weights *out);
/* A folder's model.safetensors, or the shards of model.safetensors.index.json. */
kvf_status kvf__safetensors_open_dir(kvf_ctx *ctx, const char *dir, kvf__weights *out);
kvf_status kvf__gguf_open(kvf_ctx *ctx, const char *path, kvf__weights *out);
void kvf__weights_close(kvf__weights *weights); /* {0} and half-open ones are fine */

/* What a model asks of the file it was packed from (callbacks of kvf__model_options; weights: a
 * kvf__weights *). Its pages may be dropped: of a file in f32 they are as many bytes as the packed
 * model has. */
void kvf__weights_forget(void *weights);
/* Bytes of the table's views will be read soon, or not for a while. Nothing happens where they lie
 * in no map. */
void kvf__weights_advise(void *weights, const void *at, size_t bytes, bool soon);
/* kvf__mapfile_read from the map in which they lie. */
bool kvf__weights_read(void *weights, const void *at, size_t bytes, void *out);

/* The parsers below those above: bytes in memory, which must outlive the table; `where` names
 * them in errors. They add to *weights, which starts as {0}, and after a failure holds a part:
 * close it either way. */
kvf_status kvf__safetensors_parse(kvf_ctx *ctx, const char *where, const void *bytes, size_t n,
                                  kvf__weights *weights);
kvf_status kvf__gguf_parse(kvf_ctx *ctx, const char *where, const void *bytes, size_t n,
                           kvf__weights *weights);
/* The product of the dimensions that are not 0, so that any part of it may be multiplied later on;
 * false where it overflows. */
bool kvf__shape_count(const kvf__view *view, size_t *count, bool *empty);
/* Of types that are not computed with too. */
const char *kvf__view_type_name(const kvf__view *view);
/* ENUMERIC "WHERE: "NAME" holds nan, want finite values". */
kvf_status kvf__check_finite(kvf_ctx *ctx, const char *where, const char *name, const float *values,
                             int64_t n);
/* Opens a map and puts it into weights->maps, whose array has room for it. */
kvf_status kvf__weights_map(kvf_ctx *ctx, const char *path, kvf__weights *weights);
/* A file by one of the parsers. */
typedef kvf_status (*kvf__parse)(kvf_ctx *ctx, const char *where, const void *bytes, size_t n,
                                 kvf__weights *weights);
kvf_status kvf__weights_open_with(kvf_ctx *ctx, const char *path, kvf__parse parse,
                                  kvf__weights *out);

/* Arrays of a GGUF: element count, or -1 (and no arrays) if the key is absent or of another element
 * type. Strings: pointers and lengths into the map, one kvf__alloc'ed array each, released with
 * kvf__free(). Floats: f32 and f64. Ints: every width, EFORMAT if a value does not fit. */
kvf_status kvf__gguf_strings(kvf_ctx *ctx, const kvf__weights *weights, const char *key,
                             const char *const **texts, const size_t **bytes, int64_t *count);
kvf_status kvf__gguf_floats(kvf_ctx *ctx, const kvf__weights *weights, const char *key,
                            float **values, int64_t *count);
kvf_status kvf__gguf_ints(kvf_ctx *ctx, const kvf__weights *weights, const char *key,
                          int32_t **values, int64_t *count);

/* What a path holds, by its first bytes (a folder: by its files). */
typedef enum kvf__file_kind {
    KVF__FILE_UNKNOWN,
    KVF__FILE_HDF5,
    KVF__FILE_SAFETENSORS,
    KVF__FILE_GGUF,
    KVF__FILE_LLAMA_STATE, /* llama_state.h */
    KVF__FILE_HF_DIR,
    KVF__FILE_PEFT_DIR
} kvf__file_kind;
/* EIO if it cannot be read; EUNSUPPORTED if its tensors are in a torch pickle alone. */
kvf_status kvf__file_kind_of(kvf_ctx *ctx, const char *path, kvf__file_kind *out);
/* The tensors of a foreign file or folder of that kind. */
kvf_status kvf__weights_open(kvf_ctx *ctx, const char *path, kvf__file_kind kind,
                             kvf__weights *out);

/* Writes a safetensors file with {"format":"pt"}, tensors in the order of the reference writer,
 * whole or not at all. */
kvf_status kvf__safetensors_write(kvf_ctx *ctx, const char *path, bool force,
                                  const kvf__tensor *tensors, size_t n);
/* The same with another __metadata__, an object of strings, which is taken over. */
kvf_status kvf__safetensors_write_with(kvf_ctx *ctx, const char *path, bool force,
                                       const kvf__tensor *tensors, size_t n, kvf_json *metadata);

#endif
