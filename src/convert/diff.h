/* Internals of diff: a file of any kind as named tensors and facts (diff_side.c), and the
 * comparison of two (diff.c). */
#ifndef KVF_DIFF_H
#define KVF_DIFF_H

#include "merge_int.h"

/* {0} is empty. Tensors are views of the members' memory. */
typedef struct kvf__side {
    const char *path;     /* borrowed */
    char kind[16];        /* kind as in inspect; a Hugging Face folder is a "base" */
    kvf_json *tree;       /* result of inspect */
    kvf__table table;     /* tensors by name; for prefixes by layer, "prefix/3/key" [G, P, D] */
    kvf__artifact own;    /* record of a kvfold file; for a base only its head */
    kvf__weights weights; /* a foreign file; its table was moved to `table` */
    kvf__base_file texts; /* for a base: the tokenizer's files; for a base file also the map */
} kvf__side;

/* Opens a file. The caller closes *out, even on failure. */
kvf_status kvf__side_open(kvf_ctx *ctx, const char *path, kvf__side *out);
void kvf__side_close(kvf__side *side);

#endif
