/* Character classes as in `tokenizers` (chars.c), with the deciding Unicode version where it
 * matters. */
#ifndef KVF_CHARS_H
#define KVF_CHARS_H

#include <stdbool.h>
#include <stdint.h>

bool kvf__is_space(uint32_t cp);       /* White_Space */
bool kvf__is_numeric(uint32_t cp);     /* category N */
bool kvf__is_punct(uint32_t cp);       /* ASCII punctuation and symbols, category P of Unicode 8 */
bool kvf__is_word(uint32_t cp);        /* \w of UTS 18 */
bool kvf__is_accent(uint32_t cp);      /* category M of Unicode 9 */
bool kvf__is_mark(uint32_t cp);        /* category M */
bool kvf__is_nonspacing(uint32_t cp);  /* category Mn of Unicode 8 */
bool kvf__is_dropped(uint32_t cp);     /* controls of Unicode 8, removed by BERT's clean_text */
bool kvf__is_chinese(uint32_t cp);     /* BERT's definition of a Chinese character */
int kvf__combining_class(uint32_t cp); /* in Unicode 9 */
bool kvf__may_decompose(uint32_t cp);  /* false: no decomposition in Unicode 9 */
/* Returns whether a user-perceived character ends between two characters (UAX 29). state: 0 at its
 * first. */
bool kvf__is_break(uint32_t cp, uint32_t next, int32_t *state);
uint32_t kvf__lower(uint32_t cp); /* U+0130 becomes i, without its U+0307 */

#endif
