/* Initial values (--init): one row for each, and the default. An initial value has a target, for
 * which the encoder is solved if its method can emit any values, or it sets the parameters itself.
 */
#include "start.h"

#include <string.h>

#define NEURON_STREAM 0x6e657572 /* "neur": separates its random stream from others */

/* One --init. Either `target` or `begin` is set. */
typedef struct kvf__start {
    const char *name;
    bool words; /* uses words, which a method may take as inputs of its layers */
    /* Returns what the run needs for it, such as "a causal base"; NULL: nothing. No function: every
     * run supports it. */
    const char *(*lacks)(const kvf__run *run);
    kvf__start_target *target;
    /* Sets the encoder's parameters, which are random before. */
    kvf_status (*begin)(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows);
} kvf__start;

/* ---- what a run lacks for a start ------------------------------------------------------------ */

static bool reaches_prefix(const kvf__run *run)
{
    return run->method->port == KVF__PORT_KV && kvf__encoder_reaches(run->options.method);
}

/* Attention matching needs queries of a language model's rows. */
static const char *match_lacks(const kvf__run *run)
{
    const kvf_train_options *o = &run->options;
    const kvf__desc *desc = kvf__model_desc(run->base->model);
    if (!reaches_prefix(run)) return "method mlp or direct";
    if (o->named_data.n || strcmp(o->task, "lm")) return "one task, lm";
    if (!desc->block.causal || desc->encoder) return "a causal base";
    if (desc->by_layer.shape) return "a base with equal layers";
    if (desc->position.window) return "a base without a sliding window";
    return o->infix ? "a prefix before rows (no --infix)" : NULL;
}

/* Centroids are computed from queries of any rows. */
static const char *centroids_lack(const kvf__run *run)
{
    const kvf_train_options *o = &run->options;
    const kvf__desc *desc = kvf__model_desc(run->base->model);
    const kvf__position_kind kind = desc->position.kind;
    if (!reaches_prefix(run)) return "method mlp or direct";
    if (o->named_data.n) return "one task";
    if (desc->encoder || kind == KVF__POS_RELATIVE || kind == KVF__POS_BIAS)
        return "a base without relative positions";
    if (desc->by_layer.shape) return "a base with equal layers";
    return o->infix ? "a prefix before rows (no --infix)" : NULL;
}

/* ---- the starts ------------------------------------------------------------------------------ */

static kvf_status stay_random(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows)
{
    (void)run, (void)tuned, (void)rows;
    return KVF_OK;
}

static kvf_status begin_at_zero(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows)
{
    (void)rows;
    return kvf__encoder_init_zero(run->ctx, tuned->encoder);
}

static kvf_status begin_at_kv(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows)
{
    return kvf__start_prefix(run, tuned, rows, run->options.init_kv, false);
}

/* If there are too few rows to match, match_rows.c has changed init to vocab. */
static kvf_status target_of_match(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows,
                                  kvf__emitted target)
{
    const kvf__feed *feed = rows->feed;
    if (tuned->log_weight.n) KVF_TRY(kvf__prefix_weigh(run->ctx, target.prefix));
    KVF_TRY(feed && feed->start ? feed->start(feed->user, run, target.prefix)
                                : kvf__match_rows(run, &rows->task->data, target.prefix));
    if (strcmp(run->options.init, "match")) return kvf__start_words(run, tuned, rows, target);
    return kvf__log_weight_from(run, tuned, "--init match", target.prefix->log_weight);
}

static kvf_status target_of_centroids(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows,
                                      kvf__emitted target)
{
    (void)tuned;
    return kvf__centroids(run, &rows->task->data, target.prefix);
}

static const kvf__start STARTS[] = {
    {"vocab", .words = true, .target = kvf__start_words},
    {"random", .begin = stay_random},
    {"zero", .begin = begin_at_zero},
    {"text", .words = true, .target = kvf__start_words},
    {"kv", .begin = begin_at_kv},
    {"match", .lacks = match_lacks, .target = target_of_match},
    {"centroids", .lacks = centroids_lack, .target = target_of_centroids},
};

static const kvf__start *find(const char *name)
{
    size_t i = 0;
    while (strcmp(STARTS[i].name, name)) /* the table of options allows no other word */
        i++;
    return &STARTS[i];
}

/* ---- the choice ------------------------------------------------------------------------------ */

static const char *choose(const kvf__run *run, bool fed)
{
    const kvf_train_options *o = &run->options;
    const bool elsewhere = o->init_from || o->init_encoder || o->log_weight || fed;
    if (!kvf__method_has_length(o->method) || !kvf__encoder_reaches(o->method)) return "random";
    if (!o->prefix_length) return "random";
    if (run->method->port == KVF__PORT_KV && !kvf__model_desc(run->base->model)->block.causal) {
        const bool reached = strcmp(o->method, "mlp") || o->prefix_length <= o->encoder_hidden;
        return elsewhere || o->lr_per_parameter || !reached || centroids_lack(run) ? "random"
                                                                                   : "centroids";
    }
    return elsewhere || match_lacks(run) ? "vocab" : "match";
}

kvf_status kvf__start_decide(kvf__run *run, bool fed)
{
    kvf_train_options *o = &run->options;
    if (run->output.is_resumed) return KVF_OK;
    if (o->ffn_length && !o->prefix_length && o->init && strcmp(o->init, "random"))
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "--init %s: neurons alone (--prefix-length 0) have no initial prefix",
                         o->init);
    if (!o->init || !kvf__method_has_length(o->method)) o->init = choose(run, fed);
    const kvf__start *start = find(o->init);
    const char *lacks = start->lacks ? start->lacks(run) : NULL;
    if (lacks) return kvf__fail(run->ctx, KVF_EUSAGE, "--init %s: want %s", start->name, lacks);
    const bool alone = !strcmp(o->method, "direct") || !strcmp(o->method, "prompt");
    if (alone && KVF__GIVEN(o, init_ptuning_v2) && strcmp(o->init, "random"))
        return kvf__fail(
            run->ctx, KVF_EUSAGE,
            "--init-scheme is for --init random: method %s has no other random weights", o->method);
    return KVF_OK;
}

/* ---- starting -------------------------------------------------------------------------------- */

static kvf_status start_encoder(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows)
{
    const kvf_train_options *o = &run->options;
    double residual = 0;
    kvf__encoder_init_random(tuned->encoder, o->init_ptuning_v2, o->seed);
    if (o->init_encoder) return KVF_OK; /* read after the start of the neurons */
    if (o->init_from) return kvf__start_file(run, tuned, rows, o->init_from);
    if (!run->id.P) return KVF_OK; /* neurons alone */
    const kvf__start *start = find(o->init);
    if (rows->feed && rows->feed->state) {
        const kvf__prefix *from = rows->feed->state(rows->feed->user);
        if (from->state)
            KVF_TRY(kvf__prefix_set_state(run->ctx, &tuned->prefix, from->state, from->states));
    }
    if (start->begin) return start->begin(run, tuned, rows);
    if (start->words && kvf__encoder_needs_projections(o->method))
        return kvf__start_inputs(run, tuned, rows);
    KVF_TRY(kvf__start_reach(run, tuned, rows, NULL, start->target, &residual));
    kvf__run_detail(run, "encoder fits the initial prefix of --init %s, relative error %.1e",
                    o->init, residual);
    return KVF_OK;
}

/* Sets keys and biases to those of some of the block's own neurons, one from each N-th part of
 * them. rows: [N] scratch. */
static kvf_status copy_neurons(const kvf__run *run, const uint8_t *layer_mask, int64_t *rows,
                               const kvf__neurons *to)
{
    const kvf__desc *desc = kvf__model_desc(run->base->model);
    const int64_t N = to->shape.N;
    kvf__rng rng = kvf__rng_make(run->options.seed, (uint64_t)NEURON_STREAM << 32);
    for (int64_t l = 0; l < to->shape.L; l++) {
        const kvf__neurons_layer at = kvf__neurons_at(to, l);
        const int64_t F = kvf__desc_layer(desc, l).F;
        if (!layer_mask[l]) continue;
        for (int64_t i = 0; i < N; i++) {
            const int64_t from = i * F / N, width = (i + 1) * F / N - from;
            rows[i] = from + (int64_t)kvf__rng_below(&rng, (uint64_t)width);
        }
        KVF_TRY(kvf__model_neurons(run->ctx, run->base->model, &run->base->slots, l, rows, N, &at));
    }
    kvf__weights_forget(&run->base->weights);
    return KVF_OK;
}

/* Starts the virtual neurons as copies of the block's own, with values of 0. */
static kvf_status start_neurons(kvf__run *run, kvf__tuned *tuned)
{
    const kvf__neurons *like = &tuned->prefix.neurons;
    kvf__neurons target = {0};
    int64_t *rows = NULL;
    double residual = 0;
    if (!like->shape.N || tuned->neurons_begun) return KVF_OK;
    KVF_TRY(kvf__alloc_array(run->ctx, (size_t)like->shape.N, sizeof *rows, &rows));
    kvf_status st = kvf__neurons_create(run->ctx, &target, &like->shape);
    if (!st) st = copy_neurons(run, like->layer_mask, rows, &target);
    if (!st) st = kvf__encoder_init_neurons(run->ctx, tuned->encoder, &target, &residual);
    if (!st)
        st = kvf__encoder_check_fit(run->ctx, tuned->encoder, "--ffn-length", residual,
                                    run->options.approximate);
    kvf__neurons_done(&target);
    kvf__free(rows);
    return st;
}

/* Refuses --approximate for initial values that are not solved for. */
static kvf_status check_approximate(const kvf__run *run)
{
    const kvf_train_options *o = &run->options;
    const bool free = !o->init_from && (!strcmp(o->init, "random") || !strcmp(o->init, "zero"));
    if (!o->approximate || !(o->init_encoder || free)) return KVF_OK;
    return kvf__fail(run->ctx, KVF_EUSAGE,
                     "--approximate: --init%s%s has no initial prefix to approximate",
                     o->init_encoder ? "-encoder" : " ", o->init_encoder ? "" : o->init);
}

kvf_status kvf__start_values(kvf__run *run, kvf__tuned *tuned, kvf__train_rows *rows)
{
    KVF_TRY(check_approximate(run));
    KVF_TRY(tuned->encoder ? start_encoder(run, tuned, rows) : kvf__start_block(run, rows));
    KVF_TRY(start_neurons(run, tuned));
    if (tuned->encoder && run->options.init_encoder)
        KVF_TRY(kvf__start_safetensors(run, tuned, run->options.init_encoder));
    return kvf__log_weight_start(run, tuned, rows->task);
}
