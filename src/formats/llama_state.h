/* Saved sequences of llama.cpp, written by llama_state_seq_save_file() and loaded by llama-server's
 * slots and others (src/llama-context.cpp, src/llama-kv-cache.cpp), little endian:
 *
 *   u32 0x67677371, u32 version (3 or 4), u32 tokens, i32 id[tokens]
 *   u32 streams; for each of them u32 cells and, unless that is 0:
 *     cells x { i32 position, u32 1, i32 sequence }
 *     u32 values are transposed, u32 layers
 *     version 4: u32 rotation of keys, u32 of values (0: none)
 *     each layer's keys:   i32 type, u64 bytes of a cell, [cells, G * D]
 *     each layer's values: the same; transposed: i32 type, u32 bytes of an element, u32 G * D,
 *                          [G * D, cells]
 *   model with local layers (sliding windows) and global ones: streams of the global layers, then
 *   streams of the local layers, which may leave out cells that no later token sees
 *   llama-server may append checkpoints: u32 0x504b4353, ... (skipped)
 *
 * Keys have the layout of llama.cpp's model: if a GGUF's rows of q and k are permuted
 * (kvf__arch.gguf_permuted), the two halves of a head are interleaved. */
#ifndef KVF_LLAMA_STATE_H
#define KVF_LLAMA_STATE_H

#include "prefix.h"
#include "view.h"

/* The cache of a model in llama.cpp. */
typedef struct kvf__llama_base {
    int64_t L, G, D;
    bool interleaved; /* layout of keys */
    int64_t window;   /* window of local layers, which have a cache of their own; 0: one cache */
    const uint64_t *global; /* bit l: layer l is not local; borrowed, unused without a window */
} kvf__llama_base;

/* Variant of the format; an engine refuses files of another variant. */
typedef struct kvf__llama_form {
    int64_t version, streams; /* all streams but the first are empty */
    bool transposed;          /* values are transposed, as without flash attention */
    kvf__dtype dtype;         /* F32 or F16 */
    kvf__llama_base base;
} kvf__llama_form;

/* ids [P]: token ids stored for the cells. ENUMERIC: a value exceeds the range of the type. */
kvf_status kvf__llama_state_write(kvf_ctx *ctx, const char *path, bool force,
                                  const kvf__llama_form *form, const kvf__prefix *prefix,
                                  const int32_t *ids);

/* Reads a sequence of either version and variant, in f32, f16 or bf16, with positions 0 to P - 1,
 * into a prefix; `where` names the bytes. Cells that local layers left out become 0. Every size is
 * checked before allocation. EFORMAT, EUNSUPPORTED, ESHAPE. */
kvf_status kvf__llama_state_parse(kvf_ctx *ctx, const char *where, const void *bytes, size_t n,
                                  const kvf__llama_base *base, kvf__prefix *out);
kvf_status kvf__llama_state_read(kvf_ctx *ctx, const char *path, const kvf__llama_base *base,
                                 kvf__prefix *out);

#endif
