/* What a command writes is never one of the files that it was given to read, by whatever name.
 *
 * The library asks that of what it reads itself, by the same function; recipes and grids are read
 * by the command alone, so all options are asked here. Which name files is what their rows say. */
#include "cli_int.h"

#include <string.h>

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

static int check_output(const cli_call *call, const char *out)
{
    kvf_status st = KVF_OK;
    for (size_t i = 0; i < call->n_operands && !st; i++)
        st = kvf_check_not_input(call->ctx, out, call->operands[i]);
    for (size_t i = 0; i < call->n_given && !st; i++)
        if (is_input(call, &call->given[i]))
            st = kvf_check_not_input(call->ctx, out, call->given[i].value);
    return st ? cli_fail_status(call, st) : CLI_OK;
}

int cli_check_outputs(const cli_call *call)
{
    int code = CLI_OK;
    for (size_t i = 0; i < call->n_given && !code; i++)
        if (is_output(call->given[i].name)) code = check_output(call, call->given[i].value);
    return code;
}
