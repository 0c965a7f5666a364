/* Exports a prefix as a saved sequence of llama.cpp for unmodified engines. An engine assumes that
 * it computed a saved cache from the tokens named in the file. So P ids stand for the prefix, and
 * every prompt begins with them. A row below has the format for each engine. A prefix that a cache
 * cannot represent is refused. */
#include "arch.h"
#include "export.h"
#include "file_int.h"
#include "outfile.h"
#include "outfolder.h"

#include <string.h>

/* Tested settings. The first row of a format is its default. */
static const kvf__engine ENGINES[] = {
    {"llama-server", KVF_EXPORT_LLAMACPP, 4, true},
    {"node-llama-cpp", KVF_EXPORT_LLAMACPP, 3, true},
    {"llama-cpp-python", KVF_EXPORT_LLAMACPP, 3, false},
    {"mlx-lm", KVF_EXPORT_MLX, 1, false},
    {"mlx-lm-0.31.3", KVF_EXPORT_MLX, 0, false},
};
enum { N_ENGINES = sizeof ENGINES / sizeof ENGINES[0] };

kvf_status kvf__engine_find(kvf_ctx *ctx, const kvf_export_options *options,
                            const kvf__engine **out)
{
    const kvf__engine *found = NULL;

    const kvf_export_format format = options->format == KVF_EXPORT_GGUF ? KVF_EXPORT_LLAMACPP
                                                                        : options->format;

    for (int i = 0; i < N_ENGINES && !found; i++)
        if (options->engine ? !strcmp(ENGINES[i].name, options->engine)
                            : ENGINES[i].format == format)
            found = &ENGINES[i];
    if (!found || found->format != format)
        return kvf__fail(ctx, KVF_EUSAGE, "--engine %s does not support this --format",
                         options->engine);
    *out = found;
    return KVF_OK;
}

/* ---- is the prefix a cache? ------------------------------------------------------------------ */

static bool all_layers(const kvf__prefix *prefix)
{
    for (int64_t l = 0; l < prefix->L; l++)
        if (!prefix->layer_mask[l]) return false;
    return true;
}

/* Returns why a cache cannot represent the prefix; NULL: it can. */
static const char *more_than_a_cache(const kvf_prefix *prefix)
{
    const kvf__artifact *file = &prefix->file;
    const kvf__arch *arch = kvf__arch_by_model_type(file->id.base_architecture);
    const char *why = arch ? kvf__block_refused(&arch->block, KVF__BLOCK_CACHE) : NULL;

    if (file->vectors.P) return "has virtual tokens at the input, which a cache cannot store";
    if (file->head.n_tasks) return "has heads of several tasks, which no engine supports";
    if (file->head.params.params.n || file->head.words)
        return "has a head, which no engine supports";
    if (why) return why;
    if (file->id.P == 0) return "is empty";
    if (file->id.heads || (arch && arch->keys->by_layer))
        return "is for a base whose layers differ, and no supported engine loads its cache from a "
               "file";
    if (file->id.infix) return "is inside rows (--infix), but a cache comes before them";
    if (!all_layers(&file->prefix)) return "is in some layers only, but a cache is in all of them";
    return NULL;
}

kvf_status kvf__check_cache(kvf_ctx *ctx, const kvf_export_options *options,
                            const kvf_prefix *prefix)
{
    const kvf__identity *id = &prefix->file.id;
    const char *why = more_than_a_cache(prefix);

    if (why) return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: %s", options->path, why);
    if (id->position_start == id->P) return KVF_OK;
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "%s: position_start is %lld, but after a cache of %lld tokens an engine "
                     "continues at %lld: run kvfold convert-position --position-start P first",
                     options->path, (long long)id->position_start, (long long)id->P,
                     (long long)id->P);
}

kvf_status kvf__check_foldable(kvf_ctx *ctx, const kvf_export_options *o, const kvf_prefix *prefix,
                               const kvf_base *base)
{
    const kvf__desc *d = kvf__model_desc(base->model);
    const kvf__artifact *file = &prefix->file;

    if (!strcmp(file->id.method, "full"))
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: trains the whole base: merge it, and export the base file that comes "
                         "out, without --base",
                         o->path);
    if (!file->prefix.neurons.shape.N)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: has no virtual neurons (--ffn-length) to fold into the base",
                         o->path);
    if (o->lora && o->format == KVF_EXPORT_GGUF)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: write the GGUF with the LoRA first (export %s --lora), then fold the "
                         "neurons into that",
                         o->path, base->path);
    if (file->prefix.log_weight)
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: has log-weights, which no model holds",
                         o->path);
    if (file->head.params.params.n || file->head.words)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: has a trained head, which is not written with the base", o->path);
    if (!strcmp(d->arch_name, "openai-gpt"))
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: transformers fixes the width of its feed-forward blocks: neurons are "
                         "not folded into it",
                         base->path);
    return file->prefix.P ? kvf__check_cache(ctx, o, prefix) : KVF_OK;
}

/* ---- the base -------------------------------------------------------------------------------- */

/* Mistral has architecture llama in a GGUF; other names mean other models. */
static bool same_family(const kvf__identity *id, const kvf__desc *d)
{
    const kvf__arch *theirs = kvf__arch_by_model_type(id->base_architecture);

    if (!*id->base_architecture || !strcmp(id->base_architecture, d->arch_name)) return true;
    return theirs && !theirs->gguf && theirs->weights == d->arch->weights;
}

static kvf_status check_base(kvf_ctx *ctx, const kvf_prefix *prefix, const kvf_base *base)
{
    const kvf__identity *id = &prefix->file.id;
    const kvf__desc *d = kvf__model_desc(base->model);
    char name[256];

    if (!d->gguf)
        return kvf__fail(ctx, KVF_EUSAGE, "--base %s: want the GGUF file that the engine runs",
                         base->path);
    if (!same_family(id, d))
        return kvf__fail(ctx, KVF_EMISMATCH,
                         "%s: has architecture %s, but the prefix is for %s, architecture %s",
                         base->path, d->arch_name, kvf__base_words(id, name),
                         id->base_architecture);
    KVF_TRY(kvf__prefix_fits(ctx, prefix, base, true));
    if (strcmp(id->base_hash, base->hash))
        kvf__log(ctx, KVF_LOG_WARN,
                 "%s: the weights differ from those of %s, for which the prefix was made: use it "
                 "only for the same model in another quantisation",
                 base->path, kvf__base_words(id, name));
    return KVF_OK;
}

kvf_status kvf__open_mapped(kvf_ctx *ctx, const char *path, const char *lora, kvf_base **out)
{
    const kvf_base_options mapped = {
        .precision = KVF_PRECISION_F32, .stream_layers = true, .lora = lora};

    return kvf_base_open(ctx, path, &mapped, out);
}

static kvf_status open_base(kvf_ctx *ctx, const kvf_export_options *options,
                            const kvf_prefix *prefix, kvf_base **out)
{
    if (!options->base)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--format %s needs --base MODEL.gguf, the file that the engine runs",
                         options->format == KVF_EXPORT_GGUF ? "gguf" : "llamacpp");
    KVF_TRY(kvf__open_mapped(ctx, options->base, options->lora, out));
    return check_base(ctx, prefix, *out);
}

/* ---- the form -------------------------------------------------------------------------------- */

/* If all layers of a family have a window, there is a single cache and no layer is local. */
kvf__llama_base kvf__llama_base_of(const kvf__desc *desc)
{
    return (kvf__llama_base){
        .L = desc->L,
        .G = desc->G,
        .D = desc->D,
        .interleaved = desc->arch->gguf_permuted,
        .window = desc->arch->keys->local.global_every ? desc->position.window : 0,
        .global = desc->position.global,
    };
}

static kvf__llama_form form_of(const kvf_export_options *o, const kvf__engine *engine,
                               const kvf_base *base)
{
    const bool flash = o->flash_attention ? !strcmp(o->flash_attention, "on")
                                          : engine->flash_attention;
    return (kvf__llama_form){
        .version = o->state_version ? o->state_version[0] - '0' : engine->version,
        .streams = o->streams ? o->streams : 1,
        .transposed = !flash,
        .dtype = o->dtype && !strcmp(o->dtype, "f32") ? KVF__F32 : KVF__F16,
        .base = kvf__llama_base_of(kvf__model_desc(base->model)),
    };
}

/* Finds the base's own template, unless the training rows used another, and sets their date if the
 * template prints one. */
static kvf_status find_template(kvf_ctx *ctx, kvf__llama_export *export)
{
    const char *name = export->prefix->file.id.chat_template, *asked = strchr(name, ':');
    const kvf__tokenizer *tokenizer = export->base->tokenizer;
    const bool any = !strncmp(name, "auto", 4) || kvf__chat_names(name, KVF__CHAT_NONE) ||
                     kvf__chat_names(name, KVF__CHAT_RENDERED);
    kvf__chat own = {0};
    kvf_status st = kvf__chat_init(ctx, tokenizer, "auto", &own);

    if (any && st == KVF_EUNSUPPORTED) st = KVF_OK; /* use it unchanged */
    KVF_TRY(st);
    if (any || kvf__chat_names(name, own.kind))
        export->template = kvf__tokenizer_chat_template(tokenizer);
    else
        kvf__log(ctx, KVF_LOG_WARN,
                 "%s: its rows were rendered as %s, not by the base's own template, so no chat "
                 "template is written",
                 export->options->path, name);
    if (export->template && kvf__chat_date(&own))
        st = kvf__buf_printf(ctx, &export->date, "{%%- set date_string = \"%s\" %%}",
                             asked ? asked + 1 : kvf__chat_date(&own));
    kvf__chat_done(&own);
    return st;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static kvf_status write_state(kvf_ctx *ctx, const char *path, bool force, const void *content)
{
    const kvf__llama_export *e = content;
    return kvf__llama_state_write(ctx, path, force, &e->form, &e->prefix->file.prefix, e->ids.data);
}

/* Writes {"ids": [...], "text": "..."}. */
static kvf_status write_placeholders(kvf_ctx *ctx, const char *path, bool force,
                                     const void *content)
{
    const kvf__llama_export *e = content;
    kvf_json *ids = kvf_json_array();

    for (size_t i = 0; i < e->ids.n; i++)
        kvf_json_add(ids, kvf_json_new_int(e->ids.data[i]));
    kvf_json *root = kvf__json_of("ids:o text:o", ids,
                                  kvf_json_new_strn(e->text.data ? e->text.data : "", e->text.n));
    char *text = kvf_json_text(root, KVF_JSON_COMPACT);
    kvf_status st = text ? kvf__write_file(ctx, path, force, text, strlen(text))
                         : kvf__fail(ctx, KVF_ENOMEM, "%s: out of memory", path);
    kvf_json_text_free(text);
    kvf_json_free(root);
    return st;
}

/* Writes the template, or removes one of an earlier export. */
static kvf_status write_template(kvf_ctx *ctx, const char *path, bool force, const void *content)
{
    const kvf__llama_export *e = content;

    if (!e->template) return kvf__remove_file(ctx, path);
    const kvf__bytes pieces[] = {
        {e->date.data, e->date.n}, {e->text.data, e->text.n}, {e->template, strlen(e->template)}};
    return kvf__write_pieces(ctx, path, force, pieces, 3);
}

static kvf_status write_texts(kvf_ctx *ctx, const char *path, bool force,
                              const kvf__llama_export *e, const char *first, const char *second)
{
    kvf__buf text = {0};
    kvf_status st = first ? kvf__llama_readme(ctx, e, first, &text) : KVF_OK;

    if (!st) st = kvf__llama_readme(ctx, e, second, &text);
    if (!st) st = kvf__write_file(ctx, path, force, text.data, text.n);
    kvf__buf_done(&text);
    return st;
}

static kvf_status write_readme(kvf_ctx *ctx, const char *path, bool force, const void *content)
{
    const kvf__llama_export *e = content;
    return write_texts(ctx, path, force, e, "head", e->engine->name);
}

/* Writes a check for servers, which are queried over HTTP. */
static kvf_status write_check(kvf_ctx *ctx, const char *path, bool force, const void *content)
{
    const kvf__llama_export *e = content;

    if (e->engine != ENGINES) return kvf__remove_file(ctx, path);
    return write_texts(ctx, path, force, e, NULL, "check.py");
}

static const kvf__folder_file FILES[] = {
    {"placeholders.json", write_placeholders},
    {"chat_template.jinja", write_template},
    {"README.md", write_readme},
    {"check.py", write_check},
    {"prefix.state", write_state},
    {"model.gguf", kvf__write_wide_gguf}, /* with neurons */
};

static kvf_status fill(kvf_ctx *ctx, kvf__llama_export *export)
{
    const kvf_export_options *o = export->options;

    export->form = form_of(o, export->engine, export->base);
    KVF_TRY(find_template(ctx, export));
    KVF_TRY(kvf__placeholders(ctx, export));
    const kvf__folder folder = {FILES, sizeof FILES / sizeof FILES[0] - !export->folds,
                                "files of the prefix"};
    return kvf__write_folder(ctx, o->out, o->force, &folder, export);
}

kvf_status kvf__check_no_state(kvf_ctx *ctx, const kvf_export_options *o, const char *what)
{
    if (!o->engine && !o->state_version && !o->flash_attention && !o->streams && !o->dtype)
        return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE,
                     "%s: %s, so there is no state for --engine, --state-version, "
                     "--flash-attention, --streams or --dtype",
                     o->path, what);
}

kvf_status kvf__export_llamacpp(kvf_ctx *ctx, const kvf_export_options *options,
                                const kvf_prefix *prefix)
{
    const bool folds = options->format == KVF_EXPORT_GGUF, state = !folds || prefix->file.prefix.P;
    kvf__llama_export export = {.options = options, .prefix = prefix, .folds = folds};
    kvf_base *base = NULL;

    KVF_TRY(state ? kvf__engine_find(ctx, options, &export.engine)
                  : kvf__check_no_state(ctx, options, "has virtual neurons alone"));
    if (!folds) KVF_TRY(kvf__check_cache(ctx, options, prefix));
    kvf_status st = open_base(ctx, options, prefix, &base);
    export.base = base;
    if (!st && folds) st = kvf__check_foldable(ctx, options, prefix, base);
    if (!st && state) st = fill(ctx, &export);
    if (!st && !state) st = kvf__write_wide_gguf(ctx, options->out, options->force, &export);
    kvf__ids_done(&export.ids);
    kvf__buf_done(&export.text);
    kvf__buf_done(&export.date);
    kvf_base_free(base);
    return st;
}
