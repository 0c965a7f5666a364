/* Reading JSON: jansson, with the limits and error lines of this project. A kvf_json is a json_t.
 *
 * jansson itself refuses duplicate keys, bad UTF-8, NaN and trailing bytes. One pass over the text
 * before it does two more things. It limits nesting to 128 (jansson's own limit is a build setting,
 * 2048 by default). And it turns whole numbers outside int64, which jansson refuses, into reals.
 * Most tokenizers saved by transformers have such a number: "model_max_length":
 * 1000000000000000019884624838656. */
#include "infile.h"
#include "json_int.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 128, MAX_FILE_BYTES = 1 << 30, INT64_CHARS = 20 };

/* Bytes that jansson allocates for an element, a member, a string, an array and an object. A text
 * of empty ones alone takes up to eighty times its size. So memory is limited to GROWTH times the
 * text plus SLACK. */
enum { ELEMENT = 48, MEMBER = 40, STRING = 40, ARRAY = 136, OBJECT = 240 };
enum { GROWTH = 14, SLACK = 64 << 20 };

/* State of the pass: the position, and the text with big integers rewritten (empty: none found). */
typedef struct scan {
    const char *text;
    size_t n, at, copied;
    int line, depth;
    size_t memory; /* estimated memory of the values so far */
    kvf__buf rewritten;
} scan;

/* Reports "config.json:3: ...", or "data.jsonl:19: ..." for line 3 of a value that begins at
 * "data.jsonl:17". */
static kvf_status fail_at(kvf_ctx *ctx, const char *where, int line, const char *what)
{
    const char *colon = strrchr(where, ':');
    const bool numbered = colon && colon[1] && !colon[1 + strspn(colon + 1, "0123456789")];
    const int path = numbered ? (int)(colon - where) : (int)strlen(where);
    const long long first = numbered ? atoll(colon + 1) : 1;
    return kvf__fail(ctx, KVF_EFORMAT, "%.*s:%lld: %s", path, where,
                     first + (line > 1 ? line - 1 : 0), what);
}

/* Moves past the closing quote. jansson reports a missing one. */
static void skip_string(scan *s)
{
    for (s->at++; s->at < s->n && s->text[s->at] != '"'; s->at++)
        if (s->text[s->at] == '\\') s->at++;
    s->at = s->at < s->n ? s->at + 1 : s->n;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool in_number(char c)
{
    return is_digit(c) || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* Returns whether the token is [-]digits outside int64. */
static bool is_big_integer(const char *token, size_t n)
{
    char copy[INT64_CHARS + 1] = "";

    for (size_t i = token[0] == '-'; i < n; i++)
        if (!is_digit(token[i])) return false;
    if (n > INT64_CHARS) return true;
    memcpy(copy, token, n);
    errno = 0;
    strtoll(copy, NULL, 10);
    return errno == ERANGE;
}

/* Turns "123...0" into "123...0e0", which the grammar calls a real. */
static kvf_status pass_number(kvf_ctx *ctx, scan *s)
{
    size_t start = s->at;

    while (s->at < s->n && in_number(s->text[s->at]))
        s->at++;
    if (!is_big_integer(s->text + start, s->at - start)) return KVF_OK;
    KVF_TRY(kvf__buf_add(ctx, &s->rewritten, s->text + s->copied, s->at - s->copied));
    s->copied = s->at;
    return kvf__buf_add(ctx, &s->rewritten, "e0", 2);
}

static size_t memory_of(char c)
{
    switch (c) {
    case ',':
        return ELEMENT;
    case ':':
        return MEMBER;
    case '[':
        return ARRAY;
    case '{':
        return OBJECT;
    default:
        return 0;
    }
}

static kvf_status scan_text(kvf_ctx *ctx, const char *where, scan *s)
{
    while (s->at < s->n) {
        char c = s->text[s->at];
        if (c == '"') {
            s->memory += STRING;
            skip_string(s);
            continue;
        }
        if (c == '-' || is_digit(c)) {
            KVF_TRY(pass_number(ctx, s));
            continue;
        }
        if (c == '\n') s->line++;
        s->memory += memory_of(c);
        if (c == ']' || c == '}') s->depth--;
        if ((c == '[' || c == '{') && ++s->depth > MAX_DEPTH)
            return fail_at(ctx, where, s->line, "nested deeper than 128 levels");
        s->at++;
    }
    if (s->memory > s->n * GROWTH + SLACK)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: its lists and objects would take %zu MiB, more than %d times its "
                         "%zu bytes",
                         where, s->memory >> 20, GROWTH, s->n);
    if (s->copied == 0) return KVF_OK;
    return kvf__buf_add(ctx, &s->rewritten, s->text + s->copied, s->n - s->copied);
}

static kvf_status decode(kvf_ctx *ctx, const char *where, const char *text, size_t n, json_t **out)
{
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL,
                              &error);

    if (root) {
        *out = root;
        return KVF_OK;
    }
    if (error.text[0] == '\0' || json_error_code(&error) == json_error_out_of_memory)
        return kvf__fail(ctx, KVF_ENOMEM, "%s: out of memory while reading JSON", where);
    return fail_at(ctx, where, error.line, error.text);
}

kvf_status kvf_json_parse(kvf_ctx *ctx, const char *where, const char *text, size_t bytes,
                          kvf_json **out)
{
    KVF_TRY(KVF__NEED(ctx, where, out));
    if (bytes) KVF_TRY(KVF__NEED(ctx, text));
    scan s = {.text = text, .n = bytes, .line = 1};
    json_t *root = NULL;

    if (bytes == 0) return fail_at(ctx, where, 1, "empty, want a JSON value");
    kvf_status st = scan_text(ctx, where, &s);
    if (!st && s.rewritten.n)
        st = decode(ctx, where, s.rewritten.data, s.rewritten.n, &root);
    else if (!st)
        st = decode(ctx, where, text, bytes, &root);
    if (!st) *out = (kvf_json *)root;
    kvf__buf_done(&s.rewritten);
    return st;
}

kvf_status kvf_json_load(kvf_ctx *ctx, const char *path, kvf_json **out)
{
    KVF_TRY(KVF__NEED(ctx, path, out));
    kvf__buf text = {0};

    KVF_TRY(kvf__read_file(ctx, path, MAX_FILE_BYTES, &text));
    kvf_status st = kvf__check_stand_in(ctx, path, text.data, text.n, true);
    if (!st) st = kvf_json_parse(ctx, path, text.data, text.n, out);
    kvf__buf_done(&text);
    return st;
}

kvf_status kvf__json_load_in(kvf_ctx *ctx, const char *dir, const char *name, kvf_json **out)
{
    char *path = NULL;

    KVF_TRY(kvf__path_find(ctx, dir, name, &path));
    kvf_status st = path ? kvf_json_load(ctx, path, out) : KVF_OK;
    kvf__free(path);
    return st;
}

void kvf_json_free(kvf_json *root)
{
    json_decref((json_t *)root);
}

kvf_json_type kvf_json_typeof(const kvf_json *value)
{
    static const kvf_json_type TYPES[] = {
        [JSON_NULL] = KVF_JSON_NULL,   [JSON_TRUE] = KVF_JSON_BOOL,
        [JSON_FALSE] = KVF_JSON_BOOL,  [JSON_INTEGER] = KVF_JSON_INT,
        [JSON_REAL] = KVF_JSON_REAL,   [JSON_STRING] = KVF_JSON_STRING,
        [JSON_ARRAY] = KVF_JSON_ARRAY, [JSON_OBJECT] = KVF_JSON_OBJECT,
    };
    const json_t *json = kvf__json_inner(value);

    if (!json || kvf__json_is_failed(json)) return KVF_JSON_NONE;
    return TYPES[json_typeof(json)];
}

kvf_json *kvf_json_get(const kvf_json *object, const char *key)
{
    return (kvf_json *)json_object_get(kvf__json_inner(object), key);
}

size_t kvf_json_size(const kvf_json *container)
{
    const json_t *json = kvf__json_inner(container);
    return json_is_array(json) ? json_array_size(json) : json_object_size(json);
}

kvf_json *kvf_json_at(const kvf_json *array, size_t index)
{
    return (kvf_json *)json_array_get(kvf__json_inner(array), index);
}

int64_t kvf_json_int(const kvf_json *value, int64_t otherwise)
{
    const json_t *json = kvf__json_inner(value);
    return json_is_integer(json) ? (int64_t)json_integer_value(json) : otherwise;
}

double kvf_json_real(const kvf_json *value, double otherwise)
{
    const json_t *json = kvf__json_inner(value);
    return json_is_number(json) ? json_number_value(json) : otherwise;
}

bool kvf_json_bool(const kvf_json *value, bool otherwise)
{
    const json_t *json = kvf__json_inner(value);
    return json_is_boolean(json) ? json_is_true(json) : otherwise;
}

const char *kvf_json_str(const kvf_json *value, size_t *bytes)
{
    const json_t *json = kvf__json_inner(value);
    if (bytes) *bytes = json_string_length(json);
    return json_string_value(json);
}

void *kvf_json_iter(kvf_json *object)
{
    return json_object_iter((json_t *)object);
}

void *kvf_json_next(kvf_json *object, void *iter)
{
    return json_object_iter_next((json_t *)object, iter);
}

const char *kvf_json_iter_key(void *iter)
{
    return json_object_iter_key(iter);
}

kvf_json *kvf_json_iter_value(void *iter)
{
    return (kvf_json *)json_object_iter_value(iter);
}

const char *kvf__text_at(const kvf_json *object, const char *key)
{
    const char *text = kvf_json_str(kvf_json_get(object, key), NULL);
    return text ? text : "";
}

long long kvf__int_at(const kvf_json *object, const char *key)
{
    return (long long)kvf_json_int(kvf_json_get(object, key), 0);
}

double kvf__real_at(const kvf_json *object, const char *key)
{
    return kvf_json_real(kvf_json_get(object, key), NAN);
}
