/* kvfold bench: measures training steps on this machine. With --interactive a script decides when
 * each step runs, so that other programs can be measured alternately. */
#include "cli_model.h"

#include <stddef.h>

typedef struct bench_values {
    kvf_bench_options bench;
    bool interactive;
} bench_values;

#define AT(field) offsetof(bench_values, bench.field)
static const kvf__option_row OPTIONS[] = {
    {"shape", "gpt2|smollm2-135m|tiny|FILE", "gpt2", KVF_TEXT, AT(shape),
     "random weights in the shape of a known model, or of a config.json"},
    {"base", "PATH", "", KVF_TEXT, AT(base),
     "a base model instead: Hugging Face folder, GGUF or base file"},
    CLI_LORA(AT(lora)),
    {"batch", "N", "8", KVF_COUNT, AT(batch), "rows per step"},
    {"length", "N", "128", KVF_COUNT, AT(length), "tokens per row"},
    {"lengths", "FILE|N,N,...", "", KVF_TEXT, AT(lengths),
     "tokens of each row, in step order, repeated as needed; instead of --length"},
    {"label-fraction", "X", "0.25", KVF_REAL, AT(label_fraction),
     "share of each row that carries loss, at its end"},
    {"prefix-length", "N", "20", KVF_COUNT, AT(prefix_length), "virtual tokens P"},
    {"encoder-hidden", "N", "512", KVF_COUNT, AT(encoder_hidden),
     "hidden width M of the mlp encoder"},
    {"steps", "N", "7", KVF_COUNT, AT(steps), "steps to measure"},
    {"warmup", "N", "2", KVF_COUNT, AT(warmup), "steps before the measurement"},
    {"recompute", "on|off", "off", KVF_ON_OFF, AT(recompute),
     "recompute activations in the backward pass, as train does"},
    CLI_WEIGHTS(AT(weight_dtype), AT(stream_layers)),
    {"interactive", NULL, "", KVF_FLAG, offsetof(bench_values, interactive),
     "after the warmup, run one step for each line of standard input and print a line of JSON "
     "for each"},
    CLI_AUTO_PRECISION(AT(precision)),
    {"seed", "N", "0", KVF_SEED, AT(seed), "random seed of weights and rows"},
};

/* ---- results --------------------------------------------------------------------------------- */

static kvf_json *components(const kvf_bench_result *r)
{
    kvf_json *object = kvf_json_object();
    for (size_t i = 0; i < r->n_parts; i++)
        kvf_json_set(object, r->parts[i].name, kvf_json_new_real(r->parts[i].seconds));
    return object;
}

static int print_json(const cli_call *call, const kvf_bench_result *r)
{
    kvf_json *object = kvf__json_of("precision:s steps:I rows:I tokens:I label_tokens:I",
                                    r->precision, r->steps, r->rows, r->tokens, r->labels);
    kvf__json_put(object, "tokens_per_second:f seconds_per_step:f matmul_rate:f reference_rate:f",
                  r->tokens_per_second, r->seconds_per_step, r->matmul_rate, r->reference_rate);
    kvf__json_put(object, "matmul_share:f peak_rss_bytes:I components:o", r->matmul_share,
                  r->peak_rss_bytes, components(r));
    return cli_print_json(call, object);
}

static void print_components(const kvf_bench_result *r)
{
    double total = 0;
    for (size_t i = 0; i < r->n_parts; i++)
        total += r->parts[i].seconds;
    printf("\n%-16s %10s %7s\n", "component", "ms", "share");
    for (size_t i = 0; i < r->n_parts; i++)
        printf("%-16s %10.2f %6.1f%%\n", r->parts[i].name, 1e3 * r->parts[i].seconds,
               1e2 * r->parts[i].seconds / total);
}

static void print_text(const kvf_bench_result *r)
{
    char memory[32];
    if (!r->steps) {
        printf("no steps\n");
        return;
    }
    printf("%s, %lld steps of %lld rows, %lld tokens and %lld labels\n", r->precision,
           (long long)r->steps, (long long)(r->rows / r->steps), (long long)(r->tokens / r->steps),
           (long long)(r->labels / r->steps));
    printf("%.0f tokens/s, %.4f s per step (medians)\n", r->tokens_per_second, r->seconds_per_step);
    printf("%.1f%% of oneDNN's rate for these products, %.1f GFLOP/s (512x768x3072 alone: %.1f)\n",
           1e2 * r->matmul_share, 1e-9 * r->matmul_rate, 1e-9 * r->reference_rate);
    printf("peak memory %s\n", cli_bytes_text(r->peak_rss_bytes, memory));
    print_components(r);
}

static int print_step(const cli_call *call, const kvf_bench_step_result *s)
{
    kvf_json *object = kvf__json_of("seconds:f rows:I tokens:I label_tokens:I tokens_per_second:f",
                                    s->seconds, s->rows, s->tokens, s->labels,
                                    s->tokens_per_second);
    kvf__json_put(object, "matmul_rate:f reference_rate:f matmul_share:f loss:f", s->matmul_rate,
                  s->reference_rate, s->matmul_share, s->loss);
    int code = cli_print_json(call, object);
    fflush(stdout);
    return code;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Reads a line of any length. Returns false at the end of standard input. */
static bool next_line(void)
{
    int c = getchar();
    bool any = c != EOF;
    while (c != '\n' && c != EOF)
        c = getchar();
    return any;
}

static int run_steps(const cli_call *call, const bench_values *v, kvf_bench *bench)
{
    kvf_bench_step_result step;
    kvf_status st = KVF_OK;
    int code = CLI_OK;
    for (int64_t i = 0; !st && i < v->bench.warmup; i++)
        st = kvf_bench_step(bench, false, NULL);
    for (int64_t i = 0; !st && !code && !v->interactive && i < v->bench.steps; i++)
        st = kvf_bench_step(bench, true, NULL);
    while (!st && !code && v->interactive && next_line()) {
        st = kvf_bench_step(bench, true, &step);
        if (!st) code = print_step(call, &step);
    }
    return st ? cli_fail_status(call, st) : code;
}

static int measure(cli_call *call, const bench_values *v)
{
    kvf_bench *bench = NULL;
    kvf_bench_result result;
    kvf_status st = kvf_bench_open(call->ctx, &v->bench, &bench);
    if (st) return cli_fail_status(call, st);
    int code = run_steps(call, v, bench);
    kvf_bench_summary(bench, &result);
    kvf_bench_close(bench);
    if (code) return code;
    if (call->common.json) return print_json(call, &result);
    print_text(&result);
    return CLI_OK;
}

static int run(cli_call *call)
{
    bench_values v = {.bench = kvf_bench_defaults()};
    v.bench.shape = NULL;
    int code = cli_set_values(call, &v);
    if (code) return code;
    if (!v.bench.shape && !v.bench.base) v.bench.shape = "gpt2";
    if (v.bench.lengths && cli_given_value(call, "length"))
        return cli_misuse(call->command, "--length and --lengths exclude each other");
    if (!v.interactive && !v.bench.steps)
        return cli_misuse(call->command, "--steps 0: want a whole number of at least 1");
    return measure(call, &v);
}

const cli_command cli_bench = {
    .name = "bench",
    .group = CLI_PROGRAM,
    .synopsis = "[--shape NAME | --base PATH] [options]",
    .summary = "Measures a training step: tokens per second, share of the peak matmul rate, "
               "memory.",
    .notes = "The step is the one that train computes. The share is 4 * weights * tokens + 4 * V "
             "* C * labels operations over the step's time, divided by the rate of oneDNN for "
             "the products of this step alone, measured after each step. Other work on the "
             "machine distorts the result.\n",
    .needs = "lora>base",
    CLI_ROWS(OPTIONS),
    .lab = true,
    .run = run,
};
