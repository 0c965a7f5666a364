/* Prune: drops virtual tokens, or virtual neurons, that the data does not need, in every layer. The
 * remaining keys keep their positions, and position_start does not change. So neither the remaining
 * tokens nor the text move, and each loss of the curve is that of a file of this length. PEFT
 * cannot store such a prefix, because its text starts at P; export reports it. A prefix inside rows
 * is refused, because the positions of the text after it depend on its length.
 *
 * The default score is greedy by the loss: P evaluations for the first token, P - 1 for the next.
 * The score by gradient takes one forward and backward pass, then one evaluation for each drop.
 *
 * Neurons of different layers have nothing in common, so those of each layer are first ordered by
 * their score by gradient. Place i is then the i-th neuron of every layer, from the most needed. */
#include "arena.h"
#include "evaluation.h"
#include "json_pack.h"
#include "merge_int.h"
#include "outfile.h"

#include <kvfold/lab.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct pruning {
    kvf_ctx *ctx;
    const kvf_prune_options *o;
    kvf_base *base;
    kvf_prefix *prefix;
    kvf__evaluation trial;
    kvf__subject subject;
    kvf__prefix cut; /* the prefix without the dropped tokens */
    bool by_gradient, neurons;
    int64_t total;          /* virtual tokens, or neurons of a layer, of the whole prefix */
    int64_t *kept, n;       /* [n] indices of the remaining ones, ascending */
    double *score;          /* [total] initial score of each */
    float *flat, *flat_cut; /* [total, width] neurons as kvf__neurons_to_flat(), by place */
    size_t width;
    kvf_prune_point *curve; /* [n_points] */
    size_t n_points;
    void *memory; /* owner of these lists */
    int64_t losses, most_losses;
    kvf_prune_point next; /* the next drop, which was not made */
} pruning;

/* Neurons are ordered by their gradient also when the losses choose. */
static bool needs_gradient(const pruning *p)
{
    return p->by_gradient || p->neurons;
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* Copies the kept neurons, except the one at place `without` (-1: all), into p->cut. */
static void cut_neurons(pruning *p, int64_t without)
{
    int64_t at = 0;

    for (int64_t i = 0; i < p->n; i++)
        if (i != without)
            memcpy(p->flat_cut + (size_t)at++ * p->width, p->flat + (size_t)p->kept[i] * p->width,
                   p->width * sizeof(float));
    p->cut.neurons.shape.N = at;
    kvf__neurons_from_flat(&p->cut.neurons, p->flat_cut);
}

/* Copies the kept tokens, except the one at place `without` (-1: all), into p->cut. */
static void cut(pruning *p, int64_t without)
{
    if (p->neurons) {
        cut_neurons(p, without);
        return;
    }
    const kvf__prefix *from = &p->prefix->file.prefix;
    kvf__prefix *to = &p->cut;
    int64_t at = 0;

    to->P = p->n - (without >= 0);
    for (int64_t i = 0; i < p->n; i++)
        if (i != without) kvf__prefix_copy_tokens(to, at++, from, p->kept[i], 1);
}

static kvf_status loss_without(pruning *p, int64_t place, double *loss)
{
    cut(p, place);
    p->subject.condition.prefix = &p->cut;
    KVF_TRY(kvf__evaluator_run(p->ctx, p->trial.evaluator, &p->subject, loss, NULL));
    p->losses++;
    if (p->o->progress) p->o->progress(p->o->user, p->losses, p->most_losses);
    return KVF_OK;
}

/* Returns the number of losses to compute until --keep tokens remain; an upper limit with
 * --max-loss-rise. */
static int64_t most_losses(const pruning *p)
{
    const int64_t P = p->total, keep = p->o->keep ? p->o->keep : 1;
    return p->by_gradient ? P - keep : P * (P + 1) / 2 - keep * (keep + 1) / 2;
}

/* Finds the place of the next token to drop, and the loss without it. */
static kvf_status best_drop(pruning *p, int64_t *place, double *loss)
{
    const bool first = p->n == p->total;
    int64_t best = 0;

    if (p->by_gradient) {
        for (int64_t i = 1; i < p->n; i++)
            if (p->score[p->kept[i]] < p->score[p->kept[best]]) best = i;
        *place = best;
        return loss_without(p, best, loss);
    }
    for (int64_t i = 0; i < p->n; i++) {
        double without = 0;
        KVF_TRY(loss_without(p, i, &without));
        if (first) p->score[i] = without - p->trial.loss;
        if (i && without >= *loss) continue;
        best = i;
        *loss = without;
    }
    *place = best;
    return KVF_OK;
}

/* ---- scores by gradient ---------------------------------------------------------------------- */

/* Gradient times value: the first-order change of the loss if a virtual token's keys and values
 * became zero. Only its magnitude counts, because a zero key still takes its share of attention. */

typedef struct ranked {
    double score;
    int64_t at;
} ranked;

/* Compares for qsort: larger scores first. */
static int by_score(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

typedef struct gradient_sum {
    const pruning *p;
    kvf__prefix d; /* gradient of the summed loss */
    int64_t terms;
} gradient_sum;

static kvf_status add_gradient(void *user, kvf__pass *pass, const kvf__batch *batch)
{
    gradient_sum *s = user;
    const kvf__grads grads = {.prefix = &s->d};
    const kvf__loss how = {.head = s->p->subject.head, .gradient = true, .scale = 1};
    double loss = 0;
    s->terms += kvf__head_terms(how.head, batch);
    KVF_TRY(kvf__pass_loss(s->p->ctx, pass, &how, &loss));
    return kvf__pass_bwd(s->p->ctx, pass, &grads);
}

/* Returns |gradient x value| of one token over all layers and heads. */
static double token_score(const kvf__prefix *kv, const kvf__prefix *d, int64_t token)
{
    double sum = 0;
    for (int64_t l = 0; l < kv->L; l++) {
        const kvf__prefix_layer x = kvf__prefix_at(kv, l), dx = kvf__prefix_at(d, l);
        for (int64_t head = 0; head < 2 * x.G; head++) {
            const int64_t at = (head * kv->P + token) * x.D;
            for (int64_t k = at; k < at + x.D; k++)
                sum += (double)dx.k[k] * (double)x.k[k];
        }
    }
    return fabs(sum);
}

/* Orders the neurons of a layer, each with `values` values, by |gradient x value|, and adds these
 * scores to those of the places. Without its value a neuron is none, so only values count. order
 * [total]: scratch. */
static void order_layer(pruning *p, const kvf__neurons_layer *of, const kvf__neurons_layer *d,
                        int64_t l, double terms, ranked *order)
{
    const int64_t C = p->cut.neurons.shape.C;
    const size_t values = (size_t)kvf__neuron_values(&p->cut.neurons.shape);

    for (int64_t i = 0; i < p->total; i++) {
        double sum = 0;
        for (int64_t c = i * C; c < (i + 1) * C; c++)
            sum += (double)d->value[c] * (double)of->value[c];
        order[i] = (ranked){fabs(sum) / terms, i};
    }
    qsort(order, (size_t)p->total, sizeof *order, by_score);
    for (int64_t i = 0; i < p->total; i++) {
        p->score[i] += order[i].score;
        memcpy(p->flat + (size_t)i * p->width + (size_t)l * values,
               p->flat_cut + (size_t)order[i].at * p->width + (size_t)l * values,
               values * sizeof(float));
    }
}

static kvf_status order_neurons(pruning *p, const kvf__neurons *d, double terms)
{
    const kvf__neurons *own = &p->prefix->file.prefix.neurons;
    ranked *order = NULL;

    KVF_TRY(kvf__alloc_array(p->ctx, (size_t)p->total, sizeof *order, &order));
    kvf__neurons_to_flat(own, p->flat_cut);
    for (int64_t l = 0; l < own->shape.L; l++) {
        const kvf__neurons_layer of = kvf__neurons_at(own, l), slope = kvf__neurons_at(d, l);
        order_layer(p, &of, &slope, l, terms, order);
    }
    kvf__free(order);
    return KVF_OK;
}

static kvf_status score_by_gradient(pruning *p)
{
    const kvf__prefix *kv = p->subject.condition.prefix;
    const kvf__evaluator_options how = {.P = kv->P,
                                        .neurons = kv->neurons.shape.N,
                                        .batch_tokens = p->o->eval.batch_tokens,
                                        .share_prefixes = true,
                                        .backward = true};
    kvf__evaluator *evaluator = NULL;
    gradient_sum s = {.p = p};
    double terms;
    kvf_status st = kvf__prefix_like(p->ctx, &s.d, kv);
    if (st) goto out;
    memcpy(s.d.layer_mask, kv->layer_mask, (size_t)kv->L);
    st = kvf__evaluator_create(p->ctx, p->base, &p->trial.set, &how, &evaluator);
    if (st) goto out;
    st = kvf__evaluator_walk(p->ctx, evaluator, &p->subject, add_gradient, &s);
    terms = (double)(s.terms ? s.terms : 1);
    for (int64_t i = 0; i < p->total && !st && !p->neurons; i++)
        p->score[i] = token_score(kv, &s.d, i) / terms;
    if (!st && p->neurons) st = order_neurons(p, &s.d.neurons, terms);
out:
    kvf__evaluator_free(evaluator);
    kvf__prefix_done(&s.d);
    return st;
}

/* ---- dropping -------------------------------------------------------------------------------- */

static bool enough(const pruning *p)
{
    return p->n == 1 || (p->o->keep && p->n == p->o->keep);
}

static kvf_status drop_tokens(pruning *p)
{
    p->curve[p->n_points++] = (kvf_prune_point){p->n, -1, p->trial.loss};
    p->most_losses = most_losses(p);
    while (!enough(p)) {
        int64_t place = 0;
        double loss = 0;
        KVF_TRY(best_drop(p, &place, &loss));
        const kvf_prune_point next = {p->n - 1, p->kept[place], loss};
        if (!p->o->keep && !(loss - p->trial.loss <= p->o->max_loss_rise)) {
            p->next = next;
            break;
        }
        p->curve[p->n_points++] = next;
        p->n--;
        memmove(p->kept + place, p->kept + place + 1, (size_t)(p->n - place) * sizeof *p->kept);
    }
    return KVF_OK;
}

/* ---- what is opened -------------------------------------------------------------------------- */

static kvf_status check_options(kvf_ctx *ctx, const kvf_prune_options *o)
{
    if (o->keep < 0 || (!o->keep && !isfinite(o->max_loss_rise)))
        return kvf__fail(ctx, KVF_EUSAGE, "one of --keep and --max-loss-rise is needed");
    return KVF_OK;
}

static kvf_status check_kind(pruning *p)
{
    const kvf__identity *id = &p->prefix->file.id;

    if (id->infix)
        return kvf__fail(p->ctx, KVF_EUNSUPPORTED,
                         "%s: a prefix inside rows (--infix) cannot be pruned, because the "
                         "position of the text after it depends on its length",
                         p->prefix->path);
    p->neurons = p->o->neurons || !id->P;
    p->total = p->neurons ? id->neurons.N : id->P;
    if (!p->total)
        return kvf__fail(p->ctx, KVF_EUSAGE, "%s: has no virtual %s", p->prefix->path,
                         p->neurons ? "neurons" : "tokens");
    if (id->relative_bias && !p->neurons)
        return kvf__fail(p->ctx, KVF_EUNSUPPORTED,
                         "%s: cannot be pruned, because the decoder's relative bias of its keys "
                         "depends on the distance to the text",
                         p->prefix->path);
    if (p->o->keep > p->total)
        return kvf__fail(p->ctx, KVF_EUSAGE, "--keep %lld: %s has only %lld virtual %s",
                         (long long)p->o->keep, p->prefix->path, (long long)p->total,
                         p->neurons ? "neurons" : "tokens");
    return KVF_OK;
}

static void lay_out(void *object, kvf__carver *carve)
{
    pruning *p = object;
    p->kept = kvf__carve(carve, p->total, 1, sizeof *p->kept);
    p->score = kvf__carve(carve, p->total, 1, sizeof *p->score);
    p->curve = kvf__carve(carve, p->total, 1, sizeof *p->curve);
    p->flat = kvf__carve(carve, p->total, (int64_t)p->width, sizeof *p->flat);
    p->flat_cut = kvf__carve(carve, p->total, (int64_t)p->width, sizeof *p->flat_cut);
}

static kvf_status alloc_memory(pruning *p)
{
    const kvf__prefix *kv = &p->prefix->file.prefix;

    KVF_TRY(kvf__prefix_like(p->ctx, &p->cut, kv));
    memcpy(p->cut.layer_mask, kv->layer_mask, (size_t)kv->L);
    KVF_TRY(kvf__prefix_take_weights(p->ctx, &p->cut, kv));
    kvf__neurons_take(&p->cut.neurons, &kv->neurons);
    if (p->neurons) {
        memcpy(p->cut.kv, kv->kv, kvf__prefix_count(kv) * sizeof *kv->kv);
        p->width = kvf__neurons_count(&kv->neurons) / (size_t)p->total;
    }
    KVF_TRY(kvf__carve_block(p->ctx, lay_out, p, &p->memory));
    for (p->n = 0; p->n < p->total; p->n++)
        p->kept[p->n] = p->n;
    return KVF_OK;
}

/* A trained language-model head needs memory for its gradient. */
static kvf_status load_heads(pruning *p)
{
    const kvf__params *values = &p->prefix->file.head.params.params;

    p->subject = kvf__subject_of(p->prefix, NULL);
    if (p->prefix->task != KVF__TASK_LM)
        return kvf__prefix_head(p->ctx, p->base, p->prefix, &p->subject.head);
    if (!values->n) return KVF_OK;
    KVF_TRY(kvf__head_create_lm(p->ctx, p->base->model, needs_gradient(p), &p->subject.head));
    return kvf__head_load(p->ctx, kvf__head_params(p->subject.head), "/head", values);
}

static kvf_status open_all(pruning *p)
{
    const kvf_prune_options *o = p->o;
    const kvf__prefix_source source = KVF__PREFIX_SOURCE(o, o->prefix);
    kvf_base_options how = {.precision = o->precision, .lora = o->lora};

    KVF_TRY(kvf__prefix_source_read(p->ctx, &source, &p->prefix));
    KVF_TRY(check_kind(p));
    how.backward = needs_gradient(p);
    KVF_TRY(kvf_base_open(p->ctx, o->base, &how, &p->base));
    KVF_TRY(kvf_prefix_check(p->ctx, p->prefix, p->base, o->allow_other_base));
    KVF_TRY(alloc_memory(p));
    KVF_TRY(load_heads(p));
    KVF_TRY(kvf__evaluation_run(p->ctx, p->base, &p->prefix, 1, &o->eval, false, &p->trial));
    if (isfinite(p->trial.loss)) return KVF_OK;
    return kvf__fail(p->ctx, KVF_EDATA, "%s: the rows have no labels to measure a loss on",
                     o->eval.data);
}

/* ---- the new file ---------------------------------------------------------------------------- */

static kvf_status kept_text(pruning *p, kvf__buf *text)
{
    for (int64_t i = 0; i < p->n; i++)
        KVF_TRY(kvf__buf_printf(p->ctx, text, "%s%lld", i ? "," : "", (long long)p->kept[i]));
    return KVF_OK;
}

static kvf_status extend_lineage(pruning *p)
{
    const kvf_json *options = p->prefix->file.options;
    kvf_json *less = NULL, **lineage = &p->prefix->file.lineage;
    kvf__buf kept = {0};

    KVF_TRY(kvf__lineage_add_hash(p->ctx, lineage, "pruned_hash", p->o->prefix));
    KVF_TRY(kvf__lineage_add_hash(p->ctx, lineage, "pruned_data_hash", p->o->eval.data));
    kvf_status st = kept_text(p, &kept);
    if (!st) st = kvf__lineage_add(p->ctx, lineage, "pruned_kept", kvf_json_new_str(kept.data));
    if (!st)
        st = kvf__json_common(p->ctx, &options, 1, p->neurons ? "ffn-length" : "prefix-length",
                              &less);
    kvf__buf_done(&kept);
    if (st) return st;
    kvf_json_free(p->prefix->file.options);
    p->prefix->file.options = less;
    return KVF_OK;
}

static kvf_json *point_json(const kvf_prune_point *at)
{
    kvf_json *dropped = at->dropped < 0 ? kvf_json_new_null() : kvf_json_new_int(at->dropped);
    return kvf__json_of("length:I dropped:o loss:f", at->length, dropped, at->loss);
}

static kvf_json *describe(const pruning *p, const kvf_prune_result *r)
{
    kvf_json *curve = kvf_json_array();

    for (size_t i = 0; i < r->n_points; i++)
        kvf_json_add(curve, point_json(&r->curve[i]));
    kvf_json *root = kvf__json_of("score:s loss_before:f loss_after:f scores:o kept:o",
                                  p->by_gradient ? "gradient" : "leave-one-out", r->loss_before,
                                  r->loss_after, kvf__json_reals(r->scores, r->P),
                                  kvf__json_ints(r->kept, (int64_t)r->n_kept));
    kvf__json_put(root, "curve:o next:o shape:o position_start:I bytes:I of:s", curve,
                  r->next.length ? point_json(&r->next) : kvf_json_new_null(),
                  kvf__json_ints(r->shape, 6), r->position_start, r->bytes,
                  p->neurons ? "neurons" : "tokens");
    return root;
}

/* Writes "length,dropped,loss" lines, the whole prefix first. */
static kvf_status write_curve(const pruning *p)
{
    kvf__buf text = {0};
    kvf_status st = kvf__buf_printf(p->ctx, &text, "length,dropped,loss\n");
    for (size_t i = 0; i < p->n_points && !st; i++) {
        const kvf_prune_point *at = &p->curve[i];
        char dropped[24] = "";
        if (at->dropped >= 0) snprintf(dropped, sizeof dropped, "%lld", (long long)at->dropped);
        st = kvf__buf_printf(p->ctx, &text, "%lld,%s,%.17g\n", (long long)at->length, dropped,
                             at->loss);
    }
    if (!st) st = kvf__write_file(p->ctx, p->o->curve, p->o->force, text.data, text.n);
    kvf__buf_done(&text);
    return st;
}

/* Runs before the work, so that a wrong path fails early. */
static kvf_status check_outputs(kvf_ctx *ctx, const kvf_prune_options *o)
{
    const char *const outputs[] = {o->out, o->curve};

    for (int i = 0; i < 2; i++) {
        if (!outputs[i]) continue;
        KVF_TRY(KVF__NOT_INPUTS(ctx, outputs[i], o->prefix, o->base, o->eval.data));
        KVF_TRY(kvf__check_output(ctx, outputs[i], o->force));
    }
    return KVF_OK;
}

/* Writes the remaining tokens. */
static kvf_status write_kept(pruning *p, kvf__dtype dtype, kvf_prune_result *r)
{
    const kvf__prefix whole = p->prefix->file.prefix;
    kvf__identity *id = &p->prefix->file.id;
    double diff;

    KVF_TRY(extend_lineage(p));
    cut(p, -1);
    p->prefix->file.prefix = p->cut; /* borrowed for the call */
    id->P = p->cut.P;
    id->neurons.N = p->cut.neurons.shape.N;
    kvf_status st = kvf__kv_prefix_write(p->ctx, p->prefix, p->o->out, p->o->force, dtype,
                                         &r->bytes, &diff);
    kvf__kv_prefix_shape(p->prefix, r->shape);
    p->prefix->file.prefix = whole;
    id->P = whole.P;
    id->neurons.N = whole.neurons.shape.N;
    return st;
}

/* p still owns the lists. */
static void fill_result(const pruning *p, kvf_prune_result *r)
{
    r->loss_before = p->curve[0].loss;
    r->loss_after = p->curve[p->n_points - 1].loss;
    r->P = p->total;
    r->scores = p->score;
    r->n_kept = (size_t)p->n;
    r->kept = p->kept;
    r->n_points = p->n_points;
    r->curve = p->curve;
    r->next = p->next;
    r->position_start = p->prefix->file.id.position_start;
}

void kvf_prune_result_done(kvf_prune_result *result)
{
    if (!result) return;
    kvf__free(result->memory);
    *result = (kvf_prune_result){0};
}

/* Runs everything except the output. */
static kvf_status prune(pruning *p, kvf_prune_result *r)
{
    const kvf__dtype dtype = kvf__prefix_dtype(p->o->dtype);

    KVF_TRY(check_options(p->ctx, p->o));
    KVF_TRY(check_outputs(p->ctx, p->o));
    KVF_TRY(open_all(p));
    if (needs_gradient(p)) KVF_TRY(score_by_gradient(p));
    KVF_TRY(drop_tokens(p));
    KVF_TRY(write_kept(p, dtype, r));
    if (p->o->curve) KVF_TRY(write_curve(p));
    fill_result(p, r);
    return KVF_OK;
}

static kvf_status prune_file(kvf_ctx *ctx, const kvf_prune_options *options,
                             kvf_prune_result *result, kvf_json **json)
{
    pruning p = {.ctx = ctx, .o = options, .by_gradient = options->score == KVF_PRUNE_GRADIENT};
    kvf_prune_result r = {0};
    kvf_status st = prune(&p, &r);

    if (!st && json) *json = describe(&p, &r);
    if (!st && result) {
        *result = r;
        result->memory = p.memory;
        p.memory = NULL;
    }
    kvf__evaluation_done(&p.trial);
    kvf__head_free(p.subject.head);
    kvf__prefix_done(&p.cut);
    kvf__free(p.memory);
    kvf_prefix_free(p.prefix);
    kvf_base_free(p.base);
    return st;
}

kvf_status kvf_prune(kvf_ctx *ctx, const kvf_prune_options *options, kvf_prune_result *result,
                     kvf_json **json)
{
    KVF_TRY(KVF__NEED(ctx, options));
    KVF_TRY(KVF__NEED(ctx, options->prefix, options->base, options->out, options->eval.data));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->eval.overlong, KVF_OVERLONG_SKIP));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->precision, KVF_PRECISION_INT8));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->score, KVF_PRUNE_GRADIENT));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->dtype, KVF_DTYPE_INT8));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->checkpoint, KVF_CHECKPOINT_LAST));
    KVF__RETURN(ctx, prune_file(ctx, options, result, json));
}
