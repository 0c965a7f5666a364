/* The base file: a model's weights under /weights by their Hugging Face names, its config.json in
 * /config and its tokenizer's files under /tokenizer, as texts.
 *
 * Weights are contiguous, unfiltered and 64-byte aligned, so that a reader maps the file and views
 * them in place. HDF5 is used only to find their addresses, which are checked against the file
 * before a view is made. The seal covers the weights, which have no checksums of their own. */
#include "base_file.h"
#include "artifact_priv.h"

#include <string.h>

/* ---- writing --------------------------------------------------------------------------------- */

static void write_weight(kvf__h5 *h5, kvf__h5_id group, const kvf__base_file *file, size_t i)
{
    const char *name = file->tensors[i].name;
    kvf__view view = file->tensors[i].view;

    if (file->load) KVF__H5_TRY(h5, file->load(file->user, i, &view));
    if (!kvf__base_file_takes(&view))
        kvf__h5_fail(h5, group, KVF_EUNSUPPORTED,
                     "%s has type %s, want f32, f16, bf16, f64, i64 or u8", name,
                     view.other_name ? view.other_name : kvf__dtype_name(view.dtype));
    const kvf__h5_spec spec = {
        .name = name, .dtype = view.dtype, .rank = view.rank, .dim = view.dim, .contiguous = true};
    kvf__h5_data_write(h5, group, &spec, view.data, NULL);
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

kvf_status kvf__base_file_write(kvf_ctx *ctx, const char *path, bool force,
                                const kvf__base_file *file)
{
    const unsigned features = file->task ? kvf__artifact_features(file->task) : 0;
    kvf__h5 h5 = kvf__h5_create(ctx, path, force, "base", features);

    kvf__h5_texts_write(&h5, h5.file, "config", &file->config, 1);
    kvf__h5_id group = kvf__h5_group_create(&h5, h5.file, "tokenizer");
    for (size_t i = 0; i < file->n_texts; i++)
        kvf__h5_texts_write(&h5, group, file->texts[i].name, &file->texts[i].text, 1);
    kvf__h5_release(&group);
    group = kvf__h5_group_create(&h5, h5.file, "weights");
    for (size_t i = 0; i < file->n && !h5.status; i++)
        write_weight(&h5, group, file, i);
    if (file->task) kvf__artifact_write_facts(&h5, group, file->task);
    kvf__h5_release(&group);
    return kvf__h5_close(&h5);
}

/* ---- reading --------------------------------------------------------------------------------- */

static char *read_text(kvf__h5 *h5, kvf__h5_id group, const char *name)
{
    size_t n = 0;
    char **texts = kvf__h5_texts_read(h5, group, name, &n), *text = NULL;

    if (n != 1) kvf__h5_fail(h5, group, KVF_EFORMAT, "\"%s\" has %zu texts, want one", name, n);
    if (n == 1) {
        text = texts[0];
        texts[0] = NULL;
    }
    kvf__strings_free(texts, n);
    return text;
}

static void read_texts(kvf__h5 *h5, kvf__base_file *file)
{
    enum { MOST_TEXTS = 16 };

    file->config = read_text(h5, h5->file, "config");
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, "tokenizer");
    size_t n = kvf__h5_child_count(h5, group);
    if (n > MOST_TEXTS)
        kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu texts, want at most %d", n, MOST_TEXTS);
    KVF__H5_TRY(h5, kvf__alloc_array(h5->ctx, n, sizeof *file->texts, &file->texts));
    char **names = kvf__h5_child_names(h5, group, n);
    for (size_t i = 0; i < n && !h5->status; i++) {
        kvf__base_text *text = &file->texts[file->n_texts++];
        text->name = names[i]; /* ownership passes */
        names[i] = NULL;
        text->text = read_text(h5, group, text->name);
    }
    kvf__strings_free(names, n);
    kvf__h5_release(&group);
}

static void view_weight(kvf__h5 *h5, kvf__h5_id group, const char *name, const kvf__mapfile *map,
                        kvf__table *table)
{
    kvf__h5_data data = kvf__h5_data_open(h5, group, name);
    size_t at = kvf__h5_data_place(h5, &data);
    kvf__view view = {.data = map->data + at, .dtype = data.dtype, .rank = data.rank};

    memcpy(view.dim, data.dim, sizeof view.dim);
    if (data.dtype == KVF__I8) /* for prefixes only */
        kvf__h5_fail(h5, data.id, KVF_EFORMAT,
                     "element type i8, want f32, f16, bf16, f64, i64 or u8");
    KVF__H5_TRY(h5, kvf__table_add(h5->ctx, table, name, view));
    kvf__h5_release(&data.id);
}

static void read_weights(kvf__h5 *h5, kvf__base_file *file)
{
    if (h5->status) return;
    file->map = h5->map; /* the same map that HDF5 reads */
    h5->map = (kvf__mapfile){0};
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, "weights");
    size_t n = kvf__h5_child_count(h5, group);
    if (n > KVF__MOST_PARAMS)
        kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu tensors, want at most %d", n, KVF__MOST_PARAMS);
    char **names = kvf__h5_child_names(h5, group, n);
    for (size_t i = 0; i < n && !h5->status; i++)
        view_weight(h5, group, names[i], &file->map, &file->table);
    kvf__strings_free(names, n);
    kvf__h5_release(&group);
}

kvf_status kvf__base_file_open(kvf_ctx *ctx, const char *path, bool with_weights,
                               kvf__base_file *file)
{
    kvf__h5 h5 = kvf__h5_open(ctx, path, "base");
    kvf__base_file opened = {0};

    read_texts(&h5, &opened);
    if (with_weights) read_weights(&h5, &opened);
    kvf_status st = kvf__h5_close(&h5);
    KVF__GIVE(st, file, opened, kvf__base_file_done(&opened));
    return st;
}

kvf_status kvf__base_text_add(kvf_ctx *ctx, kvf__base_file *file, const char *name,
                              const char *text, size_t n)
{
    kvf__base_text item = {0};

    if (memchr(text, 0, n))
        return kvf__fail(ctx, KVF_EFORMAT, "%s: holds a zero byte, want text", name);
    kvf_status st = kvf__grow(ctx, &file->texts, file->n_texts * sizeof item,
                              (file->n_texts + 1) * sizeof item);
    if (!st) st = kvf__strdup(ctx, name, &item.name);
    if (!st) st = kvf__strndup(ctx, text, n, &item.text);
    if (st)
        kvf__free(item.name);
    else
        file->texts[file->n_texts++] = item;
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
    kvf__table_done(&file->table);
    kvf__mapfile_close(&file->map);
    *file = (kvf__base_file){0};
}
