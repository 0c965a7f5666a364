/* Parses option values from text into struct fields, and the lines of recipes and grids. */
#include "option_table.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---------------------------------------------------------------------------------- */

const char *kvf__choice_at(const char *alternatives, int index, size_t *n)
{
    for (const char *at = alternatives; at; at = at[*n] ? at + *n + 1 : NULL) {
        *n = strcspn(at, "|");
        if (!index--) return at;
    }
    return NULL;
}

int kvf__choice_index(const char *alternatives, const char *value)
{
    const bool named = alternatives && strstr(alternatives, "|NAME:");
    const size_t bytes = named ? strcspn(value, ":") : strlen(value);
    const char *at;
    size_t n = 0;
    for (int i = 0; *value && (at = kvf__choice_at(alternatives, i, &n)) != NULL; i++)
        if (n == bytes && !memcmp(at, value, n)) return i;
    return -1;
}

/* Accepts digits only: strtoull() would also accept signs and leading white space. */
static bool parse_whole(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || errno || *end || number < min || number > max) return false;
    *out = number;
    return true;
}

static bool parse_real(const char *text, double *out)
{
    char *end = NULL;
    const double number = strtod(text, &end);
    if (end == text || *end || !isfinite(number)) return false;
    *out = number;
    return true;
}

static const char *set_flag(const char *value, const char *yes, const char *no, const char *want,
                            bool *field)
{
    if (strcmp(value, yes) && strcmp(value, no)) return want;
    *field = !strcmp(value, yes);
    return NULL;
}

static const char *set_count(const char *value, bool positive, int64_t *field)
{
    uint64_t number;
    if (!parse_whole(value, positive, INT32_MAX, &number))
        return positive ? "a whole number from 1 to 2147483647"
                        : "a whole number from 0 to 2147483647";
    *field = (int64_t)number;
    return NULL;
}

static const char *set_seed(const char *value, uint64_t *field)
{
    return parse_whole(value, 0, INT64_MAX, field) ? NULL
                                                   : "a whole number from 0 to 9223372036854775807";
}

static const char *set_real(const char *value, kvf__option_kind kind, double *field)
{
    double number;
    const bool is_number = parse_real(value, &number);
    if (kind == KVF_REAL && !is_number) return "a number";
    if (kind == KVF_AMOUNT && !(is_number && number >= 0)) return "a number, 0 or more";
    if (kind == KVF_ABOVE_0 && !(is_number && number > 0)) return "a number above 0";
    if (kind == KVF_SHARE && !(is_number && number >= 0 && number < 1))
        return "a number from 0 to below 1";
    *field = number;
    return NULL;
}

static const char *set_choice(const kvf__option_row *row, const char *value, void *field)
{
    const int index = kvf__choice_index(row->argument, value);
    if (index < 0) return row->argument;
    if (row->kind == KVF_WORD)
        *(const char **)field = value;
    else if (row->kind == KVF_EITHER)
        *(bool *)field = index == 1;
    else
        *(int *)field = index + (row->kind == KVF_CHOICE_1);
    return NULL;
}

static void add_text(kvf__strings *list, const char *value)
{
    list->item[list->n++] = value;
}

const char *kvf__option_set(const kvf__option_row *row, const char *value, void *options)
{
    void *field = (char *)options + row->offset;
    if (!value && row->kind != KVF_FLAG) return row->argument;
    switch (row->kind) {
    case KVF_NO_FIELD:
        return NULL;
    case KVF_FLAG:
        return set_flag(value ? value : "true", "true", "false", "true or false", field);
    case KVF_ON_OFF:
        return set_flag(value, "on", "off", "on or off", field);
    case KVF_TEXT:
        *(const char **)field = value;
        return NULL;
    case KVF_TEXTS:
        add_text(field, value);
        return NULL;
    case KVF_EITHER:
    case KVF_WORD:
    case KVF_CHOICE:
    case KVF_CHOICE_1:
        return set_choice(row, value, field);
    case KVF_OR_AUTO:
        if (strcmp(value, "auto")) return set_count(value, false, field);
        *(int64_t *)field = -1;
        return NULL;
    case KVF_COUNT:
    case KVF_POSITIVE:
        return set_count(value, row->kind == KVF_POSITIVE, field);
    case KVF_SEED:
        return set_seed(value, field);
    case KVF_AMOUNT:
    case KVF_ABOVE_0:
    case KVF_SHARE:
    case KVF_REAL:
        return set_real(value, row->kind, field);
    }
    return "an option of a known kind";
}

/* ---- lines of recipes and grids -------------------------------------------------------------- */

char *kvf__trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1]))
        text[--n] = 0;
    return text;
}

char *kvf__option_line(char **text, int *number)
{
    while (*text) {
        char *line = *text, *end = strchr(line, '\n');
        if (end) *end = 0;
        *text = end ? end + 1 : NULL;
        ++*number;
        line = kvf__trim(line);
        if (*line && *line != '#') return line;
    }
    return NULL;
}

bool kvf__option_split(char *line, char **name, char **value)
{
    char *equals = strchr(line, '=');
    if (!equals) return false;
    *equals = 0;
    *name = kvf__trim(line);
    *value = kvf__trim(equals + 1);
    return true;
}

const char *kvf__option_cut(char **list, char **value)
{
    char *at = kvf__trim(*list);
    if (*at != '"') {
        char *rest = strchr(at, ',');
        if (rest) *rest++ = 0;
        *value = kvf__trim(at);
        *list = rest;
        return **value ? NULL : " has an empty value";
    }
    *value = at + 1;
    char *end = strchr(*value, '"');
    if (!end) return ": a quote is not closed";
    *end = 0;
    at = kvf__trim(end + 1);
    if (*at && *at != ',') return ": want a comma after a quote";
    *list = *at ? at + 1 : NULL;
    return NULL;
}
