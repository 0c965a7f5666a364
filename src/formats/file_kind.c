/* The kind of a path's contents, so that one --base or --prefix option accepts every format.
 *
 * Files are recognised by their first bytes, never by their names; folders by the files in them.
 * Safetensors has no magic number: it is recognised by a header length that fits the file, followed
 * by the brace of a JSON object. Torch's pickles are no kind: `python -m kvfold.from_pickle`
 * converts them. */
#include "file_int.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { HEAD_BYTES = 64 };

/* ---- pickles --------------------------------------------------------------------------------- */

/* File names of programs that write both forms; a whole model precedes its shards. */
static const struct names {
    const char *pickle, *tensors;
} NAMES[] = {
    {"pytorch_adapter.bin", "adapter.safetensors"},
    {"adapter_model.bin", "adapter_model.safetensors"},
    {"pytorch_model.bin", "model.safetensors"},
    {"pytorch_model.bin.index.json", "model.safetensors"},
};
enum { N_NAMES = sizeof NAMES / sizeof NAMES[0] };

/* Recognises a zip archive, or a bare pickle of protocol 2 or later (torch before 1.6). */
static bool is_pickle(const uint8_t *head, size_t n)
{
    return n >= 4 &&
           (!memcmp(head, "PK\3\4", 4) || (head[0] == 0x80 && head[1] >= 2 && head[1] <= 5));
}

static kvf_status fail_pickle(kvf_ctx *ctx, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.'), *known = NULL;
    size_t stem = dot && dot > name ? (size_t)(dot - path) : strlen(path);

    for (int i = 0; i < N_NAMES && !known; i++)
        if (!strcmp(name, NAMES[i].pickle)) known = NAMES[i].tensors;
    if (known) stem = (size_t)(name - path);
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "%s: is a torch pickle, want safetensors; this converts it: "
                     "python -m kvfold.from_pickle '%s' '%.*s%s'",
                     path, path, (int)stem, path, known ? known : ".safetensors");
}

/* Fails where the folder has a GGUF file, which is no part of it. */
static kvf_status check_gguf(kvf_ctx *ctx, const char *path)
{
    char found[256] = "";
    int n = 0;
    DIR *list = opendir(path);
    for (const struct dirent *at = NULL; list && (at = readdir(list));) {
        const size_t length = strlen(at->d_name);
        if (length < 6 || strcasecmp(at->d_name + length - 5, ".gguf") != 0) continue;
        if (!n++ || strcmp(at->d_name, found) < 0) snprintf(found, sizeof found, "%s", at->d_name);
    }
    if (list) closedir(list);
    if (!n) return KVF_OK;
    return kvf__fail(ctx, KVF_EFORMAT, "%s: is a folder with %d GGUF file%s: name %s, %s/%s", path,
                     n, n > 1 ? "s" : "", n > 1 ? "one of them" : "the file", path, found);
}

/* A file that was cut to be uploaded, and its parts named .part1of2, or -split-a. */
static kvf_status check_part(kvf_ctx *ctx, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *part = strstr(name, "part"), *split = strstr(name, "-split-");
    int at = 0, of = 0, end = 0;
    if (part && part > name && sscanf(part, "part%dof%d%n", &at, &of, &end) == 2 && !part[end])
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: is part %d of %d of a file: `cat %.*spart{1..%d}of%d >%.*s` in bash "
                         "joins them",
                         path, at, of, (int)(part - path), path, of, of, (int)(part - 1 - path),
                         path);
    if (split && split[7] >= 'a' && split[7] <= 'z' && !split[8])
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: is a part of a file: `cat %.*s-split-? >%.*s` joins them", path,
                         (int)(split - path), path, (int)(split - path), path);
    return KVF_OK;
}

/* Fails if the folder's only weights are a pickle or a GGUF file. */
static kvf_status check_dir(kvf_ctx *ctx, const char *dir)
{
    char *tensors = NULL, *pickle = NULL;

    kvf_status st = kvf__path_find(ctx, dir, "model.safetensors.index.json", &tensors);
    for (int i = 0; i < N_NAMES && !st && !tensors; i++)
        st = kvf__path_find(ctx, dir, NAMES[i].tensors, &tensors);
    for (int i = 0; i < N_NAMES && !st && !tensors && !pickle; i++)
        st = kvf__path_find(ctx, dir, NAMES[i].pickle, &pickle);
    if (pickle) st = fail_pickle(ctx, pickle);
    if (!st && !tensors) st = check_gguf(ctx, dir);
    kvf__free(tensors);
    kvf__free(pickle);
    return st;
}

/* ---- kinds ----------------------------------------------------------------------------------- */

static bool is_safetensors(const uint8_t *head, size_t n, uint64_t file_n)
{
    kvf__reader r = {.data = head, .n = n};
    uint64_t header_n = kvf__read_u64(&r);

    if (r.failed || header_n < 2 || header_n > file_n - 8) return false;
    while (r.at < n && strchr(" \t\r\n", head[r.at]) && head[r.at])
        r.at++;
    return r.at < n && head[r.at] == '{';
}

static kvf__file_kind kind_of_bytes(const uint8_t *head, size_t n, uint64_t file_n)
{
    static const char hdf5[] = "\x89HDF\r\n\x1a\n";

    if (n >= 8 && !memcmp(head, hdf5, 8)) return KVF__FILE_HDF5;
    if (n >= 4 && !memcmp(head, "GGUF", 4)) return KVF__FILE_GGUF;
    if (n >= 4 && !memcmp(head, "qsgg", 4)) return KVF__FILE_LLAMA_STATE;
    if (is_safetensors(head, n, file_n)) return KVF__FILE_SAFETENSORS;
    return KVF__FILE_UNKNOWN;
}

static kvf_status kind_of_file(kvf_ctx *ctx, const char *path, uint64_t file_n, kvf__file_kind *out)
{
    uint8_t head[HEAD_BYTES];
    KVF_TRY(check_part(ctx, path));
    FILE *file = fopen(path, "rb");

    if (!file) return kvf__fail(ctx, KVF_EIO, "%s: cannot open: %s", path, strerror(errno));
    size_t n = fread(head, 1, sizeof head, file);
    bool failed = ferror(file);
    fclose(file);
    if (failed) return kvf__fail(ctx, KVF_EIO, "%s: cannot read", path);
    KVF_TRY(kvf__check_stand_in(ctx, path, head, n, true));
    *out = kind_of_bytes(head, n, file_n);
    return *out == KVF__FILE_UNKNOWN && is_pickle(head, n) ? fail_pickle(ctx, path) : KVF_OK;
}

/* An adapter folder may have a config.json of its base, so its mark comes first. */
static const struct mark {
    const char *name;
    kvf__file_kind kind;
} MARKS[] = {
    {"adapter_config.json", KVF__FILE_PEFT_DIR},
    {"config.json", KVF__FILE_HF_DIR},
    {"model.safetensors", KVF__FILE_HF_DIR},
    {"model.safetensors.index.json", KVF__FILE_HF_DIR},
};

static kvf_status kind_of_dir(kvf_ctx *ctx, const char *path, kvf__file_kind *out)
{
    char *mark = NULL;

    *out = KVF__FILE_UNKNOWN;
    KVF_TRY(check_dir(ctx, path));
    for (size_t i = 0; i < sizeof MARKS / sizeof MARKS[0] && !mark; i++) {
        KVF_TRY(kvf__path_find(ctx, path, MARKS[i].name, &mark));
        if (mark) *out = MARKS[i].kind;
    }
    kvf__free(mark);
    return KVF_OK;
}

kvf_status kvf__file_kind_of(kvf_ctx *ctx, const char *path, kvf__file_kind *out)
{
    struct stat info;

    if (stat(path, &info) < 0)
        return kvf__fail(ctx, KVF_EIO, "%s: cannot open: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) return kind_of_dir(ctx, path, out);
    if (!S_ISREG(info.st_mode)) return kvf__fail(ctx, KVF_EIO, "%s: is not a regular file", path);
    return kind_of_file(ctx, path, (uint64_t)info.st_size, out);
}

static kvf_status open_peft(kvf_ctx *ctx, const char *dir, kvf__weights *out)
{
    char *path = NULL;

    KVF_TRY(kvf__path_join(ctx, dir, "adapter_model.safetensors", &path));
    kvf_status st = kvf__safetensors_open(ctx, path, out);
    kvf__free(path);
    return st;
}

kvf_status kvf__weights_open(kvf_ctx *ctx, const char *path, kvf__file_kind kind, kvf__weights *out)
{
    switch (kind) {
    case KVF__FILE_SAFETENSORS:
        return kvf__safetensors_open(ctx, path, out);
    case KVF__FILE_GGUF:
        return kvf__gguf_open(ctx, path, out);
    case KVF__FILE_HF_DIR:
        return kvf__safetensors_open_dir(ctx, path, out);
    case KVF__FILE_PEFT_DIR:
        return open_peft(ctx, path, out);
    default:
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: unknown kind of file, want kvfold HDF5, safetensors or GGUF, or a "
                         "Hugging Face or PEFT folder",
                         path);
    }
}
