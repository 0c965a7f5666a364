/* Shared by the files of the GGUF reader: parse state, value types, metadata arrays. */
#ifndef KVF_GGUF_INT_H
#define KVF_GGUF_INT_H

#include "file_int.h"

/* Value types of the metadata: id, name, bytes (of a string: minimum; an array has none), and kind:
 * u unsigned, i signed, f real, b boolean, s none of these. */
#define KVF__GGUF_TYPE_LIST(X)                                                                     \
    X(U8, 0, "u8", 1, 'u')                                                                         \
    X(I8, 1, "i8", 1, 'i')                                                                         \
    X(U16, 2, "u16", 2, 'u')                                                                       \
    X(I16, 3, "i16", 2, 'i')                                                                       \
    X(U32, 4, "u32", 4, 'u')                                                                       \
    X(I32, 5, "i32", 4, 'i')                                                                       \
    X(F32, 6, "f32", 4, 'f')                                                                       \
    X(BOOL, 7, "bool", 1, 'b')                                                                     \
    X(STRING, 8, "string", 8, 's')                                                                 \
    X(ARRAY, 9, "array", 0, 's')                                                                   \
    X(U64, 10, "u64", 8, 'u')                                                                      \
    X(I64, 11, "i64", 8, 'i')                                                                      \
    X(F64, 12, "f64", 8, 'f')

enum {
#define KVF__GGUF_TYPE_ENUM(id, value, text, bytes, form) KVF__GGUF_##id = value,
    KVF__GGUF_TYPE_LIST(KVF__GGUF_TYPE_ENUM)
#undef KVF__GGUF_TYPE_ENUM
        KVF__GGUF_TYPES = 13
};

/* A metadata array, checked when the file was opened; key and elements are in the map. */
struct kvf__gguf_kv {
    const char *key;
    size_t key_n;
    uint32_t type; /* type of the elements, never ARRAY */
    uint64_t count;
    const uint8_t *data;
    size_t bytes;
};

typedef struct kvf__gguf {
    kvf_ctx *ctx;
    const char *where;
    kvf__reader r;
    kvf__weights *weights;
    uint64_t n_tensors, n_kv;
    size_t alignment;
} kvf__gguf;

/* Read the key-value section, then the tensor section. */
kvf_status kvf__gguf_read_meta(kvf__gguf *g);
kvf_status kvf__gguf_read_tensors(kvf__gguf *g);

uint32_t kvf__gguf_type_id(const kvf__view *view); /* of its elements */

/* Reads u64 length and bytes as a view, or sets failed. */
const char *kvf__gguf_read_string(kvf__reader *r, size_t *n);
typedef struct kvf__gguf_type {
    const char *name;
    size_t bytes;
    char form;
} kvf__gguf_type;
extern const kvf__gguf_type kvf__gguf_types[KVF__GGUF_TYPES];
/* A number of any width: exactly one member is set. Strings and arrays are none. */
typedef struct kvf__gguf_number {
    bool is_real, is_big; /* is_big: a u64 above INT64_MAX, in `real` */
    int64_t integer;
    double real;
} kvf__gguf_number;
kvf__gguf_number kvf__gguf_read_number(kvf__reader *r, uint32_t type);

#endif
