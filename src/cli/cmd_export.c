/* kvfold export. */
#include "cli_model.h"

#include <stddef.h>

#define AT(field) offsetof(kvf_export_options, field)
static const kvf__option_row OPTIONS[] = {
    {"format", "peft|safetensors|llamacpp|mlx|tokenizer|transformers|gguf", "peft", KVF_CHOICE,
     AT(format),
     "peft: a folder for PeftModel.from_pretrained; safetensors: one file with the tensor; "
     "llamacpp: a folder with a saved sequence of llama.cpp; mlx: a prompt cache of mlx-lm; "
     "tokenizer: a folder for AutoTokenizer, from a base such as a GGUF; transformers: the base "
     "with the virtual neurons of the prefix in its matrices, or a base file or GGUF alone; gguf: "
     "the GGUF with the virtual neurons in its matrices"},
    {"out", "PATH", "", KVF_TEXT, AT(out), "folder or file to write"},
    {"base-id", "ID", "the base's name", KVF_TEXT, AT(base_id),
     "peft, mlx: Hub id or folder of the base, used by AutoPeftModelFor... or mlx-lm to load it"},
    {"base", "MODEL.gguf", "", KVF_TEXT, AT(base),
     "llamacpp: base file that the engine runs; transformers, gguf: base of the prefix"},
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
    {"ffn-type", "q8_0|f16|f32", "the base's", KVF_WORD, AT(ffn_type),
     "gguf: type in which the matrices of the feed-forward blocks are stored"},
    CLI_CHECKPOINT(AT(checkpoint), "state of a run file to use"),
    {"head", "NAME", "", KVF_TEXT, AT(head),
     "task whose head to export, for a file of several tasks"},
    CLI_FORCE(AT(force)),
};

static int run(cli_call *call)
{
    kvf_export_options o = {.path = call->operands[0]};
    int code = cli_set_values(call, &o);
    if (code) return code;
    kvf_status st = kvf_export(call->ctx, &o);
    if (st) return cli_fail_status(call, st);
    size_t n = 0;
    char format[16];
    const char *name = kvf__choice_at(OPTIONS[0].argument, (int)o.format, &n);
    snprintf(format, sizeof format, "%.*s", (int)n, name);
    if (call->common.json)
        return cli_print_json(call, kvf__json_of("out:s format:s", o.out, format));
    printf("%s: %s\n", o.out, format);
    if (!o.base_id && o.format == KVF_EXPORT_PEFT)
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
        "has them as a cache.\n",
    .required = "out",
    .needs = "lora>base",
    CLI_ROWS(OPTIONS),
    .operands = 1,
    .run = run,
};
