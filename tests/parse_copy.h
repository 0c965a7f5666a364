/* Runs a parser of model files over bytes in memory; shared by the tests of both formats. */
#ifndef KVF_PARSE_COPY_H
#define KVF_PARSE_COPY_H

#include "file_int.h"

#include <stdlib.h>
#include <string.h>

typedef kvf_status (*parse_fn)(kvf_ctx *ctx, const char *where, const void *bytes, size_t n,
                               kvf__weights *weights);

/* Parses a copy of exactly n bytes, so that the sanitizer detects any access beyond. On success
 * reads every tensor. The source is called "mem". */
static kvf_status parse_copy(kvf_ctx *ctx, parse_fn parser, const void *bytes, size_t n)
{
    static volatile uint8_t sum; /* so that the reads happen */
    kvf__weights weights = {0};
    uint8_t *copy = malloc(n ? n : 1);

    if (n) memcpy(copy, bytes, n);
    kvf_status st = parser(ctx, "mem", copy, n, &weights);
    for (size_t i = 0; st == KVF_OK && i < weights.table.n; i++) {
        const kvf__view *view = &weights.table.items[i].view;
        for (size_t j = 0; j < kvf__view_bytes(view); j++)
            sum ^= ((const uint8_t *)view->data)[j];
    }
    kvf__weights_close(&weights);
    (void)sum;
    free(copy);
    return st;
}

#endif
