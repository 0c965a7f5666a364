/* The weights of a file, found by name, checked by shape and viewed where they lie. */
#ifndef KVF_BIND_H
#define KVF_BIND_H

#include "desc.h"
#include "map.h"

/* Bytes of a slot will be read soon, or not for a while. */
typedef void kvf__advise_fn(void *user, const void *at, size_t bytes, bool soon);
/* Copies bytes of a slot; false where that cannot be done without reading them there. */
typedef bool kvf__read_fn(void *user, const void *at, size_t bytes, void *out);

/* What is added to a matrix wherever its values are read: a product of low rank (LoRA), in the
 * order and orientation of the slot as Hugging Face stores it. */
typedef struct kvf__low_rank {
    const float *left, *right; /* [rows, r], [r, columns] */
    int64_t r;
} kvf__low_rank;

/* One weight by its Hugging Face name, viewed in the file. conv1d: stored [in, out] (GPT-2).
 * permuted: rows are in GGUF llama order (slot.c) and undone when read. */
typedef struct kvf__slot {
    char name[96];
    kvf__view view;
    int role;      /* of the weight (arch.h) */
    int64_t layer; /* 0 for weights outside the layers */
    bool conv1d;
    int64_t permuted_heads;   /* 0: rows in Hugging Face order */
    const kvf__low_rank *add; /* not part of `view`; NULL: nothing is */
    int64_t by_head;          /* heads H: in Hugging Face order q, k and v follow each other head by
                                 head, where all else has one after the other; 0: no such weight */
    bool file_by_head;        /* so they do in the file */
    int one;                  /* 1: the file has the values less 1; -1: Hugging Face has; 0: none */
    bool aside;               /* no part of the base's hash: the masked-LM head */
} kvf__slot;

typedef struct kvf__slots {
    kvf__slot *items; /* canonical names, in model order */
    size_t n;
    kvf__map index;
} kvf__slots;

/* Finds every weight the description needs, checks every shape (ESHAPE: name, found, expected),
 * EFORMAT if one is missing. Accepts names with and without the base-model prefix; ignores known
 * buffers, logs other surplus tensors. */
kvf_status kvf__bind(kvf_ctx *ctx, const char *where, const kvf__desc *desc,
                     const kvf__table *table, kvf__slots *out);
void kvf__slots_done(kvf__slots *slots);
/* The slot of a module's weight, by the module's name in whatever model class: with the base-model
 * prefix, another's or none. NULL: this base has no such weight. */
kvf__slot *kvf__slot_of_module(const kvf__desc *desc, const kvf__slots *slots, const char *module);
/* A weight as Hugging Face has it, for a file: rows in its order, integers and what has something
 * added as f32, other types as they are. A view of the slot's bytes, or of *memory, which takes the
 * place of what it was before and is freed by the caller. */
kvf_status kvf__slot_plain(kvf_ctx *ctx, const kvf__slot *slot, void **memory, kvf__view *out);
/* XXH3-128 over the description and, in name order, name, dtype, shape and raw bytes of every slot
 * (tied copies, the masked-LM head and what is added to a slot left out). advise, may be NULL: is
 * called for bytes that have been read, as in kvf__model_options. */
kvf_status kvf__slots_hash(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                           kvf__advise_fn *advise, void *user, char hex[33]);

#endif
