/* Generation for other folders: prompts that are ids already, and texts as the library returns
 * them. */
#ifndef KVF_GENERATE_H
#define KVF_GENERATE_H

#include <kvfold/infer.h>

#include "renderer.h"

/* Completions of the rows of a data set; texts [set->n], each to be freed (kvf_texts_free). stats
 * may be NULL. prefix and options->more answer as one (ensemble.h). */
kvf_status kvf__generate_set(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             const kvf__dataset *set, const kvf__chat *chat,
                             const kvf_generate_options *options, char **texts,
                             kvf_generate_stats *stats);

/* A text that kvf_text_bytes and kvf_texts_free take, as all completions are. */
kvf_status kvf__text_make(kvf_ctx *ctx, const kvf__buf *text, char **out);

#endif
