/* Shared by json.c and json_build.c: a kvf_json is a json_t under an opaque name. Private to
 * src/base. */
#ifndef KVF_JSON_INT_H
#define KVF_JSON_INT_H

#include "base_int.h"

#include <jansson.h>

static inline const json_t *kvf__json_inner(const kvf_json *value)
{
    return (const json_t *)value;
}

/* Returns whether the value is the mark of a failed kvf_json_set() or kvf_json_add(). */
bool kvf__json_is_failed(const json_t *value);

#endif
