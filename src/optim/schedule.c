/* Learning-rate schedules: warmup, then linear, cosine or constant. The length is fixed when a run
 * is created and stored in the run file, so that a resumed run follows the same curve. */
#include "optim_int.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static kvf_status parse_warmup(kvf_ctx *ctx, const char *text, int64_t length, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    double number = strtod(text, &end);
    bool percent = end != text && *end == '%' && !end[1];
    bool steps = end != text && !*end && number == floor(number);
    if (errno || !(number >= 0) || (!percent && !steps) || (percent && number > 100) ||
        number > 9e15)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "warmup \"%s\": want a number of steps or a percentage such as 5%%", text);
    *out = percent ? (int64_t)ceil((double)length * number / 100) : (int64_t)number;
    return KVF_OK;
}

kvf_status kvf__schedule_init(kvf_ctx *ctx, kvf_schedule kind, const char *warmup, int64_t length,
                              kvf__schedule *out)
{
    kvf__schedule schedule = {.kind = kind, .length = length};
    KVF_TRY(parse_warmup(ctx, warmup, length, &schedule.warmup));
    *out = schedule;
    return KVF_OK;
}

double kvf__schedule_factor(const kvf__schedule *schedule, int64_t step)
{
    if (step <= schedule->warmup) return (double)step / (double)schedule->warmup;
    if (schedule->kind == KVF_SCHEDULE_CONSTANT) return 1;
    double rest = (double)(schedule->length - schedule->warmup);
    double p = rest > 0 ? (double)(step - 1 - schedule->warmup) / rest : 1;
    if (p > 1) p = 1;
    return schedule->kind == KVF_SCHEDULE_LINEAR ? 1 - p : (1 + cos(acos(-1.0) * p)) / 2;
}
