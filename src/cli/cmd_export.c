/* kvfold export. */
#include "cli_int.h"

#include <stddef.h>
#include <string.h>

typedef struct values {
    const char *out, *format, *checkpoint, *head, *base_id;
    bool force;
} values;

#define AT(field) offsetof(values, field)
static const cli_option OPTIONS[] = {
    {{"format", "peft|safetensors", "peft",
      "peft: a folder for PeftModel.from_pretrained; safetensors: one file with the tensor"},
     CLI_CHOICE,
     AT(format)},
    {{"out", "PATH", "", "folder or file to write"}, CLI_TEXT, AT(out)},
    {{"base-id", "ID", "the base's name",
      "peft: Hub id or folder of the base, by which AutoPeftModelFor... finds it"},
     CLI_TEXT,
     AT(base_id)},
    {{"checkpoint", "best|last", "best if there is one", "state of a run file"},
     CLI_CHOICE,
     AT(checkpoint)},
    {{"head", "NAME", "", "of a file of several tasks: the one whose head goes along"},
     CLI_TEXT,
     AT(head)},
    {{"force", NULL, "", "replace an existing output"}, CLI_FLAG, AT(force)},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

static int run(cli_call *call)
{
    values v = {.format = "peft"};
    int code = cli_set_values(call, OPTIONS, N_OPTIONS, &v);
    if (code) return code;
    const kvf_export_options options = {.path = call->operands[0],
                                        .out = v.out,
                                        .format = v.format,
                                        .head = v.head,
                                        .base_id = v.base_id,
                                        .checkpoint = cli_checkpoint(v.checkpoint),
                                        .force = v.force};
    kvf_status st = kvf_export(call->ctx, &options);
    if (st) return cli_fail_status(call, st);
    if (call->common.json) {
        kvf_json *object = kvf_json_object();
        kvf_json_set(object, "out", kvf_json_new_str(v.out));
        kvf_json_set(object, "format", kvf_json_new_str(v.format));
        return cli_print_json(call, object);
    }
    printf("%s: %s\n", v.out, v.format);
    if (!v.base_id && !strcmp(v.format, "peft"))
        puts("the base is named, not found, by it: --base-id ID is for AutoPeftModelFor...");
    return CLI_OK;
}

const cli_command cli_export = {
    .name = "export",
    .group = CLI_FILES,
    .synopsis = "FILE --out PATH [options]",
    .summary = "Writes a prefix or run for other programs: a PEFT folder, or safetensors.",
    .required = "out",
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .operands = 1,
    .run = run,
};
