/* Regular expressions: Oniguruma patterns of tokenizer.json, run by PCRE2 with its JIT.
 *
 * A pattern is translated first. For constructs used by tokenizers the engines differ in: \s (PCRE2
 * adds U+180E), \w, ^ and $ (Ruby syntax: at every line), \h and possessive {n,m}+. PCRE2 may also
 * know an older Unicode, so letters, marks and numbers are extended to Oniguruma's Unicode 16. A
 * construct that would have another meaning here is refused by name. A literal string is a pattern
 * as well. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pattern_unicode.h"
#include "tok_work.h"

#include <pcre2.h>
#include <string.h>
#include <strings.h>

/* Enough for a piece of ten million characters; a hostile pattern stops within seconds. */
enum { MATCH_LIMIT = 10000000 };

struct kvf__pattern {
    pcre2_code *code;
    pcre2_match_context *limits;
    char *literal; /* literal, instead of code */
    size_t n;
    char *source; /* translated regex of code */
};

/* ---- translation ----------------------------------------------------------------------------- */

typedef struct translation {
    kvf_ctx *ctx;
    const char *where, *s;
    size_t n, at;
    bool in_class;
    kvf__buf out;
} translation;

static kvf_status refuse(const translation *t, const char *what)
{
    return kvf__fail(t->ctx, KVF_EUNSUPPORTED, "%s: regex %.*s: %s is not supported", t->where,
                     (int)(t->n < 200 ? t->n : 200), t->s, what);
}

static kvf_status put(translation *t, const char *text)
{
    return kvf__buf_add(t->ctx, &t->out, text, strlen(text));
}

/* Appends a set: bare members inside a class, bracketed outside of one. */
static kvf_status put_set(translation *t, const char *members, bool negated)
{
    if (t->in_class)
        return negated ? refuse(t, "this negated class inside [...]") : put(t, members);
    KVF_TRY(put(t, negated ? "[^" : "["));
    KVF_TRY(put(t, members));
    return put(t, "]");
}

/* Properties extended in Unicode 15 and 16. */
static const struct {
    const char *name, *members;
} GROWN[] = {{"L", KVF__RE_LETTER},    {"N", KVF__RE_NUMBER}, {"M", KVF__RE_MARK},
             {"Lu", KVF__RE_UPPER},    {"Ll", KVF__RE_LOWER}, {"Nd", KVF__RE_DIGIT},
             {"Lm", KVF__RE_MODIFIER}, {"Lo", KVF__RE_OTHER}};

/* Translates \p{Name}, \P{Name}, \p{^Name}; one-letter \pL is not Ruby syntax. */
static kvf_status translate_property(translation *t)
{
    const char *name = t->s + t->at + 3;
    const char *end = t->at + 3 < t->n ? memchr(name, '}', t->n - t->at - 3) : NULL;
    bool negated = t->s[t->at + 1] == 'P';

    if (!end || t->s[t->at + 2] != '{') return refuse(t, "\\p without {name}");
    size_t n = (size_t)(end - name);
    t->at += n + 4;
    if (n > 0 && name[0] == '^') {
        negated = !negated;
        name++;
        n--;
    }
    for (size_t i = 0; i < sizeof GROWN / sizeof *GROWN; i++)
        if (n == strlen(GROWN[i].name) && !strncasecmp(name, GROWN[i].name, n))
            return put_set(t, GROWN[i].members, negated);
    return kvf__buf_printf(t->ctx, &t->out, "\\%c{%.*s}", negated ? 'P' : 'p', (int)n, name);
}

/* \uHHHH becomes \x{HHHH}. */
static kvf_status translate_u(translation *t)
{
    if (t->n - t->at < 6 || strspn(t->s + t->at + 2, "0123456789abcdefABCDEF") < 4)
        return refuse(t, "\\u without four hex digits");
    KVF_TRY(kvf__buf_printf(t->ctx, &t->out, "\\x{%.4s}", t->s + t->at + 2));
    t->at += 6;
    return KVF_OK;
}

static kvf_status translate_escape(translation *t)
{
    char c = t->at + 1 < t->n ? t->s[t->at + 1] : '\0';
    char name[] = {'\\', c, '\0'};

    if (c == 'p' || c == 'P') return translate_property(t);
    if (c == 'u') return translate_u(t);
    if (c == '\0') return refuse(t, "a lone \\");
    if (strchr("hHRXyYKkgGQEONBb", c)) return refuse(t, name);
    t->at += 2;
    switch (c) {
    case 's':
        return put(t, "\\p{White_Space}");
    case 'S':
        return put(t, "\\P{White_Space}");
    case 'd':
    case 'D':
        return put_set(t, KVF__RE_DIGIT, c == 'D');
    case 'w':
    case 'W':
        return put_set(t, KVF__RE_WORD, c == 'W');
    default:
        return put(t, name);
    }
}

static bool looking_at(const translation *t, const char *text)
{
    size_t n = strlen(text);
    return t->n - t->at >= n && memcmp(t->s + t->at, text, n) == 0;
}

/* (?m...) is dot-all in Ruby. Flags end at ':' or ')'. */
static bool sets_m_flag(const translation *t)
{
    size_t i = t->at + 2;

    if (!looking_at(t, "(?")) return false;
    while (i < t->n && (t->s[i] == 'i' || t->s[i] == 'x' || t->s[i] == '-'))
        i++;
    return i < t->n && t->s[i] == 'm';
}

/* Detects {n,m}+, which repeats the repetition in Ruby and is possessive in PCRE2. */
static bool counted_twice(const translation *t)
{
    size_t i = t->at + 1;

    if (t->s[t->at] != '{') return false;
    i += strspn(t->s + i, "0123456789,");
    return i + 1 < t->n && t->s[i] == '}' && t->s[i + 1] == '+';
}

static kvf_status translate_one(translation *t)
{
    char c = t->s[t->at];

    if (c == '\\') return translate_escape(t);
    if (c == '\0') return refuse(t, "a NUL");
    if (t->in_class) {
        if (c == '[' && !looking_at(t, "[:")) return refuse(t, "a class inside a class");
        if (looking_at(t, "&&")) return refuse(t, "&& inside a class");
        if (looking_at(t, "[:")) return refuse(t, "a POSIX class");
        if (c == ']') t->in_class = false;
    } else {
        if (sets_m_flag(t)) return refuse(t, "(?m)");
        if (counted_twice(t)) return refuse(t, "{n,m}+");
        if (looking_at(t, "{,")) {
            t->at += 2;
            return put(t, "{0,");
        }
        if (c == '[') {
            t->in_class = true;
            if (looking_at(t, "[^")) {
                t->at += 2;
                return put(t, "[^");
            }
        }
    }
    t->at++;
    return kvf__buf_addc(t->ctx, &t->out, c);
}

/* ---- compiling ------------------------------------------------------------------------------- */

static kvf_status compile(kvf_ctx *ctx, const char *where, const kvf__buf *source, kvf__pattern *p)
{
    pcre2_compile_context *how = pcre2_compile_context_create(NULL);
    int error = 0;
    PCRE2_SIZE offset = 0;

    p->limits = pcre2_match_context_create(NULL);
    if (how && p->limits) {
        pcre2_set_newline(how, PCRE2_NEWLINE_LF);
        pcre2_set_match_limit(p->limits, MATCH_LIMIT);
        p->code = pcre2_compile((PCRE2_SPTR)source->data, source->n,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, how);
    }
    pcre2_compile_context_free(how);
    if (!p->code && error && error != PCRE2_ERROR_HEAP_FAILED) {
        PCRE2_UCHAR text[120];
        pcre2_get_error_message(error, text, sizeof text);
        return kvf__fail(ctx, KVF_EFORMAT, "%s: regex: %s", where, (const char *)text);
    }
    if (!p->code) return kvf__fail(ctx, KVF_ENOMEM, "%s: out of memory for a regex", where);
    /* without JIT the pattern is interpreted */
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    return KVF_OK;
}

kvf_status kvf__pattern_regex(kvf_ctx *ctx, const char *where, const char *source, size_t n,
                              kvf__pattern **out)
{
    translation t = {.ctx = ctx, .where = where, .s = source, .n = n};
    kvf__pattern *p = NULL;
    kvf_status st = kvf__buf_add(ctx, &t.out, "", 0);

    while (!st && t.at < t.n)
        st = translate_one(&t);
    if (!st) st = kvf__alloc(ctx, sizeof *p, &p);
    if (!st) st = compile(ctx, where, &t.out, p);
    if (!st) st = kvf__strndup(ctx, t.out.data, t.out.n, &p->source);
    kvf__buf_done(&t.out);
    KVF__GIVE(st, out, p, kvf__pattern_free(p));
    return st;
}

kvf_status kvf__pattern_literal(kvf_ctx *ctx, const char *text, size_t n, kvf__pattern **out)
{
    kvf__pattern *p = NULL;

    KVF_TRY(kvf__alloc(ctx, sizeof *p, &p));
    kvf_status st = kvf__strndup(ctx, text, n, &p->literal);
    if (st) {
        kvf__free(p);
        return st;
    }
    p->n = n;
    *out = p;
    return KVF_OK;
}

bool kvf__pattern_may_be_empty(const kvf__pattern *pattern)
{
    uint32_t empty = 0;
    if (pattern->code) pcre2_pattern_info(pattern->code, PCRE2_INFO_MATCHEMPTY, &empty);
    return empty != 0;
}

const char *kvf__pattern_source(const kvf__pattern *pattern)
{
    return pattern->literal ? pattern->literal : pattern->source;
}

void kvf__pattern_free(kvf__pattern *pattern)
{
    if (!pattern) return;
    pcre2_code_free(pattern->code);
    pcre2_match_context_free(pattern->limits);
    kvf__free(pattern->literal);
    kvf__free(pattern->source);
    kvf__free(pattern);
}

void kvf__match_free(void *match)
{
    pcre2_match_data_free(match);
}

/* ---- searching ------------------------------------------------------------------------------- */

bool kvf__pattern_is_character(const kvf__pattern *pattern)
{
    return pattern->literal && pattern->n && kvf__utf8_len(pattern->literal[0]) == pattern->n;
}

/* An empty literal never matches. */
static bool find_literal(const kvf__pattern *p, kvf__search *search)
{
    const char *hit = NULL;

    if (p->n > 0 && search->n - search->at >= p->n)
        hit = memmem(search->s + search->at, search->n - search->at, p->literal, p->n);
    if (!hit) return false;
    search->start = (size_t)(hit - search->s);
    search->end = search->start + p->n;
    search->at = search->end;
    return true;
}

static kvf_status find_regex(kvf__work *work, const kvf__pattern *p, kvf__search *search,
                             bool *found)
{
    *found = false;
    if (!work->match) work->match = pcre2_match_data_create(1, NULL);
    if (!work->match) return kvf__fail(work->ctx, KVF_ENOMEM, "out of memory for a regex match");
    int got = pcre2_match(p->code, (PCRE2_SPTR)search->s, search->n, search->at, PCRE2_NO_UTF_CHECK,
                          work->match, p->limits);
    if (got == PCRE2_ERROR_NOMATCH) return KVF_OK;
    if (got < 0) {
        PCRE2_UCHAR text[120];
        pcre2_get_error_message(got, text, sizeof text);
        return kvf__fail(work->ctx, got == PCRE2_ERROR_NOMEMORY ? KVF_ENOMEM : KVF_EDATA,
                         "tokenizer: a regex failed at byte %zu of the text: %s", search->at,
                         (const char *)text);
    }
    PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(work->match);
    search->start = bounds[0]; /* inside the text, because \K is refused */
    search->end = bounds[1];
    *found = true;
    return KVF_OK;
}

/* Accepts an empty match unless it touches the previous match; the search then advances by one
 * character (as Oniguruma's find_iter in Rust). */
kvf_status kvf__pattern_next(kvf__work *work, const kvf__pattern *pattern, kvf__search *search,
                             bool *found)
{
    if (pattern->literal) {
        *found = find_literal(pattern, search);
        return KVF_OK;
    }
    for (;;) {
        if (search->at > search->n) {
            *found = false;
            return KVF_OK;
        }
        KVF_TRY(find_regex(work, pattern, search, found));
        if (!*found) return KVF_OK;
        if (search->start != search->end || !search->any || search->last_end != search->end) break;
        search->at += search->at < search->n ? kvf__utf8_len(search->s[search->at]) : 1;
    }
    search->at = search->last_end = search->end;
    search->any = true;
    return KVF_OK;
}

kvf_status kvf__pattern_matches(kvf_ctx *ctx, const kvf__pattern *pattern, const char *text,
                                bool *out)
{
    kvf__search search = {.s = text, .n = strlen(text)};
    kvf__work work = {.ctx = ctx};

    kvf_status st = kvf__pattern_next(&work, pattern, &search, out);
    kvf__match_free(work.match);
    return st;
}
