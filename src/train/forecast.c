/* Forecasts time and memory from the run's own batches.
 *
 * Time: one step warms up (pages of the weights, code that oneDNN generates at first use). Then the
 * rows of the next steps go forward and backward, three steps, or up to a second if steps are
 * short. The median of their seconds per token is scaled to the tokens of the mean step, because
 * another process may slow one step down. An update is timed on scratch memory. Some held-out rows
 * are timed and scaled to all of them. The forecast costs about four steps.
 *
 * Memory: a run allocates and zeroes its memory before the first step. After the probe the process
 * has its final size, except for the buffers of a save.
 *
 * The probe leaves no trace: the next step clears gradients, the sampler is restored, and random
 * numbers depend on the step only. A run with a forecast has the same bits as one without. */
#include "trainer.h"

#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

enum { LEAST_STEPS = 4, MOST_STEPS = 16 }; /* including the warmup step */
enum { SAVE_BYTES = 20 << 20 };            /* measured: memory that HDF5 holds while it writes */
enum { LONGEST_PROBE = 2048 };             /* most held-out tokens to probe if steps are short */
#define SHORT_STEP     0.25                /* seconds */
#define ENOUGH_SECONDS 1.0                 /* seconds of probing if steps are short */
#define ENOUGH_SHARE   0.02                /* share of the run's time */
#define WRITE_RATE     400e6 /* bytes per second into a run file, including hashing and flushing */

/* Returns the size of the run file: values, two moments, best values, columns of the history, and a
 * constant part. */
static int64_t file_bytes(const kvf__trainer *t)
{
    int64_t copies = 1 + (t->rows.total.valid_rows > 0);
    return (kvf__params_values(&t->tuned.params) * copies +
            kvf__params_values(&t->tuned.steps) * 2) *
               4 +
           t->run.progress.steps * KVF__COLUMNS * 8 + (20 << 10);
}

kvf_status kvf__trainer_check_disk(const kvf__trainer *t)
{
    const char *out = t->run.options.out;
    const int64_t bytes = file_bytes(t);
    struct statvfs disk;
    char folder[PATH_MAX];
    if (kvf__ranks_follows(t->run.ranks) || !out || strlen(out) >= sizeof folder) return KVF_OK;
    strcpy(folder, out);
    if (statvfs(dirname(folder), &disk)) return KVF_OK;
    const int64_t left = (int64_t)disk.f_bavail * (int64_t)disk.f_frsize;
    if (bytes <= left) return KVF_OK;
    return kvf__fail(t->run.ctx, KVF_EIO,
                     "%s: No space left on device: the run file takes %.1f MB, %.1f MB are free",
                     out, (double)bytes / 1e6, (double)left / 1e6);
}

/* Returns a copy of a parameter, cut to at most n values, with scratch memory for values and
 * moments. */
static kvf__param cut_param(const kvf__param *from, int64_t n, float *scratch)
{
    kvf__param p = *from;
    int64_t width = p.rank > 1 ? p.n / p.dim[0] : 1;
    p.dim[0] = n / width < 1 ? 1 : n / width < p.dim[0] ? n / width : p.dim[0];
    p.n = p.dim[0] * width;
    p.value = scratch;
    return p;
}

/* Measures the seconds of updating all parameters. Memory bandwidth limits an update, so a part of
 * the largest parameter is enough. A trained base is also repacked in each update. */
static kvf_status probe_update(kvf__trainer *t, double *out)
{
    const kvf__param *largest = NULL;
    const int64_t all = kvf__params_values(&t->tuned.steps),
                  most = all / 16 < 1 << 20 ? all / 16 : 1 << 20;
    for (size_t i = 0; i < t->tuned.steps.n; i++)
        if (!largest || t->tuned.steps.item[i].n > largest->n) largest = &t->tuned.steps.item[i];
    if (!largest || most < 1 << 12 || (!largest->grad && !largest->outer)) return KVF_OK;

    kvf__adamw adamw = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    kvf__params one = {0};
    float *scratch = NULL;
    int64_t width = largest->rank > 1 ? largest->n / largest->dim[0] : 1;
    kvf_status st = kvf__alloc_array(t->run.ctx, (size_t)(most > width ? most : width),
                                     sizeof *scratch, &scratch);
    kvf__param part = cut_param(largest, most, scratch);
    if (!st) st = kvf__params_add(t->run.ctx, &one, &part);
    if (!st) st = kvf__adamw_init(t->run.ctx, &adamw, &one);
    double begin = kvf__clock();
    if (!st) kvf__adamw_step(&adamw, &one, 0, 1);
    *out = (kvf__clock() - begin) / (double)part.n * (double)all;
    begin = kvf__clock();
    if (!st && t->tuned.base) st = kvf__model_refresh(t->run.ctx, t->run.base->model);
    *out += kvf__clock() - begin;
    kvf__adamw_done(&adamw);
    kvf__params_done(&one);
    kvf__free(scratch);
    return st;
}

/* Runs one of the next steps without its update. Adds its time and tokens, and restores all
 * counters. */
static kvf_status probe_step(kvf__trainer *t, int64_t step, double *seconds, int64_t *tokens)
{
    const kvf__progress progress = t->run.progress;
    const kvf__stepper stepper = t->stepper;
    double begin = kvf__clock();
    t->run.progress.step = step;
    t->stepper.probing = true;
    kvf_status st = kvf__trainer_step(t);
    *seconds += kvf__clock() - begin;
    *tokens += t->run.progress.computed_tokens - progress.computed_tokens;
    t->run.progress = progress;
    t->stepper = stepper;
    return st;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, ascending);
    return n ? (x[(n - 1) / 2] + x[n / 2]) / 2 : 0;
}

/* Measures the seconds of the survey's mean step without its update. The first step warms up and
 * counts only if there is no other. */
static kvf_status probe_steps(kvf__trainer *t, const kvf__survey *survey, double *out)
{
    double paces[MOST_STEPS], all = 0,
                              mean = (double)survey->computed_tokens / (double)survey->steps;
    int n = 0;
    for (int64_t i = 0; i < MOST_STEPS && i < survey->steps; i++) {
        double seconds = 0;
        int64_t tokens = 0;
        KVF_TRY(probe_step(t, t->run.progress.step + i, &seconds, &tokens));
        if (i == 1) n = 0, all = 0;
        if (tokens) paces[n++] = seconds / (double)tokens;
        all += seconds;
        bool enough = all > ENOUGH_SECONDS || all > ENOUGH_SHARE * seconds * (double)survey->steps;
        if (i + 1 >= LEAST_STEPS && enough) break;
    }
    *out = median(paces, n) * mean;
    return KVF_OK;
}

static kvf_status probe_validation(kvf__trainer *t, double step_seconds, double mean, double *out)
{
    int64_t tokens = kvf__valid_tokens(&t->rows);
    *out = mean > 0 ? KVF__FORWARD_SHARE * step_seconds / mean * (double)tokens : 0;
    if (!t->rows.total.valid_rows || kvf__tasks_are_named(&t->rows)) return KVF_OK;
    const kvf__subject subject = kvf__tuned_subject(&t->tuned, &t->run.id, t->rows.task);
    bool brief = step_seconds < SHORT_STEP; /* a single cold step would overestimate the time */
    return kvf__evaluator_probe(t->run.ctx, t->rows.task->evaluator, &subject,
                                brief ? LONGEST_PROBE : (int64_t)mean, brief ? 2 : 1, out);
}

static kvf_status probe(kvf__trainer *t, const kvf__survey *survey, kvf_forecast *f)
{
    double update = 0, mean = (double)survey->computed_tokens / (double)survey->steps;
    kvf_status st = probe_steps(t, survey, &f->seconds_per_step);
    if (!st) st = probe_validation(t, f->seconds_per_step, mean, &f->seconds_per_validation);
    if (!st) st = probe_update(t, &update);
    f->seconds_per_step += update;
    kvf__trainer_seek(t);
    return st;
}

static void emit(kvf__trainer *t)
{
    const kvf_event event = {.kind = KVF_EVENT_FORECAST,
                             .step = t->run.progress.step,
                             .steps = t->run.progress.steps,
                             .seconds = kvf__clock() - t->run.progress.begin,
                             .forecast = &t->run.progress.forecast};
    kvf__run_emit(&t->run, &event);
}

/* Refuses runs that the probe would misjudge: it does not measure other processes, waiting for
 * them, or rows of the retention set. */
static kvf_status refuse(kvf__trainer *t)
{
    if (!KVF__GIVEN(&t->run.options, forecast)) return KVF_OK;
    return kvf__fail(t->run.ctx, KVF_EUSAGE, "--forecast %s: not available %s",
                     t->run.options.forecast == KVF_FORECAST_OFF ? "off"
                     : t->run.options.forecast                   ? "on"
                                                                 : "auto",
                     t->retention ? "with --retain" : "for several processes");
}

kvf_status kvf__trainer_forecast(kvf__trainer *t)
{
    kvf_forecast f = {0};
    double begin = kvf__clock();
    if (kvf__ranks_size(t->run.ranks) > 1 || t->retention) return refuse(t);
    const kvf__survey survey = kvf__trainer_survey(t);
    if (!survey.steps) return KVF_OK;
    KVF_TRY(probe(t, &survey, &f));
    f.steps = survey.steps;
    f.tokens = survey.tokens;
    f.validations = t->rows.total.valid_rows
                        ? kvf__pace_left_of(&t->run, &t->rows, t->run.options.eval_every)
                        : 0;
    f.trainable_parameters = kvf__tuned_values(&t->tuned);
    f.file_bytes = file_bytes(t);
    f.seconds_per_save = (double)f.file_bytes / WRITE_RATE;
    f.peak_rss_bytes = kvf__peak_rss_bytes() +
                       (f.file_bytes < SAVE_BYTES ? f.file_bytes : (int64_t)SAVE_BYTES);
    f.probe_seconds = kvf__clock() - begin;
    t->run.progress.pace = (kvf__pace){f.seconds_per_step, f.seconds_per_validation,
                                       f.seconds_per_save};
    /* without a probe there is no cost of one */
    f.seconds = (t->run.options.dry_run ? begin : kvf__clock()) - t->run.progress.begin +
                kvf__pace_left(&t->run, &t->rows);
    t->run.progress.forecast = f;
    emit(t);
    return KVF_OK;
}
