/* kvfold inspect. */
#include "cli_int.h"

#include <stddef.h>

typedef struct inspect_values {
    bool diffable;
} inspect_values;

static const kvf__option_row OPTIONS[] = {
    {"diffable", NULL, "", KVF_FLAG, offsetof(inspect_values, diffable),
     "omit path and sizes on disk, so that two descriptions can be compared"},
};

/* Removes what --diffable leaves out, at any depth. */
static void remove_sizes(kvf_json *value)
{
    kvf_json_remove(value, "bytes");
    kvf_json_remove(value, "storage");
    for (void *it = kvf_json_iter(value); it; it = kvf_json_next(value, it))
        remove_sizes(kvf_json_iter_value(it));
    for (size_t i = 0; kvf_json_typeof(value) == KVF_JSON_ARRAY && i < kvf_json_size(value); i++)
        remove_sizes(kvf_json_at(value, i));
}

static int run(cli_call *call)
{
    inspect_values v = {0};
    kvf_json *tree = NULL;
    int code = cli_set_values(call, &v);
    if (code) return code;
    kvf_status st = kvf_inspect(call->ctx, call->operands[0], &tree);
    if (st) return cli_fail_status(call, st);
    if (v.diffable && call->common.json) remove_sizes(tree);
    if (call->common.json) return cli_print_json(call, tree);
    cli_print_tree(tree, call->operands[0], v.diffable);
    kvf_json_free(tree);
    return CLI_OK;
}

const cli_command cli_inspect = {
    .name = "inspect",
    .group = CLI_LOOK,
    .synopsis = "FILE [options]",
    .summary = "Describes a kvfold, safetensors or GGUF file, Hugging Face or PEFT folder: "
               "tensors, shapes, types, statistics by layer, lineage.",
    CLI_ROWS(OPTIONS),
    .operands = 1,
    .run = run,
};
