/* kvfold import. */
#include "cli_int.h"

#include <stddef.h>
#include <string.h>

typedef struct values {
    const char *out, *base, *from, *task, *labels;
    bool force;
} values;

#define AT(field) offsetof(values, field)
static const cli_option OPTIONS[] = {
    {{"out", "FILE.h5", "", "prefix, run or base file to write"}, CLI_TEXT, AT(out)},
    {{"base", "PATH", "",
      "base model: checks the shapes and stamps its hash; needed for an encoder"},
     CLI_TEXT,
     AT(base)},
    {{"from", "auto|peft|encoder|base|p-tuning-v2|prefixtuning|adapterhub|cartridges", "auto",
      "what the path holds; auto: by the files and tensors that are there"},
     CLI_CHOICE,
     AT(from)},
    {{"task", "lm|seq-cls|token-cls|qa|multiple-choice", "as the checkpoint says",
      "of P-tuning v2 and AdapterHub; lm leaves a head out"},
     CLI_CHOICE,
     AT(task)},
    {{"labels", "NAME,...", "LABEL_0,LABEL_1,...", "names of the outputs of an adapter's head"},
     CLI_TEXT,
     AT(labels)},
    {{"force", NULL, "", "replace an existing output"}, CLI_FLAG, AT(force)},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

static int run(cli_call *call)
{
    values v = {0};
    char kind[16] = "";
    int code = cli_set_values(call, OPTIONS, N_OPTIONS, &v);
    if (code) return code;
    const kvf_import_options options = {.path = call->operands[0],
                                        .out = v.out,
                                        .from = v.from,
                                        .base = v.base,
                                        .task = v.task,
                                        .labels = v.labels,
                                        .force = v.force};
    kvf_status st = kvf_import(call->ctx, &options, kind);
    if (st) return cli_fail_status(call, st);
    if (call->common.json) {
        kvf_json *object = kvf_json_object();
        kvf_json_set(object, "out", kvf_json_new_str(v.out));
        kvf_json_set(object, "kind", kvf_json_new_str(kind));
        return cli_print_json(call, object);
    }
    printf("%s: %s file\n", v.out, kind);
    if (!v.base && strcmp(kind, "base"))
        printf("made without --base: use needs --allow-other-base\n");
    return CLI_OK;
}

const cli_command cli_import = {
    .name = "import",
    .group = CLI_FILES,
    .synopsis = "PATH --out FILE.h5 [options]",
    .summary = "Makes a prefix file of a PEFT folder or another program's prefix, a run file of an "
               "encoder's weights, or a base file of a Hugging Face folder or a GGUF.",
    .required = "out",
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .operands = 1,
    .run = run,
};
