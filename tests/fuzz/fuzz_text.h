/* What the targets of tokenizers share. */
#ifndef KVF_FUZZ_TEXT_H
#define KVF_FUZZ_TEXT_H

#include "fuzz.h"
#include "text_int.h"

/* The part of the input before the next byte 0x1e, which is passed over; not terminated. */
const char *fuzz_part(const uint8_t **at, size_t *left, size_t *n);
/* Everything a command does with a tokenizer, on a fixed text and on this one, if n is not 0. */
void fuzz_use_tokenizer(const kvf__tokenizer *tokenizer, const char *text, size_t n);

#endif
