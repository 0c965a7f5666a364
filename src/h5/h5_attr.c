/* Scalar attributes: text, i64, f64, bool; and small arrays of bytes.
 *
 * Text is variable-length UTF-8, because h5py reads fixed-length text as bytes; booleans are h5py's
 * enum FALSE, TRUE. A reader accepts any width of integer or float that converts without loss, but
 * no other class. */
#include "h5_raw.h"

#include <string.h>

static hid_t bool_type(void)
{
    hid_t type = H5Tenum_create(H5T_NATIVE_INT8);
    int8_t value = 0;

    H5Tenum_insert(type, "FALSE", &value);
    value = 1;
    H5Tenum_insert(type, "TRUE", &value);
    return type;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Closes type and space. */
static void put(kvf__h5 *h5, kvf__h5_id at, const char *name, hid_t type, hid_t space,
                const void *value)
{
    if (!h5->status) {
        hid_t attr = H5Acreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
        if (attr < 0 || H5Awrite(attr, type, value) < 0)
            kvf__h5_broken(h5, at, "cannot write the attribute \"%s\"", name);
        H5Aclose(attr);
    }
    H5Sclose(space);
    H5Tclose(type);
}

static void put_scalar(kvf__h5 *h5, kvf__h5_id at, const char *name, hid_t type, const void *value)
{
    put(h5, at, name, type, H5Screate(H5S_SCALAR), value);
}

void kvf__h5_put_text(kvf__h5 *h5, kvf__h5_id at, const char *name, const char *utf8)
{
    put_scalar(h5, at, name, kvf__h5_text_type(), &utf8);
}

void kvf__h5_put_i64(kvf__h5 *h5, kvf__h5_id at, const char *name, int64_t value)
{
    put_scalar(h5, at, name, H5Tcopy(H5T_STD_I64LE), &value);
}

void kvf__h5_put_f64(kvf__h5 *h5, kvf__h5_id at, const char *name, double value)
{
    put_scalar(h5, at, name, H5Tcopy(H5T_IEEE_F64LE), &value);
}

void kvf__h5_put_bool(kvf__h5 *h5, kvf__h5_id at, const char *name, bool value)
{
    int8_t byte = value;
    put_scalar(h5, at, name, bool_type(), &byte);
}

void kvf__h5_put_u8s(kvf__h5 *h5, kvf__h5_id at, const char *name, const uint8_t *values, int64_t n)
{
    hsize_t dim = (hsize_t)n;
    put(h5, at, name, H5Tcopy(H5T_STD_U8LE), H5Screate_simple(1, &dim, NULL), values);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* One open attribute with its type and space. */
typedef struct opened {
    hid_t attr, type, space;
    H5T_class_t class;
    size_t size;
} opened;

static void done(opened *a)
{
    H5Sclose(a->space);
    H5Tclose(a->type);
    H5Aclose(a->attr);
}

/* False: absent, or cannot be opened; there is then nothing to close. */
static bool open_attr(kvf__h5 *h5, kvf__h5_id at, const char *name, opened *out)
{
    opened a = {.attr = H5I_INVALID_HID, .type = H5I_INVALID_HID, .space = H5I_INVALID_HID};

    if (!kvf__h5_has_attr(h5, at, name))
        kvf__h5_fail(h5, at, KVF_EFORMAT, "attribute \"%s\" is missing", name);
    if (h5->status) return false;
    a.attr = H5Aopen(at, name, H5P_DEFAULT);
    if (a.attr >= 0) a.type = H5Aget_type(a.attr);
    if (a.type >= 0) a.space = H5Aget_space(a.attr);
    if (a.space < 0) {
        kvf__h5_broken(h5, at, "cannot open the attribute \"%s\"", name);
        done(&a);
        return false;
    }
    a.class = H5Tget_class(a.type);
    a.size = H5Tget_size(a.type);
    *out = a;
    return true;
}

static bool is_scalar(const opened *a)
{
    return H5Sget_simple_extent_type(a->space) == H5S_SCALAR;
}

static bool is_bool(const opened *a)
{
    char first[8], second[8];

    if (a->class != H5T_ENUM || a->size != 1 || H5Tget_nmembers(a->type) != 2) return false;
    hid_t base = H5Tget_super(a->type);
    bool fits = H5Tget_class(base) == H5T_INTEGER &&
                H5Tenum_nameof(a->type, &(int8_t){0}, first, sizeof first) >= 0 &&
                H5Tenum_nameof(a->type, &(int8_t){1}, second, sizeof second) >= 0 &&
                strcmp(first, "FALSE") == 0 && strcmp(second, "TRUE") == 0;
    H5Tclose(base);
    return fits;
}

/* Returns whether a value of that attribute may be read as `want`. */
static bool fits_type(const opened *a, kvf__h5_attr_type want)
{
    switch (want) {
    case KVF__H5_TEXT:
        return kvf__h5_is_text(a->type);
    case KVF__H5_I64:
        return a->class == H5T_INTEGER &&
               (a->size < 8 || (a->size == 8 && H5Tget_sign(a->type) == H5T_SGN_2));
    case KVF__H5_F64:
        return a->class == H5T_FLOAT && a->size <= 8;
    case KVF__H5_BOOL:
        return is_bool(a);
    }
    return false;
}

static const char *type_text(kvf__h5_attr_type type)
{
    static const char *const TEXT[] = {"variable-length text", "an integer", "a float",
                                       "a boolean (enum FALSE, TRUE)"};
    return TEXT[type];
}

static void get_scalar(kvf__h5 *h5, kvf__h5_id at, const char *name, kvf__h5_attr_type want,
                       hid_t memory, void *value)
{
    opened a;

    if (!open_attr(h5, at, name, &a)) return;
    if (!is_scalar(&a) || !fits_type(&a, want))
        kvf__h5_fail(h5, at, KVF_EFORMAT,
                     "attribute \"%s\" is not a scalar of the right type, want %s", name,
                     type_text(want));
    else if (H5Aread(a.attr, memory, value) < 0)
        kvf__h5_broken(h5, at, "cannot read the attribute \"%s\"", name);
    done(&a);
}

bool kvf__h5_has_attr(kvf__h5 *h5, kvf__h5_id at, const char *name)
{
    htri_t there = h5->status ? 0 : H5Aexists(at, name);

    if (there < 0) kvf__h5_broken(h5, at, "cannot look for the attribute \"%s\"", name);
    return there > 0;
}

/* HDF5 returns its own block; an empty text is NULL. */
char *kvf__h5_get_text(kvf__h5 *h5, kvf__h5_id at, const char *name)
{
    hid_t type = kvf__h5_text_type();
    char *text = NULL, *copy = NULL;

    get_scalar(h5, at, name, KVF__H5_TEXT, type, &text);
    if (text) kvf__h5_claim(h5, at, strlen(text));
    KVF__H5_TRY(h5, kvf__strdup(h5->ctx, text ? text : "", &copy));
    H5free_memory(text);
    H5Tclose(type);
    return copy;
}

int64_t kvf__h5_get_i64(kvf__h5 *h5, kvf__h5_id at, const char *name)
{
    int64_t value = 0;

    get_scalar(h5, at, name, KVF__H5_I64, H5T_NATIVE_INT64, &value);
    return value;
}

double kvf__h5_get_f64(kvf__h5 *h5, kvf__h5_id at, const char *name)
{
    double value = 0;

    get_scalar(h5, at, name, KVF__H5_F64, H5T_NATIVE_DOUBLE, &value);
    return value;
}

bool kvf__h5_get_bool(kvf__h5 *h5, kvf__h5_id at, const char *name)
{
    hid_t type = bool_type();
    int8_t byte = 0;

    get_scalar(h5, at, name, KVF__H5_BOOL, type, &byte);
    H5Tclose(type);
    return byte != 0;
}

void kvf__h5_get_u8s(kvf__h5 *h5, kvf__h5_id at, const char *name, uint8_t *values, int64_t n)
{
    opened a;
    hsize_t dim = 0;

    if (!open_attr(h5, at, name, &a)) return;
    if (a.class != H5T_INTEGER || a.size != 1 || H5Sget_simple_extent_ndims(a.space) != 1 ||
        H5Sget_simple_extent_dims(a.space, &dim, NULL) != 1 || dim != (hsize_t)n)
        kvf__h5_fail(h5, at, KVF_EFORMAT, "attribute \"%s\" is not a list of %lld bytes (u8)", name,
                     (long long)n);
    else if (H5Aread(a.attr, H5T_NATIVE_UINT8, values) < 0)
        kvf__h5_broken(h5, at, "cannot read the attribute \"%s\"", name);
    done(&a);
}

/* ---- listing --------------------------------------------------------------------------------- */

/* The call that fills an H5O_info_t. */
#if H5_VERSION_GE(1, 12, 0)
#define GET_INFO H5Oget_info3
#else
#define GET_INFO H5Oget_info2
#endif

size_t kvf__h5_attr_count(kvf__h5 *h5, kvf__h5_id at)
{
    H5O_info_t info = {0};

    if (!h5->status && GET_INFO(at, &info, H5O_INFO_NUM_ATTRS) < 0)
        kvf__h5_broken(h5, at, "cannot list the attributes");
    return h5->status ? 0 : (size_t)info.num_attrs;
}

static herr_t add_name(hid_t at, const char *name, const H5A_info_t *info, void *list)
{
    (void)info;
    return kvf__h5_add_name(list, at, name);
}

char **kvf__h5_attr_names(kvf__h5 *h5, kvf__h5_id at, size_t n)
{
    kvf__h5_names list = kvf__h5_names_begin(h5, n);
    const H5_index_t index = h5->status ? H5_INDEX_NAME
                                        : kvf__h5_index(at, H5Pget_attr_creation_order);

    if (!h5->status && H5Aiterate2(at, index, H5_ITER_INC, NULL, add_name, &list) < 0)
        kvf__h5_broken(h5, at, "cannot list the attributes");
    return kvf__h5_names_end(&list, at);
}

kvf__h5_attr_type kvf__h5_attr_type_of(kvf__h5 *h5, kvf__h5_id at, const char *name)
{
    opened a;
    kvf__h5_attr_type type = KVF__H5_TEXT;

    if (!open_attr(h5, at, name, &a)) return type;
    while (type <= KVF__H5_BOOL && !(is_scalar(&a) && fits_type(&a, type)))
        type++;
    done(&a);
    if (type <= KVF__H5_BOOL) return type;
    kvf__h5_fail(h5, at, KVF_EFORMAT,
                 "attribute \"%s\" is no scalar text, integer, float or boolean", name);
    return KVF__H5_TEXT;
}
