/* Groups and contexts of a data set, for prediction and metrics: which rows form an example, and
 * which context bytes belong to tokens of a row. */
#include "loader.h"

#include <assert.h>
#include <string.h>

size_t kvf__source_item_bytes(const kvf__source *source, int64_t i)
{
    return source->item_bytes ? source->item_bytes[i] : strlen(source->items[i]);
}

int64_t kvf__group_count(const kvf__dataset *dataset)
{
    bool parts = dataset->group || (dataset->sources && dataset->sources->first_row);
    return parts ? dataset->n_groups : dataset->n;
}

int64_t kvf__group_of(const kvf__dataset *dataset, int64_t row)
{
    if (!dataset->group) return row;
    int64_t low = 0, high = dataset->n_groups; /* group[low] <= row < group[high] */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (dataset->group[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int64_t kvf__whole_groups(const kvf__dataset *dataset, const int64_t *rows, int64_t n, int64_t most)
{
    if (!dataset->group) return n < most ? n : (most > 0 ? most : 1);
    int64_t taken = 0;
    while (taken < n) {
        int64_t group = kvf__group_of(dataset, rows[taken]);
        int64_t size = dataset->group[group + 1] - dataset->group[group];
        if (taken && taken + size > most) break;
        taken += size;
    }
    return taken < n ? taken : n;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

bool kvf__context_bytes(const kvf__dataset *dataset, int64_t row, int64_t first, int64_t last,
                        int64_t *from, int64_t *to)
{
    assert(dataset->sources && dataset->sources->windows);
    const kvf__window *window = &dataset->sources->windows[row];
    const kvf__source *source = &dataset->sources->group[kvf__group_of(dataset, row)];
    if (first < window->at || last < first || last >= window->at + window->n) return false;
    *from = source->offsets[2 * (window->first + first - window->at)];
    *to = source->offsets[2 * (window->first + last - window->at) + 1];
    while (*from < *to &&
           is_blank(source->text[*from])) /* byte-level tokens contain the blank before */
        ++*from;
    while (*from < *to && is_blank(source->text[*to - 1]))
        --*to;
    return true;
}

int64_t kvf__example_length(const kvf__dataset *dataset, int64_t example)
{
    return dataset->start[example + 1] - dataset->start[example];
}

int64_t kvf__longest_example(const kvf__dataset *dataset)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < dataset->n; i++)
        if (kvf__example_length(dataset, i) > longest) longest = kvf__example_length(dataset, i);
    return longest;
}

int64_t kvf__example_labels(const kvf__dataset *dataset, int64_t example)
{
    int64_t n = 0, first = dataset->start[example] + (dataset->task == KVF__TASK_LM);
    for (int64_t i = first; i < dataset->start[example + 1]; i++)
        n += dataset->labels[i] != KVF__NO_LABEL;
    return n;
}

kvf__dataset kvf__dataset_first(const kvf__dataset *dataset, int64_t rows, int64_t tokens)
{
    kvf__dataset first = *dataset;
    const int64_t groups = kvf__group_count(dataset);

    first.n = first.n_labels = 0;
    for (int64_t g = 0; g < groups; g++) {
        const int64_t n = dataset->group ? dataset->group[g + 1] : g + 1;
        if (first.n && (n > rows || dataset->start[n] > tokens)) break;
        first.n = n;
        first.n_groups = g + 1;
    }
    for (int64_t i = 0; i < first.n; i++)
        first.n_labels += kvf__example_labels(dataset, i);
    return first;
}
