/* The table of foreign formats, and how a path becomes one: the file's tensors decide, whatever it
 * is called, with the config that lies beside it.
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
    bool (*is)(const kvf__table *table);
    kvf_status (*read)(kvf_ctx *ctx, const char *where, kvf__foreign *f);
} FORMATS[] = {
    {"p-tuning-v2", kvf__foreign_is_ptuning_v2, kvf__foreign_ptuning_v2},
    {"prefixtuning", kvf__foreign_is_prefixtuning, kvf__foreign_prefixtuning},
    {"adapterhub", kvf__foreign_is_adapterhub, kvf__foreign_adapterhub},
    {"cartridges", kvf__foreign_is_cartridge, kvf__foreign_cartridge},
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
    for (int i = 0; i < N_WEIGHTS; i++) {
        char *path = NULL;
        KVF_TRY(kvf__path_join(ctx, dir, FILES[i].tensors, &path));
        if (kvf__exists(path)) {
            *weights = path;
            return KVF_OK;
        }
        kvf__free(path);
    }
    for (int i = 0; i < N_WEIGHTS; i++) {
        char *path = NULL;
        KVF_TRY(kvf__path_join(ctx, dir, FILES[i].pickle, &path));
        kvf_status st = kvf__exists(path) ? refuse_pickle(ctx, path) : KVF_OK;
        kvf__free(path);
        if (st) return st;
    }
    return KVF_OK;
}

static kvf_status load_beside(kvf_ctx *ctx, const char *dir, const char *name, kvf_json **out)
{
    char *path = NULL;
    KVF_TRY(kvf__path_join(ctx, dir, name, &path));
    kvf_status st = kvf__exists(path) ? kvf_json_load(ctx, path, out) : KVF_OK;
    kvf__free(path);
    return st;
}

/* A head that AdapterHub put into a file of its own, with its config. */
static kvf_status open_head(kvf_ctx *ctx, const char *dir, kvf__foreign *f)
{
    char *tensors = NULL, *pickle = NULL;
    kvf_status st;

    st = load_beside(ctx, dir, "head_config.json", &f->head_config);
    if (st || !f->head_config) return st;
    st = kvf__path_join(ctx, dir, FILES[N_WEIGHTS].tensors, &tensors);
    if (st) goto out;
    st = kvf__path_join(ctx, dir, FILES[N_WEIGHTS].pickle, &pickle);
    if (st) goto out;
    if (kvf__exists(tensors))
        st = kvf__safetensors_open(ctx, tensors, &f->head);
    else if (kvf__exists(pickle))
        f->head_pickle = true;
out:
    kvf__free(tensors);
    kvf__free(pickle);
    return st;
}

static kvf_status folder_of(kvf_ctx *ctx, const char *path, char **out)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return kvf__strdup(ctx, ".", out);
    return kvf__strndup(ctx, path, (size_t)(slash - path) + (slash == path), out);
}

static kvf_status read_as(kvf_ctx *ctx, const char *path, const char *dir, int format,
                          kvf__foreign *f)
{
    f->format = FORMATS[format].name;
    KVF_TRY(load_beside(ctx, dir, "adapter_config.json", &f->config));
    if (!f->config) KVF_TRY(load_beside(ctx, dir, "config.json", &f->config));
    KVF_TRY(open_head(ctx, dir, f));
    return FORMATS[format].read(ctx, path, f);
}

kvf_status kvf__foreign_open(kvf_ctx *ctx, const char *path, const char *from, kvf__foreign *out,
                             bool *found)
{
    kvf__foreign f = {0};
    char *weights = NULL, *dir = NULL;
    bool is_dir = kvf__is_dir(path);
    int format = 0;
    kvf_status st;

    *found = false;
    st = is_dir ? kvf__strdup(ctx, path, &dir) : folder_of(ctx, path, &dir);
    if (st) goto out;
    st = is_dir ? find_weights(ctx, path, &weights) : kvf__strdup(ctx, path, &weights);
    if (st) goto out;
    if (!weights) {
        if (from)
            st = kvf__fail(ctx, KVF_EIO,
                           "%s: neither adapter.safetensors nor model.safetensors is "
                           "there",
                           path);
        goto out;
    }
    st = kvf__foreign_check_pickle(ctx, weights);
    if (st) goto out;
    st = kvf__safetensors_open(ctx, weights, &f.weights);
    if (st) goto out;
    while (format < N_FORMATS &&
           (from ? strcmp(FORMATS[format].name, from) != 0 : !FORMATS[format].is(&f.weights.table)))
        format++;
    if (format == N_FORMATS) goto out;
    st = read_as(ctx, weights, dir, format, &f);
    if (st) goto out;
    *found = true;
    *out = f;
    f = (kvf__foreign){0};
out:
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
