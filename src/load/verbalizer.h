/* Classes as words of a base (--verbalizer, verbalizer.c). */
#ifndef KVF_VERBALIZER_H
#define KVF_VERBALIZER_H

#include "data_int.h"
#include "open_prefix.h"

/* Of "label=word,..." a word for each label, [n] texts to free; EUSAGE names a label without one.
 */
kvf_status kvf__verbalizer_words(kvf_ctx *ctx, const char *text, char *const *labels, size_t n,
                                 char ***out);
/* The labels that the text names, in the order of labels that are learnt. EUSAGE. */
kvf_status kvf__verbalizer_labels(kvf_ctx *ctx, const char *text, kvf__label_set *out);
/* The tokens of each word on this base; EUSAGE: one has none, or two have the same. */
kvf_status kvf__verbalizer_tokens(kvf_ctx *ctx, const kvf_base *base, char *const *words, size_t n,
                                  kvf__phrases *out);
/* Are classes rows of their own there, not scores of one? */
bool kvf__phrases_needed(const kvf_base *base, const kvf__phrases *tokens);
/* How rows are read for the words of a prefix, if it has some: fills *tokens, which *load views. */
kvf_status kvf__verbalizer_rows(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                                kvf__phrases *tokens, kvf__dataset_options *load);
/* The head that reads them. EUSAGE as above; EUNSUPPORTED: the base has none. */
kvf_status kvf__verbalizer_head(kvf_ctx *ctx, const kvf_base *base, char *const *words, size_t n,
                                kvf__head **out);

#endif
