/* kvfold report. */
#include "cli_model.h"

#include <stddef.h>

#define AT(field) offsetof(kvf_report_options, field)
static const kvf__option_row OPTIONS[] = {
    {"out", "FILE", "", KVF_TEXT, AT(out), "page to write, HTML"},
    {"base", "PATH", "", KVF_TEXT, AT(base), "base model, for the nearest words"},
    CLI_LORA(AT(lora)),
    {"data", "FILE", "", KVF_TEXT, AT(data),
     "data: rows for the shares of attention, prompts for the samples; needs --base"},
    {"words", "N", "3", KVF_COUNT, AT(words),
     "vocabulary items shown for each virtual token; 0: none"},
    {"rows", "N", "32", KVF_COUNT, AT(rows),
     "number of first rows over which shares of attention are averaged; 0: none"},
    {"samples", "N", "4", KVF_COUNT, AT(samples), "number of first prompts to complete; 0: none"},
    {"max-tokens", "N", "48", KVF_POSITIVE, AT(max_tokens),
     "maximum number of tokens in a completion"},
    CLI_CHECKPOINT(AT(checkpoint), "state of run files to use"),
    {"head", "NAME", "", KVF_TEXT, AT(head), "task to show, for a run on several tasks"},
    CLI_ALLOW_OTHER_BASE(AT(allow_other_base)),
    CLI_PRECISION(AT(precision), "f32", "precision of the base"),
    CLI_FORMAT(AT(format)),
    CLI_NO_HEADER(AT(no_header)),
    CLI_COLUMNS(AT(columns)),
    CLI_DELIMITER(AT(delimiter)),
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
        code = cli_misuse(call->command, "--max-tokens and --samples 0 exclude each other");
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
    .summary = "Writes a self-contained HTML page about a run or a merged file.",
    .notes = "The page shows options, lineage, curves of a run, and norms by layer and virtual "
             "token. --base adds the nearest words. --data adds the share of attention on the "
             "virtual tokens by layer and head, and completions with and without them next to "
             "the reference. For classifiers and taggers it adds the confusion matrix over all "
             "rows, and the wrong answers with the highest confidence. The page loads nothing "
             "from the network.\n",
    .required = "out",
    .needs = "lora>base words>base precision>base allow-other-base>base rows>data samples>data "
             "max-tokens>data format>data no-header>data columns>data delimiter>data map>data "
             "max-length>data "
             "overlong>data data>base",
    CLI_ROWS(OPTIONS),
    .operands = 1,
    .lab = true,
    .run = run,
};
