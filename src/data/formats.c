/* The table of file formats, and their detection. The file name extension selects formats; if
 * several have it, the content decides. Without a known extension only the content decides.
 * Unmistakable content (a tag after every word, an object) comes first, then weaker signs (a tab, a
 * comma). */
#include "file_rows.h"

#include <string.h>
#include <strings.h>

/* ---- what content looks like ----------------------------------------------------------------- */

/* Returns true if the text opens an array that is empty or begins with an object. */
static bool opens_array(const char *text, size_t bytes)
{
    size_t n = strspn(text, " \t\r\n");
    if (n >= bytes || text[n] != '[') return false;
    n += 1 + strspn(text + n + 1, " \t\r\n");
    return n < bytes && (text[n] == '{' || text[n] == ']');
}

static bool opens_object(const char *text, size_t bytes)
{
    size_t n = strspn(text, " \t\r\n");
    return n < bytes && text[n] == '{';
}

/* Returns the position after character c, with blanks before it skipped; 0: another character
 * follows. */
static size_t behind(const char *text, size_t bytes, size_t at, char c)
{
    at += strspn(text + at, " \t\r\n");
    return at < bytes && text[at] == c ? at + 1 : 0;
}

/* Returns the position after the key "data" of the outermost object, and its colon; 0: no such
 * key. */
static size_t behind_data(const char *text, size_t bytes)
{
    size_t from = 0;
    bool quoted = false;
    int64_t depth = 0;
    for (size_t at = 0; at < bytes; at++) {
        const char c = text[at];
        if (c == '\\')
            at++;
        else if (c == '"' && (quoted = !quoted))
            from = at;
        else if (c == '"' && depth == 1 && at - from == 5 && !memcmp(text + from, "\"data", 5) &&
                 behind(text, bytes, at + 1, ':'))
            return behind(text, bytes, at + 1, ':');
        else if (!quoted && (c == '{' || c == '['))
            depth++;
        else if (!quoted && (c == '}' || c == ']') && --depth <= 0)
            return 0;
    }
    return 0;
}

/* Returns true if the list "data" is empty, or holds objects with "paragraphs". */
static bool looks_squad(const char *text, size_t bytes)
{
    size_t at = opens_object(text, bytes) ? behind_data(text, bytes) : 0;
    if (at) at = behind(text, bytes, at, '[');
    return at &&
           (behind(text, bytes, at, ']') ||
            (behind(text, bytes, at, '{') && memmem(text + at, bytes - at, "\"paragraphs\"", 12)));
}

static bool first_line_has(const char *text, size_t bytes, char c)
{
    const char *line = NULL;
    size_t at = 0, n = 0;
    return kvf__next_line(text, bytes, &at, &line, &n) && memchr(line, c, n);
}

static bool looks_tsv(const char *text, size_t bytes)
{
    return first_line_has(text, bytes, '\t');
}

static bool looks_csv(const char *text, size_t bytes)
{
    return first_line_has(text, bytes, ',') || !strncasecmp(text, "sep=", 4);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define JSON_LINES ".jsonl .ndjson .jsonlines"

static const struct format {
    const char *name, *endings;                    /* endings: file name extensions */
    bool (*looks)(const char *text, size_t bytes); /* NULL: not detected by content */
    bool sure;                                     /* such content is unmistakable */
    bool delimited, word_lines;                    /* as in kvf__file */
    kvf__reader_fn *read;
} FORMATS[] = {
    {"squad", ".json", looks_squad, true, false, false, kvf__read_squad},
    {"json", JSON_LINES " .json", opens_array, true, false, false, kvf__read_array},
    {"jsonl", JSON_LINES " .json", opens_object, true, false, false, kvf__read_jsonl},
    {"superglue", "", opens_object, true, false, false, kvf__read_jsonl}, /* by fields: fields.c */
    {"conll", ".conll .bio .iob .iob2 .conll03 .annotated .conllx .conllu .tsv .tab",
     kvf__looks_conll, true, true, true, kvf__read_conll},
    {"tsv", ".tsv .tab", looks_tsv, false, true, false, kvf__read_tsv},
    {"csv", ".csv", looks_csv, false, true, false, kvf__read_csv},
    {"text", "", NULL, false, false, false, kvf__read_text}, /* --split-text, or lines */
};
#define N_FORMATS (sizeof FORMATS / sizeof FORMATS[0])

static const struct format *format_named(const char *name)
{
    for (const struct format *f = FORMATS; f < FORMATS + N_FORMATS; f++)
        if (!strcmp(f->name, name)) return f;
    return NULL;
}

static bool ends_in(const char *path, const char *ending, size_t bytes)
{
    size_t n = strlen(path);
    if (n > 3 && !strcasecmp(path + n - 3, ".gz")) n -= 3;
    return n > bytes && !strncasecmp(path + n - bytes, ending, bytes);
}

static bool named_so(const struct format *f, const char *path)
{
    size_t n;
    for (const char *at = f->endings; *at; at += n + (at[n] == ' ')) {
        n = strcspn(at, " ");
        if (ends_in(path, at, n)) return true;
    }
    return false;
}

/* Returns the first format that fits the content. sure: only an unmistakable one. */
static const struct format *by_content(const kvf__file *file, bool sure)
{
    for (const struct format *f = FORMATS; f < FORMATS + N_FORMATS; f++)
        if (f->looks && (f->sure || !sure) && f->looks(file->text, file->bytes)) return f;
    return NULL;
}

/* Returns true for a .txt file of rows that need no label: one text per line. */
static bool is_text_lines(const kvf__file *file)
{
    const kvf__dataset_options *o = file->options;
    return o->unlabeled && o->task != KVF__TASK_LM && ends_in(file->path, ".txt", 4) &&
           !looks_tsv(file->text, file->bytes);
}

static bool has_delimiter(const kvf__file *file)
{
    return file->options->delimiter && *file->options->delimiter;
}

/* Returns the format with the file's extension. If several have it, the first that fits the
 * content, else the last. A table is read as CoNLL only for token-cls. */
static const struct format *by_name(const kvf__file *file)
{
    const struct format *last = NULL;
    for (const struct format *f = FORMATS; f < FORMATS + N_FORMATS; f++) {
        if (f->word_lines && (file->options->task != KVF__TASK_TOKEN_CLS || has_delimiter(file)))
            continue;
        if (!named_so(f, file->path)) continue;
        if (f->looks && f->looks(file->text, file->bytes)) return f;
        last = f;
    }
    return last;
}

static const struct format *guess(const kvf__file *file)
{
    const struct format *found = by_name(file);
    if (!found && has_delimiter(file)) return format_named("csv");
    if (!found) found = by_content(file, true);
    if (!found && is_text_lines(file)) return &FORMATS[N_FORMATS - 1];
    return found ? found : by_content(file, false);
}

/* Accepts a file as plain text, unless it is unmistakably something else. */
static kvf_status check_text(const kvf__file *file)
{
    const struct format *f = by_content(file, true);
    if (!f) return KVF_OK;
    return kvf__fail(file->ctx, KVF_EUSAGE,
                     "%s:1: looks like %s, but --split-text is for plain text (add --format text "
                     "if it is plain text)",
                     file->path, f->name);
}

static kvf_status find_format(const kvf__file *file, const struct format **out)
{
    const char *name = file->options->format;
    const bool automatic = !name || !*name || !strcmp(name, "auto");
    if (file->options->split_text && automatic) {
        *out = &FORMATS[N_FORMATS - 1];
        return check_text(file);
    }
    if (file->options->split_text && strcmp(name, "text"))
        return kvf__fail(file->ctx, KVF_EUSAGE, "--split-text is for plain text, not --format %s",
                         name);
    if (automatic) {
        *out = guess(file);
        if (*out) return KVF_OK;
        return kvf__fail(file->ctx, KVF_EDATA,
                         "%s:1: cannot tell the format from name or content: set --format "
                         "jsonl|tsv|csv|conll|squad, or --split-text N for plain text",
                         file->path);
    }
    *out = format_named(name);
    if (*out) return KVF_OK;
    return kvf__fail(
        file->ctx, KVF_EUSAGE,
        "format \"%s\" is not known; known: auto, jsonl, json, tsv, csv, conll, squad, "
        "superglue, text",
        name);
}

static kvf_status refuse_parquet(const kvf__file *file)
{
    size_t n = strlen(file->path), ending = strlen(".parquet");
    if (n > ending && !strcasecmp(file->path + n - ending, ".parquet")) n -= ending;
    return kvf__fail(
        file->ctx, KVF_EDATA,
        "%s: is Parquet; convert it: python3 -c \"import pandas; "
        "pandas.read_parquet('%s').to_json('%.*s.jsonl', orient='records', lines=True)\"",
        file->path, file->path, (int)n, file->path);
}

const char *kvf__table_option(const kvf__dataset_options *o)
{
    return o->columns && *o->columns       ? "columns"
           : o->no_header                  ? "no-header"
           : o->delimiter && *o->delimiter ? "delimiter"
                                           : NULL;
}

kvf_status kvf__read_rows(kvf__file *file)
{
    const struct format *format = NULL;
    if (file->bytes > 3 && !memcmp(file->text, "PAR1", 4)) return refuse_parquet(file);
    if (file->bytes > 1 &&
        (!memcmp(file->text, "\xFF\xFE", 2) || !memcmp(file->text, "\xFE\xFF", 2)))
        return kvf__fail(file->ctx, KVF_EDATA, "%s:1: the file is UTF-16, want UTF-8", file->path);
    if (file->bytes > 2 && !memcmp(file->text, "\xEF\xBB\xBF", 3)) {
        file->text += 3;
        file->bytes -= 3;
    }
    if (kvf__is_blank_line(file->text, strcspn(file->text, "\n")) &&
        strspn(file->text, " \t\r\n") == file->bytes)
        return KVF_OK; /* no rows: the caller reports it */
    KVF_TRY(kvf__utf8_check(file->ctx, file->path, file->text, file->bytes, true));
    KVF_TRY(find_format(file, &format));
    if (format->word_lines && has_delimiter(file))
        return kvf__fail(file->ctx, KVF_EUSAGE, "--delimiter is for TSV and CSV, not CoNLL");
    file->delimited = format->delimited;
    file->word_lines = format->word_lines;
    return format->read(file);
}
