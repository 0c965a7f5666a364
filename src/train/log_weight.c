/* --log-weight: a number for each layer, key head and virtual token, which attention adds to the
 * scores of that key (docs/maths.md). It sets the weight of a token independently of its key and
 * value. The encoder does not compute it: its values and gradient are memory of the prefix and of
 * the prefix's gradient. It precedes the encoder in the list of parameters. A fixed log-weight is
 * not updated. */
#include "tuned.h"

#include <math.h>
#include <string.h>

static const double MOST = (double)KVF__MOST_LOG_WEIGHT;
_Static_assert((int)KVF__MOST_START_MASS == (int)KVF__MOST_LOG_WEIGHT, "one limit for both");

static bool is_start_given(const kvf_train_options *o)
{
    return KVF__GIVEN(o, start_mass) || o->start_mass != 0;
}

kvf_status kvf__log_weight_make(const kvf__run *run, kvf__tuned *tuned)
{
    const kvf_train_options *o = &run->options;

    if (!o->log_weight) return KVF_OK;
    KVF_TRY(kvf__prefix_weigh(run->ctx, &tuned->prefix));
    if (o->log_weight == KVF_LOG_WEIGHT_TRAIN)
        KVF_TRY(kvf__prefix_weigh(run->ctx, &tuned->dprefix));
    KVF_TRY(kvf__log_weight_param(run->ctx, &tuned->prefix, &tuned->dprefix, &tuned->log_weight));
    tuned->log_weight.item->lr_scale = o->log_weight_lr / o->lr; /* the schedule multiplies by o->lr
                                                                  */
    return KVF_OK;
}

/* ---- --start-mass ---------------------------------------------------------------------------- */

/* Sets initial log-weights by --start-mass X. The attention that P virtual tokens get depends on
 * the scores of the base's own keys, which differ between heads more than one number could correct.
 * So each key head gets the log-weight at which the prefix has e^X times the attention mass of the
 * row's own tokens, as the mean over queries.
 *
 * Two means are taken, over the first tokens of some rows, and over their first queries alone,
 * which see no other tokens. The larger one decides. Both are measured with nearly no attention on
 * the prefix, so that each layer reads what the bare base computes. Mass is then proportional to
 * e^log-weight. */
static const double PROBE = -40; /* e^-40 of any mass changes no bit of an f32 */

/* Makes a sample of rows cut short, with a label at every token from the second on, or one label
 * per row. With --infix one token precedes the prefix. */
static kvf_status make_sample(const kvf__run *run, const kvf__dataset *from, bool first_only,
                              kvf__dataset *out)
{
    enum { ROWS = 8, TOKENS = 16 };
    const int64_t first = run->id.infix ? 2 : 1;
    kvf__dataset made = {.task = KVF__TASK_LM};

    KVF_TRY(kvf__dataset_alloc_rows(run->ctx, &made, ROWS, ROWS * TOKENS));
    made.n = 0;
    for (int64_t r = 0; r < from->n && made.n < ROWS; r++) {
        const int64_t length = kvf__example_length(from, r), n = length < TOKENS ? length : TOKENS;
        const int64_t at = made.start[made.n], labels = first_only ? first + 1 : n;
        if (n <= first) continue;
        memcpy(made.ids + at, from->ids + from->start[r], (size_t)n * sizeof *made.ids);
        for (int64_t i = 0; i < n; i++)
            made.labels[at + i] = i >= first && i < labels ? made.ids[at + i] : KVF__NO_LABEL;
        made.start[++made.n] = at + n;
        made.n_labels += labels - first;
    }
    *out = made;
    return KVF_OK;
}

static kvf_status no_more(void *user, kvf__pass *pass, const kvf__batch *batch)
{
    (void)user, (void)pass, (void)batch; /* the shares are summed already */
    return KVF_OK;
}

/* Sets *share [layers of the base, H] to sums over the labels of a sample. */
static kvf_status sum_shares(const kvf__run *run, const kvf__tuned *tuned, const kvf__dataset *set,
                             double *share)
{
    const kvf__evaluator_options how = {
        .P = run->id.P, .neurons = run->id.neurons.N, .infix = run->id.infix};
    const kvf__subject subject = {
        .condition = {.prefix = &tuned->prefix, .position_start = run->id.position_start},
        .share = share};
    kvf__evaluator *evaluator = NULL;

    KVF_TRY(kvf__evaluator_create(run->ctx, run->base, set, &how, &evaluator));
    kvf_status st = kvf__evaluator_walk(run->ctx, evaluator, &subject, no_more, NULL);
    kvf__evaluator_free(evaluator);
    return st;
}

/* Raises mass [L, G] to the mean of a sample, using the largest among the query heads of a key
 * head. */
static kvf_status raise_masses(const kvf__run *run, const kvf__tuned *tuned,
                               const kvf__dataset *rows, bool first_only, double *mass)
{
    const kvf__desc *d = kvf__model_desc(run->base->model);
    const kvf__kv_shape kv = kvf__identity_kv(&run->id);
    const int64_t H = d->H;
    kvf__dataset set = {0};
    double *share = NULL;
    kvf_status st = make_sample(run, rows, first_only, &set);

    if (!st) st = kvf__alloc_array(run->ctx, (size_t)(d->L * H), sizeof *share, &share);
    if (!st && set.n_labels) st = sum_shares(run, tuned, &set, share);
    for (int64_t i = 0; !st && set.n_labels && i < d->L * H; i++) {
        if (kvf__layer_mixes(d, i / H)) continue;
        const kvf__kv_heads at = kvf__kv_at(&kv, kvf__desc_layer(d, i / H).from);
        double *of = &mass[at.heads + i % H / (H / at.G)];
        *of = fmax(*of, share[i] / (double)set.n_labels);
    }
    kvf__free(share);
    kvf__dataset_done(&set);
    return st;
}

/* ---- the start ------------------------------------------------------------------------------- */

/* Sets log-weights from values of each virtual token, or of each key head. Layers without a prefix
 * keep 0. */
static void set_layers(const kvf__tuned *tuned, const float *values, const double *of_heads)
{
    const kvf__prefix *p = &tuned->prefix;

    for (int64_t l = 0; l < p->L; l++) {
        const kvf__prefix_layer at = kvf__prefix_at(p, l);
        const int64_t first = at.log_weight - p->log_weight, end = first + at.G * p->P;
        for (int64_t i = first; p->layer_mask[l] && i < end; i++)
            p->log_weight[i] = values ? values[i] : (float)of_heads[i / p->P];
    }
}

static kvf_status start_at_mass(const kvf__run *run, kvf__tuned *tuned, const kvf__dataset *rows,
                                double wanted)
{
    const kvf__kv_shape kv = kvf__identity_kv(&run->id);
    const int64_t heads = kvf__kv_at(&kv, kv.L).heads;
    double *mass = NULL;

    KVF_TRY(kvf__alloc_array(run->ctx, (size_t)(2 * heads), sizeof *mass, &mass));
    double *probe = mass + heads;
    for (int64_t i = 0; i < heads; i++)
        probe[i] = PROBE;
    set_layers(tuned, NULL, probe);
    kvf_status st = kvf__encoder_fwd(run->ctx, tuned->encoder, tuned->emitted);
    if (!st) st = raise_masses(run, tuned, rows, false, mass);
    if (!st) st = raise_masses(run, tuned, rows, true, mass);
    for (int64_t i = 0; !st && i < heads; i++) {
        const double weight = wanted + PROBE - log(mass[i]);
        mass[i] = mass[i] > 0 ? fmax(-MOST, fmin(MOST, weight)) : wanted;
    }
    if (!st) set_layers(tuned, NULL, mass);
    kvf__free(mass);
    return st;
}

kvf_status kvf__log_weight_from(const kvf__run *run, kvf__tuned *tuned, const char *where,
                                const float *values)
{
    if (!values) return KVF_OK;
    if (!tuned->log_weight.n)
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "%s: has log-weights: use --log-weight fixed or train", where);
    if (is_start_given(&run->options))
        return kvf__fail(run->ctx, KVF_EUSAGE, "--start-mass: not with %s, which has log-weights",
                         where);
    set_layers(tuned, values, NULL);
    return kvf__prefix_check_weights(run->ctx, where, &tuned->prefix);
}

static bool all_zero(const kvf__params *params)
{
    for (int64_t i = 0; i < params->item->n; i++)
        if (params->item->value[i] != 0) return false;
    return true;
}

kvf_status kvf__log_weight_start(const kvf__run *run, kvf__tuned *tuned,
                                 const kvf__train_task *task)
{
    const kvf_train_options *o = &run->options;

    if (!tuned->log_weight.n) return KVF_OK;
    if (is_start_given(o)) KVF_TRY(start_at_mass(run, tuned, &task->data, o->start_mass));
    if (is_start_given(o) || kvf__log_weight_trained(tuned) || !all_zero(&tuned->log_weight))
        return KVF_OK;
    return kvf__fail(run->ctx, KVF_EUSAGE,
                     "--log-weight fixed: all log-weights are 0: use --start-mass, or start from a "
                     "file with log-weights");
}

/* ---- what it comes to ------------------------------------------------------------------------ */

enum { MOST_ROWS = 32, MOST_TOKENS = 4096 };

static kvf_status measure(const kvf__run *run, const kvf__tuned *tuned, const kvf__train_task *task,
                          const kvf__dataset *set, double *start, double *bare)
{
    const kvf__evaluator_options how = {
        .P = run->id.P, .neurons = run->id.neurons.N, .infix = run->id.infix};
    kvf__subject subject = kvf__tuned_subject(tuned, &run->id, task);
    kvf__evaluator *evaluator = NULL;

    KVF_TRY(kvf__evaluator_create(run->ctx, run->base, set, &how, &evaluator));
    kvf_status st = kvf__evaluator_run(run->ctx, evaluator, &subject, start, NULL);
    subject.condition = (kvf__condition){0};
    if (!st) st = kvf__evaluator_run(run->ctx, evaluator, &subject, bare, NULL);
    kvf__evaluator_free(evaluator);
    return st;
}

/* Only if the base has its own loss. An untrained head has none. */
kvf_status kvf__log_weight_note(kvf__run *run, kvf__tuned *tuned, const kvf__train_task *task)
{
    const kvf__dataset set = kvf__dataset_first(task->valid.n ? &task->valid : &task->data,
                                                MOST_ROWS, MOST_TOKENS);
    double start = 0, bare = 0;

    if (!tuned->log_weight.n || run->output.is_resumed || run->options.dry_run ||
        kvf__ranks_follows(run->ranks) || !kvf__head_is_lm(task->head) || !set.n_labels)
        return KVF_OK;
    KVF_TRY(kvf__encoder_fwd(run->ctx, tuned->encoder, tuned->emitted));
    kvf__low_rank_task_fwd(tuned, task);
    KVF_TRY(measure(run, tuned, task, &set, &start, &bare));
    kvf__run_note(run, "log-weights: initial loss %.4f, %.4f with the bare base (%+.1e)", start,
                  bare, start - bare);
    return KVF_OK;
}
