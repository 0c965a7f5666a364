/* Rows of language models. render.c makes them; this file checks and cuts them, and keeps their
 * references for text metrics. */
#include "loader.h"

#include <math.h>
#include <string.h>

static kvf_status check_ids(kvf__loader *load, size_t from)
{
    int32_t vocab = load->options.vocab;
    const kvf__row_template *pattern = load->options.render.pattern;
    bool placed = pattern && pattern->n; /* then no row has ids of its own */
    for (size_t i = from + (size_t)kvf__loader_front(load); i < load->rows.ids.n; i++) {
        int32_t id = load->rows.ids.data[i], label = load->rows.labels.data[i];
        if (id < 0 && placed) continue;
        if (id < 0 || id >= vocab)
            return kvf__loader_fail(load, "id %d is outside the vocabulary of %d", (int)id,
                                    (int)vocab);
        if (label != KVF__NO_LABEL && (label < 0 || label >= vocab))
            return kvf__loader_fail(load, "label %d is outside the vocabulary of %d", (int)label,
                                    (int)vocab);
    }
    return KVF_OK;
}

/* Reads "references", a list of texts or one text; else the completion. */
static kvf_status read_references(kvf__loader *load, kvf__source *source)
{
    const kvf_json *value = kvf__loader_field(load, "references");
    if (!value) value = kvf__loader_field(load, "completion");
    if (!value && kvf__loader_field(load, "instruction")) value = kvf__loader_field(load, "output");
    bool list = kvf_json_typeof(value) == KVF_JSON_ARRAY;
    size_t n = list ? kvf_json_size(value) : value != NULL, bytes = 0;
    const char *prompt = kvf_json_str(kvf__loader_field(load, "prompt"), &bytes);
    source->text_bytes = bytes;
    if (prompt) KVF_TRY(kvf__pool_text(load->ctx, &load->pool, prompt, bytes, &source->text));
    KVF_TRY(kvf__alloc_items(load, source, n));
    for (size_t i = 0; i < n; i++) {
        const char *text = kvf_json_str(list ? kvf_json_at(value, i) : value, &bytes);
        if (!text) return kvf__loader_fail(load, "references[%zu] is not a string", i);
        KVF_TRY(kvf__put_item(load, source, i, text, bytes));
    }
    return KVF_OK;
}

/* Returns true if the ids since `from` equal those of the previous row. */
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
    kvf__source all = *last;
    size_t had = (size_t)last->n, n = had + (size_t)more->n;
    KVF_TRY(kvf__alloc_items(load, &all, n));
    for (size_t i = 0; i < n; i++) {
        const kvf__source *from = i < had ? last : more;
        all.items[i] = from->items[i < had ? i : i - had];
        all.item_bytes[i] = from->item_bytes[i < had ? i : i - had];
    }
    *last = all;
    return KVF_OK;
}

/* Returns true if the row since `from` has labels that are predicted. */
static bool has_labels(const kvf__loader *load, size_t from)
{
    for (size_t i = from + 1; i < load->rows.labels.n; i++)
        if (load->rows.labels.data[i] != KVF__NO_LABEL) return true;
    return false;
}

/* Finds the tokens [*at, *end) of the prompt that may be cut, in the row since `from`: those before
 * the first label, without BOS. A row of plain text has none; after virtual tokens its first token
 * has no label. */
static void find_prompt(const kvf__loader *load, size_t from, size_t *at, size_t *end)
{
    const size_t common = (size_t)kvf__loader_front(load);
    const int32_t bos = kvf__token_bos(load->options.render.tokenizer);
    *at = *end = from + common;
    while (*end < load->rows.ids.n && load->rows.labels.data[*end] == KVF__NO_LABEL)
        ++*end;
    if (*end == load->rows.ids.n && !load->options.prompt_only) *end = *at;
    /* the encoder's text keeps its EOS, and the decoder its first token */
    if (load->options.render.encoder) *end -= load->options.prompt_only ? 1 : 2;
    if (*at < *end && bos >= 0 && load->rows.ids.data[*at] == bos) ++*at;
    if (common && *end - *at == 1) *end = *at;
}

/* Removes tokens from the left of the prompt until the row has `most`; virtual tokens stay. */
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

/* Cuts a row to `most` tokens. A row that is too long without its prompt loses its end. */
static void cut_row(kvf__loader *load, size_t from, size_t most)
{
    bool taught = has_labels(load, from);
    if (load->options.overlong == KVF_OVERLONG_TRUNCATE) cut_prompt(load, from, most);
    if (load->rows.ids.n > from + most) load->rows.ids.n = load->rows.labels.n = from + most;
    load->counts.without_label += taught && !has_labels(load, from);
    load->cut = true;
}

kvf_status kvf__add_lm(kvf__loader *load)
{
    const kvf__dataset_options *o = &load->options;
    kvf__source source = {.gold = -1, .value = NAN};
    size_t from = load->rows.ids.n;
    bool cut = false;
    KVF_TRY(kvf__render_row(load->ctx, &o->render, load->row->where, load->row->fields,
                            o->prompt_only, &load->rows.ids, &load->rows.labels));
    KVF_TRY(check_ids(load, from));
    int64_t length = (int64_t)(load->rows.ids.n - from);
    if (!length) return kvf__loader_fail(load, "the row has no tokens");
    if (length > o->max_length) {
        KVF_TRY(kvf__loader_overlong(load, length, o->max_length, &cut));
        if (!cut) return kvf__loader_leave_out(load, &source);
        cut_row(load, from, (size_t)o->max_length);
    }
    if (o->references) KVF_TRY(read_references(load, &source));
    if (o->references && repeats_last(load, from)) {
        load->rows.ids.n = load->rows.labels.n = from;
        load->counts.truncated += load->cut;
        load->cut = false;
        return add_references(load, &source);
    }
    KVF_TRY(kvf__loader_end_row(load, &(kvf__row_info){.value = NAN}));
    return kvf__loader_end_group(load, &source);
}
