/* kvfold predict. */
#include "cli_int.h"

#include <stddef.h>
#include <string.h>

typedef struct values {
    cli_eval_values shared; /* paths and eval */
    const char *out, *out_format;
    bool force;
} values;

#define AT(field)        offsetof(values, field)
#define AT_SHARED(field) offsetof(values, shared.field)
static const cli_option OPTIONS[] = {
    CLI_EVAL_OPTIONS(AT_SHARED, "data to predict on; -: standard input",
                     "prefix or run file; given more than once, their probabilities are averaged; "
                     "not needed where the base file has a head"),
    {{"out", "FILE", "", "file to write; -: standard output"}, CLI_TEXT, AT(out)},
    {{"out-format", "jsonl|conll", "by its name, else jsonl", "format of --out"},
     CLI_CHOICE,
     AT(out_format)},
    {{"force", NULL, "", "replace an existing output"}, CLI_FLAG, AT(force)},
};
enum { N_OPTIONS = sizeof OPTIONS / sizeof OPTIONS[0] };

static bool to_stdout(const values *v)
{
    return !strcmp(v->out, CLI_STDOUT);
}

static void write_text(void *user, const char *text, size_t n)
{
    (void)user;
    fwrite(text, 1, n, stdout);
}

static void print_text(FILE *to, const values *v, const kvf_predict_result *r)
{
    fprintf(to, "%s: %lld examples", v->out, (long long)r->examples);
    if (r->skipped) fprintf(to, ", %lld skipped", (long long)r->skipped);
    if (r->truncated) fprintf(to, ", %lld truncated", (long long)r->truncated);
    fprintf(to, ", %.1f s\n", r->seconds);
}

static int report(const cli_call *call, const values *v, const kvf_predict_result *r)
{
    if (!call->common.json) {
        if (!to_stdout(v) || !call->common.quiet) print_text(to_stdout(v) ? stderr : stdout, v, r);
        return CLI_OK;
    }
    kvf_json *object = kvf_json_object();
    kvf_json_set(object, "out", kvf_json_new_str(v->out));
    kvf_json_set(object, "task", kvf_json_new_str(r->task));
    kvf_json_set(object, "examples", kvf_json_new_int(r->examples));
    kvf_json_set(object, "skipped", kvf_json_new_int(r->skipped));
    kvf_json_set(object, "truncated", kvf_json_new_int(r->truncated));
    kvf_json_set(object, "seconds", kvf_json_new_real(r->seconds));
    return cli_print_json(call, object);
}

static int predict(cli_call *call, const values *v)
{
    const kvf_predict_options options = {.eval = v->shared.eval,
                                         .out = v->out,
                                         .out_format = v->out_format,
                                         .force = v->force,
                                         .write = to_stdout(v) ? write_text : NULL};
    cli_model model;
    kvf_predict_result result;
    int code = cli_model_open(call, &v->shared.paths, &model);
    if (code) return code;
    kvf_status st = kvf_predict(call->ctx, model.base, model.prefixes, model.n, &options, &result);
    cli_model_close(&model);
    if (st) return cli_fail_status(call, st);
    return report(call, v, &result);
}

static int run(cli_call *call)
{
    values v = {.shared.paths.own_head = true};
    if (!cli_texts_init(call, &v.shared.paths.prefixes)) return CLI_FAILED;
    int code = cli_set_values(call, OPTIONS, N_OPTIONS, &v);
    if (!code) code = cli_check_paths(call);
    if (!code) code = predict(call, &v);
    cli_texts_done(&v.shared.paths.prefixes);
    return code;
}

const cli_command cli_predict = {
    .name = "predict",
    .group = CLI_USE,
    .synopsis = "--base PATH [--prefix FILE] --data FILE --out FILE [options]",
    .summary = "Writes predictions of a prefix with a head, with their probabilities.",
    .notes = "The output has a line for every row, or every word, of the data. Long sentences\n"
             "of token-cls are read in windows that overlap, unless --overlong says stop or\n"
             "skip; what skip leaves out has null for an answer, in CoNLL _.\n",
    .required = "base data out",
    .options = OPTIONS,
    .n_options = N_OPTIONS,
    .run = run,
};
