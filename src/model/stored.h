/* Inside src/model: the slots that a model packs its frozen matrices from just before use: those of
 * the file, or copies in memory in a type of one's own. */
#ifndef KVF_STORED_H
#define KVF_STORED_H

#include "model_priv.h"

struct kvf__stored {
    kvf__slots slots; /* all of the model's */
    kvf__slot head;   /* of the language model; view.data NULL: there is none */
    void **memory;    /* [room] */
    size_t n, bytes;  /* of memory; of what it holds */
};

/* slots: those of the file, or with masters in their place. With keep STORED matrices of layers and
 * head are copied in options.stored, each followed by options.packed; token embedding, vectors and
 * whatever else there is stay views. */
kvf_status kvf__stored_create(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                              const kvf__model_options *options, kvf__stored **out);
void kvf__stored_free(kvf__stored *stored);

/* The type that a matrix of so many columns is kept in: blocks of integers want whole blocks. */
kvf__dtype kvf__stored_dtype(kvf__dtype wanted, int64_t columns);

#endif
