/* Opens a base: a Hugging Face folder, a GGUF file or a base file becomes a table of views, a
 * description, bound weights, a tokenizer and the packed model. The file stays mapped, since
 * embeddings are read from it row by row. */
#include "hash.h"
#include "lora.h"
#include "open_prefix.h"

#include <stdlib.h>
#include <string.h>

/* Returns the Hub id of a folder in the cache; otherwise the folder's name, or the file's without
 * its ending. */
static kvf_status name_of(kvf_ctx *ctx, const char *path, char **out)
{
    static const char *const ENDINGS[] = {".h5", ".gguf"};
    char *hub = NULL;
    KVF_TRY(kvf__hub_name(ctx, path, &hub));
    if (hub) {
        *out = hub;
        return KVF_OK;
    }
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t first = n;
    while (first > 0 && path[first - 1] != '/')
        first--;
    for (size_t i = 0; i < 2; i++) {
        const size_t ending = strlen(ENDINGS[i]);
        if (n - first > ending && !strncmp(path + n - ending, ENDINGS[i], ending)) n -= ending;
    }
    return kvf__strndup(ctx, path + first, n - first, out);
}

static kvf_status describe_hf(kvf_ctx *ctx, const char *path, kvf__desc *desc)
{
    kvf_json *config = NULL;

    KVF_TRY(kvf_json_load(ctx, path, &config));
    kvf_status st = kvf__desc_from_hf(ctx, path, config, desc);
    kvf_json_free(config);
    return st;
}

static kvf_status load_hf(kvf_ctx *ctx, kvf_base *base, kvf__desc *desc)
{
    char *config = NULL;

    KVF_TRY(kvf__path_join(ctx, base->path, "config.json", &config));
    kvf_status st = describe_hf(ctx, config, desc);
    kvf__free(config);
    if (st) return st;
    KVF_TRY(kvf__base_ends_read(ctx, base->path, desc)); /* overrides those of config.json */
    KVF_TRY(kvf__safetensors_open_dir(ctx, base->path, &base->weights));
    KVF_TRY(kvf__tokenizer_from_dir(ctx, base->path, &base->tokenizer));
    return name_of(ctx, base->path, &base->name);
}

/* Adds the ends that a GGUF does not name. Gemma 4 has an ordinary token "</s>". */
static void add_gguf_ends(const kvf__tokenizer *tokenizer, kvf__desc *desc)
{
    const bool gemma4 = kvf__token_id(tokenizer, "<|tool_response>") >= 0;
    char text[32];

    for (const char *end = kvf__gguf_ends; sscanf(end, "%31s", text) == 1; end += strlen(text)) {
        end += strspn(end, " ");
        if (!gemma4 || strcmp(text, "</s>"))
            kvf__ends_add(&desc->ids.ends, kvf__token_id(tokenizer, text));
    }
}

static kvf_status load_gguf(kvf_ctx *ctx, kvf_base *base, kvf__desc *desc)
{
    KVF_TRY(kvf__gguf_open(ctx, base->path, &base->weights));
    KVF_TRY(kvf__desc_from_gguf(ctx, base->path, base->weights.meta, &base->weights.table, desc));
    KVF_TRY(kvf__tokenizer_from_gguf(ctx, base->path, &base->weights, &base->tokenizer));
    add_gguf_ends(base->tokenizer, desc);
    return name_of(ctx, base->path, &base->name);
}

static kvf_status load_h5(kvf_ctx *ctx, kvf_base *base, kvf__desc *desc)
{
    kvf__base_file file = {0};

    KVF_TRY(kvf__base_file_load(ctx, base->path, &base->weights, &file));
    kvf_status st = kvf__base_desc(ctx, base->path, &file, desc);
    if (!st) st = kvf__base_tokenizer(ctx, base->path, &file, &base->tokenizer);
    if (!st) st = name_of(ctx, base->path, &base->name);
    kvf__base_file_done(&file);
    return st;
}

/* Suggests the option that accepts one of our files that is no base. */
static kvf_status point_on(kvf_ctx *ctx, const char *path, kvf_status status)
{
    kvf__kind kind = KVF__KIND_ANY;
    char line[512];
    snprintf(line, sizeof line, "%s", kvf_ctx_error(ctx));
    if (kvf__kind_of(ctx, path, &kind) || kind == KVF__KIND_BASE)
        return kvf__fail(ctx, status, "%s", line);
    const char *name = kvf__kind_name(kind), *an = strchr("ae", name[0]) ? "an" : "a";
    return kvf__fail(ctx, status, "%s: is %s %s file, not a base: use it with --prefix", path, an,
                     name);
}

static kvf_status load_files(kvf_ctx *ctx, kvf_base *base, kvf__desc *desc)
{
    kvf__file_kind kind = KVF__FILE_UNKNOWN;
    KVF_TRY(kvf__file_kind_of(ctx, base->path, &kind));
    if (kind == KVF__FILE_HF_DIR) return load_hf(ctx, base, desc);
    if (kind == KVF__FILE_GGUF) return load_gguf(ctx, base, desc);
    if (kind == KVF__FILE_HDF5) {
        kvf_status st = load_h5(ctx, base, desc);
        return st == KVF_EFORMAT ? point_on(ctx, base->path, st) : st;
    }
    if (kind == KVF__FILE_PEFT_DIR)
        return kvf__fail(
            ctx, KVF_EFORMAT,
            "%s: is a PEFT folder, not a base: `kvfold import` converts it to a prefix",
            base->path);
    return kvf__fail(ctx, KVF_EFORMAT,
                     "%s: not a base: want a Hugging Face folder (config.json, model.safetensors, "
                     "tokenizer.json), a GGUF file or a kvfold base file",
                     base->path);
}

/* Uses ids of the model's config that the tokenizer's files lack. */
static void complete_tokenizer(kvf__tokenizer *tokenizer, const kvf__desc *desc)
{
    if (kvf__token_eos(tokenizer) < 0 && desc->ids.eos >= 0)
        kvf__tokenizer_set_eos(tokenizer, desc->ids.eos);
    if (kvf__token_bos(tokenizer) < 0 && desc->ids.bos >= 0)
        kvf__tokenizer_set_bos(tokenizer, desc->ids.bos);
}

static kvf_status check_vocab(kvf_ctx *ctx, const kvf_base *base, const kvf__desc *desc)
{
    const int n = (int)kvf__vocab_size(base->tokenizer);
    int first = (int)desc->V;

    if (n <= desc->V) return KVF_OK;
    while (!kvf__token_text(base->tokenizer, first))
        first++;
    return kvf__fail(ctx, KVF_ESHAPE,
                     "%s: the tokenizer has %d tokens, but the model's embedding has %lld rows and "
                     "none for \"%s\", %d",
                     base->path, n, (long long)desc->V, kvf__token_text(base->tokenizer, first),
                     first);
}

static kvf_status keep_as(kvf_ctx *ctx, const kvf_base_options *options, kvf__model_options *pack)
{
    static const char ASKED[] = "--weight-dtype and --stream-layers are for frozen weights";
    static const kvf__dtype STORED[] = {[KVF_WEIGHTS_F32] = KVF__F32,
                                        [KVF_WEIGHTS_BF16] = KVF__BF16,
                                        [KVF_WEIGHTS_INT8] = KVF__Q8_0};
    const bool stored = options->weight_dtype != KVF_WEIGHTS_AUTO,
               int8 = options->precision == KVF_PRECISION_INT8;

    if (stored && options->stream_layers)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--stream-layers and --weight-dtype exclude each other, because streamed "
                         "weights keep the type of the file");
    if (int8 && (stored || options->stream_layers))
        return kvf__fail(ctx, KVF_EUSAGE, "--precision int8: not with --%s",
                         stored ? "weight-dtype" : "stream-layers");
    if (int8 && pack->train.what == KVF__TRAIN_EVERYTHING)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--precision int8 is for frozen weights; those of this base are trained "
                         "ones");
    pack->keep = stored                   ? KVF__KEEP_STORED
                 : options->stream_layers ? KVF__KEEP_MAPPED
                                          : KVF__KEEP_PACKED;
    if (stored) pack->stored = STORED[options->weight_dtype];
    if (pack->keep != KVF__KEEP_PACKED && pack->train.what == KVF__TRAIN_EVERYTHING)
        return kvf__fail(ctx, KVF_EUSAGE, "%s; those of this base are trained ones", ASKED);
    return KVF_OK;
}

static double megabytes(const kvf__desc *desc, const kvf__model_options *pack)
{
    const kvf__footprint f = kvf__model_footprint(desc, pack, KVF__F32);
    return 1e-6 * (f.packed + f.stored + f.rest);
}

/* Replaces the error of a failed allocation by the total requirement. */
static kvf_status say_what_it_takes(kvf_ctx *ctx, const char *where, const kvf__desc *desc,
                                    const kvf__model_options *pack)
{
    kvf__model_options streamed = *pack;

    streamed.keep = KVF__KEEP_MAPPED;
    if (pack->keep == KVF__KEEP_MAPPED || pack->train.what == KVF__TRAIN_EVERYTHING)
        return kvf__fail(ctx, KVF_ENOMEM, "%s: out of memory: its weights take %.0f MB", where,
                         megabytes(desc, pack));
    return kvf__fail(ctx, KVF_ENOMEM,
                     "%s: out of memory: its weights take %.0f MB this way, %.0f MB with "
                     "--stream-layers on",
                     where, megabytes(desc, pack), megabytes(desc, &streamed));
}

/* Makes base->model from its slots, in base->precision. */
static kvf_status make_model(kvf_ctx *ctx, kvf_base *base, const char *where, kvf__desc *desc,
                             const kvf_base_options *options, const kvf__train *form)
{
    kvf__model_options pack = {.backward = options->backward,
                               .act = base->precision == KVF_PRECISION_F32 ? KVF__F32 : KVF__BF16,
                               .int8 = base->precision == KVF_PRECISION_INT8,
                               .packed = kvf__weights_forget,
                               .advise = kvf__weights_advise,
                               .read = kvf__weights_read,
                               .user = &base->weights};
    if (form) pack.train = *form;
    KVF_TRY(keep_as(ctx, options, &pack));
    base->weight_dtype = options->weight_dtype;
    base->backward = options->backward;
    kvf_status st = kvf__model_create(ctx, desc, &base->slots, &pack, &base->model);
    return st == KVF_ENOMEM ? say_what_it_takes(ctx, where, desc, &pack) : st;
}

kvf_status kvf__base_hash_ids(kvf_ctx *ctx, const kvf__tokenizer *tokenizer, char hex[33])
{
    kvf__hash *hash = NULL;

    KVF_TRY(kvf__hash_create(ctx, &hash));
    kvf__hash_add(hash, hex, strlen(hex));
    kvf__tokenizer_hash(tokenizer, hash);
    kvf__hash_hex(hash, hex);
    kvf__hash_free(hash);
    return KVF_OK;
}

static kvf_status hash_base(kvf_ctx *ctx, kvf_base *base, const kvf__desc *desc)
{
    if (base->random) return KVF_OK;
    KVF_TRY(
        kvf__slots_hash(ctx, desc, &base->slots, kvf__weights_advise, &base->weights, base->hash));
    return kvf__base_hash_ids(ctx, base->tokenizer, base->hash);
}

kvf_status kvf__base_pack(kvf_ctx *ctx, kvf_base *base, const char *where, kvf__desc *desc,
                          const kvf_base_options *options, const kvf__train *form)
{
    kvf__model_options asked = {.train = form ? *form : (kvf__train){0}};
    KVF_TRY(keep_as(ctx, options, &asked)); /* before the file is read */
    KVF_TRY(kvf__bind(ctx, where, desc, &base->weights.table, &base->slots));
    KVF_TRY(hash_base(ctx, base, desc));
    kvf__weights_forget(&base->weights); /* the hash has read all of it */
    if (base->lora) KVF_TRY(kvf__lora_fold(ctx, desc, base));
    KVF_TRY(kvf__precision_resolve(ctx, options->precision, desc, &base->precision));
    return make_model(ctx, base, where, desc, options, form);
}

static kvf_status open_into(kvf_ctx *ctx, const char *path, const kvf_base_options *options,
                            const kvf__train *form, kvf_base *base, kvf__desc *desc)
{
    KVF_TRY(kvf__hub_find(ctx, path, &base->path));
    if (options->lora && *options->lora) KVF_TRY(kvf__hub_find(ctx, options->lora, &base->lora));
    KVF_TRY(load_files(ctx, base, desc));
    KVF_TRY(check_vocab(ctx, base, desc));
    complete_tokenizer(base->tokenizer, desc);
    return kvf__base_pack(ctx, base, path, desc, options, form);
}

kvf_status kvf__base_open_as(kvf_ctx *ctx, const char *path, const kvf_base_options *options,
                             const kvf__train *form, kvf_base **out)
{
    static const kvf_base_options DEFAULTS = {.precision = KVF_PRECISION_AUTO};
    kvf_base *base = NULL;
    kvf__desc desc = {0};

    if (!options) options = &DEFAULTS;
    KVF_TRY(KVF__CHECK_RESERVED(ctx, kvf_base_options, options));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->precision, KVF_PRECISION_INT8));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->weight_dtype, KVF_WEIGHTS_INT8));
    KVF_TRY(kvf__alloc(ctx, sizeof *base, &base));
    base->ctx = ctx;
    kvf_status st = open_into(ctx, path, options, form, base, &desc);
    kvf__desc_done(&desc);
    KVF__GIVE(st, out, base, kvf_base_free(base));
    return st;
}

/* Makes another model from the same mapped weights. */
static kvf_status copy_base(kvf_ctx *ctx, const kvf_base *from, kvf_precision precision,
                            const kvf_base_options *options, const kvf__train *form, kvf_base **out)
{
    kvf_base *base = NULL;
    kvf__desc desc = {0};

    KVF_TRY(kvf__alloc(ctx, sizeof *base, &base));
    *base = *from;
    base->precision = precision;
    base->is_copy = true;
    base->carries = NULL; /* the slots are the file's */
    base->model = NULL;
    base->path = base->name = base->lora = NULL;
    kvf_status st = kvf__strdup(ctx, from->path, &base->path);
    if (!st && from->lora) st = kvf__strdup(ctx, from->lora, &base->lora);
    if (!st) st = kvf__strdup(ctx, from->name, &base->name);
    if (!st) st = kvf__desc_copy(ctx, kvf__model_desc(from->model), &desc);
    if (!st) st = make_model(ctx, base, from->path, &desc, options, form);
    kvf__desc_done(&desc);
    KVF__GIVE(st, out, base, kvf_base_free(base));
    return st;
}

kvf_status kvf__base_copy_as(kvf_ctx *ctx, const kvf_base *from, const kvf_base_options *options,
                             const kvf__train *form, kvf_base **out)
{
    return copy_base(ctx, from, from->precision, options, form, out);
}

kvf_status kvf__base_copy_bf16(kvf_ctx *ctx, const kvf_base *from, kvf_base **out)
{
    const kvf_base_options how = {.precision = KVF_PRECISION_BF16};
    return copy_base(ctx, from, KVF_PRECISION_BF16, &how, NULL, out);
}

kvf_status kvf__base_add_backward(kvf_ctx *ctx, kvf_base *base)
{
    const kvf__model_options how = {.packed = kvf__weights_forget, .user = &base->weights};

    KVF_TRY(kvf__model_add_backward(ctx, base->model, &base->slots, &how));
    base->backward = true;
    return KVF_OK;
}

void kvf_base_free(kvf_base *base)
{
    if (!base) return;
    kvf__model_free(base->model);
    if (!base->is_copy) {
        kvf__tokenizer_free(base->tokenizer);
        kvf__slots_done(&base->slots);
        for (size_t i = 0; i < base->n_folds; i++)
            kvf__free((void *)base->folds[i].left);
        kvf__free(base->folds);
        kvf__weights_close(&base->weights);
    }
    kvf__free(base->lora);
    kvf__free(base->path);
    kvf__free(base->name);
    kvf__free(base);
}

const char *kvf_base_name(const kvf_base *base)
{
    return base ? base->name : NULL;
}

const char *kvf_base_architecture(const kvf_base *base)
{
    return base ? kvf__model_desc(base->model)->arch_name : NULL;
}

const char *kvf_base_hash(const kvf_base *base)
{
    return base ? base->hash : NULL;
}

kvf_precision kvf_base_precision(const kvf_base *base)
{
    return base ? base->precision : KVF_PRECISION_AUTO;
}

kvf_shape kvf_base_shape(const kvf_base *base)
{
    if (!base) return (kvf_shape){0};
    const kvf__desc *d = kvf__model_desc(base->model);
    const bool alike = !d->by_layer.heads;
    return (kvf_shape){d->L, d->H, alike ? d->G : 0, alike ? d->D : 0, d->C,
                       d->F, d->V, d->position.max};
}

int64_t kvf__base_parameters(const kvf_base *base)
{
    int64_t n = 0;
    for (size_t i = 0; i < base->slots.n; i++)
        if (!base->slots.items[i].aside) n += kvf__view_count(&base->slots.items[i].view);
    return n;
}

int64_t kvf__base_own_values(const kvf_base *base, const kvf__params *list)
{
    int64_t n = 0;
    for (size_t i = 0; i < base->slots.n; i++) {
        const kvf__param *own = kvf__params_find(list, base->slots.items[i].name);
        n += own ? own->n : 0;
    }
    return n;
}

int64_t kvf__longest_row(const kvf_base *base, int64_t position_start)
{
    return kvf__model_desc(base->model)->position.max - position_start;
}

int64_t kvf__row_capacity(const kvf_base *base, const kvf_prefix *prefix)
{
    if (!prefix) return kvf__longest_row(base, 0);
    const int64_t P = prefix->file.prefix.P, start = prefix->file.id.position_start;
    return kvf__longest_row(base, start + (prefix->file.id.infix ? P : 0));
}

int64_t kvf__text_capacity(const kvf_base *base, const kvf_prefix *prefix)
{
    return kvf__row_capacity(base, prefix) - (prefix ? prefix->file.vectors.P : 0);
}
