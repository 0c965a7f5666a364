/* Between the files that read configs: values with their checks, and the part about rotary
 * positions. */
#ifndef KVF_CONFIG_VALUE_H
#define KVF_CONFIG_VALUE_H

#include "arch.h"

/* A config.json or the metadata of a GGUF. */
typedef struct kvf__config {
    kvf_ctx *ctx;
    const char *where;
    const kvf_json *root;
} kvf__config;

/* "WHERE: KEY is VALUE, expected EXPECTED"; returns status. */
kvf_status kvf__config_bad(const kvf__config *c, kvf_status status, const char *key,
                           const kvf_json *value, const char *expected);
/* A finite number of `object`; absent and null give `otherwise`, or EFORMAT if that is NAN. */
kvf_status kvf__config_real(const kvf__config *c, const kvf_json *object, const char *key,
                            double otherwise, double *out);
/* Fills desc->rope from a config.json; needs desc->max_positions. */
kvf_status kvf__config_rope(const kvf__config *c, kvf__desc *desc);

#endif
