/* Setup and end of a run with several processes (mpirun -n N kvfold train ...). Every rank opens
 * base and data and computes rows. Only rank 0 has encoder, optimizer and output; it decides each
 * next step and the end of the run.
 *
 * Before the other ranks open the base, rank 0 sends them the options of a run file (--resume) and
 * the chosen precision (--precision auto). They need only base and data. Then all ranks must agree.
 * If a rank failed, or has another base, other data or other options, the run ends on all ranks,
 * and rank 0 reports one line. */
#include "hash.h"
#include "ranks_int.h"

#include <stdlib.h>
#include <string.h>

#define RETURNED "rank 0 failed" /* never printed: rank 0 prints the reason */

typedef struct decision {
    int32_t status, resumed;
    int32_t precision; /* a kvf_precision */
    int64_t bytes;     /* bytes of the options that follow as JSON */
} decision;

typedef struct note {
    int32_t status;
    char base[33], data[33], valid[33], retention[33], options[33];
    char line[KVF__RANKS_LINE];
} note;

typedef struct verdict {
    int32_t status, finished;
    int64_t step;
} verdict;

int kvf_train_rank(const kvf_ctx *ctx)
{
    if (!ctx) return 0;
    const kvf__dist *dist = kvf__dist_joined(ctx);
    return dist ? dist->rank : 0;
}

bool kvf__ranks_follows(const kvf__ranks *ranks)
{
    return ranks && ranks->rank;
}

kvf_status kvf__ranks_fail(const kvf__run *run, int rank, kvf_status status, const char *line)
{
    const char *host = kvf__dist_host(run->ranks->dist, rank);
    if (!rank) return kvf__fail(run->ctx, status, "%s", line);
    return kvf__fail(run->ctx, status, "rank %d on %s: %s", rank, host, line);
}

/* ---- joining --------------------------------------------------------------------------------- */

kvf_status kvf__ranks_join(kvf_ctx *ctx, kvf__ranks **out)
{
    kvf__dist *dist = NULL;
    kvf__ranks *ranks = NULL;
    KVF_TRY(kvf__dist_join(ctx, &dist));
    if (!dist) return KVF_OK;
    kvf_status st = kvf__alloc(ctx, sizeof *ranks, &ranks);
    if (st) {
        dist->broken = true; /* otherwise the other ranks would wait for this one */
        return st;
    }
    ranks->dist = dist;
    ranks->rank = dist->rank;
    ranks->size = dist->size;
    *out = ranks;
    return KVF_OK;
}

void kvf__ranks_free(kvf__ranks *ranks)
{
    if (!ranks) return;
    kvf__free(ranks->rows);
    kvf__free(ranks->units);
    kvf__free(ranks->owner);
    kvf__free(ranks->load);
    kvf__free(ranks->reports);
    kvf__free(ranks);
}

/* ---- what rank 0 decided --------------------------------------------------------------------- */

static kvf_status send_decision(kvf__run *run, kvf_status st)
{
    kvf__dist *dist = run->ranks->dist;
    char *text = NULL;
    decision w = {.status = (int32_t)st,
                  .precision = (int32_t)run->options.precision,
                  .resumed = run->output.is_resumed};
    if (!st && run->output.is_resumed) {
        text = kvf_json_text(run->output.resumed.options, KVF_JSON_COMPACT);
        w.bytes = text ? (int64_t)strlen(text) : 0;
        if (!text) w.status = KVF_ENOMEM;
    }
    run->ranks->decided = true;
    kvf_status sent = kvf__dist_broadcast(run->ctx, dist, &w, sizeof w);
    if (!sent && w.bytes) sent = kvf__dist_broadcast(run->ctx, dist, text, (size_t)w.bytes);
    kvf_json_text_free(text);
    return sent ? sent : (kvf_status)w.status;
}

static kvf_status receive_options(kvf__run *run, int64_t bytes)
{
    char *text = NULL;
    KVF_TRY(kvf__alloc(run->ctx, (size_t)bytes, &text));
    kvf_status st = kvf__dist_broadcast(run->ctx, run->ranks->dist, text, (size_t)bytes);
    if (!st)
        st = kvf_json_parse(run->ctx, "rank 0", text, (size_t)bytes, &run->output.resumed.options);
    kvf__free(text);
    if (st) return st;
    run->output.is_resumed = true;
    return kvf__options_resume(run->ctx, run->options.out, &run->options,
                               run->output.resumed.options);
}

static kvf_status receive_decision(kvf__run *run)
{
    decision w;
    KVF_TRY(kvf__dist_broadcast(run->ctx, run->ranks->dist, &w, sizeof w));
    if (w.status) return kvf__fail(run->ctx, (kvf_status)w.status, RETURNED);
    if (w.resumed) KVF_TRY(receive_options(run, w.bytes));
    run->options.precision = (kvf_precision)w.precision;
    return KVF_OK;
}

kvf_status kvf__ranks_begin(kvf__run *run)
{
    if (!kvf__ranks_follows(run->ranks)) return KVF_OK;
    run->options.event = NULL; /* only rank 0 reports events */
    run->options.log = run->options.tensorboard = NULL;
    return receive_decision(run);
}

kvf_status kvf__ranks_decided(kvf__run *run)
{
    bool first = run->ranks && !run->ranks->rank && !run->ranks->decided;
    return first && run->options.precision != KVF_PRECISION_AUTO ? send_decision(run, KVF_OK)
                                                                 : KVF_OK;
}

/* ---- agreeing -------------------------------------------------------------------------------- */

static kvf_status hash_options(kvf__run *run, char hex[33])
{
    kvf_json *stored = NULL;
    kvf__hash *hash = NULL;
    KVF_TRY(kvf__options_store(run->ctx, &run->options, &stored));
    char *text = kvf_json_text(stored, KVF_JSON_COMPACT);
    kvf_json_free(stored);
    kvf_status st = text ? kvf__hash_create(run->ctx, &hash)
                         : kvf__fail(run->ctx, KVF_ENOMEM, "out of memory");
    if (!st) {
        kvf__hash_add(hash, text, strlen(text));
        kvf__hash_hex(hash, hex);
    }
    kvf__hash_free(hash);
    kvf_json_text_free(text);
    return st;
}

static note describe(kvf__run *run, const kvf__rows_hashes *hashes, kvf_status st)
{
    note mine = {0};
    if (!st) st = hash_options(run, mine.options);
    mine.status = (int32_t)st;
    if (st) {
        snprintf(mine.line, sizeof mine.line, "%s", kvf_ctx_error(run->ctx));
        return mine;
    }
    memcpy(mine.base, run->base->hash, sizeof mine.base);
    snprintf(mine.data, sizeof mine.data, "%s", hashes->data);
    snprintf(mine.valid, sizeof mine.valid, "%s", hashes->valid);
    snprintf(mine.retention, sizeof mine.retention, "%s", hashes->retention);
    return mine;
}

static kvf_status compare(const kvf__run *run, const note *first, const note *other, int rank)
{
    const char *what = strcmp(first->base, other->base)             ? "base"
                       : strcmp(first->data, other->data)           ? "data file"
                       : strcmp(first->valid, other->valid)         ? "validation file"
                       : strcmp(first->retention, other->retention) ? "retention file"
                       : strcmp(first->options, other->options)     ? "list of options"
                                                                    : NULL;
    if (!what) return KVF_OK;
    return kvf__fail(run->ctx, KVF_EMISMATCH, "rank %d on %s has a different %s than rank 0 on %s",
                     rank, kvf__dist_host(run->ranks->dist, rank), what,
                     kvf__dist_host(run->ranks->dist, 0));
}

/* Returns the first failure or difference, in rank order. */
static kvf_status judge(const kvf__run *run, const note *notes)
{
    for (int r = 0; r < run->ranks->size; r++) {
        if (notes[r].status)
            return kvf__ranks_fail(run, r, (kvf_status)notes[r].status, notes[r].line);
        KVF_TRY(compare(run, &notes[0], &notes[r], r));
    }
    return KVF_OK;
}

static kvf_status agree_as_first(kvf__run *run, const note *mine, bool finished)
{
    note *notes = NULL;
    kvf__dist *dist = run->ranks->dist;
    kvf_status st = kvf__alloc_array(run->ctx, (size_t)run->ranks->size, sizeof *notes, &notes);
    if (st) {
        dist->broken = true;
        return st;
    }
    st = kvf__dist_gather(run->ctx, dist, mine, sizeof *mine, notes);
    if (!st) st = judge(run, notes);
    kvf__free(notes);
    verdict v = {.status = (int32_t)st, .finished = finished, .step = run->progress.step};
    kvf_status sent = kvf__dist_broadcast(run->ctx, dist, &v, sizeof v);
    return st ? st : sent;
}

kvf_status kvf__ranks_agree(kvf__run *run, const kvf__rows_hashes *hashes, kvf_status st,
                            bool *finished)
{
    verdict v;
    if (!run->ranks) return st;
    kvf__dist *dist = run->ranks->dist;
    note mine = describe(run, hashes, st);
    if (!run->ranks->rank) {
        if (!run->ranks->decided) (void)send_decision(run, st ? st : KVF_EINTERNAL);
        return agree_as_first(run, &mine, *finished);
    }
    KVF_TRY(kvf__dist_gather(run->ctx, dist, &mine, sizeof mine, NULL));
    KVF_TRY(kvf__dist_broadcast(run->ctx, dist, &v, sizeof v));
    if (v.status) return kvf__fail(run->ctx, (kvf_status)v.status, RETURNED);
    *finished = v.finished;
    run->progress.step = v.step;
    return KVF_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

int kvf__ranks_signal(const kvf_ctx *ctx, const kvf__ranks *ranks)
{
    const int own = kvf__ctx_stop(ctx);
    return own ? own : ranks ? ranks->signal : 0;
}

kvf_status kvf__ranks_end(kvf__run *run, kvf_status st)
{
    if (!run->ranks) return st;
    if (run->ranks->dist->broken)
        return kvf__fail(run->ctx, st, "%s; the last saved file is intact, --resume continues",
                         kvf_ctx_error(run->ctx));
    kvf__order order = {.kind = KVF__ORDER_END,
                        .status = (int32_t)st,
                        .signal = kvf__ranks_signal(run->ctx, run->ranks)};
    kvf_status sent = kvf__dist_broadcast(NULL, run->ranks->dist, &order, sizeof order);
    return st ? st : sent;
}

int kvf__ranks_size(const kvf__ranks *ranks)
{
    return ranks ? ranks->size : 1;
}

void kvf__ranks_result(const kvf_ctx *ctx, const kvf__ranks *ranks, kvf_train_result *result)
{
    result->ranks = kvf__ranks_size(ranks);
    result->signal = kvf__ranks_signal(ctx, ranks);
    result->wait_seconds = ranks ? ranks->dist->waited - ranks->waited : 0;
}
