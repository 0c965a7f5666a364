/* A base by its name on the Hugging Face Hub, in the local cache of its libraries:
 * CACHE/models--ORG--NAME has refs/main, which names the snapshot. CACHE is HF_HUB_CACHE, or hub in
 * HF_HOME, or huggingface/hub in the user's cache folder. Nothing is downloaded. */
#include "open_base.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_REF = 4096 };

static const char *set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value ? value : NULL;
}

static kvf_status cache_folder(kvf_ctx *ctx, char **out)
{
    const char *hub = set("HF_HUB_CACHE"), *home = set("HF_HOME"), *caches = set("XDG_CACHE_HOME");
    if (hub) return kvf__strdup(ctx, hub, out);
    if (home) return kvf__asprintf(ctx, out, "%s/hub", home);
    if (caches) return kvf__asprintf(ctx, out, "%s/huggingface/hub", caches);
    home = set("HOME");
    return kvf__asprintf(ctx, out, "%s/.cache/huggingface/hub", home ? home : "");
}

/* Recognises NAME or ORG/NAME. */
static bool is_name(const char *text)
{
    int slashes = 0;
    for (const char *c = text; *c; c++) {
        bool begins = c == text || c[-1] == '/';
        slashes += *c == '/';
        if (begins ? !isalnum((unsigned char)*c)
                   : !isalnum((unsigned char)*c) && !strchr("/._-", *c))
            return false;
    }
    return *text && slashes <= 1 && text[strlen(text) - 1] != '/';
}

/* Builds CACHE/models--ORG--NAME. */
static kvf_status repository(kvf_ctx *ctx, const char *cache, const char *name, char **out)
{
    const char *slash = strchr(name, '/');
    int n = slash ? (int)(slash - name) : 0;
    return kvf__asprintf(ctx, out, "%s/models--%.*s%s%s", cache, n, name, slash ? "--" : "",
                         slash ? slash + 1 : name);
}

/* Finds the snapshot named by refs/main; *out stays NULL if there is none. */
static kvf_status snapshot(kvf_ctx *ctx, const char *folder, char **out)
{
    char *ref = NULL, *path = NULL;
    kvf__buf text = {0};

    kvf_status st = kvf__path_find(ctx, folder, "refs/main", &ref);
    if (!st && ref) st = kvf__read_file(ctx, ref, LONGEST_REF, &text);
    if (!st && ref)
        st = kvf__asprintf(ctx, &path, "%s/snapshots/%.*s", folder,
                           (int)strcspn(text.data ? text.data : "", " \r\n"), text.data);
    if (!st && ref && kvf__is_dir(path)) {
        *out = path;
        path = NULL;
    }
    kvf__free(ref);
    kvf__free(path);
    kvf__buf_done(&text);
    return st;
}

/* Returns whether ORG/NAME means a Hub name: it has no file's ending, and there is no folder ORG
 * here, unlike for "models/mine" beside a folder "models". */
static bool is_meant(const char *path)
{
    char first[256];
    size_t n = strcspn(path, "/");
    const char *ending = strrchr(path, '.');
    if (ending && (!strcmp(ending, ".h5") || !strcmp(ending, ".gguf"))) return false;
    if (!path[n] || n >= sizeof first) return false;
    memcpy(first, path, n);
    first[n] = 0;
    return !kvf__exists(first);
}

/* Returns the length of ORG/NAME at the start of text, the part of an address after the host. */
static size_t name_bytes(const char *text)
{
    const size_t org = strcspn(text, "/");
    return text[org] ? org + 1 + strcspn(text + org + 1, "/?#") : org;
}

kvf_status kvf__hub_find(kvf_ctx *ctx, const char *path, char **out)
{
    char *cache = NULL, *folder = NULL, *found = NULL;
    kvf_status st = KVF_OK;

    static const char *const ADDRESSES[] = {"https://huggingface.co/", "https://hf.co/", "hf://"};
    for (size_t i = 0; i < sizeof ADDRESSES / sizeof *ADDRESSES; i++)
        if (!strncmp(path, ADDRESSES[i], strlen(ADDRESSES[i])))
            return kvf__fail(
                ctx, KVF_EIO, "%s: is an address, want ORG/NAME: `hf download %.*s` fetches it",
                path, (int)name_bytes(path + strlen(ADDRESSES[i])), path + strlen(ADDRESSES[i]));
    if (kvf__exists(path) || !is_name(path)) return kvf__strdup(ctx, path, out);
    st = cache_folder(ctx, &cache);
    if (!st) st = repository(ctx, cache, path, &folder);
    if (!st) st = snapshot(ctx, folder, &found);
    if (!st && !found && is_meant(path))
        st = kvf__fail(ctx, KVF_EIO,
                       "%s: cannot open: %s, nor is it in the Hugging Face cache %s: "
                       "`hf download %s` fetches it",
                       path, strerror(ENOENT), cache, path);
    else if (!st && !found)
        st = kvf__strdup(ctx, path, &found);
    if (!st) *out = found;
    kvf__free(cache);
    kvf__free(folder);
    return st;
}

kvf_status kvf__hub_find_prefix(kvf_ctx *ctx, const char *path, char **out)
{
    char *at = NULL, *file = NULL;
    KVF_TRY(kvf__hub_find(ctx, path, &at));
    const kvf_status st = kvf__path_find(ctx, at, KVF__HUB_PREFIX, &file);
    if (file) {
        kvf__free(at);
        at = file;
    }
    KVF__GIVE(st, out, at, kvf__free(at));
    return st;
}

kvf_status kvf__check_prefix_input(kvf_ctx *ctx, const char *path)
{
    char *at = NULL;
    KVF_TRY(kvf__hub_find(ctx, path, &at));
    const bool exists = kvf__exists(at);
    kvf__free(at);
    return exists ? KVF_OK : kvf__check_input(ctx, path);
}

kvf_status kvf__hub_name(kvf_ctx *ctx, const char *path, char **out)
{
    static const char FOLDER[] = "models--", BELOW[] = "/snapshots/";
    const char *below = strstr(path, BELOW), *first = below;
    while (first && first > path && first[-1] != '/')
        first--;
    if (!first || strncmp(first, FOLDER, strlen(FOLDER)) != 0) return KVF_OK;
    first += strlen(FOLDER);
    KVF_TRY(kvf__strndup(ctx, first, (size_t)(below - first), out));
    char *dashes = strstr(*out, "--");
    if (!dashes) return KVF_OK;
    *dashes = '/';
    memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
    return KVF_OK;
}
