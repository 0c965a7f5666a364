/* kvfold import. */
#include "cli_model.h"

#include <stddef.h>
#include <string.h>

#define AT(field) offsetof(kvf_import_options, field)
static const kvf__option_row OPTIONS[] = {
    {"out", "FILE.h5", "", KVF_TEXT, AT(out), "prefix, run or base file to write"},
    {"base", "PATH", "", KVF_TEXT, AT(base),
     "base model: its shapes are checked and its hash is stored; needed for an encoder, and for "
     "a saved sequence of llama.cpp, where it is the GGUF that computed it"},
    CLI_LORA(AT(lora)),
    {"from", "auto|peft|encoder|base", "auto", KVF_WORD, AT(from),
     "contents of PATH; auto: detected from files"},
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
        printf("made without --base: commands that use it need --allow-other-base\n");
    return CLI_OK;
}

const cli_command cli_import = {
    .name = "import",
    .group = CLI_FILES,
    .synopsis = "PATH --out FILE.h5 [options]",
    .summary = "Imports a prefix of PEFT or llama.cpp as a prefix file, encoder "
               "weights as a run file, and a Hugging Face folder or GGUF as a base file.",
    .notes = "See help formats. A file imported without --base needs --allow-other-base when it "
             "is used. A torch pickle is refused with a message that shows how to convert it. "
             "python -m kvfold.from_pickle converts prefixes of other programs, too.\n",
    .required = "out",
    .needs = "lora>base",
    CLI_ROWS(OPTIONS),
    .operands = 1,
    .run = run,
};
