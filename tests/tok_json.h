/* A tokenizer from a tokenizer.json and, unless NULL, a tokenizer_config.json in memory. */
#ifndef TOK_JSON_H
#define TOK_JSON_H

#include "text_int.h"

#include <stdlib.h>
#include <string.h>

static inline kvf_status tokenizer_from_json(kvf_ctx *ctx, const char *where, const char *json,
                                             size_t n, const char *config, size_t config_n,
                                             kvf__tokenizer **out)
{
    char *text = strndup(json, n), *more = config ? strndup(config, config_n) : NULL;
    const kvf__text_file files[] = {{"tokenizer.json", text}, {"tokenizer_config.json", more}};
    kvf_status st = kvf__tokenizer_from_texts(ctx, where, files, config ? 2 : 1, out);
    free(text);
    free(more);
    return st;
}

#endif
