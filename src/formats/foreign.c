/* The table of foreign formats. A file's format is decided by its tensors, whatever its name, with
 * the config of its folder. Those programs save torch pickles, which python/kvfold/from_pickle.py
 * converts. */
#include "foreign.h"

#include <string.h>

static const struct {
    const char *name;
    const char *marks[2]; /* a file with one of these tensors is of the format */
    bool inside;          /* marks may be any part of a name */
    kvf_status (*read)(kvf_ctx *ctx, const char *where, kvf__foreign *f);
} FORMATS[] = {
    {"p-tuning-v2",
     {"prefix_encoder.embedding.weight", "prefix_encoder.weight"},
     false,
     kvf__foreign_ptuning_v2},
    {"prefixtuning", {"control_trans", "control_trans.0.weight"}, false, kvf__foreign_prefixtuning},
    {"adapterhub", {".prefix_tunings."}, true, kvf__foreign_adapterhub},
    {"cartridges", {"trainable_keys.0", "trainable_values.0"}, false, kvf__foreign_cartridge},
};
enum { N_FORMATS = sizeof FORMATS / sizeof FORMATS[0] };

bool kvf__foreign_known(const char *from)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (!strcmp(FORMATS[i].name, from)) return true;
    return false;
}

const char *kvf__foreign_formats(char buf[128])
{
    size_t n = 0;
    for (int i = 0; i < N_FORMATS; i++)
        n += (size_t)snprintf(buf + n, 128 - n, "%s%s", i ? ", " : "", FORMATS[i].name);
    return buf;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* *weights: the folder's file, NULL if it has none we know. */
static kvf_status find_weights(kvf_ctx *ctx, const char *dir, char **weights)
{
    KVF_TRY(kvf__path_find(ctx, dir, "adapter.safetensors", weights));
    return *weights ? KVF_OK : kvf__path_find(ctx, dir, "model.safetensors", weights);
}

/* A head that AdapterHub put into a file of its own, with its config. */
static kvf_status open_head(kvf_ctx *ctx, const char *dir, kvf__foreign *f)
{
    char *tensors = NULL;

    KVF_TRY(kvf__json_load_in(ctx, dir, "head_config.json", &f->head_config));
    if (!f->head_config) return KVF_OK;
    KVF_TRY(kvf__path_find(ctx, dir, "model_head.safetensors", &tensors));
    if (!tensors) return kvf__path_find(ctx, dir, "pytorch_model_head.bin", &f->head_pickle);
    kvf_status st = kvf__safetensors_open(ctx, tensors, &f->head);
    kvf__free(tensors);
    return st;
}

static bool has_mark(const kvf__table *table, int format)
{
    for (int i = 0; i < 2 && FORMATS[format].marks[i]; i++) {
        const char *mark = FORMATS[format].marks[i];
        if (kvf__table_find(table, mark)) return true;
        for (size_t t = 0; FORMATS[format].inside && t < table->n; t++)
            if (strstr(table->items[t].name, mark)) return true;
    }
    return false;
}

/* The format of that name; without one, that of the tensors. N_FORMATS: there is none. */
static int find_format(const char *from, const kvf__table *table)
{
    int format = 0;
    while (format < N_FORMATS &&
           (from ? strcmp(FORMATS[format].name, from) != 0 : !has_mark(table, format)))
        format++;
    return format;
}

static kvf_status read_as(kvf_ctx *ctx, const char *path, const char *dir, int format,
                          kvf__foreign *f)
{
    f->format = FORMATS[format].name;
    KVF_TRY(kvf__json_load_in(ctx, dir, "adapter_config.json", &f->config));
    if (!f->config) KVF_TRY(kvf__json_load_in(ctx, dir, "config.json", &f->config));
    KVF_TRY(open_head(ctx, dir, f));
    return FORMATS[format].read(ctx, path, f);
}

/* f->format stays NULL where the file is of none. */
static kvf_status open_file(kvf_ctx *ctx, const char *path, const char *dir, const char *from,
                            kvf__foreign *f)
{
    KVF_TRY(kvf__safetensors_open(ctx, path, &f->weights));
    int format = find_format(from, &f->weights.table);
    return format < N_FORMATS ? read_as(ctx, path, dir, format, f) : KVF_OK;
}

kvf_status kvf__foreign_open(kvf_ctx *ctx, const char *path, const char *from, kvf__foreign *out,
                             bool *found)
{
    kvf__foreign f = {0};
    char *weights = NULL, *dir = NULL;
    const bool is_dir = kvf__is_dir(path);

    kvf_status st = is_dir ? kvf__strdup(ctx, path, &dir) : kvf__path_folder(ctx, path, &dir);
    if (!st) st = is_dir ? find_weights(ctx, path, &weights) : kvf__strdup(ctx, path, &weights);
    if (!st && weights)
        st = open_file(ctx, weights, dir, from, &f);
    else if (!st && from)
        st = kvf__fail(ctx, KVF_EIO,
                       "%s: neither adapter.safetensors nor model.safetensors is there", path);
    *found = !st && f.format;
    if (*found)
        *out = f;
    else
        kvf__foreign_close(&f);
    kvf__free(weights);
    kvf__free(dir);
    return st;
}

void kvf__foreign_close(kvf__foreign *f)
{
    kvf__weights_close(&f->weights);
    kvf__weights_close(&f->head);
    kvf__free(f->head_pickle);
    kvf_json_free(f->config);
    kvf_json_free(f->head_config);
    kvf__prefix_done(&f->prefix);
    *f = (kvf__foreign){0};
}
