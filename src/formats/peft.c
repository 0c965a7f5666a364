/* Reading PEFT adapter folders: adapter_config.json and adapter_model.safetensors of PREFIX_TUNING
 * or CARTRIDGE, PROMPT_TUNING or P_TUNING (PEFT 0.21). Also ADAPTERHUB as written by
 * from_pickle.py: a PREFIX_TUNING with rows from position 0 on, and layers left out.
 *
 * All save the evaluated prefix, one row per virtual token, for any encoder, so prefix_projection
 * is ignored here. A trained head is in the same file, with names of the whole model after
 * "base_model.". Content that would be lost on import (a second submodule) is refused. */
#include "peft.h"
#include "file_int.h"

#include <math.h>
#include <string.h>

static const char CONFIG[] = "adapter_config.json", MODEL[] = "adapter_model.safetensors";
static const char TENSOR[] = "prompt_embeddings", HEAD[] = "base_model.";
static const char LM_HEAD[] = "base_model.lm_head.weight";

/* ---- tasks ----------------------------------------------------------------------------------- */

#define SEQ2SEQ "SEQ_2_SEQ_LM"

/* The first row of a task is used for writing, except for encoder-decoders. */
static const kvf__peft_row TASKS[] = {
    {"CAUSAL_LM", "lm", "CausalLM", "text-generation"},
    {"SEQ_CLS", "seq-cls", "SequenceClassification", "text-classification"},
    {"TOKEN_CLS", "token-cls", "TokenClassification", "token-classification"},
    {"QUESTION_ANS", "qa", "QuestionAnswering", "question-answering"},
    {SEQ2SEQ, "lm", "Seq2SeqLM", "text2text-generation"},
    {"", "lm", NULL, NULL},
    {"FEATURE_EXTRACTION", "lm", NULL, NULL},
};
enum { N_TASKS = sizeof TASKS / sizeof TASKS[0] };

const char *kvf__peft_task(const char *task_type)
{
    for (int i = 0; i < N_TASKS; i++)
        if (strcmp(TASKS[i].type, task_type) == 0) return TASKS[i].task;
    return NULL;
}

bool kvf__peft_is_seq2seq(const char *task_type)
{
    return !strcmp(task_type, SEQ2SEQ);
}

const kvf__peft_row *kvf__peft_row_of(const kvf__identity *id)
{
    const char *task = id->task;
    for (int i = 0; i < N_TASKS; i++)
        if (kvf__peft_is_seq2seq(TASKS[i].type) == (id->encoder_layers > 0) &&
            strcmp(TASKS[i].task, task && *task ? task : "lm") == 0)
            return &TASKS[i];
    return NULL;
}

/* ---- config ---------------------------------------------------------------------------------- */

/* The following functions report errors without the file, which read_config() adds. Reads a whole
 * number in [1, 2^31); null or absent: 0. */
static kvf_status get_count(kvf_ctx *ctx, const kvf_json *config, const char *key, int64_t *out)
{
    const kvf_json *value = kvf_json_get(config, key);
    int64_t count = kvf_json_int(value, 0);

    if (kvf_json_typeof(value) <= KVF_JSON_NULL) return KVF_OK;
    if (count < 1 || count > INT32_MAX)
        return kvf__fail(ctx, KVF_EFORMAT, "\"%s\" is not a whole number from 1 to 2^31 - 1", key);
    *out = count;
    return KVF_OK;
}

static kvf_status get_text(kvf_ctx *ctx, const kvf_json *config, const char *key, char **out)
{
    const kvf_json *value = kvf_json_get(config, key);

    if (kvf_json_typeof(value) <= KVF_JSON_NULL) return kvf__strdup(ctx, "", out);
    if (kvf_json_typeof(value) != KVF_JSON_STRING)
        return kvf__fail(ctx, KVF_EFORMAT, "\"%s\" is not a text", key);
    return kvf__strdup(ctx, kvf_json_str(value, NULL), out);
}

static kvf_status check_type(kvf_ctx *ctx, const kvf_json *config, bool *at_input, bool *at_0)
{
    const char *type = kvf_json_str(kvf_json_get(config, "peft_type"), NULL);
    int64_t submodules = 0;

    if (kvf_json_typeof(config) != KVF_JSON_OBJECT || !type)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "has no text \"peft_type\", want an adapter config of PEFT");
    *at_input = !strcmp(type, "PROMPT_TUNING") || !strcmp(type, "P_TUNING");
    *at_0 = !strcmp(type, "ADAPTERHUB");
    if (strcmp(type, "PREFIX_TUNING") != 0 && strcmp(type, "CARTRIDGE") != 0 && !*at_input &&
        !*at_0)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "peft_type is %s, want PREFIX_TUNING, CARTRIDGE, PROMPT_TUNING or "
                         "P_TUNING",
                         type);
    KVF_TRY(get_count(ctx, config, "num_transformer_submodules", &submodules));
    const char *task = kvf_json_str(kvf_json_get(config, "task_type"), NULL);
    const int64_t want = task && kvf__peft_is_seq2seq(task) && !*at_input ? 2 : 1;
    if (submodules && submodules != want)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "num_transformer_submodules is %lld, want %lld for task_type %s",
                         (long long)submodules, (long long)want, task ? task : "null");
    if (*at_input && task && kvf__peft_is_seq2seq(task))
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "virtual tokens before an encoder's input");
    return KVF_OK;
}

static kvf_status read_fields(kvf_ctx *ctx, const kvf_json *config, kvf__peft *peft)
{
    KVF_TRY(check_type(ctx, config, &peft->at_input, &peft->at_0));
    KVF_TRY(get_count(ctx, config, "num_virtual_tokens", &peft->P));
    KVF_TRY(get_count(ctx, config, "num_layers", &peft->L));
    KVF_TRY(get_count(ctx, config, "token_dim", &peft->token_dim));
    KVF_TRY(get_count(ctx, config, "num_attention_heads", &peft->heads));
    KVF_TRY(get_text(ctx, config, "base_model_name_or_path", &peft->base_name));
    KVF_TRY(get_text(ctx, config, "task_type", &peft->task_type));
    if (!kvf__peft_task(peft->task_type))
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "task_type is %.60s, which kvfold does not support",
                         peft->task_type);
    if (!peft->at_input && peft->heads && peft->token_dim % peft->heads != 0)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "token_dim %lld is not a multiple of num_attention_heads %lld",
                         (long long)peft->token_dim, (long long)peft->heads);
    return KVF_OK;
}

static kvf_status read_config(kvf_ctx *ctx, const char *path, kvf__peft *peft)
{
    KVF_TRY(kvf_json_load(ctx, path, &peft->config));
    kvf_status st = read_fields(ctx, peft->config, peft);
    return st && st != KVF_ENOMEM ? kvf__fail_prefix(ctx, st, "%s", path) : st;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Accepts the prefix, and a head if the task has one (possibly a language model's own); anything
 * else would be lost. */
static kvf_status check_names(kvf_ctx *ctx, const char *path, const kvf__table *table,
                              const kvf__peft *peft)
{
    bool head = kvf__task_has_head(kvf__peft_task(peft->task_type));

    if (!kvf__table_find(table, TENSOR))
        return kvf__fail(ctx, KVF_EFORMAT, "%s: tensor \"%s\" is missing", path, TENSOR);
    if (head && table->n == 1)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: task_type is %s, but there is no head (%s...)",
                         path, peft->task_type, HEAD);
    for (size_t i = 0; i < table->n; i++) {
        const char *name = table->items[i].name;
        bool known = strcmp(name, TENSOR) == 0 ||
                     (head ? !strncmp(name, HEAD, sizeof HEAD - 1) : !strcmp(name, LM_HEAD));
        if (!known)
            return kvf__fail(
                ctx, KVF_EUNSUPPORTED,
                "%s: contains \"%s\" besides \"%s\", but task_type \"%s\" does not use it", path,
                name, TENSOR, peft->task_type);
    }
    return KVF_OK;
}

static bool is_plain_float(kvf__dtype dtype)
{
    return dtype == KVF__F32 || dtype == KVF__F16 || dtype == KVF__BF16;
}

/* Reads one parameter of the head, by its name in the model. */
static kvf_status read_param(kvf_ctx *ctx, const char *path, const kvf__tensor *tensor,
                             kvf__params_owned *params)
{
    const kvf__view *view = &tensor->view;
    kvf__param *param = NULL;
    char text[128];

    if (!is_plain_float(view->dtype) || view->rank < 1 || view->rank > 4 ||
        kvf__view_count(view) < 1)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: \"%s\" is %s, want f32, f16 or bf16 of rank 1 to 4", path,
                         tensor->name, kvf__shape_text(text, view->rank, view->dim));
    KVF_TRY(kvf__params_owned_add(ctx, params, tensor->name + sizeof HEAD - 1, view->rank,
                                  view->dim, &param));
    kvf__to_f32(view->dtype, view->data, param->value, param->n);
    return kvf__check_finite(ctx, path, tensor->name, param->value, param->n);
}

static kvf_status check_shape(kvf_ctx *ctx, const char *path, const kvf__view *view,
                              const kvf__peft *peft)
{
    char text[128];
    size_t per_layer = 0, width = 0;
    bool known = !peft->at_input && peft->L && peft->token_dim;

    if (!is_plain_float(view->dtype))
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: %s is %s, want f32, f16 or bf16", path, TENSOR,
                         kvf__view_type_name(view));
    if (peft->at_input && view->rank == 2 && peft->token_dim && view->dim[1] != peft->token_dim)
        return kvf__fail(ctx, KVF_ESHAPE, "%s: %s has rows of %lld, but token_dim is %lld", path,
                         TENSOR, (long long)view->dim[1], (long long)peft->token_dim);
    if (view->rank != 2 || view->dim[0] < 1 || view->dim[1] < 1 ||
        (!peft->at_input && view->dim[1] % 2 != 0))
        return kvf__fail(ctx, KVF_ESHAPE, "%s: %s is %s, want [P, 2 * layers * token_dim]", path,
                         TENSOR, kvf__shape_text(text, view->rank, view->dim));
    if (peft->P && view->dim[0] != peft->P)
        return kvf__fail(ctx, KVF_ESHAPE, "%s: %s has %lld rows, but num_virtual_tokens is %lld",
                         path, TENSOR, (long long)view->dim[0], (long long)peft->P);
    if (known && (!kvf__mul((size_t)peft->token_dim, 2, &per_layer) ||
                  !kvf__mul((size_t)peft->L, per_layer, &width) || width != (size_t)view->dim[1]))
        return kvf__fail(
            ctx, KVF_ESHAPE,
            "%s: %s has rows of %lld, but 2 * num_layers %lld * token_dim %lld want %zu", path,
            TENSOR, (long long)view->dim[1], (long long)peft->L, (long long)peft->token_dim, width);
    return KVF_OK;
}

static kvf_status read_table(kvf_ctx *ctx, const char *path, const kvf__view *view, kvf__peft *peft)
{
    const int64_t n = kvf__view_count(view), width = view->dim[1];

    KVF_TRY(kvf__alloc_array(ctx, (size_t)n, sizeof(float), &peft->flat));
    peft->P = view->dim[0];
    peft->width = width;
    kvf__to_f32(view->dtype, view->data, peft->flat, n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(peft->flat[i]))
            return kvf__fail(ctx, KVF_ENUMERIC, "%s: %s[%lld, %lld] is %g, want finite values",
                             path, TENSOR, (long long)(i / width), (long long)(i % width),
                             (double)peft->flat[i]);
    return KVF_OK;
}

static kvf_status read_tensors(kvf_ctx *ctx, const char *path, const kvf__table *table,
                               kvf__peft *peft)
{
    KVF_TRY(check_names(ctx, path, table, peft));
    const kvf__view *view = kvf__table_find(table, TENSOR);
    KVF_TRY(check_shape(ctx, path, view, peft));
    KVF_TRY(read_table(ctx, path, view, peft));
    for (size_t i = 0; i < table->n; i++)
        if (strcmp(table->items[i].name, TENSOR) != 0)
            KVF_TRY(read_param(ctx, path, &table->items[i], &peft->head.params));
    return KVF_OK;
}

static kvf_status read_model(kvf_ctx *ctx, const char *path, kvf__peft *peft)
{
    kvf__weights weights = {0};

    KVF_TRY(kvf__safetensors_open(ctx, path, &weights));
    kvf_status st = read_tensors(ctx, path, &weights.table, peft);
    kvf__weights_close(&weights);
    return st;
}

/* Reads labels.json of our own exports: names of the head's outputs in the format of a
 * config.json. */
static kvf_status read_labels(kvf_ctx *ctx, const char *path, kvf__head_values *head)
{
    kvf_json *root = NULL;

    if (!head->params.params.n || !kvf__exists(path)) return KVF_OK;
    KVF_TRY(kvf_json_load(ctx, path, &root));
    const kvf_json *names = kvf_json_get(root, "id2label");
    const size_t n = kvf_json_size(names);
    kvf_status st = kvf__alloc_array(ctx, n, sizeof *head->labels, &head->labels);
    for (size_t i = 0; i < n && !st; i++) {
        char id[24];
        snprintf(id, sizeof id, "%zu", i);
        const char *name = kvf_json_str(kvf_json_get(names, id), NULL);
        st = name ? kvf__strdup(ctx, name, &head->labels[i])
                  : kvf__fail(ctx, KVF_EFORMAT, "%s: id2label has no text for \"%s\"", path, id);
        head->n_labels = i + 1;
    }
    kvf_json_free(root);
    return st;
}

static kvf_status check_files(kvf_ctx *ctx, const char *dir, const char *config, const char *model)
{
    if (!kvf__is_dir(dir))
        return kvf__fail(ctx, KVF_EIO, "%s: not a folder, want the folder of a PEFT adapter", dir);
    if (!kvf__exists(config)) return kvf__fail(ctx, KVF_EIO, "%s: %s is not there", dir, CONFIG);
    if (!kvf__exists(model))
        return kvf__fail(ctx, KVF_EIO,
                         "%s: %s is not there (python -m kvfold.from_pickle makes it from "
                         "AdapterHub's prefixes)",
                         dir, MODEL);
    return KVF_OK;
}

kvf_status kvf__peft_read(kvf_ctx *ctx, const char *dir, kvf__peft *out)
{
    kvf__peft peft = {0};
    char *config = NULL, *model = NULL, *labels = NULL;

    kvf_status st = kvf__path_join(ctx, dir, CONFIG, &config);
    if (!st) st = kvf__path_join(ctx, dir, MODEL, &model);
    if (!st) st = kvf__path_join(ctx, dir, "labels.json", &labels);
    if (!st) st = check_files(ctx, dir, config, model);
    if (!st) st = read_config(ctx, config, &peft);
    if (!st) st = read_model(ctx, model, &peft);
    if (!st) st = read_labels(ctx, labels, &peft.head);
    KVF__GIVE(st, out, peft, kvf__peft_done(&peft));
    kvf__free(labels);
    kvf__free(model);
    kvf__free(config);
    return st;
}

void kvf__peft_done(kvf__peft *peft)
{
    kvf_json_free(peft->config);
    kvf__free(peft->base_name);
    kvf__free(peft->task_type);
    kvf__head_values_done(&peft->head);
    kvf__free(peft->flat);
    *peft = (kvf__peft){0};
}
