/* kvfold predict. */
#include "cli_model.h"

#include <stddef.h>
#include <string.h>

typedef struct predict_values {
    cli_model_options model;
    kvf_predict_options predict;
} predict_values;

#define AT(field)    offsetof(predict_values, predict.field)
#define MODEL(field) offsetof(predict_values, model.field)
#define EVAL(field)  AT(eval.field)
static const kvf__option_row OPTIONS[] = {
    CLI_EVAL_OPTIONS(MODEL, EVAL, "data to predict on; -: standard input",
                     "prefix or run file; given more than once, their probabilities are averaged; "
                     "not needed where the base file has a head"),
    {"out", "FILE", "", KVF_TEXT, AT(out), "file to write; -: standard output"},
    {"out-format", "jsonl|conll", "by its name, else jsonl", KVF_CHOICE_1, AT(out_format),
     "format of --out"},
    CLI_FORCE(AT(force)),
};

static bool to_stdout(const kvf_predict_options *o)
{
    return !strcmp(o->out, CLI_STDOUT);
}

static void write_text(void *user, const char *text, size_t n)
{
    (void)user;
    fwrite(text, 1, n, stdout);
}

static void print_text(FILE *to, const kvf_predict_options *o, const kvf_predict_result *r)
{
    fprintf(to, "%s: %lld examples", o->out, (long long)r->examples);
    if (r->skipped) fprintf(to, ", %lld skipped", (long long)r->skipped);
    if (r->truncated) fprintf(to, ", %lld truncated", (long long)r->truncated);
    fprintf(to, ", %.1f s\n", r->seconds);
}

static int report(const cli_call *call, const kvf_predict_options *o, const kvf_predict_result *r)
{
    if (!call->common.json) {
        if (!to_stdout(o) || !call->common.quiet) print_text(to_stdout(o) ? stderr : stdout, o, r);
        return CLI_OK;
    }
    kvf_json *object = cli_json("out:s task:s examples:I skipped:I truncated:I seconds:f", o->out,
                                r->task, r->examples, r->skipped, r->truncated, r->seconds);
    return cli_print_json(call, object);
}

static int run(cli_call *call)
{
    predict_values v = {.model.own_head = true};
    cli_model model;
    kvf_predict_result result;
    int code = cli_set_values(call, &v);
    if (!code) code = cli_check_paths(call);
    if (!code) code = cli_model_open(call, &v.model, &model);
    if (code) return code;
    if (to_stdout(&v.predict)) v.predict.write = write_text;
    kvf_status st = kvf_predict(call->ctx, model.base, model.prefixes, model.n, &v.predict,
                                &result);
    cli_model_close(&model);
    if (st) return cli_fail_status(call, st);
    code = report(call, &v.predict, &result);
    kvf_predict_result_done(&result);
    return code;
}

const cli_command cli_predict = {
    .name = "predict",
    .group = CLI_USE,
    .synopsis = "--base PATH [--prefix FILE] --data FILE --out FILE [options]",
    .summary = "Writes predictions of a prefix with a head, with their probabilities.",
    .notes = "The output has a line for every row, or every word, of the data. Long sentences\n"
             "of token-cls are read in windows that overlap, unless --overlong is stop or\n"
             "skip; what skip leaves out has null for an answer, in CoNLL _.\n",
    .required = "base data out",
    CLI_ROWS(OPTIONS),
    .run = run,
};
