/* Opens base and prefixes for several commands. */
#include "cli_model.h"

int cli_model_open(const cli_call *call, const cli_model_options *o, cli_model *out)
{
    kvf_session_options options = o->open;
    if (o->prefixes.n) {
        options.more = o->prefixes.item + 1;
        options.n_more = o->prefixes.n - 1;
    }
    const char *first = o->prefixes.n ? o->prefixes.item[0] : NULL;
    kvf_status st = kvf_session_open(call->ctx, o->base, first, &options, &out->session);
    if (st) return cli_fail_status(call, st);
    out->base = kvf_session_base(out->session);
    out->prefixes = kvf_session_prefixes(out->session, &out->n);
    return CLI_OK;
}

void cli_model_close(cli_model *model)
{
    kvf_session_close(model->session);
    *model = (cli_model){0};
}
