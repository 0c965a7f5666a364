/* What a prefix or a run says about itself and its base: copied, written, read.
 *
 * The base is named on the root, as in every kvfold file; how rows were made for training and where
 * tokens start stand on the object they belong to: the dataset of a prefix, the group of an
 * encoder. */
#include "artifact_priv.h"
#include "method.h"

#include <stddef.h>
#include <string.h>

enum { HASH_DIGITS = 32, MAX_LAYERS = 65535 };

/* Its texts, in the order in which they are written, read and described; the first are attributes
 * of the root. */
static const struct {
    const char *name;
    size_t at;
} TEXTS[] = {
#define ROW(field)                                                                                 \
    {                                                                                              \
#field, offsetof(kvf__identity, field)                                                     \
    }
    ROW(base_name), ROW(base_architecture), ROW(base_hash), ROW(method),
    ROW(task),      ROW(chat_template),
#undef ROW
};
enum { ROOT_TEXTS = 3, ALL_TEXTS = sizeof TEXTS / sizeof TEXTS[0] };

/* Attributes with a single word, absent where the member is false. Of adapters `placement` is
 * another thing. */
static const struct {
    const char *name, *word;
    size_t at;
} WORDS[] = {
    {"placement", "infix", offsetof(kvf__identity, infix)},
    {"key_space", "pre-rope", offsetof(kvf__identity, raw_keys)},
};
enum { N_WORDS = sizeof WORDS / sizeof WORDS[0] };

static const struct {
    const char *name;
    size_t at;
} DIMS[] = {
    {"L", offsetof(kvf__identity, L)},
    {"G", offsetof(kvf__identity, G)},
    {"P", offsetof(kvf__identity, P)},
    {"D", offsetof(kvf__identity, D)},
};
enum { N_DIMS = sizeof DIMS / sizeof DIMS[0] };

static char **text_at(kvf__identity *id, int i)
{
    return (char **)((char *)id + TEXTS[i].at);
}

static const char *text_of(const kvf__identity *id, int i)
{
    const char *text = *(char *const *)((const char *)id + TEXTS[i].at);
    return text ? text : "";
}

static bool word_of(const kvf__identity *id, int i)
{
    return *(const bool *)((const char *)id + WORDS[i].at);
}

static int64_t dim_of(const kvf__identity *id, int i)
{
    return *(const int64_t *)((const char *)id + DIMS[i].at);
}

kvf_status kvf__identity_copy(kvf_ctx *ctx, const kvf__identity *from, kvf__identity *out)
{
    kvf__identity id = *from;
    kvf_status st = KVF_OK;

    for (int i = 0; i < ALL_TEXTS; i++)
        *text_at(&id, i) = NULL;
    for (int i = 0; i < ALL_TEXTS && !st; i++)
        st = kvf__strdup(ctx, text_of(from, i), text_at(&id, i));
    if (st)
        kvf__identity_done(&id);
    else
        *out = id;
    return st;
}

void kvf__identity_done(kvf__identity *id)
{
    for (int i = 0; i < ALL_TEXTS; i++)
        kvf__free(*text_at(id, i));
    *id = (kvf__identity){0};
}

void kvf__identity_describe(const kvf__identity *id, kvf_json *attributes)
{
    for (int i = 0; i < ALL_TEXTS; i++)
        kvf_json_set(attributes, TEXTS[i].name, kvf_json_new_str(text_of(id, i)));
    kvf_json_set(attributes, "position_start", kvf_json_new_int(id->position_start));
    for (int i = 0; i < N_WORDS; i++)
        if (word_of(id, i))
            kvf_json_set(attributes, WORDS[i].name, kvf_json_new_str(WORDS[i].word));
    for (int i = 0; i < N_DIMS; i++)
        kvf_json_set(attributes, DIMS[i].name, kvf_json_new_int(dim_of(id, i)));
}

/* ---- files ----------------------------------------------------------------------------------- */

static void check_hash(kvf__h5 *h5, const char *hash, kvf_status status)
{
    size_t n = strlen(hash);

    if (n != 0 && (n != HASH_DIGITS || strspn(hash, "0123456789abcdef") != n))
        kvf__h5_fail(h5, h5->file, status, "base_hash is \"%s\", want %d hex digits or nothing",
                     hash, HASH_DIGITS);
}

void kvf__identity_write(kvf__h5 *h5, kvf__h5_id at, bool with_shape, const kvf__identity *id)
{
    check_hash(h5, id->base_hash ? id->base_hash : "", KVF_EUSAGE);
    for (int i = 0; i < ALL_TEXTS; i++)
        kvf__h5_put_text(h5, i < ROOT_TEXTS ? h5->file : at, TEXTS[i].name, text_of(id, i));
    kvf__h5_put_i64(h5, at, "position_start", id->position_start);
    for (int i = 0; i < N_WORDS; i++)
        if (word_of(id, i)) kvf__h5_put_text(h5, at, WORDS[i].name, WORDS[i].word);
    for (int i = 0; i < N_DIMS && with_shape; i++)
        kvf__h5_put_i64(h5, at, DIMS[i].name, dim_of(id, i));
}

static void read_texts(kvf__h5 *h5, kvf__h5_id at, kvf__identity *id)
{
    for (int i = 0; i < ROOT_TEXTS; i++)
        *text_at(id, i) = kvf__h5_get_text(h5, h5->file, TEXTS[i].name);
    if (id->base_hash) check_hash(h5, id->base_hash, KVF_EFORMAT);
    for (int i = ROOT_TEXTS; i < ALL_TEXTS; i++)
        *text_at(id, i) = kvf__h5_get_text(h5, at, TEXTS[i].name);
}

/* Any other word than the one is refused. */
static void read_words(kvf__h5 *h5, kvf__h5_id at, kvf__identity *id)
{
    for (int i = 0; i < N_WORDS; i++) {
        bool there = kvf__h5_has_attr(h5, at, WORDS[i].name);
        char *found = there ? kvf__h5_get_text(h5, at, WORDS[i].name) : NULL;
        if (found && strcmp(found, WORDS[i].word) != 0)
            kvf__h5_fail(h5, at, KVF_EFORMAT, "%s is \"%s\", want \"%s\" or none", WORDS[i].name,
                         found, WORDS[i].word);
        *(bool *)((char *)id + WORDS[i].at) = there;
        kvf__free(found);
    }
    if (id->raw_keys && !id->infix)
        kvf__h5_fail(h5, at, KVF_EFORMAT, "key_space is \"%s\" without placement \"%s\"",
                     WORDS[1].word, WORDS[0].word);
}

static void read_dims(kvf__h5 *h5, kvf__h5_id at, kvf__identity *id)
{
    for (int i = 0; i < N_DIMS; i++) {
        int64_t *dim = (int64_t *)((char *)id + DIMS[i].at);
        int least = dim != &id->P || kvf__method_has_length(id->method);
        *dim = kvf__h5_get_i64(h5, at, DIMS[i].name);
        if (*dim < least || *dim > INT32_MAX)
            kvf__h5_fail(h5, at, KVF_EFORMAT, "attribute \"%s\" is %lld, want %d to 2^31 - 1",
                         DIMS[i].name, (long long)*dim, least);
    }
}

void kvf__identity_read(kvf__h5 *h5, kvf__h5_id at, const kvf__h5_data *shape, kvf__identity *id)
{
    read_texts(h5, at, id);
    id->position_start = kvf__h5_get_i64(h5, at, "position_start");
    if (id->position_start < 0 || id->position_start > INT32_MAX)
        kvf__h5_fail(h5, at, KVF_EFORMAT, "position_start is %lld, want 0 to 2^31 - 1",
                     (long long)id->position_start);
    if (h5->status) return;
    if (kvf__method_has_length(id->method)) read_words(h5, at, id);
    if (!shape) {
        read_dims(h5, at, id);
        return;
    }
    id->L = shape->dim[0];
    id->G = shape->dim[3];
    id->P = shape->dim[4];
    id->D = shape->dim[5];
}

uint8_t *kvf__mask_read(kvf__h5 *h5, kvf__h5_id at, int64_t L)
{
    uint8_t *mask = NULL;

    if (L > MAX_LAYERS)
        kvf__h5_fail(h5, at, KVF_EFORMAT, "%lld layers, want at most %d", (long long)L, MAX_LAYERS);
    KVF__H5_TRY(h5, kvf__alloc(h5->ctx, (size_t)L, &mask));
    if (mask) kvf__h5_get_u8s(h5, at, "layer_mask", mask, L);
    for (int64_t l = 0; l < L && !h5->status; l++)
        if (mask[l] > 1)
            kvf__h5_fail(h5, at, KVF_EFORMAT, "layer_mask[%lld] is %d, want 0 or 1", (long long)l,
                         mask[l]);
    return mask;
}
