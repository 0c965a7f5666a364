/* Keys and order of the cache of --keep-states. It holds rows [tokens, C] of f32, the type of the
 * residual stream, so that cached states have the same bits as computed ones. states_store.c stores
 * the floats.
 *
 * Common prefixes are stored with every row, because the rows that share them differ between steps.
 * A batch that is cached whole is one row of all its tokens. */
#include "kept_states.h"

#include "attention.h"
#include "hash.h"
#include "states_store.h"

#include <string.h>

struct kvf__states {
    kvf_ctx *ctx;
    kvf__states_plan plan; /* plan of the current runs */
    kvf__hash *hash;
    kvf__states_store store;
    float *x; /* [plan.batch_tokens, C] states of the current batch */
    kvf__states_counts counts;
    uint64_t (*seen)[2]; /* [n_seen] hashes of rows that have space */
    size_t n_seen;
};

kvf_status kvf__states_create(kvf_ctx *ctx, const kvf__states_plan *plan, kvf__states **out)
{
    kvf__states *s = NULL;
    KVF_TRY(kvf__alloc(ctx, sizeof *s, &s));
    *s = (kvf__states){.ctx = ctx, .store = {.fd = -1}};
    kvf_status st = kvf__hash_create(ctx, &s->hash);
    if (!st) st = kvf__states_store_init(ctx, plan->memory, plan->beside, &s->store);
    if (!st) st = kvf__states_reserve(s, plan);
    KVF__GIVE(st, out, s, kvf__states_free(s));
    return st;
}

kvf_status kvf__states_reserve(kvf__states *s, const kvf__states_plan *plan)
{
    const int64_t most = s->plan.batch_tokens;
    float *x = NULL;
    KVF_TRY(kvf__states_store_reserve(&s->store, plan->rows, plan->tokens * plan->width));
    if (plan->batch_tokens > most) {
        KVF_TRY(
            kvf__alloc_array(s->ctx, (size_t)(plan->batch_tokens * plan->width), sizeof *x, &x));
        kvf__free(s->x);
        s->x = x;
    }
    s->plan = *plan;
    if (most > plan->batch_tokens) s->plan.batch_tokens = most;
    return KVF_OK;
}

void kvf__states_free(kvf__states *s)
{
    if (!s) return;
    kvf__states_store_done(&s->store);
    kvf__hash_free(s->hash);
    kvf__free(s->x);
    kvf__free(s->seen);
    kvf__free(s);
}

kvf_status kvf__states_new_rows(kvf__states *s, const void *rows, const int64_t numbers[3],
                                bool *out)
{
    uint64_t key[2];
    const size_t bytes = s->n_seen * sizeof *s->seen;
    kvf__hash_restart(s->hash);
    kvf__hash_add(s->hash, &rows, sizeof rows);
    kvf__hash_add(s->hash, numbers, 3 * sizeof *numbers);
    kvf__hash_words(s->hash, key);
    *out = false;
    for (size_t i = 0; i < s->n_seen; i++)
        if (!memcmp(s->seen[i], key, sizeof key)) return KVF_OK;
    KVF_TRY(kvf__grow(s->ctx, &s->seen, bytes, bytes + sizeof key));
    memcpy(s->seen[s->n_seen++], key, sizeof key);
    *out = true;
    return KVF_OK;
}

/* ---- rows of a batch ------------------------------------------------------------------------- */

/* A row with its common prefixes, outermost first. */
typedef struct whole_row {
    const kvf__condition *condition;
    int64_t part[KVF__ATTN_SEGS]; /* rows of the batch */
    int n_parts;
    int64_t tokens;
} whole_row;

/* Returns the rows whose states are cached. */
static const kvf__batch *rows_of(const kvf__input *input)
{
    return input->batch->source ? input->batch->source : input->batch;
}

static const kvf__condition *condition_of(const kvf__input *input, int64_t r)
{
    int64_t end = 0;
    for (int64_t i = 0; i < input->n_sections; i++) {
        end += input->sections[i].rows;
        if (r < end) return &input->sections[i].condition;
    }
    return &input->condition;
}

/* Returns false if row r is itself a common prefix. */
static bool view_row(const kvf__input *input, int64_t r, whole_row *row)
{
    const kvf__batch *b = rows_of(input);
    *row = (whole_row){.condition = condition_of(input, r)};
    if (b->example[r] < 0) return false;
    for (int64_t p = r; p >= 0; p = b->parent ? b->parent[p] : -1) {
        memmove(row->part + 1, row->part, (size_t)row->n_parts++ * sizeof *row->part);
        row->part[0] = p;
        row->tokens += b->start[p + 1] - b->start[p];
    }
    return true;
}

/* Begins a key with the facts that rows and batches share. */
static void begin_key(kvf__states *s, const kvf__condition *condition, int64_t n)
{
    const int64_t numbers[] = {s->plan.layer, s->plan.width, condition->position_start, n};
    kvf__hash_restart(s->hash);
    kvf__hash_add(s->hash, numbers, sizeof numbers);
    if (s->plan.base) kvf__hash_add(s->hash, s->plan.base, strlen(s->plan.base) + 1);
    if (s->plan.precision) kvf__hash_add(s->hash, s->plan.precision, strlen(s->plan.precision) + 1);
}

/* Adds position and length of a prefix inside row r. */
static void add_infix(kvf__states *s, const kvf__batch *b, const kvf__condition *condition,
                      int64_t r)
{
    const bool inside = b->infix_at && condition->prefix;
    const int64_t numbers[] = {inside ? b->infix_at[r] : -1, inside ? condition->prefix->P : 0};
    kvf__hash_add(s->hash, numbers, sizeof numbers);
}

static void add_tokens(kvf__states *s, const kvf__batch *b, int64_t from, int64_t n)
{
    kvf__hash_add(s->hash, b->ids + from, (size_t)n * sizeof *b->ids);
    if (b->types) kvf__hash_add(s->hash, b->types + from, (size_t)n * sizeof *b->types);
}

static void key_of(kvf__states *s, const kvf__batch *b, const whole_row *row, uint64_t key[2])
{
    begin_key(s, row->condition, row->tokens);
    add_infix(s, b, row->condition, row->part[row->n_parts - 1]);
    for (int i = 0; i < row->n_parts; i++) {
        const int64_t from = b->start[row->part[i]];
        add_tokens(s, b, from, b->start[row->part[i] + 1] - from);
    }
    kvf__hash_words(s->hash, key);
}

/* Makes the key of a whole batch, including the division of its tokens into rows and shared
 * prefixes. */
static void key_of_batch(kvf__states *s, const kvf__input *input, uint64_t key[2])
{
    const kvf__batch *b = rows_of(input);
    begin_key(s, &input->condition, -b->n_rows);
    kvf__hash_add(s->hash, b->start, (size_t)(b->n_rows + 1) * sizeof *b->start);
    if (b->parent) kvf__hash_add(s->hash, b->parent, (size_t)b->n_rows * sizeof *b->parent);
    for (int64_t r = 0; b->infix_at && r < b->n_rows; r++)
        add_infix(s, b, &input->condition, r);
    add_tokens(s, b, 0, b->n_tokens);
    kvf__hash_words(s->hash, key);
}

/* Copies all tokens of a row, which are in several parts of the batch; row NULL: the whole batch.
 */
static bool move_row(kvf__states *s, bool put, const kvf__batch *b, const whole_row *row,
                     const kvf__stored *item)
{
    const int64_t C = s->plan.width, n_parts = row ? row->n_parts : 1;
    for (int64_t i = 0, at = 0; i < n_parts; i++) {
        const int64_t from = row ? b->start[row->part[i]] : 0,
                      n = row ? b->start[row->part[i] + 1] - from : b->n_tokens;
        float *x = s->x + from * C;
        if (!(put ? kvf__states_store_put(&s->store, item, at, x, n * C)
                  : kvf__states_store_get(&s->store, item, at, x, n * C)))
            return false;
        at += n * C;
    }
    return true;
}

static bool keep_row(kvf__states *s, const kvf__batch *b, const whole_row *row,
                     const uint64_t key[2])
{
    const int64_t n = (row ? row->tokens : b->n_tokens) * s->plan.width;
    kvf__stored item;
    if (kvf__states_store_find(&s->store, key)) return true;
    if (kvf__states_store_begin(&s->store, key, n, &item) && move_row(s, true, b, row, &item))
        kvf__states_store_end(&s->store, &item);
    return true;
}

/* ---- a batch --------------------------------------------------------------------------------- */

static bool fill_row(kvf__states *s, const kvf__batch *b, const whole_row *row,
                     const uint64_t key[2])
{
    const kvf__stored *item = kvf__states_store_find(&s->store, key);
    const int64_t n = (row ? row->tokens : b->n_tokens) * s->plan.width;
    return item && item->n == n && move_row(s, false, b, row, item);
}

/* Visits the cached rows, or the whole batch, until one fails. */
static bool each_row(kvf__states *s, const kvf__input *input,
                     bool (*visit)(kvf__states *s, const kvf__batch *b, const whole_row *row,
                                   const uint64_t key[2]))
{
    const kvf__batch *b = rows_of(input);
    whole_row row;
    uint64_t key[2];
    if (input->entry.fixed) {
        key_of_batch(s, input, key);
        return visit(s, b, NULL, key);
    }
    for (int64_t r = 0; r < b->n_rows; r++) {
        if (!view_row(input, r, &row)) continue;
        key_of(s, b, &row, key);
        if (!visit(s, b, &row, key)) return false;
    }
    return true;
}

void kvf__states_enter(kvf__states *s, kvf__input *input, bool fixed)
{
    if (!s) return;
    input->entry = (kvf__entry){.layer = s->plan.layer, .x = s->x, .fixed = fixed};
    input->entry.known = each_row(s, input, fill_row);
    *(input->entry.known ? &s->counts.taken : &s->counts.computed) += rows_of(input)->n_tokens;
}

void kvf__states_keep(kvf__states *s, const kvf__input *input)
{
    if (s && !input->entry.known && !s->store.full) each_row(s, input, keep_row);
}

const char *kvf__states_news(kvf__states *s)
{
    if (!s || !s->store.full || s->store.said) return NULL;
    s->store.said = true;
    return s->store.line;
}

kvf__states_counts kvf__states_count(const kvf__states *s)
{
    kvf__states_counts counts = s->counts;
    counts.items = s->store.n;
    counts.in_memory = s->store.memory;
    counts.in_file = (size_t)s->store.end;
    return counts;
}
