/* Prints the metrics of cases for peers/metrics.py, which compares them with the reference
 * libraries; built, not run, by the tests.
 *
 * Reads one JSON object per line from standard input (metric_case.h) and answers each with one
 * line: {"v": [numbers], "names": [types]} or {"error": "..."}. NaN is written as null. */
#include "metric_case.h"

#include <stdio.h>

static kvf_json *answer(const metric_result *r)
{
    kvf_json *all = kvf_json_object(), *v = kvf_json_array(), *names = kvf_json_array();

    for (size_t i = 0; i < r->n; i++)
        kvf_json_add(v, kvf_json_new_real(r->v[i]));
    for (size_t i = 0; i < r->n_names; i++)
        kvf_json_add(names, kvf_json_new_str(r->names[i]));
    kvf_json_set(all, "v", v);
    kvf_json_set(all, "names", names);
    return all;
}

static kvf_status line(kvf_ctx *ctx, const char *text, size_t n)
{
    kvf_json *c = NULL, *said;
    metric_result r = {0};
    char *shown;
    kvf_status st;

    KVF_TRY(kvf_json_parse(ctx, "input", text, n, &c));
    st = metric_case(ctx, c, &r);
    said = st ? kvf_json_object() : answer(&r);
    if (st) kvf_json_set(said, "error", kvf_json_new_str(kvf_ctx_error(ctx)));
    shown = kvf_json_text(said, KVF_JSON_COMPACT);
    puts(shown ? shown : "out of memory");
    kvf_json_text_free(shown);
    kvf_json_free(said);
    kvf_json_free(c);
    metric_result_done(&r);
    return st == KVF_EDATA ? KVF_OK : st;
}

int main(void)
{
    kvf_ctx *ctx = NULL;
    char *text = NULL;
    size_t cap = 0;
    ssize_t n;
    kvf_status st = kvf_ctx_create(NULL, &ctx);

    while (!st && (n = getline(&text, &cap, stdin)) > 0)
        st = line(ctx, text, (size_t)n);
    if (st) fprintf(stderr, "dump_metrics: %s\n", ctx ? kvf_ctx_error(ctx) : "no context");
    free(text);
    kvf_ctx_free(ctx);
    return st ? 1 : 0;
}
