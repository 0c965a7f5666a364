/* Splitting texts into words by the rules of three references.
 *
 * SQuAD lower-cases, drops ASCII punctuation, then articles, then splits. rouge_score lower-cases
 * and keeps runs of a-z and 0-9. The 13a tokenizer applies four substitutions in turn, whose
 * matches do not overlap. A consumed character cannot begin the next match, so ".." stays whole
 * where "." would be split off. The substitutions concern ASCII only, so bytes suffice. */
#include "words.h"

#include <string.h>

/* Appends the words between white space, one space after each. */
static kvf_status split(kvf_ctx *ctx, const kvf__ids *text, kvf__buf *out)
{
    for (size_t i = 0; i < text->n; i++) {
        bool last = i + 1 == text->n || kvf__py_space(text->data[i + 1]);
        if (kvf__py_space(text->data[i])) continue;
        KVF_TRY(kvf__put_code_point(ctx, out, text->data[i]));
        if (last) KVF_TRY(kvf__buf_addc(ctx, out, ' '));
    }
    return KVF_OK;
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool is_punctuation(int32_t c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

static bool is_article(const int32_t *word, size_t n)
{
    static const char *const ARTICLES[] = {"a", "an", "the"};

    for (int i = 0; i < 3; i++) {
        size_t same = 0;
        while (same < n && ARTICLES[i][same] && word[same] == ARTICLES[i][same])
            same++;
        if (same == n && !ARTICLES[i][same]) return true;
    }
    return false;
}

static void drop_punctuation(kvf__ids *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->n; i++)
        if (!is_punctuation(text->data[i])) text->data[n++] = text->data[i];
    text->n = n;
}

/* Replaces articles by spaces if no letter or digit is adjacent. */
static void blank_articles(kvf__ids *text)
{
    for (size_t i = 0, end; i < text->n; i = end) {
        for (end = i; end < text->n && kvf__py_word(text->data[end]);)
            end++;
        if (is_article(text->data + i, end - i))
            for (size_t k = i; k < end; k++)
                text->data[k] = ' ';
        if (end == i) end++;
    }
}

static void clean_answer(kvf__ids *text)
{
    drop_punctuation(text);
    blank_articles(text);
}

/* ---- rouge ----------------------------------------------------------------------------------- */

static void clean_rouge(kvf__ids *text)
{
    for (size_t i = 0; i < text->n; i++) {
        int32_t c = text->data[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9')) text->data[i] = ' ';
    }
}

/* ---- lower-case words of both ---------------------------------------------------------------- */

static kvf_status cut_lower(kvf_ctx *ctx, kvf__phrase text, void (*clean)(kvf__ids *text),
                            kvf__buf *out)
{
    kvf__ids raw = {0}, low = {0};
    kvf_status st = kvf__code_points(ctx, text, &raw);

    if (!st) st = kvf__py_lower(ctx, &raw, &low);
    if (!st) {
        clean(&low);
        st = split(ctx, &low, out);
    }
    kvf__ids_done(&raw);
    kvf__ids_done(&low);
    return st;
}

kvf_status kvf__cut_answer(kvf_ctx *ctx, kvf__phrase text, kvf__buf *out)
{
    return cut_lower(ctx, text, clean_answer, out);
}

kvf_status kvf__cut_rouge(kvf_ctx *ctx, kvf__phrase text, kvf__buf *out)
{
    return cut_lower(ctx, text, clean_rouge, out);
}

/* ---- 13a ------------------------------------------------------------------------------------- */

static const struct {
    const char *from, *to;
} REPLACED[] = {{"<skipped>", ""}, {"-\n", ""},   {"\n", " "},  {"&quot;", "\""},
                {"&amp;", "&"},    {"&lt;", "<"}, {"&gt;", ">"}};

/* Replaces in place: no replacement is longer than its source. */
static void replace(kvf__buf *text, const char *from, const char *to)
{
    size_t n = strlen(from), made = strlen(to), end = 0;

    for (size_t i = 0; i < text->n;) {
        if (text->n - i >= n && !memcmp(text->data + i, from, n)) {
            memcpy(text->data + end, to, made);
            end += made;
            i += n;
        } else {
            text->data[end++] = text->data[i++];
        }
    }
    text->n = end;
}

typedef enum char_class { ANY, DIGIT, NO_DIGIT, STOP, DASH, SYMBOL } char_class;

static bool is_of(char c, char_class class)
{
    switch (class) {
    case ANY:
        return true;
    case DIGIT:
        return c >= '0' && c <= '9';
    case NO_DIGIT:
        return !is_of(c, DIGIT);
    case STOP:
        return c == '.' || c == ',';
    case DASH:
        return c == '-';
    case SYMBOL: /* always a separate word: all of ASCII's but ' , - and the period */
        return c == ' ' || (c != '\'' && c != '-' && !is_of(c, STOP) && is_punctuation(c));
    }
    return false;
}

/* One substitution: the one or two characters that it matches, and their replacement. */
typedef struct rewrite {
    char_class now, next;
    bool one;           /* matches one character; else two */
    const char *format; /* 1 and 2 stand for the characters */
} rewrite;

static const rewrite STEPS[] = {
    {SYMBOL, ANY, true, " 1 "},
    {NO_DIGIT, STOP, false, "1 2 "},
    {STOP, NO_DIGIT, false, " 1 2"},
    {DIGIT, DASH, false, "1 2 "},
};

static kvf_status substitute(kvf_ctx *ctx, const rewrite *step, const kvf__buf *text, kvf__buf *out)
{
    out->n = 0;
    for (size_t i = 0; i < text->n;) {
        char now = text->data[i];
        bool more = i + 1 < text->n;
        if ((!step->one && !more) || !is_of(now, step->now) ||
            !is_of(more ? text->data[i + 1] : 0, step->next)) {
            KVF_TRY(kvf__buf_addc(ctx, out, now));
            i++;
            continue;
        }
        for (const char *f = step->format; *f; f++)
            KVF_TRY(kvf__buf_addc(ctx, out, *f == '1' ? now : *f == '2' ? text->data[i + 1] : ' '));
        i += step->one ? 1 : 2;
    }
    return KVF_OK;
}

/* Strips white space from both ends. */
static kvf_status trimmed(kvf_ctx *ctx, kvf__phrase text, kvf__ids *points, kvf__buf *out)
{
    KVF_TRY(kvf__code_points(ctx, text, points));
    while (points->n && kvf__py_space(points->data[points->n - 1]))
        points->n--;
    for (size_t i = 0; i < points->n; i++)
        KVF_TRY(kvf__put_code_point(ctx, out, points->data[i]));
    return KVF_OK;
}

static kvf_status tokenize_13a(kvf_ctx *ctx, kvf__phrase text, kvf__ids *points, kvf__buf *a,
                               kvf__buf *b)
{
    KVF_TRY(trimmed(ctx, text, points, a));
    for (size_t i = 0; i < sizeof REPLACED / sizeof *REPLACED; i++)
        replace(a, REPLACED[i].from, REPLACED[i].to);
    KVF_TRY(kvf__buf_addc(ctx, b, ' '));
    KVF_TRY(kvf__buf_add(ctx, b, a->data ? a->data : "", a->n));
    KVF_TRY(kvf__buf_addc(ctx, b, ' '));
    for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++) {
        KVF_TRY(substitute(ctx, &STEPS[i], b, a));
        kvf__buf swap = *a;
        *a = *b;
        *b = swap;
    }
    return kvf__code_points(ctx, (kvf__phrase){b->data, b->n}, points);
}

kvf_status kvf__cut_13a(kvf_ctx *ctx, kvf__phrase text, kvf__buf *out)
{
    kvf__ids points = {0};
    kvf__buf a = {0}, b = {0};
    kvf_status st = tokenize_13a(ctx, text, &points, &a, &b);

    if (!st) st = split(ctx, &points, out);
    kvf__ids_done(&points);
    kvf__buf_done(&a);
    kvf__buf_done(&b);
    return st;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static kvf__phrase phrase_at(const char *const *texts, const size_t *bytes, int64_t i)
{
    return (kvf__phrase){texts[i], bytes ? bytes[i] : strlen(texts[i])};
}

kvf__phrase kvf__predicted(const kvf__text_rows *rows, int64_t i)
{
    return phrase_at(rows->predicted, rows->predicted_bytes, i);
}

kvf__phrase kvf__reference(const kvf__text_rows *rows, int64_t i)
{
    return phrase_at(rows->references, rows->reference_bytes, i);
}

/* ---- numbers --------------------------------------------------------------------------------- */

kvf_status kvf__words(kvf_ctx *ctx, kvf__vocabulary *vocabulary, kvf__cut_fn *cut, kvf__phrase text,
                      kvf__ids *ids)
{
    kvf__buf *words = &vocabulary->text;

    ids->n = words->n = 0;
    KVF_TRY(cut(ctx, text, words));
    for (size_t i = 0, end; i < words->n; i = end + 1) {
        int64_t id = (int64_t)vocabulary->map.n;
        for (end = i; words->data[end] != ' ';)
            end++;
        if (!kvf__map_get(&vocabulary->map, words->data + i, end - i, &id))
            KVF_TRY(kvf__map_put(ctx, &vocabulary->map, words->data + i, end - i, id));
        KVF_TRY(kvf__ids_add(ctx, ids, (int32_t)id));
    }
    return KVF_OK;
}

void kvf__vocabulary_done(kvf__vocabulary *vocabulary)
{
    kvf__map_done(&vocabulary->map);
    kvf__buf_done(&vocabulary->text);
    *vocabulary = (kvf__vocabulary){0};
}

kvf_status kvf__check_texts(kvf_ctx *ctx, const kvf__text_rows *rows, bool needs_reference)
{
    if (rows->n <= 0) return kvf__fail(ctx, KVF_EDATA, "no examples to score");
    for (int64_t i = 0; i < rows->n && needs_reference; i++)
        if (rows->start[i] == rows->start[i + 1])
            return kvf__fail(ctx, KVF_EDATA, "example %lld has no reference", (long long)i);
    return KVF_OK;
}
