/* kvfold compare: methods, and the starting values they allow, on one base, one data set and one
 * budget; one table.
 *
 * Every run is a process of its own (train, then merge, by this program): the largest resident
 * memory of a process never falls again, so a second run in one process could not be measured. */
#include "cli_int.h"

#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef struct compare_values {
    const char *base, *data, *valid, *methods, *inits, *init_text, *recipe, *out;
    int64_t steps, seeds;
    bool force;
} compare_values;

#define AT(field) offsetof(compare_values, field)
static const kvf__option_row OPTIONS[] = {
    {"base", "PATH", "", KVF_TEXT, AT(base), "base model"},
    {"data", "FILE", "", KVF_TEXT, AT(data), "training data"},
    {"valid", "FILE", "", KVF_TEXT, AT(valid), "held-out data, which gives the score"},
    {"methods", "A,B,...", "mlp,direct", KVF_TEXT, AT(methods), "methods of train to compare"},
    {"inits", "A,B,...", "the method's", KVF_TEXT, AT(inits), "values of --init to compare"},
    {"init-text", "TEXT", "", KVF_TEXT, AT(init_text), "text for the init text"},
    {"steps", "N", "100", KVF_POSITIVE, AT(steps), "optimizer steps of every run"},
    {"seeds", "N", "1", KVF_POSITIVE, AT(seeds), "runs of each with the seeds 0 to N-1"},
    {"options", "FILE", "", KVF_TEXT, AT(recipe), "further options of train, as in a recipe"},
    {"out", "DIR", "", KVF_TEXT, AT(out), "folder for the run files and what they fold to"},
    {"force", NULL, "", KVF_FLAG, AT(force), "replace existing outputs"},
};
enum { MOST_ARGUMENTS = 40, MOST_NAMES = 16 };

/* ---- a process of our own -------------------------------------------------------------------- */

typedef struct arguments {
    const char *at[MOST_ARGUMENTS + 1]; /* ends in NULL */
    size_t n;
} arguments;

/* value NULL: the option is left out; "": a flag. */
static void add(arguments *a, const char *option, const char *value)
{
    if (!value) return;
    a->at[a->n++] = option;
    if (*value) a->at[a->n++] = value;
}

/* Runs this program; *text: its standard output. Returns its exit status, -1 if it did not run. */
static int run_self(const arguments *a, char **text)
{
    int ends[2], status = -1;
    size_t size = 0;
    pid_t child;
    posix_spawn_file_actions_t actions;
    *text = NULL;
    if (pipe(ends)) return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    int failed = posix_spawn(&child, "/proc/self/exe", &actions, NULL, (char *const *)a->at,
                             environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    if (!output) close(ends[0]);
    if (output && !failed && getdelim(text, &size, 0, output) < 0 &&
        *text) /* JSON has no zero byte */
        **text = 0;
    if (output) fclose(output);
    while (!failed && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return failed || !WIFEXITED(status) ? -1 : WEXITSTATUS(status);
}

/* The JSON object that a command printed; NULL: it failed, with its line on stderr. */
static kvf_json *object_of(const cli_call *call, arguments *a, const char *threads)
{
    kvf_json *object = NULL;
    char *text = NULL;
    add(a, "--threads", threads);
    add(a, "--json", "");
    int status = run_self(a, &text);
    if (!status && text && kvf_json_parse(call->ctx, a->at[1], text, strlen(text), &object))
        cli_fail(call->command, "%s", kvf_ctx_error(call->ctx));
    if (status) cli_fail(call->command, "%s for %s failed", a->at[1], a->at[3]);
    free(text);
    return object;
}

/* ---- one run --------------------------------------------------------------------------------- */

typedef struct cell {
    const char *method, *init; /* init NULL: the method's own */
    int64_t seed;
    char run[4096], folded[4096];
} cell;

static bool name_files(cell *c, const char *folder)
{
    char name[256];
    snprintf(name, sizeof name, "%s%s%s-%lld", c->method, c->init ? "-" : "",
             c->init ? c->init : "", (long long)c->seed);
    int n = snprintf(c->run, sizeof c->run, "%s/%s.run.h5", folder, name);
    int m = snprintf(c->folded, sizeof c->folded, "%s/%s.h5", folder, name);
    return n > 0 && m > 0 && (size_t)n < sizeof c->run && (size_t)m < sizeof c->folded;
}

static void copy(kvf_json *to, const kvf_json *from, const char *key)
{
    const kvf_json *value = kvf_json_get(from, key);
    const char *text = kvf_json_str(value, NULL);
    if (!value) return;
    kvf_json_set(to, key,
                 text ? kvf_json_new_str(text)
                 : kvf_json_typeof(value) == KVF_JSON_INT
                     ? kvf_json_new_int(kvf_json_int(value, 0))
                     : kvf_json_new_real(kvf_json_real(value, NAN)));
}

/* merged NULL: the run does not fold. */
static kvf_json *row_of(const cell *c, const kvf_json *trained, const kvf_json *merged)
{
    static const char *const KEYS[] = {
        "trainable_parameters", "steps",     "tokens",          "seconds",     "tokens_per_second",
        "peak_rss_bytes",       "precision", "best_valid_loss", "best_metric", "best_value"};
    kvf_json *init = c->init ? kvf_json_new_str(c->init) : kvf_json_new_null();
    kvf_json *row = cli_json("method:s init:o seed:I", c->method, init, c->seed);
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++)
        copy(row, trained, KEYS[i]);
    const kvf_json *bytes = kvf_json_get(merged, "bytes");
    kvf_json_set(row, "bytes",
                 bytes ? kvf_json_new_int(kvf_json_int(bytes, 0)) : kvf_json_new_null());
    return row;
}

static int run_cell(const cli_call *call, const compare_values *v, cell *c, const char *threads,
                    kvf_json *rows)
{
    char steps[32], seed[32];
    if (!name_files(c, v->out)) return cli_fail(call->command, "%s: too long", v->out);
    snprintf(steps, sizeof steps, "%lld", (long long)v->steps);
    snprintf(seed, sizeof seed, "%lld", (long long)c->seed);
    arguments train = {.at = {"kvfold", "train", "--method", c->method}, .n = 4};
    add(&train, "--base", v->base);
    add(&train, "--data", v->data);
    add(&train, "--valid", v->valid);
    add(&train, "--recipe", v->recipe);
    add(&train, "--init", c->init);
    if (c->init && !strcmp(c->init, "text")) add(&train, "--init-text", v->init_text);
    add(&train, "--steps", steps);
    add(&train, "--seed", seed);
    add(&train, "--out", c->run);
    add(&train, "--force", v->force ? "" : NULL);
    add(&train, "--quiet", call->common.quiet ? "" : NULL);
    kvf_json *trained = object_of(call, &train, threads);
    if (!trained) return CLI_FAILED;
    arguments merge = {.at = {"kvfold", "merge", "--out", c->folded, c->run}, .n = 5};
    add(&merge, "--base", v->base);
    add(&merge, "--force", v->force ? "" : NULL);
    kvf_json *merged = object_of(call, &merge, threads);
    kvf_json_add(rows, row_of(c, trained, merged));
    kvf_json_free(trained);
    kvf_json_free(merged);
    return CLI_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

typedef struct names {
    const char *at[MOST_NAMES];
    size_t n;
    char *text;
} names;

/* "a,b,c". */
static int split(const cli_call *call, const char *option, const char *list, names *out)
{
    char *rest = NULL;
    out->text = strdup(list);
    if (!out->text) return cli_fail(call->command, "out of memory");
    for (char *name = strtok_r(out->text, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        if (out->n == MOST_NAMES || strchr(name, '/'))
            return cli_misuse(call->command, "--%s \"%s\": want up to %d names", option, list,
                              (int)MOST_NAMES);
        out->at[out->n++] = name;
    }
    return out->n ? CLI_OK : cli_misuse(call->command, "--%s names nothing", option);
}

static int split_all(const cli_call *call, const compare_values *v, names *methods, names *inits)
{
    bool has_text = false;
    int code = split(call, "methods", v->methods, methods);
    if (!code && v->inits) code = split(call, "inits", v->inits, inits);
    for (size_t i = 0; i < inits->n; i++)
        has_text |= !strcmp(inits->at[i], "text");
    if (!code && v->init_text && !has_text)
        code = cli_misuse(call->command, "--init-text is for text among --inits");
    return code;
}

static int run_all(const cli_call *call, const compare_values *v, const names *methods,
                   const names *inits, kvf_json *rows)
{
    static cell c;
    const char *threads = cli_given_value(call, "threads");
    if (mkdir(v->out, 0777) && errno != EEXIST)
        return cli_fail(call->command, "%s: %s", v->out, strerror(errno));
    for (size_t m = 0; m < methods->n; m++)
        for (size_t i = 0; i < (inits->n ? inits->n : 1); i++)
            for (int64_t seed = 0; seed < v->seeds; seed++) {
                c = (cell){
                    .method = methods->at[m], .init = inits->n ? inits->at[i] : NULL, .seed = seed};
                int code = run_cell(call, v, &c, threads, rows);
                if (code) return code;
            }
    return CLI_OK;
}

static void print_table(const kvf_json *rows)
{
    printf("%-10s %-7s %4s %12s %11s %9s %11s %10s  score\n", "method", "init", "seed",
           "parameters", "stored", "tokens/s", "peak memory", "valid loss");
    for (size_t i = 0; i < kvf_json_size(rows); i++) {
        const kvf_json *r = kvf_json_at(rows, i);
        const char *init = kvf_json_str(kvf_json_get(r, "init"), NULL);
        const char *metric = kvf_json_str(kvf_json_get(r, "best_metric"), NULL);
        int64_t bytes = cli_int_at(r, "bytes");
        char stored[32], memory[32];
        printf("%-10s %-7s %4lld %12lld %11s %9.0f %11s %10.4f", cli_text_at(r, "method"),
               init ? init : "-", cli_int_at(r, "seed"), cli_int_at(r, "trainable_parameters"),
               bytes ? cli_bytes_text(bytes, stored) : "-", cli_real_at(r, "tokens_per_second"),
               cli_bytes_text(cli_int_at(r, "peak_rss_bytes"), memory),
               cli_real_at(r, "best_valid_loss"));
        if (metric) printf("  %s %.4f", metric, cli_real_at(r, "best_value"));
        putchar('\n');
    }
}

static int report(const cli_call *call, const compare_values *v, kvf_json *rows)
{
    if (!call->common.json) {
        print_table(rows);
        kvf_json_free(rows);
        return CLI_OK;
    }
    return cli_print_json(call, cli_json("out:s steps:I runs:o", v->out, v->steps, rows));
}

static int run(cli_call *call)
{
    compare_values v = {.methods = "mlp,direct", .steps = 100, .seeds = 1};
    names methods = {.n = 0}, inits = {.n = 0};
    kvf_json *rows = kvf_json_array();
    int code = cli_set_values(call, &v);
    if (!code && !rows) code = cli_fail(call->command, "out of memory");
    if (!code && kvf__check_alone(call->ctx, "a comparison"))
        code = cli_fail_status(call, KVF_EUSAGE);
    if (!code) code = split_all(call, &v, &methods, &inits);
    if (!code) code = run_all(call, &v, &methods, &inits, rows);
    free(methods.text);
    free(inits.text);
    if (!kvf_json_size(rows)) {
        kvf_json_free(rows);
        return code;
    }
    int reported = report(call, &v, rows); /* of the runs before one that failed, too */
    return code ? code : reported;
}

const cli_command cli_compare = {
    .name = "compare",
    .group = CLI_TRAIN,
    .synopsis = "--base PATH --data FILE --valid FILE --out DIR [options]",
    .summary = "Trains methods on the same data and budget, and prints one table.",
    .notes = "Each run is a process of its own, so that its peak memory can be measured.\n"
             "A run that does not fold has no stored size.\n",
    .required = "base data valid out",
    CLI_ROWS(OPTIONS),
    .run = run,
};
