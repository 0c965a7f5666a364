/* Names that are not known: the nearest one that is, and the line that names it. */
#include "cli_int.h"

#include <string.h>

enum { LONGEST_NAME = 31 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Letters to insert, remove, change or swap with the next to come from a[n] to b (Damerau). */
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

void cli_nearest_try(cli_nearest *nearest, const char *name)
{
    size_t n = nearest->n;
    if (!n || n > LONGEST_NAME || strlen(name) > LONGEST_NAME) return;
    int far = distance(nearest->word, n, name);
    if (!far || far > 1 + (int)n / 4 || (nearest->name && far >= nearest->far)) return;
    nearest->name = name;
    nearest->far = far;
}

static const char *nearest_option(const cli_command *command, const char *name, size_t n)
{
    const kvf_option_row *row;
    cli_nearest nearest = {.word = name, .n = n};
    for (size_t i = 0; (row = cli_row(command, i)) != NULL; i++)
        cli_nearest_try(&nearest, row->name);
    return nearest.name;
}

int cli_unknown_option(const cli_command *command, const cli_given *given, const char *name,
                       size_t n)
{
    char line[256], word[64], near[64] = "";
    const char *dashes = given->file ? "" : "--", *quote = given->file ? "\"" : "";
    snprintf(word, sizeof word, "%.*s", (int)n, name);
    const char *why = command->refusal ? command->refusal(word) : NULL;
    const char *nearest = nearest_option(command, name, n);
    if (nearest) snprintf(near, sizeof near, ", the nearest is %s%s", dashes, nearest);
    if (why)
        snprintf(line, sizeof line, "--%s: %s", word, why);
    else
        snprintf(line, sizeof line, "option %s%s%s%s is not known%s", dashes, quote, word, quote,
                 near);
    return cli_misuse_at(command, given, line);
}
