/* kvfold compare: trains methods, with the initial values that they support, on one base, data set
 * and budget, and adds baselines: the bare base, and the task's head alone. Prints one table, and
 * writes a page with the curves. Every run is a separate process of this program (train, then
 * merge). The peak memory of a process never decreases, so a second run in one process could not be
 * measured. */
#include "cli_compare.h"
#include "compare_hooks.h"
#include "states_hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AT(field) offsetof(cli_compare_values, field)
static const kvf__option_row OPTIONS[] = {
    {"recipe", "FILE", "", KVF_NO_FIELD, 0,
     "read options, and the rows of an experiment, from a file: see help experiments; the "
     "command line takes precedence"},
    {"methods", "A,B,...", "mlp,direct", KVF_TEXT, AT(methods),
     "methods to compare, each with its own options of train: mlp,full:lr=3e-4"},
    {"inits", "A,B,...", "the method's", KVF_TEXT, AT(inits), "values of --init to compare"},
    {"steps", "N", "100", KVF_POSITIVE, AT(steps), "optimizer steps of every run"},
    {"seeds", "N", "1", KVF_POSITIVE, AT(seeds), "runs per row, with the seeds from --seed on"},
    {"draws", "N", "off", KVF_POSITIVE, AT(draws),
     "instead of --seeds: runs per row, each on the --rows that its seed draws; the table has mean "
     "and standard deviation"},
    {"seed", "N", "0", KVF_COUNT, AT(seed), "first seed; the next run has the next seed"},
    {"eval-every", "N", "a tenth of --steps", KVF_POSITIVE, AT(eval_every),
     "steps between validations, the points of the curves"},
    {"ensembles", "N,N,...", "off", KVF_TEXT, AT(ensembles),
     "also evaluate this many seeds of each row as an ensemble: by the mean of their "
     "probabilities, and by majority vote"},
    {"quick", NULL, "", KVF_FLAG, AT(quick),
     "compare three methods that suit the task and the number of rows, name the winner, and print "
     "its command; --valid-split 0.2 without --valid; --steps is the maximum"},
    {"minutes", "X", "10", KVF_ABOVE_0, AT(minutes),
     "time for --quick, which sets the steps by forecasts"},
    {"options", "FILE", "", KVF_TEXT, AT(options),
     "file of further train options, applied to every method that supports them"},
    {"out", "DIR", "", KVF_TEXT, AT(out),
     "folder for the run files, the merged files, compare.html and compare.svg"},
    {"force", NULL, "", KVF_FLAG, AT(force), "replace existing outputs"},
    {"resume", NULL, "", KVF_FLAG, AT(resume),
     "continue a comparison that was stopped: keep finished runs, continue the others"},
};

/* ---- one run --------------------------------------------------------------------------------- */

static bool name_files(cli_compare_cell *c, const char *folder, bool two)
{
    snprintf(c->name, sizeof c->name, "%s-%lld", c->row->file, (long long)c->seed);
    int n = snprintf(c->run, sizeof c->run, "%s/%s.run.h5", folder, c->name);
    int m = snprintf(c->folded, sizeof c->folded, "%s/%s.h5", folder, c->name);
    int b = two ? snprintf(c->folded_base, sizeof c->folded_base, "%s/%s.base.h5", folder, c->name)
                : 1;
    int r = snprintf(c->record, sizeof c->record, "%s/%s.json", folder, c->name);
    return n > 0 && m > 0 && b > 0 && r > 0 && (size_t)n < sizeof c->run &&
           (size_t)m < sizeof c->folded && (size_t)b < sizeof c->folded_base &&
           (size_t)r < sizeof c->record;
}

/* Returns the size of all merged files of a run. */
static int64_t bytes_of(const cli_compare_cell *c, const kvf_json *bytes)
{
    struct stat base = {.st_size = 0};
    if (*c->folded_base && stat(c->folded_base, &base)) return kvf_json_int(bytes, 0);
    return kvf_json_int(bytes, 0) + (int64_t)base.st_size;
}

/* merged NULL: the run cannot be merged. */
static kvf_json *row_of(const cli_compare_cell *c, const kvf_json *trained, const kvf_json *merged)
{
    static const char *const KEYS[] = {
        "trainable_parameters", "steps",     "tokens",          "seconds",     "tokens_per_second",
        "peak_rss_bytes",       "precision", "best_valid_loss", "best_metric", "best_value"};
    const char *start = c->row->init;
    kvf_json *init = start ? kvf_json_new_str(start) : kvf_json_new_null();
    kvf_json *row = kvf__json_of("method:s init:o seed:I", c->row->method, init, c->seed);
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++)
        if (kvf_json_get(trained, KEYS[i]))
            kvf_json_set(row, KEYS[i], kvf__json_copy(kvf_json_get(trained, KEYS[i])));
    const kvf_json *bytes = kvf_json_get(merged, "bytes");
    kvf_json_set(row, "bytes", bytes ? kvf_json_new_int(bytes_of(c, bytes)) : kvf_json_new_null());
    kvf__json_put(row, "name:s file:s", c->row->name, c->run);
    return row;
}

void cli_compare_arguments(const cli_comparison *c, const cli_compared *row, int64_t seed,
                           cli_arguments *a)
{
    const cli_compare_values *v = c->values;
    const int64_t usual = v->steps < 10 ? 1 : v->steps / 10;
    cli_argument(a, "--method=%s", row->method);
    cli_argument(a, "--eval-every=%lld", (long long)(v->eval_every ? v->eval_every : usual));
    cli_argument(a, "--steps=%lld", (long long)v->steps);
    if (v->quick) cli_argument(a, "--save-every=%lld", (long long)v->steps);
    cli_comparison_options(c, row, a); /* a row may override them */
    cli_argument(a, "--seed=%lld", (long long)seed);
}

static kvf_json *train(const cli_comparison *c, const cli_compare_cell *cell, cli_arguments *a,
                       char line[CLI_LINE_BYTES])
{
    cli_argument(a, "--out=%s", cell->run);
    if (c->values->force) cli_argument(a, "--force");
    if (c->values->resume) cli_argument(a, "--resume");
    if (c->call->common.quiet) cli_argument(a, "--quiet");
    return cli_run_self(c->call, "train", a, cell->name, line);
}

static kvf_json *merge(const cli_comparison *c, const cli_compare_cell *cell)
{
    cli_arguments a = {.n = 2};
    cli_argument(&a, "%s", cell->run);
    cli_argument(&a, "--base=%s", c->values->train.base);
    if (c->values->train.lora) cli_argument(&a, "--lora=%s", c->values->train.lora);
    cli_argument(&a, "--out=%s", cell->folded);
    if (*cell->folded_base) cli_argument(&a, "--out-base=%s", cell->folded_base);
    if (c->values->force || c->values->resume) cli_argument(&a, "--force");
    return cli_run_self(c->call, "merge", &a, cell->name, NULL);
}

/* Results of a comparison: its runs, and the failed ones, {name, seed, line}. */
typedef struct compare_found {
    kvf_json *runs, *failed;
} compare_found;

/* Trains and merges, as far as the record has no results. */
static int finish_cell(const cli_comparison *c, const cli_compare_cell *cell, cli_arguments *a,
                       kvf_json *record, compare_found *found)
{
    char line[CLI_LINE_BYTES];
    int code = CLI_OK;
    if (!kvf_json_get(record, "trained"))
        code = cli_record_put(c, cell, record, "trained", train(c, cell, a, line));
    const kvf_json *trained = kvf_json_get(record, "trained");
    if (!code && !trained)
        kvf_json_add(found->failed,
                     kvf__json_of("name:s seed:I line:s", cell->row->name, cell->seed, line));
    if (code || !trained) return code;
    if (!kvf_json_get(record, "merged"))
        code = cli_record_put(c, cell, record, "merged", merge(c, cell));
    kvf_json_add(found->runs, row_of(cell, trained, kvf_json_get(record, "merged")));
    return code;
}

static int run_cell(const cli_comparison *c, cli_compare_cell *cell, compare_found *found)
{
    cli_arguments a = {.n = 2};
    kvf_json *record = NULL;
    if (!name_files(cell, c->values->out, cli_comparison_unfreezes(c, cell->row)))
        return cli_fail(c->call->command, "%s: the path is too long", c->values->out);
    cli_compare_arguments(c, cell->row, cell->seed, &a);
    int code = cli_record_open(c, cell, &a, &record);
    if (!code) code = finish_cell(c, cell, &a, record, found);
    cli_arguments_done(&a);
    kvf_json_free(record);
    return code;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Returns the loss of the bare base, or the reason why there is none. */
static kvf_json *bare_base(const cli_comparison *c)
{
    cli_arguments a = {.n = 2};
    const char *valid = c->values->train.valid;
    char reason[128];
    if (strcmp(c->task, "lm")) {
        snprintf(reason, sizeof reason, "no score: a base has no head for task %s", c->task);
        return kvf__json_of("reason:s", reason);
    }
    if (!valid) return kvf__json_of("reason:s", "not measured: this needs a single --valid FILE");
    cli_comparison_options_of(c, cli_command_find("eval"), &a);
    cli_argument(&a, "--base=%s", c->values->train.base);
    if (c->values->train.lora) cli_argument(&a, "--lora=%s", c->values->train.lora);
    cli_argument(&a, "--data=%s", valid);
    kvf_json *found = cli_run_self(c->call, "eval", &a, "the bare base", NULL);
    if (!found) return kvf__json_of("reason:s", "not measured: eval failed");
    kvf_json *bare = kvf__json_of("loss:f perplexity:f", kvf__real_at(found, "loss"),
                                  kvf__real_at(found, "perplexity"));
    kvf_json_free(found);
    return bare;
}

static int run_all(const cli_comparison *c, compare_found *found)
{
    static cli_compare_cell one;
    int code = CLI_OK;
    for (size_t i = 0; i < c->n && !code; i++)
        for (int64_t k = 0; k < c->values->seeds && !code; k++) {
            one = (cli_compare_cell){.row = &c->row[i], .seed = c->values->seed + k};
            code = run_cell(c, &one, found);
        }
    return code;
}

/* Returns the facts that the page shows for all runs. */
static kvf_json *about(const cli_comparison *c)
{
    const cli_compare_values *v = c->values;
    return kvf__json_of(v->draws ? "base:s task:s data:s steps:I draws:I"
                                 : "base:s task:s data:s steps:I seeds:I",
                        kvf__path_end(v->train.base), c->task,
                        v->train.data ? v->train.data : "several", v->steps, v->seeds);
}

/* Files written for all runs together. */
typedef struct compare_files {
    char page[4096], picture[4096];
} compare_files;

/* Reports the results, and takes over the object. */
static int report(const cli_comparison *c, const compare_files *files, compare_found *found)
{
    const cli_compare_values *v = c->values;
    const cli_call *call = c->call;
    kvf_json *object = kvf__json_of("out:s steps:I runs:o", v->out, v->steps, found->runs);
    if (kvf_json_size(found->failed))
        kvf_json_set(object, "failed", found->failed);
    else
        kvf_json_free(found->failed);
    *found = (compare_found){NULL, NULL};
    kvf__json_put(object, "seeds:I reference:s page:s", v->seeds, c->reference, files->page);
    if (v->draws) kvf__json_put(object, "draws:I", v->draws);
    if (v->ensembles)
        kvf_json_set(object, "ensembles", cli_ensembles_run(c, kvf_json_get(object, "runs")));
    kvf__json_put(object, "bare:o options:o", bare_base(c), cli_comparison_shared(c));
    kvf_json_set(object, "about", about(c));
    kvf_status st = kvf__compare_summary(call->ctx, v->train.base, object);
    if (!st && v->quick) cli_quick_end(c, object);
    const bool force = v->force || v->resume;
    if (!st) st = kvf__compare_page(call->ctx, object, files->page, force, NULL);
    if (!st) st = kvf__compare_picture(call->ctx, object, files->picture, force);
    int code = st ? cli_fail_status(call, st) : CLI_OK;
    if (!code && call->common.json) return cli_print_json(call, object);
    if (!code) cli_comparison_print(object);
    if (!code) cli_quick_print(object);
    kvf_json_free(object);
    return code;
}

/* Checks that the folder and a file in it can be written, before hours of work. */
static int check_output(const cli_comparison *c, const char *name, char path[4096])
{
    const cli_compare_values *v = c->values;
    const cli_call *call = c->call;
    int n = snprintf(path, 4096, "%s/%s", v->out, name);
    if (n < 0 || n >= 4096) return cli_fail(call->command, "%s: the path is too long", v->out);
    if (mkdir(v->out, 0777) && errno != EEXIST)
        return cli_fail(call->command, "%s: %s", v->out, strerror(errno));
    kvf_status st = kvf__check_output(call->ctx, path, v->force || v->resume);
    return st ? cli_fail_status(call, st) : CLI_OK;
}

/* Creates the cache file that runs with --keep-states inherit; -1: each run has its own. */
static int share_states(const cli_comparison *c)
{
    char number[16];
    const int fd = kvf__states_file(c->call->ctx, c->values->out);
    if (fd < 0) return fd;
    fcntl(fd, F_SETFD, 0);
    snprintf(number, sizeof number, "%d", fd);
    setenv(KVF__STATES_FD, number, 1);
    return fd;
}

static void end_sharing(int fd)
{
    unsetenv(KVF__STATES_FD);
    if (fd >= 0) close(fd);
}

static int compare(cli_comparison *c, cli_compare_values *v)
{
    static compare_files files;
    compare_found found = {.runs = kvf_json_array(), .failed = kvf_json_array()};
    int code = check_output(c, "compare.html", files.page);
    if (!code) code = check_output(c, "compare.svg", files.picture);
    if (!code && v->quick) code = cli_quick_plan(c, v);
    if (!code) {
        const int fd = share_states(c);
        code = run_all(c, &found);
        end_sharing(fd);
    }
    const size_t n = kvf_json_size(found.runs), failed = kvf_json_size(found.failed);
    if (!code && n) code = report(c, &files, &found);
    kvf_json_free(found.runs);
    kvf_json_free(found.failed);
    if (code || !failed) return code;
    return cli_fail(c->call->command, "%zu of %zu runs failed", failed, n + failed);
}

/* Draws are seeds that also choose rows. */
static int check_runs(const cli_call *call, cli_compare_values *v)
{
    if (v->force && v->resume)
        return cli_misuse(call->command, "--force and --resume exclude each other");
    if (v->draws && cli_is_given(call, "seeds"))
        return cli_misuse(call->command, "--draws and --seeds exclude each other");
    if (v->draws) v->seeds = v->draws;
    return CLI_OK;
}

/* Checks for validation data, which the curves need. */
static int check_valid(const cli_call *call, const kvf_train_options *o)
{
    if (!o->data && !o->named_data.n) return cli_misuse(call->command, "--data FILE is needed");
    if (o->valid || o->named_valid.n || o->valid_split > 0) return CLI_OK;
    return cli_misuse(call->command, "--valid FILE or --valid-split X is needed");
}

static int run(cli_call *call)
{
    static cli_comparison c;
    cli_compare_values v = {.train = kvf_train_defaults(),
                            .methods = "mlp,direct",
                            .steps = 100,
                            .seeds = 1,
                            .minutes = 10};
    int code = cli_set_values(call, &v);
    if (!code && v.quick) code = cli_quick_begin(call, &v);
    if (!code) code = check_valid(call, &v.train);
    if (!code) code = check_runs(call, &v);
    if (!code && kvf__check_alone(call->ctx, "a comparison"))
        code = cli_fail_status(call, KVF_EUSAGE);
    if (code) return code;
    code = cli_comparison_init(&c, call, &v);
    if (!code) code = cli_ensembles_check(&c);
    if (!code) code = compare(&c, &v);
    cli_comparison_done(&c);
    return code;
}

const cli_command cli_compare = {
    .name = "compare",
    .group = CLI_TRAIN,
    .synopsis = "--base PATH --data FILE --valid FILE --out DIR [options]",
    .summary = "Trains methods, or the rows of an experiment, with the same data and budget, "
               "and prints one table.",
    .notes =
        "The table has a line for the bare base and one for each method. Its columns are "
        "trained values, their share of all parameters, size of the merged file, speed, "
        "peak memory, and loss and score of the best checkpoints as mean and range over the "
        "seeds. The last one is the mean difference to the first method over equal seeds, "
        "with its standard error. --json also has every run. DIR/compare.html has the table "
        "and the curves.\n"
        "\n"
        "--quick takes three methods by task and number of rows: `mlp`, `adapter`, and `mlp` with "
        "virtual neurons or `direct`. Forecasts set the number of steps, so that all runs fit "
        "into --minutes on an idle machine.\n"
        "\n"
        "Baselines are added. For task lm it is the loss of the bare base. Other tasks need "
        "a head, so method head, the head alone on the frozen base, is trained as the "
        "others are. Several tasks (--data NAME=FILE) have no baseline.\n"
        "\n"
        "Options of one method follow its name, --methods mlp,full:lr=3e-4:clip=0. Options "
        "of train, and those of --options FILE, apply to every method that supports them. "
        "An experiment, --recipe FILE, has rows and axes in sections: `kvfold help "
        "experiments`. All options are checked before the first training.\n"
        "\n"
        "Some options of train are refused: --method, which has a list here; --dry-run, since "
        "every run is checked first; --forecast, --log and --tensorboard, where the runs "
        "would write to one place.\n"
        "\n"
        "--resume continues a comparison that was stopped. DIR/NAME.json has the arguments and "
        "results of each run. Finished runs are read back, others continue at their last "
        "save. Arguments must be equal, --threads excepted.\n"
        "\n"
        "Each run is a separate process, so that its peak memory can be measured. With "
        "--keep-states the runs share one unnamed temporary file in DIR, and cache nothing "
        "in memory. A run that cannot be merged has no file size. If a run fails, the "
        "others continue and the reason is printed.\n",
    .usual = "data: base data valid out map task labels max-length\n"
             "what to compare: methods inits seeds draws rows quick minutes recipe options resume\n"
             "every run: steps eval-every prefix-length lr batch-size precision threads help\n",
    .examples = "  kvfold compare --quick --base MODEL --data reviews.tsv --task seq-cls \\\n"
                "      --out quick\n"
                "  kvfold compare --base MODEL --data train.jsonl --valid valid.jsonl \\\n"
                "      --methods mlp,direct,adapter --seeds 3 --out runs\n"
                "  kvfold compare --base MODEL --data sst2.tsv --valid dev.tsv --task seq-cls \\\n"
                "      --methods mlp,mlp:ffn-length=32,full:lr=1e-4 --steps 400 --out runs\n"
                "  kvfold compare --base MODEL --data sst2.tsv --valid dev.tsv --task seq-cls \\\n"
                "      --rows 64 --draws 5 --out few\n"
                "  kvfold compare --recipe experiment.txt --base MODEL --out runs\n",
    .required = "base out",
    .needs = "minutes>quick",
    .train_row = kvf__compare_option_row,
    .train_offset = offsetof(cli_compare_values, train),
    .refusal = kvf__compare_refusal,
    .sections = &cli_train,
    CLI_ROWS(OPTIONS),
    .lab = true,
    .run = run,
};
