/* Drafts by prompt lookup (Saxena, prompt-lookup-decoding, 2023): finds the last tokens of a row
 * earlier in its prompt or text, and drafts the tokens that followed there. Among several places it
 * prefers the longest match, then the latest. */
#include "draft.h"

enum { FEWEST = 2, ENOUGH = 4 }; /* shortest match; length at which the search stops */

static int32_t token_at(const kvf__live_row *row, int64_t i)
{
    const kvf__row_request *ask = &row->request;
    return i < ask->n ? ask->prompt[i] : row->completion.out.data[i - ask->n];
}

/* Returns the number of equal tokens before a and before b, a < b. */
static int64_t alike(const kvf__live_row *row, int64_t a, int64_t b)
{
    int64_t n = 0;
    while (n < ENOUGH && n <= a && token_at(row, a - n) == token_at(row, b - n))
        n++;
    return n;
}

int64_t kvf__draft(const kvf__live_row *row, int64_t most, int32_t *out)
{
    const int64_t n = row->request.n + (int64_t)row->completion.out.n;
    int64_t from = n, best = FEWEST - 1, k = 0;
    for (int64_t i = n - 2; i >= 0 && best < ENOUGH; i--) {
        const int64_t same = alike(row, i, n - 1);
        if (same <= best) continue;
        best = same;
        from = i + 1;
    }
    for (; from < n && k < most; k++) { /* past the end of the row the draft repeats itself */
        out[k] = from + k < n ? token_at(row, from + k) : out[from + k - n];
        if (out[k] < 0) break; /* stop at a virtual token */
    }
    return k;
}
