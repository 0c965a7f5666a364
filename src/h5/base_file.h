/* The base file: a whole model, whose weights are mapped and viewed in place. */
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
    kvf__base_text *texts; /* [n_texts] tokenizer files */
    size_t n_texts;
    const kvf__tensor *tensors; /* [n] writing only; borrowed */
    size_t n;
    /* Writing: provides the bytes of tensor i until the next call; NULL: they are already set. */
    kvf_status (*load)(void *user, size_t i, kvf__view *view);
    void *user;
    const kvf__artifact *task; /* writing: identity and head of its task, with base_hash of these
                                  weights; NULL: none */
    kvf__table table;          /* reading: weights, as views of the map */
    kvf__mapfile map;
} kvf__base_file;
bool kvf__base_file_takes(const kvf__view *view); /* whether the type can be stored */
kvf_status kvf__base_file_write(kvf_ctx *ctx, const char *path, bool force,
                                const kvf__base_file *file);
/* Opens a base file. with_weights: read table and map too, not only the texts. */
kvf_status kvf__base_file_open(kvf_ctx *ctx, const char *path, bool with_weights,
                               kvf__base_file *file);
/* Adds a copy of a text. */
kvf_status kvf__base_text_add(kvf_ctx *ctx, kvf__base_file *file, const char *name,
                              const char *text, size_t n);
void kvf__base_file_done(kvf__base_file *file); /* frees config, texts, table and map */

#endif
