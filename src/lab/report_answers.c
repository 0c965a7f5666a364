/* Facts about a classifier or tagger for a report: the confusion matrix, and the wrong answers with
 * the highest confidence, over all rows, as `eval` reads them. */
#include "evaluation.h"
#include "json_pack.h"
#include "report_facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LABELS = 40, MOST_WRONG = 20 };

/* A row, or a word in one. */
typedef struct mistake {
    int64_t group, word; /* word -1: a classified row */
    int32_t label, predicted;
    double p;
} mistake;

typedef struct tally {
    const kvf__evaluation *e;
    int64_t n, right;
    int64_t *counts; /* [labels, labels] */
    mistake *wrong;  /* [n_wrong] */
    size_t n_wrong;
} tally;

static void count(tally *t, int64_t group, int64_t word, int64_t at)
{
    const kvf__answers *a = &t->e->answers;
    const int64_t labels = (int64_t)t->e->set.names.n;
    const mistake one = {group, word, a->gold[at], a->best[at], a->p[at]};
    if (one.label < 0 || isnan(one.p)) return; /* without gold label, or not in a row */
    t->n++;
    t->counts[one.label * labels + one.predicted]++;
    if (one.label == one.predicted)
        t->right++;
    else
        t->wrong[t->n_wrong++] = one;
}

static kvf_status count_all(kvf_ctx *ctx, tally *t)
{
    const kvf__answers *a = &t->e->answers;
    const size_t labels = t->e->set.names.n;
    const int64_t most = a->start ? a->start[a->n] : a->n;
    KVF_TRY(kvf__alloc_array(ctx, labels * labels, sizeof *t->counts, &t->counts));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)most, sizeof *t->wrong, &t->wrong));
    for (int64_t i = 0; i < a->n; i++) {
        if (!a->start) count(t, i, -1, i);
        for (int64_t w = 0; a->start && w < a->start[i + 1] - a->start[i]; w++)
            count(t, i, w, a->start[i] + w);
    }
    return KVF_OK;
}

/* Orders by descending confidence, then by the order of the data. */
static int by_sureness(const void *x, const void *y)
{
    const mistake *a = x, *b = y;
    if (a->p != b->p) return a->p > b->p ? -1 : 1;
    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    return (a->word > b->word) - (a->word < b->word);
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static void add_part(kvf_ctx *ctx, kvf__buf *text, const char *part, size_t bytes, kvf_status *st)
{
    if (!*st && text->n) *st = kvf__buf_addc(ctx, text, ' ');
    if (!*st) *st = kvf__buf_add(ctx, text, part, bytes);
}

/* Returns the texts of a row, or the words of a sentence. */
static kvf_status text_of(kvf_ctx *ctx, const kvf__source *source, kvf__buf *text)
{
    kvf_status st = KVF_OK;
    if (source->text) add_part(ctx, text, source->text, source->text_bytes, &st);
    if (source->pair) add_part(ctx, text, "|", 1, &st);
    if (source->pair) add_part(ctx, text, source->pair, source->pair_bytes, &st);
    for (int64_t i = 0; !source->text && i < source->n; i++)
        add_part(ctx, text, source->items[i], kvf__source_item_bytes(source, i), &st);
    return st;
}

static kvf_status add_mistake(kvf_ctx *ctx, const tally *t, const mistake *m, kvf_json *list)
{
    const kvf__source *source = &t->e->set.sources->group[m->group];
    char *const *names = t->e->set.names.names;
    kvf__buf text = {0};
    const kvf_status st = text_of(ctx, source, &text);
    kvf_json *row = kvf__json_of("text:o label:s predicted:s probability:f",
                                 kvf_json_new_strn(text.n ? text.data : "", text.n),
                                 names[m->label], names[m->predicted], m->p);
    if (m->word >= 0)
        kvf_json_set(
            row, "word",
            kvf_json_new_strn(source->items[m->word], kvf__source_item_bytes(source, m->word)));
    kvf_json_add(list, row);
    kvf__buf_done(&text);
    return st;
}

static kvf_status put_tally(kvf__report_facts *r, tally *t)
{
    const size_t labels = t->e->set.names.n;
    kvf_json *names = kvf_json_array(), *counts = kvf_json_array(), *wrong = kvf_json_array();
    kvf_status st = KVF_OK;
    for (size_t i = 0; i < labels; i++) {
        kvf_json_add(names, kvf_json_new_str(t->e->set.names.names[i]));
        kvf_json_add(counts, kvf__json_ints(t->counts + i * labels, (int64_t)labels));
    }
    if (t->n_wrong) qsort(t->wrong, t->n_wrong, sizeof *t->wrong, by_sureness);
    for (size_t i = 0; i < t->n_wrong && i < MOST_WRONG && !st; i++)
        st = add_mistake(r->ctx, t, &t->wrong[i], wrong);
    kvf_json_set(r->facts, "answers",
                 kvf__json_of("data:s unit:s n:I right:I labels:o counts:o wrong:o",
                              kvf__path_end(r->options->data),
                              t->e->task == KVF__TASK_TOKEN_CLS ? "words" : "rows", t->n, t->right,
                              names, counts, wrong));
    return st;
}

kvf_status kvf__report_answers(kvf__report_facts *r)
{
    const kvf_eval_options options = kvf__report_data(r->options);
    const kvf__task task = r->prefix->task;
    kvf__evaluation e;
    tally t = {.e = &e};
    if (task != KVF__TASK_SEQ_CLS && task != KVF__TASK_TOKEN_CLS) return KVF_OK;
    if (r->prefix->file.head.regression) return KVF_OK;
    if (r->prefix->file.head.n_labels > MOST_LABELS) {
        kvf__report_note(
            r, "No table of answers: the task has %zu labels, and the table shows at most %d.",
            r->prefix->file.head.n_labels, MOST_LABELS);
        return KVF_OK;
    }
    KVF_TRY(kvf__evaluation_run(r->ctx, r->base, &r->prefix, 1, &options, true, &e));
    kvf_status st = count_all(r->ctx, &t);
    if (!st && t.n) st = put_tally(r, &t);
    if (!st && !t.n) kvf__report_note(r, "No table of answers: the data has no labels.");
    kvf__free(t.counts);
    kvf__free(t.wrong);
    kvf__evaluation_done(&e);
    return st;
}
