/* Merge: run the encoder of a run once, dropout off, and keep only the static prefix. Also
 * tools for the resulting files: compose, quantize, diff.
 *
 *     kvf_merge_options options;
 *     kvf_merge_result result;
 *     memset(&options, 0, sizeof options);
 *     options.run = "run.h5";
 *     options.out = "prefix.h5";
 *     if (kvf_merge(ctx, &options, &result)) fprintf(stderr, "%s\n", kvf_ctx_error(ctx)); */
#ifndef KVFOLD_MERGE_H
#define KVFOLD_MERGE_H

#include <kvfold/json.h>
#include <kvfold/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvf_merge_options {
    const char *run, *out;
    const char *out_base; /* base file, for p-tuning --unfreeze base, which also folds to a base;
                             else NULL */
    kvf_checkpoint checkpoint;
    const char *head; /* run of several tasks: fold for this task; NULL: keep all heads */
    kvf_dtype dtype;
    bool force;
    const char *base; /* needed for probe, and by methods whose folding needs the base */
    /* data file on which logits of encoder and folded file are compared; NULL: no */
    const char *probe;
    bool allow_other_base;
    const char *lora; /* LoRA folder, as in kvf_base_options; NULL: none */
    uint64_t reserved[7];
} kvf_merge_options;

typedef struct kvf_merge_result {
    int64_t shape[6];    /* [L, 2, 1, G, P, D]; adapters: [L, halves, size, C] */
    int rank;            /* dimensions of shape */
    int64_t bytes;       /* size of the file */
    double max_abs_diff; /* largest difference of the encoder's output and the values read back from
                            the file; 0 for f32 */
    double probe_max_abs_diff; /* largest difference of logits; NaN without probe */
    int64_t step;              /* step of the folded state */
    uint64_t reserved[8];
} kvf_merge_result;

kvf_status kvf_merge(kvf_ctx *ctx, const kvf_merge_options *options, kvf_merge_result *result);

#ifdef KVF_EXPERIMENTAL

/* The tools take a prefix file, a run (whose encoder they run) or virtual tokens that lead the row,
 * and write prefix files. Files of methods that change the base are EUNSUPPORTED. */

#define KVF_MAX_PARTS 64

typedef enum kvf_compose_mode {
    KVF_COMPOSE_CONCATENATE,
    KVF_COMPOSE_AVERAGE,
    KVF_COMPOSE_PARALLEL
} kvf_compose_mode;

typedef struct kvf_compose_options {
    const char *const *parts; /* [n], 2 to KVF_MAX_PARTS */
    size_t n;
    const char *out;
    kvf_compose_mode mode;
    const double *weights; /* [n] non-negative weights of an average; NULL: equal weights */
    kvf_dtype dtype;
    kvf_checkpoint checkpoint;
    const char *head; /* several tasks: the task to keep */
    const char *base; /* needed to rotate keys, and by runs that read the base; NULL: none */
    const char *lora; /* LoRA folder of base; NULL: none */
    bool allow_other_base, force;
} kvf_compose_options;

typedef struct kvf_compose_result {
    int64_t shape[6]; /* [L, 2, 1, G, P, D] */
    int64_t position_start;
    int64_t bytes;
    double max_abs_diff; /* largest rounding error of dtype */
    int64_t documents;   /* number of parts that were distilled from a document */
} kvf_compose_result;

/* Combines several prefixes into one.
 * - concatenate: parts in sequence, the text after all of them. On bases with rope the keys of each
 * part are rotated by the sum of the position_starts before it (EUSAGE without the base). The new
 * position_start is the sum of all, so every part keeps its distance to what follows.
 * - parallel: every part keeps its distance to the text as if it were alone. The new position_start
 * is the largest of all, and log-weights decrease by log n. EUNSUPPORTED: differing position_starts
 * without rope, prefixes inside rows.
 * - average: weighted mean of values with one shape and one position_start.
 * EMISMATCH: the parts differ in base, task, head, template, masked layers or placement. Lineage
 * holds the hashes of the parts. */
kvf_status kvf_compose(kvf_ctx *ctx, const kvf_compose_options *options,
                       kvf_compose_result *result);

typedef struct kvf_quantize_options {
    const char *prefix, *out;
    kvf_dtype dtype;
    kvf_checkpoint checkpoint;
    const char *head; /* several tasks: the task to keep; NULL: all */
    const char *base; /* needed by runs of methods that read the base; NULL: none */
    const char *lora; /* LoRA folder of base; NULL: none */
    bool allow_other_base, force;
} kvf_quantize_options;

typedef struct kvf_quantize_result {
    int64_t shape[6];                   /* [L, 2, 1, G, P, D] */
    int64_t bytes;                      /* size of the file */
    double max_abs_diff, relative_diff; /* largest absolute difference of values; relative L2
                                           difference of the whole tensor */
} kvf_quantize_result;

/* Converts a prefix to another type, rounding to nearest even. int8 has a scale for each head of
 * each layer's keys and values. The head stays f32. ENUMERIC: a value exceeds the range of f16. */
kvf_status kvf_quantize(kvf_ctx *ctx, const kvf_quantize_options *options,
                        kvf_quantize_result *result);

typedef struct kvf_unmerge_options {
    const char *prefix, *out; /* prefix file; run file to write */
    const char *base;         /* NULL: keep the prefix's base hash */
    const char *lora;         /* LoRA folder of base; NULL: none */
    int64_t encoder_hidden;   /* M; 0: 512 */
    uint64_t seed;            /* seed of the embedding and the first layer */
    bool approximate;         /* accept a residual above 1e-2 */
    bool force, allow_other_base;
} kvf_unmerge_options;

typedef struct kvf_unmerge_result {
    int64_t P, M;
    int64_t parameters;
    double residual; /* |emitted - prefix| / |prefix| */
} kvf_unmerge_result;

/* Converts a prefix, with its head, to a run of method mlp at step 0. Embedding and first layer are
 * random; the last layer is solved in f64 so that the encoder emits the prefix. The result is exact
 * for P <= min(M, G*D), else a least-squares fit. train --init-from takes the run. EUSAGE,
 * EUNSUPPORTED: the file is no prefix file or has no virtual token, or the residual exceeds 1e-2
 * without approximate. */
kvf_status kvf_unmerge(kvf_ctx *ctx, const kvf_unmerge_options *options,
                       kvf_unmerge_result *result);

typedef struct kvf_convert_position_options {
    const char *prefix, *out, *base; /* prefix files; the base must have rope */
    const char *lora;                /* LoRA folder of base; NULL: none */
    const char *position_start;      /* "P", or the new position of a row's first token */
    bool force, allow_other_base;
} kvf_convert_position_options;

/* Rotates the keys of a prefix for rows that start at another position; the rows then see the same
 * prefix. Key p of a prefix is at position_start - P + p. *from, *to: position_start before and
 * after. Values and the file's dtype are unchanged. EUNSUPPORTED: a base without rope, a prefix
 * inside rows. */
kvf_status kvf_convert_position(kvf_ctx *ctx, const kvf_convert_position_options *options,
                                int64_t *from, int64_t *to);

/* An attribute, option or similar fact that differs between two files. */
typedef struct kvf_diff_fact {
    const char *group, *name;
    const kvf_json *a, *b; /* values; NULL: absent from that file */
} kvf_diff_fact;

/* A tensor as stored in one file. */
typedef struct kvf_diff_side {
    const char *dtype; /* NULL: the file lacks the tensor */
    int rank;
    int64_t shape[8]; /* [rank] */
} kvf_diff_side;

/* A tensor that differs between the files. */
typedef struct kvf_diff_tensor {
    const char *name;
    kvf_diff_side a, b;
    int64_t unequal; /* number of unequal elements; -1: shapes differ, one file lacks the tensor, or
                        its type is not numeric here */
    double max_abs, relative_l2, cosine; /* NaN where unequal is -1 */
} kvf_diff_tensor;

typedef struct kvf_diff_result {
    const char *kind;
    bool same;
    size_t n_facts;
    const kvf_diff_fact *facts; /* [n_facts] */
    int64_t equal;              /* number of equal tensors */
    size_t n_tensors;
    const kvf_diff_tensor *tensors; /* [n_tensors] tensors that changed or are in one file only */
    double max_abs;                 /* maximum over all tensors */
    void *memory;                   /* memory of the texts and values */
} kvf_diff_result;
void kvf_diff_result_done(kvf_diff_result *result);

/* Compares two files of one kind: run, prefix, embeddings, adapter, base (or Hugging Face folder),
 * GGUF, safetensors, PEFT folder. *result and *json may be NULL; the caller frees *json. *json is
 * {"kind", "same", "facts": [{"group", "name", "a", "b"}], "tensors": {"equal": count, "changed":
 * [...], "removed": [...], "added": [...], "max_abs"}}. "facts" lists differences in attributes,
 * options, lineage, metadata, state and history. Its group "bytes" is for files of a tokenizer; an
 * absent side is omitted. An item of "changed" has "name", "shape", "dtype", "shape_b", "dtype_b"
 * (where they differ), "unequal", "max_abs", "relative_l2" and "cosine". Prefixes are compared by
 * layer, "prefix/3/key". tensors_only: omit the facts. EUSAGE: the files are of two kinds. */
kvf_status kvf_diff(kvf_ctx *ctx, const char *a, const char *b, bool tensors_only,
                    kvf_diff_result *result, kvf_json **json);

#endif /* KVF_EXPERIMENTAL */

#ifdef __cplusplus
}
#endif
#endif
