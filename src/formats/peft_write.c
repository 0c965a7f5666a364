/* Writing PEFT adapter folders for PeftModel.from_pretrained: PREFIX_TUNING or, for virtual tokens
 * at the input, PROMPT_TUNING (PEFT 0.21, save_and_load.py).
 *
 * Values are normalised for grouped-query attention: token_dim = G * D, num_attention_heads = G.
 * prefix_projection is false, because the prefix is already evaluated. Keys unknown to older
 * releases of PEFT are omitted. */
#include "file_int.h"
#include "json_pack.h"
#include "outfile.h"
#include "outfolder.h"
#include "peft.h"

#include <string.h>

typedef kvf__peft_content content;

static kvf_status check_exportable(kvf_ctx *ctx, const char *dir, const kvf__identity *id,
                                   const kvf__prefix *prefix)
{
    if (prefix->P == 0)
        return kvf__fail(ctx, KVF_ESHAPE, "%s: PEFT does not support a prefix of length 0", dir);
    if (id->infix)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: the prefix is inside rows (--infix), which PEFT does not support",
                         dir);
    if (!id->relative_bias &&
        id->position_start != prefix->P) /* near: only the distance matters, not the position */
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: position_start is %lld, but PEFT always starts tokens at P = %lld",
                         dir, (long long)id->position_start, (long long)prefix->P);
    for (int64_t l = 0; l < prefix->L; l++)
        if (!prefix->layer_mask[l])
            return kvf__fail(ctx, KVF_EUNSUPPORTED,
                             "%s: layer %lld has no prefix, which PEFT does not support", dir,
                             (long long)l);
    return KVF_OK;
}

static kvf_status check_task(kvf_ctx *ctx, const char *dir, const kvf__identity *id,
                             const kvf__head_values *head)
{
    if (!kvf__peft_row_of(id))
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: PEFT has no type for task %s", dir, id->task);
    if (head->words)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: PEFT does not support classes that are words (--verbalizer)", dir);
    if (!kvf__head_fits_task(id->task, head))
        return kvf__fail(ctx, KVF_EUSAGE, "%s: task %s with %zu parameters of a head", dir,
                         id->task ? id->task : "", head->params.params.n);
    return KVF_OK;
}

/* Lists the modules that PEFT adds for a task type, the pooler if the head trained one, and a
 * language model's own head. PEFT then loads the head's matrix without changing a tied
 * embedding. */
static kvf_json *modules_to_save(const kvf__identity *id, const kvf__head_values *head)
{
    const kvf__params *params = &head->params.params;
    bool qa = id->task && strcmp(id->task, "qa") == 0, pooler = false;

    if (!params->n) return kvf_json_new_null();
    kvf_json *list = kvf_json_array();
    if (!kvf__task_has_head(id->task)) {
        kvf_json_add(list, kvf_json_new_str("lm_head"));
        return list;
    }
    kvf_json_add(list, kvf_json_new_str(qa ? "qa_outputs" : "classifier"));
    if (!qa) kvf_json_add(list, kvf_json_new_str("score"));
    for (size_t i = 0; i < params->n; i++)
        pooler = pooler || strstr(params->item[i].name, ".pooler.");
    if (pooler) kvf_json_add(list, kvf_json_new_str("pooler"));
    return list;
}

/* PREFIX_TUNING has the shape of keys and values. PROMPT_TUNING does not use heads; PEFT reads
 * their number from the model. */
static kvf_json *make_shape(const content *what)
{
    const kvf__prefix *prefix = what->prefix;
    const int64_t width = prefix ? prefix->G * prefix->D : what->vectors->C;

    if (prefix)
        return kvf__json_pack("{s:s, s:I, s:I, s:I, s:I, s:b}", "peft_type", "PREFIX_TUNING",
                              "num_virtual_tokens", prefix->P, "num_attention_heads", prefix->G,
                              "token_dim", width, "encoder_hidden_size", width, "prefix_projection",
                              false);
    return kvf__json_pack("{s:s, s:I, s:n, s:I, s:s, s:n, s:n, s:n}", "peft_type", "PROMPT_TUNING",
                          "num_virtual_tokens", what->vectors->P, "num_attention_heads",
                          "token_dim", width, "prompt_tuning_init", "RANDOM",
                          "prompt_tuning_init_text", "tokenizer_name_or_path", "tokenizer_kwargs");
}

static kvf_json *make_config(const content *what)
{
    const kvf__identity *id = what->id;
    kvf_json *config = make_shape(what);

    kvf_json_set(config, "task_type", kvf_json_new_str(kvf__peft_row_of(id)->type));
    kvf_json_set(config, "base_model_name_or_path",
                 kvf__peft_text_or_null(what->base_id ? what->base_id : id->base_name));
    kvf_json_set(config, "revision", kvf_json_new_null());
    kvf_json_set(config, "inference_mode", kvf_json_new_bool(true));
    kvf_json_set(config, "auto_mapping", kvf_json_new_null());
    kvf_json_set(config, "modules_to_save", modules_to_save(id, what->head));
    kvf_json_set(config, "num_layers", kvf_json_new_int(id->L));
    kvf_json_set(config, "num_transformer_submodules",
                 kvf_json_new_int(id->encoder_layers ? 2 : 1));
    return config;
}

static kvf_status write_config(kvf_ctx *ctx, const char *path, bool force, const void *user)
{
    const content *what = user;
    kvf_json *config = make_config(what);
    char *text = kvf_json_text(config, KVF_JSON_INDENT | KVF_JSON_SORTED);

    kvf_status st = text ? kvf__write_file(ctx, path, force, text, strlen(text))
                         : kvf__fail(ctx, KVF_ENOMEM, "%s: out of memory", path);
    kvf_json_text_free(text);
    kvf_json_free(config);
    return st;
}

/* Sets *out to whether there is no card, or one of ours. */
static kvf_status is_own_card(kvf_ctx *ctx, const char *path, bool *out)
{
    enum { MOST = 16 << 20 };
    kvf__buf card = {0};
    kvf_status st = KVF_OK;
    *out = true;
    if (!kvf__exists(path)) return KVF_OK;
    st = kvf__read_file(ctx, path, MOST, &card);
    *out = !st && memmem(card.data, card.n, KVF__PEFT_CARD_MARK, sizeof KVF__PEFT_CARD_MARK - 1);
    kvf__buf_done(&card);
    return st;
}

kvf_status kvf__peft_write_card(kvf_ctx *ctx, const char *path, bool force, const void *user)
{
    const content *what = user;
    kvf__buf text = {0};
    bool own = true;

    KVF_TRY(is_own_card(ctx, path, &own));
    if (!own) return KVF_OK;
    kvf_status st = kvf__peft_card(ctx, what, &text);
    if (!st) st = kvf__write_file(ctx, path, force, text.data, text.n);
    kvf__buf_done(&text);
    return st;
}

/* Returns whether there is no labels.json, or one with label names. */
static bool is_own_labels(kvf_ctx *ctx, const char *path)
{
    kvf_json *root = NULL;
    bool own = !kvf__exists(path);

    if (!own && !kvf_json_load(ctx, path, &root)) own = kvf_json_get(root, "id2label") != NULL;
    kvf_json_free(root);
    return own;
}

/* Removes the label names of an earlier head; keeps a user's file. */
static kvf_status write_labels(kvf_ctx *ctx, const char *path, bool force, const void *user)
{
    const content *what = user;
    kvf__buf text = {0};

    kvf_status st = kvf__peft_labels(ctx, what->head, &text);
    if (!st && is_own_labels(ctx, path))
        st = text.n ? kvf__write_file(ctx, path, force, text.data, text.n)
                    : kvf__remove_file(ctx, path);
    else if (!st && text.n)
        st = kvf__fail(ctx, KVF_EEXIST, "%s: has no \"id2label\", it will not be replaced", path);
    kvf__buf_done(&text);
    return st;
}

/* Appends the head's tensors after the prefix; the caller frees their names. */
static kvf_status add_head(kvf_ctx *ctx, const kvf__head_values *head, kvf__tensor *tensors)
{
    const kvf__params *params = &head->params.params;

    for (size_t i = 0; i < params->n; i++) {
        const kvf__param *param = &params->item[i];
        kvf__tensor *tensor = &tensors[1 + i];
        KVF_TRY(kvf__asprintf(ctx, &tensor->name, "base_model.%s", param->name));
        tensor->view = (kvf__view){.data = param->value, .dtype = KVF__F32, .rank = param->rank};
        memcpy(tensor->view.dim, param->dim, (size_t)param->rank * sizeof *param->dim);
    }
    return KVF_OK;
}

/* Makes PEFT's table: a row per virtual token. */
static kvf_status make_flat(kvf_ctx *ctx, const content *what, float **out, kvf__view *view)
{
    const kvf__prefix *prefix = what->prefix;
    const int64_t P = prefix ? prefix->P : what->vectors->P;
    const int64_t width = prefix ? 2 * prefix->L * prefix->G * prefix->D : what->vectors->C;

    KVF_TRY(kvf__alloc_array(ctx, (size_t)(P * width), sizeof **out, out));
    if (prefix)
        kvf__prefix_to_flat(prefix, *out);
    else
        memcpy(*out, what->vectors->x, (size_t)(P * width) * sizeof **out);
    *view = (kvf__view){.data = *out, .dtype = KVF__F32, .rank = 2, .dim = {P, width}};
    return KVF_OK;
}

static kvf_status make_tensors(kvf_ctx *ctx, const content *what, kvf__tensor *tensors,
                               float **flat)
{
    tensors[0].name = (char *)"prompt_embeddings";
    KVF_TRY(make_flat(ctx, what, flat, &tensors[0].view));
    return add_head(ctx, what->head, tensors);
}

static kvf_status write_model(kvf_ctx *ctx, const char *path, bool force, const void *user)
{
    const content *what = user;
    const size_t n = 1 + what->head->params.params.n;
    float *flat = NULL;
    kvf__tensor *tensors = NULL;

    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *tensors, &tensors));
    kvf_status st = make_tensors(ctx, what, tensors, &flat);
    if (!st) st = kvf__safetensors_write(ctx, path, force, tensors, n);
    for (size_t i = 1; i < n; i++)
        kvf__free(tensors[i].name);
    kvf__free(tensors);
    kvf__free(flat);
    return st;
}

/* First the file that may be refused, last the config, which marks an adapter folder. */
const kvf__folder_file kvf__peft_files[KVF__PEFT_FILES] = {
    {"labels.json", write_labels},
    {"adapter_model.safetensors", write_model},
    {"adapter_config.json", write_config},
};

kvf_status kvf__peft_check(kvf_ctx *ctx, const char *dir, const content *what)
{
    if (what->prefix) KVF_TRY(check_exportable(ctx, dir, what->id, what->prefix));
    return check_task(ctx, dir, what->id, what->head);
}

kvf_status kvf__peft_write(kvf_ctx *ctx, const char *dir, bool force, const content *what)
{
    const kvf__folder_file *own = kvf__peft_files;
    const kvf__folder_file files[] = {own[0], own[1], {"README.md", kvf__peft_write_card}, own[2]};
    const kvf__folder folder = {files, sizeof files / sizeof files[0], "adapter files"};

    KVF_TRY(kvf__peft_check(ctx, dir, what));
    return kvf__write_folder(ctx, dir, force, &folder, what);
}
