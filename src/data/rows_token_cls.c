/* Rows of token-cls: a sentence in words, each encoded by itself as `tokenizers` does with
 * is_pretokenized; a word's tag stands on its first sub-word (Devlin et al. 2019, section 5.3). An
 * overlong sentence is cut between two words, or comes in windows that overlap. Byte-level
 * vocabularies tell a word within a text by the blank before it: there every word gets one, as
 * transformers demands with add_prefix_space=True. */
#include "loader.h"

#include <math.h>
#include <string.h>

/* A list of strings, or one string with blanks between its words. */
typedef struct words {
    const kvf_json *list;
    const char *text; /* left of the string, `left` bytes */
    size_t left, n;
} words;

/* The next word of the string, false: there is none. */
static bool cut_word(words *w, const char **word, size_t *bytes)
{
    while (w->left && *w->text == ' ')
        w->text++, w->left--;
    const char *blank = memchr(w->text, ' ', w->left);
    *word = w->text;
    *bytes = blank ? (size_t)(blank - w->text) : w->left;
    w->text += *bytes;
    w->left -= *bytes;
    return *bytes;
}

static size_t count_words(words w)
{
    const char *word;
    size_t n = 0, bytes;
    while (cut_word(&w, &word, &bytes))
        n++;
    return n;
}

static bool find_words(const kvf__loader *load, const kvf__file_row *row,
                       const char *const names[3], words *out)
{
    const kvf_json *value = NULL;
    for (size_t i = 0; !value && i < 3 && names[i]; i++)
        value = kvf__row_field(load->options.render.map, row, names[i]);
    *out = (words){.list = NULL};
    out->text = kvf_json_str(value, &out->left);
    if (kvf_json_typeof(value) == KVF_JSON_ARRAY) {
        out->list = value;
        out->n = kvf_json_size(value);
    } else if (out->text) {
        out->n = count_words(*out);
    }
    return out->list || out->text;
}

/* Word or tag i; calls come in order. False: not a text. Numbers are tags as well. */
static bool next_word(words *w, size_t i, char *made, size_t capacity, const char **out,
                      size_t *bytes)
{
    if (!w->list) return cut_word(w, out, bytes);
    const kvf_json *value = kvf_json_at(w->list, i);
    *out = kvf_json_str(value, bytes);
    if (*out || !made) return *out;
    if (!kvf__label_fits(value, capacity) || !kvf__label_text(value, made, capacity)) return false;
    *out = made;
    *bytes = strlen(made);
    return true;
}

/* "file:line" of word i, as far as the format has a line for each. */
static void word_where(const kvf__file_row *row, size_t i, char where[KVF__WHERE_MAX])
{
    if (row->word_lines)
        kvf__where(where, row->path, row->line + (int64_t)i);
    else
        snprintf(where, KVF__WHERE_MAX, "%s", row->where);
}

static kvf_status read_tags(kvf__loader *load, const kvf__file_row *row, words *tags, int32_t *out)
{
    char where[KVF__WHERE_MAX], made[256], name[256];
    for (size_t i = 0; i < tags->n; i++) {
        const char *tag = NULL;
        size_t n = 0;
        word_where(row, i, where);
        if (!next_word(tags, i, made, sizeof made, &tag, &n) || !n || n >= sizeof name ||
            memchr(tag, 0, n))
            return kvf__fail(load->ctx, KVF_EDATA, "%s: tag %zu is not a name", where, i);
        snprintf(name, sizeof name, "%.*s", (int)n, tag);
        KVF_TRY(kvf__labels_id(load->ctx, &load->names, where, name, &out[i]));
    }
    return KVF_OK;
}

/* Tokens of all words into load->b; at [n + 1]: where each begins. */
static kvf_status encode_words(kvf__loader *load, const kvf__file_row *row, words *tokens,
                               kvf__items *items, int32_t *at)
{
    load->b.n = 0;
    for (size_t i = 0; i < tokens->n; i++) {
        const char *word = NULL;
        size_t n = 0;
        if (!next_word(tokens, i, NULL, 0, &word, &n))
            return kvf__fail(load->ctx, KVF_EDATA, "%s: token %zu is not a string", row->where, i);
        KVF_TRY(kvf__items_put(load->ctx, &load->pool, items, i, word, n));
        at[i] = (int32_t)load->b.n;
        load->word.n = 0;
        if (load->glue.spaced) KVF_TRY(kvf__buf_addc(load->ctx, &load->word, ' '));
        KVF_TRY(kvf__buf_add(load->ctx, &load->word, word, n));
        KVF_TRY(kvf__encode(load->ctx, load->options.render.tokenizer, load->word.data,
                            load->word.n, false, &load->b));
    }
    at[tokens->n] = (int32_t)load->b.n;
    return KVF_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* What a row holds of a sentence of n words: words [from, to), and of these the labels of
 * [first, last). */
typedef struct span {
    size_t from, first, last, to;
} span;

/* Is there room for the sentence, or for its longest word where it comes in windows? */
static kvf_status fit(kvf__loader *load, const kvf__file_row *row, const int32_t *at, size_t n,
                      bool *fits)
{
    int64_t most = load->options.max_length, capacity = most - kvf__loader_cost(load, false);
    int64_t least = load->options.windows ? 0 : at[n];
    for (size_t i = 0; i < n; i++)
        if (at[i + 1] - at[i] > least) least = at[i + 1] - at[i];
    *fits = true;
    if (least <= capacity) return KVF_OK;
    KVF_TRY(kvf__loader_overlong(load, row->where, least + most - capacity, most, fits));
    if (!*fits) return KVF_OK;
    if (capacity < 1)
        return kvf__fail(load->ctx, KVF_EDATA, "%s: no word fits into %lld tokens", row->where,
                         (long long)most);
    load->cut = true;
    return KVF_OK;
}

/* The row that labels word `first` and, as far as there is room, those behind it. Where sentences
 * come in windows, words at both ends are left to be seen there alone: each is labelled where it
 * sees most, on causal bases what is before it. */
static span next_span(const kvf__loader *load, const int32_t *at, size_t n, size_t first)
{
    int64_t capacity = load->options.max_length - kvf__loader_cost(load, false);
    int64_t shared = load->options.windows ? kvf__loader_stride(load, capacity) : 0;
    int64_t before = load->options.causal ? shared : shared / 2, behind = shared - before;
    span s = {.from = first, .first = first, .to = first + 1};
    if (!at[n] || at[n] <= capacity) return (span){.last = n, .to = n};
    while (s.from && at[first] - at[s.from - 1] <= before && at[s.to] - at[s.from - 1] <= capacity)
        s.from--;
    while (s.to < n && at[s.to + 1] - at[s.from] <= capacity)
        s.to++;
    s.last = s.to;
    while (s.to < n && s.last > first + 1 && at[s.to] - at[s.last] < behind)
        s.last--;
    return s;
}

/* One row; of a word that is longer only the pieces that fit. *labels: those of the group so far.
 */
static kvf_status put_span(kvf__loader *load, const kvf__file_row *row, const kvf__source *source,
                           const int32_t *at, const span *s, int32_t *label_of, int32_t *labels)
{
    int64_t a_at = 0, b_at = 0, start = kvf__loader_row_start(load);
    int64_t capacity = load->options.max_length - kvf__loader_cost(load, false);
    int64_t n = at[s->to] - at[s->from];
    load->a.n = 0;
    if (n)
        KVF_TRY(kvf__ids_append(load->ctx, &load->a, load->b.data + at[s->from],
                                (size_t)(n < capacity ? n : capacity)));
    KVF_TRY(kvf__loader_join(load, false, &a_at, &b_at));
    for (size_t i = s->first; i < s->last; i++) {
        if (at[i] == at[i + 1]) continue;
        load->rows.labels.data[start + a_at + at[i] - at[s->from]] = source->tags[i];
        label_of[i] = (*labels)++;
    }
    if ((int64_t)load->rows.ids.n == start)
        return kvf__fail(load->ctx, KVF_EDATA, "%s: the row has no tokens", row->where);
    return kvf__loader_end_row(load, &(kvf__row_info){.value = NAN});
}

static kvf_status put_sentence(kvf__loader *load, const kvf__file_row *row,
                               const kvf__source *source, const int32_t *at, int32_t *label_of)
{
    size_t n = (size_t)source->n, first = 0;
    int32_t labels = 0;
    do {
        while (first < n && at[first] == at[first + 1])
            first++;
        const span s = next_span(load, at, n, first);
        KVF_TRY(put_span(load, row, source, at, &s, label_of, &labels));
        first = s.last;
    } while (load->options.windows && at[first] < at[n]);
    return KVF_OK;
}

static kvf_status add_sentence(kvf__loader *load, const kvf__file_row *row, words *tokens,
                               words *tags)
{
    kvf__source source = {.gold = -1, .value = NAN, .n = (int64_t)tokens->n};
    kvf__items items;
    int32_t *at = NULL, *label_of = NULL;
    bool fits = true;
    kvf_ctx *ctx = load->ctx;
    KVF_TRY(kvf__items_take(ctx, &load->pool, tokens->n, &items));
    KVF_TRY(kvf__pool_alloc(ctx, &load->pool, tokens->n, sizeof *source.tags, &source.tags));
    KVF_TRY(kvf__pool_alloc(ctx, &load->pool, tokens->n, sizeof *label_of, &label_of));
    KVF_TRY(kvf__pool_alloc(ctx, &load->pool, tokens->n + 1, sizeof *at, &at));
    for (size_t i = 0; i < tokens->n; i++)
        source.tags[i] = label_of[i] = -1;
    if (tags) KVF_TRY(read_tags(load, row, tags, source.tags));
    KVF_TRY(encode_words(load, row, tokens, &items, at));
    source.items = items.text;
    source.item_bytes = items.bytes;
    source.label_of = label_of;
    KVF_TRY(fit(load, row, at, tokens->n, &fits));
    if (!fits) return kvf__loader_leave_out(load, row, &source);
    KVF_TRY(put_sentence(load, row, &source, at, label_of));
    return kvf__loader_end_group(load, row, &source);
}

kvf_status kvf__add_words(kvf__loader *load, const kvf__file_row *row)
{
    static const char *const TOKENS[3] = {"tokens", "words"};
    static const char *const TAGS[3] = {"tags", "ner_tags", "labels"};
    words tokens, tags;
    char found[512];
    bool tagged = find_words(load, row, TAGS, &tags);
    kvf__field_names(row, found, sizeof found);
    if (!find_words(load, row, TOKENS, &tokens))
        return kvf__fail(load->ctx, KVF_EDATA,
                         "%s: \"tokens\" is missing; the row has %s (name others with --map)",
                         row->where, found);
    if (!tagged && !load->options.unlabeled)
        return kvf__fail(load->ctx, KVF_EDATA,
                         "%s: \"tags\" is missing; the row has %s (name others with --map)",
                         row->where, found);
    if (tagged && tags.n != tokens.n)
        return kvf__fail(load->ctx, KVF_EDATA, "%s: %zu tags, but %zu tokens", row->where, tags.n,
                         tokens.n);
    load->counts.no_gold += !tagged;
    return add_sentence(load, row, &tokens, tagged ? &tags : NULL);
}
