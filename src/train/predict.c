/* Predictions as a file: one JSON object per example with its input fields, what was decided and
 * how probable that is; or CoNLL columns, word, gold tag where there is one, predicted tag. The
 * order is that of the data, and nothing of it is missing: an example that --overlong skip left
 * out, and a word that no row has a token of, have null for an answer, in CoNLL "_". */
#include "evaluation.h"
#include "outfile.h"

#include <math.h>
#include <string.h>

typedef struct answer_writer {
    kvf_ctx *ctx;
    const kvf__evaluation *e;
    kvf__buf *out;
} answer_writer;

static void set_name(kvf_json *row, const char *key, const char *name)
{
    if (name) kvf_json_set(row, key, kvf_json_new_str(name));
}

static void set_text(kvf_json *row, const char *key, const char *text, size_t bytes)
{
    if (text) kvf_json_set(row, key, kvf_json_new_strn(text, bytes));
}

static kvf_json *item_list(const kvf__source *source)
{
    kvf_json *list = kvf_json_array();
    for (int64_t i = 0; i < source->n; i++)
        kvf_json_add(list, kvf_json_new_strn(source->items[i], kvf__source_item_bytes(source, i)));
    return list;
}

/* ---- the tasks ------------------------------------------------------------------------------- */

/* Each writes the input fields and the answer: a group's index, or -1 for one left out. */
typedef void write_fn(const answer_writer *w, const kvf__source *source, int64_t i, kvf_json *row);

static void write_number(const answer_writer *w, const kvf__source *source, int64_t i,
                         kvf_json *row)
{
    if (!isnan(source->value)) kvf_json_set(row, "label", kvf_json_new_real((double)source->value));
    kvf_json_set(row, "prediction", kvf_json_new_real(i < 0 ? NAN : w->e->answers.numbers[i]));
}

static void write_classes(const answer_writer *w, const kvf__source *source, int64_t i,
                          kvf_json *row)
{
    const kvf__scores *scores = &w->e->scores;
    const kvf__label_set *names = &w->e->set.names;
    set_text(row, "text", source->text, source->text_bytes);
    set_text(row, "text_pair", source->pair, source->pair_bytes);
    if (w->e->set.regression) {
        write_number(w, source, i, row);
        return;
    }
    if (source->gold >= 0) set_name(row, "label", names->names[source->gold]);
    if (i < 0) {
        kvf_json_set(row, "prediction", kvf_json_new_null());
        return;
    }
    const double *p = scores->p + scores->first[i] * scores->width;
    kvf_json *all = kvf_json_object();
    set_name(row, "prediction", names->names[w->e->answers.best[i]]);
    for (size_t c = 0; c < names->n; c++)
        kvf_json_set(all, names->names[c], kvf_json_new_real(p[c]));
    kvf_json_set(row, "probabilities", all);
}

/* Gold tag of a word; NULL: not given. */
static const char *gold_tag(const answer_writer *w, const kvf__source *source, int64_t word)
{
    int32_t tag = source->tags[word];
    return tag < 0 ? NULL : w->e->set.names.names[tag];
}

/* What was decided of it, and how probable that is; NULL: no row has it. */
static const char *decided_tag(const answer_writer *w, const kvf__source *source, int64_t i,
                               int64_t word, double *p)
{
    const kvf__answers *a = &w->e->answers;
    *p = NAN;
    if (i < 0 || source->label_of[word] < 0) return NULL;
    *p = a->p[a->start[i] + word];
    return a->tags[a->start[i] + word];
}

static void write_tags(const answer_writer *w, const kvf__source *source, int64_t i, kvf_json *row)
{
    kvf_json *gold = kvf_json_array(), *tags = kvf_json_array(), *all = kvf_json_array();
    bool given = source->n && source->tags[0] >= 0;
    double p = NAN;
    for (int64_t k = 0; k < source->n; k++) {
        const char *tag = decided_tag(w, source, i, k, &p);
        if (given) kvf_json_add(gold, kvf_json_new_str(gold_tag(w, source, k)));
        kvf_json_add(tags, tag ? kvf_json_new_str(tag) : kvf_json_new_null());
        kvf_json_add(all, kvf_json_new_real(p));
    }
    kvf_json_set(row, "tokens", item_list(source));
    if (given)
        kvf_json_set(row, "tags", gold);
    else
        kvf_json_free(gold);
    kvf_json_set(row, "prediction", tags);
    kvf_json_set(row, "probabilities", all);
}

static void write_span(const answer_writer *w, const kvf__source *source, int64_t i, kvf_json *row)
{
    const kvf__answers *a = &w->e->answers;
    set_text(row, "question", source->pair, source->pair_bytes);
    if (source->answered) kvf_json_set(row, "answers", item_list(source));
    if (i < 0) {
        kvf_json_set(row, "prediction", kvf_json_new_null());
        return;
    }
    set_text(row, "prediction", a->texts[i], a->text_bytes[i]);
    if (a->spans[2 * i] >= 0)
        kvf_json_set(row, "start",
                     kvf_json_new_int(kvf__utf8_count(source->text, (size_t)a->spans[2 * i])));
    kvf_json_set(row, "probability", kvf_json_new_real(a->p[i]));
    if (!isnan(a->p_none[i]))
        kvf_json_set(row, "no_answer_probability", kvf_json_new_real(a->p_none[i]));
}

static void write_choice(const answer_writer *w, const kvf__source *source, int64_t i,
                         kvf_json *row)
{
    const kvf__scores *s = &w->e->scores;
    const int64_t *group = w->e->set.group;
    set_text(row, "text", source->text, source->text_bytes);
    kvf_json_set(row, "choices", item_list(source));
    if (source->gold >= 0) kvf_json_set(row, "label", kvf_json_new_int(source->gold));
    if (i < 0) {
        kvf_json_set(row, "prediction", kvf_json_new_null());
        return;
    }
    kvf_json *p = kvf_json_array();
    int64_t first = s->first[group ? group[i] : i];
    kvf_json_set(row, "prediction", kvf_json_new_int(w->e->answers.best[i]));
    for (int64_t c = 0; c < source->n; c++)
        kvf_json_add(p, kvf_json_new_real(s->p[first + c]));
    kvf_json_set(row, "probabilities", p);
}

/* ---- files ----------------------------------------------------------------------------------- */

static kvf_status put_jsonl(answer_writer *w, const kvf__source *source, int64_t i)
{
    static write_fn *const ROW[] = {
        [KVF__TASK_SEQ_CLS] = write_classes,
        [KVF__TASK_TOKEN_CLS] = write_tags,
        [KVF__TASK_QA] = write_span,
        [KVF__TASK_CHOICE] = write_choice,
    };
    kvf_json *row = kvf_json_object();
    set_name(row, "id", source->id);
    ROW[w->e->task](w, source, i, row);
    char *text = kvf_json_text(row, KVF_JSON_COMPACT);
    kvf_status st = text ? kvf__buf_printf(w->ctx, w->out, "%s\n", text)
                         : kvf__fail(w->ctx, KVF_ENOMEM, "out of memory");
    kvf_json_text_free(text);
    kvf_json_free(row);
    return st;
}

static kvf_status put_conll(answer_writer *w, const kvf__source *source, int64_t i)
{
    double p;
    for (int64_t k = 0; k < source->n; k++) {
        const char *gold = gold_tag(w, source, k), *tag = decided_tag(w, source, i, k, &p);
        KVF_TRY(kvf__buf_add(w->ctx, w->out, source->items[k], kvf__source_item_bytes(source, k)));
        KVF_TRY(kvf__buf_printf(w->ctx, w->out, "%s%s\t%s\n", gold ? "\t" : "", gold ? gold : "",
                                tag ? tag : "_"));
    }
    return kvf__buf_addc(w->ctx, w->out, '\n');
}

/* Every group, and in its place what was left out. */
static kvf_status write_all(answer_writer *w, bool conll)
{
    const kvf__sources *sources = w->e->set.sources;
    kvf_status (*put)(answer_writer *, const kvf__source *, int64_t) = conll ? put_conll
                                                                             : put_jsonl;
    int64_t n = w->e->answers.n, left = 0;
    for (int64_t i = 0; i <= n; i++) {
        for (; left < sources->n_left && sources->left[left].before == i; left++)
            KVF_TRY(put(w, &sources->left[left].source, -1));
        if (i < n) KVF_TRY(put(w, &sources->group[i], i));
    }
    return KVF_OK;
}

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static kvf_status pick_format(kvf_ctx *ctx, const kvf_predict_options *options, kvf__task task,
                              bool *conll)
{
    *conll = options->out_format ? options->out_format == KVF_PREDICT_CONLL
                                 : ends_in(options->out, ".conll");
    if (*conll && task != KVF__TASK_TOKEN_CLS)
        return kvf__fail(ctx, KVF_EUSAGE, "CoNLL is for task token-cls, this one is %s",
                         kvf__task_name(task));
    return KVF_OK;
}

/* Before the work: a wrong output should not cost it. */
static kvf_status check_output(kvf_ctx *ctx, const kvf_base *base, kvf_prefix *const *prefixes,
                               size_t n, const kvf_predict_options *options)
{
    if (options->write) return KVF_OK;
    KVF_TRY(kvf__check_not_input(ctx, options->out, options->eval.data));
    KVF_TRY(kvf__check_not_input(ctx, options->out, base->path));
    for (size_t i = 0; i < n; i++)
        KVF_TRY(kvf__check_not_input(ctx, options->out, prefixes[i]->path));
    return kvf__check_output(ctx, options->out, options->force);
}

kvf_status kvf_predict(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                       const kvf_predict_options *options, kvf_predict_result *result)
{
    kvf__evaluation e;
    kvf__buf out = {0};
    bool conll = false;
    double begin = kvf__clock();
    if (!n || prefixes[0]->task == KVF__TASK_LM)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "task lm has no head: `generate` continues texts, predict needs a prefix "
                         "of another task");
    KVF_TRY(pick_format(ctx, options, prefixes[0]->task, &conll));
    KVF_TRY(check_output(ctx, base, prefixes, n, options));
    KVF_TRY(kvf__evaluation_run(ctx, base, prefixes, n, &options->eval, true, &e));
    answer_writer w = {ctx, &e, &out};
    kvf_status st = write_all(&w, conll);
    if (!st && options->write)
        options->write(options->user, out.data, out.n);
    else if (!st)
        st = kvf__write_file(ctx, options->out, options->force, out.data, out.n);
    if (!st)
        *result = (kvf_predict_result){
            .task = kvf__task_name(e.task),
            .examples = e.answers.n,
            .skipped = e.set.skipped,
            .truncated = e.set.truncated,
            .seconds = kvf__clock() - begin,
        };
    kvf__buf_done(&out);
    kvf__evaluation_done(&e);
    return st;
}
