/* Work over whole runs and files.
 *
 *     kvf_json *found = NULL;
 *     kvf_words_options options = {.top = 5};
 *     if (kvf_words(ctx, base, prefix, &options, &found)) return 1;
 *     ...
 *     kvf_json_free(found); */
#ifndef KVFOLD_STUDY_H
#define KVFOLD_STUDY_H

#include <kvfold/json.h>
#include <kvfold/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvf_words_options {
    int64_t top;   /* items named for each; 0: 5 */
    int64_t chunk; /* vocabulary items run at once; 0: 256 */
} kvf_words_options;

/* What a prefix says: for each layer and virtual token the vocabulary items whose own key, and
 * whose own value, is nearest by cosine, as the base computes them for the item alone as a row.
 * Keys are compared without rope, those of tokens at position 0. Of virtual tokens at the input:
 * the nearest token embeddings. *out, the caller's: {"kind", "top", "layers": [{"layer", "tokens":
 * [{"key":
 * [{"text", "id", "cosine"}], "value": [...]}]}]} or {"kind", "top", "tokens": [{"nearest":
 * [...]}]}. EUSAGE: the file holds neither. */
kvf_status kvf_words(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                     const kvf_words_options *options, kvf_json **out);

#ifdef __cplusplus
}
#endif
#endif
