/* Requests to classify. Rows are read as `predict` reads a file: a row of "input" is an object with
 * the fields of a data row, or a short form. They are computed batch by batch, between decoding
 * steps of other requests. */
#include "classification.h"

#include <kvfold/rows.h>

#include "evaluation.h"

#include <string.h>

struct kvf__classification {
    kvf_base *base;
    kvf_prefix *prefix;
    kvf_eval_options options;
    kvf__evaluation evaluation;
};

/* ---- reading --------------------------------------------------------------------------------- */

static bool all_texts(const kvf_json *list)
{
    for (size_t i = 0; i < kvf_json_size(list); i++)
        if (kvf_json_typeof(kvf_json_at(list, i)) != KVF_JSON_STRING) return false;
    return kvf_json_size(list) > 0;
}

/* Converts a text, a pair of texts or a list of words to an object. NULL: another form. */
static kvf_json *row_of_texts(kvf__task task, const kvf_json *value)
{
    const bool list = kvf_json_typeof(value) == KVF_JSON_ARRAY && all_texts(value);
    if (task == KVF__TASK_SEQ_CLS && kvf_json_typeof(value) == KVF_JSON_STRING)
        return kvf__json_of("text:o", kvf__json_copy(value));
    if (task == KVF__TASK_SEQ_CLS && list && kvf_json_size(value) == 2)
        return kvf__json_of("text:o text_pair:o", kvf__json_copy(kvf_json_at(value, 0)),
                            kvf__json_copy(kvf_json_at(value, 1)));
    if (task == KVF__TASK_TOKEN_CLS && list) return kvf__json_of("tokens:o", kvf__json_copy(value));
    return NULL;
}

static const char *wanted(kvf__task task)
{
    static const char *const ROWS[] = {
        [KVF__TASK_SEQ_CLS] = "a text, an array of two, or {\"text\", \"text_pair\"}",
        [KVF__TASK_TOKEN_CLS] = "an array of words, or {\"tokens\"}",
        [KVF__TASK_QA] = "{\"question\", \"context\"}",
        [KVF__TASK_CHOICE] = "{\"text\", \"choices\"}",
    };
    return ROWS[task];
}

static kvf_status add_row(kvf_ctx *ctx, kvf_rows *rows, kvf__task task, const kvf_json *value)
{
    const bool object = kvf_json_typeof(value) == KVF_JSON_OBJECT;
    kvf_json *row = object ? NULL : row_of_texts(task, value);
    if (!object && !row)
        return kvf__fail(ctx, KVF_EUSAGE, "input, row %lld: want %s",
                         (long long)kvf_rows_count(rows) + 1, wanted(task));
    char *text = kvf_json_text(object ? value : row, KVF_JSON_COMPACT);
    kvf_status st = text ? kvf_rows_add_json(ctx, rows, text, strlen(text))
                         : kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    kvf_json_text_free(text);
    kvf_json_free(row);
    return st;
}

/* Adds one row, or an array of rows. */
static kvf_status add_rows(kvf_ctx *ctx, kvf_rows *rows, kvf__task task, const kvf_json *input)
{
    if (kvf_json_typeof(input) != KVF_JSON_ARRAY) return add_row(ctx, rows, task, input);
    for (size_t i = 0; i < kvf_json_size(input); i++)
        KVF_TRY(add_row(ctx, rows, task, kvf_json_at(input, i)));
    return KVF_OK;
}

/* Returns the longest row: as in training, but at most the server's limit. */
static int64_t longest_row(const kvf_prefix *prefix, int64_t max_context)
{
    const int64_t trained = kvf__int_at(prefix->file.options, "max-length");
    return trained && (!max_context || trained <= max_context) ? 0 : max_context;
}

static kvf_status read_rows(kvf_ctx *ctx, kvf__classification *c, const kvf_json *input)
{
    kvf_rows *rows = NULL;
    KVF_TRY(kvf_rows_create(ctx, &rows));
    kvf_status st = add_rows(ctx, rows, c->prefix->task, input);
    c->options.data = kvf_rows_path(rows);
    if (!st)
        st = kvf__evaluation_read(ctx, c->base, &c->prefix, 1, &c->options, true, &c->evaluation);
    c->options.data = NULL;
    kvf_rows_free(rows);
    return st;
}

kvf_status kvf__classification_read(kvf_ctx *ctx, kvf_base *base, const kvf__prefix_ref *ref,
                                    const kvf_json *input, const kvf_serve_options *limits,
                                    kvf__classification **out)
{
    kvf__classification *c = NULL;
    if (!ref->classifier)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "the model has no classification head: use /v1/completions");
    KVF_TRY(kvf__alloc(ctx, sizeof *c, &c));
    c->base = ref->own_base ? ref->own_base : base;
    c->prefix = ref->classifier;
    c->options.format = "jsonl";
    c->options.max_length = longest_row(c->prefix, limits->max_context);
    c->evaluation.most_tokens = limits->max_body; /* a text has at least about one byte per token */
    kvf_status st = read_rows(ctx, c, input);
    KVF__GIVE(st, out, c, kvf__classification_free(c));
    return st;
}

void kvf__classification_free(kvf__classification *classification)
{
    if (!classification) return;
    kvf__evaluation_done(&classification->evaluation);
    kvf__free(classification);
}

int64_t kvf__classification_tokens(const kvf__classification *classification)
{
    const kvf__dataset *set = &classification->evaluation.set;
    return set->start[set->n];
}

/* Estimates memory by ids, labels and token types; texts take about as much. */
size_t kvf__classification_bytes(const kvf__classification *classification)
{
    enum { TOKEN_BYTES = 3 * sizeof(int32_t) + 8, ROW_BYTES = 2 * sizeof(kvf__source) };
    const kvf__dataset *set = &classification->evaluation.set;
    return sizeof *classification +
           (size_t)kvf__classification_tokens(classification) * TOKEN_BYTES +
           (size_t)set->n * ROW_BYTES;
}

/* ---- computing ------------------------------------------------------------------------------- */

kvf_status kvf__classification_step(kvf_ctx *ctx, kvf__classification *c, bool *more)
{
    KVF_TRY(kvf__evaluation_batch(ctx, c->base, c->prefix, &c->evaluation, more));
    return *more ? KVF_OK : kvf__evaluation_decide(ctx, c->prefix, &c->options, &c->evaluation);
}

kvf_status kvf__classification_reply(kvf_ctx *ctx, kvf__classification *c, const kvf__reply *reply,
                                     kvf__buf *out)
{
    kvf_json *answers = kvf__evaluation_answers(&c->evaluation);
    const kvf_status st = kvf__reply_classes(reply, kvf__task_name(c->prefix->task), answers, out);
    return st ? kvf__fail(ctx, st, "out of memory") : KVF_OK;
}
