/* kvfold merge. */
#include "cli_int.h"

#include <math.h>
#include <stddef.h>

typedef struct values {
    const char *out, *out_base, *dtype, *base, *probe, *checkpoint, *head;
    bool force, allow_other_base;
} values;

#define AT(field) offsetof(values, field)
static const cli_option OPTIONS[] = {
    {{"out", "PREFIX.h5", "", "prefix file to write"}, CLI_TEXT, AT(out)},
    {{"out-base", "BASE.h5", "",
      "p-tuning --unfreeze base: the base's trained weights, as a base file beside --out"},
     CLI_TEXT,
     AT(out_base)},
    {{"dtype", CLI_DTYPES, "f32", "type of the stored values"}, CLI_CHOICE, AT(dtype)},
    {{"checkpoint", "best|last", "best if there is one", "state of the run to fold"},
     CLI_CHOICE,
     AT(checkpoint)},
    {{"head", "NAME", "all", "of a run on several tasks: fold for this one"}, CLI_TEXT, AT(head)},
    {{"probe", "FILE", "",
      "data file on which logits through encoder and file are compared; needs --base"},
     CLI_TEXT,
     AT(probe)},
    {{"base", "PATH", "", "base model, for --probe and where folding runs or reads it"},
     CLI_TEXT,
     AT(base)},
    {{"allow-other-base", NULL, "", "accept a base whose hash differs"},
     CLI_FLAG,
     AT(allow_other_base)},
    {{"force", NULL, "", "replace an existing output"}, CLI_FLAG, AT(force)},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

static int print_json(const cli_call *call, const kvf_merge_result *r, const values *v)
{
    kvf_json *object = kvf_json_object(), *shape = kvf_json_array();
    for (int i = 0; i < r->rank; i++)
        kvf_json_add(shape, kvf_json_new_int(r->shape[i]));
    kvf_json_set(object, "out", kvf_json_new_str(v->out));
    if (v->out_base) kvf_json_set(object, "out_base", kvf_json_new_str(v->out_base));
    kvf_json_set(object, "shape", shape);
    kvf_json_set(object, "bytes", kvf_json_new_int(r->bytes));
    kvf_json_set(object, "max_abs_diff", kvf_json_new_real(r->max_abs_diff));
    kvf_json_set(object, "probe_max_abs_diff", kvf_json_new_real(r->probe_max_abs_diff));
    kvf_json_set(object, "step", kvf_json_new_int(r->step));
    return cli_print_json(call, object);
}

static void print_text(const kvf_merge_result *r, const values *v)
{
    char shape[160], size[32];
    printf("%s: %s %s, %s, from step %lld\n", v->out,
           cli_shape_text(r->shape, r->rank, shape, sizeof shape), v->dtype,
           cli_bytes_text(r->bytes, size), (long long)r->step);
    if (v->out_base) printf("%s: base file that it is for\n", v->out_base);
    printf("largest difference from the encoder's output: %g\n", r->max_abs_diff);
    if (!isnan(r->probe_max_abs_diff))
        printf("largest difference of logits: %g\n", r->probe_max_abs_diff);
}

static int run(cli_call *call)
{
    values v = {.dtype = "f32"};
    kvf_merge_result result;
    int code = cli_set_values(call, OPTIONS, N_OPTIONS, &v);
    if (!code) code = cli_check_needs(call, &(cli_need){"allow-other-base", "base"}, 1);
    if (!code) code = cli_check_paths(call);
    if (code) return code;
    const kvf_merge_options options = {
        .run = call->operands[0],
        .out = v.out,
        .out_base = v.out_base,
        .checkpoint = cli_checkpoint(v.checkpoint),
        .dtype = v.dtype,
        .head = v.head,
        .force = v.force,
        .base = v.base,
        .probe = v.probe,
        .allow_other_base = v.allow_other_base,
    };
    kvf_status st = kvf_merge(call->ctx, &options, &result);
    if (st) return cli_fail_status(call, st);
    if (call->common.json) return print_json(call, &result, &v);
    print_text(&result, &v);
    return CLI_OK;
}

const cli_command cli_merge = {
    .name = "merge",
    .group = CLI_FILES,
    .synopsis = "RUN.h5 --out PREFIX.h5 [options]",
    .summary = "Folds the encoder of a run into a static prefix, and verifies it.",
    .required = "out",
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .operands = 1,
    .run = run,
};
