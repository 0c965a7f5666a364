/* kvfold import. */
#include "cli_model.h"

#include <stddef.h>
#include <string.h>

#define AT(field) offsetof(kvf_import_options, field)
static const kvf__option_row OPTIONS[] = {
    {"out", "FILE.h5", "", KVF_TEXT, AT(out), "prefix, run or base file to write"},
    {"base", "PATH", "", KVF_TEXT, AT(base),
     "base model: checks the shapes and stamps its hash; needed for an encoder, and, as the GGUF "
     "that computed it, for a saved sequence of llama.cpp"},
    CLI_LORA(AT(lora)),
    {"from", "auto|peft|encoder|base|p-tuning-v2|prefixtuning|adapterhub|cartridges", "auto",
     KVF_WORD, AT(from), "what the path holds; auto: by the files and tensors that are there"},
    {"task", "lm|seq-cls|token-cls|qa|multiple-choice", "as the checkpoint says", KVF_WORD,
     AT(task), "of P-tuning v2 and AdapterHub; lm leaves a head out"},
    {"labels", "NAME,...", "LABEL_0,LABEL_1,...", KVF_TEXT, AT(labels),
     "names of the outputs of an adapter's head"},
    CLI_FORCE(AT(force)),
};

static int run(cli_call *call)
{
    kvf_import_options o = {.path = call->operands[0]};
    char kind[16] = "";
    int code = cli_set_values(call, &o);
    if (code) return code;
    kvf_status st = kvf_import(call->ctx, &o, kind);
    if (st) return cli_fail_status(call, st);
    if (call->common.json) return cli_print_json(call, kvf__json_of("out:s kind:s", o.out, kind));
    printf("%s: %s file\n", o.out, kind);
    if (!o.base && strcmp(kind, "base"))
        printf("made without --base: use needs --allow-other-base\n");
    return CLI_OK;
}

const cli_command cli_import = {
    .name = "import",
    .group = CLI_FILES,
    .synopsis = "PATH --out FILE.h5 [options]",
    .summary =
        "Makes a prefix file of a PEFT folder, another program's prefix or a saved sequence of "
        "llama.cpp, a run file of an encoder's weights, or a base file of a Hugging Face "
        "folder or a GGUF.",
    .notes = "See help formats. What is imported without --base is used with\n"
             "--allow-other-base. A torch pickle is refused with the command that converts it.\n",
    .required = "out",
    .needs = "lora>base",
    CLI_ROWS(OPTIONS),
    .operands = 1,
    .run = run,
};
