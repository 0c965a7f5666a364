/* Measuring a training step: how many tokens a second, where the time goes, and how much of what
 * oneDNN gives on this machine that is.
 *
 *     kvf_bench_options options = kvf_bench_defaults();
 *     kvf_bench_result result;
 *     options.shape = "gpt2";
 *     if (kvf_bench_run(ctx, &options, &result)) fprintf(stderr, "%s\n", kvf_ctx_error(ctx));
 *     else printf("%.0f tokens/s\n", result.tokens_per_second);
 *
 * A step is the step of kvf_train, by the same code: encoder, base, loss, back to the prefix,
 * encoder backward, clipping, AdamW. Only base and rows are made up, unless a base is named: random
 * weights in the shape of a known model, rows of random ids, the last share of each row labelled.
 * The encoder is the `mlp` one.
 *
 * The yardstick. Floor operations are what a step cannot do without: two matrix products (forward,
 * and gradient of the input) for every weight of the layers and every token, and two over the
 * vocabulary for every label: 4 * weights * tokens + 4 * V * C * labels, a multiply-add being two.
 * Attention, norms, activations and the encoder count as overhead. The matmul rate is oneDNN's, in
 * the same type and with the same threads, for the products of this step's forward pass, each
 * alone and hot, added up as often as the pass runs them (so the harmonic mean of their rates,
 * weighted by operations). It is measured anew after every step, because clocks move. The share is
 * floor operations / seconds / rate, the median over steps of the share within each step. */
#ifndef KVFOLD_BENCH_H
#define KVFOLD_BENCH_H

#ifndef KVF_EXPERIMENTAL
#error "kvfold/bench.h may change in every release; to use it, define KVF_EXPERIMENTAL first"
#endif

#include <kvfold/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvf_bench_options {
    const char *shape;   /* kvf_bench_shape(), or the path of a config.json; NULL if base is set */
    const char *base;    /* a base to open instead; texts are borrowed while the bench is open */
    const char *lora;    /* of base, as kvf_base_options has it; NULL: none */
    int64_t batch;       /* rows in a step */
    int64_t length;      /* tokens in a row */
    const char *lengths; /* "30,212,7", or a file of such numbers: lengths of rows in the order in
                            which steps take them, over and over; NULL: all are `length` */
    int64_t prefix_length, encoder_hidden;
    double label_fraction; /* of each row, at its end; at least one label, never the first token */
    int64_t steps, warmup; /* kvf_bench_run: measured, and before that not measured */
    bool recompute;        /* as in kvf_train_options */
    kvf_weight_dtype weight_dtype;
    bool stream_layers;
    kvf_precision precision;
    uint64_t seed;
} kvf_bench_options;

/* gpt2, 8 rows of 128 tokens, P = 20, M = 512, a quarter labelled, 7 steps after 2, precision auto.
 */
kvf_bench_options kvf_bench_defaults(void);
/* Names of the known shapes by index ("gpt2", "smollm2-135m", "tiny"), NULL past the last. */
const char *kvf_bench_shape(size_t index);

/* Seconds of a part of a step, the mean over measured steps. "rest" is what no part accounts for.
 */
typedef struct kvf_bench_part {
    const char *name;
    double seconds;
} kvf_bench_part;
#define KVF_BENCH_MAX_PARTS 32

typedef struct kvf_bench_result {
    const char *precision;        /* "f32", "bf16" or "int8" */
    int64_t steps;                /* measured */
    int64_t rows, tokens, labels; /* in all measured steps; tokens as given, whatever is left out */
    double tokens_per_second;     /* median over steps */
    double seconds_per_step;      /* median over steps */
    double matmul_rate;           /* FLOP/s, median over steps */
    double reference_rate;        /* FLOP/s of [512, 768] x [768, 3072] alone, median over steps */
    double matmul_share;          /* median over steps */
    double loss;                  /* of the last step */
    int64_t peak_rss_bytes;       /* of this process so far */
    size_t n_parts;
    kvf_bench_part parts[KVF_BENCH_MAX_PARTS];
} kvf_bench_result;

/* What one step took. */
typedef struct kvf_bench_step_result {
    double seconds, tokens_per_second, matmul_rate, reference_rate, matmul_share, loss;
    int64_t rows, tokens, labels;
} kvf_bench_step_result;

/* Everything a bench needs, ready to step: base, rows, encoder, optimizer, memory. EUSAGE: an
 * option out of range, rows that the model's positions do not hold; otherwise as kvf_base_open. ctx
 * must outlive it. */
typedef struct kvf_bench kvf_bench;
kvf_status kvf_bench_open(kvf_ctx *ctx, const kvf_bench_options *options, kvf_bench **out);
void kvf_bench_close(kvf_bench *bench); /* NULL is fine */
/* One step, then the matmul rate. measured: it counts in the result. out may be NULL. */
kvf_status kvf_bench_step(kvf_bench *bench, bool measured, kvf_bench_step_result *out);
/* Over the measured steps so far; numbers are 0 before the first. */
void kvf_bench_summary(const kvf_bench *bench, kvf_bench_result *out);

/* Opens, warms up, measures, closes. */
kvf_status kvf_bench_run(kvf_ctx *ctx, const kvf_bench_options *options, kvf_bench_result *result);

#ifdef __cplusplus
}
#endif
#endif
