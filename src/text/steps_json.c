/* Pipeline steps in tokenizer.json.
 *
 * Each of the four parts is one object or a "Sequence" of them. An unsupported type is refused by
 * name, because an approximate tokenizer would silently give wrong ids. */
#include "tok_files.h"

#include <string.h>

/* Source of a step, and its target list. */
typedef struct step_reading {
    kvf_ctx *ctx;
    const char *where, *part; /* part: "normalizer" ... */
    kvf__tok_steps *out;
} step_reading;

/* ---- fields ---------------------------------------------------------------------------------- */

/* Reads a required string into step->text. */
static kvf_status need_text(const step_reading *r, const kvf_json *json, const char *key,
                            kvf__tok_step *step)
{
    const char *text;

    KVF_TRY(kvf__want_str(r->ctx, r->where, json, key, &text, &step->text_n));
    if (!text)
        return kvf__fail(r->ctx, KVF_EFORMAT, "%s: %s has no \"%s\"", r->where, r->part, key);
    return kvf__strndup(r->ctx, text, step->text_n, &step->text);
}

/* Reads {"String": "x"}, {"Regex": "x"}, or a plain string, as in older files. */
static kvf_status need_pattern(const step_reading *r, const kvf_json *json, kvf__tok_step *step)
{
    const kvf_json *value = kvf_json_get(json, "pattern");
    size_t n = 0;
    const char *text = kvf_json_str(value, &n);

    if (!text) text = kvf_json_str(kvf_json_get(value, "String"), &n);
    if (text && n == 0)
        return kvf__pattern_regex(r->ctx, r->where, "", 0, &step->pattern); /* matches everywhere */
    if (text) return kvf__pattern_literal(r->ctx, text, n, &step->pattern);
    text = kvf_json_str(kvf_json_get(value, "Regex"), &n);
    if (text) return kvf__pattern_regex(r->ctx, r->where, text, n, &step->pattern);
    return kvf__fail(r->ctx, KVF_EFORMAT, "%s: %s: pattern is neither String nor Regex", r->where,
                     r->part);
}

/* Reads a name and finds its index among n known ones; *index is unchanged if the field is
 * absent. */
static kvf_status read_name(const step_reading *r, const kvf_json *json, const char *key,
                            const char *const *names, size_t n, int *index)
{
    const char *name;

    KVF_TRY(kvf__want_str(r->ctx, r->where, json, key, &name, NULL));
    for (size_t i = 0; name && i < n; i++)
        if (strcmp(name, names[i]) == 0) *index = (int)i;
    if (!name || strcmp(name, names[*index]) == 0) return KVF_OK;
    return kvf__fail(r->ctx, KVF_EUNSUPPORTED, "%s: %s: %s \"%s\"", r->where, r->part, key, name);
}

static kvf_status read_behavior(const step_reading *r, const kvf_json *json, kvf__tok_step *step)
{
    static const char *const names[] = {[KVF__ISOLATED] = "Isolated",
                                        [KVF__REMOVED] = "Removed",
                                        [KVF__MERGED_PREVIOUS] = "MergedWithPrevious",
                                        [KVF__MERGED_NEXT] = "MergedWithNext",
                                        [KVF__CONTIGUOUS] = "Contiguous"};
    int behavior = (int)step->behavior;

    KVF_TRY(read_name(r, json, "behavior", names, sizeof names / sizeof *names, &behavior));
    step->behavior = (kvf__behavior)behavior;
    return KVF_OK;
}

/* ---- one type each --------------------------------------------------------------------------- */

static kvf_status read_strip_decoder(const step_reading *r, const kvf_json *json,
                                     kvf__tok_step *step)
{
    step->start = kvf_json_int(kvf_json_get(json, "start"), -1);
    step->stop = kvf_json_int(kvf_json_get(json, "stop"), -1);
    if (step->start < 0 || step->stop < 0)
        return kvf__fail(r->ctx, KVF_EFORMAT, "%s: %s: Strip needs start and stop of 0 or more",
                         r->where, r->part);
    return KVF_OK;
}

static kvf_status read_byte_level(const step_reading *r, const kvf_json *json, kvf__tok_step *step)
{
    const char *regex = kvf__split_regex("gpt-2");
    bool use_regex;

    KVF_TRY(kvf__want_bool(r->ctx, r->where, json, "add_prefix_space", true, &step->prefix_space));
    KVF_TRY(kvf__want_bool(r->ctx, r->where, json, "use_regex", true, &use_regex));
    return use_regex ? kvf__pattern_regex(r->ctx, r->where, regex, strlen(regex), &step->pattern)
                     : KVF_OK;
}

static kvf_status read_split(const step_reading *r, const kvf_json *json, kvf__tok_step *step)
{
    KVF_TRY(kvf__want_bool(r->ctx, r->where, json, "invert", false, &step->invert));
    return read_behavior(r, json, step);
}

static kvf_status read_wordpiece(const step_reading *r, const kvf_json *json, kvf__tok_step *step)
{
    return kvf__want_bool(r->ctx, r->where, json, "cleanup", true, &step->cleanup);
}

static kvf_status read_digits(const step_reading *r, const kvf_json *json, kvf__tok_step *step)
{
    bool individual;

    KVF_TRY(kvf__want_bool(r->ctx, r->where, json, "individual_digits", false, &individual));
    step->behavior = individual ? KVF__ISOLATED : KVF__CONTIGUOUS;
    return KVF_OK;
}

/* Older files have add_prefix_space (always or never) instead of prepend_scheme. */
static kvf_status read_metaspace(const step_reading *r, const kvf_json *json, kvf__tok_step *step)
{
    static const char *const schemes[] = {[KVF__PREPEND_ALWAYS] = "always",
                                          [KVF__PREPEND_FIRST] = "first",
                                          [KVF__PREPEND_NEVER] = "never"};
    bool always;

    if (step->text_n == 0 || kvf__utf8_len(step->text[0]) != step->text_n)
        return kvf__fail(r->ctx, KVF_EFORMAT, "%s: %s: replacement is not one character", r->where,
                         r->part);
    KVF_TRY(kvf__want_bool(r->ctx, r->where, json, "add_prefix_space", true, &always));
    int scheme = always ? KVF__PREPEND_ALWAYS : KVF__PREPEND_NEVER;
    KVF_TRY(
        read_name(r, json, "prepend_scheme", schemes, sizeof schemes / sizeof *schemes, &scheme));
    step->scheme = (kvf__scheme)scheme;
    KVF_TRY(kvf__want_bool(r->ctx, r->where, json, "split", true, &step->split));
    step->behavior = KVF__MERGED_NEXT;
    return kvf__pattern_literal(r->ctx, step->text, step->text_n, &step->pattern);
}

static kvf_status read_precompiled(const step_reading *r, const kvf_json *json, kvf__tok_step *step)
{
    const char *base64;
    size_t n;

    KVF_TRY(kvf__want_str(r->ctx, r->where, json, "precompiled_charsmap", &base64, &n));
    if (!base64)
        return kvf__fail(r->ctx, KVF_EFORMAT, "%s: %s has no \"precompiled_charsmap\"", r->where,
                         r->part);
    return kvf__read_charsmap(r->ctx, r->where, base64, n, step);
}

static kvf_status read_trim(const step_reading *r, const kvf_json *json, kvf__tok_step *step)
{
    bool left, right;

    KVF_TRY(kvf__want_bool(r->ctx, r->where, json, "strip_left", true, &left));
    KVF_TRY(kvf__want_bool(r->ctx, r->where, json, "strip_right", true, &right));
    step->start = left;
    step->stop = right;
    return KVF_OK;
}

/* ---- the tables ------------------------------------------------------------------------------ */

typedef struct step_row {
    const char *type;
    kvf__step_kind kind;
    bool pattern;     /* has a "pattern" */
    const char *text; /* field for step->text, required; NULL: none */
    kvf__behavior behavior;
    kvf_status (*read)(const step_reading *r, const kvf_json *json,
                       kvf__tok_step *step); /* reads the other fields */
    kvf_status (*expand)(kvf_ctx *ctx, const char *where, const kvf_json *json,
                         kvf__tok_steps *out); /* alternative: several steps */
} step_row;

static const step_row NORMALIZERS[] = {
    {.type = "NFC", .kind = KVF__STEP_NFC},
    {.type = "NFD", .kind = KVF__STEP_NFD},
    {.type = "NFKC", .kind = KVF__STEP_NFKC},
    {.type = "NFKD", .kind = KVF__STEP_NFKD},
    {.type = "BertNormalizer", .expand = kvf__bert_normalizer},
    {.type = "Lowercase", .kind = KVF__STEP_LOWERCASE},
    {.type = "StripAccents", .kind = KVF__STEP_STRIP_ACCENTS},
    {.type = "Prepend", .kind = KVF__STEP_PREPEND, .text = "prepend"},
    {.type = "Precompiled", .kind = KVF__STEP_CHARSMAP, .read = read_precompiled},
    {.type = "Strip", .kind = KVF__STEP_TRIM, .read = read_trim},
    {.type = "Replace", .kind = KVF__STEP_REPLACE, .pattern = true, .text = "content"},
    {0},
};
static const step_row PRE_TOKENIZERS[] = {
    {.type = "ByteLevel", .kind = KVF__STEP_BYTE_LEVEL, .read = read_byte_level},
    {.type = "Split", .kind = KVF__STEP_SPLIT, .pattern = true, .read = read_split},
    {.type = "Digits", .kind = KVF__STEP_DIGITS, .read = read_digits},
    {.type = "Metaspace",
     .kind = KVF__STEP_METASPACE,
     .text = "replacement",
     .read = read_metaspace},
    {.type = "BertPreTokenizer", .expand = kvf__bert_pre_tokenizer},
    {.type = "Whitespace", .kind = KVF__STEP_WHITESPACE},
    {.type = "WhitespaceSplit", .kind = KVF__STEP_WHITESPACE_SPLIT, .behavior = KVF__REMOVED},
    {.type = "Punctuation", .kind = KVF__STEP_PUNCTUATION, .read = read_behavior},
    {0},
};
static const step_row DECODERS[] = {
    {.type = "ByteLevel", .kind = KVF__STEP_BYTE_LEVEL},
    {.type = "Metaspace",
     .kind = KVF__STEP_METASPACE,
     .text = "replacement",
     .read = read_metaspace},
    {.type = "Replace", .kind = KVF__STEP_REPLACE, .pattern = true, .text = "content"},
    {.type = "ByteFallback", .kind = KVF__STEP_BYTE_FALLBACK},
    {.type = "Fuse", .kind = KVF__STEP_FUSE},
    {.type = "Strip", .kind = KVF__STEP_STRIP, .text = "content", .read = read_strip_decoder},
    {.type = "WordPiece", .kind = KVF__STEP_WORDPIECE, .text = "prefix", .read = read_wordpiece},
    {0},
};

static kvf_status read_fields(const step_reading *r, const step_row *row, const kvf_json *json,
                              kvf__tok_step *step)
{
    if (row->pattern) KVF_TRY(need_pattern(r, json, step));
    if (row->kind == KVF__STEP_REPLACE && kvf__pattern_may_be_empty(step->pattern))
        return kvf__fail(r->ctx, KVF_EUNSUPPORTED,
                         "%s: %s: Replace has a pattern that can match an empty text", r->where,
                         r->part);
    if (row->text) KVF_TRY(need_text(r, json, row->text, step));
    return row->read ? row->read(r, json, step) : KVF_OK;
}

static kvf_status read_step(const step_reading *r, const step_row *row, const kvf_json *json,
                            const char *type)
{
    kvf__tok_step step = {0};

    while (row->type && strcmp(row->type, type) != 0)
        row++;
    if (!row->type)
        return kvf__fail(r->ctx, KVF_EUNSUPPORTED, "%s: %s of type \"%s\" is not supported",
                         r->where, r->part, type);
    if (row->expand) return row->expand(r->ctx, r->where, json, r->out);
    step.kind = row->kind;
    step.behavior = row->behavior;
    kvf_status st = read_fields(r, row, json, &step);
    if (!st) st = kvf__steps_add(r->ctx, r->out, &step);
    kvf__step_done(&step);
    return st;
}

/* Reads a part; list_key names the members of a Sequence, which may be nested. */
static kvf_status read_part(const step_reading *r, const step_row *table, const kvf_json *json,
                            const char *list_key)
{
    const kvf_json *list = kvf_json_get(json, list_key);
    const char *type;

    if (kvf_json_typeof(json) <= KVF_JSON_NULL) return KVF_OK;
    KVF_TRY(kvf__want_str(r->ctx, r->where, json, "type", &type, NULL));
    if (!type) return kvf__fail(r->ctx, KVF_EFORMAT, "%s: %s has no \"type\"", r->where, r->part);
    if (strcmp(type, "Sequence") != 0) return read_step(r, table, json, type);
    if (kvf_json_typeof(list) != KVF_JSON_ARRAY)
        return kvf__fail(r->ctx, KVF_EFORMAT, "%s: field \"%s\" is not a list", r->where, list_key);
    for (size_t i = 0; i < kvf_json_size(list); i++)
        KVF_TRY(read_part(r, table, kvf_json_at(list, i), list_key));
    return KVF_OK;
}

kvf_status kvf__read_steps(kvf_ctx *ctx, const char *where, const kvf_json *root, kvf__tokenizer *t)
{
    const struct {
        const char *part, *list_key;
        const step_row *rows;
        kvf__tok_steps *out;
    } parts[] = {
        {"normalizer", "normalizers", NORMALIZERS, &t->normalizer},
        {"pre_tokenizer", "pretokenizers", PRE_TOKENIZERS, &t->pre},
        {"decoder", "decoders", DECODERS, &t->decoder},
    };

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        step_reading r = {ctx, where, parts[i].part, parts[i].out};
        KVF_TRY(read_part(&r, parts[i].rows, kvf_json_get(root, r.part), parts[i].list_key));
    }
    return KVF_OK;
}
