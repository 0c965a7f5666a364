/* Building JSON.
 *
 * A build is checked once, at its end: where a value could not be made or placed, a mark is put
 * into the container that no text exists for, and so the text of the root is NULL (json_text.c). */
#include "json_int.h"

#include <math.h>
#include <string.h>

/* Of no JSON type; the count says "never freed", as in jansson's own true, false and null. */
static const json_t MARK = {.type = (json_type)99, .refcount = (size_t)-1};

static json_t *mark(void)
{
    return (json_t *)(uintptr_t)&MARK;
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

/* Bytes of the well-formed sequence at text [left] (RFC 3629: no overlong forms, no surrogates); 0
 * if there is none. */
static size_t utf8_length(const unsigned char *text, size_t left)
{
    unsigned char c = text[0], low = 0x80, high = 0xbf;
    size_t n;

    if (c < 0x80) return 1;
    if (c >= 0xc2 && c <= 0xdf)
        n = 2;
    else if (c >= 0xe0 && c <= 0xef)
        n = 3;
    else if (c >= 0xf0 && c <= 0xf4)
        n = 4;
    else
        return 0;
    if (c == 0xe0) low = 0xa0;
    if (c == 0xed) high = 0x9f;
    if (c == 0xf0) low = 0x90;
    if (c == 0xf4) high = 0x8f;
    if (n > left || text[1] < low || text[1] > high) return 0;
    for (size_t i = 2; i < n; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    return n;
}

kvf_json *kvf_json_new_str(const char *utf8)
{
    return utf8 ? kvf_json_new_strn(utf8, strlen(utf8)) : NULL;
}

kvf_json *kvf_json_new_strn(const char *utf8, size_t bytes)
{
    kvf__buf text = {0};
    json_t *string = json_stringn(utf8, bytes);
    kvf_status st = KVF_OK;

    if (string) return (kvf_json *)string;
    for (const char *end = utf8 + bytes; utf8 < end && !st;) {
        size_t n = utf8_length((const unsigned char *)utf8, (size_t)(end - utf8));
        st = n ? kvf__buf_add(NULL, &text, utf8, n) : kvf__buf_add(NULL, &text, "\xef\xbf\xbd", 3);
        utf8 += n ? n : 1;
    }
    if (!st && text.data) string = json_stringn(text.data, text.n);
    kvf__buf_done(&text);
    return (kvf_json *)string;
}

/* Should not even the mark find room, the text will not either. */
bool kvf_json_set(kvf_json *object, const char *key, kvf_json *value)
{
    json_t *self = (json_t *)object;

    if (json_object_set_new(self, key, (json_t *)value) == 0) return true;
    json_object_set_new_nocheck(self, key, mark());
    return false;
}

bool kvf_json_add(kvf_json *array, kvf_json *value)
{
    json_t *self = (json_t *)array;

    if (json_array_append_new(self, (json_t *)value) == 0) return true;
    json_array_append_new(self, mark());
    return false;
}
