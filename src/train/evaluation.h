/* A data file measured under saved prefixes (evaluate.c, evaluate_text.c): eval, predict, prune,
 * report. */
#ifndef KVF_EVALUATION_H
#define KVF_EVALUATION_H

#include "answers.h"

/* A data file under n prefixes (0: the bare base), from paths to answers. */
typedef struct kvf__evaluation {
    kvf__task task;
    kvf__renderer renderer;
    kvf__dataset set;
    kvf__evaluator *evaluator;
    kvf__scores scores;   /* empty for lm */
    kvf__answers answers; /* the same */
    double loss;          /* NaN: rows lack their gold */
} kvf__evaluation;
/* The address of *out must not change afterwards. unlabeled: rows may lack their gold. */
kvf_status kvf__evaluation_run(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                               const kvf_eval_options *options, bool unlabeled,
                               kvf__evaluation *out);
void kvf__evaluation_done(kvf__evaluation *evaluation);
/* Its first part alone: rows of options->data for the evaluation's task, which is set. */
kvf_status kvf__evaluation_rows(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                                const kvf_eval_options *options, bool unlabeled,
                                kvf__evaluation *evaluation);

/* How rows are rendered and cut: by the options, else as in training. Renders through *renderer
 * ({0} or what init left, freed by the caller), which must not move. */
kvf_status kvf__eval_rows(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                          const kvf_eval_options *options, kvf__renderer *renderer,
                          kvf__dataset_options *out);

/* lm: completes the prompts of options->data and adds what texts score to *result. */
kvf_status kvf__evaluate_texts(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                               const kvf_eval_options *options, kvf_eval_result *result);

#endif
