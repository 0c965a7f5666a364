/* --retain FILE: the loss on text that the prefix is not meant to change, followed through a
 * run and held against the bare base's. It decides nothing: best checkpoints and early stopping are
 * those of the task. With --kl-to-base it is held down (kl_to_base.c).
 *
 * The bare base reads a row from position 0 on, the prefix's reader from position_start on: what a
 * person would run in either case. */
#include "trainer.h"

#include <math.h>
#include <string.h>

/* As the rows of a data file, but in a format of its own, and cut where they are too long. */
static kvf_status load(kvf__trainer *t, kvf__dataset *out)
{
    const kvf_train_options *o = &t->options;
    int64_t longest = kvf__longest_row(t->base, t->id.position_start);
    kvf__dataset_options how = {
        .render = t->rows.renderer.render,
        .max_length = o->max_length && o->max_length < longest ? o->max_length : longest,
        .vocab = (int32_t)kvf__model_desc(t->base->model)->V,
        .overlong = KVF_OVERLONG_TRUNCATE_END,
        .causal = true,
    };
    how.render.map = NULL;
    KVF_TRY(kvf__dataset_load(t->ctx, o->retention, &how, out));
    if (out->n_labels) return KVF_OK;
    return kvf__fail(t->ctx, KVF_EDATA, "%s: no row has a token to predict", o->retention);
}

/* Restores earlier measurements from the run file. */
static void restore(const kvf__trainer *t, kvf__retention *m)
{
    const kvf_json *lineage = t->output.resumed.lineage;
    const kvf__history *history = &t->output.resumed.history;
    m->base_loss = kvf_json_real(kvf_json_get(lineage, "retention_base_loss"), NAN);
    m->loss = m->start_loss = kvf_json_real(kvf_json_get(lineage, "retention_start_loss"), NAN);
    for (int64_t i = 0; history->retention_loss && i < history->n; i++)
        if (!isnan(history->retention_loss[i])) m->loss = history->retention_loss[i];
}

kvf_status kvf__retention_open(kvf__trainer *t)
{
    const kvf__evaluator_options how = {.P = t->id.P, .share_prefixes = !t->options.share_off};
    if (!t->options.retention) return KVF_OK;
    KVF_TRY(kvf__alloc(t->ctx, sizeof *t->retention, &t->retention));
    kvf__retention *m = t->retention;
    m->base_loss = m->start_loss = m->loss = m->kl = NAN;
    if (t->output.is_resumed) restore(t, m);
    KVF_TRY(load(t, &m->set));
    if (m->set.truncated && !kvf__ranks_follows(t))
        kvf__trainer_note(t, "%s: %lld rows cut", t->options.retention,
                          (long long)m->set.truncated);
    return kvf__evaluator_create(t->ctx, t->base, &m->set, &how, &m->evaluator);
}

kvf_status kvf__retention_run(kvf__trainer *t)
{
    kvf__retention *m = t->retention;
    const kvf__subject subject = kvf__trainer_subject(t, t->rows.task);
    return kvf__evaluator_run(t->ctx, m->evaluator, &subject, &m->loss, NULL);
}

kvf_status kvf__retention_measure(kvf__trainer *t)
{
    KVF_TRY(kvf__encoder_fwd(t->ctx, t->tuned.encoder, t->tuned.emitted));
    KVF_TRY(kvf__ranks_retention(t));
    return kvf__retention_run(t);
}

kvf__evaluator *kvf__retention_evaluator(kvf__trainer *t)
{
    return t->retention ? t->retention->evaluator : NULL;
}

kvf_status kvf__retention_prepare(kvf__trainer *t)
{
    kvf__retention *m = t->retention;
    const kvf__subject bare = {0};
    if (!m || kvf__ranks_follows(t)) return KVF_OK;
    if (t->options.kl_to_base > 0) KVF_TRY(kvf__base_kl_prepare(t));
    if (t->output.is_resumed || t->options.dry_run) return KVF_OK;
    KVF_TRY(kvf__evaluator_run(t->ctx, m->evaluator, &bare, &m->base_loss, NULL));
    KVF_TRY(kvf__retention_measure(t));
    m->start_loss = m->loss;
    kvf__trainer_note(t, "retention: loss %.4f of the bare base, %.4f at the start", m->base_loss,
                      m->loss);
    return KVF_OK;
}

void kvf__retention_lineage(const kvf__trainer *t, kvf_json *lineage)
{
    const kvf__retention *m = t->retention;
    if (!m) return;
    kvf_json_set(lineage, "retention_hash", kvf_json_new_str(m->set.hash));
    kvf_json_set(lineage, "retention_examples", kvf_json_new_int(m->set.n));
    kvf_json_set(lineage, "retention_base_loss", kvf_json_new_real(m->base_loss));
    kvf_json_set(lineage, "retention_start_loss", kvf_json_new_real(m->start_loss));
}

void kvf__retention_result(const kvf__trainer *t, kvf_train_result *result)
{
    const kvf__retention *m = t->retention;
    result->retention_loss = m ? m->loss : NAN;
    result->retention_base_loss = m ? m->base_loss : NAN;
    result->retention_start_loss = m ? m->start_loss : NAN;
}

const char *kvf__retention_hash(const kvf__trainer *t)
{
    return t->retention ? t->retention->set.hash : "";
}

void kvf__retention_free(kvf__retention *m)
{
    if (!m) return;
    kvf__evaluator_free(m->evaluator);
    kvf__base_kl_done(m);
    kvf__dataset_done(&m->set);
    kvf__free(m);
}
