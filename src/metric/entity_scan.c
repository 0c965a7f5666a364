/* Entities in rows of tags, by the two rules of seqeval 1.2.
 *
 * The mixed rule is that of the conlleval script: it reads all schemes at once and accepts any tag,
 * with one state through the whole file. The strict rule has three lists of patterns per scheme,
 * over the previous and the current tag: for the start, the continuation and the end of an entity.
 * An entity counts only if it also ends as the scheme requires. The rules extract the type from a
 * tag differently, which matters for unusual tags only. */
#include "entity_scan.h"
#include "utf8.h"

#include <string.h>

/* ---- names of types -------------------------------------------------------------------------- */

typedef struct name {
    const char *text;
    size_t n;
} name;

static bool same_name(name a, name b)
{
    return a.n == b.n && !memcmp(a.text, b.text, a.n);
}

static name or_unnamed(name type)
{
    return type.n ? type : (name){"_", 1};
}

static kvf_status add(kvf_ctx *ctx, kvf__entity_list *list, name type, int64_t first, int64_t last)
{
    kvf__entity_scores *scores = list->scores;
    int64_t at = -1;

    if (!kvf__map_get(list->names, type.text, type.n, &at)) {
        size_t bytes = scores->n_types * sizeof *scores->types;
        at = (int64_t)scores->n_types;
        KVF_TRY(kvf__map_put(ctx, list->names, type.text, type.n, at));
        KVF_TRY(kvf__grow(ctx, &scores->types, bytes, bytes + sizeof *scores->types));
        memset(&scores->types[at], 0, sizeof *scores->types);
        KVF_TRY(kvf__strndup(ctx, type.text, type.n, &scores->types[at].name));
        scores->n_types++;
    }
    list->data[list->n++] = (kvf__entity){first, last, (int32_t)at};
    return KVF_OK;
}

/* ---- the mixed rule -------------------------------------------------------------------------- */

/* Returns the type: the text after the prefix letter and the first dash, if any. */
static name mixed_type(const char *tag)
{
    const char *rest = tag + 1, *dash;
    while (kvf__utf8_continues(*rest)) /* the prefix is a character, not a byte */
        rest++;
    dash = strchr(rest, '-');
    if (dash) rest = dash + 1;
    return or_unnamed((name){rest, strlen(rest)});
}

static bool is_outside(char prefix)
{
    return prefix == 'O' || prefix == '.';
}

static bool mixed_ends(char before, char now, bool same_type)
{
    if (before == 'E' || before == 'S') return true;
    if ((before == 'B' || before == 'I') && (now == 'B' || now == 'S' || now == 'O')) return true;
    return !is_outside(before) && !same_type;
}

static bool mixed_starts(char before, char now, bool same_type)
{
    if (now == 'B' || now == 'S') return true;
    if ((before == 'E' || before == 'S' || before == 'O') && (now == 'E' || now == 'I'))
        return true;
    return !is_outside(now) && !same_type;
}

/* Returns true if an entity ended before this tag. */
static bool mixed_step(kvf__tag_scan *s, const char *tag, int64_t at, kvf__tag_span *ended)
{
    const name type = mixed_type(tag), before = {s->type, s->type_bytes};
    const bool same = same_name(type, before), ends = mixed_ends(s->prefix, *tag, same);

    if (ends) *ended = (kvf__tag_span){s->type, s->type_bytes, s->first, at - 1};
    if (mixed_starts(s->prefix, *tag, same)) s->first = at;
    s->prefix = *tag;
    s->type = type.text;
    s->type_bytes = type.n;
    return ends;
}

static const kvf__tag_scan START = {.prefix = 'O', .type = ""};

/* Treats sentence boundaries as "O". Words are numbered from 0 over all sentences. */
static kvf_status mixed_scan(kvf_ctx *ctx, kvf__entity_list *list, const kvf__tag_rows *rows,
                             const char *const *tags)
{
    kvf__tag_scan s = START;
    kvf__tag_span e;

    for (int64_t i = 0; i < rows->n; i++)
        for (int64_t w = rows->start[i]; w <= rows->start[i + 1]; w++)
            if (mixed_step(&s, w < rows->start[i + 1] ? tags[w] : "O", w, &e))
                KVF_TRY(add(ctx, list, (name){e.type, e.type_bytes}, e.first, e.last));
    return KVF_OK;
}

bool kvf__tag_span_next(kvf__tag_scan *scan, const char *const *tags, int64_t n, kvf__tag_span *out)
{
    if (!scan->prefix) *scan = START;
    while (scan->at <= n) {
        const int64_t at = scan->at++;
        if (mixed_step(scan, at < n && tags[at] ? tags[at] : "O", at, out)) return true;
    }
    return false;
}

/* ---- the strict rule ------------------------------------------------------------------------- */

enum { I = 1, O = 2, B = 4, E = 8, S = 16, U = 32, L = 64, ANY = 127 };

static unsigned prefix_bit(char c)
{
    static const char LETTERS[] = "IOBESUL";
    const char *at = c ? strchr(LETTERS, c) : NULL;
    return at ? 1u << (at - LETTERS) : 0;
}

bool kvf__tag_has_scheme(const char *tag)
{
    return prefix_bit(*tag) && (!tag[1] || tag[1] == '-');
}

typedef enum type_rule { ANY_TYPE, SAME, DIFFERENT } type_rule;

/* Previous and current prefix; a row of zeros ends a list. */
typedef struct pattern {
    unsigned before, now;
    type_rule type;
} pattern;

typedef struct tag_rules {
    unsigned allowed;
    pattern starts[7], inside[3], ends[7];
} tag_rules;

static const tag_rules SCHEMES[] = {
    [KVF__TAGS_IOB1] = {I | O | B,
                        {{O | B, I, ANY_TYPE}, {I, I, DIFFERENT}, {I | B, B, SAME}},
                        {{B | I, I, SAME}},
                        {{I, I, DIFFERENT},
                         {I, O | B, ANY_TYPE},
                         {B, O, ANY_TYPE},
                         {B, I, DIFFERENT},
                         {B, B, SAME}}},
    [KVF__TAGS_IOB2] = {I | O | B,
                        {{ANY, B, ANY_TYPE}},
                        {{B | I, I, SAME}},
                        {{I | B, O | B, ANY_TYPE}, {I | B, I, DIFFERENT}}},
    [KVF__TAGS_IOE1] = {I | O | E,
                        {{O | E, I, ANY_TYPE}, {I, I, DIFFERENT}, {E, E, SAME}},
                        {{I, I | E, SAME}},
                        {{I, I | E, DIFFERENT}, {I, O, ANY_TYPE}, {E, I | E, SAME}}},
    [KVF__TAGS_IOE2] = {I | O | E,
                        {{O | E, I | E, ANY_TYPE}, {I, I | E, DIFFERENT}},
                        {{I, I | E, SAME}},
                        {{E, ANY, ANY_TYPE}}},
    [KVF__TAGS_IOBES] = {I | O | B | E | S,
                         {{ANY, B | S, ANY_TYPE}},
                         {{B | I, I | E, SAME}},
                         {{S | E, ANY, ANY_TYPE}}},
    [KVF__TAGS_BILOU] = {B | I | L | O | U,
                         {{ANY, B | U, ANY_TYPE}},
                         {{B | I, I | L, SAME}},
                         {{U | L, ANY, ANY_TYPE}}},
};

typedef struct token {
    unsigned prefix;
    name type;
} token;

static const token OUTSIDE = {O, {"_", 1}};

/* Returns the part of the tag between dashes after the prefix letter. */
static token strict_token(const char *tag)
{
    name type = {tag + 1, strlen(tag + 1)};
    for (; type.n && *type.text == '-'; type.n--)
        type.text++;
    while (type.n && type.text[type.n - 1] == '-')
        type.n--;
    return (token){prefix_bit(*tag), or_unnamed(type)};
}

static bool matches(const pattern *list, token before, token now)
{
    for (; list->before; list++) {
        if (!(list->before & before.prefix) || !(list->now & now.prefix)) continue;
        if (list->type == ANY_TYPE) return true;
        if ((list->type == SAME) == same_name(before.type, now.type)) return true;
    }
    return false;
}

/* Returns tag w of sentence first..end-1, with "O" on both sides. */
static token token_at(const char *const *tags, int64_t first, int64_t end, int64_t w)
{
    return w < first || w >= end ? OUTSIDE : strict_token(tags[w]);
}

static kvf_status strict_sentence(kvf_ctx *ctx, kvf__entity_list *list, const tag_rules *rules,
                                  const char *const *tags, int64_t first, int64_t end)
{
    for (int64_t w = first, next; w < end; w = next) {
        token now = token_at(tags, first, end, w), after;
        name type = now.type;
        next = w + 1;
        if (!matches(rules->starts, token_at(tags, first, end, w - 1), now)) continue;
        while (matches(rules->inside, now, after = token_at(tags, first, end, next))) {
            now = after;
            next++;
        }
        if (matches(rules->ends, now, after)) KVF_TRY(add(ctx, list, type, w, next - 1));
    }
    return KVF_OK;
}

static kvf_status strict_scan(kvf_ctx *ctx, kvf__entity_list *list, const kvf__tag_rows *rows,
                              const char *const *tags, const tag_rules *rules)
{
    for (int64_t i = 0; i < rows->n; i++) {
        int64_t first = rows->start[i], end = rows->start[i + 1];
        for (int64_t w = first; w < end; w++)
            if (!(prefix_bit(*tags[w]) & rules->allowed))
                return kvf__fail(ctx, KVF_EDATA, "sentence %lld: the scheme has no tag \"%s\"",
                                 (long long)i, tags[w]);
        KVF_TRY(strict_sentence(ctx, list, rules, tags, first, end));
    }
    return KVF_OK;
}

/* ---- both ------------------------------------------------------------------------------------ */

kvf_status kvf__entity_scan(kvf_ctx *ctx, kvf__entity_list *list, const kvf__tag_rows *rows,
                            const char *const *tags, kvf__tag_scheme scheme)
{
    if (scheme == KVF__TAGS_MIXED) return mixed_scan(ctx, list, rows, tags);
    return strict_scan(ctx, list, rows, tags, &SCHEMES[scheme]);
}

/* Sets of prefixes in seqeval's order: sets that contain `needs` and nothing beyond `may`. */
static const struct scheme_guess {
    unsigned needs, may;
    kvf__tag_scheme scheme;
} GUESSES[] = {
    {B, I | O | B, KVF__TAGS_IOB2},
    {E, I | O | E, KVF__TAGS_IOE2},
    {B | E, I | O | B | E | S, KVF__TAGS_IOBES},
    {S, S, KVF__TAGS_IOBES},
    {B | L, I | O | B | L | U, KVF__TAGS_BILOU},
    {U, U, KVF__TAGS_BILOU},
};

kvf__tag_scheme kvf__tag_scheme_guess(const kvf__tag_rows *rows)
{
    unsigned seen = 0;

    for (int64_t w = rows->start[0]; w < rows->start[rows->n]; w++) {
        unsigned bit = prefix_bit(*rows->gold[w]);
        if (!bit) return KVF__TAGS_MIXED;
        seen |= bit;
    }
    for (size_t i = 0; i < sizeof GUESSES / sizeof *GUESSES; i++)
        if ((seen & GUESSES[i].needs) == GUESSES[i].needs && !(seen & ~GUESSES[i].may))
            return GUESSES[i].scheme;
    return KVF__TAGS_MIXED;
}
