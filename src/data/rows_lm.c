/* Rows of language models: render.c makes them; here they are checked, cut, and what they should
 * have produced is kept for text metrics. */
#include "loader.h"

#include <math.h>
#include <string.h>

static kvf_status check_ids(kvf__loader *load, const char *where, size_t from)
{
    int32_t vocab = load->options.vocab;
    const kvf__row_template *pattern = load->options.render.pattern;
    bool placed = pattern && pattern->n; /* no row brings ids of its own then */
    for (size_t i = from + (size_t)kvf__loader_front(load); i < load->rows.ids.n; i++) {
        int32_t id = load->rows.ids.data[i], label = load->rows.labels.data[i];
        if (id < 0 && placed) continue;
        if (id < 0 || id >= vocab)
            return kvf__fail(load->ctx, KVF_EDATA, "%s: id %d is outside the vocabulary of %d",
                             where, (int)id, (int)vocab);
        if (label != KVF__NO_LABEL && (label < 0 || label >= vocab))
            return kvf__fail(load->ctx, KVF_EDATA, "%s: label %d is outside the vocabulary of %d",
                             where, (int)label, (int)vocab);
    }
    return KVF_OK;
}

/* "references": a list of texts or one; else the completion. */
static kvf_status read_references(kvf__loader *load, const kvf__file_row *row, kvf__source *source)
{
    const kvf__field_map *map = load->options.render.map;
    const kvf_json *value = kvf__field(map, row->fields, "references");
    if (!value) value = kvf__field(map, row->fields, "completion");
    if (!value && kvf__field(map, row->fields, "instruction"))
        value = kvf__field(map, row->fields, "output");
    bool list = kvf_json_typeof(value) == KVF_JSON_ARRAY;
    size_t n = list ? kvf_json_size(value) : value != NULL, bytes = 0;
    const char *prompt = kvf_json_str(kvf__field(map, row->fields, "prompt"), &bytes);
    kvf__items items;
    source->text_bytes = bytes;
    if (prompt) KVF_TRY(kvf__pool_text(load->ctx, &load->pool, prompt, bytes, &source->text));
    KVF_TRY(kvf__items_take(load->ctx, &load->pool, n, &items));
    for (size_t i = 0; i < n; i++) {
        const char *text = kvf_json_str(list ? kvf_json_at(value, i) : value, &bytes);
        if (!text)
            return kvf__fail(load->ctx, KVF_EDATA, "%s: references[%zu] is not a string",
                             row->where, i);
        KVF_TRY(kvf__items_put(load->ctx, &load->pool, &items, i, text, bytes));
    }
    source->n = (int64_t)n;
    source->items = items.text;
    source->item_bytes = items.bytes;
    return KVF_OK;
}

/* Are the ids since `from` those of the row before? */
static bool repeats_last(const kvf__loader *load, size_t from)
{
    if (!load->options.prompt_only || !load->groups.n) return false;
    size_t before = load->rows.n > 1 ? (size_t)load->rows.v[load->rows.n - 2].start : 0;
    size_t n = load->rows.ids.n - from;
    return n == from - before &&
           !memcmp(load->rows.ids.data + before, load->rows.ids.data + from, n * 4);
}

static kvf_status add_references(kvf__loader *load, const kvf__source *more)
{
    kvf__source *last = &load->groups.v[load->groups.n - 1];
    kvf__items all;
    size_t had = (size_t)last->n, n = had + (size_t)more->n;
    KVF_TRY(kvf__items_take(load->ctx, &load->pool, n, &all));
    for (size_t i = 0; i < n; i++) {
        const kvf__source *from = i < had ? last : more;
        all.text[i] = from->items[i < had ? i : i - had];
        all.bytes[i] = from->item_bytes[i < had ? i : i - had];
    }
    last->items = all.text;
    last->item_bytes = all.bytes;
    last->n = (int64_t)n;
    return KVF_OK;
}

/* Labels of the row since `from` that are predicted. */
static bool has_labels(const kvf__loader *load, size_t from)
{
    for (size_t i = from + 1; i < load->rows.labels.n; i++)
        if (load->rows.labels.data[i] != KVF__NO_LABEL) return true;
    return false;
}

/* Where the prompt may be cut: [*at, *end) of the row since `from`, what stands before the first
 * label, BOS apart. A row that is a text has none: behind a common prefix its first token has no
 * label. */
static void find_prompt(const kvf__loader *load, size_t from, size_t *at, size_t *end)
{
    const size_t common = (size_t)kvf__loader_front(load);
    const int32_t bos = kvf__token_bos(load->options.render.tokenizer);
    *at = *end = from + common;
    while (*end < load->rows.ids.n && load->rows.labels.data[*end] == KVF__NO_LABEL)
        ++*end;
    if (*end == load->rows.ids.n && !load->options.prompt_only) *end = *at;
    if (*at < *end && bos >= 0 && load->rows.ids.data[*at] == bos) ++*at;
    if (common && *end - *at == 1) *end = *at;
}

/* Leaves out tokens of the prompt from its left until the row has `most`; virtual ones stay. */
static void cut_prompt(kvf__loader *load, size_t from, size_t most)
{
    size_t at, end, to, excess = load->rows.ids.n - from - most;
    find_prompt(load, from, &at, &end);
    to = at;
    for (size_t i = at; i < load->rows.ids.n; i++) {
        if (i < end && excess && load->rows.ids.data[i] >= 0) {
            excess--;
            continue;
        }
        load->rows.ids.data[to] = load->rows.ids.data[i];
        load->rows.labels.data[to++] = load->rows.labels.data[i];
    }
    load->rows.ids.n = load->rows.labels.n = to;
}

/* To `most` tokens; what is too long without its prompt loses its end. */
static void cut_row(kvf__loader *load, size_t from, size_t most)
{
    bool taught = has_labels(load, from);
    if (load->options.overlong == KVF_OVERLONG_TRUNCATE) cut_prompt(load, from, most);
    if (load->rows.ids.n > from + most) load->rows.ids.n = load->rows.labels.n = from + most;
    load->counts.without_label += taught && !has_labels(load, from);
    load->cut = true;
}

kvf_status kvf__add_lm(kvf__loader *load, const kvf__file_row *row)
{
    const kvf__dataset_options *o = &load->options;
    kvf__source source = {.gold = -1, .value = NAN};
    size_t from = load->rows.ids.n;
    bool cut = false;
    KVF_TRY(kvf__render_row(load->ctx, &o->render, row->where, row->fields, o->prompt_only,
                            &load->rows.ids, &load->rows.labels));
    KVF_TRY(check_ids(load, row->where, from));
    int64_t length = (int64_t)(load->rows.ids.n - from);
    if (!length) return kvf__fail(load->ctx, KVF_EDATA, "%s: the row has no tokens", row->where);
    if (length > o->max_length) {
        KVF_TRY(kvf__loader_overlong(load, row->where, length, o->max_length, &cut));
        if (!cut) {
            kvf__loader_drop_group(load);
            return KVF_OK;
        }
        cut_row(load, from, (size_t)o->max_length);
    }
    if (load->keeps) KVF_TRY(read_references(load, row, &source));
    if (load->keeps && repeats_last(load, from)) {
        load->rows.ids.n = load->rows.labels.n = from;
        load->counts.truncated += load->cut;
        load->cut = false;
        return add_references(load, &source);
    }
    KVF_TRY(kvf__loader_end_row(load, &(kvf__row_info){.value = NAN}));
    return kvf__loader_end_group(load, row, &source);
}
