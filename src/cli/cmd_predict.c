/* kvfold predict. */
#include "cli_model.h"

#include <stddef.h>

typedef struct predict_values {
    cli_model_options model;
    kvf__strings texts;
    kvf_predict_options predict;
} predict_values;

#define AT(field)    offsetof(predict_values, predict.field)
#define MODEL(field) offsetof(predict_values, model.field)
#define EVAL(field)  AT(eval.field)
static const kvf__option_row OPTIONS[] = {
    CLI_EVAL_OPTIONS(MODEL, EVAL, "data to predict on; -: standard input",
                     "prefix or run file; if repeated, the probabilities are averaged; not "
                     "needed for a base file with a head"),
    {"text", "TEXT", "", KVF_TEXTS, offsetof(predict_values, texts),
     "row to predict, instead of --data; may be repeated"},
    {"out", "FILE", "", KVF_TEXT, AT(out),
     "file to write; -: standard output, the default with --text"},
    {"out-format", "jsonl|conll", "by file name, else jsonl", KVF_CHOICE_1, AT(out_format),
     "format of --out"},
    CLI_FORCE(AT(force)),
};

static void print_text(FILE *to, const kvf_predict_options *o, const kvf_predict_result *r)
{
    fprintf(to, "%s: %lld examples", o->out, (long long)r->examples);
    if (r->skipped) fprintf(to, ", %lld skipped", (long long)r->skipped);
    if (r->truncated) fprintf(to, ", %lld truncated", (long long)r->truncated);
    fprintf(to, ", %.1f s\n", r->seconds);
}

static int report(const cli_call *call, const predict_values *v, const kvf_predict_result *r)
{
    const kvf_predict_options *o = &v->predict;
    if (!call->common.json) {
        if (!cli_is_stdout(o->out))
            print_text(stdout, o, r);
        else if (!call->common.quiet && !v->texts.n)
            print_text(stderr, o, r);
        return CLI_OK;
    }
    kvf_json *object = kvf__json_of("out:s task:s examples:I skipped:I truncated:I seconds:f",
                                    o->out, r->task, r->examples, r->skipped, r->truncated,
                                    r->seconds);
    return cli_print_json(call, object);
}

static int check_values(const cli_call *call, predict_values *v)
{
    kvf_predict_options *o = &v->predict;
    if (!v->texts.n == !o->eval.data)
        return cli_misuse(call->command, o->eval.data ? "--text and --data exclude each other"
                                                      : "--data FILE or --text TEXT is needed");
    if (!o->out && !v->texts.n) return cli_misuse(call->command, "--out is needed");
    if (!o->out) o->out = CLI_STDOUT;
    if (call->common.json && v->texts.n && cli_is_stdout(o->out))
        return cli_misuse(call->command, "--json and --out both write to standard output");
    return CLI_OK;
}

/* Makes rows of the texts on the command line; the caller frees *rows. */
static int read_texts(const cli_call *call, predict_values *v, kvf_rows **rows)
{
    if (!v->texts.n) return CLI_OK;
    kvf_status st = kvf_rows_create(call->ctx, rows);
    for (size_t i = 0; i < v->texts.n && !st; i++)
        st = kvf_rows_add_text(call->ctx, *rows, v->texts.item[i]);
    v->predict.eval.data = kvf_rows_path(*rows);
    return st ? cli_fail_status(call, st) : CLI_OK;
}

static int open_and_predict(const cli_call *call, predict_values *v)
{
    cli_model model;
    kvf_predict_result result;
    int code = cli_model_open(call, &v->model, &model);
    if (code) return code;
    if (cli_is_stdout(v->predict.out)) v->predict.write = cli_write_stdout;
    kvf_status st = kvf_predict(call->ctx, model.base, model.prefixes, model.n, &v->predict,
                                &result);
    cli_model_close(&model);
    if (st) return cli_fail_status(call, st);
    code = report(call, v, &result);
    kvf_predict_result_done(&result);
    return code;
}

static int run(cli_call *call)
{
    predict_values v = {.model.open.own_head = true};
    kvf_rows *rows = NULL;
    int code = cli_set_values(call, &v);
    if (!code) code = check_values(call, &v);
    if (!code) code = cli_check_paths(call);
    if (!code) code = read_texts(call, &v, &rows);
    if (!code) code = open_and_predict(call, &v);
    kvf_rows_free(rows);
    return code;
}

const cli_command cli_predict = {
    .name = "predict",
    .group = CLI_USE,
    .synopsis = "--base PATH [--prefix FILE] (--data FILE --out FILE | --text TEXT) [options]",
    .summary = "Writes the predictions of a prefix with a head, with their probabilities.",
    .notes = "The output has a line for every row, or for every word, of the data. Long "
             "sentences of token-cls are read in overlapping windows, unless --overlong is stop "
             "or skip. A skipped row has the answer null, in CoNLL _. Rows need no labels. In a "
             ".txt file each line is one text; for token-cls whitespace separates the words.\n",
    .required = "base",
    CLI_ROWS(OPTIONS),
    .run = run,
};
