/* kvfold export. */
#include "cli_model.h"

#include <stddef.h>

#define AT(field) offsetof(kvf_export_options, field)
static const kvf_option_row OPTIONS[] = {
    {"format", "peft|safetensors", "peft", KVF_CHOICE, AT(format),
     "peft: a folder for PeftModel.from_pretrained; safetensors: one file with the tensor"},
    {"out", "PATH", "", KVF_TEXT, AT(out), "folder or file to write"},
    {"base-id", "ID", "the base's name", KVF_TEXT, AT(base_id),
     "peft: Hub id or folder of the base, by which AutoPeftModelFor... finds it"},
    CLI_CHECKPOINT(AT(checkpoint), "state of a run file"),
    {"head", "NAME", "", KVF_TEXT, AT(head),
     "of a file of several tasks: the one whose head goes along"},
    CLI_FORCE(AT(force)),
};

static int run(cli_call *call)
{
    kvf_export_options o = {.path = call->operands[0]};
    int code = cli_set_values(call, &o);
    if (code) return code;
    kvf_status st = kvf_export(call->ctx, &o);
    if (st) return cli_fail_status(call, st);
    const char *format = o.format == KVF_EXPORT_PEFT ? "peft" : "safetensors";
    if (call->common.json) return cli_print_json(call, cli_json("out:s format:s", o.out, format));
    printf("%s: %s\n", o.out, format);
    if (!o.base_id && o.format == KVF_EXPORT_PEFT)
        puts("the base is named, not found, by it: --base-id ID is for AutoPeftModelFor...");
    return CLI_OK;
}

const cli_command cli_export = {
    .name = "export",
    .group = CLI_FILES,
    .synopsis = "FILE --out PATH [options]",
    .summary = "Writes a prefix or run for other programs: a PEFT folder, or safetensors.",
    .notes = "peft: labels.json has the names of the head's outputs, which PEFT's own config\n"
             "has no place for; README.md is a model card, and one that is there stays. PEFT\n"
             "0.21 itself drops BERT's token types for question answering.\n",
    .required = "out",
    CLI_ROWS(OPTIONS),
    .operands = 1,
    .run = run,
};
