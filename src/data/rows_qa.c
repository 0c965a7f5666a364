/* Rows of qa: question and context as a pair. A context that does not fit is split into windows
 * that overlap by --doc-stride tokens, one row each (Devlin et al. 2019; transformers' run_qa). A
 * window without the whole answer counts as "no answer". The tokens of an answer are those that
 * overlap its bytes. Training uses the first gold answer. */
#include "loader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NO_START = -2, MARK = 256, MOST_ANSWERS = 1024, LONGEST_CONTEXT = 4 << 20 };

/* ---- gold answers ---------------------------------------------------------------------------- */

static bool begins_point(char c)
{
    return ((unsigned char)c & 0xC0) != 0x80;
}

/* Stores the byte offset of every MARK-th code point, so that no answer is counted from the
 * start. */
static kvf_status mark_points(kvf__loader *load)
{
    const char *text = load->context.text;
    size_t points = 0;
    load->context.n_marks = 0;
    KVF_TRY(kvf__pool_alloc(load->ctx, &load->pool, load->context.bytes / MARK + 1,
                            sizeof *load->context.marks, &load->context.marks));
    for (size_t i = 0; i < load->context.bytes; i++)
        if (begins_point(text[i]) && points++ % MARK == 0)
            load->context.marks[load->context.n_marks++] = i;
    return KVF_OK;
}

/* Returns the byte offset of code point `at` of the context; -1: the text is shorter. */
static int64_t byte_of_point(const kvf__context *context, int64_t at)
{
    const size_t mark = at < 0 ? SIZE_MAX : (size_t)at / MARK;
    if (mark >= context->n_marks) return -1;
    at %= MARK;
    for (size_t i = context->marks[mark]; i < context->bytes; i++)
        if (begins_point(context->text[i]) && at-- == 0) return (int64_t)i;
    return at == 0 ? (int64_t)context->bytes : -1;
}

/* Reads the index of a character, from a number or a text. Returns false if it is no index. */
static bool read_start(const kvf_json *from, int64_t *start)
{
    const char *text = kvf_json_str(from, NULL);
    char *end = NULL;
    const double number = text ? strtod(text, &end) : kvf_json_real(from, NAN);
    const bool whole = number == floor(number) && fabs(number) < 1e15 &&
                       (!text || (*text && !*end));
    *start = kvf_json_typeof(from) <= KVF_JSON_NULL ? NO_START : whole ? (int64_t)number : -1;
    return whole || *start == NO_START;
}

/* Returns answer i of [{"text", "answer_start"}], ["text"] or {"text": [], "answer_start": []}.
 * *from: its start; NULL: none. */
static const char *answer_at(const kvf_json *list, size_t i, size_t *bytes, const kvf_json **from)
{
    const kvf_json *text = kvf_json_at(list, i);
    *from = NULL;
    if (kvf_json_typeof(list) == KVF_JSON_OBJECT) {
        text = kvf_json_at(kvf_json_get(list, "text"), i);
        *from = kvf_json_at(kvf_json_get(list, "answer_start"), i);
    } else if (kvf_json_typeof(text) == KVF_JSON_OBJECT) {
        *from = kvf_json_get(text, "answer_start");
        if (!*from) *from = kvf_json_get(text, "start");
        text = kvf_json_get(text, "text");
    }
    return kvf_json_str(text, bytes);
}

/* Returns the number of bytes of a text to show in an error: at most 80 and at most `most`, in
 * whole characters. */
static int shown(const char *text, size_t bytes, size_t most)
{
    size_t n = bytes < most ? bytes : most;
    if (n > 80) n = 80;
    while (n && n < bytes && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--;
    return (int)n;
}

/* Finds the byte offset of an answer in the context; without a start, its first occurrence. */
static kvf_status find_answer(kvf__loader *load, const char *answer, size_t n, int64_t start,
                              int64_t *from)
{
    const char *context = load->context.text;
    if (start == NO_START) {
        const char *found = memmem(context, load->context.bytes, answer, n);
        *from = found ? found - context : -1;
    } else {
        *from = byte_of_point(&load->context, start);
    }
    if (*from >= 0 && (size_t)*from + n <= load->context.bytes &&
        !memcmp(context + *from, answer, n))
        return KVF_OK;
    if (start == NO_START)
        return kvf__loader_fail(load, "answer \"%.*s\" is not in its context", shown(answer, n, n),
                                answer);
    const char *there = *from < 0 ? "" : context + *from;
    size_t left = *from < 0 ? 0 : load->context.bytes - (size_t)*from;
    return kvf__loader_fail(
        load, "answer \"%.*s\" is not at offset %lld of its context, which has \"%.*s\" there",
        shown(answer, n, n), answer, (long long)start, shown(there, left, n), there);
}

static kvf_status read_answers(kvf__loader *load, kvf__source *source)
{
    const kvf__field_map *map = load->options.render.map;
    const kvf_json *list = kvf__row_field(map, load->row, "answers");
    bool object = kvf_json_typeof(list) == KVF_JSON_OBJECT;
    const kvf_json *texts = object ? kvf_json_get(list, "text") : list;
    bool given = kvf_json_typeof(texts) == KVF_JSON_ARRAY;
    bool impossible = kvf_json_bool(kvf__row_field(map, load->row, "is_impossible"), false);
    size_t n = given && !impossible ? kvf_json_size(texts) : 0;
    int64_t *spans = NULL;
    source->answered = given || impossible;
    if (!source->answered) {
        load->counts.no_gold++;
        if (load->options.unlabeled) return KVF_OK;
        return kvf__loader_field_fail(load, "answers", "missing or not a list");
    }
    if (n > MOST_ANSWERS)
        return kvf__loader_fail(load, "%zu answers, want at most %d", n, MOST_ANSWERS);
    KVF_TRY(kvf__alloc_items(load, source, n));
    KVF_TRY(kvf__pool_alloc(load->ctx, &load->pool, 2 * n, sizeof *spans, &spans));
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        int64_t start = -1;
        const kvf_json *at = NULL;
        const char *answer = answer_at(list, i, &bytes, &at);
        if (!answer || !bytes) return kvf__loader_fail(load, "answers[%zu] has no text", i);
        if (!read_start(at, &start))
            return kvf__loader_fail(load, "answers[%zu]: the start is not a character offset", i);
        KVF_TRY(find_answer(load, answer, bytes, start, &spans[2 * i]));
        spans[2 * i + 1] = spans[2 * i] + (int64_t)bytes;
        KVF_TRY(kvf__put_item(load, source, i, answer, bytes));
    }
    source->spans = spans;
    return KVF_OK;
}

/* ---- context --------------------------------------------------------------------------------- */

static kvf_status text_of(kvf__loader *load, const char *name, const char **out, size_t *bytes)
{
    const kvf__field_map *map = load->options.render.map;
    const kvf_json *value = kvf__row_field(map, load->row, name);
    *out = kvf_json_str(value, bytes);
    if (*out) return KVF_OK;
    static const char *const MISSING[2][2] = {
        {"missing, and \"context\" and \"answers\" too", "missing, and \"context\" too"},
        {"missing, and \"answers\" too", "missing"}};
    const bool context = kvf__row_field(map, load->row, "context") || !strcmp(name, "context");
    const bool answers = load->options.unlabeled || kvf__row_field(map, load->row, "answers");
    return kvf__loader_field_fail(load, name, value ? "not a string" : MISSING[context][answers]);
}

/* Reads tokens and offsets of the row's context. Consecutive questions of one paragraph reuse
 * them. */
static kvf_status read_context(kvf__loader *load)
{
    const char *text = NULL;
    size_t n = 0;
    int32_t *kept = NULL;
    kvf__ids offsets = {0};
    KVF_TRY(text_of(load, "context", &text, &n));
    if (load->context.text && n == load->context.bytes && !memcmp(text, load->context.text, n))
        return KVF_OK;
    if (n > LONGEST_CONTEXT)
        return kvf__loader_fail(load, "the context has %zu bytes, want at most %d MiB", n,
                                LONGEST_CONTEXT >> 20);
    load->context.text = NULL;
    load->context.ids.n = 0;
    KVF_TRY(kvf__pool_text(load->ctx, &load->pool, text, n, &text));
    kvf_status st = kvf__encode_offsets(load->ctx, load->options.render.tokenizer, text, n,
                                        &load->context.ids, &offsets);
    if (!st) st = kvf__pool_alloc(load->ctx, &load->pool, offsets.n, sizeof *kept, &kept);
    if (!st && offsets.n) memcpy(kept, offsets.data, offsets.n * sizeof *kept);
    kvf__ids_done(&offsets);
    if (st) return st;
    load->context.text = text;
    load->context.bytes = n;
    load->context.offsets = kept;
    return mark_points(load);
}

/* Finds the context tokens that overlap the first gold answer; -1: there is no answer. */
static void find_answer_tokens(const kvf__source *source, int64_t *first, int64_t *last)
{
    *first = *last = -1;
    for (int64_t i = 0; source->n && i < source->n_context; i++) {
        const int32_t *origin = source->offsets + 2 * i;
        if (origin[0] >= origin[1] || origin[1] <= source->spans[0]) continue;
        if (origin[0] >= source->spans[1]) break;
        if (*first < 0) *first = i;
        *last = i;
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Adds one row: the question and context tokens [from, from + n). The answer is context tokens
 * first to last. */
static kvf_status add_window(kvf__loader *load, const kvf__source *source, int64_t first,
                             int64_t last, int64_t from, int64_t n)
{
    int64_t question_at = 0, context_at = 0, start = kvf__loader_row_start(load);
    load->b.n = 0;
    if (n) /* a context of spaces has no tokens, and no buffer */
        KVF_TRY(kvf__ids_append(load->ctx, &load->b, load->context.ids.data + from, (size_t)n));
    KVF_TRY(kvf__loader_join(load, true, &question_at, &context_at));
    if (load->glue.tail >= 0) KVF_TRY(kvf__loader_add_id(load, load->glue.tail));
    const int64_t none = kvf__loader_read_at(load);
    for (size_t i = (size_t)start; i < load->rows.ids.n; i++) /* softmax over all of them */
        if (load->rows.ids.data[i] >= 0) load->rows.labels.data[i] = 0;
    load->rows.labels.data[none] = KVF__LABEL_NONE;
    bool here = first >= from && last < from + n;
    kvf__row_info info = {.value = NAN, .window = {.at = context_at, .first = from, .n = n}};
    info.span[0] = (int32_t)(here ? context_at + first - from : none - start);
    info.span[1] = (int32_t)(here ? context_at + last - from : none - start);
    if (!source->answered) info.span[0] = info.span[1] = KVF__NO_GOLD;
    return kvf__loader_end_row(load, &info);
}

/* Cuts the question to half of a row. *capacity: tokens left for the context. */
static kvf_status fit_question(kvf__loader *load, int64_t *capacity, bool *fits)
{
    int64_t free = load->options.max_length - kvf__loader_cost(load, true) -
                   (load->glue.tail >= 0 ? 1 : 0);
    int64_t question = (int64_t)load->a.n;
    *fits = true;
    if (free < 2)
        return kvf__loader_fail(load, "a row of %lld tokens has no room for text",
                                (long long)load->options.max_length);
    if (question > free / 2) {
        KVF_TRY(kvf__loader_overlong(load, question, free / 2, fits));
        load->cut = true;
        load->a.n = (size_t)(free / 2);
        question = free / 2;
    }
    *capacity = free - question;
    return KVF_OK;
}

static kvf_status add_windows(kvf__loader *load, const kvf__source *source, int64_t capacity)
{
    int64_t stride = kvf__loader_stride(load, capacity), first, last;
    find_answer_tokens(source, &first, &last);
    for (int64_t from = 0, n;; from += n - stride) {
        n = source->n_context - from < capacity ? source->n_context - from : capacity;
        KVF_TRY(add_window(load, source, first, last, from, n));
        if (from + n >= source->n_context) return KVF_OK;
    }
}

kvf_status kvf__add_question(kvf__loader *load)
{
    kvf__source source = {.gold = -1, .value = NAN};
    const char *question = NULL;
    size_t n = 0;
    int64_t capacity = 0;
    bool fits = true;
    KVF_TRY(text_of(load, "question", &question, &n));
    KVF_TRY(read_context(load));
    KVF_TRY(read_answers(load, &source));
    load->a.n = 0;
    KVF_TRY(kvf__encode(load->ctx, load->options.render.tokenizer, question, n, false, &load->a));
    source.text = load->context.text;
    source.text_bytes = load->context.bytes;
    source.pair_bytes = n;
    source.n_context = (int64_t)load->context.ids.n;
    source.offsets = load->context.offsets;
    KVF_TRY(kvf__pool_text(load->ctx, &load->pool, question, n, &source.pair));
    KVF_TRY(fit_question(load, &capacity, &fits));
    if (!fits) return kvf__loader_leave_out(load, &source);
    KVF_TRY(add_windows(load, &source, capacity));
    return kvf__loader_end_group(load, &source);
}
