/* --retain FILE: follows the loss on text that the prefix should not change, and compares it with
 * the bare base. It does not influence the best checkpoint or early stopping. --kl-to-base lowers
 * it (kl_to_base.c). --retain prompts takes the text without loss from the training rows.
 *
 * The bare base reads a row from position 0 on, the base with the prefix from position_start on, as
 * in normal use. */
#include "retention.h"
#include "row_list.h"

#include <math.h>
#include <string.h>

enum { PROMPTS = 128 };           /* training rows of --retain prompts */
#define PROMPTS_STREAM 0x70726f6d /* "prom": separates this random stream from the others */

/* Loads rows like those of a data file, but with a separate format option, and truncates long ones.
 */
static kvf_status load(const kvf__run *run, const kvf__render *render, kvf__dataset *out)
{
    const kvf_train_options *o = &run->options;
    int64_t longest = kvf__longest_row(run->base, run->id.position_start);
    kvf__dataset_options how = {
        .render = *render,
        .max_length = o->max_length && o->max_length < longest ? o->max_length : longest,
        .vocab = (int32_t)kvf__model_desc(run->base->model)->V,
        .overlong = KVF_OVERLONG_TRUNCATE_END,
        .causal = true,
    };
    how.render.map = NULL;
    KVF_TRY(kvf__dataset_load(run->ctx, o->retention, &how, out));
    if (out->n_labels) return KVF_OK;
    return kvf__fail(run->ctx, KVF_EDATA, "%s: no row has a token to predict", o->retention);
}

/* Appends a row up to its last token without loss. Those tokens are predicted, the others not. */
static kvf_status add_prompt(kvf_ctx *ctx, kvf__row_list *list, const kvf__dataset *data,
                             int64_t row)
{
    int64_t end = data->start[row + 1];
    while (end > data->start[row] && data->labels[end - 1] != KVF__NO_LABEL)
        end--;
    for (int64_t i = data->start[row]; i < end; i++) {
        const bool predicted = data->labels[i] == KVF__NO_LABEL;
        KVF_TRY(kvf__ids_add(ctx, &list->ids, data->ids[i]));
        KVF_TRY(kvf__ids_add(ctx, &list->labels, predicted ? data->ids[i] : KVF__NO_LABEL));
    }
    return kvf__row_list_end(ctx, list);
}

/* Takes training rows in random order. */
static kvf_status take_prompts(const kvf__run *run, const kvf__dataset *data, kvf__dataset *out)
{
    kvf__rng rng = kvf__rng_make(run->options.seed, (uint64_t)PROMPTS_STREAM << 32);
    kvf__row_list list = {.longest = kvf__longest_example(data)};
    int64_t *order = NULL;
    KVF_TRY(kvf__alloc_array(run->ctx, (size_t)data->n, sizeof *order, &order));
    kvf__rng_order(&rng, order, data->n);
    kvf_status st = KVF_OK;
    for (int64_t i = 0; !st && i < data->n && list.ends.n < PROMPTS; i++)
        st = add_prompt(run->ctx, &list, data, order[i]);
    if (!st && !list.ends.n)
        st = kvf__fail(run->ctx, KVF_EDATA,
                       "--retain prompts: no row of --data has tokens without loss; want a file");
    if (!st) st = kvf__row_list_pick(run->ctx, &list, 1, true, "", out);
    kvf__row_list_done(&list);
    kvf__free(order);
    return st;
}

/* Restores earlier measurements from the run file. */
static void restore(const kvf__run *run, kvf__retention *m)
{
    const kvf_json *lineage = run->output.resumed.lineage;
    const kvf__history *history = &run->output.resumed.history;
    m->base_loss = kvf_json_real(kvf_json_get(lineage, "retention_base_loss"), NAN);
    m->loss = m->start_loss = kvf_json_real(kvf_json_get(lineage, "retention_start_loss"), NAN);
    for (int64_t i = 0; history->retention_loss && i < history->n; i++)
        if (!isnan(history->retention_loss[i])) m->loss = history->retention_loss[i];
}

kvf_status kvf__retention_open(kvf__run *run, const kvf__train_rows *rows, kvf__retention **out)
{
    const kvf__evaluator_options how = {
        .P = run->id.P, .neurons = run->id.neurons.N, .share_prefixes = !run->options.share_off};
    if (!run->options.retention) return KVF_OK;
    KVF_TRY(kvf__alloc(run->ctx, sizeof **out, out));
    kvf__retention *m = *out;
    m->base_loss = m->start_loss = m->loss = NAN;
    if (run->output.is_resumed) restore(run, m);
    KVF_TRY(!strcmp(run->options.retention, "prompts")
                ? take_prompts(run, &rows->task->data, &m->set)
                : load(run, &rows->renderer.render, &m->set));
    if (m->set.truncated && !kvf__ranks_follows(run->ranks))
        kvf__run_note(run, "%s: %lld rows truncated", run->options.retention,
                      (long long)m->set.truncated);
    return kvf__evaluator_create(run->ctx, run->base, &m->set, &how, &m->evaluator);
}

kvf_status kvf__retention_run(const kvf__run *run, kvf__retention *m, const kvf__tuned *tuned,
                              const kvf__train_rows *rows)
{
    const kvf__subject subject = kvf__tuned_subject(tuned, &run->id, rows->task);
    return kvf__evaluator_run(run->ctx, m->evaluator, &subject, &m->loss, NULL);
}

kvf_status kvf__retention_measure(kvf__run *run, kvf__retention *m, kvf__tuned *tuned,
                                  const kvf__train_rows *rows)
{
    KVF_TRY(kvf__encoder_fwd(run->ctx, tuned->encoder, tuned->emitted));
    KVF_TRY(kvf__ranks_measure(run, tuned, KVF__ORDER_RETENTION));
    return kvf__retention_run(run, m, tuned, rows);
}

kvf_status kvf__retention_prepare(kvf__run *run, kvf__retention *m, kvf__tuned *tuned,
                                  const kvf__train_rows *rows)
{
    const kvf__subject bare = {0};
    if (!m || kvf__ranks_follows(run->ranks)) return KVF_OK;
    if (run->options.kl_to_base > 0) KVF_TRY(kvf__base_kl_prepare(run, m));
    if (run->output.is_resumed || run->options.dry_run) return KVF_OK;
    KVF_TRY(kvf__evaluator_run(run->ctx, m->evaluator, &bare, &m->base_loss, NULL));
    KVF_TRY(kvf__retention_measure(run, m, tuned, rows));
    m->start_loss = m->loss;
    kvf__run_note(run, "retention: loss %.4f with the bare base, %.4f with the initial prefix",
                  m->base_loss, m->loss);
    return KVF_OK;
}

void kvf__retention_lineage(const kvf__retention *m, kvf_json *lineage)
{
    if (!m) return;
    kvf_json_set(lineage, "retention_hash", kvf_json_new_str(m->set.hash));
    kvf_json_set(lineage, "retention_examples", kvf_json_new_int(m->set.n));
    kvf_json_set(lineage, "retention_base_loss", kvf_json_new_real(m->base_loss));
    kvf_json_set(lineage, "retention_start_loss", kvf_json_new_real(m->start_loss));
}

void kvf__retention_result(const kvf__retention *m, kvf_train_result *result)
{
    result->retention_loss = m ? m->loss : NAN;
    result->retention_base_loss = m ? m->base_loss : NAN;
    result->retention_start_loss = m ? m->start_loss : NAN;
}

const char *kvf__retention_hash(const kvf__retention *m)
{
    return m ? m->set.hash : "";
}

void kvf__retention_free(kvf__retention *m)
{
    if (!m) return;
    kvf__evaluator_free(m->evaluator);
    kvf__base_kl_done(m);
    kvf__dataset_done(&m->set);
    kvf__free(m);
}
