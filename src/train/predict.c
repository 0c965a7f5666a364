/* Predictions on paper: one JSON object per example with what the file said, what was decided and
 * how probable that is; or CoNLL columns, word, gold tag where there is one, predicted tag. The
 * order is that of the data. */
#include "train_int.h"

#include <math.h>
#include <string.h>

typedef struct writer {
    kvf_ctx *ctx;
    const kvf__trial *trial;
    kvf__buf *out;
} writer;

static const kvf__source *source_of(const writer *w, int64_t group)
{
    return &w->trial->set.sources->group[group];
}

static void set_text(kvf_json *row, const char *key, const char *text)
{
    if (text) kvf_json_set(row, key, kvf_json_new_str(text));
}

/* ---- the tasks ------------------------------------------------------------------------------- */

static void write_classes(const writer *w, int64_t i, kvf_json *row)
{
    const kvf__dataset *set = &w->trial->set;
    const kvf__answers *a = &w->trial->answers;
    const kvf__source *source = source_of(w, i);
    set_text(row, "text", source->text);
    set_text(row, "text_pair", source->pair);
    if (set->regression) {
        if (!isnan(source->value))
            kvf_json_set(row, "label", kvf_json_new_real((double)source->value));
        kvf_json_set(row, "prediction", kvf_json_new_real(a->numbers[i]));
        return;
    }
    const double *p = w->trial->scores.p + w->trial->scores.first[i] * w->trial->scores.width;
    kvf_json *all = kvf_json_object();
    if (source->gold >= 0) set_text(row, "label", set->names.names[source->gold]);
    set_text(row, "prediction", set->names.names[a->best[i]]);
    for (size_t c = 0; c < set->names.n; c++)
        kvf_json_set(all, set->names.names[c], kvf_json_new_real(p[c]));
    kvf_json_set(row, "probabilities", all);
}

static kvf_json *tag_list(const char *const *tags, int64_t n)
{
    kvf_json *list = kvf_json_array();
    for (int64_t i = 0; i < n; i++)
        kvf_json_add(list, kvf_json_new_str(tags[i]));
    return list;
}

static void write_tags(const writer *w, int64_t i, kvf_json *row)
{
    const kvf__answers *a = &w->trial->answers;
    const kvf__source *source = source_of(w, i);
    kvf_json *p = kvf_json_array();
    int64_t at = a->start[i];
    kvf_json_set(row, "tokens", tag_list(source->items, source->n));
    if (source->n && a->gold[at] >= 0)
        kvf_json_set(row, "tags", tag_list(a->gold_tags + at, source->n));
    kvf_json_set(row, "prediction", tag_list(a->tags + at, source->n));
    for (int64_t k = 0; k < source->n; k++)
        kvf_json_add(p, kvf_json_new_real(a->p[at + k]));
    kvf_json_set(row, "probabilities", p);
}

/* Code points before byte `at`. */
static int64_t points_before(const char *text, int64_t at)
{
    int64_t n = 0;
    for (int64_t i = 0; i < at; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

static void write_span(const writer *w, int64_t i, kvf_json *row)
{
    const kvf__answers *a = &w->trial->answers;
    const kvf__source *source = source_of(w, i);
    set_text(row, "question", source->pair);
    if (source->answered) kvf_json_set(row, "answers", tag_list(source->items, source->n));
    set_text(row, "prediction", a->texts[i]);
    if (a->spans[2 * i] >= 0)
        kvf_json_set(row, "start", kvf_json_new_int(points_before(source->text, a->spans[2 * i])));
    kvf_json_set(row, "probability", kvf_json_new_real(a->p[i]));
    if (!isnan(a->p_none[i]))
        kvf_json_set(row, "no_answer_probability", kvf_json_new_real(a->p_none[i]));
}

static void write_choice(const writer *w, int64_t i, kvf_json *row)
{
    const kvf__scores *s = &w->trial->scores;
    const kvf__source *source = source_of(w, i);
    kvf_json *p = kvf_json_array();
    const int64_t *group = w->trial->set.group;
    int64_t first = s->first[group ? group[i] : i];
    set_text(row, "text", source->text);
    kvf_json_set(row, "choices", tag_list(source->items, source->n));
    if (source->gold >= 0) kvf_json_set(row, "label", kvf_json_new_int(source->gold));
    kvf_json_set(row, "prediction", kvf_json_new_int(w->trial->answers.best[i]));
    for (int64_t c = 0; c < source->n; c++)
        kvf_json_add(p, kvf_json_new_real(s->p[first + c]));
    kvf_json_set(row, "probabilities", p);
}

/* ---- files ----------------------------------------------------------------------------------- */

static kvf_status write_jsonl(writer *w)
{
    static void (*const ROW[])(const writer *, int64_t, kvf_json *) = {
        [KVF__TASK_SEQ_CLS] = write_classes,
        [KVF__TASK_TOKEN_CLS] = write_tags,
        [KVF__TASK_QA] = write_span,
        [KVF__TASK_CHOICE] = write_choice,
    };
    kvf_status st = KVF_OK;
    for (int64_t i = 0; !st && i < w->trial->answers.n; i++) {
        kvf_json *row = kvf_json_object();
        set_text(row, "id", source_of(w, i)->id);
        ROW[w->trial->task](w, i, row);
        char *text = kvf_json_text(row, KVF_JSON_COMPACT);
        st = text ? kvf__buf_printf(w->ctx, w->out, "%s\n", text)
                  : kvf__fail(w->ctx, KVF_ENOMEM, "out of memory");
        kvf_json_text_free(text);
        kvf_json_free(row);
    }
    return st;
}

static kvf_status write_conll(writer *w)
{
    const kvf__answers *a = &w->trial->answers;
    if (w->trial->task != KVF__TASK_TOKEN_CLS)
        return kvf__fail(w->ctx, KVF_EUSAGE, "CoNLL is for task token-cls, this one is %s",
                         kvf__task_name(w->trial->task));
    for (int64_t i = 0; i < a->n; i++) {
        const kvf__source *source = source_of(w, i);
        for (int64_t k = 0; k < source->n; k++) {
            int64_t at = a->start[i] + k;
            bool gold = a->gold[at] >= 0;
            KVF_TRY(kvf__buf_printf(w->ctx, w->out, "%s%s%s\t%s\n", source->items[k],
                                    gold ? "\t" : "", gold ? a->gold_tags[at] : "", a->tags[at]));
        }
        KVF_TRY(kvf__buf_addc(w->ctx, w->out, '\n'));
    }
    return KVF_OK;
}

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static kvf_status pick_format(kvf_ctx *ctx, const kvf_predict_options *options, bool *conll)
{
    const char *format = options->out_format;
    *conll = format ? !strcmp(format, "conll") : ends_in(options->out, ".conll");
    if (!format || *conll || !strcmp(format, "jsonl")) return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE, "output format \"%s\" is not known; known: jsonl, conll",
                     format);
}

/* Before the work: a wrong output should not cost it. */
static kvf_status check_output(kvf_ctx *ctx, const kvf_base *base, kvf_prefix *const *prefixes,
                               size_t n, const kvf_predict_options *options)
{
    kvf__outfile probe = {0};
    KVF_TRY(kvf_check_not_input(ctx, options->out, options->eval.data));
    KVF_TRY(kvf_check_not_input(ctx, options->out, base->path));
    for (size_t i = 0; i < n; i++)
        KVF_TRY(kvf_check_not_input(ctx, options->out, prefixes[i]->path));
    KVF_TRY(kvf__outfile_begin(ctx, options->out, options->force, &probe));
    kvf__outfile_abort(&probe);
    return KVF_OK;
}

kvf_status kvf_predict(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                       const kvf_predict_options *options, kvf_predict_result *result)
{
    kvf__trial trial;
    kvf__buf out = {0};
    bool conll = false;
    double begin = kvf__clock();
    if (!n || prefixes[0]->task == KVF__TASK_LM)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "task lm has no head: `generate` continues texts, predict needs a prefix "
                         "of another task");
    KVF_TRY(pick_format(ctx, options, &conll));
    KVF_TRY(check_output(ctx, base, prefixes, n, options));
    KVF_TRY(kvf__trial_run(ctx, base, prefixes, n, &options->eval, true, &trial));
    writer w = {ctx, &trial, &out};
    kvf_status st = conll ? write_conll(&w) : write_jsonl(&w);
    if (!st) st = kvf__write_file(ctx, options->out, options->force, out.data, out.n);
    if (!st)
        *result = (kvf_predict_result){
            .task = kvf__task_name(trial.task),
            .examples = trial.answers.n,
            .skipped = trial.set.skipped,
            .seconds = kvf__clock() - begin,
        };
    kvf__buf_done(&out);
    kvf__trial_done(&trial);
    return st;
}
