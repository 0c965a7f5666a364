/* Names of classes and tags: learnt from the training file, or given by --labels or the run file.
 * The ids of learnt names are indices of the sorted list, so they do not depend on the order of
 * rows. */
#include "infile.h"
#include "loader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

kvf_status kvf__label_set_copy(kvf_ctx *ctx, const kvf__label_set *from, kvf__label_set *out)
{
    kvf__label_set set = {0};
    kvf_status st = kvf__alloc_array(ctx, from->n, sizeof *set.names, &set.names);
    for (; !st && set.n < from->n; set.n += !st)
        st = kvf__strdup(ctx, from->names[set.n], &set.names[set.n]);
    KVF__GIVE(st, out, set, kvf__label_set_done(&set));
    return st;
}

void kvf__label_set_done(kvf__label_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        kvf__free(set->names[i]);
    kvf__free(set->names);
    *set = (kvf__label_set){0};
}

/* Adds the name at text[0 .. n) to the set. */
static kvf_status add_name(kvf_ctx *ctx, const char *option, const char *text, size_t n,
                           kvf__label_set *set)
{
    size_t bytes = set->n * sizeof *set->names;
    kvf__trim_space(&text, &n);
    if (!n) return kvf__fail(ctx, KVF_EUSAGE, "--%s: name %zu is empty", option, set->n + 1);
    if (memchr(text, 0, n))
        return kvf__fail(ctx, KVF_EUSAGE, "--%s: name %zu holds U+0000", option, set->n + 1);
    KVF_TRY(kvf__grow(ctx, &set->names, bytes, bytes + sizeof *set->names));
    KVF_TRY(kvf__strndup(ctx, text, n, &set->names[set->n]));
    set->n++;
    for (size_t i = 0; i + 1 < set->n; i++)
        if (!strcmp(set->names[i], set->names[set->n - 1]))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s: \"%s\" is given twice", option, set->names[i]);
    return KVF_OK;
}

static kvf_status read_names(kvf_ctx *ctx, const char *option, const char *path,
                             kvf__label_set *set)
{
    kvf__buf text = {0};
    const char *line = NULL;
    size_t at = 0, n = 0;
    kvf_status st = kvf__read_file(ctx, path, (size_t)1 << 24, &text);
    if (!st) st = kvf__utf8_check(ctx, path, text.data, text.n, true);
    while (!st && kvf__next_line(text.data, text.n, &at, &line, &n))
        if (!kvf__is_blank_line(line, n)) st = add_name(ctx, option, line, n, set);
    kvf__buf_done(&text);
    return st;
}

static kvf_status split_names(kvf_ctx *ctx, const char *option, const char *text,
                              kvf__label_set *set)
{
    KVF_TRY(kvf__utf8_check(ctx, "--labels", text, strlen(text), false));
    for (size_t n; text; text = text[n] ? text + n + 1 : NULL) {
        n = strcspn(text, ",");
        KVF_TRY(add_name(ctx, option, text, n, set));
    }
    return KVF_OK;
}

kvf_status kvf__label_set_parse(kvf_ctx *ctx, const char *option, const char *text,
                                kvf__label_set *out)
{
    kvf__label_set set = {0};
    kvf_status st = *text == '@' ? read_names(ctx, option, text + 1, &set)
                                 : split_names(ctx, option, text, &set);
    if (!st && set.n < 2)
        st = kvf__fail(ctx, KVF_EUSAGE, "--%s \"%s\": want two names or more", option, text);
    KVF__GIVE(st, out, set, kvf__label_set_done(&set));
    return st;
}

bool kvf__label_set_same(const kvf__label_set *a, const kvf__label_set *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = !strcmp(a->names[i], b->names[i]);
    return same;
}

int32_t kvf__label_set_find(const kvf__label_set *set, const char *name)
{
    for (size_t i = 0; i < set->n; i++)
        if (!strcmp(set->names[i], name)) return (int32_t)i;
    return -1;
}

kvf_status kvf__labels_init(kvf_ctx *ctx, kvf__labels *labels, const kvf__label_set *given)
{
    labels->given = given;
    for (size_t i = 0; given && i < given->n; i++)
        KVF_TRY(kvf__map_put(ctx, &labels->index, given->names[i], strlen(given->names[i]),
                             (int64_t)i));
    return KVF_OK;
}

void kvf__labels_done(kvf__labels *labels)
{
    kvf__label_set_done(&labels->learnt);
    kvf__map_done(&labels->index);
    *labels = (kvf__labels){0};
}

/* Writes "a, b, c" of the given set, cut after 20 names. */
static void list_names(const kvf__label_set *set, char *out, size_t bytes)
{
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0; i < set->n && at < bytes; i++) {
        int n = snprintf(out + at, bytes - at, "%s%s", i ? ", " : "",
                         i < 20 ? set->names[i] : "...");
        at += n > 0 ? (size_t)n : 0;
        if (i == 20) return;
    }
}

static bool read_number(const char *text, double *out)
{
    char *end = NULL;
    *out = strtod(text, &end);
    return end != text && !*end && isfinite(*out);
}

bool kvf__labels_is_none(const kvf__labels *labels, const char *text)
{
    const bool dash = !strcmp(text, "-"), minus_one = !strcmp(text, "-1");
    if (labels->given)
        return !*text || ((dash || minus_one) && kvf__label_set_find(labels->given, text) < 0);
    return !*text || (dash && labels->dash) || (minus_one && labels->minus_one);
}

bool kvf__labels_find_none(kvf__labels *labels)
{
    const kvf__label_set *set = &labels->learnt;
    int64_t plus, at;
    char name[24];
    size_t n = 0;
    if (labels->given) return false;
    const bool dash = kvf__map_get(&labels->index, "-", 1, &at),
               minus_one = kvf__map_get(&labels->index, "-1", 2, &at);
    const size_t others = set->n - dash - minus_one;
    do
        snprintf(name, sizeof name, "%zu", n);
    while (kvf__map_get(&labels->index, name, strlen(name), &at) && ++n);
    labels->dash = dash && others > 1 && !kvf__map_get(&labels->index, "+", 1, &plus);
    labels->minus_one = minus_one && others > 1 && others == n;
    return labels->dash || labels->minus_one;
}

/* Reads a label as an index of the given set, if none of the set's names is a number. */
static bool number_in(kvf__labels *labels, const char *name, int32_t *id)
{
    double number = 0, other;
    if (labels->elsewhere || !read_number(name, &number) || number != floor(number) || number < 0 ||
        number >= (double)labels->given->n)
        return false;
    for (size_t i = 0; i < labels->given->n; i++)
        if (read_number(labels->given->names[i], &other)) return false;
    *id = (int32_t)number;
    return labels->numbers = true;
}

kvf_status kvf__labels_id(kvf_ctx *ctx, kvf__labels *labels, const char *where, const char *name,
                          int32_t *id)
{
    char known[512];
    int64_t found = 0;
    kvf__label_set *set = &labels->learnt;
    if (kvf__map_get(&labels->index, name, strlen(name), &found)) {
        *id = (int32_t)found;
        return KVF_OK;
    }
    if (labels->given && number_in(labels, name, id)) return KVF_OK;
    if (labels->given) {
        list_names(labels->given, known, sizeof known);
        return kvf__fail(ctx, KVF_EDATA, "%s: label \"%s\" is not one of %s%s", where, name, known,
                         labels->elsewhere
                             ? ", the labels of the training data: list all labels with --labels"
                             : "");
    }
    KVF_TRY(kvf__reserve(ctx, &set->names, &labels->cap, set->n + 1, sizeof *set->names));
    KVF_TRY(kvf__strdup(ctx, name, &set->names[set->n]));
    *id = (int32_t)set->n++;
    return kvf__map_put(ctx, &labels->index, name, strlen(name), *id);
}

typedef struct named {
    char *name;
    double number;
    int32_t id;
} named;

static int by_name(const void *x, const void *y)
{
    const named *a = x, *b = y;
    return strcmp(a->name, b->name);
}

static int by_number(const void *x, const void *y)
{
    const named *a = x, *b = y;
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return by_name(x, y);
}

kvf_status kvf__labels_sort(kvf_ctx *ctx, kvf__labels *labels, int32_t **order)
{
    kvf__label_set *set = &labels->learnt;
    named *list = NULL;
    bool numbers = true;
    KVF_TRY(kvf__alloc_array(ctx, set->n, sizeof *list, &list));
    kvf_status st = kvf__alloc_array(ctx, set->n, sizeof **order, order);
    for (size_t i = 0; !st && i < set->n; i++) {
        list[i] = (named){.name = set->names[i], .id = (int32_t)i};
        numbers = read_number(list[i].name, &list[i].number) && numbers;
    }
    if (!st) qsort(list, set->n, sizeof *list, numbers ? by_number : by_name);
    for (size_t i = 0; !st && i < set->n; i++) {
        set->names[i] = list[i].name;
        (*order)[list[i].id] = (int32_t)i;
    }
    kvf__free(list);
    return st;
}

kvf_status kvf__label_set_sort(kvf_ctx *ctx, kvf__label_set *set)
{
    kvf__labels labels = {.learnt = *set};
    int32_t *order = NULL;
    kvf_status st = kvf__labels_sort(ctx, &labels, &order);
    *set = labels.learnt;
    kvf__free(order);
    return st;
}
