/* The rows that bench trains on: random ids, since the time of a step does not depend on them, and
 * lengths as asked, since it does. */
#include "bench_int.h"
#include "infile.h"
#include "rng.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_STREAM 0x726f7773 /* "rows" */
#define MOST_BYTES  (1 << 24)  /* of a file of lengths */

typedef struct lengths {
    int64_t *at;
    size_t n;
} lengths;

/* Numbers apart by commas or white space. */
static kvf_status parse(kvf_ctx *ctx, const char *where, const char *text, lengths *out)
{
    static const char SEPARATORS[] = ", \t\r\n";
    KVF_TRY(kvf__alloc_array(ctx, strlen(text) / 2 + 1, sizeof *out->at, &out->at));
    for (text += strspn(text, SEPARATORS); *text; text += strspn(text, SEPARATORS)) {
        char *end = NULL;
        errno = 0;
        long long number = strtoll(text, &end, 10);
        size_t n = strcspn(text, SEPARATORS);
        if (errno || end != text + n || number < 2 || number > INT32_MAX)
            return kvf__fail(ctx, KVF_EUSAGE,
                             "%s: \"%.*s\" is no length of a row, want a whole number from 2 on",
                             where, (int)(n < 40 ? n : 40), text);
        out->at[out->n++] = number;
        text = end;
    }
    if (!out->n) return kvf__fail(ctx, KVF_EUSAGE, "%s: no lengths", where);
    return KVF_OK;
}

static kvf_status read_lengths(kvf_ctx *ctx, const kvf_bench_options *o, lengths *out)
{
    const char *text = o->lengths;
    if (text && text[strspn(text, "0123456789, ")]) { /* more than a list: a path */
        kvf__buf file = {0};
        KVF_TRY(kvf__read_file(ctx, text, MOST_BYTES, &file));
        kvf_status st = parse(ctx, text, file.data ? file.data : "", out);
        kvf__buf_done(&file);
        return st;
    }
    if (text) return parse(ctx, "--lengths", text, out);
    KVF_TRY(kvf__alloc_array(ctx, (size_t)o->batch, sizeof *out->at, &out->at));
    for (int64_t i = 0; i < o->batch; i++)
        out->at[i] = o->length;
    out->n = (size_t)o->batch;
    return KVF_OK;
}

static int64_t labels_of(int64_t length, double share)
{
    int64_t n = llround(share * (double)length);
    if (n < 1) n = 1;
    return n < length ? n : length - 1;
}

static void fill_row(kvf__dataset *set, int64_t from, int64_t length, double share, int64_t V,
                     kvf__rng *rng)
{
    int64_t labels = labels_of(length, share);
    for (int64_t i = 0; i < length; i++) {
        int32_t id = (int32_t)kvf__rng_below(rng, (uint64_t)V);
        set->ids[from + i] = id;
        set->labels[from + i] = i < length - labels ? KVF__NO_LABEL : id;
    }
    set->n_labels += labels;
}

static kvf_status fill_rows(kvf_ctx *ctx, const kvf_bench_options *o, const lengths *rows,
                            int64_t V, int64_t most, kvf__dataset *set)
{
    kvf__rng rng = kvf__rng_make(o->seed, (uint64_t)ROWS_STREAM << 32);
    int64_t total = 0;
    for (size_t i = 0; i < rows->n; i++) {
        if (rows->at[i] > most)
            return kvf__fail(ctx, KVF_EUSAGE,
                             "a row of %lld tokens: the model has room for %lld behind the prefix",
                             (long long)rows->at[i], (long long)most);
        total += rows->at[i];
    }
    KVF_TRY(kvf__dataset_alloc_rows(ctx, set, (int64_t)rows->n, total));
    for (size_t i = 0; i < rows->n; i++) {
        set->start[i + 1] = set->start[i] + rows->at[i];
        fill_row(set, set->start[i], rows->at[i], o->label_fraction, V, &rng);
    }
    return KVF_OK;
}

kvf_status kvf__bench_rows(kvf_ctx *ctx, const kvf_bench_options *options, int64_t V, int64_t most,
                           kvf__dataset *out)
{
    lengths rows = {0};
    kvf__dataset set = {0};
    kvf_status st = read_lengths(ctx, options, &rows);
    if (!st) st = fill_rows(ctx, options, &rows, V, most, &set);
    kvf__free(rows.at);
    if (st)
        kvf__dataset_done(&set);
    else
        *out = set;
    return st;
}
