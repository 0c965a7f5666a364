/* kvfold merge. */
#include "cli_model.h"

#include <math.h>
#include <stddef.h>

#define AT(field) offsetof(kvf_merge_options, field)
static const kvf__option_row OPTIONS[] = {
    {"out", "PREFIX.h5", "", KVF_TEXT, AT(out),
     "prefix file to write; an adapter or base file for methods that train these"},
    {"out-base", "BASE.h5", "", KVF_TEXT, AT(out_base),
     "p-tuning --unfreeze base: also write the trained base to this base file"},
    CLI_DTYPE(AT(dtype), "f32"),
    CLI_CHECKPOINT(AT(checkpoint), "state of the run to merge"),
    {"head", "NAME", "all", KVF_TEXT, AT(head), "task to merge, for a run on several tasks"},
    {"probe", "FILE", "", KVF_TEXT, AT(probe),
     "data file on which the logits of encoder and prefix file are compared; needs --base"},
    {"base", "PATH", "", KVF_TEXT, AT(base),
     "base model, for --probe and for methods that need it"},
    CLI_LORA(AT(lora)),
    {"allow-other-base", NULL, "", KVF_FLAG, AT(allow_other_base),
     "accept a base whose hash differs"},
    CLI_FORCE(AT(force)),
};

static int print_json(const cli_call *call, const kvf_merge_result *r, const kvf_merge_options *o)
{
    kvf_json *object = kvf__json_of("out:s", o->out);
    if (o->out_base) kvf__json_put(object, "out_base:s", o->out_base);
    kvf__json_put(object, "shape:o bytes:I max_abs_diff:f probe_max_abs_diff:f step:I",
                  cli_shape_json(r->shape, r->rank), r->bytes, r->max_abs_diff,
                  r->probe_max_abs_diff, r->step);
    return cli_print_json(call, object);
}

static void print_text(const kvf_merge_result *r, const kvf_merge_options *o)
{
    char shape[160], size[32];
    printf("%s: %s %s, %s, from step %lld\n", o->out,
           cli_shape_text(r->shape, r->rank, shape, sizeof shape), kvf_dtype_name(o->dtype),
           cli_bytes_text(r->bytes, size), (long long)r->step);
    if (o->out_base) printf("%s: the base file that it needs\n", o->out_base);
    printf("largest difference from the encoder's output: %g\n", r->max_abs_diff);
    if (!isnan(r->probe_max_abs_diff))
        printf("largest difference of logits: %g\n", r->probe_max_abs_diff);
}

static int run(cli_call *call)
{
    kvf_merge_options o = {.run = call->operands[0]};
    kvf_merge_result result;
    int code = cli_set_values(call, &o);
    if (!code) code = cli_check_paths(call);
    if (code) return code;
    kvf_status st = kvf_merge(call->ctx, &o, &result);
    if (st) return cli_fail_status(call, st);
    if (call->common.json) return print_json(call, &result, &o);
    print_text(&result, &o);
    return CLI_OK;
}

const cli_command cli_merge = {
    .name = "merge",
    .group = CLI_FILES,
    .synopsis = "RUN.h5 --out PREFIX.h5 [options]",
    .summary = "Folds the encoder of a run into a static prefix, and verifies the file.",
    .required = "out",
    .needs = "lora>base allow-other-base>base",
    CLI_ROWS(OPTIONS),
    .operands = 1,
    .run = run,
};
