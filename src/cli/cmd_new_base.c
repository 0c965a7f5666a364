/* kvfold new-base. */
#include "cli_model.h"

#include <stddef.h>

#define AT(field) offsetof(kvf_new_base_options, field)
static const kvf__option_row OPTIONS[] = {
    {"config", "FILE", "", KVF_TEXT, AT(config),
     "config.json: model_type, sizes, initializer_range"},
    {"tokenizer", "FILE", "", KVF_TEXT, AT(tokenizer),
     "tokenizer.json, or the folder of a tokenizer's files"},
    {"out", "BASE.h5", "", KVF_TEXT, AT(out), "base file to write"},
    {"seed", "N", "0", KVF_SEED, AT(seed), "random seed of the weights"},
    CLI_FORCE(AT(force)),
};

static int run(cli_call *call)
{
    kvf_new_base_options o = {0};
    kvf_new_base_result result;
    int code = cli_set_values(call, &o);
    if (code) return code;
    kvf_status st = kvf_new_base(call->ctx, &o, &result);
    if (st) return cli_fail_status(call, st);
    if (call->common.json)
        return cli_print_json(call, kvf__json_of("out:s architecture:s parameters:I", o.out,
                                                 result.architecture, result.parameters));
    printf("%s: %s, %lld parameters\n", o.out, result.architecture, (long long)result.parameters);
    return CLI_OK;
}

const cli_command cli_new_base = {
    .name = "new-base",
    .group = CLI_TRAIN,
    .synopsis = "--config FILE --tokenizer FILE --out BASE.h5 [options]",
    .summary = "Makes a base with random weights, for training with --method full.",
    .notes = "Weights are normal with the config's initializer_range (0.02), biases 0, norms 1. "
             "openai-gpt has norms after the residual sums; with tie_word_embeddings false it "
             "has a separate head, and with lm_head_bias true the head has a bias.\n",
    .required = "config tokenizer out",
    CLI_ROWS(OPTIONS),
    .run = run,
};
