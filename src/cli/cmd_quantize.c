/* kvfold quantize. With a base and data, the loss is measured before and after the file is written.
 */
#include "cli_model.h"

#include <stddef.h>

typedef struct quantize_values {
    kvf_quantize_options file;
    kvf_eval_options eval;
    kvf_precision precision;
} quantize_values;

#define FILE_AT(field) offsetof(quantize_values, file.field)
#define EVAL_AT(field) offsetof(quantize_values, eval.field)
static const kvf__option_row OPTIONS[] = {
    CLI_TOOL_OPTIONS(FILE_AT, EVAL_AT, offsetof(quantize_values, precision), "",
                     "data file on which the loss is measured before and after; needs --base"),
};

typedef struct outcome {
    kvf_quantize_result file;
    kvf_eval_result before, after;
} outcome;

static int print_json(const cli_call *call, const quantize_values *v, const outcome *o)
{
    kvf_json *object = kvf__json_of("out:s dtype:s shape:o bytes:I max_abs_diff:f relative_diff:f",
                                    v->file.out, kvf_dtype_name(v->file.dtype),
                                    cli_shape_json(o->file.shape, 6), o->file.bytes,
                                    o->file.max_abs_diff, o->file.relative_diff);
    if (v->eval.data)
        kvf__json_put(object, "loss_before:f loss_after:f loss_change:f", o->before.loss,
                      o->after.loss, o->after.loss - o->before.loss);
    return cli_print_json(call, object);
}

static void print_text(const quantize_values *v, const outcome *o)
{
    char shape[160], size[32];
    printf("%s: %s %s, %s\n", v->file.out, cli_shape_text(o->file.shape, 6, shape, sizeof shape),
           kvf_dtype_name(v->file.dtype), cli_bytes_text(o->file.bytes, size));
    printf("largest difference of a value: %g, relative error of the whole: %g\n",
           o->file.max_abs_diff, o->file.relative_diff);
    if (v->eval.data)
        printf("loss %.6f, before %.6f, change %+.6f\n", o->after.loss, o->before.loss,
               o->after.loss - o->before.loss);
}

/* Measures the loss with the prefix at `path`. */
static int measure(const cli_call *call, const quantize_values *v, const char *path,
                   kvf_eval_result *out)
{
    const cli_model_options options = {
        .base = v->file.base,
        .prefixes = {&path, 1},
        .open = {.base = {.lora = v->file.lora, .precision = v->precision},
                 .checkpoint = v->file.checkpoint,
                 .allow_other_base = v->file.allow_other_base,
                 .head = v->file.head},
    };
    cli_model model;
    if (!v->eval.data) return CLI_OK;
    int code = cli_model_open(call, &options, &model);
    if (code) return code;
    kvf_status st = kvf_eval(call->ctx, model.base, model.prefixes, 1, &v->eval, out);
    cli_model_close(&model);
    return st ? cli_fail_status(call, st) : CLI_OK;
}

static int run(cli_call *call)
{
    quantize_values v = {.file.prefix = call->operands[0], .precision = KVF_PRECISION_F32};
    outcome o = {0};
    int code = cli_set_values(call, &v);
    if (!code) code = cli_check_paths(call);
    if (!code) code = measure(call, &v, v.file.prefix, &o.before);
    if (code) return code;
    kvf_status st = kvf_quantize(call->ctx, &v.file, &o.file);
    if (st) return cli_fail_status(call, st);
    code = measure(call, &v, v.file.out, &o.after);
    if (code) return code;
    if (call->common.json) return print_json(call, &v, &o);
    print_text(&v, &o);
    return CLI_OK;
}

const cli_command cli_quantize = {
    .name = "quantize",
    .group = CLI_FILES,
    .synopsis = "PREFIX --out OUT.h5 --dtype TYPE [options]",
    .summary = "Stores a prefix in a narrower type, and measures the error.",
    .notes = "int8: each head of each layer's keys and values has a scale, with its largest "
             "value at 127; rounds to nearest even. The head of a task stays f32. Every command "
             "reads the result like any prefix.\n",
    .required = "out dtype",
    .needs = "data>base format>data map>data max-length>data overlong>data precision>data "
             "allow-other-base>base lora>base",
    CLI_ROWS(OPTIONS),
    .operands = 1,
    .run = run,
};
