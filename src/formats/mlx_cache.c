/* Writing prompt caches of mlx-lm (see mlx_cache.h for the format). */
#include "mlx_cache.h"
#include "artifact.h"
#include "file_int.h"

#include <string.h>

enum { NAME_BYTES = 32 };
typedef char name_text[NAME_BYTES];

static bool put(kvf_json *metadata, const char *value, const char *format, ...) KVF__PRINTF(3, 4);
static bool put(kvf_json *metadata, const char *value, const char *format, ...)
{
    char key[2 * NAME_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(key, sizeof key, format, args);
    va_end(args);
    return kvf_json_set(metadata, key, kvf_json_new_str(value));
}

/* Adds the class and the state members of one layer. */
static bool put_layer(kvf_json *metadata, bool old, int64_t l)
{
    name_text length;

    snprintf(length, sizeof length, "%lld.2", (long long)l);
    bool ok = put(metadata, "KVCache", "%d.%lld", old ? 2 : 1, (long long)l);
    if (old) return put(metadata, "", "0.%lld", (long long)l) && ok;
    ok &= put(metadata, length, "2.%lld.0", (long long)l + 1);
    return put(metadata, "scalar", "2.%lld.1", (long long)l + 1) && ok;
}

/* NULL: out of memory. */
static kvf_json *make_metadata(const kvf__mlx_form *form, int64_t L)
{
    kvf_json *metadata = kvf_json_object();
    const int user = form->old ? 1 : 0;

    bool ok = put(metadata, form->model, "%d.model", user);
    ok &= put(metadata, "{}", "%d.tokenizer_config", user);
    if (!form->old) ok &= put(metadata, "", "2.0");
    for (int64_t l = 0; l < L; l++)
        ok &= put_layer(metadata, form->old, l);
    if (ok) return metadata;
    kvf_json_free(metadata);
    return NULL;
}

/* Lists keys, values and, in the current layout, the length of each layer; views of values and of
 * *P. */
static size_t make_tensors(const kvf__mlx_form *form, const kvf__prefix *x, const char *values,
                           const int32_t *P, name_text *names, kvf__tensor *tensors)
{
    const size_t part = (size_t)(x->G * x->P * x->D) * kvf__dtype_block_bytes(form->dtype);
    size_t n = 0;

    for (int64_t l = 0; l < x->L; l++)
        for (int i = 0; i < (form->old ? 2 : 3); i++, n++) {
            snprintf(names[n], NAME_BYTES, "%lld.%d", (long long)l, i);
            tensors[n].name = names[n];
            tensors[n].view = i == 2 ? (kvf__view){.data = P, .dtype = KVF__I32}
                                     : (kvf__view){.data = values + (size_t)(2 * l + i) * part,
                                                   .dtype = form->dtype,
                                                   .rank = 4,
                                                   .dim = {1, x->G, x->P, x->D}};
        }
    return n;
}

static kvf_status write_values(kvf_ctx *ctx, const char *path, bool force,
                               const kvf__mlx_form *form, const kvf__prefix *prefix,
                               const char *values)
{
    const int32_t P = (int32_t)prefix->P;
    name_text *names = NULL;
    kvf__tensor *tensors = NULL;

    kvf_status st = kvf__alloc_array(ctx, (size_t)prefix->L * 3, sizeof *names, &names);
    if (!st) st = kvf__alloc_array(ctx, (size_t)prefix->L * 3, sizeof *tensors, &tensors);
    if (!st) {
        const size_t n = make_tensors(form, prefix, values, &P, names, tensors);
        st = kvf__safetensors_write_with(ctx, path, force, tensors, n,
                                         make_metadata(form, prefix->L));
    }
    kvf__free(tensors);
    kvf__free(names);
    return st;
}

kvf_status kvf__mlx_cache_write(kvf_ctx *ctx, const char *path, bool force,
                                const kvf__mlx_form *form, const kvf__prefix *prefix)
{
    void *values = NULL;

    KVF_TRY(kvf__alloc_array(ctx, kvf__prefix_count(prefix), kvf__dtype_block_bytes(form->dtype),
                             &values));
    kvf_status st = kvf__prefix_encode(ctx, path, form->dtype, prefix, values, NULL);
    if (!st) st = write_values(ctx, path, force, form, prefix, values);
    kvf__free(values);
    return st;
}
