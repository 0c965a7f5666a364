/* Export: a run or prefix as a PEFT folder, as one safetensors file with the raw past key values,
 * as the saved cache of an engine, or as a repository of the Hub. The table below has a row for
 * each format; engines are rows in export_llamacpp.c. */
#include "export.h"
#include "mlx_cache.h"

#include <string.h>

static bool is_hub_id(const char *text)
{
    static const char WORD[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = strspn(text, WORD);
    if (n && text[n] == '/') {
        const size_t name = strspn(text + n + 1, WORD);
        n = name ? n + 1 + name : 0;
    }
    return n && !text[n] && text[0] != '.';
}

/* Checks for an id that transformers accepts; otherwise it could not load the adapter. */
static kvf_status check_base_id(kvf_ctx *ctx, const char *id)
{
    if (!id || is_hub_id(id) || kvf__is_dir(id)) return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE,
                     "--base-id \"%s\": want an id of the Hugging Face Hub, such as org/name, or "
                     "an existing folder",
                     id);
}

static kvf_status export_mlx(kvf_ctx *ctx, const kvf_export_options *options,
                             const kvf_prefix *prefix)
{
    const kvf__engine *engine = NULL;
    kvf__mlx_form form = {.model = options->base_id ? options->base_id
                                                    : kvf__or_empty(prefix->file.id.base_name)};

    KVF_TRY(kvf__check_cache(ctx, options, prefix));
    KVF_TRY(kvf__engine_find(ctx, options, &engine));
    form.old = engine->version == 0;
    form.dtype = options->dtype && !strcmp(options->dtype, "f16") ? KVF__F16 : KVF__F32;
    return kvf__mlx_cache_write(ctx, options->out, options->force, &form, &prefix->file.prefix);
}

/* In the order of kvf_export_format. */
static const struct format {
    const char *name;
    kvf_status (*write)(kvf_ctx *ctx, const kvf_export_options *options, const kvf_prefix *prefix);
} FORMATS[] = {{"peft", kvf__export_peft},           {"safetensors", kvf__export_safetensors},
               {"llamacpp", kvf__export_llamacpp},   {"mlx", export_mlx},
               {"tokenizer", NULL /* for a base */}, {"transformers", NULL /* with a base */},
               {"gguf", kvf__export_llamacpp},       {"hub-repo", kvf__export_hub}};

/* Refuses options that a format does not support. */
static kvf_status check_options(kvf_ctx *ctx, const kvf_export_options *o)
{
    enum {
        PEFT = 1,
        SAFETENSORS = 2,
        LLAMACPP = 4,
        MLX = 8,
        FOLDER = 32,
        GGUF = 64,
        HUB = 128,
        PREFIXES = 15 | FOLDER | GGUF
    };
    const struct {
        const char *name;
        bool given;
        int formats;
        const char *words;
    } rows[] = {{"base-id", o->base_id, PEFT | MLX | HUB, "peft, mlx and hub-repo"},
                {"base", o->base, LLAMACPP | FOLDER | GGUF, "llamacpp, transformers and gguf"},
                {"lora", o->lora, LLAMACPP | FOLDER | GGUF, "llamacpp, transformers and gguf"},
                {"ffn-type", o->ffn_type, GGUF, "gguf"},
                {"engine", o->engine, LLAMACPP | MLX | GGUF, "llamacpp, mlx and gguf"},
                {"state-version", o->state_version, LLAMACPP | GGUF, "llamacpp and gguf"},
                {"flash-attention", o->flash_attention, LLAMACPP | GGUF, "llamacpp and gguf"},
                {"streams", o->streams, LLAMACPP | GGUF, "llamacpp and gguf"},
                {"dtype", o->dtype, LLAMACPP | MLX | GGUF, "llamacpp, mlx and gguf"},
                {"checkpoint", o->checkpoint, PREFIXES,
                 "peft, safetensors, llamacpp, mlx, transformers and gguf"},
                {"head", o->head, PEFT | SAFETENSORS, "peft and safetensors"}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].given && !(rows[i].formats & 1 << o->format))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s is for --format %s, not %s", rows[i].name,
                             rows[i].words, FORMATS[o->format].name);
    return check_base_id(ctx, o->base_id);
}

static kvf_status check_has_prefix(kvf_ctx *ctx, const kvf_export_options *options,
                                   const kvf_prefix *prefix)
{
    if (!kvf_prefix_changes_base(prefix)) return KVF_OK;
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "%s: method %s trains no prefix, so there is no format to export it",
                     options->path, prefix->file.id.method);
}

static kvf_status open_exportable(kvf_ctx *ctx, const kvf_export_options *options, kvf_prefix **out)
{
    bool needs_base = false;

    KVF_TRY(kvf__prefix_needs_base(ctx, options->path, &needs_base));
    if (needs_base)
        return kvf__fail(
            ctx, KVF_EUSAGE,
            "%s: the method of this run needs the base: merge the run, then export the prefix",
            options->path);
    KVF_TRY(kvf_prefix_open(ctx, options->path, options->checkpoint, out));
    return options->head ? kvf_prefix_use_head(ctx, *out, options->head) : KVF_OK;
}

static kvf_status write_prefix(kvf_ctx *ctx, const kvf_export_options *options,
                               const kvf_prefix *prefix)
{
    if (options->format != KVF_EXPORT_HUB_REPO) KVF_TRY(kvf__check_foreign(ctx, options, prefix));
    KVF_TRY(check_has_prefix(ctx, options, prefix));
    return FORMATS[options->format].write(ctx, options, prefix);
}

static kvf_status export_open(kvf_ctx *ctx, const kvf_prefix *prefix,
                              const kvf_export_options *options)
{
    kvf_export_options o = *options;

    KVF_TRY(KVF__CHECK_RESERVED(ctx, kvf_export_options, options));
    if (o.path || o.checkpoint || o.head || o.format == KVF_EXPORT_TOKENIZER ||
        o.format == KVF_EXPORT_TRANSFORMERS)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "path, checkpoint, head and the formats of bases are for files, not for "
                         "an open prefix");
    o.path = prefix->path; /* used in errors */
    KVF_TRY(check_options(ctx, &o));
    KVF_TRY(KVF__NOT_INPUTS(ctx, o.out, o.path, o.base));
    return write_prefix(ctx, &o, prefix);
}

kvf_status kvf_prefix_export(kvf_ctx *ctx, const kvf_prefix *prefix,
                             const kvf_export_options *options)
{
    KVF_TRY(KVF__NEED(ctx, prefix, options));
    KVF_TRY(KVF__NEED(ctx, options->out));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->format, KVF_EXPORT_HUB_REPO));
    KVF__RETURN(ctx, export_open(ctx, prefix, options));
}

/* Whether the file to export as a GGUF is a base: a GGUF, or a base file. */
static bool is_base(kvf_ctx *ctx, const kvf_export_options *options)
{
    kvf__file_kind form = KVF__FILE_UNKNOWN;
    kvf__kind kind = KVF__KIND_ANY;

    if (options->format != KVF_EXPORT_GGUF) return false;
    if (kvf__file_kind_of(ctx, options->path, &form)) return false;
    if (form != KVF__FILE_HDF5) return form == KVF__FILE_GGUF;
    return !kvf__kind_of(ctx, options->path, &kind) && kind == KVF__KIND_BASE;
}

static kvf_status export(kvf_ctx *ctx, const kvf_export_options *options)
{
    kvf_prefix *prefix = NULL;

    KVF_TRY(KVF__CHECK_RESERVED(ctx, kvf_export_options, options));
    KVF_TRY(check_options(ctx, options));
    KVF_TRY(KVF__NOT_INPUTS(ctx, options->out, options->path, options->base));
    if (options->format == KVF_EXPORT_TOKENIZER) return kvf__export_tokenizer(ctx, options);
    if (options->format == KVF_EXPORT_TRANSFORMERS) return kvf__export_transformers(ctx, options);
    if (is_base(ctx, options)) return kvf__export_gguf_trained(ctx, options);
    kvf_status st = open_exportable(ctx, options, &prefix);
    if (!st) st = write_prefix(ctx, options, prefix);
    kvf_prefix_free(prefix);
    return st;
}

kvf_status kvf_export(kvf_ctx *ctx, const kvf_export_options *options)
{
    KVF_TRY(KVF__NEED(ctx, options));
    KVF_TRY(KVF__NEED(ctx, options->path, options->out));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->format, KVF_EXPORT_HUB_REPO));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->checkpoint, KVF_CHECKPOINT_LAST));
    KVF__RETURN(ctx, export(ctx, options));
}
