/* Reads TSV and CSV. A row is an object of strings, named by the columns.
 *
 * CSV follows RFC 4180: quoted fields may contain commas, line ends and doubled quotes. A quote
 * inside a bare field is literal. Excel's first line "sep=;" names another delimiter.
 *
 * TSV has no quoting, as in GLUE and SST-2: a tab ends a field, a line end ends a row. TSV written
 * by pandas is quoted like CSV; the whole file is examined to detect it. */
#include "file_rows.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_COLUMNS = 256, ROWS_LOOKED_AT = 1000 };

/* Texts in one buffer, each followed by a NUL. */
typedef struct text_list {
    kvf__buf text;
    size_t at[MAX_COLUMNS + 1]; /* offsets into text; at[n] is the end */
    size_t n;
} text_list;

/* The reading position, the last record, and the names of the columns. */
typedef struct table {
    const kvf__file *file;
    char delimiter;
    bool quotes;
    size_t at;
    int64_t line, next_line;    /* line of the record, and line where the next one begins */
    size_t n_quoted, n_doubled; /* counts so far: quoted fields, doubled quotes in them */
    text_list record, columns;
} table;

static const char *text_at(const text_list *list, size_t i)
{
    return list->text.data + list->at[i];
}

/* Returns the length of text i, without its NUL. */
static size_t bytes_at(const text_list *list, size_t i)
{
    return list->at[i + 1] - list->at[i] - 1;
}

/* Ends the text that was appended to list->text. */
static kvf_status end_text(const table *t, text_list *list)
{
    KVF_TRY(kvf__buf_addc(t->file->ctx, &list->text, 0));
    list->at[++list->n] = list->text.n;
    return KVF_OK;
}

/* ---- records --------------------------------------------------------------------------------- */

/* Reads a quoted field, from after the opening quote to after the closing one. */
static kvf_status quoted_field(table *t)
{
    const char *text = t->file->text;
    size_t bytes = t->file->bytes;
    t->n_quoted++;
    for (;;) {
        const char *quote = memchr(text + t->at, '"', bytes - t->at);
        if (!quote)
            return kvf__file_fail(t->file, t->line,
                                  "a quoted field that begins in this row has no closing quote");
        size_t n = (size_t)(quote - (text + t->at));
        for (const char *c = text + t->at; c < quote; c++)
            t->next_line += *c == '\n';
        KVF_TRY(kvf__buf_add(t->file->ctx, &t->record.text, text + t->at, n));
        t->at += n + 1;
        if (t->at >= bytes || text[t->at] != '"') break;
        KVF_TRY(kvf__buf_addc(t->file->ctx, &t->record.text, '"'));
        t->n_doubled++;
        t->at++;
    }
    char next = t->at < bytes ? text[t->at] : '\n';
    if (next == t->delimiter || next == '\n' || next == '\r') return KVF_OK;
    return kvf__file_fail(t->file, t->line, "text after a closing quote: %s",
                          strchr(";|\t,", next)
                              ? "if this character separates columns, set it with --delimiter"
                              : "a quote inside a quoted field must be doubled");
}

static kvf_status bare_field(table *t)
{
    const char *from = t->file->text + t->at, *end = t->file->text + t->file->bytes, *to = from;
    while (to < end && *to != t->delimiter && *to != '\n')
        to++;
    size_t n = (size_t)(to - from);
    t->at += n;
    if (n && from[n - 1] == '\r' && (to == end || *to == '\n')) n--;
    return kvf__buf_add(t->file->ctx, &t->record.text, from, n);
}

/* Reads the next record; *more is false at the end. Empty lines are skipped. */
static kvf_status next_record(table *t, bool *more)
{
    const char *text = t->file->text;
    size_t bytes = t->file->bytes;
    text_list *r = &t->record;
    r->n = r->text.n = 0;
    for (; t->at < bytes && (text[t->at] == '\n' || text[t->at] == '\r'); t->at++)
        t->next_line += text[t->at] == '\n';
    t->line = t->next_line;
    *more = t->at < bytes;
    while (*more) {
        if (r->n == MAX_COLUMNS) return kvf__file_fail(t->file, t->line, "more than 256 columns");
        if (t->quotes && t->at < bytes && text[t->at] == '"') {
            t->at++;
            KVF_TRY(quoted_field(t));
        } else {
            KVF_TRY(bare_field(t));
        }
        KVF_TRY(end_text(t, r));
        KVF_TRY(kvf__check_row_bytes(t->file, t->line, r->text.n));
        if (t->at >= bytes || text[t->at] != t->delimiter) break;
        t->at++;
    }
    return KVF_OK;
}

/* Reads all records on a copy of *first. EDATA if one has another number of columns than the first
 * record. *all_quoted: all fields of the first record are quoted. first->n_doubled gets the count
 * of doubled quotes. */
static kvf_status try_records(table *first, bool quotes, bool *all_quoted)
{
    table t = *first;
    bool more = true;
    size_t columns = 0;
    t.quotes = quotes;
    t.record.text = (kvf__buf){0};
    kvf_status st = next_record(&t, &more);
    *all_quoted = t.n_quoted == t.record.n;
    for (columns = t.record.n; !st && more; st = st ? st : next_record(&t, &more))
        if (t.record.n != columns) st = KVF_EDATA;
    kvf__buf_done(&t.record.text);
    first->n_doubled = t.n_doubled;
    return st;
}

/* Detects a TSV quoted by pandas: it is a table if quotes are interpreted. One more sign is
 * required: doubled quotes, a first line with all fields quoted, or no table without
 * interpretation. */
static kvf_status find_quotes(table *t)
{
    bool all = false, none = false;
    if (!memchr(t->file->text, '"', t->file->bytes)) return KVF_OK;
    kvf_status st = try_records(t, true, &all);
    const bool fits = !st, doubled = t->n_doubled;
    if (fits && !doubled && !all) st = try_records(t, false, &none);
    t->quotes = fits && (doubled || all || st);
    return st == KVF_EDATA ? KVF_OK : st;
}

/* ---- columns --------------------------------------------------------------------------------- */

static bool is_read(const char *name)
{
    return *name && strcmp(name, "-");
}

static kvf_status add_column(table *t, const char *name, size_t n)
{
    text_list *c = &t->columns;
    if (c->n == MAX_COLUMNS) return kvf__file_fail(t->file, t->line, "more than 256 columns");
    if (memchr(name, 0, n))
        return kvf__file_fail(t->file, t->line, "a NUL byte in the name of a column");
    KVF_TRY(kvf__buf_add(t->file->ctx, &c->text, name, n));
    KVF_TRY(end_text(t, c));
    const char *added = text_at(c, c->n - 1);
    for (size_t i = 0; i + 1 < c->n; i++)
        if (is_read(added) && !strcmp(text_at(c, i), added))
            return kvf__file_fail(t->file, t->line, "two columns are named \"%s\"", added);
    return KVF_OK;
}

static kvf_status columns_from_text(table *t, const char *names)
{
    for (const char *at = names;; at++) {
        size_t n = strcspn(at, ",");
        KVF_TRY(add_column(t, at, n));
        at += n;
        if (!*at) break;
    }
    for (size_t i = 0; i < t->columns.n; i++)
        if (is_read(text_at(&t->columns, i))) return KVF_OK;
    return kvf__fail(t->file->ctx, KVF_EUSAGE, "--columns \"%s\" names no column", names);
}

static kvf_status columns_from_record(table *t)
{
    for (size_t i = 0; i < t->record.n; i++)
        KVF_TRY(add_column(t, text_at(&t->record, i), bytes_at(&t->record, i)));
    return KVF_OK;
}

/* Names the columns of a file without names, by their number. */
static kvf_status columns_by_count(table *t)
{
    static const char *const LM[] = {"text", "prompt,completion"};
    static const char *const CLASSES[] = {"text", "text,label", "text,text_pair,label"};
    kvf__task task = t->file->options->task;
    if (task == KVF__TASK_LM && t->record.n <= 2) return columns_from_text(t, LM[t->record.n - 1]);
    if (task == KVF__TASK_SEQ_CLS && t->record.n <= 3)
        return columns_from_text(t, CLASSES[t->record.n - 1]);
    return kvf__file_fail(t->file, t->line, "%zu columns without names: name them with --columns",
                          t->record.n);
}

/* Returns true if the first record contains a known column name. */
static bool names_columns(const table *t)
{
    const kvf__field_map *map = t->file->options->render.map;
    for (size_t i = 0; i < t->record.n; i++) {
        const char *name = text_at(&t->record, i);
        if (kvf__field_known(map, name, strlen(name))) return true;
    }
    return false;
}

/* Determines whether the last field of the first record is a label: a number, or a value that a
 * later record repeats. */
static kvf_status ends_in_label(const table *first, bool *out)
{
    table t = *first;
    const char *label = text_at(&first->record, first->record.n - 1);
    char *end = NULL;
    bool more = true;
    kvf_status st = KVF_OK;
    strtod(label, &end);
    *out = *label && !*end;
    t.record.text = (kvf__buf){0};
    for (int i = 0; !st && !*out && more && i < ROWS_LOOKED_AT; i++) {
        st = next_record(&t, &more);
        if (!st && more) *out = !strcmp(text_at(&t.record, t.record.n - 1), label);
    }
    kvf__buf_done(&t.record.text);
    return st;
}

/* Decides the names of the columns. *is_row: the current record is already a row. */
static kvf_status decide_columns(table *t, bool *is_row)
{
    const kvf__dataset_options *o = t->file->options;
    *is_row = o->no_header;
    if (o->columns && *o->columns) return columns_from_text(t, o->columns);
    if (o->no_header) return columns_by_count(t);
    if (names_columns(t)) return columns_from_record(t);
    if (o->task == KVF__TASK_SEQ_CLS && t->record.n > 1 && t->record.n <= 3) {
        KVF_TRY(ends_in_label(t, is_row));
        if (*is_row) return columns_by_count(t);
    }
    const char *other = t->record.n == 1 ? strpbrk(text_at(&t->record, 0), ";\t|,") : NULL;
    if (other)
        return kvf__file_fail(t->file, t->line,
                              "the only column, \"%.100s\", is not known: if '%s' separates "
                              "columns, set it with --delimiter",
                              text_at(&t->record, 0),
                              *other == '\t' ? "\\t" : (char[2]){*other, 0});
    char has[KVF__ROW_HAS_MAX];
    kvf_json *fields = kvf_json_object();
    for (size_t i = 0; i < t->record.n; i++)
        kvf_json_set(fields, text_at(&t->record, i), kvf_json_new_strn("", 0));
    kvf__row_has(t->file->options->render.map, fields, NULL, has);
    kvf_json_free(fields);
    return kvf__file_fail(t->file, t->line,
                          "the first line has no known column name: give the names with --columns, "
                          "and add --no-header if the line is a row; %s",
                          has);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static kvf_status check_record(const table *t)
{
    if (t->record.n == t->columns.n) return KVF_OK;
    return kvf__file_fail(t->file, t->line, "%zu column%s, want %zu", t->record.n,
                          t->record.n == 1 ? "" : "s", t->columns.n);
}

static kvf_status hand_over(const table *t)
{
    kvf_json *fields = kvf_json_object();
    bool made = fields != NULL;
    for (size_t i = 0; made && i < t->record.n; i++)
        if (is_read(text_at(&t->columns, i)))
            made = kvf_json_set(fields, text_at(&t->columns, i),
                                kvf_json_new_strn(text_at(&t->record, i), bytes_at(&t->record, i)));
    return kvf__give_row(t->file, t->line, fields, made);
}

/* Skips Excel's "sep=;", a line of its own before the header, and takes its delimiter. */
static void skip_sep(table *t)
{
    const char *text = t->file->text;
    const size_t end = strncasecmp(text, "sep=", 4) || t->file->bytes < 6 ? 0
                                                                          : 5 + (text[5] == '\r');
    if (!end || text[end] != '\n') return;
    t->delimiter = text[4];
    t->at = end + 1;
    t->next_line = 2;
}

static kvf_status set_delimiter(table *t)
{
    const char *given = t->file->options->delimiter;
    if (!given || !*given) return KVF_OK;
    t->delimiter = strcmp(given, "\\t") ? *given : '\t';
    if ((t->delimiter == '\t' || !given[1]) && t->delimiter > 0 && !strchr("\"\r\n", t->delimiter))
        return KVF_OK;
    return kvf__fail(t->file->ctx, KVF_EUSAGE,
                     "--delimiter \"%s\": want one ASCII character other than a quote, or \\t",
                     given);
}

static kvf_status read_table(const kvf__file *file, char delimiter, bool quotes)
{
    table t = {.file = file, .delimiter = delimiter, .quotes = quotes, .next_line = 1};
    bool more = false, is_row = false;
    skip_sep(&t);
    KVF_TRY(set_delimiter(&t));
    if (!quotes) KVF_TRY(find_quotes(&t));
    kvf_status st = next_record(&t, &more);
    if (!st && more) st = decide_columns(&t, &is_row);
    if (!st && more && !is_row) st = next_record(&t, &more);
    while (!st && more) {
        st = check_record(&t);
        if (!st) st = hand_over(&t);
        if (!st) st = next_record(&t, &more);
    }
    kvf__buf_done(&t.record.text);
    kvf__buf_done(&t.columns.text);
    return st;
}

kvf_status kvf__read_tsv(const kvf__file *file)
{
    return read_table(file, '\t', false);
}

kvf_status kvf__read_csv(const kvf__file *file)
{
    return read_table(file, ',', true);
}
