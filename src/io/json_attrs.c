/* /options, /lineage, /state: one typed attribute per item of a JSON object of scalars, in the
 * object's order.
 *
 * Integers are i64, reals f64, text variable-length UTF-8, booleans h5py's enum. A real that is no
 * number is null in JSON, so null is stored as NaN. */
#include "h5_priv.h"

#include <math.h>
#include <string.h>

enum { MAX_ATTRS = 4096 };

static kvf_status write_text(kvf__h5 *h5, kvf__h5_id at, const char *name, const kvf_json *value)
{
    size_t n = 0;
    const char *text = kvf_json_str(value, &n);

    if (strlen(text) != n)
        return kvf__h5_fail(h5, at, KVF_EUSAGE,
                            "text of \"%s\" holds a NUL, which an attribute cannot", name);
    return kvf__h5_put_text(h5, at, name, text);
}

static kvf_status write_one(kvf__h5 *h5, kvf__h5_id at, const char *name, const kvf_json *value)
{
    switch (kvf_json_typeof(value)) {
    case KVF_JSON_INT:
        return kvf__h5_put_i64(h5, at, name, kvf_json_int(value, 0));
    case KVF_JSON_REAL:
        return kvf__h5_put_f64(h5, at, name, kvf_json_real(value, NAN));
    case KVF_JSON_NULL:
        return kvf__h5_put_f64(h5, at, name, NAN);
    case KVF_JSON_BOOL:
        return kvf__h5_put_bool(h5, at, name, kvf_json_bool(value, false));
    case KVF_JSON_STRING:
        return write_text(h5, at, name, value);
    default:
        return kvf__h5_fail(h5, at, KVF_EUSAGE,
                            "\"%s\" is a list or an object, only scalars can be attributes", name);
    }
}

kvf_status kvf__attrs_write(kvf__h5 *h5, kvf__h5_id parent, const char *name, const kvf_json *value)
{
    kvf_json *object = (kvf_json *)value; /* the iterator wants it so, and changes nothing */
    kvf__h5_id group = KVF__H5_NONE;
    kvf_status st;

    if (!value) return KVF_OK;
    st = kvf__h5_group_create(h5, parent, name, &group);
    if (st) goto out;
    if (kvf_json_typeof(value) != KVF_JSON_OBJECT || kvf_json_size(value) > MAX_ATTRS) {
        st = kvf__h5_fail(h5, group, KVF_EUSAGE, "want an object of at most %d scalars", MAX_ATTRS);
        goto out;
    }
    for (void *it = kvf_json_iter(object); it; it = kvf_json_next(object, it)) {
        st = write_one(h5, group, kvf_json_iter_key(it), kvf_json_iter_value(it));
        if (st) goto out;
    }
out:
    kvf__h5_release(&group);
    return st;
}

static kvf_status read_value(kvf__h5 *h5, kvf__h5_id at, const char *name, kvf_json **out)
{
    kvf__h5_attr_type type = KVF__H5_TEXT;
    char *text = NULL;
    int64_t integer = 0;
    double real = 0;
    bool truth = false;

    KVF_TRY(kvf__h5_attr_type_of(h5, at, name, &type));
    switch (type) {
    case KVF__H5_TEXT:
        KVF_TRY(kvf__h5_get_text(h5, at, name, &text));
        *out = kvf_json_new_str(text);
        kvf__free(text);
        break;
    case KVF__H5_I64:
        KVF_TRY(kvf__h5_get_i64(h5, at, name, &integer));
        *out = kvf_json_new_int(integer);
        break;
    case KVF__H5_F64:
        KVF_TRY(kvf__h5_get_f64(h5, at, name, &real));
        *out = kvf_json_new_real(real);
        break;
    case KVF__H5_BOOL:
        KVF_TRY(kvf__h5_get_bool(h5, at, name, &truth));
        *out = kvf_json_new_bool(truth);
        break;
    }
    return KVF_OK;
}

static kvf_status read_one(kvf__h5 *h5, kvf__h5_id at, size_t index, kvf_json *object)
{
    char *name = NULL;
    kvf_json *value = NULL;
    kvf_status st;

    st = kvf__h5_attr_name(h5, at, index, &name);
    if (st) goto out;
    st = read_value(h5, at, name, &value);
    if (st) goto out;
    if (!kvf_json_set(object, name, value))
        st = kvf__h5_fail(h5, at, KVF_EFORMAT, "attribute \"%s\" is not UTF-8, or memory is short",
                          name);
out:
    kvf__free(name);
    return st;
}

kvf_status kvf__attrs_read(kvf__h5 *h5, kvf__h5_id parent, const char *name, kvf_json **out)
{
    kvf__h5_id group = KVF__H5_NONE;
    kvf_json *object = NULL;
    size_t n = 0;
    bool there = false;
    kvf_status st;

    KVF_TRY(kvf__h5_has(h5, parent, name, &there));
    if (!there) return KVF_OK;
    st = kvf__h5_group_open(h5, parent, name, &group);
    if (st) goto out;
    st = kvf__h5_attr_count(h5, group, &n);
    if (st) goto out;
    if (n > MAX_ATTRS) {
        st = kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu attributes, want at most %d", n, MAX_ATTRS);
        goto out;
    }
    object = kvf_json_object();
    for (size_t i = 0; i < n && !st; i++)
        st = read_one(h5, group, i, object);
    if (st) goto out;
    *out = object;
    object = NULL;
out:
    kvf_json_free(object);
    kvf__h5_release(&group);
    return st;
}
