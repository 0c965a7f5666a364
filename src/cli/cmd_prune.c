/* kvfold prune. */
#include "cli_int.h"

#include <math.h>
#include <stddef.h>

typedef struct values {
    const char *curve, *score;
    int64_t keep;
    double max_loss_rise;
    cli_tool_values tool;
} values;

#define AT(field) offsetof(values, field)
static const cli_option OPTIONS[] = {
    {{"keep", "N", "", "virtual tokens that stay"}, CLI_POSITIVE, AT(keep)},
    {{"max-loss-rise", "X", "", "drop as many as let the loss rise by at most X"},
     CLI_REAL,
     AT(max_loss_rise)},
    {{"score", "leave-one-out|gradient", "leave-one-out",
      "what tells the next to go: the loss without it, or one pass there and back for all"},
     CLI_CHOICE,
     AT(score)},
    {{"curve", "FILE", "", "write length, token dropped and loss as CSV"}, CLI_TEXT, AT(curve)},
    CLI_TOOL_OPTIONS(AT, "f32", "data file that decides what can go"),
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

static double loss_of(const kvf_json *point)
{
    return kvf_json_real(kvf_json_get(point, "loss"), NAN);
}

static void print_text(const values *v, const kvf_json *found)
{
    const kvf_json *curve = kvf_json_get(found, "curve"), *next = kvf_json_get(found, "next");
    const double before = loss_of(kvf_json_at(curve, 0));
    char size[32];
    printf("%6s %8s %12s %12s\n", "length", "dropped", "loss", "change");
    for (size_t i = 0; i < kvf_json_size(curve); i++) {
        const kvf_json *at = kvf_json_at(curve, i);
        const int64_t dropped = kvf_json_int(kvf_json_get(at, "dropped"), -1);
        char token[32] = "-";
        if (dropped >= 0) snprintf(token, sizeof token, "%lld", (long long)dropped);
        printf("%6lld %8s %12.6f %+12.6f\n", (long long)kvf_json_int(kvf_json_get(at, "length"), 0),
               token, loss_of(at), loss_of(at) - before);
    }
    if (kvf_json_get(next, "loss"))
        printf("dropping %lld too would change the loss by %+.6f\n",
               (long long)kvf_json_int(kvf_json_get(next, "dropped"), 0), loss_of(next) - before);
    printf("%s: %zu virtual tokens, %s, text from position %lld\n", v->tool.out,
           kvf_json_size(kvf_json_get(found, "kept")),
           cli_bytes_text(kvf_json_int(kvf_json_get(found, "bytes"), 0), size),
           (long long)kvf_json_int(kvf_json_get(found, "position_start"), 0));
}

static int prune(cli_call *call, const values *v)
{
    cli_progress progress = cli_progress_make(&call->common);
    const kvf_prune_options options = {
        .prefix = call->operands[0],
        .base = v->tool.base,
        .out = v->tool.out,
        .curve = v->curve,
        .eval = v->tool.eval,
        .precision = cli_precision(v->tool.precision),
        .keep = v->keep,
        .max_loss_rise = v->max_loss_rise,
        .score = v->score,
        .dtype = v->tool.dtype,
        .checkpoint = cli_checkpoint(v->tool.checkpoint),
        .head = v->tool.head,
        .allow_other_base = v->tool.allow_other_base,
        .force = v->tool.force,
        .progress = cli_progress_items,
        .user = &progress,
    };
    kvf_json *found = NULL;
    kvf_status st = kvf_prune(call->ctx, &options, &found);
    cli_progress_clear(&progress);
    if (st) return cli_fail_status(call, st);
    if (call->common.json) {
        kvf_json_set(found, "out", kvf_json_new_str(v->tool.out));
        return cli_print_json(call, found);
    }
    print_text(v, found);
    kvf_json_free(found);
    return CLI_OK;
}

static int run(cli_call *call)
{
    values v = {.max_loss_rise = NAN,
                .score = "leave-one-out",
                .tool.dtype = "f32",
                .tool.precision = "f32"};
    int code = cli_set_values(call, OPTIONS, N_OPTIONS, &v);
    if (!code && (v.keep != 0) == !isnan(v.max_loss_rise))
        code = cli_misuse(call->command, "one of --keep and --max-loss-rise is needed");
    if (!code) code = cli_check_paths(call);
    return code ? code : prune(call, &v);
}

const cli_command cli_prune = {
    .name = "prune",
    .group = CLI_FILES,
    .synopsis = "PREFIX --base PATH --data FILE --out OUT.h5 --keep N [options]",
    .summary = "Drops the virtual tokens that cost least, and prints length against loss.",
    .notes = "The text keeps its positions, as position_start stays: the loss of each length\n"
             "is that of the file. PEFT's format cannot hold such a prefix.\n",
    .required = "out base data",
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .operands = 1,
    .run = run,
};
