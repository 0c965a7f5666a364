/* Names of fields: kvfold's own, those of --map, and those of known data sets. SHAPES has a row for
 * every way to name the texts. The texts of a row are found by the first shape whose fields it has.
 * SuperGLUE and GLUE are therefore recognised by their fields, not by a name.
 *
 * Texts of SuperGLUE tasks as in P-tuning v2: WiC "word: sentence", COPA "premise because|so". */
#include "file_rows.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- maps ------------------------------------------------------------------------------------ */

static bool is_ours(const char *name);
static kvf_status not_ours(kvf_ctx *ctx, const char *name, const char *column);

kvf_status kvf__field_map_init(kvf_ctx *ctx, const char *text, kvf__field_map *out)
{
    kvf__field_map map = {0};
    if (text && *text) KVF_TRY(kvf__strdup(ctx, text, &map.text));
    kvf_status st = KVF_OK;
    for (char *at = map.text; !st && at && *at;) {
        char *comma = strchr(at, ','), *equals = strchr(at, '=');
        if (comma) *comma = 0;
        if (!equals || (comma && equals > comma) || equals == at || !equals[1] || map.n == 8) {
            st = kvf__fail(ctx, KVF_EUSAGE, "map \"%s\": want field=column[,field=column...]",
                           text);
            break;
        }
        *equals = 0;
        if (!is_ours(at)) st = not_ours(ctx, at, equals + 1);
        for (size_t i = 0; !st && i < map.n; i++)
            if (!strcmp(map.ours[i], at))
                st = kvf__fail(ctx, KVF_EUSAGE, "map: field %s is given twice: %s and %s", at,
                               map.theirs[i], equals + 1);
        map.ours[map.n] = at;
        map.theirs[map.n++] = equals + 1;
        at = comma ? comma + 1 : NULL;
    }
    if (st) {
        kvf__free(map.text);
        return st;
    }
    *out = map;
    return KVF_OK;
}

void kvf__field_map_done(kvf__field_map *map)
{
    kvf__free(map->text);
    *map = (kvf__field_map){0};
}

/* Returns the value at a path of keys and list indices. A key may contain dots. */
static const kvf_json *at_path(const kvf_json *value, const char *path)
{
    char head[256], *end = NULL;
    const kvf_json *found = kvf_json_get(value, path);
    if (!found && kvf_json_typeof(value) == KVF_JSON_ARRAY) {
        const size_t i = strtoul(path, &end, 10);
        if (end == path) return NULL;
        return *end == '.' ? at_path(kvf_json_at(value, i), end + 1) : kvf_json_at(value, i);
    }
    for (const char *dot = path; value && !found && (dot = strchr(dot, '.')); dot++) {
        snprintf(head, sizeof head, "%.*s", (int)(dot - path), path);
        found = at_path(kvf_json_get(value, head), dot + 1);
    }
    return found;
}

bool kvf__field_mapped(const kvf__field_map *map, size_t i, const char *name)
{
    const size_t n = strlen(name);
    return !strncmp(map->theirs[i], name, n) && strchr(".", map->theirs[i][n]);
}

const kvf_json *kvf__field(const kvf__field_map *map, const kvf_json *row, const char *name)
{
    for (size_t i = 0; map && i < map->n; i++)
        if (!strcmp(map->ours[i], name)) {
            const kvf_json *value = at_path(row, map->theirs[i]);
            if (value || !map->of_run) return value;
        }
    return kvf_json_get(row, name);
}

const kvf_json *kvf__row_field(const kvf__field_map *map, const kvf__file_row *row,
                               const char *name)
{
    const char *dot = strchr(name, '.');
    const kvf_json *value = kvf__field(map, row->fields, name);
    if (!value && row->outer) value = kvf__field(map, row->outer, name);
    if (value || !dot) return value;
    char head[64];
    snprintf(head, sizeof head, "%.*s", (int)(dot - name), name);
    return kvf_json_get(kvf__field(map, row->fields, head), dot + 1);
}

/* Appends to a text of KVF__ROW_HAS_MAX bytes; excess text is cut. */
static void KVF__PRINTF(2, 3) append(char *out, const char *fmt, ...)
{
    const size_t at = strlen(out);
    va_list args;
    va_start(args, fmt);
    vsnprintf(out + at, KVF__ROW_HAS_MAX - at, fmt, args);
    va_end(args);
}

/* Appends a field, or "a.b, a.c" of an object, as --map can name them. */
static void append_field(char *out, const char *comma, const char *key, kvf_json *value)
{
    void *it = kvf_json_iter(value);
    if (strlen(out) > KVF__ROW_HAS_MAX / 2) return;
    if (!it) append(out, "%s%.100s", comma, key);
    for (; it && strlen(out) < KVF__ROW_HAS_MAX / 2; it = kvf_json_next(value, it), comma = ", ")
        append(out, "%s%.100s.%.100s", comma, key, kvf_json_iter_key(it));
}

void kvf__row_has(const kvf__field_map *map, const kvf_json *fields, const kvf_json *outer,
                  char out[KVF__ROW_HAS_MAX])
{
    bool found = true;
    kvf_json *row = (kvf_json *)fields; /* not modified */
    const char *comma = "";
    snprintf(out, KVF__ROW_HAS_MAX, "the row has ");
    for (void *it = kvf_json_iter(row); it; it = kvf_json_next(row, it)) {
        append_field(out, comma, kvf_json_iter_key(it), kvf_json_iter_value(it));
        comma = ", ";
    }
    for (size_t i = 0; map && i < map->n; i++) {
        if (at_path(fields, map->theirs[i]) || at_path(outer, map->theirs[i])) continue;
        append(out, "%s \"%s\", which %s names for %s", found ? "; it has no" : ", no",
               map->theirs[i], map->of_run ? "the run's --map" : "--map", map->ours[i]);
        if (is_ours(map->theirs[i]) && at_path(fields, map->ours[i]))
            append(out, " (did you mean %s=%s?)", map->theirs[i], map->ours[i]);
        found = false;
    }
    if (found) append(out, " (map other names with --map)");
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Names of a data set's texts: {field} is the text of a field, {connective} is COPA's "because" or
 * "so". choices: several fields, or one with a list; NULL: none. A shape fits a row that has all
 * its fields. */
typedef struct text_shape {
    kvf__task task;
    const char *a, *b; /* b NULL: one text */
    const char *choices;
} text_shape;

static const text_shape SHAPES[] = {
    {KVF__TASK_SEQ_CLS, "{text}", "{text_pair}", NULL},
    {KVF__TASK_SEQ_CLS, "{text}", "{target.span2_text} refers to {target.span1_text}",
     NULL}, /* WSC */
    {KVF__TASK_SEQ_CLS, "{text}", NULL, NULL},
    {KVF__TASK_SEQ_CLS, "{word}: {sentence1}", "{word}: {sentence2}", NULL}, /* WiC */
    {KVF__TASK_SEQ_CLS, "{premise}", "{hypothesis}", NULL},                  /* RTE, CB, NLI */
    {KVF__TASK_SEQ_CLS, "{question}", "{passage}", NULL},                    /* BoolQ */
    {KVF__TASK_SEQ_CLS, "{sentence1}", "{sentence2}", NULL},                 /* MRPC, STS-B */
    {KVF__TASK_SEQ_CLS, "{question1}", "{question2}", NULL},                 /* QQP */
    {KVF__TASK_SEQ_CLS, "{question}", "{sentence}", NULL},                   /* QNLI */
    {KVF__TASK_SEQ_CLS, "{sentence}", NULL, NULL},                           /* SST-2, CoLA */
    {KVF__TASK_CHOICE, "{text}", NULL, "{choices}"},
    {KVF__TASK_CHOICE, "{premise} {connective}", NULL, "{choice1}{choice2}"}, /* COPA */
    {KVF__TASK_CHOICE, "{question}", NULL, "{choices}"},
    {KVF__TASK_CHOICE, "{question.stem}", NULL, "{question.choices}"}, /* ARC as released */
    {KVF__TASK_CHOICE, "{question_stem}", NULL, "{choices}"},          /* OpenBookQA */
    {KVF__TASK_CHOICE, "{article} {question}", NULL, "{options}"},     /* RACE */
    {KVF__TASK_CHOICE, "{goal}", NULL, "{sol1}{sol2}"},                /* PIQA */
    {KVF__TASK_CHOICE, "{ctx}", NULL, "{endings}"},                    /* HellaSwag */
    {KVF__TASK_CHOICE, "{ctx_a} {ctx_b}", NULL, "{endings}"},
    {KVF__TASK_CHOICE, "{sent1} {sent2}", NULL, "{ending0}{ending1}{ending2}{ending3}"}, /* SWAG */
};
#define N_SHAPES (sizeof SHAPES / sizeof SHAPES[0])

/* Reads the next {name} of a template from *at on. Returns false at the end. */
static bool next_name(const char **at, char name[64])
{
    const char *open = strchr(*at, '{'), *close = open ? strchr(open, '}') : NULL;
    if (!close) return false;
    snprintf(name, 64, "%.*s", (int)(close - open - 1), open + 1);
    *at = close + 1;
    return true;
}

/* Returns the field that a name in a template means; "connective" is derived from "question". */
static const kvf_json *template_field(const kvf__field_map *map, const kvf__file_row *row,
                                      const char *name)
{
    return kvf__row_field(map, row, strcmp(name, "connective") ? name : "question");
}

/* Returns true if a row has all fields of a template. least: lowest type of the fields; null counts
 * as present only if no other shape fits. */
static bool has_fields(const kvf__field_map *map, const kvf__file_row *row, const char *template,
                       kvf_json_type least)
{
    char name[64];
    while (template && next_name(&template, name))
        if (kvf_json_typeof(template_field(map, row, name)) < least) return false;
    return true;
}

static bool fits(const kvf__field_map *map, const kvf__file_row *row, const text_shape *s,
                 kvf_json_type least)
{
    return has_fields(map, row, s->choices, least) && has_fields(map, row, s->a, least) &&
           has_fields(map, row, s->b, least);
}

static const text_shape *shape_of(const kvf__field_map *map, kvf__task task,
                                  const kvf__file_row *row, kvf_json_type least)
{
    for (const text_shape *s = SHAPES; s < SHAPES + N_SHAPES; s++)
        if (s->task == task && fits(map, row, s, least)) return s;
    return NULL;
}

static bool named_in(const char *template, const char *name, size_t bytes)
{
    char one[64];
    while (template && next_name(&template, one))
        if (strlen(one) == bytes && !strncasecmp(one, name, bytes)) return true;
    return false;
}

/* Fields that a task reads and no shape names; the usual ones come first. */
static const char *const FIELDS[] = {
    "label",      "prompt",         "completion", "references",    "messages", "input_ids",
    "labels",     "attention_mask", "tokens",     "words",         "tags",     "ner_tags",
    "context",    "question",       "answers",    "is_impossible", "id",       "idx",
    "gold_label", "score",          "system",     "history",       "target"};
enum { N_FIELDS = sizeof FIELDS / sizeof FIELDS[0] };

/* Entries of FIELDS that do not mark a header, and header names that --map does not accept. */
static const char *const NO_HEADERS[] = {"attention_mask", "is_impossible", "system", "history",
                                         "target"};
static const char *const HEADERS[] = {"index", "instruction", "input", "output", "conversations"};

static bool is_listed(const char *const *list, size_t n, const char *name, size_t bytes)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(list[i]) == bytes && !strncasecmp(list[i], name, bytes)) return true;
    return false;
}

static bool is_ours(const char *name)
{
    const size_t n = strlen(name);
    char one[64];
    for (size_t i = 0; i < N_FIELDS; i++)
        if (!strcmp(FIELDS[i], name)) return true;
    for (size_t i = 0; i < N_SHAPES; i++) {
        if (named_in(SHAPES[i].a, name, n) || named_in(SHAPES[i].b, name, n)) return true;
        for (const char *at = SHAPES[i].choices; at && next_name(&at, one);)
            if (!strcmp(one, name)) return true;
    }
    return false;
}

static kvf_status not_ours(kvf_ctx *ctx, const char *name, const char *column)
{
    char list[512] = "text, text_pair, choices";
    if (is_ours(column))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "map \"%s=%s\": the field comes first, the column second: write %s=%s",
                         name, column, column, name);
    for (size_t i = 0, at = strlen(list); i < N_FIELDS && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, ", %s", FIELDS[i]);
    return kvf__fail(
        ctx, KVF_EUSAGE,
        "map: \"%s\" is not a field; the fields are %s, and those of GLUE, SuperGLUE and SWAG",
        name, list);
}

bool kvf__field_read(const kvf__field_map *map, const char *name)
{
    for (size_t i = 0; map && i < map->n; i++)
        if (kvf__field_mapped(map, i, name)) return true;
    return is_ours(name) || kvf__field_known(map, name, strlen(name)) || !strcmp(name, "title") ||
           !strcmp(name, "plausible_answers") || !strcmp(name, "answerKey") ||
           !strcmp(name, "answer");
}

bool kvf__field_known(const kvf__field_map *map, const char *name, size_t bytes)
{
    for (size_t i = 0; map && i < map->n; i++)
        if (strlen(map->theirs[i]) == bytes && !memcmp(map->theirs[i], name, bytes)) return true;
    if (is_listed(NO_HEADERS, sizeof NO_HEADERS / sizeof *NO_HEADERS, name, bytes)) return false;
    if (is_listed(FIELDS, N_FIELDS, name, bytes) || is_listed(HEADERS, 5, name, bytes)) return true;
    for (size_t i = 0; i < N_SHAPES; i++)
        if (named_in(SHAPES[i].a, name, bytes) || named_in(SHAPES[i].b, name, bytes)) return true;
    return false;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static kvf_status put_field(kvf_ctx *ctx, const kvf__field_map *map, const kvf__file_row *row,
                            const char *name, kvf__buf *out)
{
    size_t n = 0;
    const char *text = kvf_json_str(template_field(map, row, name), &n);
    if (!text) return kvf__fail(ctx, KVF_EDATA, "%s: \"%s\" is not a string", row->where, name);
    if (!strcmp(name, "connective")) {
        text = strcmp(text, "cause") ? "so" : "because";
        n = strlen(text);
    }
    return kvf__buf_add(ctx, out, text, n);
}

/* Fills a template. `out` always has data afterwards, so an empty text differs from none. */
static kvf_status fill(kvf_ctx *ctx, const kvf__field_map *map, const kvf__file_row *row,
                       const char *template, kvf__buf *out)
{
    char name[64];
    KVF_TRY(kvf__buf_add(ctx, out, "", 0));
    for (const char *at = template, *rest = at; *at; at = rest) {
        const char *open = strchr(at, '{');
        if (!open || !next_name(&rest, name)) return kvf__buf_add(ctx, out, at, strlen(at));
        KVF_TRY(kvf__buf_add(ctx, out, at, (size_t)(open - at)));
        KVF_TRY(put_field(ctx, map, row, name, out));
    }
    return KVF_OK;
}

static kvf_status no_texts(kvf_ctx *ctx, const kvf__field_map *map, kvf__task task,
                           const kvf__file_row *row, const char *also)
{
    char has[KVF__ROW_HAS_MAX];
    kvf__row_has(map, row->fields, row->outer, has);
    return kvf__fail(ctx, KVF_EDATA, "%s: the row needs %s%s; %s", row->where,
                     task == KVF__TASK_CHOICE ? "text and choices" : "text, or text and text_pair",
                     also, has);
}

static void find_choices(const kvf__field_map *map, const kvf__file_row *row, const text_shape *s,
                         kvf__row_texts *out)
{
    char name[64];
    for (const char *at = s->choices; at && next_name(&at, name);)
        out->choice[out->n_choices++] = kvf__row_field(map, row, name);
    if (out->n_choices != 1) return;
    const bool lists = kvf_json_typeof(out->choice[0]) == KVF_JSON_OBJECT; /* texts and labels */
    out->choices = lists ? kvf_json_get(out->choice[0], "text") : out->choice[0];
    out->keys = lists ? kvf_json_get(out->choice[0], "label") : NULL;
    out->n_choices = kvf_json_size(out->choices);
}

kvf_status kvf__row_texts_get(kvf_ctx *ctx, const kvf__field_map *map, kvf__task task,
                              const kvf__file_row *row, const char *also, kvf__row_texts *out)
{
    const text_shape *s = shape_of(map, task, row, KVF_JSON_BOOL);
    if (!s) s = shape_of(map, task, row, KVF_JSON_NULL);
    if (!s) return no_texts(ctx, map, task, row, also);
    KVF_TRY(fill(ctx, map, row, s->a, &out->a));
    if (s->b) KVF_TRY(fill(ctx, map, row, s->b, &out->b));
    find_choices(map, row, s, out);
    return KVF_OK;
}

void kvf__row_texts_done(kvf__row_texts *texts)
{
    kvf__buf_done(&texts->a);
    kvf__buf_done(&texts->b);
    *texts = (kvf__row_texts){0};
}

bool kvf__label_fits(const kvf_json *value, size_t bytes)
{
    size_t n = 0;
    kvf_json_type type = kvf_json_typeof(value);
    kvf_json_str(value, &n);
    return type != KVF_JSON_ARRAY && type != KVF_JSON_OBJECT && n < bytes;
}

bool kvf__label_text(const kvf_json *value, char *out, size_t bytes)
{
    const char *text = kvf_json_str(value, NULL);
    char *made = NULL;
    kvf_json_type type = kvf_json_typeof(value);
    out[0] = 0;
    if (type == KVF_JSON_NONE || type == KVF_JSON_NULL) return false;
    if (!text) text = made = kvf_json_text(value, KVF_JSON_COMPACT);
    snprintf(out, bytes, "%s", text ? text : "");
    kvf_json_text_free(made);
    return true;
}
