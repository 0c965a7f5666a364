/* kvfold compose. */
#include "cli_model.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

typedef struct compose_values {
    kvf_compose_options compose;
    const char *weights;
} compose_values;

#define AT(field) offsetof(compose_values, compose.field)
static const kvf__option_row OPTIONS[] = {
    {"out", "C.h5", "", KVF_TEXT, AT(out), "prefix file to write"},
    {"mode", "concatenate|average|parallel", "concatenate", KVF_CHOICE, AT(mode),
     "concat: one after the other; average: the mean of prefixes of one shape; parallel: each "
     "at its own distance to the text, for documents"},
    {"weights", "W1,W2,...", "equal", KVF_TEXT, offsetof(compose_values, weights),
     "average: a weight for each prefix, at least 0"},
    CLI_DTYPE(AT(dtype), "f32"),
    {"base", "PATH", "", KVF_TEXT, AT(base),
     "base model: needed to rotate keys to new positions, and for runs whose method reads it"},
    CLI_LORA(AT(lora)),
    CLI_CHECKPOINT(AT(checkpoint), "state of run files to use"),
    {"head", "NAME", "", KVF_TEXT, AT(head), "task to keep, for prefixes trained on several tasks"},
    {"allow-other-base", NULL, "", KVF_FLAG, AT(allow_other_base),
     "accept prefixes made for other bases of the same shape"},
    CLI_FORCE(AT(force)),
};

/* Parses "1,2.5", one number per prefix. */
static int read_weights(const cli_call *call, const char *text, double *out)
{
    const char *at = text;
    size_t n = 0;
    for (; *at; n++) {
        char *end = NULL;
        double number = strtod(at, &end);
        if (end == at || (*end && (*end != ',' || !end[1])) || !isfinite(number) || number < 0)
            return cli_misuse(call->command, "--weights \"%s\": want numbers of at least 0", text);
        if (n < call->n_operands) out[n] = number;
        at = end + (*end == ',');
    }
    if (n == call->n_operands) return CLI_OK;
    return cli_misuse(call->command, "--weights \"%s\": %zu numbers for %zu prefixes", text, n,
                      call->n_operands);
}

static int report(const cli_call *call, const kvf_compose_options *o, const kvf_compose_result *r)
{
    char shape[160], size[32];
    if (!call->common.json) {
        printf("%s: %s %s, %s, text from position %lld\n", o->out,
               cli_shape_text(r->shape, 6, shape, sizeof shape), kvf_dtype_name(o->dtype),
               cli_bytes_text(r->bytes, size), (long long)r->position_start);
        if (r->documents > 1 && o->mode == KVF_COMPOSE_CONCATENATE)
            printf("%lld parts are documents, each distilled without the others: all but the last "
                   "may have little effect; use --mode parallel to keep them intact\n",
                   (long long)r->documents);
        return CLI_OK;
    }
    static const char *const MODES[] = {"concatenate", "average", "parallel"};
    kvf_json *object = kvf__json_of("out:s mode:s shape:o position_start:I bytes:I max_abs_diff:f",
                                    o->out, MODES[o->mode], cli_shape_json(r->shape, 6),
                                    r->position_start, r->bytes, r->max_abs_diff);
    if (r->documents > 1) kvf__json_put(object, "documents:I", r->documents);
    return cli_print_json(call, object);
}

static int run(cli_call *call)
{
    compose_values v = {.compose = {.parts = call->operands, .n = call->n_operands}};
    double weights[KVF_MAX_PARTS];
    kvf_compose_result result;
    int code = cli_set_values(call, &v);
    if (!code && call->n_operands > KVF_MAX_PARTS)
        code = cli_misuse(call->command, "%zu prefixes, want at most %d", call->n_operands,
                          KVF_MAX_PARTS);
    if (!code && v.weights) code = read_weights(call, v.weights, weights);
    if (!code) code = cli_check_paths(call);
    if (code) return code;
    if (v.weights) v.compose.weights = weights;
    kvf_status st = kvf_compose(call->ctx, &v.compose, &result);
    return st ? cli_fail_status(call, st) : report(call, &v.compose, &result);
}

const cli_command cli_compose = {
    .name = "compose",
    .group = CLI_FILES,
    .synopsis = "A.h5 B.h5 ... --out C.h5 [options]",
    .summary = "Combines several prefixes into one: one after the other, in parallel, or their "
               "mean.",
    .notes = "The inputs are prefix files, or runs, whose encoder is evaluated. In the modes "
             "concat and parallel each part keeps its distance to the text or part after it. "
             "concat rotates the keys of a rotary base after the first part, which needs --base. "
             "parallel lowers log-weights by the log of the number of parts. All inputs need the "
             "same base, task and head.\n",
    .required = "out",
    .needs = "lora>base",
    CLI_ROWS(OPTIONS),
    .operands = 2,
    .more_operands = true,
    .run = run,
};
