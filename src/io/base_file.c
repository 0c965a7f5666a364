/* The base file: a model's weights under /weights by their Hugging Face names, its config.json in
 * /config and the files of its tokenizer under /tokenizer, as texts.
 *
 * Weights are contiguous, unfiltered and 64-byte aligned, so that a reader maps the file and views
 * them where they lie; HDF5 only says where that is. Everything it says is checked against the
 * bytes of the file before a view is made. The seal covers the weights, which have no
 * checksums of their own. */
#include "h5_priv.h"

#include <string.h>

/* ---- writing --------------------------------------------------------------------------------- */

static kvf_status write_weight(kvf__h5 *h5, kvf__h5_id group, const kvf__base_file *file, size_t i)
{
    const char *name = file->tensors[i].name;
    kvf__view view = file->tensors[i].view;

    if (file->load) KVF_TRY(file->load(file->user, i, &view));
    if (!kvf__base_file_takes(&view))
        return kvf__h5_fail(h5, group, KVF_EUNSUPPORTED,
                            "%s has type %s, want f32, f16, bf16, f64, i64 or u8", name,
                            view.other_name ? view.other_name : kvf__dtype_name(view.dtype));
    const kvf__h5_spec spec = {
        .name = name, .dtype = view.dtype, .rank = view.rank, .dim = view.dim, .contiguous = true};
    return kvf__h5_data_write(h5, group, &spec, view.data, NULL);
}

bool kvf__base_file_takes(const kvf__view *view)
{
    switch (view->dtype) {
    case KVF__F32:
    case KVF__F16:
    case KVF__BF16:
    case KVF__F64:
    case KVF__I64:
    case KVF__U8:
        return view->rank > 0 && kvf__view_count(view) > 0;
    default:
        return false;
    }
}

static kvf_status write_all(kvf__h5 *h5, const kvf__base_file *file)
{
    kvf__h5_id group = KVF__H5_NONE;
    kvf_status st;

    st = kvf__h5_texts_write(h5, h5->file, "config", &file->config, 1);
    if (st) goto out;
    st = kvf__h5_group_create(h5, h5->file, "tokenizer", &group);
    if (st) goto out;
    for (size_t i = 0; i < file->n_texts && !st; i++)
        st = kvf__h5_texts_write(h5, group, file->texts[i].name, &file->texts[i].text, 1);
    if (st) goto out;
    kvf__h5_release(&group);
    st = kvf__h5_group_create(h5, h5->file, "weights", &group);
    if (st) goto out;
    for (size_t i = 0; i < file->n && !st; i++)
        st = write_weight(h5, group, file, i);
    if (!st && file->task) st = kvf__base_task_write(h5, group, file->task);
out:
    kvf__h5_release(&group);
    return st;
}

kvf_status kvf__base_file_write(kvf_ctx *ctx, const char *path, bool force,
                                const kvf__base_file *file)
{
    kvf__h5 h5 = KVF__H5_NOTHING;
    kvf_status st;

    st = kvf__h5_create(ctx, path, force, "base", &h5);
    if (st) goto out;
    st = write_all(&h5, file);
    if (st) goto out;
    st = kvf__h5_commit(&h5);
out:
    kvf__h5_close(&h5);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

static kvf_status read_text(kvf__h5 *h5, kvf__h5_id group, const char *name, char **out)
{
    char **texts = NULL;
    size_t n = 0;

    KVF_TRY(kvf__h5_texts_read(h5, group, name, &texts, &n));
    kvf_status st = n == 1 ? KVF_OK
                           : kvf__h5_fail(h5, group, KVF_EFORMAT, "\"%s\" is %zu texts, want one",
                                          name, n);
    if (!st) {
        *out = texts[0];
        texts[0] = NULL;
    }
    for (size_t i = 0; i < n; i++)
        kvf__free(texts[i]);
    kvf__free(texts);
    return st;
}

static kvf_status read_texts(kvf__h5 *h5, kvf__base_file *file)
{
    enum { MOST_TEXTS = 16 };
    kvf__h5_id group = KVF__H5_NONE;
    size_t n = 0;
    kvf_status st;

    st = read_text(h5, h5->file, "config", &file->config);
    if (st) goto out;
    st = kvf__h5_group_open(h5, h5->file, "tokenizer", &group);
    if (st) goto out;
    st = kvf__h5_child_count(h5, group, &n);
    if (!st && n > MOST_TEXTS)
        st = kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu texts, want at most %d", n, MOST_TEXTS);
    if (!st) st = kvf__alloc_array(h5->ctx, n, sizeof *file->texts, &file->texts);
    for (size_t i = 0; i < n && !st; i++) {
        kvf__base_text *text = &file->texts[file->n_texts++];
        st = kvf__h5_child_name(h5, group, i, &text->name);
        if (!st) st = read_text(h5, group, text->name, &text->text);
    }
out:
    kvf__h5_release(&group);
    return st;
}

static kvf_status view_weight(kvf__h5 *h5, kvf__h5_id group, const char *name,
                              const kvf__mapfile *map, kvf__table *table)
{
    kvf__h5_data data = {.id = KVF__H5_NONE};
    size_t at = 0;
    kvf_status st;

    st = kvf__h5_data_open(h5, group, name, &data);
    if (st) goto out;
    st = kvf__h5_data_place(h5, &data, &at);
    if (st) goto out;
    kvf__view view = {.data = map->data + at, .dtype = data.dtype, .rank = data.rank};
    memcpy(view.dim, data.dim, sizeof view.dim);
    if (data.dtype == KVF__I8) /* of prefixes only */
        st = kvf__h5_fail(h5, data.id, KVF_EFORMAT,
                          "element type i8, want f32, f16, bf16, f64, i64 or u8");
    if (st) goto out;
    st = kvf__table_add(h5->ctx, table, name, view);
out:
    kvf__h5_release(&data.id);
    return st;
}

static kvf_status read_weights(kvf__h5 *h5, kvf__weights *weights)
{
    kvf__h5_id group = KVF__H5_NONE;
    char *name = NULL;
    size_t n = 0;
    kvf_status st;

    st = kvf__alloc_array(h5->ctx, 1, sizeof *weights->maps, &weights->maps);
    if (st) goto out;
    weights->maps[weights->n_maps++] = h5->map; /* taken: the very file that HDF5 reads */
    h5->map = (kvf__mapfile){0};
    st = kvf__h5_group_open(h5, h5->file, "weights", &group);
    if (st) goto out;
    st = kvf__h5_child_count(h5, group, &n);
    if (!st && n > KVF__MOST_PARAMS)
        st = kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu tensors, want at most %d", n,
                          KVF__MOST_PARAMS);
    for (size_t i = 0; i < n && !st; i++) {
        st = kvf__h5_child_name(h5, group, i, &name);
        if (!st) st = view_weight(h5, group, name, &weights->maps[0], &weights->table);
        kvf__free(name);
        name = NULL;
    }
out:
    kvf__h5_release(&group);
    return st;
}

kvf_status kvf__base_file_open(kvf_ctx *ctx, const char *path, kvf__weights *weights,
                               kvf__base_file *file)
{
    kvf__h5 h5 = KVF__H5_NOTHING;
    kvf__weights opened = {0};
    kvf__base_file texts = {0};
    kvf_status st;

    st = kvf__h5_open(ctx, path, "base", &h5);
    if (st) goto out;
    st = read_texts(&h5, &texts);
    if (st) goto out;
    if (weights) st = read_weights(&h5, &opened);
    if (st) goto out;
    if (weights) *weights = opened;
    *file = texts;
    opened = (kvf__weights){0};
    texts = (kvf__base_file){0};
out:
    kvf__weights_close(&opened);
    kvf__base_file_done(&texts);
    kvf__h5_close(&h5);
    return st;
}

kvf_status kvf__base_text_add(kvf_ctx *ctx, kvf__base_file *file, const char *name,
                              const char *text, size_t n)
{
    kvf__base_text item = {0};
    kvf_status st;

    if (memchr(text, 0, n))
        return kvf__fail(ctx, KVF_EFORMAT, "%s: holds a zero byte, want text", name);
    st = kvf__grow(ctx, &file->texts, file->n_texts * sizeof item,
                   (file->n_texts + 1) * sizeof item);
    if (st) goto out;
    st = kvf__strdup(ctx, name, &item.name);
    if (st) goto out;
    st = kvf__strndup(ctx, text, n, &item.text);
    if (st) goto out;
    file->texts[file->n_texts++] = item;
    item = (kvf__base_text){0};
out:
    kvf__free(item.name);
    kvf__free(item.text);
    return st;
}

void kvf__base_file_done(kvf__base_file *file)
{
    for (size_t i = 0; i < file->n_texts; i++) {
        kvf__free(file->texts[i].name);
        kvf__free(file->texts[i].text);
    }
    kvf__free(file->texts);
    kvf__free(file->config);
    *file = (kvf__base_file){0};
}
