/* kvf_predict: returns and writes the decisions of a head for each row. A file has one JSON object
 * per example with its input fields, the decision and its probability, or CoNLL columns: word, gold
 * tag if given, predicted tag. The order is that of the data, and no example is missing: one
 * skipped by --overlong skip, or a word without tokens, has the answer null, in CoNLL "_". */
#include "evaluation.h"
#include "metric_int.h"

#include <math.h>
#include <string.h>

/* ---- numbers --------------------------------------------------------------------------------- */

/* Owner of the memory that a result's rows view. */
typedef struct predictions {
    kvf__evaluation e;
    kvf_prediction *rows;
} predictions;

/* For a regression: the number. */
static void take_class(const kvf__evaluation *e, int64_t i, kvf_prediction *to)
{
    if (e->set.regression) {
        to->value = e->answers.numbers[i];
        return;
    }
    to->best = e->answers.best[i];
    to->label = e->set.names.names[to->best];
    to->label_bytes = strlen(to->label);
    to->probability = e->answers.p[i];
    to->n = (size_t)e->scores.width;
    to->probabilities = e->scores.p + e->scores.first[i] * e->scores.width;
}

static void take_tags(kvf__evaluation *e, int64_t i, kvf_prediction *to)
{
    const kvf__source *source = &e->set.sources->group[i];
    const char **tags = e->answers.tags + e->answers.start[i];
    for (int64_t word = 0; word < source->n; word++)
        if (source->label_of[word] < 0) tags[word] = NULL;
    to->n = (size_t)source->n;
    to->tags = tags;
    to->probabilities = e->answers.p + e->answers.start[i];
}

static void take_span(const kvf__evaluation *e, int64_t i, kvf_prediction *to)
{
    const kvf__answers *a = &e->answers;
    const char *context = e->set.sources->group[i].text;
    to->label = a->texts[i];
    to->label_bytes = a->text_bytes[i];
    to->probability = a->p[i];
    to->no_answer_probability = a->p_none[i];
    if (a->spans[2 * i] < 0) return;
    to->start = kvf__utf8_count(context, (size_t)a->spans[2 * i]);
    to->end = kvf__utf8_count(context, (size_t)a->spans[2 * i + 1]);
}

static void take_choice(const kvf__evaluation *e, int64_t i, kvf_prediction *to)
{
    to->best = e->answers.best[i];
    to->probability = e->answers.p[i];
    to->n = (size_t)e->set.sources->group[i].n;
    to->probabilities = e->scores.p + e->scores.first[e->set.group ? e->set.group[i] : i];
}

/* i: index of the decided group; -1: the source was skipped. */
static void take(kvf__evaluation *e, const kvf__source *source, int64_t i, kvf_prediction *to)
{
    *to = (kvf_prediction){.id = source->id,
                           .skipped = i < 0,
                           .best = -1,
                           .value = NAN,
                           .probability = NAN,
                           .no_answer_probability = NAN,
                           .start = -1,
                           .end = -1};
    if (i < 0) return;
    if (e->task == KVF__TASK_SEQ_CLS) take_class(e, i, to);
    if (e->task == KVF__TASK_TOKEN_CLS) take_tags(e, i, to);
    if (e->task == KVF__TASK_QA) take_span(e, i, to);
    if (e->task == KVF__TASK_CHOICE) take_choice(e, i, to);
}

/* Walks over all groups and skipped examples in the order of the data; the row of each in *source,
 * by index. */
typedef struct row_walk {
    const kvf__sources *sources;
    int64_t n, i, left; /* number of groups; next index in both lists */
} row_walk;

static const kvf__source *next_source(row_walk *walk, int64_t *group)
{
    const kvf__sources *s = walk->sources;
    *group = -1;
    if (walk->left < s->n_left && s->left[walk->left].before == walk->i)
        return &s->left[walk->left++].source;
    if (walk->i == walk->n) return NULL;
    *group = walk->i;
    return &s->group[walk->i++];
}

static kvf_status take_all(kvf_ctx *ctx, predictions *p)
{
    row_walk walk = {.sources = p->e.set.sources, .n = p->e.answers.n};
    const kvf__source *source;
    int64_t group, n = 0;
    KVF_TRY(
        kvf__alloc_array(ctx, (size_t)(walk.n + walk.sources->n_left), sizeof *p->rows, &p->rows));
    while ((source = next_source(&walk, &group)))
        take(&p->e, source, group, &p->rows[n++]);
    return KVF_OK;
}

/* ---- rows of a file -------------------------------------------------------------------------- */

typedef struct answer_writer {
    kvf_ctx *ctx;
    const kvf__evaluation *e;
    kvf__buf *out;
    bool bare; /* write answers without the input fields */
} answer_writer;

static void set_name(kvf_json *row, const char *key, const char *name)
{
    if (name) kvf_json_set(row, key, kvf_json_new_str(name));
}

static void set_text(kvf_json *row, const char *key, const char *text, size_t bytes)
{
    if (text) kvf_json_set(row, key, kvf_json_new_strn(text, bytes));
}

/* Adds an input field. */
static void set_input(const answer_writer *w, kvf_json *row, const char *key, const char *text,
                      size_t bytes)
{
    if (!w->bare) set_text(row, key, text, bytes);
}

static kvf_json *item_list(const kvf__source *source)
{
    kvf_json *list = kvf_json_array();
    for (int64_t i = 0; i < source->n; i++)
        kvf_json_add(list, kvf_json_new_strn(source->items[i], kvf__source_item_bytes(source, i)));
    return list;
}

/* Writes the input fields and the answer. */
typedef void write_fn(const answer_writer *w, const kvf__source *source, const kvf_prediction *p,
                      kvf_json *row);

static kvf_json *probability_list(const kvf_prediction *p)
{
    kvf_json *list = kvf_json_array();
    for (size_t i = 0; i < p->n; i++)
        kvf_json_add(list, kvf_json_new_real(p->probabilities[i]));
    return list;
}

static void write_number(const answer_writer *w, const kvf__source *source, const kvf_prediction *p,
                         kvf_json *row)
{
    if (!isnan(source->value) && !w->bare)
        kvf_json_set(row, "label", kvf_json_new_real((double)source->value));
    kvf_json_set(row, "prediction", kvf_json_new_real(p->value));
}

static void write_classes(const answer_writer *w, const kvf__source *source,
                          const kvf_prediction *p, kvf_json *row)
{
    const kvf__label_set *names = &w->e->set.names;
    set_input(w, row, "text", source->text, source->text_bytes);
    set_input(w, row, "text_pair", source->pair, source->pair_bytes);
    if (w->e->set.regression) {
        write_number(w, source, p, row);
        return;
    }
    if (source->gold >= 0 && !w->bare) set_name(row, "label", names->names[source->gold]);
    if (p->skipped) {
        kvf_json_set(row, "prediction", kvf_json_new_null());
        return;
    }
    kvf_json *all = kvf_json_object();
    set_name(row, "prediction", p->label);
    for (size_t c = 0; c < names->n; c++)
        kvf_json_set(all, names->names[c], kvf_json_new_real(p->probabilities[c]));
    kvf_json_set(row, "probabilities", all);
}

/* Returns the gold tag of a word; NULL: not given. */
static const char *gold_tag(const answer_writer *w, const kvf__source *source, int64_t word)
{
    int32_t tag = source->tags[word];
    return tag < 0 ? NULL : w->e->set.names.names[tag];
}

static bool tags_have_scheme(const kvf__label_set *names)
{
    size_t with = 0;
    while (with < names->n && kvf__tag_has_scheme(names->names[with]))
        with++;
    return with == names->n;
}

/* Lists the entities, with words from start to before end. */
static kvf_json *entity_list(const kvf__source *source, const kvf_prediction *p)
{
    kvf_json *list = kvf_json_array();
    kvf__tag_scan scan = {0};
    kvf__tag_span e;
    while (p->tags && kvf__tag_span_next(&scan, p->tags, source->n, &e)) {
        kvf_json *entity = kvf_json_object();
        set_text(entity, "type", e.type, e.type_bytes);
        kvf_json_set(entity, "start", kvf_json_new_int(e.first));
        kvf_json_set(entity, "end", kvf_json_new_int(e.last + 1));
        kvf_json_add(list, entity);
    }
    return list;
}

static void write_tags(const answer_writer *w, const kvf__source *source, const kvf_prediction *p,
                       kvf_json *row)
{
    kvf_json *gold = kvf_json_array(), *tags = kvf_json_array(), *all = kvf_json_array();
    const bool given = source->n && source->tags[0] >= 0 && !w->bare;
    for (int64_t k = 0; k < source->n; k++) {
        const char *tag = p->tags ? p->tags[k] : NULL;
        if (given) kvf_json_add(gold, kvf_json_new_str(gold_tag(w, source, k)));
        kvf_json_add(tags, tag ? kvf_json_new_str(tag) : kvf_json_new_null());
        kvf_json_add(all, kvf_json_new_real(tag ? p->probabilities[k] : NAN));
    }
    if (!w->bare) kvf_json_set(row, "tokens", item_list(source));
    if (given)
        kvf_json_set(row, "tags", gold);
    else
        kvf_json_free(gold);
    kvf_json_set(row, "prediction", tags);
    kvf_json_set(row, "probabilities", all);
    if (tags_have_scheme(&w->e->set.names)) kvf_json_set(row, "entities", entity_list(source, p));
}

static void write_span(const answer_writer *w, const kvf__source *source, const kvf_prediction *p,
                       kvf_json *row)
{
    set_input(w, row, "question", source->pair, source->pair_bytes);
    if (source->answered && !w->bare) kvf_json_set(row, "answers", item_list(source));
    if (p->skipped) {
        kvf_json_set(row, "prediction", kvf_json_new_null());
        return;
    }
    set_text(row, "prediction", p->label, p->label_bytes);
    if (p->start >= 0) kvf_json_set(row, "start", kvf_json_new_int(p->start));
    kvf_json_set(row, "probability", kvf_json_new_real(p->probability));
    if (!isnan(p->no_answer_probability))
        kvf_json_set(row, "no_answer_probability", kvf_json_new_real(p->no_answer_probability));
}

static void write_choice(const answer_writer *w, const kvf__source *source, const kvf_prediction *p,
                         kvf_json *row)
{
    set_input(w, row, "text", source->text, source->text_bytes);
    if (!w->bare) kvf_json_set(row, "choices", item_list(source));
    if (source->gold >= 0 && !w->bare) kvf_json_set(row, "label", kvf_json_new_int(source->gold));
    if (p->skipped) {
        kvf_json_set(row, "prediction", kvf_json_new_null());
        return;
    }
    kvf_json_set(row, "prediction", kvf_json_new_int(p->best));
    kvf_json_set(row, "probabilities", probability_list(p));
}

static kvf_json *answer_of(const answer_writer *w, const kvf__source *source,
                           const kvf_prediction *p)
{
    static write_fn *const ROW[] = {
        [KVF__TASK_SEQ_CLS] = write_classes,
        [KVF__TASK_TOKEN_CLS] = write_tags,
        [KVF__TASK_QA] = write_span,
        [KVF__TASK_CHOICE] = write_choice,
    };
    kvf_json *row = kvf_json_object();
    if (!w->bare) set_name(row, "id", source->id);
    ROW[w->e->task](w, source, p, row);
    return row;
}

kvf_json *kvf__evaluation_answers(kvf__evaluation *e)
{
    const answer_writer w = {.ctx = NULL, .e = e, .out = NULL, .bare = true};
    row_walk walk = {.sources = e->set.sources, .n = e->answers.n};
    kvf_json *list = kvf_json_array();
    const kvf__source *source;
    kvf_prediction row;
    int64_t group;
    while ((source = next_source(&walk, &group))) {
        take(e, source, group, &row);
        kvf_json_add(list, answer_of(&w, source, &row));
    }
    return list;
}

/* ---- files ----------------------------------------------------------------------------------- */

static kvf_status put_jsonl(answer_writer *w, const kvf__source *source, const kvf_prediction *p)
{
    return kvf__add_json_line(w->ctx, answer_of(w, source, p), w->out);
}

static kvf_status put_conll(answer_writer *w, const kvf__source *source, const kvf_prediction *p)
{
    for (int64_t k = 0; k < source->n; k++) {
        const char *gold = gold_tag(w, source, k), *tag = p->tags ? p->tags[k] : NULL;
        KVF_TRY(kvf__buf_add(w->ctx, w->out, source->items[k], kvf__source_item_bytes(source, k)));
        KVF_TRY(kvf__buf_printf(w->ctx, w->out, "%s%s\t%s\n", gold ? "\t" : "", gold ? gold : "",
                                tag ? tag : "_"));
    }
    return kvf__buf_addc(w->ctx, w->out, '\n');
}

static kvf_status put_all(answer_writer *w, const kvf_prediction *rows, bool conll)
{
    row_walk walk = {.sources = w->e->set.sources, .n = w->e->answers.n};
    const kvf__source *source;
    int64_t group;
    while ((source = next_source(&walk, &group)))
        KVF_TRY((conll ? put_conll : put_jsonl)(w, source, rows++));
    return KVF_OK;
}

static kvf_status write_file(kvf_ctx *ctx, const kvf_predict_options *options, const predictions *p,
                             bool conll)
{
    kvf__buf out = {0};
    answer_writer w = {.ctx = ctx, .e = &p->e, .out = &out, .bare = false};
    if (!options->out && !options->write) return KVF_OK;
    const kvf__lines_to to = {options->write, options->user, options->out, options->force};
    kvf_status st = put_all(&w, p->rows, conll);
    if (!st) st = kvf__send_lines(ctx, &to, &out);
    kvf__buf_done(&out);
    return st;
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
                                 : options->out && ends_in(options->out, ".conll");
    if (*conll && task != KVF__TASK_TOKEN_CLS)
        return kvf__fail(ctx, KVF_EUSAGE, "CoNLL output is for task token-cls, not %s",
                         kvf__task_name(task));
    return KVF_OK;
}

/* Runs before the work, so that a wrong output path fails early. */
static kvf_status check_output(kvf_ctx *ctx, const kvf_base *base, kvf_prefix *const *prefixes,
                               size_t n, const kvf_predict_options *options)
{
    if (options->write || !options->out) return KVF_OK;
    KVF_TRY(kvf__check_not_input(ctx, options->out, options->eval.data));
    KVF_TRY(kvf__check_not_input(ctx, options->out, base->path));
    for (size_t i = 0; i < n; i++)
        KVF_TRY(kvf__check_not_input(ctx, options->out, prefixes[i]->path));
    return kvf__check_output(ctx, options->out, options->force);
}

static void predictions_free(predictions *p)
{
    if (!p) return;
    kvf__evaluation_done(&p->e);
    kvf__free(p->rows);
    kvf__free(p);
}

void kvf_predict_result_done(kvf_predict_result *result)
{
    if (!result) return;
    predictions_free(result->memory);
    *result = (kvf_predict_result){0};
}

static kvf_predict_result result_of(predictions *p, double seconds)
{
    const kvf__label_set *names = &p->e.set.names;
    return (kvf_predict_result){.task = kvf__task_name(p->e.task),
                                .examples = p->e.answers.n,
                                .skipped = p->e.set.skipped,
                                .truncated = p->e.set.truncated,
                                .seconds = seconds,
                                .n = (size_t)(p->e.answers.n + p->e.set.sources->n_left),
                                .rows = p->rows,
                                .n_labels = names->n,
                                .labels = (const char *const *)names->names,
                                .memory = p};
}

static kvf_status predict(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                          const kvf_predict_options *options, kvf_predict_result *result)
{
    predictions *p = NULL;
    bool conll = false;
    const double begin = kvf__clock();
    if (!n || prefixes[0]->task == KVF__TASK_LM)
        return kvf__fail(
            ctx, KVF_EUSAGE,
            "task lm has no head to predict with: use `generate`, or a prefix of another task");
    KVF_TRY(KVF__CHECK_RESERVED(ctx, kvf_predict_options, options));
    KVF_TRY(pick_format(ctx, options, prefixes[0]->task, &conll));
    KVF_TRY(check_output(ctx, base, prefixes, n, options));
    KVF_TRY(kvf__alloc(ctx, sizeof *p, &p));
    kvf_status st = kvf__evaluation_run(ctx, base, prefixes, n, &options->eval, true, &p->e);
    if (!st) st = take_all(ctx, p);
    if (!st) st = write_file(ctx, options, p, conll);
    if (st || !result) {
        predictions_free(p);
        return st;
    }
    kvf__evaluator_free(p->e.evaluator); /* the largest part, no longer needed */
    p->e.evaluator = NULL;
    *result = result_of(p, kvf__clock() - begin);
    return KVF_OK;
}

kvf_status kvf_predict(kvf_ctx *ctx, kvf_base *base, kvf_prefix *const *prefixes, size_t n,
                       const kvf_predict_options *options, kvf_predict_result *result)
{
    KVF_TRY(KVF__NEED(ctx, options));
    KVF_TRY(kvf__check_eval(ctx, base, prefixes, n, &options->eval));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->out_format, KVF_PREDICT_CONLL));
    KVF__RETURN(ctx, predict(ctx, base, prefixes, n, options, result));
}
