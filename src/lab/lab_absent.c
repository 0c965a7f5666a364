/* The functions of the lab in a build without it: they return errors. */
#include "base_int.h"
#include "compare_hooks.h"
#include "hooks.h"

#include <kvfold/bench.h>
#include <kvfold/lab.h>

const bool kvf__has_lab = false;

static kvf_status absent(kvf_ctx *ctx)
{
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "this kvfold was built without the lab: build it with -Dlab=enabled");
}

#define ABSENT(name, ...)                                                                          \
    kvf_status name(kvf_ctx *ctx, __VA_ARGS__)                                                     \
    {                                                                                              \
        return absent(ctx);                                                                        \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
ABSENT(kvf_words, kvf_base *base, const kvf_prefix *prefix, const kvf_words_options *options,
       kvf_words_result *result, kvf_json **json)
ABSENT(kvf_report, const kvf_report_options *options, int64_t *bytes)
ABSENT(kvf_prune, const kvf_prune_options *options, kvf_prune_result *result, kvf_json **json)
ABSENT(kvf_sweep, const kvf_sweep_options *options, kvf_sweep_result *result, kvf_json **json)
ABSENT(kvf_bench_open, const kvf_bench_options *options, kvf_bench **out)
ABSENT(kvf_bench_run, const kvf_bench_options *options, kvf_bench_result *result)
ABSENT(kvf__compare_summary, const char *base, kvf_json *object)
ABSENT(kvf__compare_page, const kvf_json *object, const char *out, bool force, int64_t *bytes)
ABSENT(kvf__compare_picture, const kvf_json *object, const char *out, bool force)

/* No object of the lab can exist, so there is nothing to step, describe or free. */
kvf_status kvf_bench_step(kvf_bench *bench, bool measured, kvf_bench_step_result *out)
{
    return KVF_EUNSUPPORTED;
}
void kvf_bench_summary(const kvf_bench *bench, kvf_bench_result *out)
{
}
void kvf_bench_close(kvf_bench *bench)
{
}
void kvf_words_result_done(kvf_words_result *result)
{
}
void kvf_prune_result_done(kvf_prune_result *result)
{
}
void kvf_sweep_result_done(kvf_sweep_result *result)
{
}
const char *kvf_bench_shape(size_t index)
{
    return NULL;
}
kvf_bench_options kvf_bench_defaults(void)
{
    return (kvf_bench_options){0};
}
kvf_report_options kvf_report_defaults(void)
{
    return (kvf_report_options){0};
}
