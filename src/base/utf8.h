/* UTF-8: reading, writing, checking, repair, for all folders. */
#ifndef KVF_UTF8_H
#define KVF_UTF8_H

#include "base_int.h"

enum { KVF__REPLACEMENT = 0xFFFD };
#define KVF__REPLACEMENT_UTF8 "\xEF\xBF\xBD"

/* Returns whether the byte is not the first of a character. */
static inline bool kvf__utf8_continues(char byte)
{
    return ((uint8_t)byte & 0xC0) == 0x80;
}

/* Reads the code point at s (n > 0 bytes left) and returns its length. Invalid: *cp = UINT32_MAX
 * and the length of the maximal subpart (Unicode 3.9, Table 3-7), which one U+FFFD replaces. */
size_t kvf__utf8_next(const char *s, size_t n, uint32_t *cp);
size_t kvf__utf8_put(char out[4], uint32_t cp);
size_t kvf__utf8_len(char first); /* length of a valid sequence */
size_t kvf__utf8_before(const char *s,
                        size_t at);              /* start of the code point that ends at `at` > 0 */
size_t kvf__utf8_valid(const char *s, size_t n); /* length of the valid beginning */
int64_t kvf__utf8_count(const char *s, size_t n); /* number of code points */
/* Return the first place from `at` on, or the last one down from `at`, with a character that is not
 * `is`. */
size_t kvf__utf8_skip(const char *s, size_t n, size_t at, bool (*is)(uint32_t cp));
size_t kvf__utf8_skip_back(const char *s, size_t at, bool (*is)(uint32_t cp));

/* Appends s with U+FFFD for every maximal subpart that is not UTF-8. */
kvf_status kvf__utf8_repair(kvf_ctx *ctx, const char *s, size_t n, kvf__buf *out);
/* Checks text. EDATA "where: byte 4 is 0xE9, want UTF-8"; with lines: "where:2: byte 4 of the line
 * ...". U+0000 is allowed. */
kvf_status kvf__utf8_check(kvf_ctx *ctx, const char *where, const char *text, size_t n, bool lines);

/* ---- lines ----------------------------------------------------------------------------------- */

/* Reads the line at *at without its end (LF, CRLF); false at the end of the text. */
bool kvf__next_line(const char *text, size_t bytes, size_t *at, const char **line, size_t *n);
bool kvf__is_blank_line(const char *line, size_t n); /* only spaces, tabs and CR */
/* Strips white space (spaces, tabs, line ends, U+00A0) from both ends. */
void kvf__trim_space(const char **text, size_t *n);

#endif
