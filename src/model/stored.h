/* Private to src/model: the slots from which a model packs its frozen matrices on demand: those of
 * the file, or copies in memory in a chosen type. */
#ifndef KVF_STORED_H
#define KVF_STORED_H

#include "model_priv.h"

struct kvf__stored {
    kvf__slots slots; /* slots of the whole model */
    kvf__slot head;   /* language-model head; view.data NULL: none */
    void **memory;    /* [room] */
    size_t n, bytes;  /* number of blocks; total bytes */
};

/* slots: those of the file, or with masters in their place. With keep STORED, matrices of layers
 * and head are copied in type options.stored, and options.packed is called after each. Token
 * embedding, vectors and other weights stay views. */
kvf_status kvf__stored_create(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                              const kvf__model_options *options, kvf__stored **out);
void kvf__stored_free(kvf__stored *stored);

/* Returns the type for a matrix of so many columns: quantized types need whole blocks. */
kvf__dtype kvf__stored_dtype(kvf__dtype wanted, int64_t columns);

#endif
