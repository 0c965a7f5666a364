/* Benchmarks of a training step: tokens per second, time by part, and the share of the speed that
 * oneDNN reaches on this machine.
 *
 *     kvf_bench_options options = kvf_bench_defaults();
 *     kvf_bench_result result;
 *     options.shape = "gpt2";
 *     if (kvf_bench_run(ctx, &options, &result)) fprintf(stderr, "%s\n", kvf_ctx_error(ctx));
 *     else printf("%.0f tokens/s\n", result.tokens_per_second);
 *
 * A step runs the code of kvf_train: encoder, base, loss, backward to the prefix, encoder backward,
 * clipping, AdamW. Unless a base is named, it has random weights in the shape of a known model.
 * Rows are random ids with labels at their end. The encoder is `mlp`.
 *
 * Matmul share. Floor operations are the minimum of a step: two matrix products (forward, and
 * gradient of the input) for every weight of the layers and every token, and two over the
 * vocabulary for every label. That is 4 * weights * tokens + 4 * V * C * labels, a multiply-add
 * counting as two. Attention, norms, activations and the encoder count as overhead. The matmul rate
 * is the speed of oneDNN in the same type and with the same threads on the products of this step's
 * forward pass. Each product is timed alone with warm caches and weighted by its number of runs, so
 * the rate is a harmonic mean weighted by operations. It is measured after every step, because
 * clock rates change. The share is floor operations / seconds / rate, the median over steps. */
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
    /* a name of kvf_bench_shape(), or the path of a config.json; NULL if base is set */
    const char *shape;
    /* path of a base to open instead; texts are borrowed while the bench is open */
    const char *base;
    const char *lora;    /* LoRA folder, as in kvf_base_options; NULL: none */
    int64_t batch;       /* rows in a step */
    int64_t length;      /* tokens in a row */
    const char *lengths; /* "30,212,7", or a file of such numbers: row lengths, used in turn; NULL:
                            all rows have `length` tokens */
    int64_t prefix_length, encoder_hidden;
    double label_fraction; /* fraction of labels, at the end of each row; at least one, never the
                              first token */
    int64_t steps, warmup; /* kvf_bench_run: measured steps, and unmeasured steps before them */
    bool recompute;        /* as in kvf_train_options */
    kvf_weight_dtype weight_dtype;
    bool stream_layers;
    kvf_precision precision;
    uint64_t seed;
} kvf_bench_options;

/* Returns the defaults: gpt2, 8 rows of 128 tokens, P = 20, M = 512, a quarter labelled, 7 measured
 * steps after 2 others, precision auto. */
kvf_bench_options kvf_bench_defaults(void);
/* Returns the name of a known shape by index ("gpt2", "smollm2-135m", "tiny"), NULL past the
 * last. */
const char *kvf_bench_shape(size_t index);

/* Mean seconds of a part of a step over the measured steps. "rest" is the remaining time. */
typedef struct kvf_bench_part {
    const char *name;
    double seconds;
} kvf_bench_part;
#define KVF_BENCH_MAX_PARTS 32

typedef struct kvf_bench_result {
    const char *precision;        /* "f32", "bf16" or "int8" */
    int64_t steps;                /* measured */
    int64_t rows, tokens, labels; /* totals of all measured steps, before trimming and sharing */
    double tokens_per_second;     /* median over steps */
    double seconds_per_step;      /* median over steps */
    double matmul_rate;           /* FLOP/s, median over steps */
    double reference_rate;  /* FLOP/s of the single product [512, 768] x [768, 3072], median over
                               steps */
    double matmul_share;    /* median over steps */
    double loss;            /* loss of the last step */
    int64_t peak_rss_bytes; /* peak of this process so far */
    size_t n_parts;
    kvf_bench_part parts[KVF_BENCH_MAX_PARTS];
} kvf_bench_result;

/* Time and speed of one step. */
typedef struct kvf_bench_step_result {
    double seconds, tokens_per_second, matmul_rate, reference_rate, matmul_share, loss;
    int64_t rows, tokens, labels;
} kvf_bench_step_result;

/* Opens a bench that is ready to step: base, rows, encoder, optimizer, memory. EUSAGE: an option is
 * out of range, or the rows exceed the model's positions. Other errors as in kvf_base_open. ctx
 * must outlive the bench. */
typedef struct kvf_bench kvf_bench;
kvf_status kvf_bench_open(kvf_ctx *ctx, const kvf_bench_options *options, kvf_bench **out);
void kvf_bench_close(kvf_bench *bench); /* bench may be NULL. */
/* Runs one step, then measures the matmul rate. measured: count the step in the result. out may be
 * NULL. */
kvf_status kvf_bench_step(kvf_bench *bench, bool measured, kvf_bench_step_result *out);
/* Summarises the measured steps so far. All numbers are 0 before the first. */
void kvf_bench_summary(const kvf_bench *bench, kvf_bench_result *out);

/* Opens a bench, warms up, measures and closes it. */
kvf_status kvf_bench_run(kvf_ctx *ctx, const kvf_bench_options *options, kvf_bench_result *result);

#ifdef __cplusplus
}
#endif
#endif
