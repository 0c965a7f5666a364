/* The time left: steps by the pace of the last ones, and the validations and saves that come
 * between them. What was not seen yet is taken from the forecast, if there is one. */
#include "trainer.h"

#include <math.h>

#define LAST_COUNTS 0.1 /* share of the newest step; so about twenty decide */

void kvf__pace_add(double *pace, double seconds)
{
    *pace = *pace > 0 ? *pace + LAST_COUNTS * (seconds - *pace) : seconds;
}

int64_t kvf__pace_left_of(const kvf__trainer *t, int64_t every)
{
    int64_t interval = every ? every : t->rows.epoch_steps;
    if (interval < 1 || t->progress.step >= t->progress.steps) return 0;
    return t->progress.steps / interval - t->progress.step / interval +
           (t->progress.steps % interval != 0);
}

int64_t kvf__valid_tokens(const kvf__trainer *t)
{
    int64_t tokens = 0;
    for (size_t i = 0; i < t->rows.n; i++) {
        const kvf__dataset *valid = &t->rows.task[i].valid;
        if (valid->n) tokens += valid->start[valid->n];
    }
    return tokens;
}

double kvf__pace_left(const kvf__trainer *t)
{
    const kvf__pace *p = &t->progress.pace;
    if (!(p->step > 0)) return NAN;
    double left = p->step * (double)(t->progress.steps - t->progress.step) +
                  p->save * (double)kvf__pace_left_of(t, t->options.save_every);
    if (!t->rows.total.valid_rows) return left;
    return left + p->validation * (double)kvf__pace_left_of(t, t->options.eval_every);
}
