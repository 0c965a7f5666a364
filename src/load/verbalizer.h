/* Classes as words of a base (--verbalizer, verbalizer.c). */
#ifndef KVF_VERBALIZER_H
#define KVF_VERBALIZER_H

#include "data_int.h"
#include "open_prefix.h"

/* Returns the word of each label from "label=word,...", [n] texts freed by the caller; EUSAGE names
 * a label without one. */
kvf_status kvf__verbalizer_words(kvf_ctx *ctx, const char *text, char *const *labels, size_t n,
                                 char ***out);
/* Returns the labels in the text, in the order used for training labels. EUSAGE. */
kvf_status kvf__verbalizer_labels(kvf_ctx *ctx, const char *text, kvf__label_set *out);
/* Returns the tokens of each word on this base; EUSAGE: a word has none, or two words have the
 * same. */
kvf_status kvf__verbalizer_tokens(kvf_ctx *ctx, const kvf_base *base, char *const *words, size_t n,
                                  kvf__phrases *out);
/* Returns whether each class needs a row of its own, instead of being a score of one row. */
bool kvf__phrases_needed(const kvf_base *base, const kvf__phrases *tokens);
/* Sets up reading of rows for the words of a prefix, if any: fills *tokens, which *load borrows. */
kvf_status kvf__verbalizer_rows(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                                kvf__phrases *tokens, kvf__dataset_options *load);
/* Creates the head that reads them. EUSAGE as above; EUNSUPPORTED: the base has none. */
kvf_status kvf__verbalizer_head(kvf_ctx *ctx, const kvf_base *base, char *const *words, size_t n,
                                kvf__head **out);

#endif
