/* kvfold convert-position. */
#include "cli_model.h"

#include <stddef.h>

#define AT(field) offsetof(kvf_convert_position_options, field)
static const kvf__option_row OPTIONS[] = {
    {"base", "PATH", "", KVF_TEXT, AT(base), "base model with rotary positions"},
    CLI_LORA(AT(lora)),
    {"position-start", "P|N", "", KVF_TEXT, AT(position_start),
     "new position of the first token after the prefix"},
    {"out", "FILE.h5", "", KVF_TEXT, AT(out), "prefix file to write"},
    {"allow-other-base", NULL, "", KVF_FLAG, AT(allow_other_base),
     "accept a prefix made for another base of the same shape"},
    CLI_FORCE(AT(force)),
};

static int run(cli_call *call)
{
    kvf_convert_position_options o = {.prefix = call->operands[0]};
    int64_t from = 0, to = 0;
    int code = cli_set_values(call, &o);
    if (!code) code = cli_check_paths(call);
    if (code) return code;
    kvf_status st = kvf_convert_position(call->ctx, &o, &from, &to);
    if (st) return cli_fail_status(call, st);
    if (call->common.json)
        return cli_print_json(call, kvf__json_of("out:s from:I to:I", o.out, from, to));
    printf("%s: position_start %lld, was %lld\n", o.out, (long long)to, (long long)from);
    return CLI_OK;
}

const cli_command cli_convert_position = {
    .name = "convert-position",
    .group = CLI_FILES,
    .synopsis = "PREFIX.h5 --out FILE.h5 [options]",
    .summary = "Rotates a prefix's keys for rows that start at another position (rope).",
    .notes = "Results stay the same, since attention depends only on distances. In PEFT, "
             "P-tuning v2 and cartridges rows start at P (keys are at 0 to P-1), in AdapterHub "
             "at 0.\n",
    .required = "base position-start out",
    CLI_ROWS(OPTIONS),
    .operands = 1,
    .run = run,
};
