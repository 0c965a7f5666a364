/* Suggests the known name nearest to a mistyped one. */
#include "option_table.h"

#include <string.h>

enum { LONGEST_NAME = 31 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Returns the number of letters to insert, remove, replace or transpose between a[n] and b (Damerau
 * distance). */
static int distance(const char *a, size_t n, const char *b)
{
    int rows[3][LONGEST_NAME + 1], *before = rows[0], *last = rows[1], *row = rows[2];
    const size_t m = strlen(b);
    for (size_t k = 0; k <= m; k++)
        row[k] = (int)k;
    for (size_t i = 1; i <= n; i++) {
        int *free_row = before;
        before = last;
        last = row;
        row = free_row;
        row[0] = (int)i;
        for (size_t k = 1; k <= m; k++) {
            row[k] = least(least(last[k], row[k - 1]) + 1, last[k - 1] + (a[i - 1] != b[k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                row[k] = least(row[k], before[k - 2] + 1);
        }
    }
    return row[m];
}

void kvf__nearest_try(kvf__nearest *nearest, const char *name)
{
    size_t n = nearest->n;
    if (!n || n > LONGEST_NAME || strlen(name) > LONGEST_NAME) return;
    int far = distance(nearest->word, n, name);
    if (!far || far > 1 + (int)n / 4 || (nearest->name && far >= nearest->far)) return;
    nearest->name = name;
    nearest->far = far;
}
