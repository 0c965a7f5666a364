/* Rows of token-cls: a sentence of words, each encoded separately, as `tokenizers` does with
 * is_pretokenized. A word's tag is on its first sub-word (Devlin et al. 2019, section 5.3). An
 * overlong sentence is cut between two words, or split into windows that overlap. Byte-level
 * vocabularies recognise a word by the blank before it. Every word gets one there, as transformers
 * requires with add_prefix_space=True. */
#include "loader.h"

#include <math.h>
#include <string.h>

/* A list of strings, or one string of words separated by white space. */
typedef struct word_list {
    const kvf_json *list;
    const char *text; /* rest of the string, `left` bytes */
    size_t left, n;
} word_list;

static bool is_blank(char c)
{
    return c && strchr(" \t\r\n", c);
}

/* Cuts the next word off the string. Returns false at the end. */
static bool cut_word(word_list *w, const char **word, size_t *bytes)
{
    while (w->left && is_blank(*w->text))
        w->text++, w->left--;
    *word = w->text;
    for (*bytes = 0; *bytes < w->left && !is_blank(w->text[*bytes]);)
        ++*bytes;
    w->text += *bytes;
    w->left -= *bytes;
    return *bytes;
}

static size_t count_words(word_list w)
{
    const char *word;
    size_t n = 0, bytes;
    while (cut_word(&w, &word, &bytes))
        n++;
    return n;
}

static bool find_words(const kvf__loader *load, const char *const names[3], word_list *out)
{
    const kvf_json *value = NULL;
    for (size_t i = 0; kvf_json_typeof(value) <= KVF_JSON_NULL && i < 3 && names[i]; i++)
        value = kvf__row_field(load->options.render.map, load->row, names[i]);
    *out = (word_list){.list = NULL};
    out->text = kvf_json_str(value, &out->left);
    if (kvf_json_typeof(value) == KVF_JSON_ARRAY) {
        out->list = value;
        out->n = kvf_json_size(value);
    } else if (out->text) {
        out->n = count_words(*out);
    }
    return out->list || out->text;
}

/* Returns word or tag i; calls must be in order. False: not a text. Numbers are accepted as
 * tags. */
static bool next_word(word_list *w, size_t i, char *made, size_t capacity, const char **out,
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

/* Writes "file:line" of word i if the format has a line per word, else that of the row. */
static void word_where(const kvf__loader *load, size_t i, char where[KVF__WHERE_MAX])
{
    if (load->row->word_lines)
        kvf__where(where, load->row->path, load->row->line + (int64_t)i);
    else
        snprintf(where, KVF__WHERE_MAX, "%s", load->row->where);
}

static kvf_status read_tags(kvf__loader *load, word_list *tags, int32_t *out)
{
    char where[KVF__WHERE_MAX], made[256], name[256];
    for (size_t i = 0; i < tags->n; i++) {
        const char *tag = NULL;
        size_t n = 0;
        word_where(load, i, where);
        bool good = next_word(tags, i, made, sizeof made, &tag, &n);
        if (good) kvf__trim_space(&tag, &n);
        if (!good || !n || n >= sizeof name || memchr(tag, 0, n))
            return kvf__fail(load->ctx, KVF_EDATA, "%s: tag %zu is not a valid name", where, i);
        snprintf(name, sizeof name, "%.*s", (int)n, tag);
        KVF_TRY(kvf__labels_id(load->ctx, &load->names, where, name, &out[i]));
    }
    return KVF_OK;
}

/* Encodes all words into load->b. at [n + 1]: offset of each word's first token. */
static kvf_status encode_words(kvf__loader *load, word_list *tokens, kvf__source *source,
                               int32_t *at)
{
    load->b.n = 0;
    for (size_t i = 0; i < tokens->n; i++) {
        const char *word = NULL;
        size_t n = 0;
        if (!next_word(tokens, i, NULL, 0, &word, &n))
            return kvf__loader_fail(load, "token %zu is not a string", i);
        KVF_TRY(kvf__put_item(load, source, i, word, n));
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

/* The part of a sentence in one row: words [from, to), of which [first, last) have labels. */
typedef struct word_span {
    size_t from, first, last, to;
} word_span;

/* Checks whether the sentence fits or, in windows, its longest word. */
static kvf_status fit(kvf__loader *load, const int32_t *at, size_t n, bool *fits)
{
    int64_t most = load->options.max_length, capacity = most - kvf__loader_cost(load, false);
    int64_t least = load->options.windows ? 0 : at[n];
    for (size_t i = 0; i < n; i++)
        if (at[i + 1] - at[i] > least) least = at[i + 1] - at[i];
    *fits = true;
    if (least <= capacity) return KVF_OK;
    KVF_TRY(kvf__loader_overlong(load, least + most - capacity, most, fits));
    if (!*fits) return KVF_OK;
    if (capacity < 1)
        return kvf__loader_fail(load, "a row of %lld tokens has no room for a word",
                                (long long)most);
    load->cut = true;
    return KVF_OK;
}

/* Returns the row that labels word `first` and as many words after it as fit. In windows, words at
 * both ends serve as context only. Each word is labelled where it has most context; on causal bases
 * only the words before it count. */
static word_span next_span(const kvf__loader *load, const int32_t *at, size_t n, size_t first)
{
    int64_t capacity = load->options.max_length - kvf__loader_cost(load, false);
    int64_t shared = load->options.windows ? kvf__loader_stride(load, capacity) : 0;
    int64_t before = load->options.causal ? shared : shared / 2, after = shared - before;
    word_span s = {.from = first, .first = first, .to = first + 1};
    if (!at[n] || at[n] <= capacity) return (word_span){.last = n, .to = n};
    while (s.from && at[first] - at[s.from - 1] <= before && at[s.to] - at[s.from - 1] <= capacity)
        s.from--;
    while (s.to < n && at[s.to + 1] - at[s.from] <= capacity)
        s.to++;
    s.last = s.to;
    while (s.to < n && s.last > first + 1 && at[s.to] - at[s.last] < after)
        s.last--;
    return s;
}

/* Adds one row; of a word longer than the row, only the sub-words that fit. *labels: labels of the
 * group so far. */
static kvf_status put_span(kvf__loader *load, const kvf__source *source, const int32_t *at,
                           const word_span *s, int32_t *label_of, int32_t *labels)
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
    if ((int64_t)load->rows.ids.n == start) return kvf__loader_fail(load, "the row has no tokens");
    return kvf__loader_end_row(load, &(kvf__row_info){.value = NAN});
}

static kvf_status put_sentence(kvf__loader *load, const kvf__source *source, const int32_t *at,
                               int32_t *label_of)
{
    size_t n = (size_t)source->n, first = 0;
    int32_t labels = 0;
    do {
        while (first < n && at[first] == at[first + 1])
            first++;
        const word_span s = next_span(load, at, n, first);
        KVF_TRY(put_span(load, source, at, &s, label_of, &labels));
        first = s.last;
    } while (load->options.windows && at[first] < at[n]);
    return KVF_OK;
}

static kvf_status add_sentence(kvf__loader *load, word_list *tokens, word_list *tags)
{
    kvf__source source = {.gold = -1, .value = NAN, .n = (int64_t)tokens->n};
    int32_t *at = NULL, *label_of = NULL;
    bool fits = true;
    kvf_ctx *ctx = load->ctx;
    KVF_TRY(kvf__alloc_items(load, &source, tokens->n));
    KVF_TRY(kvf__pool_alloc(ctx, &load->pool, tokens->n, sizeof *source.tags, &source.tags));
    KVF_TRY(kvf__pool_alloc(ctx, &load->pool, tokens->n, sizeof *label_of, &label_of));
    KVF_TRY(kvf__pool_alloc(ctx, &load->pool, tokens->n + 1, sizeof *at, &at));
    for (size_t i = 0; i < tokens->n; i++)
        source.tags[i] = label_of[i] = -1;
    if (tags) KVF_TRY(read_tags(load, tags, source.tags));
    KVF_TRY(encode_words(load, tokens, &source, at));
    source.label_of = label_of;
    KVF_TRY(fit(load, at, tokens->n, &fits));
    if (!fits) return kvf__loader_leave_out(load, &source);
    KVF_TRY(put_sentence(load, &source, at, label_of));
    return kvf__loader_end_group(load, &source);
}

kvf_status kvf__add_words(kvf__loader *load)
{
    static const char *const TOKENS[3] = {"tokens", "words"};
    static const char *const UNTAGGED[3] = {"tokens", "words", "text"};
    static const char *const TAGS[3] = {"tags", "ner_tags", "labels"};
    word_list tokens, tags;
    bool tagged = find_words(load, TAGS, &tags);
    if (!find_words(load, !tagged && load->options.unlabeled ? UNTAGGED : TOKENS, &tokens))
        return kvf__loader_field_fail(
            load, "tokens",
            tagged || load->options.unlabeled ? "missing" : "missing, and \"tags\" too");
    if (!tagged && !load->options.unlabeled) return kvf__loader_field_fail(load, "tags", "missing");
    if (tagged && tags.n != tokens.n)
        return kvf__loader_fail(load, "%zu tags, but %zu tokens", tags.n, tokens.n);
    load->counts.no_gold += !tagged;
    return add_sentence(load, &tokens, tagged ? &tags : NULL);
}
