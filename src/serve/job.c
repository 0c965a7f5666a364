/* State changes of a queued job. */
#include "server.h"

void kvf__job_drop(kvf__job *job)
{
    if (--job->owners > 0) return;
    for (int64_t i = 0; i < job->n_prompts; i++)
        kvf__ids_done(&job->prompts[i]);
    for (int64_t i = 0; job->echoes && i < job->n_prompts; i++) {
        kvf__buf_done(&job->echoes[i].text);
        kvf__token_scores_done(&job->echoes[i].scores);
    }
    for (int64_t i = 0; i < job->n_choices; i++) {
        kvf__buf_done(&job->choices[i].text);
        kvf__token_scores_done(&job->choices[i].scores);
    }
    kvf__classification_free(job->rows);
    kvf__free(job->echoes);
    kvf__free(job->prompts);
    kvf__free(job->choices);
    kvf__prefix_cache_put(&job->server->cache, job->ref);
    kvf__request_done(&job->request);
    kvf__buf_done(&job->body);
    kvf__buf_done(&job->out.text);
    kvf__free(job);
}

void kvf__job_wake(kvf__job *job)
{
    if (job->out.sleeper) job->out.wake(job->out.sleeper);
    job->out.sleeper = NULL;
}

void kvf__job_finish(kvf__job *job, unsigned status)
{
    kvf__server_metrics *metrics = &job->server->metrics;
    if (job->out.state == KVF__JOB_WAITS) job->out.status = status;
    job->out.state = KVF__JOB_DONE;
    if (status == 200) {
        metrics->answered++;
        kvf__histogram_add(&metrics->whole, kvf__clock() - job->arrived, true);
    }
    metrics->refused += status >= 400 && status < 500;
    metrics->failed += status >= 500;
    kvf__job_wake(job);
}

void kvf__job_fail(kvf__job *job, const kvf__problem *problem)
{
    /* without memory the reply ends without an error object */
    kvf__reply_problem(problem, job->out.state == KVF__JOB_RUNS, &job->out.text);
    kvf__job_finish(job, problem->status);
}

bool kvf__job_abandon(kvf__job *job)
{
    kvf__queue *queue = &job->server->queue;
    if (job->out.state == KVF__JOB_DONE) return false;
    if (job->out.gone) return true;
    job->out.gone = true;
    job->server->metrics.gone++;
    if (job->in && job->in != &job->server->running) {
        kvf__queue_remove(queue, job);
        kvf__job_drop(job);
    }
    return true;
}

kvf__problem kvf__problem_of(const kvf_ctx *ctx, kvf_status st)
{
    const bool asked = st == KVF_EDATA || st == KVF_EUSAGE || st == KVF_EUNSUPPORTED;
    kvf__problem problem;
    kvf__problem_set(&problem, asked ? 400 : 500, NULL, "%s", kvf_ctx_error(ctx));
    return problem;
}
