/* kvfold compose. */
#include "cli_int.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

typedef struct values {
    const char *out, *mode, *weights, *dtype, *base, *checkpoint, *head;
    bool allow_other_base, force;
} values;

#define AT(field) offsetof(values, field)
static const cli_option OPTIONS[] = {
    {{"out", "C.h5", "", "prefix file to write"}, CLI_TEXT, AT(out)},
    {{"mode", "concatenate|average", "concatenate",
      "one behind the other, or the mean of prefixes of one shape"},
     CLI_CHOICE,
     AT(mode)},
    {{"weights", "W1,W2,...", "equal", "average: a weight for each, from 0 on"},
     CLI_TEXT,
     AT(weights)},
    {{"dtype", CLI_DTYPES, "f32", "type of the stored values"}, CLI_CHOICE, AT(dtype)},
    {{"base", "PATH", "",
      "base model: where keys are turned to new positions, and for runs that read it"},
     CLI_TEXT,
     AT(base)},
    {{"checkpoint", "best|last", "best if there is one", "state of run files"},
     CLI_CHOICE,
     AT(checkpoint)},
    {{"head", "NAME", "", "of prefixes trained on several tasks: the one to keep"},
     CLI_TEXT,
     AT(head)},
    {{"allow-other-base", NULL, "", "accept prefixes made for other bases of the same shape"},
     CLI_FLAG,
     AT(allow_other_base)},
    {{"force", NULL, "", "replace an existing output"}, CLI_FLAG, AT(force)},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

/* "1,2.5": as many numbers as there are prefixes. */
static int read_weights(const cli_call *call, const char *text, double *out)
{
    const char *at = text;
    size_t n = 0;
    for (; *at; n++) {
        char *end = NULL;
        double number = strtod(at, &end);
        if (end == at || (*end && (*end != ',' || !end[1])) || !isfinite(number) || number < 0)
            return cli_misuse(call->command, "--weights \"%s\": want numbers from 0 on", text);
        if (n < call->n_operands) out[n] = number;
        at = end + (*end == ',');
    }
    if (n == call->n_operands) return CLI_OK;
    return cli_misuse(call->command, "--weights \"%s\": %zu numbers for %zu prefixes", text, n,
                      call->n_operands);
}

static int report(const cli_call *call, const values *v, const kvf_compose_result *r)
{
    char shape[160], size[32];
    if (!call->common.json) {
        printf("%s: %s %s, %s, text from position %lld\n", v->out,
               cli_shape_text(r->shape, 6, shape, sizeof shape), v->dtype,
               cli_bytes_text(r->bytes, size), (long long)r->position_start);
        return CLI_OK;
    }
    kvf_json *object = kvf_json_object(), *dims = kvf_json_array();
    for (int i = 0; i < 6; i++)
        kvf_json_add(dims, kvf_json_new_int(r->shape[i]));
    kvf_json_set(object, "out", kvf_json_new_str(v->out));
    kvf_json_set(object, "mode", kvf_json_new_str(v->mode));
    kvf_json_set(object, "shape", dims);
    kvf_json_set(object, "position_start", kvf_json_new_int(r->position_start));
    kvf_json_set(object, "bytes", kvf_json_new_int(r->bytes));
    kvf_json_set(object, "max_abs_diff", kvf_json_new_real(r->max_abs_diff));
    return cli_print_json(call, object);
}

static int run(cli_call *call)
{
    values v = {.mode = "concatenate", .dtype = "f32"};
    double weights[KVF_MAX_PARTS];
    kvf_compose_result result;
    int code = cli_set_values(call, OPTIONS, N_OPTIONS, &v);
    if (!code && call->n_operands > KVF_MAX_PARTS)
        code = cli_misuse(call->command, "%zu prefixes, want at most %d", call->n_operands,
                          KVF_MAX_PARTS);
    if (!code && v.weights) code = read_weights(call, v.weights, weights);
    if (!code) code = cli_check_paths(call);
    if (code) return code;
    const kvf_compose_options options = {
        .parts = call->operands,
        .n = call->n_operands,
        .out = v.out,
        .mode = v.mode,
        .weights = v.weights ? weights : NULL,
        .dtype = v.dtype,
        .checkpoint = cli_checkpoint(v.checkpoint),
        .head = v.head,
        .base = v.base,
        .allow_other_base = v.allow_other_base,
        .force = v.force,
    };
    kvf_status st = kvf_compose(call->ctx, &options, &result);
    return st ? cli_fail_status(call, st) : report(call, &v, &result);
}

const cli_command cli_compose = {
    .name = "compose",
    .group = CLI_FILES,
    .synopsis = "A.h5 B.h5 ... --out C.h5 [options]",
    .summary = "Makes one prefix of several: one behind the other, or their mean.",
    .notes = "Prefix files, or runs, whose encoder is run now. Concatenated, each part keeps\n"
             "its distance to what follows it: where keys are rotated by their positions,\n"
             "those behind the first part are turned on, which needs --base. All must be for\n"
             "one base and one task, with the same head.\n",
    .required = "out",
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .operands = 2,
    .more_operands = true,
    .run = run,
};
