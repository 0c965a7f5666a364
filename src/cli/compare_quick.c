/* kvfold compare --quick: three methods by task and number of rows (docs/methods.md), with as many
 * steps as fit into --minutes by the forecasts of train. Names the winner, and prints the command
 * that trains it. */
#include "cli_compare.h"
#include "json_hooks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MANY_ROWS = 5000, LEAST_STEPS = 10, FEW_STEPS = 200, PASSES = 20, VALIDATIONS = 10 };
#define MARGIN 0.75 /* share of the time to plan for: forecasts of short steps are rough */
#define MERGE  0.5  /* time of merge, relative to opening a run */

static const char *methods_for(const char *task, bool many)
{
    const bool classes = !strcmp(task, "seq-cls") || !strcmp(task, "token-cls");
    if (!classes && strcmp(task, "lm")) return "mlp,direct,adapter";
    return classes && many ? "mlp,mlp:ffn-length=128,adapter" : "mlp,mlp:ffn-length=32,adapter";
}

int cli_quick_begin(cli_call *call, cli_compare_values *v)
{
    static const char *const OTHERS[] = {"methods", "inits", "resume", "options", "ensembles"};
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++)
        if (cli_is_given(call, OTHERS[i]))
            return cli_misuse(call->command, "--quick and --%s exclude each other", OTHERS[i]);
    if (call->n_sections)
        return cli_misuse_at(call->command, &call->sections[0],
                             "--quick and sections exclude each other");
    v->methods = methods_for(v->train.task, false);
    if (v->train.valid || v->train.named_valid.n || v->train.valid_split > 0) return CLI_OK;
    cli_given *given = realloc(call->given, (call->n_given + 1) * sizeof *given);
    if (!given) return cli_fail(call->command, "out of memory");
    call->given = given;
    given[call->n_given++] = (cli_given){.name = "valid-split", .value = "0.2"};
    v->train.valid_split = 0.2;
    return CLI_OK;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Seconds of the dry runs, and of one run of each method. */
typedef struct quick_cost {
    double spent, fixed, step; /* dry runs; opening, validations and merge; one step */
    int64_t rows;
} quick_cost;

/* Adds the cost of a row by a dry run. A row that fails costs nothing: it fails again as a run. */
static void add_cost(const cli_comparison *c, const cli_compared *row, quick_cost *cost)
{
    cli_arguments a = {.n = 2};
    cli_compare_arguments(c, row, c->values->seed, &a);
    cli_argument(&a, "--out=%s/%s.plan.h5", c->values->out, row->file);
    cli_argument(&a, "--dry-run");
    cli_argument(&a, "--quiet");
    kvf_json *found = cli_run_self(c->call, "train", &a, row->name, NULL);
    const kvf_json *forecast = kvf_json_get(found, "forecast");
    if (found && !forecast)
        cli_fail(c->call->command, "--quick: there is no forecast for %s", row->name);
    if (forecast) {
        cost->rows = kvf__int_at(found, "examples");
        cost->step += kvf__real_at(forecast, "seconds_per_step");
        cost->spent += kvf__real_at(found, "seconds");
        cost->fixed += (1 + MERGE) * kvf__real_at(found, "seconds") +
                       VALIDATIONS * kvf__real_at(forecast, "seconds_per_validation");
    }
    kvf_json_free(found);
}

/* Returns the number of steps that rows of this number can use. */
static int64_t most_steps(const cli_compare_values *v, int64_t rows)
{
    const int64_t passes = PASSES * rows / v->train.batch_size;
    return passes > FEW_STEPS ? passes : FEW_STEPS;
}

/* Sets the number of steps, at most `most`. */
static int set_steps(const cli_comparison *c, const quick_cost *cost, int64_t most,
                     cli_compare_values *v)
{
    const double runs = (double)v->seeds;
    const double fixed = (cost->spent + runs * cost->fixed) / 60, step = runs * cost->step / 60;
    const double fit = (MARGIN * v->minutes - fixed) / step;
    const int64_t least = most < LEAST_STEPS ? most : LEAST_STEPS;
    if (!(fit >= (double)least))
        return cli_misuse(c->call->command,
                          "--minutes %g: %lld steps of each method take about %.2g minutes",
                          v->minutes, (long long)least, (fixed + (double)least * step) / MARGIN);
    v->steps = fit < (double)most ? (int64_t)fit : most;
    if (!c->call->common.quiet)
        fprintf(stderr, "%lld steps of each method, about %.1f minutes\n", (long long)v->steps,
                fixed + (double)v->steps * step);
    return CLI_OK;
}

int cli_quick_plan(cli_comparison *c, cli_compare_values *v)
{
    const int64_t given = cli_is_given(c->call, "steps") ? v->steps : 0;
    quick_cost cost = {0};
    int code = CLI_OK;
    v->steps = FEW_STEPS;
    add_cost(c, &c->row[0], &cost);
    if (cost.rows > MANY_ROWS) {
        const cli_call *call = c->call;
        v->methods = methods_for(c->task, true);
        cli_comparison_done(c);
        code = cli_comparison_init(c, call, v);
    }
    for (size_t i = 1; i < c->n && !code; i++)
        add_cost(c, &c->row[i], &cost);
    if (!code && !cost.rows) return CLI_FAILED;
    return code ? code : set_steps(c, &cost, given ? given : most_steps(v, cost.rows), v);
}

/* ---- the winner ------------------------------------------------------------------------------ */

/* Returns the mean score of a method, or its loss if it has no score. */
static double value_of(const kvf_json *method)
{
    const double score = kvf__real_at(kvf_json_get(method, "score"), "mean");
    return isfinite(score) ? score : kvf__real_at(kvf_json_get(method, "loss"), "mean");
}

/* The same, negated where less is better. */
static double merit(const kvf_json *method)
{
    const char *metric = kvf__text_at(method, "best_metric");
    const bool less = !*metric || !strcmp(metric, "loss") || !strcmp(metric, "perplexity");
    return less ? -value_of(method) : value_of(method);
}

/* Orders by score, equal ones by loss. */
static bool is_better(const kvf_json *a, const kvf_json *b)
{
    if (!b || merit(a) != merit(b)) return !b || merit(a) > merit(b);
    return kvf__real_at(kvf_json_get(a, "loss"), "mean") <
           kvf__real_at(kvf_json_get(b, "loss"), "mean");
}

/* Writes an argument so that a shell reads it back: --data='it'\''s.tsv'. */
static void put_argument(FILE *to, const char *argument)
{
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_@%+=:,./-";
    const size_t name = strcspn(argument, "=");
    const char *value = argument + name + (argument[name] == '=');
    fprintf(to, " %.*s", (int)(value - argument), argument);
    const char *quote = value[strspn(value, PLAIN)] ? "'" : "";
    fputs(quote, to);
    for (; *value; value++)
        fputs(*value == '\'' ? "'\\''" : (char[]){*value, 0}, to);
    fputs(quote, to);
}

/* Returns the command that trains a row; the caller frees it. */
static char *command_of(const cli_comparison *c, const char *name)
{
    cli_arguments a = {.n = 2};
    const char *threads = cli_given_value(c->call, "threads");
    char *text = NULL;
    size_t bytes = 0, r = 0;
    while (strcmp(c->row[r].name, name) != 0)
        r++;
    cli_compare_arguments(c, &c->row[r], c->values->seed, &a);
    cli_argument(&a, "--out=%s/winner.h5", c->values->out);
    if (threads) cli_argument(&a, "--threads=%s", threads);
    FILE *to = a.lost ? NULL : open_memstream(&text, &bytes);
    if (to) fputs("kvfold train", to);
    for (size_t i = 2; to && i < a.n; i++)
        put_argument(to, a.at[i]);
    if (to) fclose(to);
    cli_arguments_done(&a);
    return text;
}

void cli_quick_end(const cli_comparison *c, kvf_json *object)
{
    const kvf_json *methods = kvf_json_get(object, "methods"), *best = NULL, *second = NULL;
    for (size_t i = 0; i < kvf_json_size(methods); i++) {
        const kvf_json *one = kvf_json_at(methods, i);
        if (is_better(one, best))
            second = best, best = one;
        else if (is_better(one, second))
            second = one;
    }
    char *command = command_of(c, kvf__text_at(best, "name"));
    const char *metric = kvf__text_at(best, "best_metric");
    kvf_json *winner = kvf__json_of("name:s metric:s value:f command:s", kvf__text_at(best, "name"),
                                    *metric ? metric : "loss", value_of(best),
                                    command ? command : "");
    if (second)
        kvf__json_put(winner, "second:s ahead:f", kvf__text_at(second, "name"),
                      merit(best) - merit(second));
    kvf_json_set(object, "winner", winner);
    free(command);
}

void cli_quick_print(const kvf_json *object)
{
    const kvf_json *winner = kvf_json_get(object, "winner");
    if (!winner) return;
    printf("winner: %s, %s %.4f", kvf__text_at(winner, "name"), kvf__text_at(winner, "metric"),
           kvf__real_at(winner, "value"));
    if (kvf_json_get(winner, "second"))
        printf(", ahead of %s by %.4f%s", kvf__text_at(winner, "second"),
               kvf__real_at(winner, "ahead"),
               kvf__int_at(object, "seeds") > 1 ? "" : " in one run (--seeds 3 shows the spread)");
    printf("\n%s\n", kvf__text_at(winner, "command"));
}
