/* The embeddings file: what virtual tokens at the input fold to where no prefix can take their
 * place (docs/format.md).
 *
 *   /embeddings/virtual    [P, C] f32, rows by virtual token
 *   attribute template     of /embeddings: where they stand in a row, "" if they lead it
 *
 * and on /embeddings what every file says of its training; /head, /options and /lineage as in a
 * prefix file. */
#include "h5_priv.h"

#include <math.h>

static const char GROUP[] = "embeddings", DATASET[] = "virtual";
static const char *const LABELS[] = {"position", "channel"};

static kvf_status check_values(kvf_ctx *ctx, const char *path, const kvf__vectors *vectors)
{
    for (int64_t i = 0; i < vectors->P * vectors->C; i++)
        if (!isfinite(vectors->x[i]))
            return kvf__fail(ctx, KVF_ENUMERIC,
                             "%s: /%s/%s: [%lld, %lld] is %g, want finite values", path, GROUP,
                             DATASET, (long long)(i / vectors->C), (long long)(i % vectors->C),
                             (double)vectors->x[i]);
    return KVF_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

kvf_status kvf__embeddings_file_write(kvf_ctx *ctx, const char *path, bool force,
                                      const kvf__embeddings_file *file)
{
    const int64_t dim[] = {file->vectors.P, file->vectors.C};
    const kvf__h5_spec spec = {
        .name = DATASET, .dtype = KVF__F32, .rank = 2, .dim = dim, .labels = LABELS};
    kvf__h5 h5;
    kvf__h5_id group;

    KVF_TRY(check_values(ctx, path, &file->vectors));
    h5 = kvf__h5_create(ctx, path, force, GROUP);
    group = kvf__h5_group_create(&h5, h5.file, GROUP);
    kvf__h5_data_write(&h5, group, &spec, file->vectors.x, NULL);
    kvf__identity_write(&h5, group, true, &file->id);
    kvf__h5_put_text(&h5, group, "template", file->pattern ? file->pattern : "");
    kvf__file_end_write(&h5, file->id.task, &file->head, file->options, file->lineage);
    kvf__h5_release(&group); /* not before: the order decides where HDF5 puts what */
    return kvf__h5_close(&h5);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void read_vectors(kvf__h5 *h5, const kvf__h5_data *data, kvf__embeddings_file *file)
{
    char text[128];

    if (data->dtype != KVF__F32 || data->rank != 2 || data->dim[0] != file->id.P ||
        data->dim[1] < 1)
        kvf__h5_fail(h5, data->id, KVF_ESHAPE, "%s %s, want f32 [%lld, C]",
                     kvf__dtype_name(data->dtype), kvf__shape_text(text, data->rank, data->dim),
                     (long long)file->id.P);
    KVF__H5_TRY(h5, kvf__vectors_init(h5->ctx, &file->vectors, data->dim[0], data->dim[1]));
    kvf__h5_data_read(h5, data, file->vectors.x);
    KVF__H5_TRY(h5, check_values(h5->ctx, h5->path, &file->vectors));
}

void kvf__embeddings_read_from(kvf__h5 *h5, kvf__h5_data *data, kvf__embeddings_file *file)
{
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, GROUP);

    kvf__identity_read(h5, group, true, &file->id);
    *data = kvf__h5_data_open(h5, group, DATASET);
    read_vectors(h5, data, file);
    file->pattern = kvf__h5_get_text(h5, group, "template");
    kvf__file_end_read(h5, file->id.task, &file->head, &file->options, &file->lineage);
    kvf__h5_release(&group);
}

kvf_status kvf__embeddings_file_read(kvf_ctx *ctx, const char *path, kvf__embeddings_file *out)
{
    kvf__h5 h5 = kvf__h5_open(ctx, path, GROUP);
    kvf__h5_data data;
    kvf__embeddings_file file = {0};
    kvf_status st;

    kvf__embeddings_read_from(&h5, &data, &file);
    kvf__h5_release(&data.id);
    st = kvf__h5_close(&h5);
    if (st)
        kvf__embeddings_file_done(&file);
    else
        *out = file;
    return st;
}

void kvf__embeddings_file_done(kvf__embeddings_file *file)
{
    kvf__identity_done(&file->id);
    kvf__vectors_done(&file->vectors);
    kvf__free(file->pattern);
    kvf__head_values_done(&file->head);
    kvf_json_free(file->options);
    kvf_json_free(file->lineage);
    *file = (kvf__embeddings_file){0};
}
