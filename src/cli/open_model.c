/* Base and prefixes as several commands open them. */
#include "cli_model.h"

int cli_model_open(const cli_call *call, const cli_model_options *o, cli_model *out)
{
    const kvf_session_options options = {.base = o->how,
                                         .checkpoint = o->checkpoint,
                                         .head = o->head,
                                         .drop_layers = o->drop_layers,
                                         .allow_other_base = o->allow_other_base,
                                         .own_head = o->own_head,
                                         .more = o->prefixes.n ? o->prefixes.item + 1 : NULL,
                                         .n_more = o->prefixes.n ? o->prefixes.n - 1 : 0};
    const char *first = o->prefixes.n ? o->prefixes.item[0] : NULL;
    kvf_session *session = NULL;
    kvf_status st = kvf_session_open(call->ctx, o->base, first, &options, &session);
    if (st) return cli_fail_status(call, st);
    out->session = session;
    out->base = kvf_session_base(session);
    out->prefixes = kvf_session_prefixes(session, &out->n);
    return CLI_OK;
}

void cli_model_close(cli_model *model)
{
    kvf_session_close(model->session);
    *model = (cli_model){0};
}
