/* Between the files of import: the heads of adapters, and bases. */
#ifndef KVF_IMPORT_H
#define KVF_IMPORT_H

#include "file_int.h"
#include "open_prefix.h"

/* Names and kind of the outputs of an imported head; names: "a,b,c", NULL: LABEL_0 and on. */
kvf_status kvf__import_head(kvf_ctx *ctx, const char *path, const char *names, const char *task,
                            kvf__head_values *head);

/* A Hugging Face folder or a GGUF as a base file: the same model in the same bits, the latter's
 * integers as the f32 that they represent. */
kvf_status kvf__base_import(kvf_ctx *ctx, const char *path, const char *out, bool force);

#endif
