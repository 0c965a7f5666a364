/* kvfold unmerge. */
#include "cli_model.h"

#include <stddef.h>

#define AT(field) offsetof(kvf_unmerge_options, field)
static const kvf__option_row OPTIONS[] = {
    {"out", "RUN.h5", "", KVF_TEXT, AT(out), "run file to write"},
    {"encoder-hidden", "M", "512", KVF_POSITIVE, AT(encoder_hidden), "hidden width of the encoder"},
    {"seed", "N", "0", KVF_SEED, AT(seed), "random seed of the embedding and the first layer"},
    {"approximate", NULL, "", KVF_FLAG, AT(approximate),
     "accept the encoder's best approximation, even if its relative error exceeds 0.01"},
    {"base", "PATH", "", KVF_TEXT, AT(base), "base model to check the prefix against"},
    CLI_LORA(AT(lora)),
    CLI_ALLOW_OTHER_BASE(AT(allow_other_base)),
    CLI_FORCE(AT(force)),
};

static int print_json(const cli_call *call, const kvf_unmerge_result *r, const char *out)
{
    kvf_json *object = kvf__json_of(
        "out:s prefix_length:I encoder_hidden:I trainable_parameters:I residual:f", out, r->P, r->M,
        r->parameters, r->residual);
    return cli_print_json(call, object);
}

static int run(cli_call *call)
{
    kvf_unmerge_options o = {.prefix = call->operands[0], .encoder_hidden = 512};
    kvf_unmerge_result result;
    int code = cli_set_values(call, &o);
    if (!code) code = cli_check_paths(call);
    if (code) return code;
    kvf_status st = kvf_unmerge(call->ctx, &o, &result);
    if (st) return cli_fail_status(call, st);
    if (call->common.json) return print_json(call, &result, o.out);
    printf("%s: run of method mlp at step 0, P %lld, M %lld, %lld parameters\n", o.out,
           (long long)result.P, (long long)result.M, (long long)result.parameters);
    printf("relative error of the emitted prefix: %.1e\n", result.residual);
    return CLI_OK;
}

const cli_command cli_unmerge = {
    .name = "unmerge",
    .group = CLI_FILES,
    .synopsis = "PREFIX.h5 --out RUN.h5 [options]",
    .summary = "Converts any prefix into a run whose MLP encoder emits it, for further training.",
    .notes =
        "The encoder is exact up to rounding if P is at most M and G*D. A relative error above "
        "0.01 is refused. Continue with train --init-from RUN.h5 and the same P and M.\n",
    .required = "out",
    .needs = "lora>base allow-other-base>base",
    CLI_ROWS(OPTIONS),
    .operands = 1,
    .run = run,
};
