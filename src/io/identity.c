/* The identity of a file: what was trained, how, and on which base. Copied, written, read.
 *
 * The base is named on the root, as in every kvfold file; how rows were made for training and where
 * tokens start are attributes of the object they belong to: the dataset of a prefix, the group of
 * an encoder. */
#include "artifact_priv.h"
#include "method.h"

#include <stddef.h>
#include <string.h>

enum { HASH_DIGITS = 32, MAX_LAYERS = 65535 };

/* All of them, in the order in which they are written, read and described. */
typedef struct identity_field {
    const char *name;
    size_t at;
    enum {
        ROOT_TEXT, /* an attribute of the root */
        TEXT,
        INT,
        WORD, /* a bool: the attribute is there, with this one word, or is not */
        DIM   /* of a prefix the shape of its dataset */
    } type;
    const char *word;
} identity_field;
#define MEMBER(name) #name, offsetof(kvf__identity, name)
static const identity_field FIELDS[] = {
    {MEMBER(base_name), ROOT_TEXT, NULL},
    {MEMBER(base_architecture), ROOT_TEXT, NULL},
    {MEMBER(base_hash), ROOT_TEXT, NULL},
    {MEMBER(method), TEXT, NULL},
    {MEMBER(task), TEXT, NULL},
    {MEMBER(chat_template), TEXT, NULL},
    {MEMBER(position_start), INT, NULL},
    {"placement", offsetof(kvf__identity, infix), WORD, "infix"},
    {"key_space", offsetof(kvf__identity, raw_keys), WORD, "pre-rope"},
    {MEMBER(L), DIM, NULL},
    {MEMBER(G), DIM, NULL},
    {MEMBER(P), DIM, NULL},
    {MEMBER(D), DIM, NULL},
};
static const identity_field *const END = FIELDS + sizeof FIELDS / sizeof FIELDS[0];

static void *at_field(const kvf__identity *id, const identity_field *f)
{
    return (char *)id + f->at;
}

static bool is_text(const identity_field *f)
{
    return f->type <= TEXT;
}

static const char *text_of(const kvf__identity *id, const identity_field *f)
{
    const char *text = *(char **)at_field(id, f);
    return text ? text : "";
}

kvf_status kvf__identity_copy(kvf_ctx *ctx, const kvf__identity *from, kvf__identity *out)
{
    kvf__identity id = *from;
    kvf_status st = KVF_OK;

    for (const identity_field *f = FIELDS; f < END; f++)
        if (is_text(f)) *(char **)at_field(&id, f) = NULL;
    for (const identity_field *f = FIELDS; f < END && !st; f++)
        if (is_text(f)) st = kvf__strdup(ctx, text_of(from, f), at_field(&id, f));
    if (st)
        kvf__identity_done(&id);
    else
        *out = id;
    return st;
}

void kvf__identity_done(kvf__identity *id)
{
    for (const identity_field *f = FIELDS; f < END; f++)
        if (is_text(f)) kvf__free(*(char **)at_field(id, f));
    *id = (kvf__identity){0};
}

void kvf__identity_describe(const kvf__identity *id, kvf_json *attributes)
{
    for (const identity_field *f = FIELDS; f < END; f++) {
        if (is_text(f))
            kvf_json_set(attributes, f->name, kvf_json_new_str(text_of(id, f)));
        else if (f->type != WORD)
            kvf_json_set(attributes, f->name, kvf_json_new_int(*(int64_t *)at_field(id, f)));
        else if (*(bool *)at_field(id, f))
            kvf_json_set(attributes, f->name, kvf_json_new_str(f->word));
    }
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
    for (const identity_field *f = FIELDS; f < END; f++) {
        if (is_text(f))
            kvf__h5_put_text(h5, f->type == ROOT_TEXT ? h5->file : at, f->name, text_of(id, f));
        else if (f->type == INT || (f->type == DIM && with_shape))
            kvf__h5_put_i64(h5, at, f->name, *(int64_t *)at_field(id, f));
        else if (f->type == WORD && *(bool *)at_field(id, f))
            kvf__h5_put_text(h5, at, f->name, f->word);
    }
}

static void read_text(kvf__h5 *h5, kvf__h5_id at, const identity_field *f, kvf__identity *id)
{
    char **text = at_field(id, f);

    *text = kvf__h5_get_text(h5, f->type == ROOT_TEXT ? h5->file : at, f->name);
    if (*text && text == &id->base_hash) check_hash(h5, *text, KVF_EFORMAT);
}

/* Any other word than the one is refused. Of methods without a length the attribute is another
 * thing. */
static void read_word(kvf__h5 *h5, kvf__h5_id at, const identity_field *f, kvf__identity *id)
{
    char *found;

    if (h5->status || !kvf__method_has_length(id->method) || !kvf__h5_has_attr(h5, at, f->name))
        return;
    found = kvf__h5_get_text(h5, at, f->name);
    if (found && strcmp(found, f->word) != 0)
        kvf__h5_fail(h5, at, KVF_EFORMAT, "%s is \"%s\", want \"%s\" or none", f->name, found,
                     f->word);
    kvf__free(found);
    *(bool *)at_field(id, f) = true;
    if (id->raw_keys && !id->infix)
        kvf__h5_fail(h5, at, KVF_EFORMAT, "key_space is \"pre-rope\" without placement \"infix\"");
}

static void read_int(kvf__h5 *h5, kvf__h5_id at, const identity_field *f, kvf__identity *id)
{
    int64_t *value = at_field(id, f), least = 0;

    if (h5->status) return;
    if (f->type == DIM) least = value != &id->P || kvf__method_has_length(id->method);
    *value = kvf__h5_get_i64(h5, at, f->name);
    if (*value < least || *value > INT32_MAX)
        kvf__h5_fail(h5, at, KVF_EFORMAT,
                     f->type == DIM ? "attribute \"%s\" is %lld, want %d to 2^31 - 1"
                                    : "%s is %lld, want %d to 2^31 - 1",
                     f->name, (long long)*value, (int)least);
}

void kvf__identity_read(kvf__h5 *h5, kvf__h5_id at, const kvf__h5_data *shape, kvf__identity *id)
{
    for (const identity_field *f = FIELDS; f < END; f++) {
        if (is_text(f))
            read_text(h5, at, f, id);
        else if (f->type == WORD)
            read_word(h5, at, f, id);
        else if (f->type == INT || !shape)
            read_int(h5, at, f, id);
    }
    if (!shape) return;
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
