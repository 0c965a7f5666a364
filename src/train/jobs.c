/* Several tasks with one prefix in common and a head each (multi-task P-tuning v2, Liu et al. 2022,
 * section 4): --data NAME=FILE for every task. Each step is one task's; which one is drawn from
 * seed and step alone, so nothing is stored for --resume.
 *
 * A task's turn: its data, sampler and head take the places of the same names in the trainer, and
 * all that works for one task (step.c, lengths.c) works for that one. Heads that are not in turn
 * have zero gradients, and AdamW steps them as torch does. */
#include "hash.h"
#include "train_int.h"

#include <math.h>
#include <string.h>

#define MIX_STREAM 0x6d697874 /* "mixt" */

/* ---- options --------------------------------------------------------------------------------- */

size_t kvf__task_name_length(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
}

/* What "NAME=VALUE" of a list says of a task; NULL: nothing. */
static const char *value_of(const kvf_named *list, const char *item)
{
    size_t n = kvf__task_name_length(item);
    for (size_t i = 0; i < list->n; i++)
        if (!strncmp(list->item[i], item, n + 1)) return list->item[i] + n + 1; /* with the "=" */
    return NULL;
}

static kvf_status check_names(kvf_ctx *ctx, const char *option, const kvf_named *list,
                              const kvf_named *data)
{
    for (size_t i = 0; i < list->n; i++) {
        int n = (int)kvf__task_name_length(list->item[i]);
        const kvf_named before = {.n = i, .item = {0}};
        kvf_named earlier = before;
        memcpy(earlier.item, list->item, i * sizeof *list->item);
        if (value_of(&earlier, list->item[i]))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s: task %.*s is named twice", option, n,
                             list->item[i]);
        if (!value_of(data, list->item[i]))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s: there is no --data %.*s=FILE", option, n,
                             list->item[i]);
    }
    return KVF_OK;
}

static const char *kind_of(const kvf_train_options *o, size_t i)
{
    const char *kind = value_of(&o->named_task, o->named_data.item[i]);
    return kind ? kind : o->task;
}

bool kvf__jobs_have(const kvf_train_options *o, const char *task)
{
    for (size_t i = 0; i < o->named_data.n; i++)
        if (!strcmp(kind_of(o, i), task)) return true;
    return !o->named_data.n && !strcmp(o->task, task);
}

kvf_status kvf__jobs_check(kvf_ctx *ctx, const kvf_train_options *o)
{
    const kvf__method *method = kvf__method_find(o->method);
    kvf__task task;
    if (!o->named_data.n) {
        if (o->named_valid.n || o->named_task.n || o->named_labels.n)
            return kvf__fail(ctx, KVF_EUSAGE,
                             "--valid NAME=FILE, --task NAME=KIND and --labels NAME=A,B,... need "
                             "--data NAME=FILE");
        const char *given = kvf__train_option_given(o, "mix")       ? "mix"
                            : strcmp(o->task_prefix, "shared") != 0 ? "task-prefix"
                                                                    : NULL;
        if (given)
            return kvf__fail(ctx, KVF_EUSAGE, "--%s is for several tasks: --data NAME=FILE", given);
        return KVF_OK;
    }
    if (o->data || o->valid || o->labels)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--%s: with --data NAME=FILE every %s needs the name of its task",
                         o->data    ? "data"
                         : o->valid ? "valid"
                                    : "labels",
                         o->data || o->valid ? "file" : "list");
    KVF_TRY(check_names(ctx, "data", &o->named_data, &o->named_data));
    KVF_TRY(check_names(ctx, "valid", &o->named_valid, &o->named_data));
    KVF_TRY(check_names(ctx, "task", &o->named_task, &o->named_data));
    KVF_TRY(check_names(ctx, "labels", &o->named_labels, &o->named_data));
    for (size_t i = 0; i < o->named_data.n; i++) {
        KVF_TRY(kvf__task_parse(ctx, kind_of(o, i), &task));
        bool labels = value_of(&o->named_labels, o->named_data.item[i]);
        if (labels && task != KVF__TASK_SEQ_CLS && task != KVF__TASK_TOKEN_CLS)
            return kvf__fail(ctx, KVF_EUSAGE, "--labels: task %s has no labels", kind_of(o, i));
    }
    if (o->train_head || o->infix)
        return kvf__fail(ctx, KVF_EUSAGE, "--%s is for one task",
                         o->infix ? "infix" : "train-head");
    if (o->prefix_dropout > 0 && strcmp(o->task_prefix, "shared"))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--task-prefix low-rank and --prefix-dropout exclude each other");
    if (!method || method->port != KVF__PORT_KV)
        return kvf__fail(ctx, KVF_EUSAGE, "--data NAME=FILE: method %s has no prefix to share",
                         o->method);
    return KVF_OK;
}

/* ---- data ------------------------------------------------------------------------------------ */

kvf__label_set kvf__jobs_stored_labels(const kvf__trainer *t)
{
    const kvf__head_values *head = &t->resumed.head;
    const char *name = t->n_jobs ? t->jobs[t->n_jobs - 1].name : NULL;
    for (size_t i = 0; name && i < head->n_tasks; i++)
        if (!strcmp(head->tasks[i].name, name))
            return (kvf__label_set){head->tasks[i].n_labels, head->tasks[i].labels};
    return (kvf__label_set){head->n_labels, head->labels};
}

/* Loads with the trainer standing for this task; what it loaded moves to the job. */
static kvf_status open_job(kvf__trainer *t, kvf__job *job, const char *kind, const char *valid)
{
    t->options.task = kind;
    KVF_TRY(kvf__trainer_decide_task(t));
    job->task = t->task;
    job->metric = t->metric;
    KVF_TRY(kvf__trainer_load_set(t, job->path, &t->data));
    if (t->data.names.n == 1)
        return kvf__fail(t->ctx, KVF_EDATA, "%s: every row has the label \"%s\", want two or more",
                         job->path, t->data.names.names[0]);
    KVF_TRY(kvf__trainer_load_valid(t, job->path, valid));
    job->data = t->data;
    job->valid = t->valid;
    t->data = t->valid = (kvf__dataset){0};
    const kvf__evaluator_options how = {
        .P = t->id.P, .share_prefixes = !strcmp(t->options.share_prefixes, "auto")};
    if (!job->valid.n) return KVF_OK;
    return kvf__evaluator_create(t->ctx, t->base, &job->valid, &how, &job->evaluator);
}

/* Sums over the jobs, and a hash of all hashes. */
static kvf_status sum_up(kvf__trainer *t)
{
    kvf__hash *data = NULL, *valid = NULL;
    kvf_status st = kvf__hash_create(t->ctx, &data);
    if (!st) st = kvf__hash_create(t->ctx, &valid);
    for (size_t i = 0; !st && i < t->n_jobs; i++) {
        const kvf__job *job = &t->jobs[i];
        t->data.n += job->data.n;
        t->data.n_labels += job->data.n_labels;
        t->valid.n += job->valid.n;
        t->data.delimited |= job->data.delimited || job->valid.delimited;
        kvf__hash_add(data, job->name, strlen(job->name) + 1);
        kvf__hash_add(data, job->data.hash, sizeof job->data.hash);
        kvf__hash_add(valid, job->name, strlen(job->name) + 1);
        kvf__hash_add(valid, job->valid.hash, sizeof job->valid.hash);
    }
    if (!st) kvf__hash_hex(data, t->data.hash);
    if (!st) kvf__hash_hex(valid, t->valid.hash);
    kvf__hash_free(data);
    kvf__hash_free(valid);
    return st;
}

/* What the best checkpoint is best in: the metric that --metric names, of every task, else the
 * loss; the mean over the tasks. */
static void decide_metric(kvf__trainer *t)
{
    bool named = t->options.metric && *t->options.metric;
    for (size_t i = 0; i < t->n_jobs; i++) {
        kvf__job *job = &t->jobs[i];
        if (!named) job->metric = kvf__metric_find(job->task, t->options.regression, "loss");
        t->metric = job->metric;
    }
}

kvf_status kvf__jobs_open(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    const char *task = o->task;
    KVF_TRY(kvf__alloc_array(t->ctx, o->named_data.n, sizeof *t->jobs, &t->jobs));
    for (size_t i = 0; i < o->named_data.n; i++) {
        const char *item = o->named_data.item[i];
        kvf__job *job = &t->jobs[t->n_jobs++];
        job->path = value_of(&o->named_data, item);
        KVF_TRY(kvf__strndup(t->ctx, item, kvf__task_name_length(item), &job->name));
        t->options.task = task;
        t->options.labels = value_of(&o->named_labels, item);
        KVF_TRY(open_job(t, job, kind_of(o, i), value_of(&o->named_valid, item)));
    }
    t->options.task = task;
    t->options.labels = NULL;
    decide_metric(t);
    return sum_up(t);
}

kvf_status kvf__jobs_samplers(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    for (size_t i = 0; i < t->n_jobs; i++) {
        kvf__job *job = &t->jobs[i];
        bool last = false;
        KVF_TRY(kvf__sampler_init(t->ctx, &job->sampler, &job->data, o->shuffle, o->seed,
                                  o->batch_tokens ? 0 : o->batch_size, o->batch_tokens));
        if (!strcmp(o->group_by, "prefix"))
            KVF_TRY(kvf__sampler_group_by_common(t->ctx, &job->sampler));
        for (int64_t n; !last; t->epoch_steps++)
            kvf__sampler_next(&job->sampler, &n, &last);
        kvf__sampler_rewind(&job->sampler);
    }
    return KVF_OK;
}

/* ---- heads ----------------------------------------------------------------------------------- */

kvf_status kvf__jobs_heads(kvf__trainer *t)
{
    KVF_TRY(kvf__task_prefix_alloc(t));
    for (size_t i = 0; i < t->n_jobs; i++) {
        kvf__job *job = &t->jobs[i];
        const kvf__dataset summary = t->data;
        if (job->task == KVF__TASK_LM) continue;
        t->task = job->task;
        t->data = job->data; /* a view, for its labels */
        kvf_status st = kvf__trainer_make_head(t, &job->head);
        t->data = summary;
        if (st) return st;
        const kvf__params *params = kvf__head_params(job->head);
        KVF_TRY(kvf__alloc_array(t->ctx, params->n, sizeof *job->names, &job->names));
        for (size_t k = 0; k < params->n; k++)
            KVF_TRY(
                kvf__asprintf(t->ctx, &job->names[k], "%s/%s", job->name, params->item[k].name));
    }
    return KVF_OK;
}

kvf_status kvf__jobs_join(kvf__trainer *t)
{
    for (size_t i = 0; i < t->n_jobs; i++) {
        const kvf__params *params = t->jobs[i].head ? kvf__head_params(t->jobs[i].head) : NULL;
        for (size_t k = 0; params && k < params->n; k++) {
            kvf__param param = params->item[k];
            param.name = t->jobs[i].names[k];
            KVF_TRY(kvf__params_add(t->ctx, &t->params, &param));
        }
        for (int k = 0; k < 2 && t->jobs[i].low[k].value; k++)
            KVF_TRY(kvf__params_add(t->ctx, &t->params, &t->jobs[i].low[k]));
    }
    return KVF_OK;
}

void kvf__jobs_clear(kvf__trainer *t)
{
    for (size_t i = 0; i < t->n_jobs; i++) {
        const kvf__params *params = t->jobs[i].head ? kvf__head_params(t->jobs[i].head) : NULL;
        for (size_t k = 0; params && k < params->n; k++)
            memset(params->item[k].grad, 0, (size_t)params->item[k].n * sizeof(float));
        for (int k = 0; k < 2 && t->jobs[i].low[k].value; k++)
            memset(t->jobs[i].low[k].grad, 0, (size_t)t->jobs[i].low[k].n * sizeof(float));
    }
}

kvf_status kvf__jobs_prepare(kvf__trainer *t, int64_t labels)
{
    for (size_t i = 0; i < t->n_jobs; i++)
        if (t->jobs[i].head) KVF_TRY(kvf__head_prepare(t->ctx, t->jobs[i].head, labels));
    return KVF_OK;
}

/* ---- turns ----------------------------------------------------------------------------------- */

void kvf__jobs_rewind(kvf__trainer *t)
{
    for (size_t i = 0; i < t->n_jobs; i++)
        kvf__sampler_rewind(&t->jobs[i].sampler);
}

/* Which job step `step` is of. */
static kvf__job *draw(const kvf__trainer *t, int64_t step)
{
    kvf__rng rng = kvf__rng_make(t->options.seed, (uint64_t)MIX_STREAM << 32);
    bool equal = !strcmp(t->options.mix, "equal");
    int64_t total = 0, at = 0;
    for (size_t i = 0; i < t->n_jobs; i++)
        total += equal ? 1 : kvf__group_count(&t->jobs[i].data);
    rng.stream += (uint64_t)step; /* a step's draw may consume several values */
    int64_t found = (int64_t)kvf__rng_below(&rng, (uint64_t)total);
    size_t i = 0;
    for (; i + 1 < t->n_jobs; i++) {
        at += equal ? 1 : kvf__group_count(&t->jobs[i].data);
        if (found < at) break;
    }
    return &t->jobs[i];
}

/* Swapped, so that nothing is in two places. */
static void swap(kvf__trainer *t, kvf__job *job)
{
    const kvf__dataset data = t->data;
    const kvf__sampler sampler = t->sampler;
    kvf__head *head = t->head;
    t->data = job->data;
    t->sampler = job->sampler;
    t->head = job->head;
    job->data = data;
    job->sampler = sampler;
    job->head = head;
}

void kvf__jobs_enter(kvf__trainer *t, int64_t step)
{
    if (!t->n_jobs) return;
    kvf__job *job = draw(t, step);
    t->turn = job;
    t->task = job->task;
    swap(t, job);
    t->sampler.dataset = &t->data;
}

void kvf__jobs_leave(kvf__trainer *t, int64_t step)
{
    if (!t->n_jobs) return;
    swap(t, t->turn);
    t->turn->sampler.dataset = &t->turn->data;
    t->turn = NULL;
    t->epoch_end = (step + 1) % t->epoch_steps == 0;
}

kvf_status kvf__jobs_validate(kvf__trainer *t)
{
    double loss = 0, value = 0;
    int64_t n = 0;
    for (size_t i = 0; i < t->n_jobs; i++) {
        const kvf__job *job = &t->jobs[i];
        kvf__subject subject = kvf__trainer_subject(t);
        double one_loss = 0, one = 0;
        if (!job->evaluator) continue;
        subject.head = job->head;
        kvf__task_prefix_fwd(t, job);
        if (t->task_prefix.P) subject.prefix = &t->task_prefix;
        KVF_TRY(kvf__measure_subject(t->ctx, job->evaluator, &job->valid, &subject, job->metric,
                                     &one_loss, &one));
        if (kvf__ranks_follows(t)) continue;
        kvf__trainer_note(t, "step %lld, %s: validation loss %.4f%s%s", (long long)t->step,
                          job->name, one_loss, strcmp(job->metric->name, "loss") ? ", " : "",
                          strcmp(job->metric->name, "loss") ? job->metric->name : "");
        loss += one_loss;
        value += one;
        n++;
    }
    t->valid_loss = loss / (double)n;
    t->metric_value = value / (double)n;
    return KVF_OK;
}

/* ---- the run file ---------------------------------------------------------------------------- */

kvf_status kvf__jobs_describe(kvf__trainer *t, kvf__head_values *out)
{
    KVF_TRY(kvf__alloc_array(t->ctx, t->n_jobs, sizeof *out->tasks, &out->tasks));
    out->n_tasks = t->n_jobs;
    for (size_t i = 0; i < t->n_jobs; i++)
        out->tasks[i] = (kvf__head_task){.name = t->jobs[i].name,
                                         .task = (char *)kvf__task_name(t->jobs[i].task),
                                         .n_labels = t->jobs[i].data.names.n,
                                         .labels = t->jobs[i].data.names.names,
                                         .regression = t->jobs[i].data.regression};
    return KVF_OK;
}

kvf_status kvf__jobs_same(kvf__trainer *t, const kvf__head_values *stored)
{
    bool same = stored->n_tasks == t->n_jobs;
    for (size_t i = 0; same && i < t->n_jobs; i++)
        same = !strcmp(stored->tasks[i].name, t->jobs[i].name) &&
               !strcmp(stored->tasks[i].task, kvf__task_name(t->jobs[i].task));
    if (same) return KVF_OK;
    return kvf__fail(t->ctx, KVF_EUSAGE,
                     "%s: the run was created with other tasks; --resume cannot change them",
                     t->options.out);
}

void kvf__jobs_done(kvf__trainer *t)
{
    if (t->turn) swap(t, t->turn); /* a step failed */
    t->turn = NULL;
    kvf__task_prefix_done(t);
    for (size_t i = 0; i < t->n_jobs; i++) {
        kvf__job *job = &t->jobs[i];
        size_t n = job->head ? kvf__head_params(job->head)->n : 0;
        for (size_t k = 0; job->names && k < n; k++)
            kvf__free(job->names[k]);
        kvf__free(job->names);
        kvf__free(job->name);
        kvf__evaluator_free(job->evaluator);
        kvf__sampler_done(&job->sampler);
        kvf__head_free(job->head);
        kvf__dataset_done(&job->data);
        kvf__dataset_done(&job->valid);
    }
    kvf__free(t->jobs);
    t->jobs = NULL;
    t->n_jobs = 0;
}
