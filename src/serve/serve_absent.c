/* kvf_serve in a build without libmicrohttpd: returns an error. */
#include <kvfold/serve.h>

#include "base_int.h"

kvf_serve_options kvf_serve_defaults(void)
{
    return (kvf_serve_options){.host = "127.0.0.1", .port = 8080};
}

kvf_status kvf_serve(kvf_ctx *ctx, kvf_base *base, const kvf_serve_options *options,
                     kvf_serve_totals *totals)
{
    (void)base;
    (void)options;
    (void)totals;
    return kvf__fail(ctx, KVF_EUNSUPPORTED, "this kvfold was built without libmicrohttpd");
}
