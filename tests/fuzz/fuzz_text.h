/* Shared functions of the tokenizer fuzz targets. */
#ifndef KVF_FUZZ_TEXT_H
#define KVF_FUZZ_TEXT_H

#include "fuzz.h"
#include "text_int.h"

/* The part of the input before the next byte 0x1e, which is skipped; not terminated. */
const char *fuzz_part(const uint8_t **at, size_t *left, size_t *n);
/* Runs all uses of a tokenizer by commands, on a fixed text and, if n > 0, on this one. */
void fuzz_use_tokenizer(const kvf__tokenizer *tokenizer, const char *text, size_t n);

#endif
