/* Inside src/train: what bench.c uses of bench_rows.c. */
#ifndef KVF_BENCH_INT_H
#define KVF_BENCH_INT_H

#include <kvfold/bench.h>

#include "data_int.h"

/* Rows of random ids below V, of options->length or options->lengths tokens, the last share
 * labelled. `most`: longest row that fits. EUSAGE; EIO for a file of lengths. */
kvf_status kvf__bench_rows(kvf_ctx *ctx, const kvf_bench_options *options, int64_t V, int64_t most,
                           kvf__dataset *out);

#endif
