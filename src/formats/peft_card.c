/* The model card of an adapter folder, README.md in the format of the Hugging Face Hub: YAML
 * between two lines of dashes, then Markdown. And labels.json: the names of a head's outputs in the
 * format of a config.json, because PEFT's config has no place for them.
 *
 * Attributes of the file are quoted as JSON, which is also YAML and needs no escapes in Markdown: a
 * line of it cannot end its block. */
#include "file_int.h"
#include "peft.h"

#include <string.h>

/* Appends a value as JSON, and a newline. */
static kvf_status put_json(kvf_ctx *ctx, kvf__buf *out, const char *before, const kvf_json *value,
                           const char *after)
{
    char *text = kvf_json_text(value, KVF_JSON_INDENT);
    kvf_status st = text ? kvf__buf_printf(ctx, out, "%s%s%s\n", before, text, after)
                         : kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    kvf_json_text_free(text);
    return st;
}

static kvf_status put_quoted(kvf_ctx *ctx, kvf__buf *out, const char *before, const char *text,
                             const char *after)
{
    kvf_json *value = kvf_json_new_str(text);
    kvf_status st = put_json(ctx, out, before, value, after);
    kvf_json_free(value);
    return st;
}

/* A folder of this machine is not a model of the Hub. */
static bool is_on_hub(const kvf__peft_content *what)
{
    return what->base_id && !kvf__is_dir(what->base_id);
}

/* Returns whether a fact of the lineage is a validation score of the run. Its name must not end a
 * line of YAML. */
static bool is_score(const char *key, const kvf_json *value)
{
    return !strncmp(key, "run_", 4) && kvf_json_typeof(value) == KVF_JSON_REAL &&
           !key[strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789_")];
}

/* Appends these as results of the Hub's model index. */
static kvf_status put_scores(kvf_ctx *ctx, kvf__buf *out, const kvf__peft_content *what,
                             const kvf__peft_row *row)
{
    const char *head = "model-index:\n- name: prefix\n  results:\n  - task:\n      type: %s\n"
                       "    dataset:\n      name: validation rows\n      type: rows\n"
                       "    metrics:\n";
    kvf_json *facts = (kvf_json *)what->lineage; /* its iterator changes nothing */
    int n = 0;

    for (void *it = kvf_json_iter(facts); row && it; it = kvf_json_next(facts, it)) {
        const char *key = kvf_json_iter_key(it);
        if (!is_score(key, kvf_json_iter_value(it))) continue;
        if (!n++) KVF_TRY(kvf__buf_printf(ctx, out, head, row->pipeline));
        KVF_TRY(kvf__buf_printf(ctx, out, "    - type: %s\n      value: %.6g\n", key + 4,
                                kvf_json_real(kvf_json_iter_value(it), 0)));
    }
    return KVF_OK;
}

/* PEFT has no type for some tasks. */
static kvf_status put_head(kvf_ctx *ctx, kvf__buf *out, const kvf__peft_content *what)
{
    const kvf__peft_row *row = kvf__peft_row_of(what->id);

    KVF_TRY(kvf__buf_printf(ctx, out, "---\n"));
    if (is_on_hub(what)) KVF_TRY(put_quoted(ctx, out, "base_model: ", what->base_id, ""));
    KVF_TRY(kvf__buf_printf(ctx, out, "library_name: %s\n",
                            what->prefix || what->vectors ? "peft" : "kvfold"));
    if (row) KVF_TRY(kvf__buf_printf(ctx, out, "pipeline_tag: %s\n", row->pipeline));
    if (what->own_file) KVF_TRY(put_scores(ctx, out, what, row));
    return kvf__buf_printf(ctx, out, "tags:\n- kvfold\n- %s\n---\n\n",
                           what->vectors ? "prompt-tuning" : "prefix-tuning");
}

/* Appends commands of kvfold. BASE is a word of ours: a name from the file could hold commands. */
static kvf_status put_commands(kvf_ctx *ctx, kvf__buf *out, const kvf__peft_content *what)
{
    const bool lm = !kvf__task_has_head(what->id->task);
    const char *base = what->base_id ? what->base_id : what->id->base_name;

    if (!what->own_file) return KVF_OK;
    KVF_TRY(put_quoted(ctx, out, "## Use with kvfold\n\nBASE is ", base ? base : "", "."));
    return kvf__buf_printf(ctx, out,
                           "REPO is the name of this repository, or the file `%s`.\n\n"
                           "```sh\n"
                           "hf download REPO\n"
                           "kvfold %s --base BASE --prefix REPO %s\n"
                           "kvfold serve --base BASE --prefix REPO\n"
                           "```\n\n",
                           what->own_file, lm ? "generate" : "predict",
                           lm ? "--prompt \"...\"" : "--data rows.jsonl");
}

/* Appends Python code that loads the adapter: the base by its id if there is one, else a
 * placeholder for the reader's base. */
static kvf_status put_use(kvf_ctx *ctx, kvf__buf *out, const kvf__peft_content *what)
{
    if (!what->prefix && !what->vectors) return KVF_OK;
    const char *class = kvf__peft_row_of(what->id)->class_name;
    const char *name = what->id->base_name;
    const bool labels = what->head->n_labels > 0;
    const char *more = labels ? ", **labels" : what->head->regression ? ", num_labels=1" : "";

    KVF_TRY(kvf__buf_printf(ctx, out, "## Use with PEFT\n\n```python\n"));
    if (labels)
        KVF_TRY(kvf__buf_printf(ctx, out,
                                "import json\n"
                                "labels = json.load(open(\"labels.json\"))\n"
                                "labels[\"id2label\"] = {int(i): name for i, name in "
                                "labels[\"id2label\"].items()}\n"));
    if (what->base_id)
        return kvf__buf_printf(
            ctx, out,
            "from peft import AutoPeftModelFor%s\n"
            "model = AutoPeftModelFor%s.from_pretrained(\".\"%s)  # this folder\n"
            "```\n\n",
            class, class, more);
    KVF_TRY(kvf__buf_printf(ctx, out,
                            "from peft import PeftModel\n"
                            "from transformers import AutoModelFor%s\n",
                            class));
    KVF_TRY(put_quoted(ctx, out, "base = ", name ? name : "", "  # its Hub id, or a folder"));
    return kvf__buf_printf(
        ctx, out,
        "model = PeftModel.from_pretrained(AutoModelFor%s.from_pretrained(base%s), \".\")\n"
        "```\n\n",
        class, more);
}

/* Python that shows whether generate() of the installed versions uses the prefix. */
static kvf_status put_check(kvf_ctx *ctx, kvf__buf *out, const kvf__peft_content *what)
{
    if (!what->prefix || strcmp(kvf__peft_row_of(what->id)->class_name, "CausalLM")) return KVF_OK;
    return kvf__buf_printf(
        ctx, out,
        "PEFT 0.21.2 uses the prefix in `generate` with transformers 5.23. With transformers 5.24 "
        "it "
        "ignores the prefix there,\nand only `forward` uses it. This prints `True` if the "
        "installed "
        "versions use it in `generate`:\n\n"
        "```python\n"
        "import torch\n"
        "x = {\"input_ids\": torch.tensor([[1, 2, 3]]), \"attention_mask\": torch.ones(1, 3)}\n"
        "out = model.generate(**x, max_new_tokens=1, output_logits=True, "
        "return_dict_in_generate=True)\n"
        "print(torch.allclose(out.logits[0], model(**x).logits[:, -1].float(), atol=0.01))\n"
        "```\n\n");
}

kvf_json *kvf__peft_text_or_null(const char *text)
{
    return text && *text ? kvf_json_new_str(text) : kvf_json_new_null();
}

/* Lists the required base, and the relation of this adapter to it. */
static kvf_json *facts_of(const kvf__identity *id)
{
    kvf_json *facts = kvf_json_object();

    kvf_json_set(facts, "base_name", kvf__peft_text_or_null(id->base_name));
    kvf_json_set(facts, "base_architecture", kvf__peft_text_or_null(id->base_architecture));
    kvf_json_set(facts, "base_hash", kvf__peft_text_or_null(id->base_hash));
    kvf_json_set(facts, "method", kvf__peft_text_or_null(id->method));
    kvf_json_set(facts, "task", kvf__peft_text_or_null(id->task));
    kvf_json_set(facts, "chat_template", kvf__peft_text_or_null(id->chat_template));
    kvf_json_set(facts, "virtual_tokens", kvf_json_new_int(id->P));
    kvf_json_set(facts, "kvfold_version", kvf_json_new_str(KVF_VERSION));
    return facts;
}

static kvf_status put_block(kvf_ctx *ctx, kvf__buf *out, const char *title, const kvf_json *value)
{
    if (!kvf_json_size(value)) return KVF_OK;
    KVF_TRY(kvf__buf_printf(ctx, out, "## %s\n\n", title));
    return put_json(ctx, out, "```json\n", value, "\n```\n");
}

static kvf_status put_label_block(kvf_ctx *ctx, kvf__buf *out, const kvf__head_values *head)
{
    kvf_json *list = kvf_json_array();

    for (size_t i = 0; i < head->n_labels; i++)
        kvf_json_add(list, kvf_json_new_str(head->labels[i]));
    kvf_status st = put_block(ctx, out, "Labels", list);
    kvf_json_free(list);
    return st;
}

static kvf_status put_card(kvf_ctx *ctx, kvf__buf *out, const kvf__peft_content *what,
                           const kvf_json *facts)
{
    KVF_TRY(put_head(ctx, out, what));
    KVF_TRY(kvf__buf_printf(ctx, out, "# %s\n\n%lld virtual tokens",
                            what->vectors ? "Prompt tuning" : "Prefix tuning",
                            (long long)what->id->P));
    if (what->id->neurons.N)
        KVF_TRY(kvf__buf_printf(ctx, out, " and %lld virtual neurons a layer",
                                (long long)what->id->neurons.N));
    KVF_TRY(kvf__buf_printf(ctx, out, " for a frozen base, trained with kvfold.\n\n"));
    KVF_TRY(put_commands(ctx, out, what));
    KVF_TRY(put_use(ctx, out, what));
    KVF_TRY(put_check(ctx, out, what));
    KVF_TRY(put_label_block(ctx, out, what->head));
    KVF_TRY(put_block(ctx, out, "What it is", facts));
    KVF_TRY(put_block(ctx, out, "Lineage", what->lineage));
    KVF_TRY(put_block(ctx, out, "Options of the run", what->options));
    return kvf__buf_printf(ctx, out, "%s\n", KVF__PEFT_CARD_MARK);
}

kvf_status kvf__peft_card(kvf_ctx *ctx, const kvf__peft_content *what, kvf__buf *card)
{
    kvf_json *facts = facts_of(what->id);
    kvf_status st = put_card(ctx, card, what, facts);

    kvf_json_free(facts);
    return st;
}

kvf_status kvf__peft_labels(kvf_ctx *ctx, const kvf__head_values *head, kvf__buf *labels)
{
    kvf_json *root = kvf_json_object(), *names = kvf_json_object(), *ids = kvf_json_object();
    char id[24];

    kvf_json_set(root, "id2label", names);
    kvf_json_set(root, "label2id", ids);
    for (size_t i = 0; i < head->n_labels; i++) {
        snprintf(id, sizeof id, "%zu", i);
        kvf_json_set(names, id, kvf_json_new_str(head->labels[i]));
        kvf_json_set(ids, head->labels[i], kvf_json_new_int((int64_t)i));
    }
    kvf_status st = head->n_labels ? put_json(ctx, labels, "", root, "") : KVF_OK;
    kvf_json_free(root);
    return st;
}
