/* Merge: run the encoder of a run once, dropout off, and keep the static prefix alone. And tools on
 * the files that result: compose, quantize, diff.
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
    const char *out_base; /* of p-tuning --unfreeze base, which folds to a base file as well; else
                             NULL */
    kvf_checkpoint checkpoint;
    const char *head; /* of a run of several tasks: fold for this one; NULL: all heads are kept */
    kvf_dtype dtype;
    bool force;
    const char *base;  /* needed for probe, and where folding runs or reads it */
    const char *probe; /* data file: logits through encoder and file are compared too; NULL: no */
    bool allow_other_base;
    const char *lora; /* of base, as kvf_base_options has it; NULL: none */
    uint64_t reserved[7];
} kvf_merge_options;

typedef struct kvf_merge_result {
    int64_t shape[6];    /* [L, 2, 1, G, P, D]; of adapters [L, halves, size, C] */
    int rank;            /* dimensions of shape */
    int64_t bytes;       /* size of the file */
    double max_abs_diff; /* encoder's output against the values read back from the new file; 0 for
                            f32 */
    double probe_max_abs_diff; /* logits; NaN without probe */
    int64_t step;              /* of the state that was folded */
    uint64_t reserved[8];
} kvf_merge_result;

kvf_status kvf_merge(kvf_ctx *ctx, const kvf_merge_options *options, kvf_merge_result *result);

#ifdef KVF_EXPERIMENTAL

/* The tools take a prefix file, a run (whose encoder is run now), or virtual tokens that lead the
 * row, and write prefix files; those of methods that change the base are EUNSUPPORTED. */

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
    const double *weights; /* [n] from 0 on, of an average; NULL: equal ones */
    kvf_dtype dtype;
    kvf_checkpoint checkpoint;
    const char *head; /* of several tasks: the one to keep */
    const char *base; /* needed where keys are turned, and by runs that read it; NULL: none */
    const char *lora; /* of base; NULL: none */
    bool allow_other_base, force;
} kvf_compose_options;

typedef struct kvf_compose_result {
    int64_t shape[6]; /* [L, 2, 1, G, P, D] */
    int64_t position_start;
    int64_t bytes;
    double max_abs_diff; /* by rounding to dtype */
    int64_t documents;   /* parts that were distilled from a document */
} kvf_compose_result;

/* Several prefixes as one. concatenate: one after the other, the text after all of them; each
 * part's keys are turned on by the sum of the position_start before it (on bases with rope; EUSAGE
 * without the base), and the new position_start is the sum of all, so that every part keeps its
 * distance to what follows it. parallel: every part keeps its distance to the text, as if it were
 * alone, and the new position_start is the largest of all (EUNSUPPORTED: positions that do not
 * turn, of other starts, and prefixes inside rows); log-weights are less by the log of n. average:
 * the weighted mean of values of one shape and one position_start. EMISMATCH: they are for
 * different bases, or differ in task, head, template, masked layers or placement. Lineage holds the
 * parts' hashes. */
kvf_status kvf_compose(kvf_ctx *ctx, const kvf_compose_options *options,
                       kvf_compose_result *result);

typedef struct kvf_quantize_options {
    const char *prefix, *out;
    kvf_dtype dtype;
    kvf_checkpoint checkpoint;
    const char *head; /* of several tasks: keep this one; NULL: all */
    const char *base; /* needed by runs of methods that read it; NULL: none */
    const char *lora; /* of base; NULL: none */
    bool allow_other_base, force;
} kvf_quantize_options;

typedef struct kvf_quantize_result {
    int64_t shape[6];                   /* [L, 2, 1, G, P, D] */
    int64_t bytes;                      /* size of the file */
    double max_abs_diff, relative_diff; /* of values; the latter of the whole tensor, in L2 */
} kvf_quantize_result;

/* A prefix in another type, by rounding to nearest even. int8 has a scale for each head of each
 * layer's keys and values. The head stays f32. ENUMERIC: f16 cannot hold a value. */
kvf_status kvf_quantize(kvf_ctx *ctx, const kvf_quantize_options *options,
                        kvf_quantize_result *result);

typedef struct kvf_unmerge_options {
    const char *prefix, *out; /* prefix file; run file to write */
    const char *base;         /* NULL: the prefix keeps the hash it has */
    const char *lora;         /* of base; NULL: none */
    int64_t encoder_hidden;   /* M; 0: 512 */
    uint64_t seed;            /* of the embedding and the first layer */
    bool approximate;         /* a residual above 1e-2 will do */
    bool force, allow_other_base;
} kvf_unmerge_options;

typedef struct kvf_unmerge_result {
    int64_t P, M;
    int64_t parameters;
    double residual; /* |emitted - prefix| / |prefix| */
} kvf_unmerge_result;

/* The way back: any prefix as a run of method mlp at step 0, its head along with it. Embedding and
 * first layer are random, the last layer is solved in f64 so that the encoder emits the prefix;
 * exact for P <= min(M, G*D), else as near as that layer comes. train --init-from takes the run.
 * EUSAGE, EUNSUPPORTED: not a prefix file, one without a virtual token, or a residual above 1e-2
 * that was not asked for. */
kvf_status kvf_unmerge(kvf_ctx *ctx, const kvf_unmerge_options *options,
                       kvf_unmerge_result *result);

typedef struct kvf_convert_position_options {
    const char *prefix, *out, *base; /* prefix files; the base must have rope */
    const char *lora;                /* of base; NULL: none */
    const char *position_start;      /* "P", or the number from which rows shall count */
    bool force, allow_other_base;
} kvf_convert_position_options;

/* Rotates the keys of a prefix so that rows which start at another position see the same: key p of
 * a prefix is at position_start - P + p. *from, *to: position_start before and after. Values
 * stay, and so does the file's dtype. EUNSUPPORTED: a base without rope, a prefix inside rows. */
kvf_status kvf_convert_position(kvf_ctx *ctx, const kvf_convert_position_options *options,
                                int64_t *from, int64_t *to);

/* An attribute, option, ... in which two files differ. */
typedef struct kvf_diff_fact {
    const char *group, *name;
    const kvf_json *a, *b; /* values; NULL: that file has none */
} kvf_diff_fact;

/* A tensor of one file. */
typedef struct kvf_diff_side {
    const char *dtype; /* NULL: the file has no such tensor */
    int rank;
    int64_t shape[8]; /* [rank] */
} kvf_diff_side;

/* One that is not equal in both. */
typedef struct kvf_diff_tensor {
    const char *name;
    kvf_diff_side a, b;
    int64_t unequal; /* elements; -1: other shapes, in one file only, or no numbers of ours */
    double max_abs, relative_l2, cosine; /* NaN likewise */
} kvf_diff_tensor;

typedef struct kvf_diff_result {
    const char *kind;
    bool same;
    size_t n_facts;
    const kvf_diff_fact *facts; /* [n_facts] */
    int64_t equal;              /* tensors that are */
    size_t n_tensors;
    const kvf_diff_tensor *tensors; /* [n_tensors] those changed, only in a, only in b */
    double max_abs;                 /* over all */
    void *memory;                   /* what the texts and values are views of */
} kvf_diff_result;
void kvf_diff_result_done(kvf_diff_result *result);

/* Two files of a kind compared: run, prefix, embeddings, adapter, base (or Hugging Face folder),
 * GGUF, safetensors, PEFT folder. *result; and *json, the caller's: {"kind", "same", "facts":
 * [{"group", "name", "a", "b"}] (those that differ, in attributes, options, lineage, metadata,
 * state, history; "bytes": files of a tokenizer; a missing side is left out), "tensors": {"equal":
 * count, "changed": [{"name", "shape", "dtype", "shape_b", "dtype_b" (where they differ),
 * "unequal", "max_abs", "relative_l2", "cosine"}], "removed": [...], "added": [...], "max_abs"}};
 * each may be NULL. Prefixes by layer, "prefix/3/key". tensors_only: no facts. EUSAGE: two kinds.
 */
kvf_status kvf_diff(kvf_ctx *ctx, const char *a, const char *b, bool tensors_only,
                    kvf_diff_result *result, kvf_json **json);

#endif /* KVF_EXPERIMENTAL */

#ifdef __cplusplus
}
#endif
#endif
