/* Time and memory of a run, estimated before its first step: private to src/train. */
#ifndef KVF_FORECAST_H
#define KVF_FORECAST_H

#include <kvfold/train.h>

struct kvf__trainer;

/* What is left of the schedule, counted without computing. */
typedef struct kvf__survey {
    int64_t steps, tokens, computed_tokens;
} kvf__survey;
/* lengths.c; the sampler is then at the step that comes next. */
kvf__survey kvf__trainer_survey(struct kvf__trainer *trainer);

/* A few steps of the run's own batches, after kvf__trainer_prepare(). The run goes on as if nothing
 * had been. Sets trainer->progress.forecast and reports it to the caller. */
kvf_status kvf__trainer_forecast(struct kvf__trainer *trainer);

#endif
