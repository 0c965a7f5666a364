/* Distractors of a distillation: prefixes of other documents that rows read beside the trained one,
 * joined as compose --mode parallel joins them. */
#include "distill_int.h"
#include "hash.h"
#include "open_prefix.h"

static kvf_status check(const kvf__distractors *d, const char *path, const kvf_prefix *file)
{
    const kvf__identity *id = &file->file.id;
    KVF_TRY(kvf__prefix_fits(d->ctx, file, d->base, false));
    if (id->P && !file->file.prefix.neurons.shape.N && !id->infix && !id->pre_rope) return KVF_OK;
    return kvf__fail(d->ctx, KVF_EUNSUPPORTED,
                     "%s: a distractor has keys and values alone, and stands before rows", path);
}

static kvf_status open_all(const kvf__distractors *d, kvf_prefix **file, int64_t *P)
{
    *P = 0;
    for (size_t i = 0; i < d->n; i++) {
        KVF_TRY(kvf_prefix_open(d->ctx, d->paths[i], KVF_CHECKPOINT_DEFAULT, &file[i]));
        KVF_TRY(check(d, d->paths[i], file[i]));
        *P += file[i]->file.prefix.P;
    }
    return KVF_OK;
}

static kvf_status join(const kvf__distractors *d, kvf_prefix **file, kvf__hash *hash,
                       kvf__prefix *out)
{
    const kvf__desc *desc = kvf__model_desc(d->base->model);
    const kvf__kv_shape shape = kvf__desc_kv(desc);
    int64_t P, at = 0;
    KVF_TRY(open_all(d, file, &P));
    KVF_TRY(kvf__prefix_create(d->ctx, out, &shape, P));
    for (size_t i = 0; i < d->n && !out->log_weight; i++)
        if (file[i]->file.prefix.log_weight) KVF_TRY(kvf__prefix_weigh(d->ctx, out));
    for (size_t i = 0; i < d->n; i++) {
        kvf__prefix *part = &file[i]->file.prefix;
        kvf__hash_add(hash, part->kv, kvf__prefix_count(part) * sizeof *part->kv);
        if (part->log_weight)
            kvf__hash_add(hash, part->log_weight,
                          kvf__prefix_weights(part) * sizeof *part->log_weight);
        kvf__rope_move(desc, part, file[i]->file.id.position_start, d->start);
        kvf__prefix_copy_tokens(out, at, part, 0, part->P);
        at += part->P;
    }
    return KVF_OK;
}

kvf_status kvf__distractors_open(const kvf__distractors *d, char hex[33], kvf__prefix *out)
{
    kvf_prefix **file = NULL;
    kvf__hash *hash = NULL;
    KVF_TRY(kvf__alloc_array(d->ctx, d->n, sizeof(kvf_prefix *), &file));
    kvf_status st = kvf__hash_create(d->ctx, &hash);
    if (!st) st = join(d, file, hash, out);
    if (!st) kvf__hash_hex(hash, hex);
    kvf__hash_free(hash);
    for (size_t i = 0; i < d->n; i++)
        kvf_prefix_free(file[i]);
    kvf__free(file);
    return st;
}
