/* kvfold convert-position. */
#include "cli_int.h"

#include <stddef.h>

typedef struct values {
    const char *out, *base, *position_start;
    bool allow_other_base, force;
} values;

#define AT(field) offsetof(values, field)
static const cli_option OPTIONS[] = {
    {{"base", "PATH", "", "base model, one with rotary positions"}, CLI_TEXT, AT(base)},
    {{"position-start", "P|N", "", "position that rows behind the prefix shall start at"},
     CLI_TEXT,
     AT(position_start)},
    {{"out", "FILE.h5", "", "prefix file to write"}, CLI_TEXT, AT(out)},
    {{"allow-other-base", NULL, "", "accept a prefix made for another base of the same shape"},
     CLI_FLAG,
     AT(allow_other_base)},
    {{"force", NULL, "", "replace an existing output"}, CLI_FLAG, AT(force)},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

static int run(cli_call *call)
{
    values v = {0};
    int64_t from = 0, to = 0;
    int code = cli_set_values(call, OPTIONS, N_OPTIONS, &v);
    if (!code) code = cli_check_paths(call);
    if (code) return code;
    const kvf_convert_position_options options = {.prefix = call->operands[0],
                                                  .out = v.out,
                                                  .base = v.base,
                                                  .position_start = v.position_start,
                                                  .force = v.force,
                                                  .allow_other_base = v.allow_other_base};
    kvf_status st = kvf_convert_position(call->ctx, &options, &from, &to);
    if (st) return cli_fail_status(call, st);
    if (call->common.json) {
        kvf_json *object = kvf_json_object();
        kvf_json_set(object, "out", kvf_json_new_str(v.out));
        kvf_json_set(object, "from", kvf_json_new_int(from));
        kvf_json_set(object, "to", kvf_json_new_int(to));
        return cli_print_json(call, object);
    }
    printf("%s: position_start %lld, was %lld\n", v.out, (long long)to, (long long)from);
    return CLI_OK;
}

const cli_command cli_convert_position = {
    .name = "convert-position",
    .group = CLI_FILES,
    .synopsis = "PREFIX.h5 --out FILE.h5 [options]",
    .summary = "Rotates a prefix's keys for rows that start at another position (rope).",
    .notes = "Results stay the same: only distances between positions count. PEFT, P-tuning v2\n"
             "and cartridges start rows at P (their keys stand at 0 to P-1), AdapterHub at 0.\n",
    .required = "base position-start out",
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .operands = 1,
    .run = run,
};
