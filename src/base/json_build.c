/* Building JSON.
 *
 * A build is checked once, at its end. If a value could not be made or added, the container
 * receives an invalid string, so the text of the root is NULL (json_text.c). */
#include "json_int.h"
#include "json_pack.h"
#include "utf8.h"

#include <math.h>
#include <string.h>

/* Invalid UTF-8, which jansson's checked calls never produce. */
static const char FAILED[] = "\xff";

bool kvf__json_is_failed(const json_t *value)
{
    return json_is_string(value) && !strcmp(json_string_value(value), FAILED);
}

kvf_json *kvf_json_object(void)
{
    return (kvf_json *)json_object();
}

kvf_json *kvf_json_array(void)
{
    return (kvf_json *)json_array();
}

kvf_json *kvf_json_new_null(void)
{
    return (kvf_json *)json_null();
}

kvf_json *kvf_json_new_int(int64_t value)
{
    return (kvf_json *)json_integer(value);
}

kvf_json *kvf_json_new_real(double value)
{
    return isfinite(value) ? (kvf_json *)json_real(value) : kvf_json_new_null();
}

kvf_json *kvf_json_new_bool(bool value)
{
    return (kvf_json *)json_boolean(value);
}

kvf_json *kvf_json_new_str(const char *utf8)
{
    return utf8 ? kvf_json_new_strn(utf8, strlen(utf8)) : NULL;
}

kvf_json *kvf_json_new_strn(const char *utf8, size_t bytes)
{
    if (!utf8) return NULL;
    kvf__buf text = {0};
    json_t *string = json_stringn(utf8, bytes);
    kvf_status st = KVF_OK;

    if (string) return (kvf_json *)string;
    for (size_t at = 0, n; at < bytes && !st; at += n) { /* U+FFFD for each bad byte */
        uint32_t cp;
        n = kvf__utf8_next(utf8 + at, bytes - at, &cp);
        if (cp == UINT32_MAX) n = 1;
        st = cp == UINT32_MAX ? kvf__buf_add(NULL, &text, KVF__REPLACEMENT_UTF8, 3)
                              : kvf__buf_add(NULL, &text, utf8 + at, n);
    }
    if (!st && text.data) string = json_stringn(text.data, text.n);
    kvf__buf_done(&text);
    return (kvf_json *)string;
}

/* If memory is too short even for that string, the text will fail too. */
bool kvf_json_set(kvf_json *object, const char *key, kvf_json *value)
{
    json_t *self = (json_t *)object;

    if (json_object_set_new(self, key, (json_t *)value) == 0) return true;
    json_object_set_new_nocheck(self, key, json_string_nocheck(FAILED));
    return false;
}

void kvf_json_remove(kvf_json *object, const char *key)
{
    json_object_del((json_t *)object, key);
}

bool kvf_json_add(kvf_json *array, kvf_json *value)
{
    json_t *self = (json_t *)array;

    if (json_array_append_new(self, (json_t *)value) == 0) return true;
    json_array_append_new(self, json_string_nocheck(FAILED));
    return false;
}

kvf_json *kvf__json_pack(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    json_t *value = json_vpack_ex(NULL, 0, format, args);
    va_end(args);
    return (kvf_json *)value;
}

kvf_json *kvf__json_ints(const int64_t *values, int64_t n)
{
    kvf_json *list = kvf_json_array();

    for (int64_t i = 0; i < n; i++)
        kvf_json_add(list, kvf_json_new_int(values[i]));
    return list;
}

kvf_json *kvf__json_reals(const double *values, int64_t n)
{
    kvf_json *list = kvf_json_array();

    for (int64_t i = 0; i < n; i++)
        kvf_json_add(list, kvf_json_new_real(values[i]));
    return list;
}

/* ---- objects --------------------------------------------------------------------------------- */

static kvf_json *next_value(char type, va_list *args)
{
    switch (type) {
    case 's':
        return kvf_json_new_str(va_arg(*args, const char *));
    case 'I':
        return kvf_json_new_int(va_arg(*args, int64_t));
    case 'f':
        return kvf_json_new_real(va_arg(*args, double));
    case 'b':
        return kvf_json_new_bool(va_arg(*args, int));
    default:
        return va_arg(*args, kvf_json *);
    }
}

static void add_members(kvf_json *object, const char *format, va_list *args)
{
    char key[64];
    for (const char *at = format; *at; at += *at == ' ') {
        const size_t n = strcspn(at, ":");
        snprintf(key, sizeof key, "%.*s", (int)n, at);
        kvf_json_set(object, key, next_value(at[n + 1], args));
        at += n + 2;
    }
}

kvf_json *kvf__json_of(const char *format, ...)
{
    kvf_json *object = kvf_json_object();
    va_list args;
    va_start(args, format);
    add_members(object, format, &args);
    va_end(args);
    return object;
}

void kvf__json_put(kvf_json *object, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_members(object, format, &args);
    va_end(args);
}

kvf_json *kvf__json_copy(const kvf_json *value)
{
    return (kvf_json *)json_deep_copy(kvf__json_inner(value));
}
