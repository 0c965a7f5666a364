/* --init: one row for each start, and the choice of one where the option is not given. A start has
 * a target that the encoder is solved for, if its method can reach given values, or sets the
 * parameters itself. */
#include "start.h"

#include <string.h>

/* ---- what a run lacks for a start ------------------------------------------------------------ */

static bool reaches_prefix(const kvf__trainer *t)
{
    return t->tuned.method->port == KVF__PORT_KV && kvf__encoder_reaches(t->options.method);
}

/* Matching solves for keys and values with queries of a language model's rows. */
static const char *match_lacks(const kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    const kvf__desc *desc = kvf__model_desc(t->base->model);
    if (!reaches_prefix(t)) return "method mlp or direct";
    if (o->named_data.n || strcmp(o->task, "lm")) return "one task, lm";
    if (!desc->block.causal || desc->encoder) return "a causal base";
    if (desc->by_layer.shape) return "layers that do not differ";
    return o->infix ? "a prefix in front of rows" : NULL;
}

/* Centroids do the same with queries of any rows. */
static const char *centroids_lack(const kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    const kvf__desc *desc = kvf__model_desc(t->base->model);
    const kvf__position_kind kind = desc->position.kind;
    if (!reaches_prefix(t)) return "method mlp or direct";
    if (o->named_data.n) return "one task";
    if (desc->encoder || kind == KVF__POS_RELATIVE || kind == KVF__POS_BIAS)
        return "attention without relative positions";
    if (desc->by_layer.shape) return "layers that do not differ";
    return o->infix ? "a prefix in front of rows" : NULL;
}

/* ---- the starts ------------------------------------------------------------------------------ */

static kvf_status stay_random(kvf__trainer *t)
{
    (void)t;
    return KVF_OK;
}

static kvf_status begin_at_zero(kvf__trainer *t)
{
    return kvf__encoder_init_zero(t->ctx, t->tuned.encoder);
}

static kvf_status begin_at_kv(kvf__trainer *t)
{
    return kvf__start_prefix(t, t->options.init_kv, false);
}

/* Rows may turn out too few to match: then init has become vocab (match_rows.c). */
static kvf_status target_of_match(kvf__trainer *t, kvf__emitted target)
{
    const kvf__feed *feed = t->rows.feed;
    if (t->tuned.log_weight.n) KVF_TRY(kvf__prefix_weigh(t->ctx, target.prefix));
    KVF_TRY(feed && feed->start ? feed->start(feed->user, t, target.prefix)
                                : kvf__match_rows(t, target.prefix));
    if (strcmp(t->options.init, "match")) return kvf__start_words(t, target);
    return kvf__log_weight_from(t, "--init match", target.prefix->log_weight);
}

static kvf_status target_of_centroids(kvf__trainer *t, kvf__emitted target)
{
    return kvf__centroids(t, target.prefix);
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
    while (strcmp(STARTS[i].name, name)) /* the table of options has no other word */
        i++;
    return &STARTS[i];
}

/* ---- the choice ------------------------------------------------------------------------------ */

static const char *choose(const kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    const bool elsewhere = o->init_from || o->init_encoder || o->log_weight || t->rows.feed;
    if (!kvf__method_has_length(o->method) || !kvf__encoder_reaches(o->method)) return "random";
    if (t->tuned.method->port == KVF__PORT_KV && !kvf__model_desc(t->base->model)->block.causal) {
        const bool reached = strcmp(o->method, "mlp") || o->prefix_length <= o->encoder_hidden;
        return elsewhere || o->lr_per_parameter || !reached || centroids_lack(t) ? "random"
                                                                                 : "centroids";
    }
    return elsewhere || match_lacks(t) ? "vocab" : "match";
}

kvf_status kvf__start_decide(kvf__trainer *t)
{
    kvf_train_options *o = &t->options;
    if (t->output.is_resumed) return KVF_OK;
    if (!o->init || !kvf__method_has_length(o->method)) o->init = choose(t);
    const kvf__start *start = find(o->init);
    const char *lacks = start->lacks ? start->lacks(t) : NULL;
    if (lacks) return kvf__fail(t->ctx, KVF_EUSAGE, "--init %s: want %s", start->name, lacks);
    const bool alone = !strcmp(o->method, "direct") || !strcmp(o->method, "prompt");
    if (alone && KVF__GIVEN(o, init_ptuning_v2) && strcmp(o->init, "random"))
        return kvf__fail(t->ctx, KVF_EUSAGE,
                         "--init-scheme is for --init random: method %s has no other weights to "
                         "draw",
                         o->method);
    return KVF_OK;
}

/* ---- starting -------------------------------------------------------------------------------- */

kvf_status kvf__start_reach(kvf__trainer *t, kvf_prefix *file, const kvf__start *start,
                            double *residual)
{
    kvf__prefix prefix = {0};
    kvf__vectors vectors = {0};
    kvf__emitted target = {0};
    char words[32];
    kvf_status st;
    if (t->tuned.emitted.vectors) {
        target.vectors = &vectors;
        st = kvf__vectors_init(t->ctx, &vectors, t->tuned.vectors.P, t->tuned.vectors.C);
    } else {
        target.prefix = &prefix;
        st = kvf__prefix_like(t->ctx, &prefix, &t->tuned.prefix);
    }
    if (!st)
        st = file ? kvf__start_target_file(t, file->path, file, target) : start->target(t, target);
    if (!st) st = kvf__encoder_init_target(t->ctx, t->tuned.encoder, target, residual);
    snprintf(words, sizeof words, "--init %s", t->options.init);
    if (!st)
        st = kvf__encoder_check_fit(t->ctx, t->tuned.encoder, file ? file->path : words, *residual,
                                    t->options.approximate);
    kvf__prefix_done(&prefix);
    kvf__vectors_done(&vectors);
    return st;
}

static kvf_status start_encoder(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    double residual = 0;
    if (o->init_encoder) return kvf__start_safetensors(t, o->init_encoder);
    kvf__encoder_init_random(t->tuned.encoder, o->init_ptuning_v2, o->seed);
    if (o->init_from) return kvf__start_file(t, o->init_from);
    const kvf__start *start = find(o->init);
    if (start->begin) return start->begin(t);
    if (start->words && kvf__encoder_takes_words(o->method)) return kvf__start_inputs(t);
    KVF_TRY(kvf__start_reach(t, NULL, start, &residual));
    kvf__trainer_note(t, "start: %s, relative residual %.1e", o->init, residual);
    return KVF_OK;
}

/* A start that is not solved for cannot be approximate. */
static kvf_status check_approximate(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    const bool free = !o->init_from && (!strcmp(o->init, "random") || !strcmp(o->init, "zero"));
    if (!o->approximate || !(o->init_encoder || free)) return KVF_OK;
    return kvf__fail(t->ctx, KVF_EUSAGE, "--approximate: --init%s%s has no target to come near",
                     o->init_encoder ? "-encoder" : " ", o->init_encoder ? "" : o->init);
}

kvf_status kvf__trainer_start_values(kvf__trainer *t)
{
    KVF_TRY(check_approximate(t));
    KVF_TRY(t->tuned.encoder ? start_encoder(t) : kvf__start_block(t));
    return kvf__log_weight_start(t);
}
