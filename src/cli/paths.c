/* Checks the paths of a command line before anything is opened. Rows tell which options name files.
 * `-` is standard input or output if a file is read or written once, front to back. An output is
 * never one of the input files under any name. The library checks its own inputs with the same
 * function; recipes and grids are read only by the command, so all options are checked here. */
#include "cli_int.h"

#include <string.h>
#include <sys/stat.h>

static const struct {
    const char *command, *option, *path;
} STREAMS[] = {
    {"eval", "data", CLI_STDIN},         {"predict", "data", CLI_STDIN},
    {"predict", "out", CLI_STDOUT},      {"score", "data", CLI_STDIN},
    {"score", "out", CLI_STDOUT},        {"generate", "data", CLI_STDIN},
    {"serve", "access-log", CLI_STDOUT}, {"train", "log", CLI_STDOUT},
    {"train", "recipe", CLI_STDIN},      {"sweep", "recipe", CLI_STDIN},
    {"compare", "recipe", CLI_STDIN},
};

/* Returns the path that `-` stands for; NULL: the option accepts no stream. */
static const char *stream_of(const cli_call *call, const char *option)
{
    for (size_t i = 0; i < sizeof STREAMS / sizeof STREAMS[0]; i++)
        if (!strcmp(STREAMS[i].command, call->command->name) && !strcmp(STREAMS[i].option, option))
            return STREAMS[i].path;
    return NULL;
}

static bool is_output(const char *name)
{
    static const char *const OUTPUTS[] = {"out", "out-base", "log", "curve", "access-log"};
    for (size_t i = 0; i < sizeof OUTPUTS / sizeof OUTPUTS[0]; i++)
        if (!strcmp(name, OUTPUTS[i])) return true;
    return false;
}

static bool is_path(const cli_call *call, const cli_given *given)
{
    const kvf__option_row *row = cli_row_find(call->command, given->name);
    return row && row->argument && given->value &&
           (is_output(given->name) || *given->value == '@' || strstr(row->argument, "FILE") ||
            strstr(row->argument, "PATH") || strstr(row->argument, "FOLDER"));
}

static bool is_input(const cli_call *call, const cli_given *given)
{
    return is_path(call, given) && !is_output(given->name);
}

/* True for "-", or with several tasks "NAME=-". */
static bool is_dash(const char *value)
{
    const char *equals = strrchr(value, '=');
    return !strcmp(value, "-") || (equals && !strcmp(equals, "=-"));
}

static int no_stream(const cli_call *call, const cli_given *given)
{
    const char *why = is_output(given->name) ? "it is written as a whole"
                      : call->command->group == CLI_TRAIN
                          ? "--resume must read it again, but standard input can be read only once"
                          : "standard input can be read only once, in order";
    return cli_misuse_at(call->command, given, "--%s %.64s: %s: want a file", given->name,
                         given->value, why);
}

int cli_set_streams(cli_call *call)
{
    const char *reads = NULL, *writes = call->common.json ? "json" : NULL;
    for (size_t i = 0; i < call->n_given; i++) {
        cli_given *given = &call->given[i];
        if (!is_path(call, given) || !is_dash(given->value)) continue;
        const char *path = stream_of(call, given->name);
        if (!path || strcmp(given->value, "-")) return no_stream(call, given);
        const char **taken = is_output(given->name) ? &writes : &reads;
        if (*taken && strcmp(*taken, given->name))
            return cli_misuse(call->command, "--%s and --%s %s", *taken, given->name,
                              taken == &reads ? "both read standard input"
                                              : "both write to standard output");
        *taken = given->name;
        given->value = path;
    }
    return CLI_OK;
}

static int check_output(const cli_call *call, const char *out)
{
    kvf_status st = KVF_OK;
    for (size_t i = 0; i < call->n_operands && !st; i++)
        st = kvf__check_not_input(call->ctx, out, call->operands[i]);
    for (size_t i = 0; i < call->n_given && !st; i++)
        if (is_input(call, &call->given[i]))
            st = kvf__check_not_input(call->ctx, out, call->given[i].value);
    return st ? cli_fail_status(call, st) : CLI_OK;
}

int cli_check_outputs(const cli_call *call)
{
    int code = CLI_OK;
    for (size_t i = 0; i < call->n_given && !code; i++)
        if (is_output(call->given[i].name)) code = check_output(call, call->given[i].value);
    return code;
}

/* Opening a prefix reports folders itself; a value of FILE|N,N,... may be a number. */
static bool wants_file(const cli_call *call, const cli_given *given)
{
    const kvf__option_row *row = cli_row_find(call->command, given->name);
    return is_input(call, given) && strstr(row->argument, "FILE") && !strchr(row->argument, '|') &&
           strcmp(given->name, "tokenizer") != 0;
}

static kvf_status check_given_path(const cli_call *call, const cli_given *given)
{
    const char *path = given->value;
    if (is_output(given->name) && strcmp(path, CLI_STDOUT) != 0) {
        bool force = !strcmp(given->name, "access-log"); /* it is appended to */
        for (size_t i = 0; i < call->n_given; i++)
            if (!strcmp(call->given[i].name, "force"))
                force = !call->given[i].value || !strcmp(call->given[i].value, "true");
        return kvf__check_output(call->ctx, path, force);
    }
    if (!wants_file(call, given)) return KVF_OK;
    if (strchr(cli_row_find(call->command, given->name)->argument, '=') && strchr(path, '='))
        path = strchr(path, '=') + 1;
    if (!strcmp(given->name, "prefix")) return kvf__check_prefix_input(call->ctx, path);
    return kvf__check_input(call->ctx, path);
}

int cli_check_paths(const cli_call *call)
{
    kvf_status st = KVF_OK;
    struct stat info;
    for (size_t i = 0; i < call->n_operands && !st; i++)
        if (stat(call->operands[i], &info) < 0) st = kvf__check_input(call->ctx, call->operands[i]);
    for (size_t i = 0; i < call->n_given && !st; i++)
        st = check_given_path(call, &call->given[i]);
    return st ? cli_fail_status(call, st) : CLI_OK;
}
