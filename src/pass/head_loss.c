/* Losses of task heads, as in transformers' ...For<Task> classes. The loss is cross-entropy over
 * groups of logits. A group is a row's classes (seq-cls), a word's tags (token-cls), or the rows of
 * a question (multiple-choice). For qa it is the positions of a row, for start and for end. Classes
 * of several tokens use sums over each row's labels. The loss of a regression is the squared error.
 *
 * A negative label, a row without a span and a question without a right choice have no target and
 * are ignored, like -100 in transformers. */
#include "head_priv.h"

#include <math.h>
#include <string.h>

/* Returns the end of the labels from `from` on that belong to one question's rows, which begin at
 * row r. */
static int64_t question_end(const kvf__batch *batch, int64_t from, int64_t r)
{
    int64_t last = r;
    while (last + 1 < batch->n_rows && batch->example[last + 1] == batch->example[r])
        last++;
    return kvf__label_end(batch, from, last);
}

/* Returns the right choice, relative to `from`; -1: none. */
static int64_t right_choice(const kvf__batch *batch, int64_t from, int64_t end)
{
    for (int64_t j = from; j < end; j++)
        if (batch->label_id[j] == 1) return j - from;
    return -1;
}

/* Returns the first label of the right row, among labels from .. end - 1 that begin at row r, for
 * classes of several tokens; -1: none. */
static int64_t right_row(const kvf__batch *batch, int64_t from, int64_t end, int64_t r)
{
    for (int64_t j = from; batch->values && j < end; j = kvf__label_end(batch, j, r)) {
        r = kvf__label_row(batch, j, r);
        if (batch->values[r] > 0) return j;
    }
    return -1;
}

static int64_t count_rows(const kvf__batch *batch, bool spans)
{
    int64_t terms = 0;
    for (int64_t j = 0, r = 0; j < batch->n_labels;) {
        r = kvf__label_row(batch, j, r);
        j = kvf__label_end(batch, j, r);
        terms += !spans || (batch->spans && batch->spans[2 * r] >= 0);
    }
    return terms;
}

static int64_t count_questions(const kvf__batch *batch, bool phrases)
{
    int64_t terms = 0;
    for (int64_t j = 0, r = 0, end; j < batch->n_labels; j = end) {
        r = kvf__label_row(batch, j, r);
        end = question_end(batch, j, r);
        terms += (phrases ? right_row(batch, j, end, r) : right_choice(batch, j, end)) >= 0;
    }
    return terms;
}

int64_t kvf__head_terms(const kvf__head *head, const kvf__batch *batch)
{
    int64_t terms = 0;
    if (kvf__head_is_lm(head)) return batch->n_labels;
    if (head->options.regression) return batch->values ? count_rows(batch, false) : 0;
    if (head->options.task == KVF__TASK_QA) return count_rows(batch, true);
    if (kvf__head_is_phrases(head)) return count_questions(batch, true);
    if (head->options.task == KVF__TASK_CHOICE) return count_questions(batch, false);
    for (int64_t j = 0, r = 0; j < batch->n_labels;
         j = head->mean ? kvf__label_end(batch, j, r) : j + 1) {
        r = kvf__label_row(batch, j, r);
        terms += batch->label_id[j] >= 0;
    }
    return terms;
}

/* ---- losses ---------------------------------------------------------------------------------- */

typedef struct summing {
    kvf_ctx *ctx;
    kvf__head *head;
    const kvf__batch *batch;
    double scale, sum;
} summing;

/* Adds weight * -log softmax(logits)[target] over n logits, `stride` apart from index `at` on. */
static void cross_entropy(summing *s, int64_t at, int64_t n, int64_t stride, int64_t target,
                          double weight)
{
    const float *logit = s->head->work.logits + at;
    double max = logit[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        if (logit[i * stride] > max) max = logit[i * stride];
    for (int64_t i = 0; i < n; i++)
        sum += exp(logit[i * stride] - max);
    s->sum += weight * (log(sum) + max - logit[target * stride]);
    for (int64_t i = 0; s->scale != 0 && i < n; i++) {
        double p = exp(logit[i * stride] - max) / sum;
        s->head->work.dlogits[at + i * stride] = (float)(s->scale * weight *
                                                         (p - (i == target ? 1 : 0)));
    }
}

static kvf_status sum_classes(summing *s)
{
    int64_t width = s->head->width;
    for (int64_t j = 0; j < s->batch->n_labels; j++) {
        int32_t id = s->batch->label_id[j];
        if (id >= width)
            return kvf__fail(s->ctx, KVF_ESHAPE, "head: label %ld, but the head has %lld labels",
                             (long)id, (long long)width);
        const bool weighs = s->scale != 0 && s->head->weights;
        if (id >= 0)
            cross_entropy(s, j * width, width, 1, id, weighs ? (double)s->head->weights[id] : 1);
    }
    return KVF_OK;
}

static kvf_status sum_squares(summing *s)
{
    for (int64_t j = 0; s->batch->values && j < s->batch->n_labels; j++) {
        double error = (double)s->head->work.logits[j] - s->batch->values[s->head->work.row[j]];
        s->sum += error * error;
        s->head->work.dlogits[j] = (float)(2 * s->scale * error);
    }
    return KVF_OK;
}

/* Returns the label of row r (from .. end - 1) at one of its tokens, -1 if the head does not read
 * there. */
static int64_t label_at_token(const kvf__batch *batch, int64_t r, int64_t token, int64_t from,
                              int64_t end)
{
    for (int64_t j = from; j < end; j++)
        if (batch->label_at[j] == batch->start[r] + token) return j;
    return -1;
}

static kvf_status sum_spans(summing *s)
{
    const kvf__batch *b = s->batch;
    for (int64_t j = 0, end; b->spans && j < b->n_labels; j = end) {
        int64_t r = s->head->work.row[j];
        end = kvf__label_end(b, j, r);
        for (int side = 0; b->spans[2 * r] >= 0 && side < 2; side++) {
            int64_t target = label_at_token(b, r, b->spans[2 * r + side], j, end);
            if (target < 0)
                return kvf__fail(s->ctx, KVF_ESHAPE,
                                 "batch row %lld: the answer %s at token %ld, which has no label",
                                 (long long)r, side ? "ends" : "begins",
                                 (long)b->spans[2 * r + side]);
            cross_entropy(s, 2 * j + side, end - j, 2, target - j, 0.5);
        }
    }
    return KVF_OK;
}

static kvf_status sum_questions(summing *s)
{
    for (int64_t j = 0, end; j < s->batch->n_labels; j = end) {
        end = question_end(s->batch, j, s->head->work.row[j]);
        int64_t right = right_choice(s->batch, j, end);
        if (right >= 0) cross_entropy(s, j, end - j, 1, right, 1);
    }
    return KVF_OK;
}

/* Returns the score of the row whose first label is j: the sum over its labels, up to *end. */
static double row_score(const summing *s, int64_t j, int64_t *end)
{
    double score = 0;
    *end = kvf__label_end(s->batch, j, s->head->work.row[j]);
    for (; j < *end; j++)
        score += (double)s->head->work.logits[j];
    return score;
}

/* Adds -log softmax of the right row's score among the rows of labels from .. end - 1; every label
 * of a row gets the gradient of the row's score. */
static void row_entropy(summing *s, int64_t from, int64_t end, int64_t right)
{
    double max = -INFINITY, sum = 0, wanted = 0;
    int64_t next;
    for (int64_t j = from; j < end; j = next)
        max = fmax(max, row_score(s, j, &next));
    for (int64_t j = from; j < end; j = next) {
        double score = row_score(s, j, &next);
        sum += exp(score - max);
        if (j == right) wanted = score;
    }
    s->sum += log(sum) + max - wanted;
    for (int64_t j = from; s->scale != 0 && j < end; j = next) {
        double p = exp(row_score(s, j, &next) - max) / sum;
        for (int64_t i = j; i < next; i++)
            s->head->work.dlogits[i] = (float)(s->scale * (p - (j == right ? 1 : 0)));
    }
}

static kvf_status sum_phrases(summing *s)
{
    for (int64_t j = 0, end; j < s->batch->n_labels; j = end) {
        end = question_end(s->batch, j, s->head->work.row[j]);
        int64_t right = right_row(s->batch, j, end, s->head->work.row[j]);
        if (right >= 0) row_entropy(s, j, end, right);
    }
    return KVF_OK;
}

kvf_status kvf__head_losses(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch, float scale,
                            double *loss_sum)
{
    static kvf_status (*const SUMS[])(summing *) = {[KVF__TASK_SEQ_CLS] = sum_classes,
                                                    [KVF__TASK_TOKEN_CLS] = sum_classes,
                                                    [KVF__TASK_QA] = sum_spans,
                                                    [KVF__TASK_CHOICE] = sum_questions};
    summing s = {.ctx = ctx, .head = head, .batch = batch, .scale = scale};
    memset(head->work.dlogits, 0, (size_t)(batch->n_labels * head->width) * sizeof(float));
    KVF_TRY(head->options.regression     ? sum_squares(&s)
            : kvf__head_is_phrases(head) ? sum_phrases(&s)
                                         : SUMS[head->options.task](&s));
    if (!isfinite(s.sum))
        return kvf__fail(ctx, KVF_ENUMERIC, "head: the loss is not finite (%g)", s.sum);
    *loss_sum = s.sum;
    return KVF_OK;
}
