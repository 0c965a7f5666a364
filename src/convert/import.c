/* Import: a PEFT adapter or a saved sequence of llama.cpp becomes a prefix file; the state dict of
 * an MLP encoder becomes a run at step 0 with zero moments. With a base the shapes are checked
 * against it and its hash is stamped; without one L, G and D must be in the adapter's config. A
 * head comes with the adapter. python/kvfold/from_pickle.py makes adapters of other programs'
 * prefixes. */
#include "import.h"
#include "arch.h"
#include "encoder_int.h"
#include "encoder_run.h"
#include "export.h"
#include "peft_stacks.h"

#include <string.h>

/* G and D of an adapter without a base: token_dim = G*D and num_attention_heads = G as PEFT writes
 * them. */
static kvf_status peft_shape(kvf_ctx *ctx, const char *path, const kvf__peft *peft,
                             const kvf_base *base, kvf__identity *id)
{
    id->P = peft->P;
    if (base) return KVF_OK;
    if (peft->L < 1 || peft->heads < 1 || peft->token_dim < 1 || peft->token_dim % peft->heads)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: adapter_config.json lacks num_layers, num_attention_heads or "
                         "token_dim: name the base with --base",
                         path);
    id->L = peft->L;
    id->G = peft->heads;
    id->D = peft->token_dim / peft->heads;
    return KVF_OK;
}

static kvf_status check_width(kvf_ctx *ctx, const char *path, const kvf__peft *peft, int64_t want)
{
    if (peft->width == want) return KVF_OK;
    return kvf__fail(ctx, KVF_ESHAPE, "%s: prompt_embeddings is [%lld, %lld], want [%lld, %lld]",
                     path, (long long)peft->P, (long long)peft->width, (long long)peft->P,
                     (long long)want);
}

/* Sets the identity from base and adapter, and moves the adapter's head to *head. */
static kvf_status describe_peft(kvf_ctx *ctx, const kvf_import_options *options,
                                const kvf_base *base, const char *method, kvf__peft *peft,
                                kvf__identity *id, kvf__head_values *head)
{
    KVF_TRY(
        kvf__import_stamp(ctx, base, peft->base_name, method, kvf__peft_task(peft->task_type), id));
    KVF_TRY(kvf__import_head(ctx, options->path, options->labels, id->task, &peft->head));
    *head = peft->head;
    peft->head = (kvf__head_values){0};
    return KVF_OK;
}

/* Virtual tokens at the input become an embeddings file. */
static kvf_status import_vectors(kvf_ctx *ctx, const kvf_import_options *options,
                                 const kvf_base *base, kvf__peft *peft)
{
    kvf__artifact file = {.kind = KVF__KIND_EMBEDDINGS, .id.P = peft->P};

    if (!base)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: a file of virtual tokens at the input does not contain G and D: name "
                         "the base with --base",
                         options->path);
    KVF_TRY(kvf__check_tokens_scale(ctx, options->path, kvf__model_desc(base->model)->arch));
    KVF_TRY(check_width(ctx, options->path, peft, kvf__model_desc(base->model)->C));
    kvf_status st = describe_peft(ctx, options, base, "prompt", peft, &file.id, &file.head);
    file.id.position_start = 0;
    file.vectors = (kvf__vectors){peft->P, peft->width, peft->flat};
    peft->flat = NULL;
    if (!st) st = kvf__artifact_write(ctx, options->out, options->force, &file);
    kvf__artifact_done(&file);
    return st;
}

/* Masks the layers without a prefix, which AdapterHub lists in leave_out. Their values are
 * zeros. */
static kvf_status leave_out(kvf_ctx *ctx, const char *path, const kvf_json *list,
                            kvf__prefix *prefix)
{
    for (size_t i = 0; i < kvf_json_size(list); i++) {
        const int64_t l = kvf_json_int(kvf_json_at(list, i), -1);
        if (l < 0 || l >= prefix->L || !prefix->layer_mask[l] || i + 1 == (size_t)prefix->L)
            return kvf__fail(ctx, KVF_EFORMAT,
                             "%s: leave_out[%zu] in adapter_config.json must be a layer from 0 to "
                             "%lld, listed once, and one layer must remain",
                             path, i, (long long)prefix->L - 1);
        prefix->layer_mask[l] = 0;
    }
    return KVF_OK;
}

static kvf_status fill_prefix(kvf_ctx *ctx, const kvf_import_options *options, const kvf_base *base,
                              kvf__peft *peft, kvf__artifact *file)
{
    kvf__identity *id = &file->id;

    KVF_TRY(peft_shape(ctx, options->path, peft, base, id));
    KVF_TRY(describe_peft(ctx, options, base, "direct", peft, id, &file->head));
    const kvf__kv_shape kv = kvf__identity_kv(id);
    if (kvf__peft_is_seq2seq(peft->task_type) != (id->encoder_layers > 0))
        return kvf__fail(
            ctx, KVF_EMISMATCH, "%s: task_type is %s, %s", options->path, peft->task_type,
            !base                ? "which is for an encoder-decoder: name the base with --base"
            : id->encoder_layers ? "but the base is an encoder-decoder: want SEQ_2_SEQ_LM"
                                 : "but the base is not an encoder-decoder");
    if (id->encoder_layers) {
        KVF_TRY(kvf__prefix_create(ctx, &file->prefix, &kv, id->P));
        KVF_TRY(kvf__peft_stacks_import(ctx, options->path, peft, id, &file->prefix));
        return kvf__artifact_write(ctx, options->out, options->force, file);
    }
    KVF_TRY(check_width(ctx, options->path, peft, 2 * kvf__kv_at(&kv, kv.L).width));
    KVF_TRY(kvf__prefix_create(ctx, &file->prefix, &kv, id->P));
    kvf__prefix_from_flat(&file->prefix, peft->flat);
    if (peft->at_0) {
        id->position_start = 0;
        KVF_TRY(
            leave_out(ctx, options->path, kvf_json_get(peft->config, "leave_out"), &file->prefix));
    }
    return kvf__artifact_write(ctx, options->out, options->force, file);
}

static kvf_status import_prefix(kvf_ctx *ctx, const kvf_import_options *options,
                                const kvf_base *base, kvf__peft *peft)
{
    kvf__artifact file = {.kind = KVF__KIND_PREFIX, .dtype = KVF__F32};
    kvf_status st = fill_prefix(ctx, options, base, peft, &file);

    kvf__artifact_done(&file);
    return st;
}

static kvf_status import_peft(kvf_ctx *ctx, const kvf_import_options *options, const kvf_base *base,
                              char *kind)
{
    kvf__peft peft = {0};

    KVF_TRY(kvf__peft_read(ctx, options->path, &peft));
    kvf_status st = peft.at_input ? import_vectors(ctx, options, base, &peft)
                                  : import_prefix(ctx, options, base, &peft);
    if (!st) strcpy(kind, peft.at_input ? "embeddings" : "prefix");
    kvf__peft_done(&peft);
    return st;
}

/* Writes a saved sequence as a prefix file. The layout of its keys and values follows from the
 * base, which must be the GGUF that computed them. */
static kvf_status fill_state(kvf_ctx *ctx, const kvf_import_options *options, const kvf_base *base,
                             kvf__artifact *file)
{
    const kvf__desc *d = base ? kvf__model_desc(base->model) : NULL;

    if (!d || !d->gguf)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: a saved sequence does not contain its layout: name the file that "
                         "computed it with --base MODEL.gguf",
                         options->path);
    if (options->labels)
        return kvf__fail(ctx, KVF_EUSAGE, "--labels: a saved sequence has no head");
    if (d->by_layer.shape)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: saved sequences of %s, whose layers differ, are not supported",
                         options->path, d->arch_name);
    const kvf__llama_base shape = kvf__llama_base_of(d);
    KVF_TRY(kvf__llama_state_read(ctx, options->path, &shape, &file->prefix));
    file->id.P = file->prefix.P;
    KVF_TRY(kvf__import_stamp(ctx, base, "", "direct", "lm", &file->id));
    return kvf__artifact_write(ctx, options->out, options->force, file);
}

static kvf_status import_state(kvf_ctx *ctx, const kvf_import_options *options,
                               const kvf_base *base, char *kind)
{
    kvf__artifact file = {.kind = KVF__KIND_PREFIX, .dtype = KVF__F32};
    const kvf_status st = fill_state(ctx, options, base, &file);

    kvf__artifact_done(&file);
    if (!st) strcpy(kind, "prefix");
    return st;
}

/* P and M of an MLP encoder, by the dims of its first two tensors. */
static kvf_status encoder_shape(kvf_ctx *ctx, const char *path, const kvf__table *table,
                                kvf__identity *id, int64_t *M)
{
    const kvf__view *embedding = kvf__table_find(table, "embedding.weight");
    const kvf__view *first = kvf__table_find(table, "transform.0.weight");
    if (!embedding || !first || embedding->rank != 2 || first->rank != 2)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: is not the state dict of an MLP encoder: embedding.weight [P, G*D] "
                         "or transform.0.weight [M, G*D] is missing (python -m kvfold.from_pickle "
                         "converts prefixes of other programs)",
                         path);
    id->P = embedding->dim[0];
    *M = first->dim[0];
    return KVF_OK;
}

static kvf_status fill_encoder(kvf_ctx *ctx, const char *path, const kvf_base *base,
                               const kvf__table *table, kvf__encoder **encoder, kvf__artifact *run)
{
    kvf__encoder_shape shape = {0};

    KVF_TRY(encoder_shape(ctx, path, table, &run->id, &shape.M));
    KVF_TRY(kvf__import_stamp(ctx, base, "", "mlp", "lm", &run->id));
    shape.L = run->id.L;
    shape.G = run->id.G;
    shape.P = run->id.P;
    shape.D = run->id.D;
    shape.heads = run->id.heads;
    KVF_TRY(kvf__encoder_create(ctx, "mlp", &shape, encoder));
    return kvf__encoder_read_table(ctx, *encoder, path, table);
}

static kvf_status import_encoder(kvf_ctx *ctx, const kvf_import_options *options,
                                 const kvf_base *base, char *kind)
{
    kvf__encoder *encoder = NULL;
    kvf__artifact run = {.kind = KVF__KIND_RUN};
    kvf__weights weights = {0};

    if (!base)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: the state dict of an encoder does not contain L, G and D: name the "
                         "base with --base",
                         options->path);
    kvf_status st = kvf__safetensors_open(ctx, options->path, &weights);
    if (!st) st = fill_encoder(ctx, options->path, base, &weights.table, &encoder, &run);
    if (!st) st = kvf__encoder_write_run(ctx, options->out, options->force, encoder, &run);
    if (!st) strcpy(kind, "run");
    kvf__weights_close(&weights);
    kvf__encoder_free(encoder);
    kvf__artifact_done(&run);
    return st;
}

/* ---- what is it? ----------------------------------------------------------------------------- */

static const char PEFT[] = "peft", ENCODER[] = "encoder", BASE[] = "base", STATE[] = "llamacpp";

/* *from: the word of options, or what the path holds. */
static kvf_status decide(kvf_ctx *ctx, const kvf_import_options *options, const char **from)
{
    kvf__file_kind found = KVF__FILE_UNKNOWN;

    KVF_TRY(kvf__file_kind_of(ctx, options->path, &found));
    if (options->from && strcmp(options->from, "auto")) {
        const char *word = options->from;
        *from = word;
        if (!strcmp(word, PEFT) || !strcmp(word, ENCODER) || !strcmp(word, BASE)) return KVF_OK;
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--from: \"%s\" is not known; known: auto, peft, encoder, base", word);
    }
    *from = found == KVF__FILE_LLAMA_STATE                         ? STATE
            : found == KVF__FILE_PEFT_DIR                          ? PEFT
            : found == KVF__FILE_SAFETENSORS                       ? ENCODER
            : found == KVF__FILE_GGUF || found == KVF__FILE_HF_DIR ? BASE
                                                                   : NULL;
    if (*from) return KVF_OK;
    return kvf__fail(
        ctx, KVF_EFORMAT,
        "%s: want a PEFT folder (adapter_config.json), a safetensors file of an "
        "encoder or a prefix, a saved sequence of llama.cpp, or a base: a Hugging Face "
        "folder (config.json) or a GGUF file",
        options->path);
}

/* On the base, if one is named. */
static kvf_status import_on(kvf_ctx *ctx, const kvf_import_options *options, const char *from,
                            char *kind)
{
    const kvf_base_options light = {.precision = KVF_PRECISION_F32, .lora = options->lora};
    kvf_base *base = NULL;

    if (options->base) KVF_TRY(kvf_base_open(ctx, options->base, &light, &base));
    kvf_status st = !strcmp(from, PEFT)    ? import_peft(ctx, options, base, kind)
                    : !strcmp(from, STATE) ? import_state(ctx, options, base, kind)
                                           : import_encoder(ctx, options, base, kind);
    kvf_base_free(base);
    return st;
}

static kvf_status import(kvf_ctx *ctx, const kvf_import_options *options, char *kind)
{
    const char *from = NULL;

    KVF_TRY(KVF__CHECK_RESERVED(ctx, kvf_import_options, options));
    KVF_TRY(decide(ctx, options, &from));
    KVF_TRY(KVF__NOT_INPUTS(ctx, options->out, options->path, options->base));
    if (strcmp(from, BASE)) return import_on(ctx, options, from, kind);
    if (options->base || options->labels)
        return kvf__fail(ctx, KVF_EUSAGE, "--%s is not for importing a base such as %s",
                         options->base ? "base" : "labels", options->path);
    KVF_TRY(kvf__base_import(ctx, options->path, options->out, options->force));
    strcpy(kind, BASE);
    return KVF_OK;
}

/* A name on the Hub is that of the folder in its cache. */
static kvf_status import_named(kvf_ctx *ctx, const kvf_import_options *options, char *kind)
{
    char *path = NULL;
    kvf_import_options own = *options;

    KVF_TRY(kvf__hub_find(ctx, options->path, &path));
    own.path = path;
    kvf_status st = import(ctx, &own, kind);
    kvf__free(path);
    return st;
}

kvf_status kvf_import(kvf_ctx *ctx, const kvf_import_options *options, char *kind)
{
    KVF_TRY(KVF__NEED(ctx, options, kind));
    KVF_TRY(KVF__NEED(ctx, options->path, options->out));
    KVF__RETURN(ctx, import_named(ctx, options, kind));
}
