/* kvf_score: log-likelihoods of the rows of a data file with one prefix, each in a separate pass
 * (score.h), as numbers and as a file of JSON lines. */
#include "evaluation.h"
#include "score.h"

typedef struct row_scoring {
    kvf_ctx *ctx;
    kvf__scorer *scorer;
    kvf__head *head;
    const kvf_prefix *prefix;
    const kvf__dataset *set;
    kvf_score_result result;
} row_scoring;

/* ---- numbers --------------------------------------------------------------------------------- */

/* Checks for one prefix of task lm, and refuses options of other tasks, which would have no effect.
 */
static kvf_status check_scoring(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                                const kvf_score_options *options)
{
    const kvf_eval_options *o = &options->eval;
    KVF_TRY(KVF__CHECK_RESERVED(ctx, kvf_score_options, options));
    if (prefix && prefix->task != KVF__TASK_LM)
        return kvf__fail(ctx, KVF_EUSAGE, "a prefix of task %s cannot score texts: use `predict`",
                         kvf__task_name(prefix->task));
    if (o->no_answer_above != 0 || o->max_answer || o->n_best || o->per_class || o->majority ||
        o->generate || o->batch_tokens)
        return kvf__fail(
            ctx, KVF_EUSAGE,
            "score does not support options of other tasks, generate, or batch_tokens");
    if (options->write || !options->out) return KVF_OK;
    KVF_TRY(kvf__check_not_input(ctx, options->out, o->data));
    KVF_TRY(kvf__check_not_input(ctx, options->out, base->path));
    if (prefix) KVF_TRY(kvf__check_not_input(ctx, options->out, prefix->path));
    return kvf__check_output(ctx, options->out, options->force);
}

static kvf__scorer_limits limits_of(const kvf__dataset *set, const kvf_prefix *prefix)
{
    kvf__scorer_limits limits = {0};
    for (int64_t i = 0; i < set->n; i++)
        if (kvf__example_length(set, i) > limits.tokens)
            limits.tokens = kvf__example_length(set, i);
    if (!prefix) return limits;
    limits.P = prefix->file.prefix.P;
    limits.neurons = kvf__prefix_neurons(prefix);
    limits.infix = prefix->file.id.infix;
    return limits;
}

/* Scores row i of the data set into *to, with its tokens in `tokens`. */
static kvf_status score_row(row_scoring *s, int64_t i, kvf_token_score *tokens, kvf_row_score *to)
{
    const int64_t at = s->set->start[i];
    const kvf__score_row row = {.prefix = s->prefix,
                                .head = s->head,
                                .ids = s->set->ids + at,
                                .labels = s->set->labels + at,
                                .n = kvf__example_length(s->set, i)};
    KVF_TRY(kvf__score_row_run(s->ctx, s->scorer, &row, tokens, NULL));
    to->n = (size_t)kvf__example_labels(s->set, i);
    to->tokens = tokens;
    for (size_t t = 0; t < to->n; t++)
        to->loglikelihood += (double)tokens[t].logprob;
    return KVF_OK;
}

/* Scores every row, with an empty score for each skipped one. */
static kvf_status score_rows(row_scoring *s)
{
    const kvf__sources *sources = s->set->sources;
    kvf_score_result *r = &s->result;
    kvf_token_score *tokens = NULL;
    int64_t left = 0;
    KVF_TRY(
        kvf__alloc_array(s->ctx, (size_t)(s->set->n + sources->n_left), sizeof *r->rows, &r->rows));
    KVF_TRY(kvf__alloc_array(s->ctx, (size_t)s->set->n_labels, sizeof *tokens, &tokens));
    r->memory = tokens;
    for (int64_t i = 0; i <= s->set->n; i++) {
        for (; left < sources->n_left && sources->left[left].before == i; left++)
            r->rows[r->n++].skipped = true;
        if (i == s->set->n) break;
        KVF_TRY(score_row(s, i, tokens + r->tokens, &r->rows[r->n]));
        r->tokens += (int64_t)r->rows[r->n++].n;
    }
    r->skipped = s->set->skipped;
    r->truncated = s->set->truncated;
    return KVF_OK;
}

static kvf_status score_set(row_scoring *s, kvf_base *base)
{
    const kvf__scorer_limits limits = limits_of(s->set, s->prefix);
    kvf_status st = KVF_OK;
    if (s->prefix) st = kvf__prefix_head(s->ctx, base, s->prefix, &s->head);
    if (!st) st = kvf__scorer_create(s->ctx, base, &limits, &s->scorer);
    if (!st) st = score_rows(s);
    kvf__scorer_free(s->scorer);
    kvf__head_free(s->head);
    return st;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static kvf_json *row_json(const kvf_row_score *row)
{
    kvf_json *object = kvf_json_object();
    if (row->skipped) {
        kvf_json_set(object, "loglikelihood", kvf_json_new_null());
        return object;
    }
    kvf_json *ids = kvf_json_array(), *logprobs = kvf_json_array(), *greedy = kvf_json_array();
    for (size_t t = 0; t < row->n; t++) {
        kvf_json_add(ids, kvf_json_new_int(row->tokens[t].id));
        kvf_json_add(logprobs, kvf_json_new_real((double)row->tokens[t].logprob));
        kvf_json_add(greedy, kvf_json_new_bool(row->tokens[t].greedy));
    }
    kvf_json_set(object, "loglikelihood", kvf_json_new_real(row->loglikelihood));
    kvf_json_set(object, "tokens", kvf_json_new_int((int64_t)row->n));
    kvf_json_set(object, "ids", ids);
    kvf_json_set(object, "logprobs", logprobs);
    kvf_json_set(object, "greedy", greedy);
    return object;
}

static kvf_status write_lines(kvf_ctx *ctx, const kvf_score_options *options,
                              const kvf_score_result *result)
{
    const kvf__lines_to to = {options->write, options->user, options->out, options->force};
    kvf__buf out = {0};
    kvf_status st = KVF_OK;
    if (!options->out && !options->write) return KVF_OK;
    for (size_t i = 0; !st && i < result->n; i++)
        st = kvf__add_json_line(ctx, row_json(&result->rows[i]), &out);
    if (!st) st = kvf__send_lines(ctx, &to, &out);
    kvf__buf_done(&out);
    return st;
}

/* ---- the whole of it ------------------------------------------------------------------------- */

void kvf_score_result_done(kvf_score_result *result)
{
    if (!result) return;
    kvf__free(result->rows);
    kvf__free(result->memory);
    *result = (kvf_score_result){0};
}

static kvf_status score_file(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             const kvf_score_options *options, kvf_score_result *result)
{
    kvf__evaluation e = {.task = KVF__TASK_LM};
    row_scoring s = {.ctx = ctx, .prefix = prefix, .set = &e.set};
    const double begin = kvf__clock();
    KVF_TRY(check_scoring(ctx, base, prefix, options));
    kvf_status st = kvf__evaluation_rows(ctx, base, prefix, &options->eval, true, &e);
    if (!st) st = score_set(&s, base);
    if (!st) st = write_lines(ctx, options, &s.result);
    kvf__evaluation_done(&e);
    s.result.seconds = kvf__clock() - begin;
    if (!st && result)
        *result = s.result;
    else
        kvf_score_result_done(&s.result);
    return st;
}

kvf_status kvf_score(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                     const kvf_score_options *options, kvf_score_result *result)
{
    KVF_TRY(KVF__NEED(ctx, options));
    KVF_TRY(kvf__check_eval(ctx, base, NULL, 0, &options->eval));
    KVF__RETURN(ctx, score_file(ctx, base, prefix, options, result));
}
