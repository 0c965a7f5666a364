/* kvfold quantize. With a base and data, the loss is measured before anything is written, and again
 * with the new file. */
#include "cli_int.h"

#include <math.h>
#include <stddef.h>

typedef struct values {
    cli_tool_values tool;
} values;

#define AT(field) offsetof(values, field)
static const cli_option OPTIONS[] = {
    CLI_TOOL_OPTIONS(AT, "",
                     "data file on which the loss is measured before and after; needs --base"),
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

static const cli_need NEEDS[] = {
    {"data", "base"},
    {"format", "data"},
    {"map", "data"},
    {"max-length", "data"},
    {"overlong", "data"},
    {"precision", "data"},
    {"allow-other-base", "base"},
};
enum { N_NEEDS = sizeof NEEDS / sizeof NEEDS[0] };

typedef struct outcome {
    kvf_quantize_result file;
    kvf_eval_result before, after;
} outcome;

static int print_json(const cli_call *call, const values *v, const outcome *o)
{
    kvf_json *object = kvf_json_object(), *shape = kvf_json_array();
    for (int i = 0; i < 6; i++)
        kvf_json_add(shape, kvf_json_new_int(o->file.shape[i]));
    kvf_json_set(object, "out", kvf_json_new_str(v->tool.out));
    kvf_json_set(object, "dtype", kvf_json_new_str(v->tool.dtype));
    kvf_json_set(object, "shape", shape);
    kvf_json_set(object, "bytes", kvf_json_new_int(o->file.bytes));
    kvf_json_set(object, "max_abs_diff", kvf_json_new_real(o->file.max_abs_diff));
    kvf_json_set(object, "relative_diff", kvf_json_new_real(o->file.relative_diff));
    if (v->tool.eval.data) {
        kvf_json_set(object, "loss_before", kvf_json_new_real(o->before.loss));
        kvf_json_set(object, "loss_after", kvf_json_new_real(o->after.loss));
        kvf_json_set(object, "loss_change", kvf_json_new_real(o->after.loss - o->before.loss));
    }
    return cli_print_json(call, object);
}

static void print_text(const values *v, const outcome *o)
{
    char shape[160], size[32];
    printf("%s: %s %s, %s\n", v->tool.out, cli_shape_text(o->file.shape, 6, shape, sizeof shape),
           v->tool.dtype, cli_bytes_text(o->file.bytes, size));
    printf("largest difference of a value: %g, of the whole relative: %g\n", o->file.max_abs_diff,
           o->file.relative_diff);
    if (v->tool.eval.data)
        printf("loss %.6f, before %.6f, change %+.6f\n", o->after.loss, o->before.loss,
               o->after.loss - o->before.loss);
}

static int quantize(const cli_call *call, const values *v, outcome *o)
{
    const kvf_quantize_options options = {
        .prefix = call->operands[0],
        .out = v->tool.out,
        .dtype = v->tool.dtype,
        .checkpoint = cli_checkpoint(v->tool.checkpoint),
        .head = v->tool.head,
        .base = v->tool.base,
        .allow_other_base = v->tool.allow_other_base,
        .force = v->tool.force,
    };
    kvf_status st = kvf_quantize(call->ctx, &options, &o->file);
    return st ? cli_fail_status(call, st) : CLI_OK;
}

static int run(cli_call *call)
{
    values v = {.tool.precision = "f32"};
    outcome o = {0};
    int code = cli_set_values(call, OPTIONS, N_OPTIONS, &v);
    if (!code) code = cli_check_needs(call, NEEDS, N_NEEDS);
    if (!code) code = cli_check_paths(call);
    if (!code && v.tool.eval.data)
        code = cli_tool_eval(call, &v.tool, call->operands[0], &o.before);
    if (!code) code = quantize(call, &v, &o);
    if (!code && v.tool.eval.data) code = cli_tool_eval(call, &v.tool, v.tool.out, &o.after);
    if (code) return code;
    if (call->common.json) return print_json(call, &v, &o);
    print_text(&v, &o);
    return CLI_OK;
}

const cli_command cli_quantize = {
    .name = "quantize",
    .group = CLI_FILES,
    .synopsis = "PREFIX --out OUT.h5 --dtype TYPE [options]",
    .summary = "Stores a prefix in a narrower type, and measures what that costs.",
    .notes = "int8: a scale for each head of each layer's keys and values, the largest value\n"
             "at 127, round to nearest even. Every command reads such a file as any prefix.\n",
    .required = "out dtype",
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .operands = 1,
    .run = run,
};
