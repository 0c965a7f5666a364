/* Measures steps of a trainer set up in memory. The step is kvf__trainer_step, the same as in
 * training; bench adds the clock around it, the rate of oneDNN between two steps, and medians. */
#include <kvfold/bench.h>

#include "infile.h"
#include "rng.h"
#include "train_int.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct kvf_bench {
    kvf_ctx *ctx;
    kvf__trainer *trainer; /* owned */
    kvf__probe *probe;
    kvf_bench_step_result *steps; /* [cap] measured steps */
    double *sorted;               /* [cap] scratch for medians */
    size_t n, cap;
    double spent[KVF_BENCH_MAX_PARTS]; /* seconds by component in the measured steps */
};

kvf_bench_options kvf_bench_defaults(void)
{
    return (kvf_bench_options){
        .shape = "gpt2",
        .batch = 8,
        .length = 128,
        .prefix_length = 20,
        .encoder_hidden = 512,
        .label_fraction = 0.25,
        .steps = 7,
        .warmup = 2,
    };
}

const char *kvf_bench_shape(size_t index)
{
    return kvf__base_shape(index);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Rows have random ids, which do not affect the time, and the requested lengths, which do. */
#define ROWS_STREAM 0x726f7773 /* "rows" */
#define MOST_BYTES  (1 << 24)  /* most bytes in a file of lengths */

typedef struct lengths {
    int64_t *at;
    size_t n;
} lengths;

/* Parses numbers separated by commas or white space. */
static kvf_status parse(kvf_ctx *ctx, const char *where, const char *text, lengths *out)
{
    static const char SEPARATORS[] = ", \t\r\n";
    KVF_TRY(kvf__alloc_array(ctx, strlen(text) / 2 + 1, sizeof *out->at, &out->at));
    for (text += strspn(text, SEPARATORS); *text; text += strspn(text, SEPARATORS)) {
        char *end = NULL;
        errno = 0;
        long long number = strtoll(text, &end, 10);
        size_t n = strcspn(text, SEPARATORS);
        if (errno || end != text + n || number < 2 || number > INT32_MAX)
            return kvf__fail(ctx, KVF_EUSAGE,
                             "%s: \"%.*s\" is not a row length, want a whole number of at least 2",
                             where, (int)(n < 40 ? n : 40), text);
        out->at[out->n++] = number;
        text = end;
    }
    if (!out->n) return kvf__fail(ctx, KVF_EUSAGE, "%s: no lengths", where);
    return KVF_OK;
}

static kvf_status read_lengths(kvf_ctx *ctx, const kvf_bench_options *o, lengths *out)
{
    const char *text = o->lengths;
    if (text && text[strspn(text, "0123456789, ")]) { /* not a list: a path */
        kvf__buf file = {0};
        KVF_TRY(kvf__read_file(ctx, text, MOST_BYTES, &file));
        kvf_status st = parse(ctx, text, file.data ? file.data : "", out);
        kvf__buf_done(&file);
        return st;
    }
    if (text) return parse(ctx, "--lengths", text, out);
    KVF_TRY(kvf__alloc_array(ctx, (size_t)o->batch, sizeof *out->at, &out->at));
    for (int64_t i = 0; i < o->batch; i++)
        out->at[i] = o->length;
    out->n = (size_t)o->batch;
    return KVF_OK;
}

static int64_t labels_of(int64_t length, double share)
{
    int64_t n = llround(share * (double)length);
    if (n < 1) n = 1;
    return n < length ? n : length - 1;
}

static void fill_row(kvf__dataset *set, int64_t from, int64_t length, double share, int64_t V,
                     kvf__rng *rng)
{
    int64_t labels = labels_of(length, share);
    for (int64_t i = 0; i < length; i++) {
        int32_t id = (int32_t)kvf__rng_below(rng, (uint64_t)V);
        set->ids[from + i] = id;
        set->labels[from + i] = i < length - labels ? KVF__NO_LABEL : id;
    }
    set->n_labels += labels;
}

static kvf_status fill_rows(kvf_ctx *ctx, const kvf_bench_options *o, const lengths *rows,
                            int64_t V, int64_t most, kvf__dataset *set)
{
    kvf__rng rng = kvf__rng_make(o->seed, (uint64_t)ROWS_STREAM << 32);
    int64_t total = 0;
    for (size_t i = 0; i < rows->n; i++) {
        if (rows->at[i] > most)
            return kvf__fail(
                ctx, KVF_EUSAGE,
                "a row has %lld tokens, but the model has room for %lld after the prefix",
                (long long)rows->at[i], (long long)most);
        total += rows->at[i];
    }
    KVF_TRY(kvf__dataset_alloc_rows(ctx, set, (int64_t)rows->n, total));
    for (size_t i = 0; i < rows->n; i++) {
        set->start[i + 1] = set->start[i] + rows->at[i];
        fill_row(set, set->start[i], rows->at[i], o->label_fraction, V, &rng);
    }
    return KVF_OK;
}

/* Makes rows of random ids below V with options->length or options->lengths tokens, and labels on
 * the last share. `most`: longest row that fits. EUSAGE; EIO for a file of lengths. */
static kvf_status make_rows(kvf_ctx *ctx, const kvf_bench_options *options, int64_t V, int64_t most,
                            kvf__dataset *out)
{
    lengths rows = {0};
    kvf__dataset set = {0};
    kvf_status st = read_lengths(ctx, options, &rows);
    if (!st) st = fill_rows(ctx, options, &rows, V, most, &set);
    kvf__free(rows.at);
    KVF__GIVE(st, out, set, kvf__dataset_done(&set));
    return st;
}

/* ---- opening --------------------------------------------------------------------------------- */

static kvf_status check(kvf_ctx *ctx, const kvf_bench_options *o)
{
    const struct {
        const char *name;
        int64_t value, least;
    } counts[] = {{"batch", o->batch, 1},
                  {"length", o->length, 2},
                  {"prefix-length", o->prefix_length, 1},
                  {"encoder-hidden", o->encoder_hidden, 1}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].value < counts[i].least || counts[i].value > INT32_MAX)
            return kvf__fail(ctx, KVF_EUSAGE, "--%s %lld: want a whole number of at least %lld",
                             counts[i].name, (long long)counts[i].value,
                             (long long)counts[i].least);
    if (!(o->label_fraction > 0) || !(o->label_fraction <= 1))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--label-fraction %g: want a number above 0 and at most 1",
                         o->label_fraction);
    if (!o->base == !o->shape)
        return kvf__fail(ctx, KVF_EUSAGE, "exactly one of --shape and --base is needed, not %s",
                         o->base ? "both" : "none");
    return KVF_OK;
}

static kvf_status open_base(kvf_ctx *ctx, const kvf_bench_options *o, kvf_base **out)
{
    const kvf_base_options options = {.precision = o->precision,
                                      .backward = true,
                                      .weight_dtype = o->weight_dtype,
                                      .stream_layers = o->stream_layers,
                                      .lora = o->lora};
    if (o->base) return kvf_base_open(ctx, o->base, &options, out);
    return kvf__base_random(ctx, o->shape, &options, o->seed, out);
}

/* One epoch is one round through the rows in order. A constant rate allows more steps. Initial
 * values are random weights, because a base in memory has no words. */
static kvf_train_options train_options(const kvf_bench_options *o)
{
    kvf_train_options t = kvf_train_defaults();
    t.prefix_length = o->prefix_length;
    t.encoder_hidden = o->encoder_hidden;
    t.batch_size = o->batch;
    t.recompute = o->recompute;
    t.init = "random";
    t.epochs = 1;
    t.shuffle = false;
    t.schedule = KVF_SCHEDULE_CONSTANT;
    t.warmup = "0";
    t.seed = o->seed;
    return t;
}

static kvf_status make_trainer(kvf_bench *b, const kvf_bench_options *o)
{
    const kvf_train_options options = train_options(o);
    kvf__dataset rows = {0};
    kvf_base *base = NULL;
    KVF_TRY(open_base(b->ctx, o, &base));
    int64_t most = kvf__longest_row(base, o->prefix_length);
    kvf_status st = make_rows(b->ctx, o, kvf__model_desc(base->model)->V, most, &rows);
    if (!st) st = kvf__trainer_open_memory(b->ctx, &options, &base, &rows, &b->trainer);
    kvf__dataset_done(&rows);
    kvf_base_free(base);
    return st;
}

/* Measures the rate with a step of medium size. */
static kvf_status make_probe(kvf_bench *b, const kvf_bench_options *o)
{
    const kvf__trainer_view t = kvf__trainer_look(b->trainer);
    const kvf__dataset *rows = &t.rows->task->data;
    int64_t n = o->batch < rows->n ? o->batch : rows->n;
    int64_t tokens = rows->start[rows->n] * n / rows->n, labels = rows->n_labels * n / rows->n;
    return kvf__probe_create(b->ctx, t.run->base->model, tokens, labels ? labels : 1, &b->probe);
}

static kvf_status bench_open(kvf_ctx *ctx, const kvf_bench_options *options, kvf_bench **out)
{
    kvf_bench *b = NULL;
    KVF_TRY(check(ctx, options));
    KVF_TRY(kvf__alloc(ctx, sizeof *b, &b));
    b->ctx = ctx;
    kvf_status st = make_trainer(b, options);
    if (!st) st = make_probe(b, options);
    KVF__GIVE(st, out, b, kvf_bench_close(b));
    return st;
}

kvf_status kvf_bench_open(kvf_ctx *ctx, const kvf_bench_options *options, kvf_bench **out)
{
    KVF_TRY(KVF__NEED(ctx, options, out));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->weight_dtype, KVF_WEIGHTS_INT8));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->precision, KVF_PRECISION_INT8));
    KVF__RETURN(ctx, bench_open(ctx, options, out));
}

void kvf_bench_close(kvf_bench *bench)
{
    if (!bench) return;
    kvf__probe_free(bench->probe);
    kvf__trainer_free(bench->trainer);
    kvf__free(bench->steps);
    kvf__free(bench->sorted);
    kvf__free(bench);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Grows the array for one more step. */
static kvf_status reserve(kvf_bench *b)
{
    size_t cap = b->cap ? 2 * b->cap : 64;
    if (b->n < b->cap) return KVF_OK;
    KVF_TRY(kvf__grow(b->ctx, &b->steps, b->cap * sizeof *b->steps, cap * sizeof *b->steps));
    KVF_TRY(kvf__grow(b->ctx, &b->sorted, b->cap * sizeof *b->sorted, cap * sizeof *b->sorted));
    b->cap = cap;
    return KVF_OK;
}

/* Adds the seconds of each component so far to b->spent: sign -1 before a step, 1 after it. */
static void book(kvf_bench *b, double sign)
{
    kvf__timing parts[KVF_BENCH_MAX_PARTS];
    size_t n = kvf__trainer_timings(b->trainer, parts, KVF_BENCH_MAX_PARTS);
    for (size_t i = 0; i < n; i++)
        b->spent[i] += sign * parts[i].seconds;
}

/* Returns the sizes of the next step's rows, which the sampler takes in order. */
static void next_sizes(const kvf__trainer_view *t, kvf_bench_step_result *out)
{
    const kvf__dataset *rows = &t->rows->task->data;
    int64_t at = t->rows->task->sampler.at == rows->n ? 0 : t->rows->task->sampler.at;
    for (int64_t i = at; i < rows->n && i < at + t->run->options.batch_size; i++) {
        out->rows++;
        out->tokens += kvf__example_length(rows, i);
        out->labels += kvf__example_labels(rows, i);
    }
}

static kvf_status bench_step(kvf_bench *bench, bool measured, kvf_bench_step_result *out)
{
    kvf_bench_step_result step = {0};
    kvf__rates rates;
    KVF_TRY(reserve(bench));
    const kvf__trainer_view t = kvf__trainer_look(bench->trainer);
    next_sizes(&t, &step);
    if (measured) book(bench, -1);
    double begin = kvf__clock();
    KVF_TRY(kvf__trainer_step(bench->trainer));
    step.seconds = kvf__clock() - begin;
    if (measured) book(bench, 1);
    KVF_TRY(kvf__probe_run(bench->ctx, bench->probe, &rates));
    step.matmul_rate = rates.step;
    step.reference_rate = rates.reference;
    step.loss = t.run->progress.train_loss;
    step.tokens_per_second = (double)step.tokens / step.seconds;
    step.matmul_share = kvf__model_floor_flops(t.run->base->model, step.tokens, step.labels) /
                        step.seconds / step.matmul_rate;
    if (measured) bench->steps[bench->n++] = step;
    if (out) *out = step;
    return KVF_OK;
}

kvf_status kvf_bench_step(kvf_bench *bench, bool measured, kvf_bench_step_result *out)
{
    if (!bench) return KVF_EUSAGE;
    KVF__RETURN(bench->ctx, bench_step(bench, measured, out));
}

/* ---- the result ------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the median of one field over the measured steps. */
static double median(const kvf_bench *b, size_t offset)
{
    for (size_t i = 0; i < b->n; i++)
        b->sorted[i] = *(const double *)(const void *)((const char *)&b->steps[i] + offset);
    qsort(b->sorted, b->n, sizeof *b->sorted, by_value);
    return (b->sorted[(b->n - 1) / 2] + b->sorted[b->n / 2]) / 2;
}

/* Fills the components by the trainer's names, then the rest. */
static void fill_parts(const kvf_bench *b, double total, kvf_bench_result *out)
{
    kvf__timing parts[KVF_BENCH_MAX_PARTS];
    size_t n = kvf__trainer_timings(b->trainer, parts, KVF_BENCH_MAX_PARTS);
    double steps = (double)b->n, rest = total;
    for (size_t i = 0; i < n; i++) {
        rest -= b->spent[i];
        out->parts[out->n_parts++] = (kvf_bench_part){parts[i].name, b->spent[i] / steps};
    }
    out->parts[out->n_parts++] = (kvf_bench_part){"rest", rest / steps};
}

void kvf_bench_summary(const kvf_bench *bench, kvf_bench_result *out)
{
    if (!bench || !out) return;
    const kvf_bench *b = bench;
    double total = 0;
    *out = (kvf_bench_result){
        .precision = kvf__precision_name(kvf__trainer_look(b->trainer).run->base->precision),
        .steps = (int64_t)b->n,
        .peak_rss_bytes = kvf__peak_rss_bytes(),
    };
    if (!b->n) return;
    for (size_t i = 0; i < b->n; i++) {
        out->rows += b->steps[i].rows;
        out->tokens += b->steps[i].tokens;
        out->labels += b->steps[i].labels;
        total += b->steps[i].seconds;
    }
    out->loss = b->steps[b->n - 1].loss;
    out->tokens_per_second = median(b, offsetof(kvf_bench_step_result, tokens_per_second));
    out->seconds_per_step = median(b, offsetof(kvf_bench_step_result, seconds));
    out->matmul_rate = median(b, offsetof(kvf_bench_step_result, matmul_rate));
    out->reference_rate = median(b, offsetof(kvf_bench_step_result, reference_rate));
    out->matmul_share = median(b, offsetof(kvf_bench_step_result, matmul_share));
    fill_parts(b, total, out);
}

kvf_status kvf_bench_run(kvf_ctx *ctx, const kvf_bench_options *options, kvf_bench_result *result)
{
    KVF_TRY(KVF__NEED(ctx, options, result));
    kvf_bench *bench = NULL;
    if (options->steps < 1) return kvf__fail(ctx, KVF_EUSAGE, "--steps must be at least 1");
    KVF_TRY(kvf_bench_open(ctx, options, &bench));
    kvf_status st = KVF_OK;
    for (int64_t i = 0; !st && i < options->warmup + options->steps; i++)
        st = kvf_bench_step(bench, i >= options->warmup, NULL);
    if (!st) kvf_bench_summary(bench, result);
    kvf_bench_close(bench);
    return st;
}
