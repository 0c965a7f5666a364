/* kvfold inspect. */
#include "cli_int.h"

#include <stddef.h>
#include <string.h>

typedef struct values {
    bool diffable;
} values;

static const kvf_option_row OPTIONS[] = {
    {"diffable", NULL, "", KVF_FLAG, offsetof(values, diffable),
     "leave out path and sizes on disk, so that descriptions can be compared"},
};

/* What --diffable leaves out. */
static bool varies(const char *key)
{
    return !strcmp(key, "bytes") || !strcmp(key, "storage");
}

/* NULL if out of memory: the parent's set or add then fails, and so does the root's text. */
static kvf_json *copy_value(kvf_json *value)
{
    kvf_json *copy;
    switch (kvf_json_typeof(value)) {
    case KVF_JSON_OBJECT:
        copy = kvf_json_object();
        for (void *it = kvf_json_iter(value); it; it = kvf_json_next(value, it))
            if (!varies(kvf_json_iter_key(it)))
                kvf_json_set(copy, kvf_json_iter_key(it), copy_value(kvf_json_iter_value(it)));
        return copy;
    case KVF_JSON_ARRAY:
        copy = kvf_json_array();
        for (size_t i = 0; i < kvf_json_size(value); i++)
            kvf_json_add(copy, copy_value(kvf_json_at(value, i)));
        return copy;
    case KVF_JSON_INT:
        return kvf_json_new_int(kvf_json_int(value, 0));
    case KVF_JSON_REAL:
        return kvf_json_new_real(kvf_json_real(value, 0));
    case KVF_JSON_BOOL:
        return kvf_json_new_bool(kvf_json_bool(value, false));
    case KVF_JSON_STRING:
        return kvf_json_new_str(kvf_json_str(value, NULL));
    default:
        return kvf_json_new_null();
    }
}

static int run(cli_call *call)
{
    values v = {0};
    kvf_json *tree = NULL;
    int code = cli_set_values(call, &v);
    if (code) return code;
    kvf_status st = kvf_inspect(call->ctx, call->operands[0], &tree);
    if (st) return cli_fail_status(call, st);
    if (call->common.json) code = cli_print_json(call, v.diffable ? copy_value(tree) : tree);
    if (!call->common.json) cli_print_tree(tree, call->operands[0], v.diffable);
    if (!call->common.json || v.diffable) kvf_json_free(tree);
    return code;
}

const cli_command cli_inspect = {
    .name = "inspect",
    .group = CLI_LOOK,
    .synopsis = "FILE [options]",
    .summary = "Describes a file: tensors, shapes, types, statistics by layer, lineage. "
               "Any kvfold, safetensors or GGUF file, Hugging Face or PEFT folder.",
    CLI_ROWS(OPTIONS),
    .operands = 1,
    .run = run,
};
