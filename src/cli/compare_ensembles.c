/* Ensembles of kvfold compare: runs of one row with different seeds, combined by the mean of their
 * probabilities and by majority vote. N seeds give N / k groups of k, which share no run. */
#include "cli_compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Takes the next number off the list "1,3,5"; 0: not a number. */
static int64_t next_size(const char **list)
{
    char *end;
    const long long n = strtoll(*list, &end, 10);
    if (end == *list || (*end && *end != ',')) return 0;
    *list = *end ? end + 1 : end;
    return n;
}

int cli_ensembles_check(const cli_comparison *c)
{
    const cli_command *command = c->call->command;
    const char *list = c->values->ensembles;
    for (size_t i = 0; list && i < c->n; i++)
        if (!kvf__train_option_applies("prefix-length", c->row[i].method) &&
            strcmp(c->row[i].method, "head"))
            return cli_misuse(
                command,
                "--ensembles does not support method %s, because its runs do not share the base",
                c->row[i].method);
    if (list && !c->values->train.valid)
        return cli_misuse(command, "--ensembles needs --valid FILE");
    while (list && *list) {
        const int64_t n = next_size(&list);
        if (n < 1 || n > c->values->seeds)
            return cli_misuse(command, "--ensembles \"%s\": want numbers from 1 to --seeds %lld",
                              c->values->ensembles, (long long)c->values->seeds);
    }
    return CLI_OK;
}

/* Evaluates a group of n runs, from this seed on; NaN: no score. */
static double score_of_group(const cli_comparison *c, const cli_compared *row, int64_t from,
                             int64_t n, const char *vote, const char *metric)
{
    cli_arguments a = {.n = 2};
    char what[256];
    snprintf(what, sizeof what, "%s, %s of %lld", row->name, vote, (long long)n);
    cli_comparison_options_of(c, cli_command_find("eval"), &a);
    cli_argument(&a, "--base=%s", c->values->train.base);
    cli_argument(&a, "--data=%s", c->values->train.valid);
    for (int64_t seed = from; seed < from + n; seed++)
        cli_argument(&a, "--prefix=%s/%s-%lld.run.h5", c->values->out, row->file, (long long)seed);
    if (strcmp(vote, "mean") != 0) cli_argument(&a, "--vote=%s", vote);
    kvf_json *found = cli_run_self(c->call, "eval", &a, what, NULL);
    const double score = found ? kvf__real_at(found, metric) : NAN;
    kvf_json_free(found);
    return score;
}

/* Evaluates all groups. */
static kvf_json *ensemble_json(const cli_comparison *c, const cli_compared *row, int64_t n,
                               const char *vote, const char *metric)
{
    const int64_t groups = c->values->seeds / n;
    double sum = 0, low = INFINITY, high = -INFINITY;
    char name[256];
    for (int64_t g = 0; g < groups; g++) {
        const double score = score_of_group(c, row, c->values->seed + g * n, n, vote, metric);
        sum += score;
        low = fmin(low, score);
        high = fmax(high, score);
    }
    snprintf(name, sizeof name, n == 1 ? "%s, alone" : "%s, %s of %lld", row->name, vote,
             (long long)n);
    kvf_json *spread = kvf__json_of("mean:f min:f max:f", sum / (double)groups, low, high);
    return kvf__json_of("name:s prompts:I vote:s groups:I best_metric:s score:o", name, n, vote,
                        groups, metric, spread);
}

/* Returns the metric of the row's runs; NULL: all of them failed. */
static const char *metric_of(const kvf_json *runs, const char *name)
{
    for (size_t i = 0; i < kvf_json_size(runs); i++)
        if (!strcmp(kvf__text_at(kvf_json_at(runs, i), "name"), name))
            return kvf__text_at(kvf_json_at(runs, i), "best_metric");
    return NULL;
}

kvf_json *cli_ensembles_run(const cli_comparison *c, const kvf_json *runs)
{
    const bool votes = strcmp(c->task, "lm") != 0 && strcmp(c->task, "qa") != 0;
    kvf_json *list = kvf_json_array();
    for (size_t i = 0; i < c->n; i++) {
        const char *metric = metric_of(runs, c->row[i].name), *sizes = c->values->ensembles;
        while (metric && *sizes) {
            const int64_t n = next_size(&sizes);
            kvf_json_add(list, ensemble_json(c, &c->row[i], n, "mean", metric));
            if (n > 1 && votes)
                kvf_json_add(list, ensemble_json(c, &c->row[i], n, "majority", metric));
        }
    }
    return list;
}
