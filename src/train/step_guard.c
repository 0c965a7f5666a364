/* Skips steps whose numbers are not finite, or whose loss is far above the recent mean. Weights and
 * moments stay unchanged. The step counts, and the history records it, so that a resumed run
 * decides in the same way.
 *
 * --skip-nonfinite N skips N steps of the first kind and stops at the next one; the last saved file
 * stays intact. --spike-guard X skips a loss above X times the mean of the last 32 steps, once
 * there are 8. Spikes count in that mean, so after several of them the guard accepts the higher
 * level. At the end a warning says that the loss has risen. */
#include "step.h"

#include <math.h>

enum { WINDOW = 32, LEAST = 8, FIRST = 4, PIECE = 4096 };
static const double RISEN = 1.5; /* last losses by first ones: more than batches differ */

static bool all_finite(const float *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(values[i])) return false;
    return true;
}

/* Returns the first parameter with a value, or gradient, that is not finite; NULL: none. */
static const char *bad_parameter(const kvf__params *params, bool gradient)
{
    for (size_t i = 0; i < params->n; i++) {
        const kvf__param *p = &params->item[i];
        bool fine;
        if (gradient && p->outer)
            fine = all_finite(p->left, p->outer * p->dim[0]) &&
                   all_finite(p->right, p->outer * p->dim[1]);
        else
            fine = all_finite(gradient ? p->grad : p->value, p->n);
        if (!fine) return p->name;
    }
    return NULL;
}

/* Pieces are whole blocks of every quantised type. */
static bool is_finite_tensor(const kvf__view *view)
{
    float piece[PIECE];
    int64_t n = kvf__view_count(view), block = kvf__dtype_block(view->dtype);
    size_t bytes = kvf__dtype_block_bytes(view->dtype);
    if (!kvf__dtype_is_float(view->dtype)) return true;
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t m = n - at < PIECE ? n - at : PIECE;
        const char *from = (const char *)view->data + (size_t)(at / block) * bytes;
        kvf__to_f32(view->dtype, from, piece, m);
        if (!all_finite(piece, m)) return false;
    }
    return true;
}

static const char *bad_base_tensor(const kvf__run *run)
{
    const kvf__table *table = &run->base->weights.table;
    for (size_t i = 0; i < table->n; i++)
        if (!is_finite_tensor(&table->items[i].view)) return table->items[i].name;
    return NULL;
}

/* Replaces the error line by one that names the first tensor with such numbers, if known. */
static kvf_status blame(const kvf__run *run, const kvf__params *params)
{
    long long step = (long long)run->progress.step + 1;
    const char *name = bad_parameter(params, false);
    if (name)
        return kvf__fail(run->ctx, KVF_ENUMERIC, "step %lld: %s has values that are not finite",
                         step, name);
    name = bad_base_tensor(run);
    if (name)
        return kvf__fail(run->ctx, KVF_ENUMERIC,
                         "step %lld: the base's %s has values that are not finite", step, name);
    return kvf__fail_prefix(run->ctx, KVF_ENUMERIC, "step %lld", step);
}

kvf_status kvf__step_check_gradient(const kvf__run *run, const kvf__stepper *stepper,
                                    const kvf__params *steps)
{
    if (isfinite(stepper->grad_norm)) return KVF_OK;
    const char *name = bad_parameter(steps, true);
    return kvf__fail(run->ctx, KVF_ENUMERIC, "the gradient of %s is not finite", name ? name : "?");
}

/* Returns the mean of the finite losses of steps [from, to); NaN if fewer than `least`. */
static double mean_loss(const kvf__run *run, int64_t from, int64_t to, int least)
{
    double sum = 0;
    int n = 0;
    for (int64_t i = from > 0 ? from : 0; i < to; i++) {
        if (!isfinite(run->progress.history.train_loss[i])) continue;
        sum += run->progress.history.train_loss[i];
        n++;
    }
    return n < least ? NAN : sum / n;
}

void kvf__step_note_risen(kvf__run *run)
{
    const int64_t steps = run->progress.step;
    if (steps < FIRST + LEAST) return;
    double first = mean_loss(run, 0, FIRST, FIRST);
    double last = mean_loss(run, steps - LEAST, steps, LEAST);
    if (!(last > RISEN * first)) return;
    kvf__run_note(run,
                  "warning: the loss has risen from %.4f (first %d steps) to %.4f (last %d): train "
                  "again with --warmup 20 or half of --lr",
                  first, FIRST, last, LEAST);
}

/* Reads the history only with the option: a trainer in memory may step past the end of its history.
 */
static bool is_spike(kvf__run *run)
{
    if (!(run->options.spike_guard > 0)) return false;
    const int64_t step = run->progress.step;
    double mean = mean_loss(run, step - WINDOW, step, LEAST);
    double most = run->options.spike_guard * mean;
    if (isnan(mean) || run->progress.train_loss <= most) return false;
    kvf__run_note(run, "step %lld skipped: loss %.4f exceeds %g times the mean %.4f",
                  (long long)run->progress.step + 1, run->progress.train_loss,
                  run->options.spike_guard, mean);
    return true;
}

kvf_status kvf__step_guard(kvf__run *run, kvf__stepper *stepper, const kvf__params *params,
                           kvf_status st, bool *take)
{
    *take = false;
    if (stepper->probing) return st == KVF_ENUMERIC ? KVF_OK : st;
    if (!st) {
        *take = !is_spike(run);
        return KVF_OK;
    }
    if (st != KVF_ENUMERIC)
        return kvf__fail_prefix(run->ctx, st, "step %lld", (long long)run->progress.step + 1);
    st = blame(run, params);
    if (stepper->skipped >= run->options.skip_nonfinite) return st;
    stepper->skipped++;
    run->progress.train_loss = stepper->grad_norm = NAN;
    kvf__run_note(run, "%s: step skipped, %lld of at most %lld", kvf_ctx_error(run->ctx),
                  (long long)stepper->skipped, (long long)run->options.skip_nonfinite);
    return KVF_OK;
}
