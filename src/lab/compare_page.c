/* Writes the page of a comparison and the chart of its scores as files. */
#include "compare_hooks.h"

#include "base_int.h"
#include "outfile.h"
#include "report_int.h"

kvf_status kvf__compare_page(kvf_ctx *ctx, const kvf_json *object, const char *out, bool force,
                             int64_t *bytes)
{
    kvf__buf page = {0};
    kvf_status st = kvf__comparison_page(ctx, object, &page);
    if (!st) st = kvf__write_file(ctx, out, force, page.data, page.n);
    if (!st && bytes) *bytes = (int64_t)page.n;
    kvf__buf_done(&page);
    return st;
}

kvf_status kvf__compare_picture(kvf_ctx *ctx, const kvf_json *object, const char *out, bool force)
{
    kvf__buf picture = {0};
    kvf_status st = kvf__ranges_picture(ctx, object, &picture);
    if (!st && picture.n) st = kvf__write_file(ctx, out, force, picture.data, picture.n);
    kvf__buf_done(&picture);
    return st;
}
