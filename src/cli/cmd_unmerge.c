/* kvfold unmerge. */
#include "cli_int.h"

#include <stddef.h>

typedef struct values {
    const char *out, *base;
    int64_t hidden;
    uint64_t seed;
    bool approximate, allow_other_base, force;
} values;

#define AT(field) offsetof(values, field)
static const cli_option OPTIONS[] = {
    {{"out", "RUN.h5", "", "run file to write"}, CLI_TEXT, AT(out)},
    {{"encoder-hidden", "M", "512", "hidden width of the encoder"}, CLI_POSITIVE, AT(hidden)},
    {{"seed", "N", "0", "of the embedding and the first layer"}, CLI_SEED, AT(seed)},
    {{"approximate", NULL, "",
      "take what the encoder comes nearest to, even if that misses by more than 0.01"},
     CLI_FLAG,
     AT(approximate)},
    {{"base", "PATH", "", "base model: checks the prefix against it"}, CLI_TEXT, AT(base)},
    {{"allow-other-base", NULL, "", "accept a prefix made for another base of the same shape"},
     CLI_FLAG,
     AT(allow_other_base)},
    {{"force", NULL, "", "replace an existing output"}, CLI_FLAG, AT(force)},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

static int print_json(const cli_call *call, const kvf_unmerge_result *r, const char *out)
{
    kvf_json *object = kvf_json_object();
    kvf_json_set(object, "out", kvf_json_new_str(out));
    kvf_json_set(object, "prefix_length", kvf_json_new_int(r->P));
    kvf_json_set(object, "encoder_hidden", kvf_json_new_int(r->M));
    kvf_json_set(object, "trainable_parameters", kvf_json_new_int(r->parameters));
    kvf_json_set(object, "residual", kvf_json_new_real(r->residual));
    return cli_print_json(call, object);
}

static int run(cli_call *call)
{
    values v = {.hidden = 512};
    kvf_unmerge_result result;
    int code = cli_set_values(call, OPTIONS, N_OPTIONS, &v);
    if (!code) code = cli_check_needs(call, &(cli_need){"allow-other-base", "base"}, 1);
    if (!code) code = cli_check_paths(call);
    if (code) return code;
    const kvf_unmerge_options options = {.prefix = call->operands[0],
                                         .out = v.out,
                                         .base = v.base,
                                         .encoder_hidden = v.hidden,
                                         .seed = v.seed,
                                         .approximate = v.approximate,
                                         .force = v.force,
                                         .allow_other_base = v.allow_other_base};
    kvf_status st = kvf_unmerge(call->ctx, &options, &result);
    if (st) return cli_fail_status(call, st);
    if (call->common.json) return print_json(call, &result, v.out);
    printf("%s: run of method mlp at step 0, P %lld, M %lld, %lld parameters\n", v.out,
           (long long)result.P, (long long)result.M, (long long)result.parameters);
    printf("relative residual of what it emits: %.1e\n", result.residual);
    return CLI_OK;
}

const cli_command cli_unmerge = {
    .name = "unmerge",
    .group = CLI_FILES,
    .synopsis = "PREFIX.h5 --out RUN.h5 [options]",
    .summary = "Makes of any prefix a run whose MLP encoder emits it, to be trained further.",
    .notes = "Exact (a residual of rounding) where the prefix is no longer than M and G*D;\n"
             "a residual above 0.01 is refused.\n"
             "Train it further with train --init-from RUN.h5 and the same P and M.\n",
    .required = "out",
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .operands = 1,
    .run = run,
};
