/* The embeddings file: the folded form of virtual tokens at the input that no prefix can
 * replace (docs/format.md).
 *
 *   /embeddings/virtual    [P, C] f32, rows by virtual token
 *   attribute p_template     of /embeddings: their places in a row, "" if they lead it */
#include "artifact_priv.h"

#include <math.h>

static const char GROUP[] = "embeddings", DATASET[] = "virtual";
static const char *const LABELS[] = {"position", "channel"};

static kvf_status check(kvf_ctx *ctx, const char *path, const kvf__artifact *a)
{
    const kvf__vectors *vectors = &a->vectors;

    for (int64_t i = 0; i < vectors->P * vectors->C; i++)
        if (!isfinite(vectors->x[i]))
            return kvf__fail(ctx, KVF_ENUMERIC,
                             "%s: /%s/%s: [%lld, %lld] is %g, want finite values", path, GROUP,
                             DATASET, (long long)(i / vectors->C), (long long)(i % vectors->C),
                             (double)vectors->x[i]);
    return KVF_OK;
}

static kvf__h5_id write_vectors(kvf__h5 *h5, const kvf__artifact *a)
{
    const int64_t dim[] = {a->vectors.P, a->vectors.C};
    const kvf__h5_spec spec = {
        .name = DATASET, .dtype = KVF__F32, .rank = 2, .dim = dim, .labels = LABELS};
    kvf__h5_id group = kvf__h5_group_create(h5, h5->file, GROUP);

    kvf__h5_data_write(h5, group, &spec, a->vectors.x, NULL);
    return group;
}

static void write_template(kvf__h5 *h5, kvf__h5_id group, const kvf__artifact *a)
{
    kvf__h5_put_text(h5, group, "p_template", a->pattern ? a->pattern : "");
}

static void read_vectors(kvf__h5 *h5, const kvf__h5_data *group, kvf__artifact *a)
{
    kvf__h5_data data = kvf__h5_data_open(h5, group->id, DATASET);
    char text[128];

    if (data.dtype != KVF__F32 || data.rank != 2 || data.dim[0] != a->id.P || data.dim[1] < 1)
        kvf__h5_fail(h5, data.id, KVF_ESHAPE, "%s %s, want f32 [%lld, C]",
                     kvf__dtype_name(data.dtype), kvf__shape_text(text, data.rank, data.dim),
                     (long long)a->id.P);
    KVF__H5_TRY(h5, kvf__vectors_init(h5->ctx, &a->vectors, data.dim[0], data.dim[1]));
    kvf__h5_data_read(h5, &data, a->vectors.x,
                      (size_t)(a->vectors.P * a->vectors.C) * sizeof *a->vectors.x);
    KVF__H5_TRY(h5, check(h5->ctx, h5->path, a));
    a->pattern = kvf__h5_get_text(h5, group->id, "p_template");
    kvf__h5_release(&data.id);
}

const kvf__kind_row kvf__embeddings_row = {
    .name = "embeddings",
    .object = GROUP,
    .check = check,
    .write = write_vectors,
    .write_attrs = write_template,
    .read = read_vectors,
};
