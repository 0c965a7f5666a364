/* Between the files of import: heads of what comes from elsewhere, and its task. */
#ifndef KVF_IMPORT_H
#define KVF_IMPORT_H

#include "foreign.h"
#include "open_prefix.h"

/* Names and kind of the outputs of an imported head; names: "a,b,c", NULL: LABEL_0 and on. */
kvf_status kvf__import_head(kvf_ctx *ctx, const char *path, const char *names, const char *task,
                            kvf__head_values *head);

/* Another program's prefix, opened, as a run or prefix file; kind as of kvf_import. */
kvf_status kvf__import_foreign(kvf_ctx *ctx, const kvf_import_options *options,
                               const kvf_base *base, const kvf__foreign *foreign, char *kind);
/* Its task (static), and the head that this task has on the base; EFORMAT: it has none. */
kvf_status kvf__foreign_task(kvf_ctx *ctx, const kvf_import_options *options,
                             const kvf__foreign *foreign, const char **task);
kvf_status kvf__foreign_head(kvf_ctx *ctx, const kvf_import_options *options, const kvf_base *base,
                             const kvf__foreign *foreign, const char *task, kvf__head_values *out);
/* A Hugging Face folder or a GGUF as a base file: the same model in the same bits, the latter's
 * integers as the f32 that they represent. */
kvf_status kvf__base_import(kvf_ctx *ctx, const char *path, const char *out, bool force);

#endif
