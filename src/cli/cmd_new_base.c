/* kvfold new-base. */
#include "cli_int.h"

#include <stddef.h>

typedef struct values {
    const char *config, *tokenizer, *out;
    uint64_t seed;
    bool force;
} values;

#define AT(field) offsetof(values, field)
static const cli_option OPTIONS[] = {
    {{"config", "FILE", "", "config.json: model_type, sizes, initializer_range"},
     CLI_TEXT,
     AT(config)},
    {{"tokenizer", "FILE", "", "tokenizer.json, or the folder of a tokenizer's files"},
     CLI_TEXT,
     AT(tokenizer)},
    {{"out", "BASE.h5", "", "base file to write"}, CLI_TEXT, AT(out)},
    {{"seed", "N", "0", "of the random weights"}, CLI_SEED, AT(seed)},
    {{"force", NULL, "", "replace an existing output"}, CLI_FLAG, AT(force)},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

static int run(cli_call *call)
{
    values v = {0};
    kvf_new_base_result result;
    int code = cli_set_values(call, OPTIONS, N_OPTIONS, &v);
    if (code) return code;
    const kvf_new_base_options options = {.config = v.config,
                                          .tokenizer = v.tokenizer,
                                          .out = v.out,
                                          .seed = v.seed,
                                          .force = v.force};
    kvf_status st = kvf_new_base(call->ctx, &options, &result);
    if (st) return cli_fail_status(call, st);
    if (call->common.json) {
        kvf_json *object = kvf_json_object();
        kvf_json_set(object, "out", kvf_json_new_str(v.out));
        kvf_json_set(object, "architecture", kvf_json_new_str(result.architecture));
        kvf_json_set(object, "parameters", kvf_json_new_int(result.parameters));
        return cli_print_json(call, object);
    }
    printf("%s: %s, %lld parameters\n", v.out, result.architecture, (long long)result.parameters);
    return CLI_OK;
}

const cli_command cli_new_base = {
    .name = "new-base",
    .group = CLI_TRAIN,
    .synopsis = "--config FILE --tokenizer FILE --out BASE.h5 [options]",
    .summary = "Makes a base with random weights, to be trained with --method full.",
    .required = "config tokenizer out",
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .operands = 0,
    .run = run,
};
