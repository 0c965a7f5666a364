/* Evaluation of a data file with saved prefixes (evaluate.c, evaluate_text.c), for eval, predict,
 * prune and report. */
#ifndef KVF_EVALUATION_H
#define KVF_EVALUATION_H

#include "answers.h"

/* A data file with n prefixes (0: the bare base), from paths to answers. */
typedef struct kvf__evaluation {
    int64_t most_tokens; /* limit of tokens in all rows, else EDATA; 0: none. Set before _read */
    kvf__task task;
    kvf__renderer renderer;
    kvf__dataset set;
    kvf__evaluator *evaluator;
    kvf__head *head;      /* head of the current prefix */
    float *logits;        /* [n_labels, width] its logits */
    int64_t batches;      /* its finished batches */
    kvf__scores scores;   /* empty for lm */
    kvf__answers answers; /* the same */
    double loss;          /* NaN: rows have no gold labels */
} kvf__evaluation;
/* Runs an evaluation. The address of *out must not change afterwards. unlabeled: rows may have no
 * gold labels. */
kvf_status kvf__evaluation_run(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                               const kvf_eval_options *options, bool unlabeled,
                               kvf__evaluation *out);
void kvf__evaluation_done(kvf__evaluation *evaluation);
/* Runs an evaluation in parts, with the same bits, for one prefix of a task other than lm. First
 * the rows are read, possibly by another thread. Then batches run until *more is false; then the
 * answers are computed. There is no loss. After a failure in any part but the first, the caller
 * still frees it. */
kvf_status kvf__evaluation_read(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                                const kvf_eval_options *options, bool unlabeled,
                                kvf__evaluation *out);
kvf_status kvf__evaluation_batch(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                                 kvf__evaluation *evaluation, bool *more);
kvf_status kvf__evaluation_decide(kvf_ctx *ctx, const kvf_prefix *prefix,
                                  const kvf_eval_options *options, kvf__evaluation *evaluation);
/* Returns the decision of every group as kvf_predict writes it, without the input fields. */
kvf_json *kvf__evaluation_answers(kvf__evaluation *evaluation);
/* Lines of JSON for kvf_predict and kvf_score: appends an object, which is freed; then passes the
 * lines to `write`, or writes the file `out`. */
kvf_status kvf__add_json_line(kvf_ctx *ctx, kvf_json *object, kvf__buf *lines);
typedef struct kvf__lines_to {
    void (*write)(void *user, const char *text, size_t n);
    void *user;
    const char *out;
    bool force;
} kvf__lines_to;
kvf_status kvf__send_lines(kvf_ctx *ctx, const kvf__lines_to *to, const kvf__buf *lines);
/* Runs only the first part: loads the rows of options->data for the evaluation's task, which is
 * set. */
kvf_status kvf__evaluation_rows(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                                const kvf_eval_options *options, bool unlabeled,
                                kvf__evaluation *evaluation);

/* Sets how rows are rendered and truncated: by the options, else as in training. Renders through
 * *renderer ({0} or as set by init, freed by the caller), which must not move. */
kvf_status kvf__eval_rows(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                          const kvf_eval_options *options, kvf__renderer *renderer,
                          kvf__dataset_options *out);

/* lm: completes the prompts of options->data and adds the text metrics to *result. */
kvf_status kvf__evaluate_texts(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                               const kvf_eval_options *options, kvf_eval_result *result);

/* EUSAGE if arguments of an evaluation are missing or outside their enums. */
kvf_status kvf__check_eval(kvf_ctx *ctx, const kvf_base *base, kvf_prefix *const *prefixes,
                           size_t n, const kvf_eval_options *options);

#endif
