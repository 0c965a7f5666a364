/* A data file measured under saved prefixes (evaluate.c, evaluate_text.c): eval, predict, prune,
 * report. */
#ifndef KVF_EVALUATION_H
#define KVF_EVALUATION_H

#include "answers.h"

/* A data file under n prefixes (0: the bare base), from paths to answers. */
typedef struct kvf__evaluation {
    int64_t most_tokens; /* of all rows, else EDATA; 0: any number. Set before _read */
    kvf__task task;
    kvf__renderer renderer;
    kvf__dataset set;
    kvf__evaluator *evaluator;
    kvf__head *head;      /* of the prefix that is being computed */
    float *logits;        /* [n_labels, width] of it */
    int64_t batches;      /* of it that are done */
    kvf__scores scores;   /* empty for lm */
    kvf__answers answers; /* the same */
    double loss;          /* NaN: rows lack their gold */
} kvf__evaluation;
/* The address of *out must not change afterwards. unlabeled: rows may lack their gold. */
kvf_status kvf__evaluation_run(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                               const kvf_eval_options *options, bool unlabeled,
                               kvf__evaluation *out);
void kvf__evaluation_done(kvf__evaluation *evaluation);
/* The same bits in parts, with one prefix of another task than lm, for who has other things to do
 * in between: the rows, which another thread may read, then batches until *more is false, then the
 * answers. There is no loss. After a failure of any but the first it is still to be freed. */
kvf_status kvf__evaluation_read(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                                const kvf_eval_options *options, bool unlabeled,
                                kvf__evaluation *out);
kvf_status kvf__evaluation_batch(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                                 kvf__evaluation *evaluation, bool *more);
kvf_status kvf__evaluation_decide(kvf_ctx *ctx, const kvf_prefix *prefix,
                                  const kvf_eval_options *options, kvf__evaluation *evaluation);
/* What was decided of every group, as kvf_predict writes it, without the fields of the input. */
kvf_json *kvf__evaluation_answers(kvf__evaluation *evaluation);
/* Lines of JSON as kvf_predict and kvf_score have them: adds one, freeing the object; then hands
 * them to `write`, else to the file `out`. */
kvf_status kvf__add_json_line(kvf_ctx *ctx, kvf_json *object, kvf__buf *lines);
typedef struct kvf__lines_to {
    void (*write)(void *user, const char *text, size_t n);
    void *user;
    const char *out;
    bool force;
} kvf__lines_to;
kvf_status kvf__send_lines(kvf_ctx *ctx, const kvf__lines_to *to, const kvf__buf *lines);
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

/* EUSAGE where arguments of a function that evaluates are missing or no values of their enums. */
kvf_status kvf__check_eval(kvf_ctx *ctx, const kvf_base *base, kvf_prefix *const *prefixes,
                           size_t n, const kvf_eval_options *options);

#endif
