/* kvfold prune. */
#include "cli_model.h"
#include "cli_progress.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define AT(field)   offsetof(kvf_prune_options, field)
#define EVAL(field) offsetof(kvf_prune_options, eval.field)
static const kvf__option_row OPTIONS[] = {
    {"keep", "N", "", KVF_POSITIVE, AT(keep), "number of virtual tokens (or neurons) to keep"},
    {"max-loss-rise", "X", "", KVF_REAL, AT(max_loss_rise),
     "drop tokens while the loss rises by at most X"},
    {"neurons", NULL, "", KVF_FLAG, AT(neurons),
     "drop virtual neurons in place of tokens; of each layer, ordered by gradient times value"},
    {"score", "leave-one-out|gradient", "leave-one-out", KVF_CHOICE, AT(score),
     "score of a token: the loss without it, or gradient times value from one pass for all "
     "tokens"},
    {"curve", "FILE", "", KVF_TEXT, AT(curve), "CSV file for length, dropped token and loss"},
    CLI_TOOL_OPTIONS(AT, EVAL, AT(precision), "f32", "data file on which the loss is measured"),
};

static double loss_of(const kvf_json *point)
{
    return kvf__real_at(point, "loss");
}

static void print_text(const char *out, const kvf_json *found)
{
    const kvf_json *curve = kvf_json_get(found, "curve"), *next = kvf_json_get(found, "next");
    const double before = loss_of(kvf_json_at(curve, 0));
    const bool neurons = !strcmp(kvf__text_at(found, "of"), "neurons");
    char size[32];
    printf("%6s %8s %12s %12s\n", "length", "dropped", "loss", "change");
    for (size_t i = 0; i < kvf_json_size(curve); i++) {
        const kvf_json *at = kvf_json_at(curve, i);
        const int64_t dropped = kvf_json_int(kvf_json_get(at, "dropped"), -1);
        char token[32] = "-";
        if (dropped >= 0) snprintf(token, sizeof token, "%lld", (long long)dropped);
        printf("%6lld %8s %12.6f %+12.6f\n", kvf__int_at(at, "length"), token, loss_of(at),
               loss_of(at) - before);
    }
    if (kvf_json_get(next, "loss"))
        printf("dropping %s %lld too would change the loss by %+.6f\n",
               neurons ? "neuron" : "token", kvf__int_at(next, "dropped"), loss_of(next) - before);
    printf("%s: %zu virtual %s, %s, text from position %lld\n", out,
           kvf_json_size(kvf_json_get(found, "kept")), neurons ? "neurons" : "tokens",
           cli_bytes_text(kvf__int_at(found, "bytes"), size), kvf__int_at(found, "position_start"));
}

static int run(cli_call *call)
{
    cli_progress progress = cli_progress_make(&call->common);
    kvf_prune_options o = {.prefix = call->operands[0],
                           .max_loss_rise = NAN,
                           .precision = KVF_PRECISION_F32,
                           .progress = cli_progress_items,
                           .user = &progress};
    kvf_json *found = NULL;
    int code = cli_set_values(call, &o);
    if (!code && (o.keep != 0) == !isnan(o.max_loss_rise))
        code = cli_misuse(call->command, "one of --keep and --max-loss-rise is needed");
    if (!code) code = cli_check_paths(call);
    if (code) return code;
    kvf_status st = kvf_prune(call->ctx, &o, NULL, &found);
    cli_progress_clear(&progress);
    if (st) return cli_fail_status(call, st);
    if (call->common.json) {
        kvf_json_set(found, "out", kvf_json_new_str(o.out));
        return cli_print_json(call, found);
    }
    print_text(o.out, found);
    kvf_json_free(found);
    return CLI_OK;
}

const cli_command cli_prune = {
    .name = "prune",
    .group = CLI_FILES,
    .synopsis = "PREFIX --base PATH --data FILE --out OUT.h5 --keep N [options]",
    .summary =
        "Drops the least useful virtual tokens or neurons, and prints the loss at each length.",
    .notes = "The text keeps its positions, because position_start does not change: each printed "
             "loss is that of the resulting file. PEFT cannot store such a prefix.\n",
    .required = "out base data",
    CLI_ROWS(OPTIONS),
    .operands = 1,
    .lab = true,
    .run = run,
};
