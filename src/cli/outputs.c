/* What a command writes is never one of the files that it was given to read, by whatever name.
 *
 * The library asks the same of the options it knows; here are recipes, grids and data that only the
 * command reads. Which options name files is what their rows say. */
#include "cli_int.h"

#include <string.h>
#include <sys/stat.h>

static bool is_output(const char *name)
{
    static const char *const OUTPUTS[] = {"out", "out-base", "log", "curve"};
    for (size_t i = 0; i < sizeof OUTPUTS / sizeof OUTPUTS[0]; i++)
        if (!strcmp(name, OUTPUTS[i])) return true;
    return false;
}

static bool is_input(const cli_call *call, const cli_given *given)
{
    const kvf_option_row *row = cli_row_find(call->command, given->name);
    return row && row->argument && given->value && !is_output(given->name) &&
           (strstr(row->argument, "FILE") || strstr(row->argument, "PATH"));
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && S_ISREG(x.st_mode) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

static int check_output(const cli_call *call, const char *out)
{
    bool read = false;
    for (size_t i = 0; i < call->n_operands; i++)
        read |= same_file(out, call->operands[i]);
    for (size_t i = 0; i < call->n_given; i++)
        read |= is_input(call, &call->given[i]) && same_file(out, call->given[i].value);
    if (!read) return CLI_OK;
    return cli_misuse(call->command, "%s: is read by this command, it will not be replaced", out);
}

int cli_check_outputs(const cli_call *call)
{
    int code = CLI_OK;
    for (size_t i = 0; i < call->n_given && !code; i++)
        if (is_output(call->given[i].name)) code = check_output(call, call->given[i].value);
    return code;
}
