/* The base file: a whole model, whose weights are mapped and viewed where they lie. */
#ifndef KVF_BASE_FILE_H
#define KVF_BASE_FILE_H

#include "artifact.h"
#include "infile.h"
#include "view.h"

typedef struct kvf__base_text {
    char *name, *text; /* "tokenizer.json" */
} kvf__base_text;
typedef struct kvf__base_file {
    char *config;          /* config.json */
    kvf__base_text *texts; /* [n_texts] files of the tokenizer */
    size_t n_texts;
    const kvf__tensor *tensors; /* [n] writing only; viewed */
    size_t n;
    /* Writing: gives the i-th tensor its bytes when its turn comes, until the next call; NULL: they
     * are there. */
    kvf_status (*load)(void *user, size_t i, kvf__view *view);
    void *user;
    const kvf__artifact
        *task;        /* writing: of its head, with base_hash of these weights; NULL: none */
    kvf__table table; /* reading: the weights, views of the map */
    kvf__mapfile map;
} kvf__base_file;
bool kvf__base_file_takes(const kvf__view *view); /* a tensor of a type it can hold */
kvf_status kvf__base_file_write(kvf_ctx *ctx, const char *path, bool force,
                                const kvf__base_file *file);
/* with_weights: not only the texts are wanted, but table and map too. */
kvf_status kvf__base_file_open(kvf_ctx *ctx, const char *path, bool with_weights,
                               kvf__base_file *file);
/* Copies a text in. */
kvf_status kvf__base_text_add(kvf_ctx *ctx, kvf__base_file *file, const char *name,
                              const char *text, size_t n);
void kvf__base_file_done(kvf__base_file *file); /* config, texts, table and map */

#endif
