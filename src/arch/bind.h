/* The weights of a file: found by name, checked by shape, and viewed in place. */
#ifndef KVF_BIND_H
#define KVF_BIND_H

#include "desc.h"
#include "map.h"

/* Announces that bytes of a slot will be read soon, or are not needed for a while. */
typedef void kvf__advise_fn(void *user, const void *at, size_t bytes, bool soon);
/* Copies bytes of a slot; false if they can only be read in place. */
typedef bool kvf__read_fn(void *user, const void *at, size_t bytes, void *out);

/* A low-rank product (LoRA) that is added to a matrix whenever its values are read, in the slot's
 * order and orientation in Hugging Face. */
typedef struct kvf__low_rank {
    const float *left, *right; /* [rows, r], [r, columns] */
    int64_t r;
} kvf__low_rank;

/* A weight by its Hugging Face name, viewed in the file. conv1d: stored [in, out] (GPT-2).
 * permuted: rows are in GGUF llama order (slot.c), undone when read. */
typedef struct kvf__slot {
    char name[96];
    kvf__view view;
    int role;      /* role of the weight (arch.h) */
    int64_t layer; /* 0 for weights outside the layers */
    bool conv1d;
    int64_t permuted_heads;   /* 0: rows in Hugging Face order */
    const kvf__low_rank *add; /* added to the values, not part of `view`; NULL: none */
    /* heads H of a fused weight whose parts (q, k and v, or q and its gate) Hugging Face orders
     * head by head, all other code one after the other; 0: no such weight */
    int64_t by_head;
    int64_t parts;     /* with by_head: 3 or 2 */
    bool file_by_head; /* the file has Hugging Face's order */
    int one;           /* 1: the file stores the values less 1; -1: Hugging Face does; 0: neither */
    bool minus_exp;    /* the file stores -exp(x), Hugging Face x */
    /* value heads of a delta rule in a GGUF: after `before` elements, [outer, heads / keys, keys,
     * ...] and not [outer, keys, heads / keys, ...]; keys 0: no such weight */
    struct kvf__tiles {
        int64_t before, outer, keys, heads;
    } tiles;
    bool aside; /* excluded from the base's hash: the masked-LM head */
} kvf__slot;

typedef struct kvf__slots {
    kvf__slot *items; /* canonical names, in model order */
    size_t n;
    kvf__map index;
} kvf__slots;

/* Finds every weight of the description. ESHAPE: a shape differs (name, found, expected); EFORMAT:
 * a weight is missing. Accepts names with and without the base-model prefix; ignores known buffers,
 * and logs other surplus tensors. */
kvf_status kvf__bind(kvf_ctx *ctx, const char *where, const kvf__desc *desc,
                     const kvf__table *table, kvf__slots *out);
void kvf__slots_done(kvf__slots *slots);
/* Returns the slot of a module's weight, by the module's name in any model class: with the
 * base-model prefix, another one or none. NULL: no such weight. */
kvf__slot *kvf__slot_of_module(const kvf__desc *desc, const kvf__slots *slots, const char *module);
/* Reads a weight in Hugging Face's form, for a file: rows in its order; quantized and LoRA-adapted
 * weights as f32, other types unchanged. *out is a view of the slot's bytes or of *memory, which
 * replaces its former block and is freed by the caller. */
kvf_status kvf__slot_plain(kvf_ctx *ctx, const kvf__slot *slot, void **memory, kvf__view *out);
/* Computes XXH3-128 over the description and, in name order, name, dtype, shape and raw bytes of
 * every slot. Tied copies, the masked-LM head and LoRA are excluded. advise, may be NULL, is called
 * for bytes that have been read, as in kvf__model_options. */
kvf_status kvf__slots_hash(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                           kvf__advise_fn *advise, void *user, char hex[33]);

#endif
