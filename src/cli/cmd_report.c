/* kvfold report. */
#include "cli_int.h"

#include <stddef.h>
#include <string.h>

typedef struct values {
    kvf_report_options report;
    const char *checkpoint, *precision;
} values;

#define AT(field) offsetof(values, field)
static const cli_option OPTIONS[] = {
    {{"out", "FILE", "", "page to write, HTML"}, CLI_TEXT, AT(report.out)},
    {{"base", "PATH", "", "base model, for the nearest words"}, CLI_TEXT, AT(report.base)},
    {{"data", "FILE", "", "rows for shares of attention, prompts for samples; needs --base"},
     CLI_TEXT,
     AT(report.data)},
    {{"words", "N", "3", "vocabulary items named for each virtual token; 0: none"},
     CLI_COUNT,
     AT(report.words)},
    {{"rows", "N", "32", "first rows of the data that shares are means over; 0: none"},
     CLI_COUNT,
     AT(report.rows)},
    {{"samples", "N", "4", "first prompts of the data that are completed; 0: none"},
     CLI_COUNT,
     AT(report.samples)},
    {{"max-tokens", "N", "48", "most tokens of a completion"}, CLI_POSITIVE, AT(report.max_tokens)},
    {{"checkpoint", "best|last", "best if there is one", "state of run files"},
     CLI_CHOICE,
     AT(checkpoint)},
    {{"head", "NAME", "", "of a run of several tasks: the one to show"}, CLI_TEXT, AT(report.head)},
    {{"allow-other-base", NULL, "", "accept a prefix made for another base of the same shape"},
     CLI_FLAG,
     AT(report.allow_other_base)},
    {{"precision", "auto|f32|bf16", "f32", "of the base"}, CLI_CHOICE, AT(precision)},
    {{"format", CLI_FORMATS, "auto", "of the data file; auto: by name and content"},
     CLI_CHOICE,
     AT(report.format)},
    {{"no-header", NULL, "", "the first line of TSV or CSV is a row"},
     CLI_FLAG,
     AT(report.no_header)},
    {{"columns", "NAME,...", "the header's", "names of the columns of TSV or CSV"},
     CLI_TEXT,
     AT(report.columns)},
    {{"map", "OURS=THEIRS,...", "", "foreign field names: prompt=question,completion=answer"},
     CLI_TEXT,
     AT(report.map)},
    {{"max-length", "N", "that of training, or the model's", "longest row in tokens"},
     CLI_COUNT,
     AT(report.max_length)},
    {{"overlong", "stop|truncate|truncate-end|skip", "that of training, or stop",
      "what to do with longer rows"},
     CLI_CHOICE,
     AT(report.overlong)},
    {{"force", NULL, "", "replace an existing output"}, CLI_FLAG, AT(report.force)},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

static const cli_need NEEDS[] = {
    {"words", "base"},  {"precision", "base"},  {"allow-other-base", "base"},
    {"rows", "data"},   {"samples", "data"},    {"max-tokens", "data"},
    {"format", "data"}, {"no-header", "data"},  {"columns", "data"},
    {"map", "data"},    {"max-length", "data"}, {"overlong", "data"},
    {"data", "base"},
};
enum { N_NEEDS = sizeof NEEDS / sizeof NEEDS[0] };

static int run(cli_call *call)
{
    values v = {.report = kvf_report_defaults(), .precision = "f32"};
    int64_t bytes = 0;
    char text[32];
    int code = cli_set_values(call, OPTIONS, N_OPTIONS, &v);

    if (!code) code = cli_check_needs(call, NEEDS, N_NEEDS);
    if (!code) code = cli_check_paths(call);
    if (!code && cli_given_value(call, "max-tokens") && !v.report.samples)
        code = cli_misuse(call->command, "--max-tokens: not with --samples 0");
    if (code) return code;
    v.report.path = call->operands[0];
    v.report.checkpoint = cli_checkpoint(v.checkpoint);
    v.report.precision = cli_precision(v.precision);
    kvf_status st = kvf_report(call->ctx, &v.report, &bytes);
    if (st) return cli_fail_status(call, st);
    if (!call->common.json) {
        printf("%s: %s\n", v.report.out, cli_bytes_text(bytes, text));
        return CLI_OK;
    }
    kvf_json *object = kvf_json_object();
    kvf_json_set(object, "out", kvf_json_new_str(v.report.out));
    kvf_json_set(object, "bytes", kvf_json_new_int(bytes));
    return cli_print_json(call, object);
}

const cli_command cli_report = {
    .name = "report",
    .group = CLI_LOOK,
    .synopsis = "FILE --out REPORT.html [options]",
    .summary = "Writes one self-contained HTML page about a run or what it folded to.",
    .notes = "Always: options, lineage, curves of a run, norms by layer and virtual token.\n"
             "With --base the nearest words. With --data also the share of attention that\n"
             "the virtual tokens take by layer and head, and completions without and with\n"
             "them. The page asks no network for anything.\n",
    .required = "out",
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .operands = 1,
    .run = run,
};
