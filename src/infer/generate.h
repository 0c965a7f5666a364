/* Generation for other folders: prompts are token ids, results are texts of the library. */
#ifndef KVF_GENERATE_H
#define KVF_GENERATE_H

#include <kvfold/infer.h>

#include "renderer.h"

/* Completes the rows of a data set; texts [set->n] are freed by kvf_texts_free. stats may be NULL.
 * prefix and options->more form an ensemble (ensemble.h). */
kvf_status kvf__generate_set(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             const kvf__dataset *set, const kvf__chat *chat,
                             const kvf_generate_options *options, char **texts,
                             kvf_generate_stats *stats);

/* Makes a text that kvf_text_bytes and kvf_texts_free accept. All completions are made by it. */
kvf_status kvf__text_make(kvf_ctx *ctx, const kvf__buf *text, char **out);

#endif
