/* A folder in Hugging Face's layout: model.safetensors, or the shards named in
 * model.safetensors.index.json.
 *
 * The index is checked strictly. Every shard is a file of the same folder, and every mapped tensor
 * is in its shard. Every tensor of a shard is mapped to it, and none occurs twice. */
#include "file_int.h"

#include <string.h>

static const char ENDING[] = ".safetensors";

typedef struct shards {
    kvf_ctx *ctx;
    const char *dir, *index_path;
    kvf_json *index;    /* owner of all names below */
    const char **names; /* file names, in order of first appearance */
    size_t n;
    kvf__map by_name;   /* file name -> index in names */
    kvf__map by_tensor; /* tensor -> index in names */
} shards;

static bool is_bare_name(const char *name, size_t n)
{
    const size_t tail = strlen(ENDING);

    if (n <= tail || strlen(name) != n || strcmp(name + n - tail, ENDING)) return false;
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == '/' || name[i] == '\\') return false;
    }
    return !strstr(name, "..");
}

static kvf_status add_mapping(shards *s, const char *tensor, const kvf_json *value)
{
    size_t n = 0;
    const char *name = kvf_json_str(value, &n);
    int64_t at;

    if (!name || !is_bare_name(name, n))
        return kvf__fail(
            s->ctx, KVF_EFORMAT,
            "%s: weight_map \"%.80s\": \"%.80s\" is not a plain file name that ends in %s",
            s->index_path, tensor, name ? name : "(not a string)", ENDING);
    if (!kvf__map_get(&s->by_name, name, n, &at)) {
        at = (int64_t)s->n;
        KVF_TRY(kvf__map_put(s->ctx, &s->by_name, name, n, at));
        s->names[s->n++] = name;
    }
    return kvf__map_put(s->ctx, &s->by_tensor, tensor, strlen(tensor), at);
}

static kvf_status read_index(shards *s)
{
    kvf_json *weight_map;

    KVF_TRY(kvf_json_load(s->ctx, s->index_path, &s->index));
    weight_map = kvf_json_get(s->index, "weight_map");
    if (kvf_json_typeof(weight_map) != KVF_JSON_OBJECT || kvf_json_size(weight_map) == 0)
        return kvf__fail(s->ctx, KVF_EFORMAT, "%s: no weight_map, or an empty one", s->index_path);
    KVF_TRY(kvf__alloc_array(s->ctx, kvf_json_size(weight_map), sizeof *s->names, &s->names));
    for (void *it = kvf_json_iter(weight_map); it; it = kvf_json_next(weight_map, it))
        KVF_TRY(add_mapping(s, kvf_json_iter_key(it), kvf_json_iter_value(it)));
    return KVF_OK;
}

/* Checks tensors from..end of the table, which were read from shard `at`. */
static kvf_status check_shard(const shards *s, const kvf__table *table, size_t from, size_t at)
{
    for (size_t i = from; i < table->n; i++) {
        const char *name = table->items[i].name;
        int64_t mapped;

        if (!kvf__map_get(&s->by_tensor, name, strlen(name), &mapped))
            return kvf__fail(s->ctx, KVF_EFORMAT, "%s/%s: tensor \"%.80s\" is not in the index",
                             s->dir, s->names[at], name);
        if ((size_t)mapped != at)
            return kvf__fail(s->ctx, KVF_EFORMAT,
                             "%s/%s: tensor \"%.80s\" is in %s according to the index", s->dir,
                             s->names[at], name, s->names[mapped]);
    }
    return KVF_OK;
}

static kvf_status open_shard(const shards *s, size_t at, kvf__weights *weights)
{
    size_t before = weights->table.n;
    char *path = NULL;

    KVF_TRY(kvf__path_join(s->ctx, s->dir, s->names[at], &path));
    kvf_status st = kvf__weights_map(s->ctx, path, weights);
    if (!st)
        st = kvf__safetensors_parse(s->ctx, path, weights->maps[at].data, weights->maps[at].n,
                                    weights);
    if (!st) st = check_shard(s, &weights->table, before, at);
    kvf__free(path);
    return st;
}

static kvf_status check_all_found(const shards *s, const kvf__table *table)
{
    kvf_json *weight_map = kvf_json_get(s->index, "weight_map");

    for (void *it = kvf_json_iter(weight_map); it; it = kvf_json_next(weight_map, it)) {
        const char *name = kvf_json_iter_key(it);

        if (kvf__table_find(table, name)) continue;
        return kvf__fail(s->ctx, KVF_EFORMAT, "%s: tensor \"%.80s\" is not in %s", s->index_path,
                         name, kvf_json_str(kvf_json_iter_value(it), NULL));
    }
    return KVF_OK;
}

static kvf_status open_shards(shards *s, kvf__weights *weights)
{
    KVF_TRY(read_index(s));
    KVF_TRY(kvf__alloc_array(s->ctx, s->n, sizeof *weights->maps, &weights->maps));
    for (size_t at = 0; at < s->n; at++)
        KVF_TRY(open_shard(s, at, weights));
    return check_all_found(s, &weights->table);
}

static kvf_status open_sharded(kvf_ctx *ctx, const char *dir, const char *index_path,
                               kvf__weights *out)
{
    shards s = {.ctx = ctx, .dir = dir, .index_path = index_path};
    kvf__weights weights = {0};

    kvf_status st = open_shards(&s, &weights);
    KVF__GIVE(st, out, weights, kvf__weights_close(&weights));
    kvf__map_done(&s.by_tensor);
    kvf__map_done(&s.by_name);
    kvf__free(s.names);
    kvf_json_free(s.index);
    return st;
}

kvf_status kvf__safetensors_open_dir(kvf_ctx *ctx, const char *dir, kvf__weights *out)
{
    char *whole = NULL, *index = NULL;

    kvf_status st = kvf__path_find(ctx, dir, "model.safetensors", &whole);
    if (!st && !whole) st = kvf__path_find(ctx, dir, "model.safetensors.index.json", &index);
    if (!st)
        st = whole   ? kvf__safetensors_open(ctx, whole, out)
             : index ? open_sharded(ctx, dir, index, out)
                     : kvf__fail(ctx, KVF_EIO,
                                 "%s: neither model.safetensors nor its index is there", dir);
    kvf__free(whole);
    kvf__free(index);
    return st;
}
