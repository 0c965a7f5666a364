/* JSON values, read strictly and written in one canonical form: a thin wrapper that hides jansson.
 *
 * Reading refuses duplicate keys, nesting deeper than 128, invalid UTF-8, NaN, and anything after
 * the value. Whole numbers outside int64 are read as reals (tokenizers carry a model_max_length of
 * 1e30). Objects keep the order of their keys. A kvf_json owned by a parent lives as long as the
 * root; kvf_json_free() takes roots only. All getters accept NULL and values of another type, and
 * then return an empty value: NULL, 0, the given default.
 *
 *     kvf_json *root = NULL;
 *     if (kvf_json_parse(ctx, "config.json", text, n, &root)) return 1;
 *     printf("%d wide\n", (int)kvf_json_int(kvf_json_get(root, "hidden_size"), -1));
 *     kvf_json_free(root);
 */
#ifndef KVFOLD_JSON_H
#define KVFOLD_JSON_H

#include <kvfold/base.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvf_json kvf_json;

typedef enum kvf_json_type {
    KVF_JSON_NONE, /* no value (NULL pointer) */
    KVF_JSON_NULL,
    KVF_JSON_BOOL,
    KVF_JSON_INT,
    KVF_JSON_REAL,
    KVF_JSON_STRING,
    KVF_JSON_ARRAY,
    KVF_JSON_OBJECT
} kvf_json_type;

/* Parses a text. where: source name in errors ("data.jsonl:17"). The root may be any value.
 * EFORMAT, ENOMEM. */
kvf_status kvf_json_parse(kvf_ctx *ctx, const char *where, const char *text, size_t bytes,
                          kvf_json **out);
/* Parses a whole file. EIO, EFORMAT, ENOMEM. */
kvf_status kvf_json_load(kvf_ctx *ctx, const char *path, kvf_json **out);
void kvf_json_free(kvf_json *root);

kvf_json_type kvf_json_typeof(const kvf_json *value);
kvf_json *kvf_json_get(const kvf_json *object, const char *key); /* view, NULL if absent */
size_t kvf_json_size(const kvf_json *container);                 /* members of array or object */
kvf_json *kvf_json_at(const kvf_json *array, size_t index);      /* view */
/* Integers only: 1.0 gives `otherwise`. */
int64_t kvf_json_int(const kvf_json *value, int64_t otherwise);
double kvf_json_real(const kvf_json *value, double otherwise); /* integers and reals */
bool kvf_json_bool(const kvf_json *value, bool otherwise);
/* bytes may be NULL. The text may contain NULs. */
const char *kvf_json_str(const kvf_json *value, size_t *bytes);

/* Visits an object's members in order:
 * `for (void *it = kvf_json_iter(o); it; it = kvf_json_next(o, it))`. */
void *kvf_json_iter(kvf_json *object);
void *kvf_json_next(kvf_json *object, void *iter);
const char *kvf_json_iter_key(void *iter);
kvf_json *kvf_json_iter_value(void *iter);

/* Building. set and add take ownership of `value` even if they fail. A NULL value (out of memory
 * earlier) makes them fail, so one check at the end suffices: the text of the root is NULL. */
kvf_json *kvf_json_object(void);
kvf_json *kvf_json_array(void);
kvf_json *kvf_json_new_null(void);
kvf_json *kvf_json_new_int(int64_t value);
kvf_json *kvf_json_new_real(double value); /* NaN and infinities become null */
kvf_json *kvf_json_new_bool(bool value);
kvf_json *kvf_json_new_str(const char *utf8); /* invalid UTF-8 is replaced by U+FFFD */
/* The same; the text may contain U+0000. */
kvf_json *kvf_json_new_strn(const char *utf8, size_t bytes);
bool kvf_json_set(kvf_json *object, const char *key, kvf_json *value);
bool kvf_json_add(kvf_json *array, kvf_json *value);
/* Removes a member, if present, and frees its value. */
void kvf_json_remove(kvf_json *object, const char *key);

typedef enum kvf_json_style {
    KVF_JSON_COMPACT = 0,
    KVF_JSON_INDENT = 1,
    KVF_JSON_SORTED = 2
} kvf_json_style;

/* Returns the text of a value, released with kvf_json_text_free(); NULL if out of memory. style:
 * or-ed flags of kvf_json_style. Equal values give equal bytes. Reals have the fewest digits that
 * read back equal, and always a point or an exponent. */
char *kvf_json_text(const kvf_json *value, unsigned style);
void kvf_json_text_free(char *text);

#ifdef __cplusplus
}
#endif
#endif
