/* kvfold export. With data, the loss is measured before and after neurons are folded into a base.
 */
#include "cli_model.h"

#include <stddef.h>

typedef struct export_values {
    kvf_export_options file;
    kvf_eval_options eval;
    kvf_precision precision;
} export_values;

#define AT(field)      offsetof(export_values, file.field)
#define EVAL_AT(field) offsetof(export_values, eval.field)
static const kvf__option_row OPTIONS[] = {
    {"format", "peft|safetensors|llamacpp|mlx|tokenizer|transformers|gguf|hub-repo", "peft",
     KVF_CHOICE, AT(format),
     "peft: a folder for PeftModel.from_pretrained; safetensors: one file with the tensor; "
     "llamacpp: a folder with a saved sequence of llama.cpp; mlx: a prompt cache of mlx-lm; "
     "tokenizer: a folder for AutoTokenizer, from a base such as a GGUF; transformers: the base "
     "with the virtual neurons of the prefix in its matrices, or a base file or GGUF alone; gguf: "
     "the GGUF with the virtual neurons in its matrices, or with the weights of a trained base; "
     "hub-repo: a folder for hf upload"},
    {"out", "PATH", "", KVF_TEXT, AT(out), "folder or file to write"},
    {"base-id", "ID", "the base's name", KVF_TEXT, AT(base_id),
     "peft, mlx, hub-repo: Hub id or folder of the base, used by AutoPeftModelFor... or mlx-lm to "
     "load it"},
    {"base", "MODEL.gguf", "", KVF_TEXT, AT(base),
     "llamacpp: base file that the engine runs; transformers, gguf: base of the prefix, or on "
     "which FILE, a base, was trained"},
    CLI_LORA(AT(lora)),
    {"engine", KVF_EXPORT_ENGINES, "llama-server; mlx-lm", KVF_WORD, AT(engine),
     "llamacpp, mlx: program that will load the cache; mlx-lm-0.31.3: that release and earlier "
     "ones"},
    {"state-version", "3|4", "from the engine", KVF_WORD, AT(state_version),
     "llamacpp: version of the state file"},
    {"flash-attention", "on|off", "from the engine", KVF_WORD, AT(flash_attention),
     "llamacpp: flash attention setting of the engine; off: values are transposed"},
    {"streams", "N", "1", KVF_POSITIVE, AT(streams),
     "llamacpp: number of sequences of a cache that is not unified"},
    {"dtype", "f16|f32", "f16; mlx: f32", KVF_WORD, AT(dtype),
     "llamacpp, mlx: type of keys and values in the engine's cache"},
    {"ffn-type", "q8_0|f16|f32", "the base's; f16 for quantized matrices that training changed",
     KVF_WORD, AT(ffn_type),
     "gguf: type in which the matrices of the feed-forward blocks, or all that training changed, "
     "are stored"},
    CLI_CHECKPOINT(AT(checkpoint), "state of a run file to use"),
    {"head", "NAME", "", KVF_TEXT, AT(head),
     "task whose head to export, for a file of several tasks"},
    CLI_ROW("data", "FILE", "", KVF_TEXT, EVAL_AT(data),
            "transformers, gguf: data file on which the loss is measured before and after"),
    CLI_CHAT_TEMPLATE(EVAL_AT(chat_template), "chat template of the data's prompts"),
    CLI_MAP_FIELDS(EVAL_AT(map)),
    CLI_MAX_LENGTH(EVAL_AT(max_length)),
    CLI_OVERLONG(EVAL_AT(overlong)),
    CLI_PRECISION(offsetof(export_values, precision), "f32",
                  "precision of the base when the loss is measured"),
    CLI_FORCE(AT(force)),
};

/* Measures the loss of a base with the prefix at a path, or NULL. */
static int measure(const cli_call *call, const export_values *v, const char *base,
                   const char *prefix, kvf_eval_result *out)
{
    const cli_model_options options = {
        .base = base,
        .prefixes = {&prefix, prefix != NULL},
        .open = {.base = {.lora = prefix ? v->file.lora : NULL, .precision = v->precision},
                 .checkpoint = prefix ? v->file.checkpoint : KVF_CHECKPOINT_DEFAULT,
                 .allow_other_base = v->file.format == KVF_EXPORT_GGUF},
    };
    cli_model model;
    if (!v->eval.data) return CLI_OK;
    int code = cli_model_open(call, &options, &model);
    if (code) return code;
    const bool alone = !prefix || !kvf_prefix_length(model.prefixes[0]);
    kvf_status st = KVF_OK;
    if (alone) st = kvf_eval(call->ctx, model.base, model.prefixes, model.n, &v->eval, out);
    cli_model_close(&model);
    if (!alone)
        return cli_misuse(call->command,
                          "--data is for virtual neurons alone: %s has keys and values, which stay "
                          "beside the model",
                          prefix);
    return st ? cli_fail_status(call, st) : CLI_OK;
}

/* Measures the loss of the written model, on the same tokens as before. */
static int measure_after(const cli_call *call, const export_values *v,
                         const kvf_eval_result *before, kvf_eval_result *after)
{
    int code = measure(call, v, v->file.out, NULL, after);
    if (code || after->label_tokens == before->label_tokens) return code;
    return cli_fail(call->command,
                    "%s: rows have other tokens than with %s: --chat-template names its template",
                    v->file.out, v->file.path);
}

static int run(cli_call *call)
{
    export_values v = {.file.path = call->operands[0], .precision = KVF_PRECISION_F32};
    kvf_eval_result before = {0}, after = {0};
    int code = cli_set_values(call, &v);
    if (code) return code;
    kvf_export_options *o = &v.file;
    if (v.eval.data && o->format != KVF_EXPORT_TRANSFORMERS && o->format != KVF_EXPORT_GGUF)
        return cli_misuse(call->command, "--data is for --format transformers and gguf");
    if (v.eval.data) code = cli_check_paths(call);
    if (!code) code = measure(call, &v, o->base, o->path, &before);
    if (code) return code;
    kvf_status st = kvf_export(call->ctx, o);
    if (st) return cli_fail_status(call, st);
    if (v.eval.data) code = measure_after(call, &v, &before, &after);
    if (code) return code;
    size_t n = 0;
    char format[16];
    const char *name = kvf__choice_at(OPTIONS[0].argument, (int)o->format, &n);
    snprintf(format, sizeof format, "%.*s", (int)n, name);
    if (call->common.json) {
        kvf_json *object = kvf__json_of("out:s format:s", o->out, format);
        if (v.eval.data)
            kvf__json_put(object, "loss_before:f loss_after:f loss_change:f", before.loss,
                          after.loss, after.loss - before.loss);
        return cli_print_json(call, object);
    }
    printf("%s: %s\n", o->out, format);
    if (v.eval.data)
        printf("loss %.6f, before %.6f, change %+.6f\n", after.loss, before.loss,
               after.loss - before.loss);
    if (!o->base_id && (o->format == KVF_EXPORT_PEFT || o->format == KVF_EXPORT_HUB_REPO))
        puts("the folder does not say where to find the base: AutoPeftModelFor... needs --base-id "
             "ID");
    return CLI_OK;
}

const cli_command cli_export = {
    .name = "export",
    .group = CLI_FILES,
    .synopsis = "FILE --out PATH [options]",
    .summary =
        "Writes a prefix or run for other programs: a PEFT folder, safetensors, or the saved "
        "cache of an engine.",
    .notes =
        "peft: labels.json has the names of the head's outputs, since PEFT's config has no "
        "field for them. README.md is a model card; an existing one is kept. PEFT 0.21 "
        "ignores BERT's token types for question answering. tokenizer: FILE is a base. The "
        "folder made from a GGUF has the same ids. llamacpp, mlx: only for prefixes that "
        "consist of keys and values alone. README.md in the folder shows how to load it; "
        "the defaults are tested. gguf: of a prefix with keys and values, --out is a folder with "
        "the GGUF, its saved sequence and a README.md for both; transformers: the folder then "
        "has them as a cache. hub-repo: prefix.h5, prefix.safetensors, the files of peft if PEFT "
        "can hold the prefix, and README.md; --prefix ORG/NAME reads it after hf download.\n",
    .required = "out",
    .needs = "data>base chat-template>data map>data max-length>data overlong>data "
             "precision>data",
    CLI_ROWS(OPTIONS),
    .operands = 1,
    .run = run,
};
