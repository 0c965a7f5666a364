/* Export: a run or prefix as a PEFT folder, as one safetensors file with the raw past key values,
 * or as the saved cache of an engine. The table below has a row for each format; engines are rows
 * in export_llamacpp.c. */
#include "export.h"
#include "arch.h"
#include "mlx_cache.h"
#include "peft_stacks.h"
#include "row_template.h"

#include <string.h>

static kvf_status check_block(kvf_ctx *ctx, const kvf_export_options *options,
                              const kvf_prefix *prefix, kvf__block_user user)
{
    const kvf__arch *arch = kvf__arch_by_model_type(prefix->file.id.base_architecture);
    const char *why = arch ? kvf__block_refused(&arch->block, user) : NULL;

    return why ? kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: %s", options->path, why) : KVF_OK;
}

/* Checks virtual tokens: PEFT puts them before the whole row, and reads a text's class from the
 * first state. */
static kvf_status check_vectors(kvf_ctx *ctx, const kvf_export_options *options,
                                const kvf_prefix *prefix)
{
    kvf__row_template pattern;
    KVF_TRY(kvf__row_template_init(ctx, prefix->file.pattern, prefix->file.vectors.P, &pattern));
    bool plain = kvf__row_template_plain(&pattern);
    kvf__row_template_done(&pattern);
    if (!plain)
        return kvf__fail(
            ctx, KVF_EUNSUPPORTED,
            "%s: the template \"%s\" places the virtual tokens, but PEFT puts them before the row",
            options->path, prefix->file.pattern);
    return prefix->task == KVF__TASK_SEQ_CLS
               ? check_block(ctx, options, prefix, KVF__BLOCK_PROMPT_CLASS)
               : KVF_OK;
}

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

/* Exports a prefix of an encoder-decoder. */
static kvf_status export_peft_stacks(kvf_ctx *ctx, const kvf_export_options *options,
                                     const kvf_prefix *prefix)
{
    kvf__identity id;
    kvf__prefix theirs = {0};
    const kvf__peft_content what = {.id = &id,
                                    .prefix = &theirs,
                                    .head = &prefix->file.head,
                                    .base_id = options->base_id,
                                    .options = prefix->file.options,
                                    .lineage = prefix->file.lineage};
    kvf_status st = kvf__peft_stacks_export(ctx, options->path, &prefix->file, &theirs, &id);

    if (!st) st = kvf__peft_write(ctx, options->out, options->force, &what);
    kvf__prefix_done(&theirs);
    return st;
}

static kvf_status export_peft(kvf_ctx *ctx, const kvf_export_options *options,
                              const kvf_prefix *prefix)
{
    const kvf__arch *arch = kvf__arch_by_model_type(prefix->file.id.base_architecture);

    KVF_TRY(check_block(ctx, options, prefix, KVF__BLOCK_PAST));
    if (arch && arch->takes_no_cache && prefix->file.prefix.P)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: PEFT cannot load the prefix, because models of type %s in "
                         "transformers take no past keys and values",
                         options->path, arch->name);
    if (prefix->file.prefix.heads)
        return kvf__fail(
            ctx, KVF_EUNSUPPORTED,
            "%s: its heads differ by layer, which PEFT does not support: use --format safetensors",
            options->path);
    if (prefix->file.id.encoder_layers) return export_peft_stacks(ctx, options, prefix);
    const bool at_input = prefix->file.vectors.P > 0;
    const kvf__peft_content what = {.id = &prefix->file.id,
                                    .prefix = at_input ? NULL : &prefix->file.prefix,
                                    .vectors = at_input ? &prefix->file.vectors : NULL,
                                    .head = &prefix->file.head,
                                    .base_id = options->base_id,
                                    .options = prefix->file.options,
                                    .lineage = prefix->file.lineage};
    if (at_input) KVF_TRY(check_vectors(ctx, options, prefix));
    return kvf__peft_write(ctx, options->out, options->force, &what);
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

/* Returns a self-contained description of the file. */
static kvf_json *safetensors_metadata(const kvf__identity *id, const char *layout)
{
    const kvf__kv_shape kv = kvf__identity_kv(id);
    char start[24], heads[KVF__KV_TEXT];

    snprintf(start, sizeof start, "%lld", (long long)id->position_start);
    if (id->heads)
        kvf__kv_text(heads, &kv, id->P);
    else
        snprintf(heads, sizeof heads, "L=%lld G=%lld P=%lld D=%lld", (long long)id->L,
                 (long long)id->G, (long long)id->P, (long long)id->D);
    kvf_json *meta = kvf__json_of("format:s made_by:s layout:s shape:s position_start:s", "pt",
                                  "kvfold " KVF_VERSION, layout, heads, start);
    kvf__json_put(meta, "base_name:s base_architecture:s base_hash:s method:s task:s",
                  or_empty(id->base_name), or_empty(id->base_architecture), or_empty(id->base_hash),
                  or_empty(id->method), or_empty(id->task));
    if (id->relative_bias) kvf_json_set(meta, "relative_bias", kvf_json_new_str("decoder"));
    return meta;
}

static const char CACHE_LAYOUT[] =
    "past_key_values [L, 2, 1, G, P, D]: layer, key or value, batch, head, position, head size; "
    "keys as in a Hugging Face cache, rotated";
static const char LAYERS_LAYOUT[] = "past_key_values.LAYER [2, 1, G, P, D]: key or value, batch, "
                                    "head, position, head size; keys as "
                                    "in a Hugging Face cache, rotated";
static const char TOKENS_LAYOUT[] = "prompt_embeddings [P, C]: virtual tokens at the input";

/* Writes one tensor per layer, if heads differ by layer. */
static kvf_status export_layers(kvf_ctx *ctx, const kvf_export_options *options,
                                const kvf_prefix *prefix)
{
    enum { NAME = 40 };
    const kvf__prefix *p = &prefix->file.prefix;
    kvf__tensor *tensors = NULL;
    char *names = NULL;

    kvf_status st = kvf__alloc_array(ctx, (size_t)p->L, sizeof *tensors, &tensors);
    if (!st) st = kvf__alloc_array(ctx, (size_t)p->L, NAME, &names);
    for (int64_t l = 0; !st && l < p->L; l++) {
        const kvf__prefix_layer at = kvf__prefix_at(p, l);
        tensors[l].name = names + l * NAME;
        snprintf(tensors[l].name, NAME, "past_key_values.%lld", (long long)l);
        tensors[l].view = (kvf__view){
            .data = at.k, .dtype = KVF__F32, .rank = 5, .dim = {2, 1, at.G, p->P, at.D}};
    }
    if (!st)
        st = kvf__safetensors_write_with(ctx, options->out, options->force, tensors, (size_t)p->L,
                                         safetensors_metadata(&prefix->file.id, LAYERS_LAYOUT));
    kvf__free(tensors);
    kvf__free(names);
    return st;
}

static kvf_status export_safetensors(kvf_ctx *ctx, const kvf_export_options *options,
                                     const kvf_prefix *prefix)
{
    const kvf__identity *id = &prefix->file.id;
    const kvf__vectors *v = &prefix->file.vectors;
    kvf__tensor tokens = {
        .name = "prompt_embeddings",
        .view = {.data = v->x, .dtype = KVF__F32, .rank = 2, .dim = {v->P, v->C}},
    };
    kvf__tensor cache = {
        .name = "past_key_values",
        .view = {.data = prefix->file.prefix.kv,
                 .dtype = KVF__F32,
                 .rank = 6,
                 .dim = {id->L, 2, 1, id->G, id->P, id->D}},
    };
    KVF_TRY(check_block(ctx, options, prefix, KVF__BLOCK_PAST));
    if (id->pre_rope && !v->P)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: a prefix inside rows (--infix) has no past_key_values, because its "
                         "keys are not rotated",
                         options->out);
    if (prefix->file.prefix.heads) return export_layers(ctx, options, prefix);
    return kvf__safetensors_write_with(
        ctx, options->out, options->force, v->P ? &tokens : &cache, 1,
        safetensors_metadata(id, v->P ? TOKENS_LAYOUT : CACHE_LAYOUT));
}

static kvf_status export_mlx(kvf_ctx *ctx, const kvf_export_options *options,
                             const kvf_prefix *prefix)
{
    const kvf__engine *engine = NULL;
    kvf__mlx_form form = {.model = options->base_id ? options->base_id
                                                    : or_empty(prefix->file.id.base_name)};

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
} FORMATS[] = {{"peft", export_peft},
               {"safetensors", export_safetensors},
               {"llamacpp", kvf__export_llamacpp},
               {"mlx", export_mlx},
               {"tokenizer", NULL /* for a base */},
               {"transformers", NULL /* with a base */},
               {"gguf", kvf__export_llamacpp}};

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
        PREFIXES = 15 | FOLDER | GGUF
    };
    const struct {
        const char *name;
        bool given;
        int formats;
        const char *words;
    } rows[] = {{"base-id", o->base_id, PEFT | MLX, "peft"},
                {"base", o->base, LLAMACPP | FOLDER | GGUF, "llamacpp, transformers and gguf"},
                {"lora", o->lora, LLAMACPP | FOLDER, "llamacpp and transformers"},
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

static kvf_status check_exportable(kvf_ctx *ctx, const kvf_export_options *options,
                                   const kvf_prefix *prefix)
{
    if (prefix->file.prefix.log_weight)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: its virtual tokens have log-weights (--log-weight), which other "
                         "programs do not support",
                         options->path);
    const bool folds = options->format == KVF_EXPORT_GGUF;
    if (prefix->file.id.neurons.N && !folds)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: has virtual neurons (--ffn-length), which no cache or adapter of "
                         "another program holds: --format gguf or transformers folds them into the "
                         "base",
                         options->path);
    if (prefix->file.id.encoder_layers && !folds && options->format != KVF_EXPORT_SAFETENSORS &&
        options->format != KVF_EXPORT_PEFT)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: a prefix of an encoder-decoder needs --format safetensors or peft",
                         options->path);
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
    KVF_TRY(check_exportable(ctx, options, prefix));
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
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->format, KVF_EXPORT_GGUF));
    KVF__RETURN(ctx, export_open(ctx, prefix, options));
}

static kvf_status export(kvf_ctx *ctx, const kvf_export_options *options)
{
    kvf_prefix *prefix = NULL;

    KVF_TRY(KVF__CHECK_RESERVED(ctx, kvf_export_options, options));
    KVF_TRY(check_options(ctx, options));
    KVF_TRY(KVF__NOT_INPUTS(ctx, options->out, options->path, options->base));
    if (options->format == KVF_EXPORT_TOKENIZER) return kvf__export_tokenizer(ctx, options);
    if (options->format == KVF_EXPORT_TRANSFORMERS) return kvf__export_transformers(ctx, options);
    kvf_status st = open_exportable(ctx, options, &prefix);
    if (!st) st = write_prefix(ctx, options, prefix);
    kvf_prefix_free(prefix);
    return st;
}

kvf_status kvf_export(kvf_ctx *ctx, const kvf_export_options *options)
{
    KVF_TRY(KVF__NEED(ctx, options));
    KVF_TRY(KVF__NEED(ctx, options->path, options->out));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->format, KVF_EXPORT_GGUF));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->checkpoint, KVF_CHECKPOINT_LAST));
    KVF__RETURN(ctx, export(ctx, options));
}
