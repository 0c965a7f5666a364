/* kvf_sweep: trains the runs of a grid in passes over one base, as many at a time as can share a
 * pass. A run is a trainer as in kvf_train, with its own file, which any command reads and train
 * --resume continues; only the pass is shared. All runs of a group take a step together, so runs
 * that began together are always at the same step, and a stopped sweep continues with the same
 * batches. */
#include "sweep_int.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LAST_LOSSES = 10 };

/* ---- what a run is --------------------------------------------------------------------------- */

static void on_event(void *user, const kvf_event *event)
{
    kvf__sweep_run *run = user;
    const kvf_sweep_options *o = run->sweep->options;
    if (event->kind == KVF_EVENT_NOTE) kvf_json_add(run->notes, kvf_json_new_str(event->text));
    if (o->event) o->event(o->event_user, run->row->name, event);
}

static kvf_status set_options(kvf__sweep *s, kvf__sweep_run *run)
{
    kvf_train_options *o = &run->options, checked;
    *o = s->options->train;
    for (size_t i = 0; i < run->row->n; i++)
        KVF_TRY(kvf_train_set(s->ctx, o, run->row->settings[i].name, run->row->settings[i].value));
    o->out = run->out;
    if (run->tensorboard) o->tensorboard = run->tensorboard;
    o->event = on_event;
    o->event_user = run;
    checked = *o;
    KVF_TRY(kvf__options_require(s->ctx, o));
    KVF_TRY(kvf__options_check(s->ctx, &checked));
    KVF_TRY(kvf__options_check_sweep(s->ctx, o));
    run->own_head = strcmp(o->task, "lm") || o->train_head;
    return kvf__options_store(s->ctx, &checked, &run->shown);
}

static kvf_status check_output(const kvf__sweep *s, const char *path)
{
    const kvf_train_options *o = &s->options->train;
    KVF_TRY(KVF__NOT_INPUTS(s->ctx, path, s->options->grid, o->base, o->data, o->valid));
    if (o->force || o->resume || !kvf__exists(path)) return KVF_OK;
    return kvf__fail(s->ctx, KVF_EEXIST, "%s: exists (--force replaces it, --resume continues it)",
                     path);
}

static kvf_status set_up_run(kvf__sweep *s, kvf__sweep_run *run)
{
    const kvf_sweep_options *o = s->options;
    run->sweep = s;
    run->last_losses = NAN;
    run->notes = kvf_json_array();
    if (!run->notes) return kvf__fail(s->ctx, KVF_ENOMEM, "out of memory");
    KVF_TRY(kvf__asprintf(s->ctx, &run->out, "%s/%s.h5", o->out, run->row->name));
    if (o->train.tensorboard)
        KVF_TRY(kvf__asprintf(s->ctx, &run->tensorboard, "%s/%s", o->train.tensorboard,
                              run->row->name));
    kvf_status st = set_options(s, run);
    if (st)
        return kvf__fail_prefix(s->ctx, st, "%s:%d: run %s", o->grid, run->row->line,
                                run->row->name);
    return check_output(s, run->out);
}

/* ---- one run's life -------------------------------------------------------------------------- */

static double mean_of_last(const kvf__progress *progress)
{
    double sum = 0;
    int64_t n = progress->step < LAST_LOSSES ? progress->step : LAST_LOSSES;
    for (int64_t i = progress->step - n; i < progress->step; i++)
        sum += progress->history.train_loss[i];
    return n ? sum / (double)n : NAN;
}

/* Keeps the facts of a finished run for the report, and frees its memory. */
static void leave(kvf__sweep_run *run, kvf__run_state state)
{
    kvf__trainer *t = run->trainer;
    kvf__trainer_result(t, run->begin, run->tokens_before, &run->result);
    const kvf__progress *progress = &kvf__trainer_look(t).run->progress;
    run->larger = progress->metric->larger;
    run->last_losses = mean_of_last(progress);
    run->state = state;
    kvf__trainer_free(t);
    run->trainer = NULL;
}

/* Opens a run. The first one opens the base for all. */
static kvf_status open_run(kvf__sweep *s, kvf__sweep_run *run)
{
    kvf__trainer *t = NULL;
    if (KVF__GIVEN(&run->options, steps) && !run->options.steps)
        return kvf__fail(s->ctx, KVF_EUSAGE, "run %s: --steps must be at least 1 in a sweep",
                         run->row->name);
    if (KVF__GIVEN(&run->options, init)) { /* the texts apply to runs that start from them */
        if (strcmp(run->options.init, "text")) run->options.init_text = NULL;
        if (strcmp(run->options.init, "kv")) run->options.init_kv = NULL;
    }
    run->begin = kvf__clock();
    const kvf__trainer_uses uses = {.base = s->base, .reads = s->reads};
    kvf_status st = kvf__trainer_open(s->ctx, &run->options, &uses, &t);
    if (st) return kvf__fail_prefix(s->ctx, st, "run %s", run->row->name);
    const kvf__run *opened = kvf__trainer_look(t).run;
    run->trainer = t;
    run->tokens_before = opened->progress.tokens;
    s->base = kvf__trainer_give_base(t);
    kvf_json_free(run->shown); /* base and data determined the open defaults */
    run->shown = NULL;
    KVF_TRY(kvf__options_store(s->ctx, &opened->options, &run->shown));
    if (!opened->output.finished_before) return KVF_OK;
    leave(run, KVF__RUN_DONE);
    run->result.finished_before = true;
    return KVF_OK;
}

/* Follows up on a step of one run, which may end. Only a failure of all runs is returned. */
static kvf_status follow_step(kvf__sweep_run *run, kvf__member *m, double seconds, int64_t tokens)
{
    kvf__trainer *t = run->trainer;
    kvf_ctx *ctx = run->sweep->ctx;
    bool over = false;
    kvf_status st = m->status;
    if (st) kvf__fail(ctx, st, "%s", m->line);
    if (!st) st = kvf__trainer_after_step(t, seconds, tokens, &over);
    if (!st && !over) return KVF_OK;
    kvf__trainer_end(t, st);
    if (st) snprintf(run->line, sizeof run->line, "%s", kvf_ctx_error(ctx));
    if (st && st != KVF_ESTOPPED && st != KVF_ENUMERIC) return st;
    leave(run, !st ? KVF__RUN_DONE : st == KVF_ESTOPPED ? KVF__RUN_STOPPED : KVF__RUN_FAILED);
    m->trainer = NULL;
    return KVF_OK;
}

/* ---- a group of them --------------------------------------------------------------------------
 */

static bool stop_requested(const kvf__sweep *s)
{
    return s->caller_stop && *s->caller_stop;
}

static kvf_status group_loop(kvf__sweep *s, kvf__run_group *group, kvf__sweep_run *const *runs)
{
    size_t left = group->n;
    int64_t *tokens = NULL;
    KVF_TRY(kvf__alloc_array(s->ctx, group->n, sizeof *tokens, &tokens));
    kvf_status st = KVF_OK;
    while (left && !st) {
        double begin = kvf__clock();
        for (size_t i = 0; i < group->n; i++)
            tokens[i] = runs[i]->trainer ? kvf__trainer_look(runs[i]->trainer).run->progress.tokens
                                         : 0;
        st = kvf__run_group_step(group);
        double took = kvf__clock() - begin;
        s->passes++;
        s->step_seconds += took;
        s->stop = stop_requested(s); /* for all of them, or for none */
        left = 0;
        for (size_t i = 0; i < group->n && !st; i++) {
            if (!runs[i]->trainer) continue;
            st = follow_step(runs[i], &group->member[i], took, tokens[i]);
            left += runs[i]->trainer != NULL;
        }
    }
    kvf__free(tokens);
    return st;
}

static void dry_run(kvf__sweep_run *const *runs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        kvf__trainer_note_dry(runs[i]->trainer);
        leave(runs[i], KVF__RUN_WAITS);
    }
}

/* Trains open runs [n] to their ends. */
static kvf_status train_group(kvf__sweep *s, kvf__sweep_run *const *runs,
                              kvf__trainer *const *trainers, size_t n)
{
    kvf__run_group group = {0};
    if (!n) return KVF_OK;
    KVF_TRY(kvf__run_group_init(s->ctx, trainers, n, &s->states, &group));
    kvf_status st = KVF_OK;
    bool dry = s->options->train.dry_run;
    for (size_t i = 0; i < n && !st && !dry; i++) {
        st = kvf__trainer_open_journal(runs[i]->trainer);
        if (st) break;
        runs[i]->state = KVF__RUN_GOES;
        st = kvf__trainer_start(runs[i]->trainer);
    }
    if (dry) dry_run(runs, n);
    if (!st && !dry) st = group_loop(s, &group, runs);
    kvf__run_group_done(&group);
    return st;
}

/* Selects the next waiting runs that can share a pass: of one kind, at most --max-runs. */
static kvf_status next_group(kvf__sweep *s, bool own_heads, size_t *from, kvf__sweep_run **runs,
                             kvf__trainer **trainers, size_t *n)
{
    size_t most = s->options->max_runs ? (size_t)s->options->max_runs : s->grid.n;
    for (*n = 0; *from < s->grid.n && *n < most; ++*from) {
        kvf__sweep_run *run = &s->runs[*from];
        if (run->own_head != own_heads) continue;
        KVF_TRY(open_run(s, run));
        if (!run->trainer) continue;
        runs[*n] = run;
        trainers[(*n)++] = run->trainer;
    }
    return KVF_OK;
}

static kvf_status all_groups(kvf__sweep *s, kvf__sweep_run **runs, kvf__trainer **trainers)
{
    for (int own_heads = 0; own_heads < 2; own_heads++)
        for (size_t from = 0, n; from < s->grid.n && !s->stop;) {
            KVF_TRY(next_group(s, own_heads, &from, runs, trainers, &n));
            KVF_TRY(train_group(s, runs, trainers, n));
        }
    return KVF_OK;
}

static kvf_status train_all(kvf__sweep *s)
{
    kvf__sweep_run **runs = NULL;
    kvf__trainer **trainers = NULL;
    kvf_status st = kvf__alloc_array(s->ctx, s->grid.n, sizeof(void *), &runs);
    if (!st) st = kvf__alloc_array(s->ctx, s->grid.n, sizeof(void *), &trainers);
    if (!st) st = all_groups(s, runs, trainers);
    kvf__free(runs);
    kvf__free(trainers);
    return st;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static kvf_status make_folder(kvf_ctx *ctx, const char *path, bool *made)
{
    *made = !kvf__is_dir(path);
    if (!*made || mkdir(path, 0777) == 0) return KVF_OK;
    *made = false;
    return kvf__fail(ctx, KVF_EIO, "%s: cannot create the folder: %s", path, strerror(errno));
}

static kvf_status prepare(kvf__sweep *s)
{
    const kvf_sweep_options *o = s->options;
    if (!o->grid) return kvf__fail(s->ctx, KVF_EUSAGE, "--grid is needed");
    if (!o->out) return kvf__fail(s->ctx, KVF_EUSAGE, "--out is needed");
    KVF_TRY(kvf__check_alone(s->ctx, "a sweep"));
    KVF_TRY(kvf__reads_create(s->ctx, &s->reads));
    KVF_TRY(kvf__grid_load(s->ctx, o->grid, &s->grid));
    KVF_TRY(kvf__alloc_array(s->ctx, s->grid.n, sizeof *s->runs, &s->runs));
    for (size_t i = 0; i < s->grid.n; i++) {
        s->runs[i].row = &s->grid.runs[i];
        KVF_TRY(set_up_run(s, &s->runs[i]));
    }
    char *table = NULL;
    bool made;
    KVF_TRY(kvf__path_join(s->ctx, o->out, KVF__SWEEP_CSV, &table));
    kvf_status st = check_output(s, table);
    kvf__free(table);
    if (!st) st = make_folder(s->ctx, o->out, &s->made_folder);
    if (!st && o->train.tensorboard && !o->train.dry_run)
        st = make_folder(s->ctx, o->train.tensorboard, &made);
    return st;
}

/* True if --resume has more to do. */
static bool is_unfinished(const kvf__sweep *s)
{
    for (size_t i = 0; i < s->grid.n; i++)
        if (s->runs[i].state == KVF__RUN_STOPPED || s->runs[i].state == KVF__RUN_WAITS) return true;
    return false;
}

static void sweep_done(kvf__sweep *s)
{
    for (size_t i = 0; s->runs && i < s->grid.n; i++) {
        kvf__sweep_run *run = &s->runs[i];
        kvf__trainer_free(run->trainer);
        kvf__free(run->out);
        kvf__free(run->tensorboard);
        kvf_json_free(run->shown);
        kvf_json_free(run->notes);
    }
    kvf__free(s->runs);
    if (s->made_folder) rmdir(s->options->out); /* it is still empty */
    kvf__states_free(s->states);
    kvf__reads_free(s->reads);
    kvf_base_free(s->base);
    kvf__grid_done(&s->grid);
}

static kvf_status sweep_all(kvf_ctx *ctx, const kvf_sweep_options *options,
                            kvf_sweep_result *result, kvf_json **json)
{
    kvf__sweep s = {.ctx = ctx, .options = options, .begin = kvf__clock()};
    kvf_json *report = NULL;
    s.caller_stop = kvf__ctx_swap_stop(ctx, &s.stop); /* stop flag for the runs */
    kvf__ctx_defer_stop(ctx, true);
    kvf_status st = prepare(&s);
    if (!st) st = train_all(&s);
    if (!st) st = kvf__sweep_report(&s, &report);
    if (!st && !options->train.dry_run) st = kvf__sweep_csv(&s, report);
    if (!st && !options->train.dry_run) st = kvf__sweep_html(&s, report);
    if (!st && result) st = kvf__sweep_result(&s, report, result);
    if (!st && json)
        *json = report;
    else
        kvf_json_free(report);
    if (!st && s.stop && is_unfinished(&s))
        st = kvf__fail(ctx, KVF_ESTOPPED, "stopped, all runs saved; --resume continues them");
    kvf__ctx_defer_stop(ctx, false);
    kvf__ctx_swap_stop(ctx, s.caller_stop);
    sweep_done(&s);
    return st;
}

kvf_status kvf_sweep(kvf_ctx *ctx, const kvf_sweep_options *options, kvf_sweep_result *result,
                     kvf_json **json)
{
    KVF_TRY(KVF__NEED(ctx, options));
    KVF__RETURN(ctx, sweep_all(ctx, options, result, json));
}
