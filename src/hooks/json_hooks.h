/* JSON that results are made of: objects by a format, members of objects. */
#ifndef KVF_JSON_HOOKS_H
#define KVF_JSON_HOOKS_H

#include <kvfold/json.h>

/* An object with members by a format, "steps:I loss:f": s a text, I an int64_t, f a double (null
 * where it is not finite), b a bool, o a kvf_json, which is taken over. And further members. */
kvf_json *kvf__json_of(const char *format, ...);
void kvf__json_put(kvf_json *object, const char *format, ...);

/* Members of an object, where absent "", 0 or NaN. */
const char *kvf__text_at(const kvf_json *object, const char *key);
long long kvf__int_at(const kvf_json *object, const char *key);
double kvf__real_at(const kvf_json *object, const char *key);

/* One again, to be owned. */
kvf_json *kvf__json_copy(const kvf_json *value);

#endif
