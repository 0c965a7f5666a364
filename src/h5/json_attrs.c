/* /options, /lineage, /state: one typed attribute per item of a JSON object of scalars, in the
 * object's order.
 *
 * Integers are i64, reals f64, text variable-length UTF-8, booleans h5py's enum. A non-finite real
 * is null in JSON, so null is stored as NaN. */
#include "artifact_priv.h"

#include <math.h>
#include <string.h>

enum { MAX_ATTRS = 4096 };

static void write_text(kvf__h5 *h5, kvf__h5_id at, const char *name, const kvf_json *value)
{
    size_t n = 0;
    const char *text = kvf_json_str(value, &n);

    if (strlen(text) != n)
        kvf__h5_fail(h5, at, KVF_EUSAGE,
                     "the text of \"%s\" contains a NUL, which an attribute cannot store", name);
    kvf__h5_put_text(h5, at, name, text);
}

static void write_one(kvf__h5 *h5, kvf__h5_id at, const char *name, const kvf_json *value)
{
    switch (kvf_json_typeof(value)) {
    case KVF_JSON_INT:
        kvf__h5_put_i64(h5, at, name, kvf_json_int(value, 0));
        break;
    case KVF_JSON_REAL:
    case KVF_JSON_NULL:
        kvf__h5_put_f64(h5, at, name, kvf_json_real(value, NAN));
        break;
    case KVF_JSON_BOOL:
        kvf__h5_put_bool(h5, at, name, kvf_json_bool(value, false));
        break;
    case KVF_JSON_STRING:
        write_text(h5, at, name, value);
        break;
    default:
        kvf__h5_fail(h5, at, KVF_EUSAGE,
                     "\"%s\" is a list or an object, only scalars can be attributes", name);
    }
}

void kvf__attrs_write(kvf__h5 *h5, kvf__h5_id parent, const char *name, const kvf_json *value)
{
    kvf_json *object = (kvf_json *)value; /* required by the iterator, which changes nothing */

    if (!value) return;
    kvf__h5_id group = kvf__h5_group_create(h5, parent, name);
    if (kvf_json_typeof(value) != KVF_JSON_OBJECT || kvf_json_size(value) > MAX_ATTRS)
        kvf__h5_fail(h5, group, KVF_EUSAGE, "want an object of at most %d scalars", MAX_ATTRS);
    for (void *it = h5->status ? NULL : kvf_json_iter(object); it; it = kvf_json_next(object, it))
        write_one(h5, group, kvf_json_iter_key(it), kvf_json_iter_value(it));
    kvf__h5_release(&group);
}

static kvf_json *read_text(kvf__h5 *h5, kvf__h5_id at, const char *name)
{
    char *text = kvf__h5_get_text(h5, at, name);
    kvf_json *value = text ? kvf_json_new_str(text) : NULL;

    kvf__free(text);
    return value;
}

static kvf_json *read_value(kvf__h5 *h5, kvf__h5_id at, const char *name)
{
    switch (kvf__h5_attr_type_of(h5, at, name)) {
    case KVF__H5_TEXT:
        return read_text(h5, at, name);
    case KVF__H5_I64:
        return kvf_json_new_int(kvf__h5_get_i64(h5, at, name));
    case KVF__H5_F64:
        return kvf_json_new_real(kvf__h5_get_f64(h5, at, name));
    case KVF__H5_BOOL:
        return kvf_json_new_bool(kvf__h5_get_bool(h5, at, name));
    }
    return NULL;
}

kvf_json *kvf__attrs_read(kvf__h5 *h5, kvf__h5_id parent, const char *name)
{
    if (!kvf__h5_has(h5, parent, name)) return NULL;
    kvf__h5_id group = kvf__h5_group_open(h5, parent, name);
    size_t n = kvf__h5_attr_count(h5, group);
    if (n > MAX_ATTRS)
        kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu attributes, want at most %d", n, MAX_ATTRS);
    kvf_json *object = kvf_json_object();
    char **keys = kvf__h5_attr_names(h5, group, n);
    for (size_t i = 0; i < n && !h5->status; i++)
        if (!kvf_json_set(object, keys[i], read_value(h5, group, keys[i])))
            kvf__h5_fail(h5, group, KVF_EFORMAT, "attribute \"%s\" is not UTF-8, or out of memory",
                         keys[i]);
    kvf__strings_free(keys, n);
    kvf__h5_release(&group);
    if (!h5->status) return object;
    kvf_json_free(object);
    return NULL;
}
