/* What the tools for prefix files have in common with eval: a prefix measured on a base and data.
 */
#include "cli_int.h"

int cli_tool_eval(const cli_call *call, const cli_tool_values *tool, const char *path,
                  kvf_eval_result *result)
{
    const cli_model_paths paths = {
        .base = tool->base,
        .precision = tool->precision,
        .checkpoint = tool->checkpoint,
        .prefixes = {&path, 1},
        .allow_other_base = tool->allow_other_base,
        .head = tool->head,
    };
    cli_model model;
    int code = cli_model_open(call, &paths, &model);
    if (code) return code;
    kvf_status st = kvf_eval(call->ctx, model.base, model.prefixes, 1, &tool->eval, result);
    cli_model_close(&model);
    return st ? cli_fail_status(call, st) : CLI_OK;
}
