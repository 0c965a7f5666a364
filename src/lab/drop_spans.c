/* Measures a base without the adapters of every span of layers (Houlsby et al. 2019, the figure on
 * ablated spans): one loss and one score for each first and last layer. Also measures how close
 * each adapter is to the identity, as the norm of its output relative to its input. Each span is a
 * separate evaluation, as in kvf_eval. */
#include "evaluation.h"
#include "outfile.h"
#include "report_int.h"

#include <kvfold/lab.h>

#include <math.h>
#include <string.h>

typedef struct span_run {
    kvf_ctx *ctx;
    kvf_base *base;
    kvf_prefix *prefix;
    const kvf_drop_spans_options *options;
    kvf__adapters *adapters;
    int64_t L;
    const char *metric; /* "loss": the task has no other */
} span_run;

/* ---- spans ----------------------------------------------------------------------------------- */

/* Measures with the current adapters, and adds {"loss", "value"} to the object. */
static kvf_status measure(span_run *s, kvf_json *object)
{
    kvf_eval_result result = {0};
    KVF_TRY(kvf_eval(s->ctx, s->base, &s->prefix, 1, &s->options->eval, &result));
    s->metric = result.n_scores ? result.scores[0].name : "loss";
    kvf__json_put(object, "loss:f value:f", result.loss,
                  result.n_scores ? result.scores[0].value : result.loss);
    kvf_eval_result_done(&result);
    return KVF_OK;
}

static kvf_status measure_span(span_run *s, int64_t first, int64_t last, kvf_json *spans)
{
    kvf_json *span = kvf__json_of("first:I last:I", first, last);
    kvf__adapters_restore(s->adapters);
    kvf_json_add(spans, span);
    KVF_TRY(kvf__adapters_drop(s->ctx, s->adapters, first, last));
    return measure(s, span);
}

static kvf_status measure_spans(span_run *s, kvf_json *spans)
{
    const int64_t n = s->L * (s->L + 1) / 2;
    for (int64_t first = 0, done = 0; first < s->L; first++)
        for (int64_t last = first; last < s->L; last++) {
            KVF_TRY(measure_span(s, first, last, spans));
            if (s->options->progress) s->options->progress(s->options->user, ++done, n);
        }
    return KVF_OK;
}

/* ---- how near to the identity ---------------------------------------------------------------- */

/* sizes [L, 2, 2] as in kvf__input. */
static kvf_status walk_sizes(span_run *s, double *sizes)
{
    kvf__evaluation trial = {.task = s->prefix->task};
    const kvf__evaluator_options how = {.P = 0};
    kvf__subject subject = kvf__subject_of(s->prefix, NULL);
    double loss;
    subject.adapter_sizes = sizes;
    kvf_status st = kvf__evaluation_rows(s->ctx, s->base, s->prefix, &s->options->eval, false,
                                         &trial);
    if (!st) st = kvf__prefix_head(s->ctx, s->base, s->prefix, &subject.head);
    if (!st) st = kvf__evaluator_create(s->ctx, s->base, &trial.set, &how, &trial.evaluator);
    if (!st) st = kvf__evaluator_run(s->ctx, trial.evaluator, &subject, &loss, NULL);
    kvf__head_free(subject.head);
    kvf__evaluation_done(&trial);
    return st;
}

/* Returns {"layer", "attn", "ffn"}: ratios; a sub-layer without adapter is omitted. */
static kvf_json *sizes_json(const span_run *s, const double *sizes)
{
    static const char *const HALVES[] = {"attn", "ffn"};
    kvf_json *layers = kvf_json_array();
    for (int64_t l = 0; l < s->L; l++) {
        kvf_json *layer = kvf__json_of("layer:I", l);
        for (int half = 0; half < 2; half++) {
            const double *of = sizes + (2 * l + half) * 2;
            if (of[1] > 0)
                kvf_json_set(layer, HALVES[half], kvf_json_new_real(sqrt(of[0] / of[1])));
        }
        kvf_json_add(layers, layer);
    }
    return layers;
}

static kvf_status measure_sizes(span_run *s, kvf_json *object)
{
    double *sizes = NULL;
    KVF_TRY(kvf__alloc_array(s->ctx, (size_t)s->L * 4, sizeof *sizes, &sizes));
    kvf_status st = walk_sizes(s, sizes);
    if (!st) kvf_json_set(object, "added", sizes_json(s, sizes));
    kvf__free(sizes);
    return st;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static kvf_status check(span_run *s)
{
    KVF_TRY(KVF__CHECK_RESERVED(s->ctx, kvf_drop_spans_options, s->options));
    if (!s->adapters)
        return kvf__fail(s->ctx, KVF_EUSAGE, "no adapters to leave out: %s carries none",
                         s->base->path);
    return kvf__check_output(s->ctx, s->options->out, s->options->force);
}

static kvf_status run(span_run *s, kvf_json *object)
{
    kvf_json *spans = kvf_json_array();
    kvf__json_put(object, "layers:I", s->L);
    KVF_TRY(measure(s, object));
    kvf__json_put(object, "metric:s spans:o", s->metric, spans);
    KVF_TRY(measure_sizes(s, object));
    return measure_spans(s, spans);
}

static kvf_status write_page(const span_run *s, const kvf_json *object)
{
    kvf__buf page = {0};
    KVF_TRY(kvf__spans_page(s->ctx, object, &page));
    kvf_status st = kvf__write_file(s->ctx, s->options->out, s->options->force, page.data, page.n);
    kvf__buf_done(&page);
    return st;
}

static kvf_status drop_spans(kvf_ctx *ctx, kvf_base *base, kvf_prefix *prefix,
                             const kvf_drop_spans_options *options, kvf_json **json)
{
    span_run s = {.ctx = ctx,
                  .base = base,
                  .prefix = prefix,
                  .options = options,
                  .adapters = kvf__model_adapters(base->model),
                  .L = kvf__model_desc(base->model)->L};
    KVF_TRY(check(&s));
    kvf_json *object = kvf_json_object();
    kvf_status st = run(&s, object);
    kvf__adapters_restore(s.adapters);
    if (!st) st = write_page(&s, object);
    if (!st && json)
        *json = object;
    else
        kvf_json_free(object);
    return st;
}

kvf_status kvf_drop_spans(kvf_ctx *ctx, kvf_base *base, kvf_prefix *prefix,
                          const kvf_drop_spans_options *options, kvf_json **json)
{
    KVF_TRY(KVF__NEED(ctx, prefix, options));
    KVF_TRY(KVF__NEED(ctx, options->out));
    KVF_TRY(kvf__check_eval(ctx, base, &prefix, 1, &options->eval));
    KVF__RETURN(ctx, drop_spans(ctx, base, prefix, options, json));
}
