/* Continuous batching (engine.c): rows are added and removed between steps, each with its own
 * prefix, sampling, seed and stop texts. A row gets the same completion as kvf_generate gives its
 * prompt alone, whatever other rows there are. */
#ifndef KVF_ENGINE_H
#define KVF_ENGINE_H

#include "row.h"

typedef struct kvf__engine kvf__engine;

typedef struct kvf__engine_stats {
    int64_t rows, waiting; /* rows that generate; rows with an unread prompt */
    int64_t prompt_tokens, new_tokens, steps, step_rows; /* totals since the engine was created */
    int64_t cached_tokens, cached_bytes; /* prompt tokens from the cache, in total; its memory */
    double prefill_seconds, decode_seconds;
} kvf__engine_stats;

kvf_status kvf__engine_create(kvf_ctx *ctx, kvf_base *base, int64_t rows, int64_t capacity,
                              kvf__engine **out);
void kvf__engine_free(kvf__engine *engine);
/* Keeps prompts in at most `bytes` of memory. EUSAGE: too few. A base with
 * an encoder, which reads prompts whole, keeps none. */
kvf_status kvf__engine_keep(kvf_ctx *ctx, kvf__engine *engine, size_t bytes);
bool kvf__engine_full(const kvf__engine *engine); /* true if no row can be added */
/* Returns the most tokens that a row may have with a prefix, prompt and completion. This function
 * and the next may be called from any thread. */
int64_t kvf__engine_capacity(const kvf__engine *engine, const kvf_prefix *prefix);
/* EDATA: one of the prompts [n] is empty, or too long for a completion with this prefix. */
kvf_status kvf__engine_check(kvf_ctx *ctx, const kvf__engine *engine, const kvf_prefix *prefix,
                             const kvf__ids *prompts, int64_t n);
/* Adds a row; *row identifies it until it ends. EDATA as in kvf__engine_check. */
kvf_status kvf__engine_add(kvf_ctx *ctx, kvf__engine *engine, const kvf__row_request *request,
                           int64_t *row);
/* Removes a row without calling its callback. */
void kvf__engine_remove(kvf_ctx *ctx, kvf__engine *engine, int64_t row);
/* Reads up to some hundred tokens of waiting prompts, long ones in parts, then decodes one token
 * for every running row, and calls the callbacks. Prompts that end in a step fail together. A row
 * without memory for its text fails alone. A failed step ends all rows and is returned. */
kvf_status kvf__engine_step(kvf_ctx *ctx, kvf__engine *engine);
kvf__engine_stats kvf__engine_stats_of(const kvf__engine *engine);

#endif
