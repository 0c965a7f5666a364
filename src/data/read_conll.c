/* Reads CoNLL columns: the word first, or after a column that numbers the words; its tag last; a
 * blank line after each sentence. A header or --columns can say otherwise. Columns are separated by
 * tabs if the first line has one, else by spaces. White space at the end of a line is ignored.
 *
 * -DOCSTART- lines and comments are left out. A comment begins with #, lies before a sentence's
 * first word, and meets one of these conditions: its number of columns differs from other lines; it
 * begins with "# " and has more than two columns; it has no tag where the first word has one. Other
 * words with # are hash tags. */
#include "file_rows.h"

#include <string.h>
#include <strings.h>

typedef struct piece {
    const char *text;
    size_t n;
} piece;

enum { LINES_LOOKED_AT = 100 };
static const size_t LAST = SIZE_MAX;

typedef struct sentence {
    kvf__file file; /* word_lines: no line was left out within the sentence */
    bool tabs, named, header, counted, typed; /* typed: the first tag is O or has a prefix */
    size_t columns;                           /* columns of every line; 0: unknown */
    size_t word, tag; /* indices of the columns; tag LAST: the last of two or more */
    int64_t line;     /* line of the first word */
    size_t bytes;     /* bytes of the sentence so far */
    kvf_json *fields, *tokens, *tags; /* tokens NULL: between sentences */
} sentence;

/* ---- columns --------------------------------------------------------------------------------- */

static bool parts(bool tabs, char c)
{
    return c == '\t' || (!tabs && c == ' ');
}

/* Returns the number of columns of a line; *out: the column `want`. A run of spaces is one
 * separator; each tab is one. */
static size_t cut(bool tabs, piece line, size_t want, piece *out)
{
    size_t columns = 0, at = 0;
    *out = (piece){line.text, 0};
    while (at < line.n) {
        const size_t from = at;
        while (at < line.n && !parts(tabs, line.text[at]))
            at++;
        if (want == LAST || want == columns) *out = (piece){line.text + from, at - from};
        columns++;
        if (at++ == line.n) break;
        while (!tabs && at < line.n && parts(tabs, line.text[at]))
            at++;
    }
    return columns;
}

static bool is_left_out(piece line)
{
    return !line.n || (line.n > 9 && !memcmp(line.text, "-DOCSTART-", 10));
}

/* Reads the next line, without white space at its end. */
static bool next_line(const char *text, size_t bytes, size_t *at, piece *line)
{
    if (!kvf__next_line(text, bytes, at, &line->text, &line->n)) return false;
    const char *from = line->text;
    kvf__trim_space(&from, &line->n);
    line->n = line->n ? (size_t)(from - line->text) + line->n : 0;
    return true;
}

/* Returns true for "O", or a letter of a tagging scheme and a type: B-PER. */
static bool is_tag(piece tag)
{
    if (tag.n == 1) return *tag.text == 'O';
    return tag.n > 2 && *tag.text && strchr("BIEMSLU", *tag.text) &&
           (tag.text[1] == '-' || tag.text[1] == '_') && !memchr(tag.text, ' ', tag.n);
}

static const char *const WORDS[] = {"tokens", "words", "token", "word", "form", NULL};
static const char *const TAGS[] = {"tags",  "ner_tags", "labels", "tag",  "ner_tag",
                                   "label", "ner",      "pos",    "upos", "xpos",
                                   "iob",   "bio",      "entity", "slot", NULL};

/* Returns true if a name is in the list, or mapped to a name in it. */
static bool means(const kvf__field_map *map, piece name, const char *const *list)
{
    for (; *list; list++) {
        if (strlen(*list) == name.n && !strncasecmp(*list, name.text, name.n)) return true;
        for (size_t i = 0; map && i < map->n; i++)
            if (!strcmp(map->ours[i], *list) && strlen(map->theirs[i]) == name.n &&
                !memcmp(map->theirs[i], name.text, name.n))
                return true;
    }
    return false;
}

/* Finds the first column of words and the last one of tags, by their names. Returns false if one is
 * missing. */
static bool find_names(const kvf__field_map *map, bool tabs, piece line, size_t *word, size_t *tag)
{
    piece name;
    const size_t n = cut(tabs, line, 0, &name);
    *word = *tag = LAST;
    for (size_t i = 0; i < n; i++) {
        cut(tabs, line, i, &name);
        if (*word == LAST && means(map, name, WORDS)) *word = i;
        if (means(map, name, TAGS)) *tag = i;
    }
    return *word != LAST && *tag != LAST;
}

bool kvf__looks_conll(const char *text, size_t bytes)
{
    piece line, tag;
    size_t at = 0, column;
    int words = 0;
    for (int i = 0; i < LINES_LOOKED_AT && next_line(text, bytes, &at, &line); i++) {
        const bool tabs = line.n && memchr(line.text, '\t', line.n);
        if (is_left_out(line) || *line.text == '#') continue;
        if (!words && find_names(NULL, tabs, line, &column, &column)) continue;
        if (cut(tabs, line, LAST, &tag) < 2 || !is_tag(tag)) return false;
        words++;
    }
    return words > 0;
}

/* Reads the number of a word. *part: it is a range or an empty node of CoNLL-U (1-2, 8.1). */
static bool read_index(piece column, int64_t *out, bool *part)
{
    size_t i = 0;
    for (*out = 0; i < column.n && i < 9 && column.text[i] >= '0' && column.text[i] <= '9'; i++)
        *out = 10 * *out + column.text[i] - '0';
    *part = i && i + 1 < column.n && (column.text[i] == '-' || column.text[i] == '.');
    return i && (i == column.n || *part);
}

/* Returns true if the first column numbers the words of each sentence or of the file. */
static bool counts(const sentence *s)
{
    piece line, column;
    size_t at = 0;
    int64_t before = -1, first = -1, now = 0, steps = 0;
    bool part, begins = true;
    for (int i = 0; i < LINES_LOOKED_AT && next_line(s->file.text, s->file.bytes, &at, &line);
         i++) {
        begins = begins || is_left_out(line);
        if (is_left_out(line) || *line.text == '#') continue;
        cut(s->tabs, line, 0, &column);
        if (!read_index(column, &now, &part)) return false;
        if (part) continue;
        if (first < 0) first = now;
        if (first > 1 || (before >= 0 && now != before + 1 && !(begins && now == first)))
            return false;
        steps += now == before + 1 && !begins;
        before = now;
        begins = false;
    }
    return steps > 0;
}

static kvf_status columns_by_option(sentence *s, const char *names)
{
    size_t n = 1;
    kvf__buf line = {0};
    s->named = true;
    for (const char *c = names; *c; c++)
        n += *c == ',';
    KVF_TRY(kvf__buf_add(s->file.ctx, &line, names, strlen(names)));
    for (size_t i = 0; i < line.n; i++)
        if (line.data[i] == ',') line.data[i] = '\t';
    find_names(s->file.options->render.map, true, (piece){line.data, line.n}, &s->word, &s->tag);
    kvf__buf_done(&line);
    s->columns = n;
    if (s->tag == LAST && s->file.options->unlabeled) s->tag = n; /* no column of tags */
    if (s->word != LAST && s->tag != LAST) return KVF_OK;
    return kvf__fail(s->file.ctx, KVF_EUSAGE,
                     "--columns \"%s\" names no column of %s: for CoNLL call the columns tokens "
                     "and tags, and all others -",
                     names, s->word == LAST ? "words" : "tags");
}

/* Determines the columns from the options and the line of the file's first word. */
static kvf_status plan_columns(sentence *s)
{
    const kvf__dataset_options *o = s->file.options;
    piece line = {"", 0}, tag;
    size_t at = 0;
    bool more = true;
    s->tag = LAST;
    while ((more = next_line(s->file.text, s->file.bytes, &at, &line)))
        if (!is_left_out(line) && *line.text != '#') break;
    if (!more) line.n = 0;
    s->tabs = line.n && memchr(line.text, '\t', line.n);
    const size_t n = cut(s->tabs, line, LAST, &tag);
    s->typed = n > 1 && is_tag(tag);
    s->columns = n;
    size_t word, last;
    s->header = !o->no_header && find_names(o->render.map, s->tabs, line, &word, &last);
    if (o->columns && *o->columns) return columns_by_option(s, o->columns);
    if (s->header) {
        s->word = word;
        s->tag = last;
        return KVF_OK;
    }
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)(tag.n < 255 ? tag.n : 255), tag.text);
    const bool bare = n == 2 && o->unlabeled && o->label_set &&
                      kvf__label_set_find(o->label_set, name) < 0;
    s->counted = (n > 2 || bare) && counts(s);
    s->word = s->counted;
    if (s->counted && bare) s->tag = 2; /* no column of tags */
    return KVF_OK;
}

/* ---- sentences ------------------------------------------------------------------------------- */

static bool is_comment(const sentence *s, piece line, size_t columns)
{
    piece tag;
    if (*line.text != '#' || s->tokens) return false;
    if (line.n > 1 && line.text[1] == ' ' && columns > 2) return true;
    if (columns != (s->columns ? s->columns : 2)) return true;
    cut(s->tabs, line, LAST, &tag);
    return s->typed && !is_tag(tag);
}

static kvf_status end_sentence(sentence *s)
{
    kvf_json *fields = s->fields;
    if (!s->tokens) return KVF_OK;
    s->fields = s->tokens = s->tags = NULL;
    return kvf__give_row(&s->file, s->line, fields, true);
}

static kvf_status begin_sentence(sentence *s, int64_t line)
{
    s->line = line;
    s->bytes = 0;
    s->file.word_lines = true;
    s->fields = kvf_json_object();
    s->tokens = kvf_json_array();
    bool good = s->fields && kvf_json_set(s->fields, "tokens", s->tokens);
    if (good && s->columns > 1 && (s->tag == LAST || s->tag < s->columns)) {
        s->tags = kvf_json_array();
        good = kvf_json_set(s->fields, "tags", s->tags);
    }
    return good ? KVF_OK : kvf__fail(s->file.ctx, KVF_ENOMEM, "out of memory");
}

static kvf_status add_string(sentence *s, kvf_json *list, piece text)
{
    return kvf_json_add(list, kvf_json_new_strn(text.text, text.n))
               ? KVF_OK
               : kvf__fail(s->file.ctx, KVF_ENOMEM, "out of memory");
}

static kvf_status check_line(const sentence *s, int64_t line, size_t columns, size_t word)
{
    if (columns < 2 && !s->file.options->unlabeled)
        return kvf__file_fail(&s->file, line, "1 column, want a word and its tag");
    if (s->columns && columns != s->columns)
        return kvf__file_fail(&s->file, line, "%zu column%s, but %s %zu", columns,
                              columns == 1 ? "" : "s",
                              s->named ? "--columns names" : "the lines before have", s->columns);
    return word ? KVF_OK : kvf__file_fail(&s->file, line, "the word is empty");
}

/* Returns true for a line of CoNLL-U that is no word of its own: 1-2, 8.1. */
static bool is_part(const sentence *s, piece line)
{
    piece column;
    int64_t number;
    bool part;
    cut(s->tabs, line, 0, &column);
    return s->counted && read_index(column, &number, &part) && part;
}

static kvf_status add_line(sentence *s, int64_t number, piece line)
{
    piece word, tag;
    size_t columns = cut(s->tabs, line, s->word, &word);
    if (is_comment(s, line, columns)) return KVF_OK;
    KVF_TRY(check_line(s, number, columns, word.n));
    if (is_part(s, line)) {
        s->file.word_lines = false;
        return KVF_OK;
    }
    s->columns = columns;
    if (!s->tokens) KVF_TRY(begin_sentence(s, number));
    s->bytes += line.n;
    KVF_TRY(kvf__check_row_bytes(&s->file, s->line, s->bytes));
    KVF_TRY(add_string(s, s->tokens, word));
    cut(s->tabs, line, s->tag, &tag);
    return s->tags ? add_string(s, s->tags, tag) : KVF_OK;
}

kvf_status kvf__read_conll(const kvf__file *file)
{
    sentence s = {.file = *file};
    piece line;
    size_t at = 0;
    kvf_status st = plan_columns(&s);
    for (int64_t i = 1; !st && next_line(file->text, file->bytes, &at, &line); i++) {
        if (is_left_out(line))
            st = end_sentence(&s);
        else if (s.header && *line.text != '#')
            s.header = false;
        else
            st = add_line(&s, i, line);
    }
    if (!st) st = end_sentence(&s);
    kvf_json_free(s.fields);
    return st;
}
