/* Builds and reads JSON results. */
#ifndef KVF_JSON_HOOKS_H
#define KVF_JSON_HOOKS_H

#include <kvfold/json.h>

/* Makes an object from a format such as "steps:I loss:f"; kvf__json_put() adds members to an
 * object. Types: s a text, I an int64_t, f a double (null if not finite), b a bool, o a kvf_json,
 * which is taken over. */
kvf_json *kvf__json_of(const char *format, ...);
void kvf__json_put(kvf_json *object, const char *format, ...);

/* Returns members of an object; "", 0 or NaN if absent. */
const char *kvf__text_at(const kvf_json *object, const char *key);
long long kvf__int_at(const kvf_json *object, const char *key);
double kvf__real_at(const kvf_json *object, const char *key);

/* Returns a copy that the caller owns. */
kvf_json *kvf__json_copy(const kvf_json *value);

#endif
