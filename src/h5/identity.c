/* The identity of a file: method, training settings, and base. Copying, writing, reading.
 *
 * The base is named on the root, as in every kvfold file. The format of training rows and the start
 * of positions are attributes of their object: the dataset of a prefix, the group of an encoder. */
#include "artifact_priv.h"
#include "method.h"
#include "task.h"

#include <stddef.h>
#include <string.h>

enum { HASH_DIGITS = 32, MAX_LAYERS = 65535 };

/* All fields, in the order of writing, reading and describing. */
typedef struct identity_field {
    const char *name;
    size_t at;
    enum {
        ROOT_TEXT, /* an attribute of the root */
        TEXT,
        SOME_TEXT, /* absent if empty */
        INT,
        COUNT, /* as INTEGER, absent if 0 */
        WORD,  /* a bool: the attribute is present with this one word, or absent */
        DIM    /* for a prefix, the shape of its dataset */
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
    {MEMBER(row_form), SOME_TEXT, NULL},
    {MEMBER(example_prompt), SOME_TEXT, NULL},
    {MEMBER(position_start), INT, NULL},
    {MEMBER(encoder_layers), COUNT, NULL},
    {"key_space", offsetof(kvf__identity, pre_rope), WORD, "pre-rope"},
    {MEMBER(relative_bias), WORD, "decoder"},
    {"neurons", offsetof(kvf__identity, neurons.N), COUNT, NULL},
    {"neuron_layers", offsetof(kvf__identity, neurons.L), COUNT, NULL},
    {"neuron_width", offsetof(kvf__identity, neurons.C), COUNT, NULL},
    {"neuron_gate", offsetof(kvf__identity, neurons.gated), WORD, "gated"},
    {"neuron_bias", offsetof(kvf__identity, neurons.biased), WORD, "biased"},
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
    return f->type <= SOME_TEXT;
}

static const char *text_of(const kvf__identity *id, const identity_field *f)
{
    const char *text = *(char **)at_field(id, f);
    return text ? text : "";
}

static bool is_there(const kvf__identity *id, const identity_field *f)
{
    if (f->type == SOME_TEXT) return *text_of(id, f);
    return f->type != COUNT || *(int64_t *)at_field(id, f);
}

kvf__kv_shape kvf__identity_kv(const kvf__identity *id)
{
    return (kvf__kv_shape){id->L, id->G, id->D, id->heads};
}

kvf_status kvf__identity_set_kv(kvf_ctx *ctx, kvf__identity *id, const kvf__kv_shape *shape)
{
    kvf__kv_heads *heads = NULL;

    KVF_TRY(kvf__kv_copy_heads(ctx, shape, &heads));
    kvf__free(id->heads);
    id->heads = heads;
    id->L = shape->L;
    id->G = shape->G;
    id->D = shape->D;
    return KVF_OK;
}

kvf_status kvf__identity_copy(kvf_ctx *ctx, const kvf__identity *from, kvf__identity *out)
{
    kvf__identity id = *from;
    const kvf__kv_shape kv = kvf__identity_kv(from);

    for (const identity_field *f = FIELDS; f < END; f++)
        if (is_text(f)) *(char **)at_field(&id, f) = NULL;
    kvf_status st = kvf__kv_copy_heads(ctx, &kv, &id.heads);
    for (const identity_field *f = FIELDS; f < END && !st; f++)
        if (is_text(f)) st = kvf__strdup(ctx, text_of(from, f), at_field(&id, f));
    KVF__GIVE(st, out, id, kvf__identity_done(&id));
    return st;
}

void kvf__identity_done(kvf__identity *id)
{
    for (const identity_field *f = FIELDS; f < END; f++)
        if (is_text(f)) kvf__free(*(char **)at_field(id, f));
    kvf__free(id->heads);
    *id = (kvf__identity){0};
}

/* Returns whether a field is G or D with differing layers, which have a dataset of their own. */
static bool is_by_layer(const kvf__identity *id, const identity_field *f)
{
    return id->heads && f->type == DIM && (at_field(id, f) == &id->G || at_field(id, f) == &id->D);
}

static kvf_json *list_heads(const kvf__identity *id, const identity_field *f)
{
    kvf_json *list = kvf_json_array();

    for (int64_t l = 0; l < id->L; l++)
        kvf_json_add(list,
                     kvf_json_new_int(at_field(id, f) == &id->G ? id->heads[l].G : id->heads[l].D));
    return list;
}

void kvf__identity_describe(const kvf__identity *id, kvf_json *attributes)
{
    for (const identity_field *f = FIELDS; f < END; f++) {
        if (is_text(f) && is_there(id, f))
            kvf_json_set(attributes, f->name, kvf_json_new_str(text_of(id, f)));
        else if (is_by_layer(id, f))
            kvf_json_set(attributes, f->name, list_heads(id, f));
        else if (f->type != WORD && is_there(id, f))
            kvf_json_set(attributes, f->name, kvf_json_new_int(*(int64_t *)at_field(id, f)));
        else if (f->type == WORD && *(bool *)at_field(id, f))
            kvf_json_set(attributes, f->name, kvf_json_new_str(f->word));
    }
    if (id->infix) kvf_json_set(attributes, "infix", kvf_json_new_bool(true));
}

/* ---- files ----------------------------------------------------------------------------------- */

static void check_hash(kvf__h5 *h5, const char *hash, kvf_status status)
{
    size_t n = strlen(hash);

    if (n != 0 && (n != HASH_DIGITS || strspn(hash, "0123456789abcdef") != n))
        kvf__h5_fail(h5, h5->file, status, "base_hash is \"%s\", want %d hex digits or nothing",
                     hash, HASH_DIGITS);
}

/* /heads_by_layer [L, 2]: key/value heads of each layer, and their size; only if layers differ. */
static const char HEADS[] = "heads_by_layer";

static void write_heads(kvf__h5 *h5, const kvf__identity *id)
{
    static const char *const LABELS[] = {"layer", "number_size"};
    const int64_t dim[] = {id->L, 2};
    const kvf__h5_spec spec = {
        .name = HEADS, .dtype = KVF__I64, .rank = 2, .dim = dim, .labels = LABELS};
    int64_t *rows = NULL;

    KVF__H5_TRY(h5, kvf__alloc_array(h5->ctx, (size_t)id->L * 2, sizeof *rows, &rows));
    for (int64_t l = 0; rows && l < id->L; l++) {
        rows[2 * l] = id->heads[l].G;
        rows[2 * l + 1] = id->heads[l].D;
    }
    kvf__h5_data_write(h5, h5->file, &spec, rows, NULL);
    kvf__free(rows);
}

static void read_heads(kvf__h5 *h5, kvf__identity *id)
{
    enum { MOST_HEADS = 4096, MOST_SIZE = 1024 }; /* the limits of a base */
    int64_t *rows = NULL;
    char text[128];

    if (!kvf__h5_has(h5, h5->file, HEADS)) return;
    kvf__h5_data data = kvf__h5_data_open(h5, h5->file, HEADS);
    if (data.dtype != KVF__I64 || data.rank != 2 || data.dim[0] < 1 || data.dim[0] > MAX_LAYERS ||
        data.dim[1] != 2)
        kvf__h5_fail(h5, data.id, KVF_ESHAPE, "%s of %s, want [L, 2] of i64",
                     kvf__shape_text(text, data.rank, data.dim), kvf__dtype_name(data.dtype));
    KVF__H5_TRY(h5, kvf__alloc(h5->ctx, data.bytes, &rows));
    kvf__h5_data_read(h5, &data, rows, (size_t)data.count * sizeof *rows);
    KVF__H5_TRY(h5,
                kvf__alloc_array(h5->ctx, (size_t)data.dim[0] + 1, sizeof *id->heads, &id->heads));
    for (int64_t l = 0; !h5->status && l < data.dim[0]; l++) {
        kvf__kv_heads *at = &id->heads[l];
        at->G = rows[2 * l];
        at->D = rows[2 * l + 1];
        if (at->G < 0 || at->G > MOST_HEADS || at->D < 1 || at->D > MOST_SIZE)
            kvf__h5_fail(h5, data.id, KVF_EFORMAT, "layer %lld has %lld heads of size %lld",
                         (long long)l, (long long)at->G, (long long)at->D);
        at[1] = (kvf__kv_heads){.heads = at->heads + at->G, .width = at->width + at->G * at->D};
    }
    if (!h5->status && !id->heads[data.dim[0]].heads)
        kvf__h5_fail(h5, data.id, KVF_EFORMAT, "no layer has heads");
    id->L = data.dim[0];
    id->G = id->D = KVF__BY_LAYER;
    kvf__free(rows);
    kvf__h5_release(&data.id);
}

void kvf__identity_write(kvf__h5 *h5, kvf__h5_id at, bool with_shape, const kvf__identity *id)
{
    check_hash(h5, id->base_hash ? id->base_hash : "", KVF_EUSAGE);
    if (id->heads) write_heads(h5, id);
    for (const identity_field *f = FIELDS; f < END; f++) {
        if (is_text(f) && is_there(id, f))
            kvf__h5_put_text(h5, f->type == ROOT_TEXT ? h5->file : at, f->name, text_of(id, f));
        else if (f->type == INT || (f->type == COUNT && is_there(id, f)) ||
                 (f->type == DIM && (with_shape || id->heads) && !is_by_layer(id, f)))
            kvf__h5_put_i64(h5, at, f->name, *(int64_t *)at_field(id, f));
        else if (f->type == WORD && *(bool *)at_field(id, f))
            kvf__h5_put_text(h5, at, f->name, f->word);
    }
}

static void read_text(kvf__h5 *h5, kvf__h5_id at, const identity_field *f, kvf__identity *id)
{
    char **text = at_field(id, f);

    if (f->type == SOME_TEXT && !kvf__h5_has_attr(h5, at, f->name)) return;
    *text = kvf__h5_get_text(h5, f->type == ROOT_TEXT ? h5->file : at, f->name);
    if (*text && text == &id->base_hash) check_hash(h5, *text, KVF_EFORMAT);
    if (*text && text == &id->row_form && strcmp(*text, "text") && strcmp(*text, "pairs") &&
        strcmp(*text, "chat"))
        kvf__h5_fail(h5, at, KVF_EFORMAT, "row_form is \"%.40s\", want text, pairs or chat", *text);
    if (*text && text == &id->example_prompt && strlen(*text) > KVF__MOST_EXAMPLE)
        kvf__h5_fail(h5, at, KVF_EFORMAT, "example_prompt has %zu bytes, want at most %d",
                     strlen(*text), KVF__MOST_EXAMPLE);
}

/* Refuses any other word. */
static void read_word(kvf__h5 *h5, kvf__h5_id at, const identity_field *f, kvf__identity *id)
{
    if (!kvf__h5_has_attr(h5, at, f->name)) return;
    char *found = kvf__h5_get_text(h5, at, f->name);
    if (found && strcmp(found, f->word) != 0)
        kvf__h5_fail(h5, at, KVF_EFORMAT, "%s is \"%s\", want \"%s\" or none", f->name, found,
                     f->word);
    kvf__free(found);
    *(bool *)at_field(id, f) = true;
}

static void read_int(kvf__h5 *h5, kvf__h5_id at, const identity_field *f, kvf__identity *id)
{
    int64_t *value = at_field(id, f), least = 0;

    if (h5->status || is_by_layer(id, f)) return;
    if (f->type == COUNT && !kvf__h5_has_attr(h5, at, f->name)) return;
    if (f->type == COUNT) least = 1;
    if (f->type == DIM)
        least = value != &id->P || (kvf__method_has_length(id->method) && !id->neurons.N);
    *value = kvf__h5_get_i64(h5, at, f->name);
    if (*value < least || *value > INT32_MAX)
        kvf__h5_fail(h5, at, KVF_EFORMAT,
                     f->type == DIM ? "attribute \"%s\" is %lld, want %d to 2^31 - 1"
                                    : "%s is %lld, want %d to 2^31 - 1",
                     f->name, (long long)*value, (int)least);
}

/* Checks that the attributes of neurons are there together. */
static void check_neurons(kvf__h5 *h5, kvf__h5_id at, const kvf__neuron_shape *shape)
{
    const bool any = shape->N || shape->L || shape->C || shape->gated || shape->biased;
    if (any && !(shape->N && shape->L && shape->C && !(shape->gated && shape->biased)))
        kvf__h5_fail(h5, at, KVF_EFORMAT,
                     "attributes neurons %lld, neuron_layers %lld and neuron_width %lld do not "
                     "describe virtual neurons",
                     (long long)shape->N, (long long)shape->L, (long long)shape->C);
}

void kvf__identity_read(kvf__h5 *h5, kvf__h5_id at, const kvf__h5_data *shape, kvf__identity *id)
{
    const bool in_shape = shape && shape->rank == 6;

    read_heads(h5, id);
    const int64_t L = id->L;
    for (const identity_field *f = FIELDS; f < END; f++) {
        if (is_text(f))
            read_text(h5, at, f, id);
        else if (f->type == WORD)
            read_word(h5, at, f, id);
        else if (f->type != DIM || !in_shape)
            read_int(h5, at, f, id);
    }
    id->infix = h5->features & KVF__INFIX;
    if (id->infix && !h5->status && !kvf__method_has_length(id->method))
        kvf__h5_fail(h5, at, KVF_EFORMAT, "infix, but method %s has no virtual tokens", id->method);
    if (id->pre_rope && !id->infix)
        kvf__h5_fail(h5, at, KVF_EFORMAT, "key_space is \"pre-rope\" without the feature infix");
    if (id->relative_bias && !id->encoder_layers)
        kvf__h5_fail(h5, at, KVF_EFORMAT, "relative_bias is \"decoder\" without encoder_layers");
    check_neurons(h5, at, &id->neurons);
    if (id->heads && (id->L != L || in_shape))
        kvf__h5_fail(h5, at, KVF_EFORMAT, "/%s has %lld layers, want %lld", HEADS, (long long)L,
                     (long long)id->L);
    if (!in_shape) return;
    id->L = shape->dim[0];
    id->G = shape->dim[3];
    id->P = shape->dim[4];
    id->D = shape->dim[5];
}

uint8_t *kvf__mask_read(kvf__h5 *h5, kvf__h5_id at, const char *name, int64_t L)
{
    uint8_t *mask = NULL;

    if (L > MAX_LAYERS)
        kvf__h5_fail(h5, at, KVF_EFORMAT, "%lld layers, want at most %d", (long long)L, MAX_LAYERS);
    KVF__H5_TRY(h5, kvf__alloc(h5->ctx, (size_t)L, &mask));
    if (mask) kvf__h5_get_u8s(h5, at, name, mask, L);
    for (int64_t l = 0; l < L && !h5->status; l++)
        if (mask[l] > 1)
            kvf__h5_fail(h5, at, KVF_EFORMAT, "%s[%lld] is %d, want 0 or 1", name, (long long)l,
                         mask[l]);
    return mask;
}
