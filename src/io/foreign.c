/* The table of foreign formats, and how a path becomes one: the file's tensors decide, whatever it
 * is called, with the config of its folder.
 *
 * Those programs save torch pickles, and reading a pickle means running it. So only safetensors are
 * read, and a pickle is answered with the command that converts it: it loads with weights_only,
 * which admits tensors and the containers named, and copies what shares memory. */
#include "foreign.h"

#include <string.h>

/* Of two paths: the pickle, and the file to write. */
#define CONVERT                                                                                    \
    "python3 -c \"import sys,torch as t,safetensors.torch as s;"                                   \
    "t.serialization.add_safe_globals([t.nn.ParameterList,set]);"                                  \
    "s.save_file({k+n:v.detach().clone().contiguous() for k,x in t.load(sys.argv[1],'cpu')"        \
    ".items() for n,v in ([('',x)] if t.is_tensor(x) else [(f'.{i}',v) for i,v in "                \
    "enumerate(x)])},"                                                                             \
    "sys.argv[2])\" '%s' '%s'"

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

/* What a folder's weights are called: as pickles, and in safetensors. */
static const struct {
    const char *pickle, *tensors;
} FILES[] = {
    {"pytorch_adapter.bin", "adapter.safetensors"},
    {"pytorch_model.bin", "model.safetensors"},
    {"pytorch_model_head.bin", "model_head.safetensors"},
};
enum { N_WEIGHTS = 2, N_FILES = sizeof FILES / sizeof FILES[0] };

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

/* ---- pickles --------------------------------------------------------------------------------- */

/* Torch writes a zip archive whose first member is data.pkl; before 1.6 it was a bare pickle, of
 * protocol 2 and on. */
static bool looks_pickled(const kvf__mapfile *file)
{
    const uint8_t *b = file->data;
    return file->n >= 4 && (!memcmp(b, "PK\3\4", 4) || (b[0] == 0x80 && b[1] >= 2 && b[1] <= 5));
}

/* The name that FILES gives the converted file; else that of the pickle, with another ending. */
static kvf_status converted_name(kvf_ctx *ctx, const char *path, char **out)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    for (int i = 0; i < N_FILES; i++)
        if (!strcmp(base, FILES[i].pickle))
            return kvf__asprintf(ctx, out, "%.*s%s", (int)(base - path), path, FILES[i].tensors);
    const char *dot = strrchr(base, '.');
    return kvf__asprintf(ctx, out, "%.*s.safetensors",
                         (int)(dot ? (size_t)(dot - path) : strlen(path)), path);
}

static kvf_status refuse_pickle(kvf_ctx *ctx, const char *path)
{
    char *to = NULL;
    KVF_TRY(converted_name(ctx, path, &to));
    kvf_status st = kvf__fail(ctx, KVF_EUNSUPPORTED,
                              "%s: is a torch pickle, want safetensors; this converts it: " CONVERT,
                              path, path, to);
    kvf__free(to);
    return st;
}

kvf_status kvf__foreign_check_pickle(kvf_ctx *ctx, const char *path)
{
    kvf__mapfile file = {0};
    kvf__file_kind kind = KVF__FILE_UNKNOWN;
    KVF_TRY(kvf__file_kind_of(ctx, path, &kind));
    if (kvf__is_dir(path) || kind != KVF__FILE_UNKNOWN) return KVF_OK;
    KVF_TRY(kvf__mapfile_open(ctx, path, &file));
    bool pickle = looks_pickled(&file);
    kvf__mapfile_close(&file);
    return pickle ? refuse_pickle(ctx, path) : KVF_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* *weights: the folder's file, NULL if it has none we know. A pickle alone is refused. */
static kvf_status find_weights(kvf_ctx *ctx, const char *dir, char **weights)
{
    char *pickle = NULL;

    for (int i = 0; i < N_WEIGHTS && !*weights; i++)
        KVF_TRY(kvf__path_find(ctx, dir, FILES[i].tensors, weights));
    if (*weights) return KVF_OK;
    for (int i = 0; i < N_WEIGHTS && !pickle; i++)
        KVF_TRY(kvf__path_find(ctx, dir, FILES[i].pickle, &pickle));
    kvf_status st = pickle ? refuse_pickle(ctx, pickle) : KVF_OK;
    kvf__free(pickle);
    return st;
}

/* A head that AdapterHub put into a file of its own, with its config. */
static kvf_status open_head(kvf_ctx *ctx, const char *dir, kvf__foreign *f)
{
    char *tensors = NULL, *pickle = NULL;

    KVF_TRY(kvf__json_load_in(ctx, dir, "head_config.json", &f->head_config));
    if (!f->head_config) return KVF_OK;
    kvf_status st = kvf__path_find(ctx, dir, FILES[N_WEIGHTS].tensors, &tensors);
    if (!st) st = kvf__path_find(ctx, dir, FILES[N_WEIGHTS].pickle, &pickle);
    if (!st && tensors) st = kvf__safetensors_open(ctx, tensors, &f->head);
    f->head_pickle = pickle && !tensors;
    kvf__free(tensors);
    kvf__free(pickle);
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
    KVF_TRY(kvf__foreign_check_pickle(ctx, path));
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
    kvf_json_free(f->config);
    kvf_json_free(f->head_config);
    kvf__prefix_done(&f->prefix);
    *f = (kvf__foreign){0};
}
