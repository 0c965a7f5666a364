/* The store of --keep-states: rows [tokens, C] of f32, the residual stream's own type, so that what
 * is read back has the bits of what was computed. A row lies whole in memory or whole in the file.
 *
 * Common prefixes are stored with every row that has them: which rows share them differs from step
 * to step. A batch that is kept whole is one row of all its tokens. */
#include "kept_states.h"

#include "attention.h"
#include "hash.h"
#include "infile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct kept_row {
    uint64_t key[2];
    int64_t at, n; /* floats: first, how many; n = 0: an empty place */
} kept_row;

struct kvf__states {
    kvf_ctx *ctx;
    kvf__states_plan plan;
    kvf__hash *hash;
    kept_row *row; /* [places] a hash table */
    int64_t places, most, n;
    float *memory, *x;         /* [room], [batch_tokens, C] of the batch at hand */
    int64_t room, used, filed; /* floats; those of the file count from `room` on */
    char *folder;
    int fd; /* -1: none yet */
    bool full, said;
    char line[256]; /* why */
    kvf__states_counts counts;
};

kvf_status kvf__states_create(kvf_ctx *ctx, const kvf__states_plan *plan, kvf__states **out)
{
    kvf__states *s = NULL;
    size_t all;
    KVF_TRY(kvf__alloc(ctx, sizeof *s, &s));
    *s = (kvf__states){.ctx = ctx, .plan = *plan, .most = plan->rows, .places = 2, .fd = -1};
    if (!kvf__mul((size_t)(plan->tokens * plan->width), sizeof(float), &all)) all = SIZE_MAX;
    s->room = (int64_t)((all < plan->memory ? all : plan->memory) / sizeof(float));
    while (s->places < 2 * plan->rows)
        s->places *= 2;
    kvf_status st = kvf__hash_create(ctx, &s->hash);
    if (!st) st = kvf__path_folder(ctx, plan->beside, &s->folder);
    if (!st) st = kvf__alloc_array(ctx, (size_t)s->places, sizeof *s->row, &s->row);
    if (!st) st = kvf__alloc_array(ctx, (size_t)s->room, sizeof(float), &s->memory);
    if (!st)
        st = kvf__alloc_array(ctx, (size_t)(plan->batch_tokens * plan->width), sizeof(float),
                              &s->x);
    if (st)
        kvf__states_free(s);
    else
        *out = s;
    return st;
}

void kvf__states_free(kvf__states *s)
{
    if (!s) return;
    if (s->fd >= 0) close(s->fd);
    kvf__hash_free(s->hash);
    kvf__free(s->folder);
    kvf__free(s->row);
    kvf__free(s->memory);
    kvf__free(s->x);
    kvf__free(s);
}

/* ---- rows of a batch ------------------------------------------------------------------------- */

/* A row with the common prefixes before it, outermost first. */
typedef struct whole_row {
    const kvf__condition *condition;
    int64_t part[KVF__ATTN_SEGS]; /* rows of the batch */
    int n_parts;
    int64_t tokens;
} whole_row;

/* The rows whose states are kept. */
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

/* False: row r is itself a common prefix. */
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

/* Where the prefix is that stands inside of row r, and how long it is. */
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
    const int64_t numbers[] = {s->plan.layer, row->condition->position_start, row->tokens};
    kvf__hash_restart(s->hash);
    kvf__hash_add(s->hash, numbers, sizeof numbers);
    add_infix(s, b, row->condition, row->part[row->n_parts - 1]);
    for (int i = 0; i < row->n_parts; i++) {
        const int64_t from = b->start[row->part[i]];
        add_tokens(s, b, from, b->start[row->part[i] + 1] - from);
    }
    kvf__hash_words(s->hash, key);
}

/* Of a batch whole: also how its tokens are divided among rows, and which of these share which. */
static void key_of_batch(kvf__states *s, const kvf__input *input, uint64_t key[2])
{
    const kvf__batch *b = rows_of(input);
    const int64_t numbers[] = {s->plan.layer, input->condition.position_start, -b->n_rows};
    kvf__hash_restart(s->hash);
    kvf__hash_add(s->hash, numbers, sizeof numbers);
    kvf__hash_add(s->hash, b->start, (size_t)(b->n_rows + 1) * sizeof *b->start);
    if (b->parent) kvf__hash_add(s->hash, b->parent, (size_t)b->n_rows * sizeof *b->parent);
    for (int64_t r = 0; b->infix_at && r < b->n_rows; r++)
        add_infix(s, b, &input->condition, r);
    add_tokens(s, b, 0, b->n_tokens);
    kvf__hash_words(s->hash, key);
}

/* Where the row is, or would be. */
static kept_row *place_of(const kvf__states *s, const uint64_t key[2])
{
    for (uint64_t i = key[0];; i++) {
        kept_row *at = &s->row[i & (uint64_t)(s->places - 1)];
        if (!at->n || (at->key[0] == key[0] && at->key[1] == key[1])) return at;
    }
}

/* ---- memory and file ------------------------------------------------------------------------- */

/* Without a name from the start, where the file system can. */
static int open_nameless(kvf__states *s)
{
    char *path = NULL;
    int fd = open(s->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || kvf__path_join(s->ctx, s->folder, ".kvfold-states-XXXXXX", &path)) return fd;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    kvf__free(path);
    return fd;
}

/* n floats between x and place `at` of the file. */
static bool move_filed(const kvf__states *s, int64_t at, float *x, int64_t n, bool put)
{
    const size_t bytes = (size_t)n * sizeof *x;
    const off_t from = (off_t)((size_t)(at - s->room) * sizeof *x);
    for (size_t done = 0; done < bytes;) {
        char *here = (char *)x + done;
        const off_t place = from + (off_t)done;
        const ssize_t moved = put ? pwrite(s->fd, here, bytes - done, place)
                                  : pread(s->fd, here, bytes - done, place);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) return false;
        done += (size_t)moved;
    }
    return true;
}

static bool move(const kvf__states *s, int64_t at, float *x, int64_t n, bool put)
{
    if (at >= s->room) return move_filed(s, at, x, n, put);
    memcpy(put ? s->memory + at : x, put ? x : s->memory + at, (size_t)n * sizeof *x);
    return true;
}

/* All of a row's tokens, which lie in parts of the batch; row NULL: the batch whole. */
static bool move_row(const kvf__states *s, const kvf__batch *b, const whole_row *row, int64_t at,
                     bool put)
{
    const int64_t C = s->plan.width;
    if (!row) return move(s, at, s->x, b->n_tokens * C, put);
    for (int i = 0; i < row->n_parts; i++) {
        const int64_t from = b->start[row->part[i]], n = b->start[row->part[i] + 1] - from;
        if (!move(s, at, s->x + from * C, n * C, put)) return false;
        at += n * C;
    }
    return true;
}

static void keep_row(kvf__states *s, const kvf__batch *b, const whole_row *row,
                     const uint64_t key[2])
{
    const int64_t n = (row ? row->tokens : b->n_tokens) * s->plan.width;
    const bool fits = s->used + n <= s->room;
    kept_row *place = place_of(s, key);
    if (place->n || s->full || s->n >= s->most) return;
    if (!fits && s->fd < 0) s->fd = open_nameless(s);
    const int64_t at = fits ? s->used : s->room + s->filed;
    if (!move_row(s, b, row, at, true)) {
        s->full = true;
        snprintf(s->line, sizeof s->line,
                 "%s: no room for more states of rows (%s): the others are computed each time",
                 s->folder, strerror(errno));
        return;
    }
    *(fits ? &s->used : &s->filed) += n;
    *place = (kept_row){.key = {key[0], key[1]}, .at = at, .n = n};
    s->n++;
}

/* ---- a batch --------------------------------------------------------------------------------- */

static bool fill_row(kvf__states *s, const kvf__batch *b, const whole_row *row,
                     const uint64_t key[2])
{
    const kept_row *at = place_of(s, key);
    return at->n && move_row(s, b, row, at->at, false);
}

static bool fill(kvf__states *s, const kvf__input *input)
{
    const kvf__batch *b = rows_of(input);
    whole_row row;
    uint64_t key[2];
    if (input->entry.fixed) {
        key_of_batch(s, input, key);
        return fill_row(s, b, NULL, key);
    }
    for (int64_t r = 0; r < b->n_rows; r++) {
        if (!view_row(input, r, &row)) continue;
        key_of(s, b, &row, key);
        if (!fill_row(s, b, &row, key)) return false;
    }
    return true;
}

void kvf__states_enter(kvf__states *s, kvf__input *input, bool fixed)
{
    if (!s) return;
    input->entry = (kvf__entry){.layer = s->plan.layer, .x = s->x, .fixed = fixed};
    input->entry.known = fill(s, input);
    *(input->entry.known ? &s->counts.taken : &s->counts.computed) += rows_of(input)->n_tokens;
}

void kvf__states_keep(kvf__states *s, const kvf__input *input)
{
    whole_row row;
    uint64_t key[2];
    if (!s || input->entry.known || s->full) return;
    const kvf__batch *b = rows_of(input);
    if (input->entry.fixed) {
        key_of_batch(s, input, key);
        keep_row(s, b, NULL, key);
        return;
    }
    for (int64_t r = 0; r < b->n_rows; r++) {
        if (!view_row(input, r, &row)) continue;
        key_of(s, b, &row, key);
        keep_row(s, b, &row, key);
    }
}

const char *kvf__states_news(kvf__states *s)
{
    if (!s || !s->full || s->said) return NULL;
    s->said = true;
    return s->line;
}

kvf__states_counts kvf__states_count(const kvf__states *s)
{
    kvf__states_counts counts = s->counts;
    counts.in_memory = (size_t)s->room * sizeof(float);
    counts.in_file = (size_t)s->filed * sizeof(float);
    return counts;
}
