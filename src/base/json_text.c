/* JSON as text.
 *
 * The writer is independent of jansson because its bytes end up in files that are compared, and
 * jansson's spelling of reals depends on its version. Here reals have the fewest digits (15 to 17)
 * that read back as the same double. Only the escapes required by RFC 8259 are written; UTF-8 is
 * unchanged. */
#include "json_int.h"

#include <stdlib.h>
#include <string.h>

enum { INDENT = 2, REAL_BYTES = 64 };

typedef struct writer {
    kvf__buf text;
    unsigned style;
    size_t depth;
} writer;

static kvf_status write_value(writer *w, const json_t *value);

static kvf_status put(writer *w, const char *text)
{
    return kvf__buf_add(NULL, &w->text, text, strlen(text));
}

static kvf_status write_escape(writer *w, char c)
{
    static const char PLAIN[] = "\"\\\b\f\n\r\t", ESCAPED[] = "\"\\bfnrt";
    const char *found = c ? strchr(PLAIN, c) : NULL;

    if (found) return kvf__buf_printf(NULL, &w->text, "\\%c", ESCAPED[found - PLAIN]);
    return kvf__buf_printf(NULL, &w->text, "\\u%04x", c);
}

static kvf_status write_string(writer *w, const char *text, size_t n)
{
    size_t plain = 0; /* start of the unwritten part */

    KVF_TRY(put(w, "\""));
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        KVF_TRY(kvf__buf_add(NULL, &w->text, text + plain, i - plain));
        KVF_TRY(write_escape(w, text[i]));
        plain = i + 1;
    }
    KVF_TRY(kvf__buf_add(NULL, &w->text, text + plain, n - plain));
    return put(w, "\"");
}

/* Replaces the locale's decimal point, one or more bytes, by a dot. */
static void use_dot(char *text)
{
    char *point = text + strspn(text, "0123456789+-e");
    size_t n = strcspn(point, "0123456789");

    if (n == 0) return;
    *point = '.';
    memmove(point + 1, point + n, strlen(point + n) + 1);
}

static kvf_status write_real(writer *w, double value)
{
    char text[REAL_BYTES];

    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    use_dot(text);
    if (!strpbrk(text, ".e")) strcat(text, ".0"); /* else it would read back as an integer */
    return put(w, text);
}

static kvf_status write_break(writer *w)
{
    if (!(w->style & KVF_JSON_INDENT)) return KVF_OK;
    KVF_TRY(put(w, "\n"));
    for (size_t i = 0; i < w->depth * INDENT; i++)
        KVF_TRY(put(w, " "));
    return KVF_OK;
}

static kvf_status write_array(writer *w, const json_t *array)
{
    size_t n = json_array_size(array);

    if (n == 0) return put(w, "[]");
    KVF_TRY(put(w, "["));
    w->depth++;
    for (size_t i = 0; i < n; i++) {
        if (i) KVF_TRY(put(w, ","));
        KVF_TRY(write_break(w));
        KVF_TRY(write_value(w, json_array_get(array, i)));
    }
    w->depth--;
    KVF_TRY(write_break(w));
    return put(w, "]");
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Lists the keys of a non-empty object in order; the caller frees the list. */
static kvf_status list_keys(const writer *w, json_t *object, const char ***out)
{
    size_t n = 0;
    const char **keys;

    KVF_TRY(kvf__alloc_array(NULL, json_object_size(object), sizeof *keys, &keys));
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it))
        keys[n++] = json_object_iter_key(it);
    if (w->style & KVF_JSON_SORTED) qsort(keys, n, sizeof *keys, compare_keys);
    *out = keys;
    return KVF_OK;
}

static kvf_status write_member(writer *w, const json_t *object, const char *key)
{
    KVF_TRY(write_break(w));
    KVF_TRY(write_string(w, key, strlen(key)));
    KVF_TRY(put(w, w->style & KVF_JSON_INDENT ? ": " : ":"));
    return write_value(w, json_object_get(object, key));
}

static kvf_status write_object(writer *w, const json_t *object)
{
    size_t n = json_object_size(object);
    const char **keys = NULL;

    if (n == 0) return put(w, "{}");
    kvf_status st = list_keys(w, (json_t *)(uintptr_t)object, &keys);
    if (st) goto out;
    st = put(w, "{");
    w->depth++;
    for (size_t i = 0; i < n && !st; i++) {
        if (i) st = put(w, ",");
        if (!st) st = write_member(w, object, keys[i]);
    }
    w->depth--;
    if (!st) st = write_break(w);
    if (!st) st = put(w, "}");
out:
    kvf__free(keys);
    return st;
}

static kvf_status write_value(writer *w, const json_t *value)
{
    if (!value) return KVF_EINTERNAL;
    switch (json_typeof(value)) {
    case JSON_NULL:
        return put(w, "null");
    case JSON_TRUE:
        return put(w, "true");
    case JSON_FALSE:
        return put(w, "false");
    case JSON_INTEGER:
        return kvf__buf_printf(NULL, &w->text, "%lld", (long long)json_integer_value(value));
    case JSON_REAL:
        return write_real(w, json_real_value(value));
    case JSON_STRING:
        if (kvf__json_is_failed(value)) return KVF_EINTERNAL;
        return write_string(w, json_string_value(value), json_string_length(value));
    case JSON_ARRAY:
        return write_array(w, value);
    case JSON_OBJECT:
        return write_object(w, value);
    }
    return KVF_EINTERNAL;
}

char *kvf_json_text(const kvf_json *value, unsigned style)
{
    writer w = {.style = style};

    if (write_value(&w, kvf__json_inner(value)) == KVF_OK) return w.text.data;
    kvf__buf_done(&w.text);
    return NULL;
}

void kvf_json_text_free(char *text)
{
    kvf__free(text);
}
