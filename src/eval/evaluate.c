/* Evaluates a data file with one or several prefixes, from paths to answers. kvf_eval reports the
 * metrics, kvf_predict (predict.c) the answers. Task, labels and truncation of rows come from the
 * prefix, so that a run, its merged prefix and validation during training agree bit for bit. */
#include "evaluation.h"
#include "options.h"
#include "outfile.h"
#include "verbalizer.h"

#include <math.h>
#include <string.h>

/* ---- prefixes -------------------------------------------------------------------------------- */

static bool same_labels(const kvf__head_values *a, const kvf__head_values *b)
{
    if (a->n_labels != b->n_labels || a->regression != b->regression) return false;
    for (size_t i = 0; i < a->n_labels; i++)
        if (strcmp(a->labels[i], b->labels[i])) return false;
    return true;
}

/* Checks that the prefixes can be averaged: same task and labels. */
static kvf_status check_prefixes(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes,
                                 size_t n, kvf__evaluation *e)
{
    for (size_t i = 1; i < n; i++)
        if (prefixes[i]->task != prefixes[0]->task ||
            !same_labels(&prefixes[i]->file.head, &prefixes[0]->file.head))
            return kvf__fail(ctx, KVF_EUSAGE,
                             "prefix %zu has another task or other labels than the first", i + 1);
    for (size_t i = 1; i < n; i++)
        if (prefixes[i]->file.id.infix != prefixes[0]->file.id.infix)
            return kvf__fail(ctx, KVF_EUSAGE,
                             "prefix %zu is placed %s rows, but the first one %s them: they cannot "
                             "share batches",
                             i + 1, prefixes[i]->file.id.infix ? "inside" : "before",
                             prefixes[i]->file.id.infix ? "before" : "inside");
    for (size_t i = 1; i < n; i++)
        if (!kvf__prefix_same_rows(prefixes[i], prefixes[0]))
            return kvf__fail(ctx, KVF_EUSAGE,
                             "prefix %zu has its virtual tokens at other positions of the row than "
                             "the first: merge both to prefix files",
                             i + 1);
    e->task = n ? prefixes[0]->task : KVF__TASK_LM;
    if (e->task == KVF__TASK_LM && !kvf__model_desc(base->model)->block.causal)
        return kvf__fail(
            ctx, KVF_EUSAGE,
            "%s: a %s does not predict the next token: use a prefix of a task other than lm",
            base->path, kvf_base_architecture(base));
    return KVF_OK;
}

/* Refuses options of qa that would have no effect. */
static kvf_status check_rules(kvf_ctx *ctx, const kvf_eval_options *o, kvf__task task)
{
    const char *given = o->no_answer_above != 0 ? "no-answer-above"
                        : o->max_answer         ? "max-answer"
                        : o->n_best             ? "n-best"
                                                : NULL;
    if (given && task != KVF__TASK_QA)
        return kvf__fail(ctx, KVF_EUSAGE, "--%s is for prefixes of task qa", given);
    if (o->majority && (task == KVF__TASK_LM || task == KVF__TASK_QA))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--vote majority is for classes, tags and choices, not for task %s",
                         kvf__task_name(task));
    if (o->chat_template && task != KVF__TASK_LM)
        return kvf__fail(ctx, KVF_EUSAGE, "--chat-template is for prefixes of task lm");
    if (o->n_best > KVF__MOST_BEST)
        return kvf__fail(ctx, KVF_EUSAGE, "--n-best %lld: want at most %d", (long long)o->n_best,
                         KVF__MOST_BEST);
    return KVF_OK;
}

/* ---- losses and scores ----------------------------------------------------------------------- */

/* Computes the loss of one prefix as a language model, with its own head if it has one. */
static kvf_status run_one_lm(kvf_ctx *ctx, kvf_base *base, kvf__evaluation *e,
                             const kvf_prefix *prefix, double *loss, float *token_loss)
{
    kvf__subject subject = kvf__subject_of(prefix, NULL);
    KVF_TRY(kvf__prefix_head(ctx, base, prefix, &subject.head));
    kvf_status st = kvf__evaluator_run(ctx, e->evaluator, &subject, loss, token_loss);
    kvf__head_free(subject.head);
    return st;
}

/* Computes the loss of the averaged probabilities: per token, -log of the mean over prefixes of
 * exp(-loss). */
static kvf_status run_ensemble(kvf_ctx *ctx, kvf_base *base, kvf__evaluation *e,
                               kvf_prefix *const *prefixes, size_t n)
{
    size_t labels = (size_t)e->set.n_labels;
    float *token_loss = NULL;
    double *probability = NULL, each = 0;
    kvf_status st = kvf__alloc_array(ctx, labels, sizeof *token_loss, &token_loss);
    if (!st) st = kvf__alloc_array(ctx, labels, sizeof *probability, &probability);
    for (size_t i = 0; !st && i < n; i++) {
        st = run_one_lm(ctx, base, e, prefixes[i], &each, token_loss);
        for (size_t t = 0; !st && t < labels; t++)
            probability[t] += exp(-(double)token_loss[t]) / (double)n;
    }
    double sum = 0;
    for (size_t t = 0; !st && t < labels; t++)
        sum -= log(probability[t]);
    if (!st) e->loss = sum / (double)labels;
    kvf__free(token_loss);
    kvf__free(probability);
    return st;
}

static kvf_status run_lm(kvf_ctx *ctx, kvf_base *base, kvf__evaluation *e,
                         kvf_prefix *const *prefixes, size_t n)
{
    const kvf__subject subject = {0};
    if (n > 1) return run_ensemble(ctx, base, e, prefixes, n);
    if (n) return run_one_lm(ctx, base, e, prefixes[0], &e->loss, NULL);
    return kvf__evaluator_run(ctx, e->evaluator, &subject, &e->loss, NULL);
}

static kvf_status open_head(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                            kvf__evaluation *e)
{
    KVF_TRY(kvf__prefix_head(ctx, base, prefix, &e->head));
    if (!e->scores.set)
        KVF_TRY(kvf__scores_init(ctx, &e->scores, &e->set, kvf__head_width(e->head)));
    return kvf__alloc_array(ctx, (size_t)e->scores.outputs, sizeof *e->logits, &e->logits);
}

static void close_head(kvf__evaluation *e)
{
    kvf__free(e->logits);
    kvf__head_free(e->head);
    e->logits = NULL;
    e->head = NULL;
}

/* Adds the scores of one of n prefixes: their probabilities divided by n, or a vote each. With
 * votes the mean probability is added with a weight below one vote, to decide ties. */
static kvf_status add_prefix(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix, size_t n,
                             bool majority, kvf__evaluation *e)
{
    const double share = 1 / (double)n, vote = 1 / (double)(n + 1);
    KVF_TRY(open_head(ctx, base, prefix, e));
    const kvf__subject subject = kvf__subject_of(prefix, e->head);
    KVF_TRY(kvf__evaluator_run(ctx, e->evaluator, &subject, &e->loss, e->logits));
    kvf__scores_add(&e->scores, e->logits, majority ? share * vote : share);
    if (majority) kvf__scores_vote(&e->scores, e->logits, vote);
    close_head(e);
    return KVF_OK;
}

static kvf_status decide(kvf_ctx *ctx, const kvf_prefix *prefix, const kvf_eval_options *options,
                         kvf__evaluation *e)
{
    const kvf_json *trained_without = kvf_json_get(
        prefix->file.lineage, "data_no_answers"); /* qa: whether the training data had questions
                                                   * without an answer */
    const kvf__answer_rules rules = {
        .no_answer = kvf__has_impossible(&e->set) || kvf_json_bool(trained_without, false),
        .no_answer_above = options->no_answer_above,
        .n_best = options->n_best,
        .max_tokens = options->max_answer,
    };
    return kvf__answers_init(ctx, &e->answers, &e->scores, &rules);
}

static kvf_status run_heads(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                            const kvf_eval_options *options, kvf__evaluation *e)
{
    for (size_t i = 0; i < n; i++)
        KVF_TRY(add_prefix(ctx, base, prefixes[i], n, options->majority, e));
    if ((n > 1 || options->majority) && e->set.sources->labelled)
        e->loss = kvf__scores_loss(&e->scores);
    return decide(ctx, prefixes[0], options, e);
}

/* ---- evaluations ----------------------------------------------------------------------------- */

static kvf_status create_evaluator(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes,
                                   size_t n, const kvf_eval_options *options, kvf__evaluation *e)
{
    kvf__evaluator_options how = {.batch_tokens = options->batch_tokens,
                                  .share_prefixes = !options->share_off,
                                  .infix = n && prefixes[0]->file.id.infix};
    for (size_t i = 0; i < n; i++) {
        const kvf__identity *id = &prefixes[i]->file.id;
        if (id->P > how.P) how.P = id->P;
        if (id->neurons.N > how.neurons) how.neurons = id->neurons.N;
    }
    return kvf__evaluator_create(ctx, base, &e->set, &how, &e->evaluator);
}

kvf_status kvf__evaluation_read(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                                const kvf_eval_options *options, bool unlabeled,
                                kvf__evaluation *out)
{
    *out = (kvf__evaluation){.loss = NAN, .most_tokens = out->most_tokens};
    kvf_status st = check_prefixes(ctx, base, prefixes, n, out);
    if (!st) st = check_rules(ctx, options, out->task);
    if (!st && options->majority && prefixes[0]->file.head.regression)
        st = kvf__fail(ctx, KVF_EUSAGE, "--vote majority is for classes, not for a regression");
    if (!st) st = kvf__evaluation_rows(ctx, base, n ? prefixes[0] : NULL, options, unlabeled, out);
    if (st) kvf__evaluation_done(out);
    return st;
}

kvf_status kvf__evaluation_run(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                               const kvf_eval_options *options, bool unlabeled,
                               kvf__evaluation *out)
{
    kvf__evaluation *e = out;
    *e = (kvf__evaluation){0};
    KVF_TRY(kvf__evaluation_read(ctx, base, prefixes, n, options, unlabeled, e));
    kvf_status st = create_evaluator(ctx, base, prefixes, n, options, e);
    if (!st)
        st = e->task == KVF__TASK_LM ? run_lm(ctx, base, e, prefixes, n)
                                     : run_heads(ctx, base, prefixes, n, options, e);
    if (st) kvf__evaluation_done(e);
    return st;
}

static kvf_status open_parts(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             kvf__evaluation *e)
{
    const kvf_eval_options usual = {0};
    kvf_prefix *const one = (kvf_prefix *)prefix; /* used as const */
    KVF_TRY(create_evaluator(ctx, base, &one, 1, &usual, e));
    return open_head(ctx, base, prefix, e);
}

kvf_status kvf__evaluation_batch(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                                 kvf__evaluation *e, bool *more)
{
    if (!e->evaluator) KVF_TRY(open_parts(ctx, base, prefix, e));
    const kvf__subject subject = kvf__subject_of(prefix, e->head);
    KVF_TRY(kvf__evaluator_outputs(ctx, e->evaluator, &subject, e->batches++, e->logits));
    *more = e->batches < kvf__evaluator_batches(e->evaluator);
    return KVF_OK;
}

kvf_status kvf__evaluation_decide(kvf_ctx *ctx, const kvf_prefix *prefix,
                                  const kvf_eval_options *options, kvf__evaluation *e)
{
    kvf__scores_add(&e->scores, e->logits, 1);
    return decide(ctx, prefix, options, e);
}

void kvf__evaluation_done(kvf__evaluation *e)
{
    close_head(e);
    kvf__answers_done(&e->answers);
    kvf__scores_done(&e->scores);
    kvf__evaluator_free(e->evaluator);
    kvf__dataset_done(&e->set);
    kvf__renderer_done(&e->renderer);
    *e = (kvf__evaluation){0};
}

static kvf_status check_per_class(kvf_ctx *ctx, kvf_prefix *const *prefixes, size_t n,
                                  const kvf_eval_options *options)
{
    kvf__task task = n ? prefixes[0]->task : KVF__TASK_LM;
    if (!options->per_class || task == KVF__TASK_TOKEN_CLS ||
        (task == KVF__TASK_SEQ_CLS && !prefixes[0]->file.head.regression))
        return KVF_OK;
    return kvf__fail(
        ctx, KVF_EUSAGE,
        "--per-class is for prefixes with classes (seq-cls) or tags (token-cls), not for task %s%s",
        kvf__task_name(task), task == KVF__TASK_SEQ_CLS ? ", a regression" : "");
}

/* Checks numbers like the options of the command. */
static kvf_status check_counts(kvf_ctx *ctx, const kvf_eval_options *o)
{
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {{"max-length", o->max_length}, {"split-text", o->split_text},
                {"limit", o->limit},           {"batch-tokens", o->batch_tokens},
                {"generate", o->generate},     {"max-answer", o->max_answer},
                {"n-best", o->n_best}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].value < 0 || rows[i].value > INT32_MAX)
            return kvf__fail(ctx, KVF_EUSAGE, "--%s %lld: want a whole number from 0 to %d",
                             rows[i].name, (long long)rows[i].value, INT32_MAX);
    return KVF_OK;
}

kvf_status kvf__check_eval(kvf_ctx *ctx, const kvf_base *base, kvf_prefix *const *prefixes,
                           size_t n, const kvf_eval_options *options)
{
    KVF_TRY(KVF__NEED(ctx, base, options));
    KVF_TRY(KVF__NEED(ctx, options->data));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->overlong, KVF_OVERLONG_SKIP));
    KVF_TRY(check_counts(ctx, options));
    if (n) KVF_TRY(KVF__NEED(ctx, prefixes));
    for (size_t i = 0; i < n; i++)
        KVF_TRY(KVF__NEED(ctx, prefixes[i]));
    return KVF_OK;
}

static kvf_status evaluate(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                           const kvf_eval_options *options, kvf_eval_result *result)
{
    kvf__evaluation e;
    double begin = kvf__clock();
    kvf_eval_result r = {0};
    if (options->generate && n && prefixes[0]->task != KVF__TASK_LM)
        return kvf__fail(ctx, KVF_EUSAGE, "--generate is for prefixes of task lm");
    KVF_TRY(check_per_class(ctx, prefixes, n, options));
    KVF_TRY(kvf__evaluation_run(ctx, base, prefixes, n, options, false, &e));
    kvf_status st = KVF_OK;
    r.task = kvf__task_name(e.task);
    r.loss = e.loss;
    r.perplexity = e.task == KVF__TASK_LM ? exp(e.loss) : NAN;
    r.label_tokens = e.set.n_labels;
    r.examples = kvf__group_count(&e.set);
    r.skipped = e.set.skipped + e.set.unlabelled;
    r.truncated = e.set.truncated;
    r.without_label = e.set.without_label;
    if (e.task != KVF__TASK_LM) st = kvf__measure(ctx, &e.answers, e.loss, r.scores, &r.n_scores);
    if (!st && options->per_class) st = kvf__measure_each(ctx, &e.answers, &r);
    kvf__evaluation_done(&e);
    if (!st && options->generate) st = kvf__evaluate_texts(ctx, base, prefixes, n, options, &r);
    r.seconds = kvf__clock() - begin;
    KVF__GIVE(st, result, r, kvf_eval_result_done(&r));
    return st;
}

kvf_status kvf_eval(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                    const kvf_eval_options *options, kvf_eval_result *result)
{
    KVF_TRY(KVF__NEED(ctx, result));
    KVF_TRY(kvf__check_eval(ctx, base, prefixes, n, options));
    KVF__RETURN(ctx, evaluate(ctx, base, prefixes, n, options, result));
}

/* ---- lines ----------------------------------------------------------------------------------- */

kvf_status kvf__add_json_line(kvf_ctx *ctx, kvf_json *object, kvf__buf *lines)
{
    char *text = kvf_json_text(object, KVF_JSON_COMPACT);
    kvf_status st = text ? kvf__buf_printf(ctx, lines, "%s\n", text)
                         : kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    kvf_json_text_free(text);
    kvf_json_free(object);
    return st;
}

kvf_status kvf__send_lines(kvf_ctx *ctx, const kvf__lines_to *to, const kvf__buf *lines)
{
    if (!to->write) return kvf__write_file(ctx, to->out, to->force, lines->data, lines->n);
    to->write(to->user, lines->data, lines->n);
    return KVF_OK;
}
