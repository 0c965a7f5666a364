/* Words of texts for the metrics of answers and texts, as numbers. */
#ifndef KVF_WORDS_H
#define KVF_WORDS_H

#include "map.h"
#include "metric_int.h"

/* One text of the rows. */
typedef struct kvf__phrase {
    const char *text;
    size_t n;
} kvf__phrase;
kvf__phrase kvf__predicted(const kvf__text_rows *rows, int64_t i);
kvf__phrase kvf__reference(const kvf__text_rows *rows, int64_t i);

/* Functions that split a text into words. Each appends the words, one space after each. */
typedef kvf_status kvf__cut_fn(kvf_ctx *ctx, kvf__phrase text, kvf__buf *out);
kvf__cut_fn kvf__cut_answer; /* SQuAD's normalisation */
kvf__cut_fn kvf__cut_13a;    /* mteval-v13a, as in sacrebleu */
kvf__cut_fn kvf__cut_rouge;  /* lower-case runs of a-z and 0-9 */

/* Numbers words in order of occurrence. {0} is empty. */
typedef struct kvf__vocabulary {
    kvf__map map;
    kvf__buf text; /* workspace */
} kvf__vocabulary;
/* Sets *ids to the words of `text`. */
kvf_status kvf__words(kvf_ctx *ctx, kvf__vocabulary *vocabulary, kvf__cut_fn *cut, kvf__phrase text,
                      kvf__ids *ids);
void kvf__vocabulary_done(kvf__vocabulary *vocabulary);

/* ---- Unicode as in Python's str -------------------------------------------------------------- */

/* Sets *out to the code points of UTF-8; invalid bytes give U+FFFD. */
kvf_status kvf__code_points(kvf_ctx *ctx, kvf__phrase text, kvf__ids *out);
/* Sets *out as str.lower(): full mapping, final sigma. */
kvf_status kvf__py_lower(kvf_ctx *ctx, const kvf__ids *text, kvf__ids *out);
bool kvf__py_space(int32_t c); /* separators of str.split() */
bool kvf__py_word(int32_t c);  /* \w of a pattern */
kvf_status kvf__put_code_point(kvf_ctx *ctx, kvf__buf *out, int32_t c);

/* EDATA: no rows; or with `needs_reference` a row without one. */
kvf_status kvf__check_texts(kvf_ctx *ctx, const kvf__text_rows *rows, bool needs_reference);

#endif
