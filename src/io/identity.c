/* What a prefix or a run says about itself and its base: copied, written, read.
 *
 * The base is named on the root, as in every kvfold file; how rows were made for training and where
 * tokens start stand on the object they belong to: the dataset of a prefix, the group of an
 * encoder. */
#include "h5_priv.h"
#include "method.h"

#include <string.h>

enum { HASH_DIGITS = 32, MAX_LAYERS = 65535 };

/* Only a prefix that stands inside rows says so. */
static const char PLACEMENT[] = "placement", INFIX[] = "infix";
static const char KEY_SPACE[] = "key_space", PRE_ROPE[] = "pre-rope";

kvf_status kvf__identity_copy(kvf_ctx *ctx, const kvf__identity *from, kvf__identity *out)
{
    kvf__identity id = *from;
    const char *const source[] = {from->base_name, from->base_architecture,
                                  from->base_hash, from->method,
                                  from->task,      from->chat_template};
    char **const target[] = {&id.base_name, &id.base_architecture, &id.base_hash, &id.method,
                             &id.task,      &id.chat_template};
    enum { TEXTS = sizeof target / sizeof target[0] };
    kvf_status st = KVF_OK;

    for (int i = 0; i < TEXTS; i++)
        *target[i] = NULL;
    for (int i = 0; i < TEXTS; i++) {
        st = kvf__strdup(ctx, source[i] ? source[i] : "", target[i]);
        if (st) goto out;
    }
    *out = id;
    id = (kvf__identity){0};
out:
    kvf__identity_done(&id);
    return st;
}

void kvf__identity_done(kvf__identity *id)
{
    kvf__free(id->base_name);
    kvf__free(id->base_architecture);
    kvf__free(id->base_hash);
    kvf__free(id->method);
    kvf__free(id->task);
    kvf__free(id->chat_template);
    *id = (kvf__identity){0};
}

static const char *text_of(const char *text)
{
    return text ? text : "";
}

static kvf_status check_hash(kvf__h5 *h5, const char *hash, kvf_status status)
{
    size_t n = strlen(hash);

    if (n == 0 || (n == HASH_DIGITS && strspn(hash, "0123456789abcdef") == n)) return KVF_OK;
    return kvf__h5_fail(h5, h5->file, status, "base_hash is \"%s\", want %d hex digits or nothing",
                        hash, HASH_DIGITS);
}

kvf_status kvf__identity_write(kvf__h5 *h5, kvf__h5_id at, bool with_shape, const kvf__identity *id)
{
    const char *const names[] = {"L", "G", "P", "D"};
    const int64_t dims[] = {id->L, id->G, id->P, id->D};

    KVF_TRY(check_hash(h5, text_of(id->base_hash), KVF_EUSAGE));
    KVF_TRY(kvf__h5_put_text(h5, h5->file, "base_name", text_of(id->base_name)));
    KVF_TRY(kvf__h5_put_text(h5, h5->file, "base_architecture", text_of(id->base_architecture)));
    KVF_TRY(kvf__h5_put_text(h5, h5->file, "base_hash", text_of(id->base_hash)));
    KVF_TRY(kvf__h5_put_text(h5, at, "method", text_of(id->method)));
    KVF_TRY(kvf__h5_put_text(h5, at, "task", text_of(id->task)));
    KVF_TRY(kvf__h5_put_text(h5, at, "chat_template", text_of(id->chat_template)));
    KVF_TRY(kvf__h5_put_i64(h5, at, "position_start", id->position_start));
    if (id->infix) KVF_TRY(kvf__h5_put_text(h5, at, PLACEMENT, INFIX));
    if (id->raw_keys) KVF_TRY(kvf__h5_put_text(h5, at, KEY_SPACE, PRE_ROPE));
    for (int i = 0; i < 4 && with_shape; i++)
        KVF_TRY(kvf__h5_put_i64(h5, at, names[i], dims[i]));
    return KVF_OK;
}

static kvf_status read_shape(kvf__h5 *h5, kvf__h5_id at, kvf__identity *id)
{
    const char *const names[] = {"L", "G", "P", "D"};
    int64_t *const dims[] = {&id->L, &id->G, &id->P, &id->D};

    for (int i = 0; i < 4; i++) {
        int least = dims[i] != &id->P || kvf__method_has_length(id->method);
        KVF_TRY(kvf__h5_get_i64(h5, at, names[i], dims[i]));
        if (*dims[i] < least || *dims[i] > INT32_MAX)
            return kvf__h5_fail(h5, at, KVF_EFORMAT,
                                "attribute \"%s\" is %lld, want %d to 2^31 - 1", names[i],
                                (long long)*dims[i], least);
    }
    return KVF_OK;
}

/* *is = the attribute is there and is `word`; any other word is refused. */
static kvf_status read_word(kvf__h5 *h5, kvf__h5_id at, const char *name, const char *word,
                            bool *is)
{
    char *found = NULL;
    kvf_status st = KVF_OK;

    KVF_TRY(kvf__h5_has_attr(h5, at, name, is));
    if (!*is) return KVF_OK;
    KVF_TRY(kvf__h5_get_text(h5, at, name, &found));
    if (strcmp(found, word) != 0)
        st = kvf__h5_fail(h5, at, KVF_EFORMAT, "%s is \"%s\", want \"%s\" or none", name, found,
                          word);
    kvf__free(found);
    return st;
}

static kvf_status read_placement(kvf__h5 *h5, kvf__h5_id at, kvf__identity *id)
{
    if (!kvf__method_has_length(id->method)) return KVF_OK; /* of adapters it says another thing */
    KVF_TRY(read_word(h5, at, PLACEMENT, INFIX, &id->infix));
    KVF_TRY(read_word(h5, at, KEY_SPACE, PRE_ROPE, &id->raw_keys));
    if (id->infix || !id->raw_keys) return KVF_OK;
    return kvf__h5_fail(h5, at, KVF_EFORMAT, "key_space is \"%s\" without placement \"%s\"",
                        PRE_ROPE, INFIX);
}

kvf_status kvf__identity_read(kvf__h5 *h5, kvf__h5_id at, bool with_shape, kvf__identity *out)
{
    kvf__identity id = {0};
    kvf_status st;

    st = kvf__h5_get_text(h5, h5->file, "base_name", &id.base_name);
    if (st) goto out;
    st = kvf__h5_get_text(h5, h5->file, "base_architecture", &id.base_architecture);
    if (st) goto out;
    st = kvf__h5_get_text(h5, h5->file, "base_hash", &id.base_hash);
    if (st) goto out;
    st = check_hash(h5, id.base_hash, KVF_EFORMAT);
    if (st) goto out;
    st = kvf__h5_get_text(h5, at, "method", &id.method);
    if (st) goto out;
    st = kvf__h5_get_text(h5, at, "task", &id.task);
    if (st) goto out;
    st = kvf__h5_get_text(h5, at, "chat_template", &id.chat_template);
    if (st) goto out;
    st = kvf__h5_get_i64(h5, at, "position_start", &id.position_start);
    if (st) goto out;
    if (id.position_start < 0 || id.position_start > INT32_MAX)
        st = kvf__h5_fail(h5, at, KVF_EFORMAT, "position_start is %lld, want 0 to 2^31 - 1",
                          (long long)id.position_start);
    if (!st) st = read_placement(h5, at, &id);
    if (!st && with_shape) st = read_shape(h5, at, &id);
    if (st) goto out;
    *out = id;
    id = (kvf__identity){0};
out:
    kvf__identity_done(&id);
    return st;
}

kvf_status kvf__mask_read(kvf__h5 *h5, kvf__h5_id at, int64_t L, uint8_t **out)
{
    uint8_t *mask = NULL;
    kvf_status st;

    if (L > MAX_LAYERS)
        return kvf__h5_fail(h5, at, KVF_EFORMAT, "%lld layers, want at most %d", (long long)L,
                            MAX_LAYERS);
    st = kvf__alloc(h5->ctx, (size_t)L, &mask);
    if (st) goto out;
    st = kvf__h5_get_u8s(h5, at, "layer_mask", mask, L);
    if (st) goto out;
    for (int64_t l = 0; l < L && !st; l++)
        if (mask[l] > 1)
            st = kvf__h5_fail(h5, at, KVF_EFORMAT, "layer_mask[%lld] is %d, want 0 or 1",
                              (long long)l, mask[l]);
    if (st) goto out;
    *out = mask;
    mask = NULL;
out:
    kvf__free(mask);
    return st;
}
