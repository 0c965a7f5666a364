/* The key-value section of a GGUF file: scalars become JSON, arrays stay in the map.
 *
 * Only arrays of up to 64 elements are copied into the JSON. A vocabulary would be larger there
 * than in the file, and no reader needs it. So the JSON stays within a small multiple of the file's
 * size. */
#include "gguf_int.h"
#include "json_pack.h"

#include <string.h>

enum { MAX_KEY_BYTES = 65535, MAX_INLINE = 64 };
#define MAX_ARRAY (UINT64_C(1) << 30)

const kvf__gguf_type kvf__gguf_types[KVF__GGUF_TYPES] = {
#define VALUE_TYPE(id, value, text, bytes, form) [value] = {text, bytes, form},
    KVF__GGUF_TYPE_LIST(VALUE_TYPE)
#undef VALUE_TYPE
};

/* The current key. */
typedef struct gguf_entry {
    kvf__gguf *g;
    char *key; /* NUL-terminated copy */
    const char *key_at;
    size_t key_n;
    kvf__buf scratch;
} gguf_entry;

static kvf_status bad(const gguf_entry *e, kvf_status status, const char *what)
{
    return kvf__fail(e->g->ctx, status, "%s: metadata \"%.80s\": %s", e->g->where, e->key, what);
}

const char *kvf__gguf_read_string(kvf__reader *r, size_t *n)
{
    const uint64_t max_string = UINT64_C(1) << 30;
    uint64_t length = kvf__read_u64(r);

    if (length > max_string) r->failed = true;
    *n = r->failed ? 0 : (size_t)length;
    return (const char *)kvf__read_bytes(r, *n);
}

kvf__gguf_number kvf__gguf_read_number(kvf__reader *r, uint32_t type)
{
    const size_t bytes = kvf__gguf_types[type].bytes;
    const int unused = 64 - 8 * (int)bytes;
    kvf__gguf_number number = {0};

    if (type == KVF__GGUF_F32 || type == KVF__GGUF_F64) {
        number.is_real = true;
        number.real = type == KVF__GGUF_F32 ? (double)kvf__read_f32(r) : kvf__read_f64(r);
        return number;
    }
    const uint64_t bits = kvf__read_little(r, bytes);
    switch (kvf__gguf_types[type].form) {
    case 'b': /* any nonzero byte is true, as in the reference reader */
        number.integer = bits != 0;
        break;
    case 'i': /* shifts the sign bit to the top and back */
        number.integer = (int64_t)(bits << unused) >> unused;
        break;
    default:
        number.is_big = bits > INT64_MAX;
        number.integer = number.is_big ? 0 : (int64_t)bits;
        number.real = (double)bits;
    }
    return number;
}

/* Reads a string into the NUL-terminated scratch buffer; an inner NUL (invalid text) becomes
 * '?'. */
static kvf_status read_string(gguf_entry *e, kvf_json **out)
{
    kvf__reader *r = &e->g->r;
    size_t n;
    const char *text = kvf__gguf_read_string(r, &n);

    if (!text)
        return bad(e, KVF_EFORMAT, "the text is longer than the rest of the file, or than 1 GiB");
    e->scratch.n = 0;
    KVF_TRY(kvf__buf_add(e->g->ctx, &e->scratch, text, n));
    for (char *c = e->scratch.data; n && (c = memchr(c, '\0', (size_t)(e->scratch.data + n - c)));)
        *c = '?';
    *out = kvf_json_new_str(e->scratch.data ? e->scratch.data : "");
    return KVF_OK;
}

/* *out may become NULL if out of memory; adding it to its parent then fails. */
static kvf_status read_scalar(gguf_entry *e, uint32_t type, kvf_json **out)
{
    if (type == KVF__GGUF_STRING) return read_string(e, out);
    kvf__gguf_number number = kvf__gguf_read_number(&e->g->r, type);
    if (e->g->r.failed) return bad(e, KVF_EFORMAT, "the file ends here");
    if (type == KVF__GGUF_BOOL)
        *out = kvf_json_new_bool(number.integer != 0);
    else if (number.is_real || number.is_big)
        *out = kvf_json_new_real(number.real);
    else
        *out = kvf_json_new_int(number.integer);
    return KVF_OK;
}

static kvf_status add_array(const gguf_entry *e, const struct kvf__gguf_kv *array)
{
    kvf__weights *w = e->g->weights;

    if ((w->n_arrays & (w->n_arrays - 1)) == 0) { /* 0 or a power of two: the array is full */
        size_t cap = w->n_arrays ? 2 * w->n_arrays : 1;
        KVF_TRY(kvf__grow(e->g->ctx, &w->arrays, w->n_arrays * sizeof *array, cap * sizeof *array));
    }
    w->arrays[w->n_arrays++] = *array;
    return KVF_OK;
}

static kvf_status skip_elements(gguf_entry *e, struct kvf__gguf_kv *array)
{
    kvf__reader *r = &e->g->r;
    size_t start = r->at, n;

    if (array->type == KVF__GGUF_STRING) {
        for (uint64_t i = 0; i < array->count && !r->failed; i++)
            kvf__gguf_read_string(r, &n);
    } else {
        kvf__read_bytes(r, (size_t)array->count * kvf__gguf_types[array->type].bytes);
    }
    if (r->failed)
        return bad(e, KVF_EFORMAT, "the file ends inside its array, or a text in it is too long");
    array->data = r->data + start;
    array->bytes = r->at - start;
    return KVF_OK;
}

/* Reads the elements, for the second time. */
static kvf_status list_elements(gguf_entry *e, const struct kvf__gguf_kv *array, kvf_json *list)
{
    e->g->r.at -= array->bytes;
    for (uint64_t i = 0; i < array->count; i++) {
        kvf_json *value = NULL;
        KVF_TRY(read_scalar(e, array->type, &value));
        if (!kvf_json_add(list, value)) return bad(e, KVF_ENOMEM, "out of memory");
    }
    return KVF_OK;
}

/* Copies short arrays; long ones become {"array": type, "count": n}. */
static kvf_status array_to_json(gguf_entry *e, const struct kvf__gguf_kv *array, kvf_json **out)
{
    if (array->count <= MAX_INLINE) {
        *out = kvf_json_array();
        return list_elements(e, array, *out);
    }
    *out = kvf__json_pack("{s:s, s:I}", "array", kvf__gguf_types[array->type].name, "count",
                          (long long)array->count);
    return KVF_OK;
}

static kvf_status read_array(gguf_entry *e, kvf_json **out)
{
    kvf__reader *r = &e->g->r;
    struct kvf__gguf_kv array = {.key = e->key_at, .key_n = e->key_n};

    array.type = kvf__read_u32(r);
    array.count = kvf__read_u64(r);
    if (r->failed) return bad(e, KVF_EFORMAT, "the file ends here");
    if (array.type == KVF__GGUF_ARRAY) return bad(e, KVF_EUNSUPPORTED, "array of arrays");
    if (array.type >= KVF__GGUF_TYPES) return bad(e, KVF_EFORMAT, "array of an unknown type");
    if (array.count > MAX_ARRAY || array.count > (r->n - r->at) / kvf__gguf_types[array.type].bytes)
        return bad(e, KVF_EFORMAT, "the array is longer than the rest of the file, or than 2^30");
    KVF_TRY(skip_elements(e, &array));
    KVF_TRY(add_array(e, &array));
    return array_to_json(e, &array, out);
}

static bool is_plain_ascii(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] < 0x20 || text[i] > 0x7e) return false;
    }
    return true;
}

static kvf_status read_key(gguf_entry *e, uint64_t place)
{
    kvf__gguf *g = e->g;

    e->key_at = kvf__gguf_read_string(&g->r, &e->key_n);
    if (!e->key_at)
        return kvf__fail(g->ctx, KVF_EFORMAT,
                         "%s: ends inside the name of metadata key %llu of %llu", g->where,
                         (unsigned long long)place, (unsigned long long)g->n_kv);
    if (e->key_n == 0 || e->key_n > MAX_KEY_BYTES || !is_plain_ascii(e->key_at, e->key_n))
        return kvf__fail(g->ctx, KVF_EFORMAT,
                         "%s: metadata key %llu: name is empty, not ASCII or above 65535 bytes",
                         g->where, (unsigned long long)place);
    KVF_TRY(kvf__strndup(g->ctx, e->key_at, e->key_n, &e->key));
    if (kvf_json_get(g->weights->meta, e->key)) return bad(e, KVF_EFORMAT, "occurs twice");
    return KVF_OK;
}

static kvf_status check_alignment(gguf_entry *e, uint32_t type, const kvf_json *value)
{
    int64_t alignment = kvf_json_int(value, 0);

    if (strcmp(e->key, "general.alignment")) return KVF_OK;
    if (type != KVF__GGUF_U32 || alignment <= 0 || (alignment & (alignment - 1)))
        return bad(e, KVF_EFORMAT, "want a u32 that is a power of two");
    e->g->alignment = (size_t)alignment;
    return KVF_OK;
}

static kvf_status read_value(gguf_entry *e, kvf_json **value)
{
    kvf__gguf *g = e->g;
    uint32_t type = kvf__read_u32(&g->r);

    if (g->r.failed) return bad(e, KVF_EFORMAT, "the file ends here");
    if (type >= KVF__GGUF_TYPES)
        return kvf__fail(g->ctx, KVF_EFORMAT, "%s: metadata \"%.80s\": unknown type %u", g->where,
                         e->key, type);
    KVF_TRY(type == KVF__GGUF_ARRAY ? read_array(e, value) : read_scalar(e, type, value));
    return check_alignment(e, type, *value);
}

static kvf_status read_entry(kvf__gguf *g, uint64_t place)
{
    gguf_entry e = {.g = g};
    kvf_json *value = NULL;

    kvf_status st = read_key(&e, place);
    if (!st) st = read_value(&e, &value);
    if (st)
        kvf_json_free(value);
    else if (!kvf_json_set(g->weights->meta, e.key, value))
        st = bad(&e, KVF_ENOMEM, "out of memory");
    kvf__buf_done(&e.scratch);
    kvf__free(e.key);
    return st;
}

kvf_status kvf__gguf_read_meta(kvf__gguf *g)
{
    g->weights->meta = kvf_json_object();
    if (!g->weights->meta) return kvf__fail(g->ctx, KVF_ENOMEM, "%s: out of memory", g->where);
    for (uint64_t i = 0; i < g->n_kv; i++)
        KVF_TRY(read_entry(g, i + 1));
    return KVF_OK;
}
