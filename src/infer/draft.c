/* Drafts by prompt lookup (Saxena, prompt-lookup-decoding, 2023): the last tokens of a row are
 * looked up in its prompt and in what it has written, and what followed them there is the guess. Of
 * several places the one counts where most tokens before are the same, of those the last. */
#include "draft.h"

enum { FEWEST = 2, ENOUGH = 4 }; /* last tokens that are compared */

static int32_t token_at(const kvf__live_row *row, int64_t i)
{
    const kvf__row_request *ask = &row->request;
    return i < ask->n ? ask->prompt[i] : row->completion.out.data[i - ask->n];
}

/* How many tokens are the same up to a and up to b, a < b. */
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
    for (; from < n && k < most; k++) { /* past the end of the row the guess goes on in itself */
        out[k] = from + k < n ? token_at(row, from + k) : out[from + k - n];
        if (out[k] < 0) break; /* a virtual token */
    }
    return k;
}
