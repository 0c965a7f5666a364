/* Rows of seq-cls and multiple-choice: one text or two between the tokenizer's special tokens, with
 * one label at the token that the head reads. The choices of a question are the rows of its group.
 * Each follows the same first text, which becomes a common prefix on causal bases. */
#include "loader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Reduces the lengths of two lists to a common capacity, as `tokenizers` cuts pairs. The shorter
 * list keeps all it can, and an odd token goes to the longer one. */
static void share_capacity(int64_t capacity, int64_t *a, int64_t *b)
{
    int64_t *less = *a <= *b ? a : b, *more = less == a ? b : a;
    if (*less + *more <= capacity) return;
    *more = *less > capacity ? *less : (*less > capacity - *less ? *less : capacity - *less);
    if (*less + *more > capacity) {
        *less = capacity / 2;
        *more = *less + capacity % 2;
    }
}

/* Cuts load->a and load->b to fit; *fits false: leave the group out. */
static kvf_status fit(kvf__loader *load, bool pair, bool *fits)
{
    const bool twice = load->options.render.encoder; /* both stacks read it, with EOS */
    int64_t cost = kvf__loader_cost(load, pair) + twice;
    int64_t most = load->options.max_length / (twice ? 2 : 1);
    int64_t a = (int64_t)load->a.n, b = pair ? (int64_t)load->b.n : 0;
    *fits = true;
    if (a + b + cost <= most) return KVF_OK;
    KVF_TRY(kvf__loader_overlong(load, a + b + cost, most, fits));
    if (!*fits) return KVF_OK;
    if (cost >= most)
        return kvf__loader_fail(load, "a row of %lld tokens has no room for text", (long long)most);
    share_capacity(most - cost, &a, &b);
    load->a.n = (size_t)a;
    if (pair) load->b.n = (size_t)b;
    load->cut = true;
    return KVF_OK;
}

static kvf_status encode(kvf__loader *load, const char *text, size_t bytes, kvf__ids *out)
{
    out->n = 0;
    return kvf__encode(load->ctx, load->options.render.tokenizer, text, bytes, false, out);
}

/* Appends the text again for the decoder, shifted right. The decoder's last state is then at the
 * text's EOS, by which transformers classifies (T5ForSequenceClassification,
 * BartForSequenceClassification). */
static kvf_status add_target(kvf__loader *load)
{
    const kvf__render *render = &load->options.render;
    const int64_t from = kvf__loader_row_start(load);
    const int32_t eos = kvf__token_eos(render->tokenizer);

    if (eos < 0)
        return kvf__loader_fail(
            load, "the tokenizer has no EOS token, which an encoder-decoder needs for classes");
    if (load->rows.ids.data[load->rows.ids.n - 1] != eos) KVF_TRY(kvf__loader_add_id(load, eos));
    const int64_t n = (int64_t)load->rows.ids.n - from;
    KVF_TRY(kvf__loader_add_id(load, render->start));
    for (int64_t i = 0; i < n - 1; i++)
        KVF_TRY(kvf__loader_add_id(load, load->rows.ids.data[from + i]));
    return KVF_OK;
}

/* Adds one row of load->a and load->b with one label. The label is where the head reads or, if
 * `read` is not below 0, at token `read` of load->a. */
static kvf_status put_row(kvf__loader *load, bool pair, int64_t read, int32_t label, float value)
{
    int64_t a_at = 0, b_at = 0;
    KVF_TRY(kvf__loader_join(load, pair, &a_at, &b_at));
    if ((int64_t)load->rows.ids.n == kvf__loader_row_start(load) + kvf__loader_front(load))
        return kvf__loader_fail(load, "the row has no tokens");
    if (load->options.render.encoder) KVF_TRY(add_target(load));
    int64_t at = read < 0 ? kvf__loader_read_at(load) : kvf__loader_row_start(load) + a_at + read;
    load->rows.labels.data[at] = label;
    return kvf__loader_end_row(load, &(kvf__row_info){.value = isnan(value) ? 0 : value});
}

static kvf_status add_row(kvf__loader *load, bool pair, int32_t label, float value, bool *fits)
{
    KVF_TRY(fit(load, pair, fits));
    return *fits ? put_row(load, pair, -1, label, value) : KVF_OK;
}

/* ---- templates ------------------------------------------------------------------------------- */

/* Appends the tokens of a piece to load->b; the tokens of a field are cut to capacity[field]. */
static kvf_status add_piece(kvf__loader *load, const kvf__template_piece *piece,
                            const kvf__row_texts *texts, const int64_t capacity[2])
{
    const bool field = piece->kind == KVF__PIECE_FIELD;
    const bool second = field && !strcmp(piece->text, "text_pair");
    const kvf__buf *text = second ? &texts->b : &texts->a;
    size_t from = load->b.n;
    if (field && !text->data) return KVF_OK; /* the row has no second text */
    KVF_TRY(kvf__add_piece(load->ctx, load->options.render.tokenizer, piece, text->data, text->n,
                           &load->b));
    if (field && (int64_t)(load->b.n - from) > capacity[second])
        load->b.n = from + (size_t)capacity[second];
    return KVF_OK;
}

/* Writes all pieces to load->b. length [2]: tokens of the two fields; *read: position of [MASK], or
 * -1. */
static kvf_status lay_pieces(kvf__loader *load, const kvf__row_texts *texts,
                             const int64_t capacity[2], int64_t length[2], int64_t *read)
{
    const kvf__row_template *pattern = load->options.render.pattern;
    load->b.n = 0;
    length[0] = length[1] = 0;
    *read = -1;
    for (size_t i = 0; i < pattern->n; i++) {
        const kvf__template_piece *piece = &pattern->pieces[i];
        size_t from = load->b.n;
        if ((int)i == pattern->mask) *read = (int64_t)from;
        if ((int)i == pattern->mask && load->options.phrases) continue;
        KVF_TRY(add_piece(load, piece, texts, capacity));
        if (piece->kind == KVF__PIECE_FIELD)
            length[!strcmp(piece->text, "text_pair")] = (int64_t)(load->b.n - from);
    }
    return KVF_OK;
}

/* Returns the number of tokens that the longest class adds to its row. */
static int64_t longest_phrase(const kvf__loader *load)
{
    const kvf__phrases *phrases = load->options.phrases;
    int64_t most = 0;
    for (int64_t c = 0; phrases && c < phrases->n; c++)
        if (phrases->start[c + 1] - phrases->start[c] > most)
            most = phrases->start[c + 1] - phrases->start[c];
    return most && load->options.causal ? most - 1 : most;
}

/* Adds the row of class c from the pieces in load->b, of which `read` tokens precede [MASK]. */
static kvf_status put_phrase(kvf__loader *load, int64_t c, int64_t read, bool right)
{
    const kvf__phrases *phrases = load->options.phrases;
    const int32_t *ids = phrases->ids + phrases->start[c];
    const int64_t n = phrases->start[c + 1] - phrases->start[c], causal = load->options.causal;
    const int32_t mask = kvf__token_mask(load->options.render.tokenizer);
    int64_t a_at = 0, b_at = 0;
    load->a.n = 0;
    KVF_TRY(kvf__ids_append(load->ctx, &load->a, load->b.data, (size_t)read));
    for (int64_t j = 0; j < n - causal; j++)
        KVF_TRY(kvf__ids_add(load->ctx, &load->a, causal ? ids[j] : mask));
    KVF_TRY(kvf__ids_append(load->ctx, &load->a, load->b.data + read, load->b.n - (size_t)read));
    KVF_TRY(kvf__loader_join(load, false, &a_at, &b_at));
    if (a_at + read - causal < kvf__loader_front(load))
        return kvf__loader_fail(load, "the row has no token before its class");
    for (int64_t j = 0; j < n; j++)
        load->rows.labels.data[kvf__loader_row_start(load) + a_at + read - causal + j] = ids[j];
    return kvf__loader_end_row(load, &(kvf__row_info){.value = right});
}

static kvf_status put_phrases(kvf__loader *load, int64_t read, int32_t label)
{
    for (int64_t c = 0; c < load->options.phrases->n; c++)
        KVF_TRY(put_phrase(load, c, read, c == label));
    return KVF_OK;
}

/* Adds one row by the template. An overlong row loses tokens of the fields, the longer first. */
static kvf_status add_pattern(kvf__loader *load, const kvf__row_texts *texts, int32_t label,
                              float value, bool *fits)
{
    int64_t most = load->options.max_length - kvf__loader_cost(load, false) - longest_phrase(load),
            read = -1;
    int64_t capacity[2] = {INT64_MAX, INT64_MAX}, length[2];
    kvf_status st = lay_pieces(load, texts, capacity, length, &read);
    int64_t all = (int64_t)load->b.n, rest = all - length[0] - length[1];
    *fits = true;
    if (!st && all > most) {
        KVF_TRY(kvf__loader_overlong(load, all + load->options.max_length - most,
                                     load->options.max_length, fits));
        if (!*fits) return KVF_OK;
        if (rest >= most)
            return kvf__loader_fail(load, "a row of %lld tokens has no room for text",
                                    (long long)load->options.max_length);
        memcpy(capacity, length, sizeof capacity);
        share_capacity(most - rest, &capacity[0], &capacity[1]);
        load->cut = true;
        st = lay_pieces(load, texts, capacity, length, &read);
    }
    if (st) return st;
    if (load->options.phrases) return put_phrases(load, read, label);
    load->a.n = 0;
    KVF_TRY(kvf__ids_append(load->ctx, &load->a, load->b.data, load->b.n));
    return put_row(load, false, read, label, value);
}

/* ---- seq-cls --------------------------------------------------------------------------------- */

static const kvf_json *label_field(kvf__loader *load)
{
    const bool choice = load->options.task == KVF__TASK_CHOICE;
    const char *const names[] = {"label", "gold_label", choice ? "answerKey" : NULL,
                                 choice ? "answer" : NULL,
                                 load->options.regression ? "score" : NULL};
    const kvf_json *null = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const kvf_json *value = names[i] ? kvf__loader_field(load, names[i]) : NULL;
        if (kvf_json_typeof(value) > KVF_JSON_NULL) return value;
        if (value) null = value;
    }
    return null;
}

/* Reads the label as text. *there false: the row has none; null is "". */
static kvf_status label_text(kvf__loader *load, char *out, size_t bytes, bool *there)
{
    const kvf_json *value = label_field(load);
    size_t n = 0;
    const char *name = kvf_json_str(value, &n);
    if (name && memchr(name, 0, n)) return kvf__loader_fail(load, "the label holds U+0000");
    if (!kvf__label_fits(value, bytes))
        return kvf__loader_fail(load, "the label is a list, or has %zu bytes or more", bytes);
    *there = kvf__label_text(value, out, bytes) || kvf_json_typeof(value) == KVF_JSON_NULL;
    name = out;
    n = strlen(out);
    kvf__trim_space(&name, &n);
    memmove(out, name, n);
    out[n] = 0;
    return KVF_OK;
}

static kvf_status read_target(kvf__loader *load, const char *text, kvf__source *source)
{
    char *end = NULL;
    source->value = strtof(text, &end);
    if (end != text && !*end && isfinite(source->value)) return KVF_OK;
    return kvf__loader_fail(load, "label \"%s\" is not a number", text);
}

/* Reads the class or value of a row; -1 and NaN if it may lack one. Test sets of GLUE have -1
 * there. */
static kvf_status read_label(kvf__loader *load, kvf__source *source, bool *stays)
{
    char text[256];
    bool there = false;
    KVF_TRY(label_text(load, text, sizeof text, &there));
    if (there && (load->options.regression ? !*text || !strcmp(text, "-")
                                           : kvf__labels_is_none(&load->names, text))) {
        kvf__loader_no_label(load, text, stays);
        return KVF_OK;
    }
    if (!there) {
        load->counts.no_gold++;
        return load->options.unlabeled ? KVF_OK : kvf__loader_field_fail(load, "label", "missing");
    }
    if (load->options.regression) return read_target(load, text, source);
    return kvf__labels_id(load->ctx, &load->names, load->row->where, text, &source->gold);
}

static kvf_status keep_text(kvf__loader *load, const kvf__buf *text, const char **out,
                            size_t *bytes)
{
    *bytes = text->n;
    return text->data ? kvf__pool_text(load->ctx, &load->pool, text->data, text->n, out) : KVF_OK;
}

/* Adds a row of one text or two, without a template. */
static kvf_status add_plain(kvf__loader *load, const kvf__row_texts *texts, int32_t label,
                            float value, bool *fits)
{
    bool pair = texts->b.data;
    KVF_TRY(encode(load, texts->a.data, texts->a.n, &load->a));
    if (pair) KVF_TRY(encode(load, texts->b.data, texts->b.n, &load->b));
    return add_row(load, pair, label, value, fits);
}

static kvf_status add_texts(kvf__loader *load, const kvf__row_texts *texts)
{
    const kvf__row_template *pattern = load->options.render.pattern;
    kvf__source source = {.gold = -1, .value = NAN};
    bool fits = true, stays = true;
    KVF_TRY(read_label(load, &source, &stays));
    if (!stays) return KVF_OK;
    int32_t label = load->options.regression ? 0 : source.gold;
    KVF_TRY(keep_text(load, &texts->a, &source.text, &source.text_bytes));
    KVF_TRY(keep_text(load, &texts->b, &source.pair, &source.pair_bytes));
    KVF_TRY(
        (pattern && pattern->n ? add_pattern : add_plain)(load, texts, label, source.value, &fits));
    return (fits ? kvf__loader_end_group : kvf__loader_leave_out)(load, &source);
}

/* Calls a function with the texts of the current row. */
static kvf_status with_texts(kvf__loader *load,
                             kvf_status (*add)(kvf__loader *load, const kvf__row_texts *texts))
{
    kvf__row_texts texts = {0};
    kvf_status st = kvf__row_texts_get(
        load->ctx, load->options.render.map, load->options.task, load->row,
        load->options.unlabeled || label_field(load) ? "" : ", and label", &texts);
    if (!st) st = add(load, &texts);
    kvf__row_texts_done(&texts);
    return st;
}

kvf_status kvf__add_text(kvf__loader *load)
{
    return with_texts(load, add_texts);
}

/* ---- multiple-choice ------------------------------------------------------------------------- */

/* Returns choice i; key_at() returns its name in labels. A choice is a text, or {"text",
 * "label"}. */
static const kvf_json *choice_at(const kvf__row_texts *texts, size_t i)
{
    const kvf_json *choice = texts->choices ? kvf_json_at(texts->choices, i) : texts->choice[i];
    return kvf_json_typeof(choice) == KVF_JSON_OBJECT ? kvf_json_get(choice, "text") : choice;
}

static const kvf_json *key_at(const kvf__row_texts *texts, size_t i)
{
    return texts->keys ? kvf_json_at(texts->keys, i)
                       : kvf_json_get(kvf_json_at(texts->choices, i), "label");
}

/* Returns the choice that a label names: by its key, else by its number from 0 or its letter from
 * A, else by its text; -1: none. */
static int64_t find_choice(const kvf__row_texts *texts, const char *label)
{
    char key[64], *end = NULL;
    bool keys = false;
    for (size_t i = 0; i < texts->n_choices; i++) {
        if (!kvf__label_text(key_at(texts, i), key, sizeof key)) continue;
        if (!strcmp(key, label)) return (int64_t)i;
        keys = true;
    }
    const long number = strtol(label, &end, 10);
    const int64_t at = *end ? label[1] ? -1 : label[0] - 'A' : number;
    if (!keys && at >= 0 && at < (int64_t)texts->n_choices) return at;
    for (size_t i = 0; i < texts->n_choices; i++) {
        const char *choice = kvf_json_str(choice_at(texts, i), NULL);
        if (choice && !strcmp(choice, label)) return (int64_t)i;
    }
    return -1;
}

static kvf_status read_answer(kvf__loader *load, const kvf__row_texts *texts, kvf__source *source,
                              bool *stays)
{
    char text[64], key[64];
    bool there = false;
    KVF_TRY(label_text(load, text, sizeof text, &there));
    if (there && (!*text || !strcmp(text, "-") || !strcmp(text, "-1"))) {
        kvf__loader_no_label(load, text, stays);
        return KVF_OK;
    }
    if (!there) {
        load->counts.no_gold++;
        return load->options.unlabeled ? KVF_OK : kvf__loader_field_fail(load, "label", "missing");
    }
    source->gold = (int32_t)find_choice(texts, text);
    if (source->gold >= 0) return KVF_OK;
    if (kvf__label_text(key_at(texts, 0), key, sizeof key))
        return kvf__loader_fail(load, "label %s is not one of the row's %zu choices, %s, ...", text,
                                texts->n_choices, key);
    return kvf__loader_fail(load,
                            "label %s is not one of the row's %zu choices, counted from 0 or A",
                            text, texts->n_choices);
}

/* Stores the texts of a row's choices, which must be strings. */
static kvf_status keep_choices(kvf__loader *load, const kvf__row_texts *texts, kvf__source *source)
{
    KVF_TRY(kvf__alloc_items(load, source, texts->n_choices));
    for (size_t i = 0; i < texts->n_choices; i++) {
        size_t n = 0;
        const char *choice = kvf_json_str(choice_at(texts, i), &n);
        if (!choice) return kvf__loader_fail(load, "choice %zu is not a string", i);
        KVF_TRY(kvf__put_item(load, source, i, choice, n));
    }
    return KVF_OK;
}

/* Adds one row per choice. The text is tokenised once. Joining a shortened text with a separator
 * overwrites tokens in load->a, so each row restores those that fit. */
static kvf_status put_choices(kvf__loader *load, const kvf__row_texts *texts, int32_t gold,
                              bool *fits)
{
    kvf__ids *text = &load->context.ids;
    KVF_TRY(encode(load, texts->a.data, texts->a.n, &load->a));
    text->n = 0;
    KVF_TRY(kvf__ids_append(load->ctx, text, load->a.data, load->a.n));
    for (size_t i = 0; *fits && i < texts->n_choices; i++) {
        size_t n = 0, kept = (size_t)load->options.max_length;
        const char *choice = kvf_json_str(choice_at(texts, i), &n);
        if (kept > text->n) kept = text->n;
        if (kept) memcpy(load->a.data, text->data, kept * sizeof *text->data);
        load->a.n = text->n;
        KVF_TRY(encode(load, choice, n, &load->b));
        KVF_TRY(add_row(load, true, gold == (int32_t)i, NAN, fits));
    }
    return KVF_OK;
}

static kvf_status add_choices(kvf__loader *load, const kvf__row_texts *texts)
{
    enum { MOST_CHOICES = 1024 };
    kvf__source source = {.gold = -1, .value = NAN, .n = (int64_t)texts->n_choices};
    bool fits = true, stays = true;
    if (texts->n_choices < 2)
        return kvf__loader_fail(load, "the row needs a list of two or more choices");
    if (texts->n_choices > MOST_CHOICES)
        return kvf__loader_fail(load, "%zu choices, want at most %d", texts->n_choices,
                                MOST_CHOICES);
    KVF_TRY(read_answer(load, texts, &source, &stays));
    if (!stays) return KVF_OK;
    KVF_TRY(keep_text(load, &texts->a, &source.text, &source.text_bytes));
    KVF_TRY(keep_choices(load, texts, &source));
    KVF_TRY(put_choices(load, texts, source.gold, &fits));
    return (fits ? kvf__loader_end_group : kvf__loader_leave_out)(load, &source);
}

kvf_status kvf__add_choices(kvf__loader *load)
{
    return with_texts(load, add_choices);
}
