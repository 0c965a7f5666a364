/* kvfold score. */
#include "cli_model.h"

#include <stddef.h>

typedef struct score_values {
    cli_model_options model;
    kvf_score_options score;
} score_values;

#define AT(field)    offsetof(score_values, score.field)
#define MODEL(field) offsetof(score_values, model.field)
#define EVAL(field)  AT(eval.field)
static const kvf__option_row OPTIONS[] = {
    CLI_ROWS_OPTIONS(MODEL, EVAL, "rows to score; -: standard input",
                     "prefix or run file of task lm; without it: the bare base"),
    CLI_RENDER_OPTIONS(MODEL, EVAL),
    {"out", "FILE", "", KVF_TEXT, AT(out), "file to write; -: standard output"},
    CLI_FORCE(AT(force)),
};

static double total(const kvf_score_result *r)
{
    double sum = 0;
    for (size_t i = 0; i < r->n; i++)
        sum += r->rows[i].loglikelihood;
    return sum;
}

static void print_text(FILE *to, const kvf_score_options *o, const kvf_score_result *r)
{
    fprintf(to, "%s: %zu rows, %lld tokens, log-likelihood %.6f", o->out, r->n,
            (long long)r->tokens, total(r));
    if (r->skipped) fprintf(to, ", %lld skipped", (long long)r->skipped);
    if (r->truncated) fprintf(to, ", %lld truncated", (long long)r->truncated);
    fprintf(to, ", %.1f s\n", r->seconds);
}

static int report(const cli_call *call, const kvf_score_options *o, const kvf_score_result *r)
{
    if (!call->common.json) {
        if (!cli_is_stdout(o->out) || !call->common.quiet)
            print_text(cli_is_stdout(o->out) ? stderr : stdout, o, r);
        return CLI_OK;
    }
    kvf_json *object = kvf__json_of(
        "out:s rows:I tokens:I loglikelihood:f skipped:I truncated:I seconds:f", o->out,
        (int64_t)r->n, r->tokens, total(r), r->skipped, r->truncated, r->seconds);
    return cli_print_json(call, object);
}

static int score(cli_call *call, const score_values *v)
{
    cli_model model;
    kvf_score_result result;
    int code = cli_model_open(call, &v->model, &model);
    if (code) return code;
    kvf_status st = kvf_score(call->ctx, model.base, model.n ? model.prefixes[0] : NULL, &v->score,
                              &result);
    cli_model_close(&model);
    if (st) return cli_fail_status(call, st);
    code = report(call, &v->score, &result);
    kvf_score_result_done(&result);
    return code;
}

static int run(cli_call *call)
{
    score_values v = {.model.open.base.backward = false};
    int code = cli_set_values(call, &v);
    if (!code && v.model.prefixes.n > 1)
        code = cli_misuse(call->command, "--prefix can be given only once: score uses one prefix");
    if (!code) code = cli_check_paths(call);
    if (code) return code;
    if (cli_is_stdout(v.score.out)) v.score.write = cli_write_stdout;
    return score(call, &v);
}

const cli_command cli_score = {
    .name = "score",
    .group = CLI_USE,
    .synopsis = "--base PATH [--prefix FILE] --data FILE --out FILE [options]",
    .summary = "Writes log-likelihoods of completions, token by token.",
    .notes = "The output has a JSON line for every row: loglikelihood (natural logarithm), "
             "tokens (their number), and for each token ids, logprobs and greedy, which is true "
             "if the token is the likeliest one. Rows are scored one by one, so a result does "
             "not depend on other rows. A row skipped by --overlong skip has null.\n",
    .required = "base data out",
    CLI_ROWS(OPTIONS),
    .run = run,
};
