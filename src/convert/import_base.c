/* Imports a Hugging Face folder or a GGUF as a base file. */
#include "import.h"
#include "merge_int.h"

/* Chooses all tensors of types that HDF5 supports, including those that kvfold's bases do not read,
 * such as a masked-LM head. */
static kvf_status choose_tensors(kvf_ctx *ctx, const kvf__table *table, kvf__tensor **out,
                                 size_t *n)
{
    kvf__tensor *tensors = NULL;

    KVF_TRY(kvf__alloc_array(ctx, table->n, sizeof *tensors, &tensors));
    *n = 0;
    for (size_t i = 0; i < table->n; i++)
        if (kvf__base_file_takes(&table->items[i].view)) tensors[(*n)++] = table->items[i];
    *out = tensors;
    return KVF_OK;
}

/* State of an import. */
typedef struct source {
    bool gguf;
    kvf__base_file file;
    kvf__weights weights;
    kvf__slots slots;
    kvf__tokenizer *tokenizer;
    kvf__desc desc;
    kvf__tensor *tensors;
} source;

static void source_done(source *s)
{
    kvf__free(s->tensors);
    kvf__desc_done(&s->desc);
    kvf__tokenizer_free(s->tokenizer);
    kvf__slots_done(&s->slots);
    kvf__weights_close(&s->weights);
    kvf__base_file_done(&s->file);
}

/* Opens the source as a base, so that only a usable one becomes a base file: its texts are used and
 * its weights bound. */
static kvf_status open_source(kvf_ctx *ctx, const char *path, source *s)
{
    KVF_TRY(kvf__base_texts(ctx, path, &s->file));
    KVF_TRY(kvf__base_tokenizer(ctx, path, &s->file, &s->tokenizer));
    KVF_TRY(s->gguf ? kvf__gguf_open(ctx, path, &s->weights)
                    : kvf__safetensors_open_dir(ctx, path, &s->weights));
    KVF_TRY(s->gguf ? kvf__desc_from_gguf(ctx, path, s->weights.meta, &s->weights.table, &s->desc)
                    : kvf__base_desc(ctx, path, &s->file, &s->desc));
    return kvf__bind(ctx, path, &s->desc, &s->weights.table, &s->slots);
}

static kvf_status write_source(kvf_ctx *ctx, source *s, const char *out, bool force)
{
    if (s->gguf) return kvf__base_write_slots(ctx, &s->slots, NULL, out, force, &s->file);
    KVF_TRY(choose_tensors(ctx, &s->weights.table, &s->tensors, &s->file.n));
    s->file.tensors = s->tensors;
    return kvf__base_file_write(ctx, out, force, &s->file);
}

kvf_status kvf__base_import(kvf_ctx *ctx, const char *path, const char *out, bool force)
{
    kvf__file_kind kind = KVF__FILE_UNKNOWN;

    KVF_TRY(kvf__file_kind_of(ctx, path, &kind));
    source s = {.gguf = kind == KVF__FILE_GGUF};
    kvf_status st = open_source(ctx, path, &s);
    if (!st) st = write_source(ctx, &s, out, force);
    source_done(&s);
    return st;
}
