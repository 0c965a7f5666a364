/* Layers without attention in a pass: the states of rows (docs/architecture.md).
 *
 * A row begins with the state after its common prefix, that of its cache, that of its section's
 * prefix, or zeros, in this order. A thread takes one unit of all rows that share a beginning, so
 * it sees parents before their rows, and backward after them; with a trained state it takes one
 * unit of all rows. Bits do not depend on the number of threads. */
#include "pass_mixer.h"
#include "batch.h"
#include "names.h"
#include "pass_priv.h"

#include <omp.h>
#include <string.h>

void kvf__pass_lay_mixer(kvf__pass *pass, kvf__carver *carve, int64_t M)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__pass_limits *limits = &pass->limits;
    kvf__pass_mixer *mixer = &pass->mixer;

    if (d->block.out_gate) {
        const int64_t HD = kvf__shape_most(d, "HD");
        mixer->gated = kvf__carve(carve, M, HD, kvf__act_size(pass->model->act));
        mixer->token = kvf__carve(carve, pass->threads, 3 * HD, sizeof(float));
    }
    if (!d->mixer.kind) return;
    const int64_t state = kvf__mixer_unit_state(d);
    mixer->rows = limits->common_len ? limits->rows : 1;
    mixer->scratch = kvf__carve(carve, pass->threads, kvf__mixer_scratch(d, limits->row_len),
                                sizeof(float));
    mixer->state = kvf__carve(carve, pass->threads, mixer->rows * state, sizeof(float));
    mixer->before = kvf__carve(carve, pass->threads, state, sizeof(float));
    if (limits->backward)
        mixer->dstate = kvf__carve(carve, pass->threads, mixer->rows * state, sizeof(float));
}

/* A thread's work on one unit. */
typedef struct worker {
    kvf__pass *pass;
    int64_t l, unit, size;          /* size: floats of the unit's state */
    int64_t offset;                 /* of the layer in the states of all layers */
    float *state, *dstate, *before; /* [rows, size], [rows, size], [size] */
    float *scratch;
} worker;

static worker worker_of(kvf__pass *pass, int64_t l, int64_t unit)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__pass_mixer *mixer = &pass->mixer;
    const int64_t t = omp_get_thread_num(), size = kvf__mixer_unit_state(d), all = mixer->rows;
    worker w = {
        .pass = pass, .l = l, .unit = unit, .size = size, .offset = kvf__mixer_state_at(d, l)};

    w.state = mixer->state + t * all * size;
    w.dstate = mixer->dstate ? mixer->dstate + t * all * size : NULL;
    w.before = mixer->before + t * size;
    w.scratch = mixer->scratch + t * kvf__mixer_scratch(d, pass->limits.row_len);
    return w;
}

static float *state_of(const worker *w, float *states, int64_t r)
{
    return states + (w->pass->mixer.rows > 1 ? r : 0) * w->size;
}

/* Returns the states of all layers before row r, from outside of the batch; NULL: zeros. */
static const float *state_outside(const kvf__pass *pass, int64_t r)
{
    const int64_t slot = kvf__row_slot(pass->slot, r);

    if (pass->cache && pass->cache->length[slot]) return kvf__cache_state(pass->cache, slot);
    return pass->batch->infix_at ? NULL : kvf__pass_section_of(pass, r)->state;
}

/* Sets the state before row r. */
static void begin_row(const worker *w, int64_t r, float *state)
{
    const int32_t parent = kvf__batch_parent(w->pass->batch, r);
    const float *outside = parent < 0 ? state_outside(w->pass, r) : NULL;

    if (parent >= 0)
        memcpy(state, state_of(w, w->state, parent), (size_t)w->size * sizeof *state);
    else
        kvf__mixer_take(&w->pass->model->desc, w->unit, outside ? outside + w->offset : NULL,
                        state);
}

static kvf__mixer_row row_of(const worker *w, int64_t r, float *state)
{
    kvf__pass *pass = w->pass;
    const kvf__model *m = pass->model;
    const int64_t first = pass->batch->start[r], J = kvf__qkv_width(&m->desc, w->l),
                  A = kvf__shape_size(&m->desc, w->l, "A");

    return (kvf__mixer_row){.model = m,
                            .layer = w->l,
                            .unit = w->unit,
                            .n = pass->batch->start[r + 1] - first,
                            .act = m->act,
                            .in = kvf__act_row(m->act, pass->kept[w->l].qkv, first, J),
                            .out = kvf__act_row(m->act, pass->kept[w->l].att, first, A),
                            .state = state,
                            .scratch = w->scratch};
}

/* Returns the end of the rows that may be in the family of `root`. */
static int64_t family_end(const kvf__batch *b, int64_t root)
{
    return b->parent ? b->n_rows : root + 1;
}

/* Returns whether row r is in that family: its common prefixes begin there. */
static bool in_family(const kvf__batch *b, int64_t r, int64_t root)
{
    for (int32_t parent; r > root && (parent = kvf__batch_parent(b, r)) >= 0;)
        r = parent;
    return r == root;
}

static bool has_rows_after(const kvf__batch *b, int64_t r)
{
    for (int64_t later = r + 1; b->parent && later < b->n_rows; later++)
        if (b->parent[later] == r) return true;
    return false;
}

static void family_fwd(const worker *w, int64_t root)
{
    const kvf__pass *pass = w->pass;

    for (int64_t r = root; r < family_end(pass->batch, root); r++) {
        if (!in_family(pass->batch, r, root)) continue;
        float *state = state_of(w, w->state, r);
        begin_row(w, r, state);
        const kvf__mixer_row row = row_of(w, r, state);
        kvf__mixer_row_fwd(&row);
        if (pass->cache)
            kvf__mixer_put(&pass->model->desc, w->unit, state,
                           kvf__cache_state(pass->cache, kvf__row_slot(pass->slot, r)) + w->offset);
    }
}

/* Adds the gradient of the state before `root` to that of its section's prefix. */
static void add_gradient(const worker *w, int64_t root)
{
    const float *d = state_of(w, w->dstate, root);
    kvf__prefix *into = kvf__pass_section_of(w->pass, root)->dprefix;
    kvf__mixer_piece piece[KVF__MIXER_PIECES];

    if (!into || !into->state || w->pass->batch->infix_at) return;
    const int pieces = kvf__mixer_pieces(&w->pass->model->desc, w->unit, piece);
    for (int i = 0; i < pieces; d += piece[i++].n)
        for (int64_t j = 0; j < piece[i].n; j++)
            into->state[w->offset + piece[i].at + j] += d[j];
}

static void family_bwd(const worker *w, int64_t root)
{
    kvf__pass *pass = w->pass;
    const kvf__batch *b = pass->batch;
    const int64_t J = kvf__qkv_width(&pass->model->desc, w->l),
                  A = kvf__shape_size(&pass->model->desc, w->l, "A");

    for (int64_t r = root; r < family_end(b, root); r++) {
        if (!in_family(b, r, root)) continue;
        memset(state_of(w, w->dstate, r), 0, (size_t)w->size * sizeof *w->dstate);
        if (!has_rows_after(b, r)) continue;
        begin_row(w, r, state_of(w, w->state, r));
        kvf__mixer_row row = row_of(w, r, state_of(w, w->state, r));
        row.out = NULL;
        kvf__mixer_row_fwd(&row);
    }
    for (int64_t r = family_end(b, root) - 1; r >= root; r--) {
        if (!in_family(b, r, root)) continue;
        const int32_t parent = kvf__batch_parent(b, r);
        float *d = state_of(w, w->dstate, r);
        begin_row(w, r, w->before);
        kvf__mixer_row row = row_of(w, r, w->before);
        row.dout = kvf__act_row(row.act, pass->bwd.datt, b->start[r], A);
        row.din = kvf__act_row(row.act, pass->bwd.dqkv, b->start[r], J);
        row.dstate = d;
        kvf__mixer_row_bwd(&row);
        for (int64_t i = 0; parent >= 0 && i < w->size; i++)
            state_of(w, w->dstate, parent)[i] += d[i];
    }
    add_gradient(w, root);
}

/* Runs every unit of every family. */
static void each_family(kvf__pass *pass, int64_t l, void (*run)(const worker *w, int64_t root))
{
    const int64_t units = kvf__mixer_units(&pass->model->desc), rows = pass->batch->n_rows;
    const int64_t together = kvf__pass_trains_state(pass) ? rows : 1; /* their sum has one order */

#pragma omp parallel for schedule(dynamic) num_threads(pass->threads)
    for (int64_t i = 0; i < rows / together * units; i++) {
        const worker w = worker_of(pass, l, i % units);
        for (int64_t r = i / units * together; r < (i / units + 1) * together; r++)
            if (kvf__batch_parent(pass->batch, r) < 0) run(&w, r);
    }
}

void kvf__pass_mixer_fwd(kvf__pass *pass, int64_t l)
{
    each_family(pass, l, family_fwd);
    kvf__pass_clear_padding(pass, pass->kept[l].att, kvf__shape_size(&pass->model->desc, l, "A"));
    kvf__pass_lap(pass, KVF__PART_ATTN);
}

void kvf__pass_mixer_bwd(kvf__pass *pass, int64_t l)
{
    each_family(pass, l, family_bwd);
    kvf__pass_clear_padding(pass, pass->bwd.dqkv, kvf__qkv_width(&pass->model->desc, l));
    kvf__pass_lap(pass, KVF__PART_ATTN_BWD);
}
