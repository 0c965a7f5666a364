/* Merge: run the encoder of a run once, dropout off, and keep the static prefix alone.
 *
 *     kvf_merge_options options = {.run = "run.h5", .out = "prefix.h5"};
 *     kvf_merge_result result;
 *     if (kvf_merge(ctx, &options, &result)) fprintf(stderr, "%s\n", kvf_ctx_error(ctx)); */
#ifndef KVFOLD_MERGE_H
#define KVFOLD_MERGE_H

#include <kvfold/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvf_merge_options {
    const char *run, *out;
    kvf_checkpoint checkpoint;
    const char *head;  /* of a run of several tasks: fold for this one; NULL: all heads are kept */
    const char *dtype; /* f32 (also NULL), f16, bf16 */
    bool force;
    const char *base;  /* needed for probe */
    const char *probe; /* data file: logits through encoder and file are compared too; NULL: no */
    bool allow_other_base;
} kvf_merge_options;

typedef struct kvf_merge_result {
    int64_t shape[6];    /* [L, 2, 1, G, P, D]; of adapters [L, halves, size, C] */
    int rank;            /* dimensions of shape */
    int64_t bytes;       /* size of the file */
    double max_abs_diff; /* encoder's output against the values read back from the new file; 0 for
                            f32 */
    double probe_max_abs_diff; /* logits; NaN without probe */
    int64_t step;              /* of the state that was folded */
} kvf_merge_result;

kvf_status kvf_merge(kvf_ctx *ctx, const kvf_merge_options *options, kvf_merge_result *result);

#ifdef __cplusplus
}
#endif
#endif
