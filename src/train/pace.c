/* Estimates the remaining time from the pace of recent steps and from the validations and saves
 * that are due. Values that were not measured yet come from the forecast, if any. */
#include "pace.h"

#include <math.h>

#define LAST_COUNTS 0.1 /* weight of the newest step, so about twenty steps count */

void kvf__pace_add(double *pace, double seconds)
{
    *pace = *pace > 0 ? *pace + LAST_COUNTS * (seconds - *pace) : seconds;
}

bool kvf__pace_is_due(const kvf__run *run, const kvf__train_rows *rows, int64_t every)
{
    if (run->progress.step == run->progress.steps) return true;
    return every ? run->progress.step % every == 0 : rows->epoch_end;
}

int64_t kvf__pace_left_of(const kvf__run *run, const kvf__train_rows *rows, int64_t every)
{
    int64_t interval = every ? every : rows->epoch_steps;
    if (interval < 1 || run->progress.step >= run->progress.steps) return 0;
    return run->progress.steps / interval - run->progress.step / interval +
           (run->progress.steps % interval != 0);
}

int64_t kvf__valid_tokens(const kvf__train_rows *rows)
{
    int64_t tokens = 0;
    for (size_t i = 0; i < rows->n; i++) {
        const kvf__dataset *valid = &rows->task[i].valid;
        if (valid->n) tokens += valid->start[valid->n];
    }
    return tokens;
}

double kvf__pace_left(const kvf__run *run, const kvf__train_rows *rows)
{
    const kvf__pace *p = &run->progress.pace;
    if (!(p->step > 0)) return NAN;
    double left = p->step * (double)(run->progress.steps - run->progress.step) +
                  p->save * (double)kvf__pace_left_of(run, rows, run->options.save_every);
    if (!rows->total.valid_rows) return left;
    return left + p->validation * (double)kvf__pace_left_of(run, rows, run->options.eval_every);
}
