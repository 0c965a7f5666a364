/* kvfold report. */
#include "cli_model.h"

#include <stddef.h>

#define AT(field) offsetof(kvf_report_options, field)
static const kvf__option_row OPTIONS[] = {
    {"out", "FILE", "", KVF_TEXT, AT(out), "page to write, HTML"},
    {"base", "PATH", "", KVF_TEXT, AT(base), "base model, for the nearest words"},
    CLI_LORA(AT(lora)),
    {"data", "FILE", "", KVF_TEXT, AT(data),
     "rows for shares of attention, prompts for samples; needs --base"},
    {"words", "N", "3", KVF_COUNT, AT(words),
     "vocabulary items named for each virtual token; 0: none"},
    {"rows", "N", "32", KVF_COUNT, AT(rows),
     "first rows of the data that shares are means over; 0: none"},
    {"samples", "N", "4", KVF_COUNT, AT(samples),
     "first prompts of the data that are completed; 0: none"},
    {"max-tokens", "N", "48", KVF_POSITIVE, AT(max_tokens), "most tokens of a completion"},
    CLI_CHECKPOINT(AT(checkpoint), "state of run files"),
    {"head", "NAME", "", KVF_TEXT, AT(head), "of a run of several tasks: the one to show"},
    CLI_ALLOW_OTHER_BASE(AT(allow_other_base)),
    CLI_PRECISION(AT(precision), "f32", "of the base"),
    CLI_FORMAT(AT(format)),
    CLI_NO_HEADER(AT(no_header)),
    CLI_COLUMNS(AT(columns)),
    CLI_MAP_FIELDS(AT(map)),
    CLI_MAX_LENGTH(AT(max_length)),
    CLI_OVERLONG(AT(overlong)),
    CLI_FORCE(AT(force)),
};

static int run(cli_call *call)
{
    kvf_report_options o = kvf_report_defaults();
    int64_t bytes = 0;
    char text[32];

    o.path = call->operands[0];
    int code = cli_set_values(call, &o);
    if (!code) code = cli_check_paths(call);
    if (!code && cli_given_value(call, "max-tokens") && !o.samples)
        code = cli_misuse(call->command, "--max-tokens: not with --samples 0");
    if (code) return code;
    kvf_status st = kvf_report(call->ctx, &o, &bytes);
    if (st) return cli_fail_status(call, st);
    if (call->common.json) return cli_print_json(call, kvf__json_of("out:s bytes:I", o.out, bytes));
    printf("%s: %s\n", o.out, cli_bytes_text(bytes, text));
    return CLI_OK;
}

const cli_command cli_report = {
    .name = "report",
    .group = CLI_LOOK,
    .synopsis = "FILE --out REPORT.html [options]",
    .summary = "Writes one self-contained HTML page about a run or what it folded to.",
    .notes = "Always: options, lineage, curves of a run, norms by layer and virtual token.\n"
             "With --base the nearest words. With --data also the share of attention that\n"
             "the virtual tokens take by layer and head, and completions without and with\n"
             "them, beside what the data has; of classifiers and taggers what was taken for\n"
             "what, over all rows, and the wrong answers of which they were surest. The page\n"
             "asks no network for anything.\n",
    .required = "out",
    .needs = "lora>base words>base precision>base allow-other-base>base rows>data samples>data "
             "max-tokens>data format>data no-header>data columns>data map>data max-length>data "
             "overlong>data data>base",
    CLI_ROWS(OPTIONS),
    .operands = 1,
    .lab = true,
    .run = run,
};
