/* Values of configs that more than one reader checks. */
#include "config_value.h"

#include <math.h>

kvf_status kvf__config_bad(const kvf__config *c, kvf_status status, const char *key,
                           const kvf_json *value, const char *expected)
{
    char *text = kvf_json_text(value, KVF_JSON_COMPACT);

    kvf__fail(c->ctx, status, "%s: %s is %.60s, expected %s", c->where, key, text ? text : "?",
              expected);
    kvf_json_text_free(text);
    return status;
}

kvf_status kvf__config_real(const kvf__config *c, const kvf_json *object, const char *key,
                            double otherwise, double *out)
{
    const kvf_json *value = kvf_json_get(object, key);
    kvf_json_type type = kvf_json_typeof(value);

    *out = otherwise;
    if (type == KVF_JSON_NONE || type == KVF_JSON_NULL) {
        if (isnan(otherwise))
            return kvf__fail(c->ctx, KVF_EFORMAT, "%s: %s is missing", c->where, key);
        return KVF_OK;
    }
    *out = kvf_json_real(value, NAN);
    if (!isfinite(*out)) return kvf__config_bad(c, KVF_EFORMAT, key, value, "a number");
    return KVF_OK;
}
