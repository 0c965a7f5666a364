/* Inside diff: a file as named tensors and facts, whatever kind it is (diff_side.c), and two of
 * them compared (diff.c). */
#ifndef KVF_DIFF_H
#define KVF_DIFF_H

#include "merge_int.h"

/* {0} is none. Tensors are views of what the members hold. */
typedef struct kvf__side {
    const char *path;     /* viewed */
    char kind[16];        /* of inspect; a Hugging Face folder is a "base" */
    kvf_json *tree;       /* of inspect */
    kvf__table table;     /* tensors by name; of prefixes by layer, "prefix/3/key" [G, P, D] */
    kvf__artifact own;    /* of a base its head alone */
    kvf__weights weights; /* of a foreign file; its table is `table`, on loan */
    kvf__base_file texts; /* of a base: its tokenizer's files; of a base file the map too */
} kvf__side;

/* What is read is to be closed on failure too. */
kvf_status kvf__side_open(kvf_ctx *ctx, const char *path, kvf__side *out);
void kvf__side_close(kvf__side *side);

#endif
