/* Draws for h5_lies.c: names, values, types and shapes that kvfold's files do not use, or not in
 * that place. */
#include "h5_draw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRAW(rng, list) ((list)[h5_draw(rng, sizeof(list) / sizeof(list)[0])])

/* ---- names and values ------------------------------------------------------------------------ */

/* Draws one of the words between bars; LONG stands for a word of `most` letters. Valid until the
 * next call. */
static const char *draw_word(kvf__rng *rng, const char *words, size_t most)
{
    static char word[40000];
    size_t n = 1;
    for (const char *at = words; (at = strchr(at, '|')); at++)
        n++;
    for (n = h5_draw(rng, n); n; n--)
        words = strchr(words, '|') + 1;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(words, "|"), words);
    if (!strcmp(word, "LONG")) {
        memset(word, 'x', most);
        word[most] = 0;
    }
    return word;
}

const char *h5_draw_name(kvf__rng *rng)
{
    return draw_word(rng,
                     "heads_by_layer|log_weight|scale|head|heads|labels|words|best|optimizer|m|v|"
                     "encoder|prefix|past_key_values|state|history|step|low_rank.u|low_rank.v|"
                     "weights|config|tokenizer|virtual|adapter|options|embeddings|embedding.weight|"
                     "lineage|units|encoder_layers|placement|key_space|relative_bias|"
                     "DIMENSION_LABELS|dtype|task|L|\xff\xfe| |..|config.json\n|../../x|a|b|LONG",
                     1500);
}

const char *h5_draw_text(kvf__rng *rng)
{
    return draw_word(rng,
                     "|run|prefix|embeddings|adapter|base|f32|f16|bf16|int8|mlp|direct|projected|"
                     "prompt|p-tuning|full|head|lm|seq-cls|token-cls|qa|multiple-choice|multi-task|"
                     "infix|pre-rope|decoder|llama|bert|t5|none|auto|{|{}|[[|"
                     "{\"model_type\":\"llama\"}|\xff\xfe|a\nb\033[31m|%s%n|a|"
                     "0123456789abcdef0123456789abcdef|LONG",
                     39999);
}

int64_t h5_draw_size(kvf__rng *rng, int64_t old)
{
    const int64_t sizes[] = {0, 1, 2, 3, old - 1, old + 1, 2 * old, old / 2, 100, 65535, 65536};
    return DRAW(rng, sizes);
}

int64_t h5_draw_integer(kvf__rng *rng, int64_t old)
{
    static const int64_t NUMBERS[] = {-1,
                                      INT64_MIN,
                                      INT64_MAX,
                                      INT32_MAX,
                                      INT64_C(1) << 31,
                                      INT64_C(1) << 32,
                                      INT64_C(1) << 40,
                                      INT64_C(1) << 62};
    return h5_draw(rng, 2) ? h5_draw_size(rng, old) : DRAW(rng, NUMBERS);
}

double h5_draw_real(kvf__rng *rng)
{
    static const double NUMBERS[] = {0, -1, 1e-320, 1e308, -1e308, 1e39, NAN, INFINITY, 3.5};
    return DRAW(rng, NUMBERS);
}

/* ---- types and spaces ------------------------------------------------------------------------ */

static hid_t sized(hid_t type, size_t bytes)
{
    hid_t copy = H5Tcopy(type);
    H5Tset_size(copy, bytes);
    return copy;
}

static hid_t half_type(void)
{
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_fields(type, 15, 10, 5, 0, 10);
    H5Tset_size(type, 2);
    H5Tset_ebias(type, 15);
    return type;
}

static hid_t enum_type(kvf__rng *rng)
{
    static const char *const NAMES[] = {"FALSE", "TRUE", "MAYBE", "a name longer than eight bytes"};
    hid_t type = H5Tenum_create(H5T_NATIVE_INT8);
    const size_t first = h5_draw(rng, 3);
    for (int8_t i = 0; i < 2 + (int8_t)h5_draw(rng, 2); i++)
        H5Tenum_insert(type, NAMES[(first + (size_t)i) % 4], &i);
    return type;
}

static hid_t compound_type(void)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, 16), text = sized(H5T_C_S1, H5T_VARIABLE);
    H5Tinsert(type, "a", 0, H5T_IEEE_F32LE);
    H5Tinsert(type, "b", 8, text);
    H5Tclose(text);
    return type;
}

hid_t h5_draw_type(kvf__rng *rng)
{
    const hid_t plain[] = {H5T_IEEE_F32LE,      H5T_IEEE_F32BE,     H5T_IEEE_F64LE, H5T_STD_I64LE,
                           H5T_STD_I64BE,       H5T_STD_U64LE,      H5T_STD_I32LE,  H5T_STD_I8LE,
                           H5T_STD_U8LE,        H5T_STD_I16LE,      H5T_STD_B16LE,  H5T_STD_REF_OBJ,
                           H5T_STD_REF_DSETREG, H5T_NATIVE_LDOUBLE, H5T_UNIX_D32LE};
    hid_t type;
    switch (h5_draw(rng, 12)) {
    case 0:
        return half_type();
    case 1:
        return sized(H5T_C_S1, 1 + h5_draw(rng, 40));
    case 2:
        return sized(H5T_C_S1, H5T_VARIABLE);
    case 3:
        type = sized(H5T_C_S1, H5T_VARIABLE);
        H5Tset_cset(type, H5T_CSET_UTF8);
        return type;
    case 4:
        return enum_type(rng);
    case 5:
        return compound_type();
    case 6:
        return H5Tvlen_create(H5T_IEEE_F32LE);
    case 7:
        return H5Tarray_create2(H5T_IEEE_F32LE, 1, &(hsize_t){1 + h5_draw(rng, 4)});
    case 8:
        return H5Tcreate(H5T_OPAQUE, 1 + h5_draw(rng, 16));
    default:
        return H5Tcopy(DRAW(rng, plain));
    }
}

/* Changes the rank, or some extents. */
void h5_draw_shape(kvf__rng *rng, int *rank, hsize_t dim[H5S_MAX_RANK])
{
    static const hsize_t HUGE_SIZES[] = {1U << 20, UINT32_MAX, UINT64_C(1) << 40,
                                         UINT64_C(1) << 61};
    const int axis = *rank ? (int)h5_draw(rng, (size_t)*rank) : 0;
    switch (h5_draw(rng, 6)) {
    case 0: /* one axis removed */
        if (*rank) memmove(dim + axis, dim + axis + 1, (size_t)(--*rank - axis) * sizeof *dim);
        return;
    case 1: /* axes of length 1 added */
        for (size_t more = h5_draw(rng, 4) ? 1 : 1 + h5_draw(rng, 20); more; more--)
            dim[(*rank)++] = 1;
        return;
    case 2:
        if (*rank) dim[axis] = DRAW(rng, HUGE_SIZES);
        return;
    case 3: /* two axes exchanged: the same number of values */
        if (*rank > 1) {
            const int other = (axis + 1) % *rank;
            const hsize_t kept = dim[axis];
            dim[axis] = dim[other];
            dim[other] = kept;
        }
        return;
    default:
        if (*rank) {
            const int64_t size = h5_draw_size(rng, (int64_t)dim[axis]);
            dim[axis] = size < 0 ? 0 : (hsize_t)size;
        }
    }
}

int h5_shape_of(hid_t space, hsize_t dim[H5S_MAX_RANK])
{
    const int rank = H5Sget_simple_extent_ndims(space);
    if (rank > 0) H5Sget_simple_extent_dims(space, dim, NULL);
    return rank < 0 ? 0 : rank;
}

hid_t h5_draw_space(kvf__rng *rng, int rank, const hsize_t *dim, bool growing)
{
    hsize_t most[H5S_MAX_RANK];
    if (rank == 0) return H5Screate(h5_draw(rng, 2) ? H5S_SCALAR : H5S_NULL);
    for (int i = 0; i < rank; i++)
        most[i] = H5S_UNLIMITED;
    return H5Screate_simple(rank, dim, growing ? most : NULL);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Whether HDF5 converts values of the type through pointers, or into objects of the file. */
bool h5_is_plain(hid_t type)
{
    return H5Tdetect_class(type, H5T_VLEN) <= 0 && H5Tis_variable_str(type) <= 0 &&
           H5Tget_class(type) != H5T_COMPOUND && H5Tget_class(type) != H5T_REFERENCE;
}

/* n values of a plain type, or texts; NULL for other types. The caller frees them; *texts holds the
 * texts they point to. */
void *h5_draw_values(kvf__rng *rng, hid_t type, size_t n, const void *old, size_t old_bytes)
{
    const size_t bytes = n * H5Tget_size(type);
    const float one = 1;
    if (!n || bytes > H5_MOST_VALUES) return NULL;
    char *values = calloc(1, bytes);
    if (!values) abort();
    if (H5Tis_variable_str(type) > 0) {
        const char *text = h5_draw_text(rng);
        for (size_t i = 0; i < n; i++)
            ((const char **)(void *)values)[i] = text;
        return values;
    }
    if (!h5_is_plain(type)) {
        free(values);
        return NULL;
    }
    switch (old ? h5_draw(rng, 3) : 1 + h5_draw(rng, 4)) {
    case 0:
        for (size_t i = 0; i < bytes; i++) /* the old values, repeated */
            values[i] = ((const char *)old)[i % old_bytes];
        break;
    case 1: /* small numbers, for any type */
        for (size_t i = 0; i < bytes; i++)
            values[i] = (char)(bytes / n == 1 ? 1 : 0);
        break;
    case 2:
        for (size_t i = 0; i + 4 <= bytes; i += 4)
            memcpy(values + i, &one, 4);
        break;
    case 3:
        memset(values, 0xff, bytes);
        break;
    default:
        for (size_t i = 0; i < bytes; i++)
            values[i] = (char)kvf__rng_u64(rng);
    }
    return values;
}
