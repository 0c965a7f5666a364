/* Compose: joins several prefixes of one base into one: concatenated, in parallel or as their
 * weighted mean.
 *
 * Concatenation keeps the distance of every part to the tokens after it, which begin at its own
 * position_start. So the parts' starts add up to the start of the text. On a base with rope, keys
 * are stored rotated by their positions from 0 on. The keys of a part are rotated further by the
 * sum of the starts before it. Starts that are 0 (AdapterHub's convention) rotate nothing. Keys of
 * a prefix inside rows are stored without rotation and need none; neither do those of learned
 * positions. The first part is then further from the text than in training, by the starts of the
 * parts after it. No part was trained with another, so measure the loss.
 *
 * In parallel every part is as far before the text as alone (parallel context windows; Ratner et
 * al. 2023). Keys are rotated to end where those of the part with the largest start do. The
 * log-weights of parts are reduced by log n.
 *
 * The parts must agree on everything they share: base, task, head, rendering of rows, masked
 * layers, place. Options and lineage that are equal in all parts are kept. */
#include "merge_int.h"

#include "arch.h"

#include <math.h>
#include <string.h>

typedef struct composing {
    kvf_ctx *ctx;
    const kvf_compose_options *o;
    kvf_prefix **part; /* [n] inputs */
    size_t n;
    bool average;   /* weighted mean; false: the parts are concatenated or parallel */
    double *weight; /* [n] weights of the mean, with sum 1 */
    kvf_base *base; /* NULL until keys are rotated */
} composing;

/* ---- do the parts go together? --------------------------------------------------------------- */

static kvf_status check_bases(const composing *c, const kvf_prefix *a, const kvf_prefix *b)
{
    const kvf__identity *x = &a->file.id, *y = &b->file.id;

    const kvf__kv_shape first = kvf__identity_kv(x), second = kvf__identity_kv(y);
    char of_first[KVF__KV_TEXT], of_second[KVF__KV_TEXT];

    if (!kvf__kv_same(&first, &second))
        return kvf__fail(c->ctx, KVF_EMISMATCH, "%s: is for %s, but %s is for %s", b->path,
                         kvf__heads_text(of_second, &second), a->path,
                         kvf__heads_text(of_first, &first));
    if (c->o->allow_other_base) return KVF_OK;
    if (!*x->base_hash || !*y->base_hash)
        return kvf__fail(c->ctx, KVF_EMISMATCH,
                         "%s: does not name its base (--allow-other-base accepts it anyway)",
                         *x->base_hash ? b->path : a->path);
    if (strcmp(x->base_hash, y->base_hash))
        return kvf__fail(
            c->ctx, KVF_EMISMATCH,
            "%s: is for base %s (%s), but %s is for %s (%s) (--allow-other-base overrides)",
            b->path, y->base_name, y->base_hash, a->path, x->base_name, x->base_hash);
    return KVF_OK;
}

static kvf_status differ(const composing *c, const kvf_prefix *b, const char *what)
{
    return kvf__fail(c->ctx, KVF_EMISMATCH, "%s: has %s than %s", b->path, what, c->part[0]->path);
}

static kvf_status check_pair(const composing *c, const kvf_prefix *a, const kvf_prefix *b)
{
    const kvf__identity *x = &a->file.id, *y = &b->file.id;

    KVF_TRY(check_bases(c, a, b));
    if (strcmp(x->task, y->task)) return differ(c, b, "another task");
    if (!kvf__same_head(&a->file.head, &b->file.head)) return differ(c, b, "another head");
    if (strcmp(x->chat_template, y->chat_template) || !kvf__prefix_same_rows(a, b))
        return differ(c, b, "another row template");
    if (x->relative_bias != y->relative_bias) return differ(c, b, "another relative bias");
    if (x->relative_bias && !c->average)
        return kvf__fail(c->ctx, KVF_EUNSUPPORTED,
                         "%s: its keys have the decoder's relative bias, which depends on the "
                         "distance to the text: use --mode average",
                         a->path);
    if (x->infix != y->infix || x->pre_rope != y->pre_rope)
        return differ(c, b, "another position in rows");
    if (memcmp(a->file.prefix.layer_mask, b->file.prefix.layer_mask, (size_t)x->L))
        return differ(c, b, "a prefix in other layers");
    if (!c->average) return KVF_OK;
    if (x->neurons.N || y->neurons.N)
        return kvf__fail(c->ctx, KVF_EUNSUPPORTED,
                         "%s: has virtual neurons, whose mean means nothing: --mode average has no "
                         "place for them",
                         x->neurons.N ? a->path : b->path);
    if (x->P != y->P)
        return kvf__fail(
            c->ctx, KVF_ESHAPE,
            "%s: has %lld virtual tokens, but %s has %lld: --mode average needs equal numbers",
            b->path, (long long)y->P, a->path, (long long)x->P);
    return x->position_start == y->position_start ? KVF_OK : differ(c, b, "another position_start");
}

static kvf_status open_parts(composing *c)
{
    const kvf_compose_options *o = c->o;

    KVF_TRY(kvf__check_not_input(c->ctx, o->out, o->base));
    KVF_TRY(kvf__alloc_array(c->ctx, o->n, sizeof *c->part, &c->part));
    for (; c->n < o->n; c->n++) {
        const kvf__prefix_source source = KVF__PREFIX_SOURCE(o, o->parts[c->n]);
        KVF_TRY(kvf__check_not_input(c->ctx, o->out, source.path));
        KVF_TRY(kvf__prefix_source_read(c->ctx, &source, &c->part[c->n]));
        if (c->part[c->n]->file.head.n_tasks) {
            c->n++; /* freed with the others */
            return kvf__fail(c->ctx, KVF_EUSAGE,
                             "%s: holds heads of several tasks: name one with --head", source.path);
        }
    }
    for (size_t i = 1; i < c->n; i++)
        KVF_TRY(check_pair(c, c->part[0], c->part[i]));
    return KVF_OK;
}

static kvf_status normalize_weights(composing *c)
{
    double sum = 0;

    KVF_TRY(kvf__alloc_array(c->ctx, c->n, sizeof *c->weight, &c->weight));
    for (size_t i = 0; i < c->n; i++) {
        c->weight[i] = c->o->weights ? c->o->weights[i] : 1;
        if (!(c->weight[i] >= 0) || !isfinite(c->weight[i]))
            return kvf__fail(c->ctx, KVF_EUSAGE, "weight %zu is %g, want a number from 0 on", i + 1,
                             c->weight[i]);
        sum += c->weight[i];
    }
    if (!(sum > 0)) return kvf__fail(c->ctx, KVF_EUSAGE, "the sum of the weights is 0");
    for (size_t i = 0; i < c->n; i++)
        c->weight[i] /= sum;
    return KVF_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* True if keys are rotated on this base; also for an unknown base. */
static bool has_rope(const kvf_prefix *part)
{
    const kvf__arch *arch = kvf__arch_by_model_type(part->file.id.base_architecture);
    return !arch || arch->positions == KVF__POS_ROPE;
}

/* Rotates all keys of a part by this many positions. */
static kvf_status rotate_keys(composing *c, kvf_prefix *part, int64_t by)
{
    if (!by || !part->file.id.P || part->file.id.pre_rope || !has_rope(part)) return KVF_OK;
    if (!c->base && !c->o->base)
        return kvf__fail(c->ctx, KVF_EUSAGE,
                         "%s: its keys must be rotated by %lld%s: name the base with --base",
                         part->path, (long long)by,
                         c->o->mode == KVF_COMPOSE_PARALLEL ? "" : " to follow the previous part");
    if (!c->base) KVF_TRY(kvf__base_open_exact(c->ctx, c->o->base, c->o->lora, &c->base));
    KVF_TRY(kvf__prefix_fits(c->ctx, part, c->base, c->o->allow_other_base));
    kvf__prefix *p = &part->file.prefix;
    KVF_TRY(kvf__model_rotate_prefix(c->ctx, c->base->model, p, p, 0, true));
    return kvf__model_rotate_prefix(c->ctx, c->base->model, p, p, by, false);
}

/* True if a part has log-weights. Those of other parts count as 0. */
static bool is_weighted(const composing *c)
{
    bool weighted = false;

    for (size_t i = 0; i < c->n; i++)
        weighted = weighted || c->part[i]->file.prefix.log_weight;
    return weighted;
}

/* Places each part after the previous one; *start: position of the text. */
static kvf_status turn_behind(composing *c, int64_t *start)
{
    *start = 0;
    for (size_t i = 0; i < c->n; i++) {
        KVF_TRY(rotate_keys(c, c->part[i], *start));
        *start += c->part[i]->file.id.position_start;
    }
    return KVF_OK;
}

/* Places each part at the same distance to the text as alone. */
static kvf_status turn_parallel(composing *c, int64_t *start)
{
    *start = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->part[i]->file.id.position_start > *start)
            *start = c->part[i]->file.id.position_start;
    for (size_t i = 0; i < c->n; i++) {
        const kvf__identity *id = &c->part[i]->file.id;
        const int64_t by = *start - id->position_start;
        if (id->infix || (by && !has_rope(c->part[i])))
            return kvf__fail(c->ctx, KVF_EUNSUPPORTED,
                             "%s: --mode parallel does not support a prefix %s", c->part[i]->path,
                             id->infix ? "inside rows (--infix)"
                                       : "without rope whose position_start differs");
        KVF_TRY(rotate_keys(c, c->part[i], by));
    }
    return KVF_OK;
}

/* Lowers log-weights so that n parts together have the mass of one. */
static void share_mass(const composing *c, kvf__prefix *out)
{
    int n = 0; /* parts with tokens */

    for (size_t i = 0; i < c->n; i++)
        n += c->part[i]->file.id.P > 0;
    for (size_t i = 0; out->log_weight && i < kvf__prefix_weights(out); i++)
        out->log_weight[i] -= (float)log(n);
}

/* Puts the neurons of all parts beside each other: their outputs add up. */
static kvf_status join_neurons(const composing *c, kvf__prefix *out)
{
    kvf__neuron_shape shape = {0};
    int64_t N = 0, at = 0;

    for (size_t i = 0; i < c->n; i++) {
        const kvf__neurons *own = &c->part[i]->file.prefix.neurons;
        if (!shape.N) shape = own->shape;
        N += own->shape.N;
    }
    if (!N) return KVF_OK;
    shape.N = N;
    KVF_TRY(kvf__neurons_create(c->ctx, &out->neurons, &shape));
    memset(out->neurons.layer_mask, 0, (size_t)shape.L);
    for (size_t i = 0; i < c->n; i++) {
        const kvf__neurons *own = &c->part[i]->file.prefix.neurons;
        kvf__neuron_shape as_whole = own->shape;
        as_whole.N = N;
        if (own->shape.N && !kvf__neuron_shape_same(&as_whole, &shape))
            return differ(c, c->part[i], "neurons of another shape");
        kvf__neurons_place(&out->neurons, at, own);
        at += own->shape.N;
    }
    return KVF_OK;
}

static kvf_status join(composing *c, kvf__prefix *out, int64_t *position_start)
{
    int64_t P = 0, start = 0, at = 0;

    const bool parallel = c->o->mode == KVF_COMPOSE_PARALLEL;
    KVF_TRY((parallel ? turn_parallel : turn_behind)(c, &start));
    for (size_t i = 0; i < c->n; i++)
        P += c->part[i]->file.id.P;
    const kvf__kv_shape kv = kvf__identity_kv(&c->part[0]->file.id);
    KVF_TRY(kvf__prefix_create(c->ctx, out, &kv, P));
    if (is_weighted(c)) KVF_TRY(kvf__prefix_weigh(c->ctx, out));
    for (size_t i = 0; i < c->n; i++) {
        kvf__prefix_copy_tokens(out, at, &c->part[i]->file.prefix, 0, c->part[i]->file.id.P);
        at += c->part[i]->file.id.P;
    }
    if (parallel) share_mass(c, out);
    if (!parallel) { /* rows continue after the last part */
        const kvf__prefix *last = &c->part[c->n - 1]->file.prefix;
        KVF_TRY(kvf__prefix_set_state(c->ctx, out, last->state, last->states));
    }
    *position_start = start;
    return join_neurons(c, out);
}

static void average_weights(const composing *c, kvf__prefix *out)
{
    for (size_t at = 0; at < kvf__prefix_weights(out); at++) {
        double sum = 0;
        for (size_t i = 0; i < c->n; i++)
            if (c->part[i]->file.prefix.log_weight)
                sum += c->weight[i] * (double)c->part[i]->file.prefix.log_weight[at];
        out->log_weight[at] = (float)sum;
    }
}

static kvf_status average(composing *c, kvf__prefix *out, int64_t *position_start)
{
    const kvf__identity *id = &c->part[0]->file.id;

    KVF_TRY(kvf__prefix_like(c->ctx, out, &c->part[0]->file.prefix));
    KVF_TRY(kvf__prefix_set_state(c->ctx, out, NULL, 0));
    if (is_weighted(c)) {
        KVF_TRY(kvf__prefix_weigh(c->ctx, out));
        average_weights(c, out);
    }
    for (size_t at = 0; at < kvf__prefix_count(out); at++) {
        double sum = 0;
        for (size_t i = 0; i < c->n; i++)
            sum += c->weight[i] * (double)c->part[i]->file.prefix.kv[at];
        out->kv[at] = (float)sum;
    }
    *position_start = id->position_start;
    return KVF_OK;
}

/* ---- the new prefix -------------------------------------------------------------------------- */

static kvf_status write_lineage(composing *c, kvf_json **lineage)
{
    static const char *const MODES[] = {"concatenate", "average", "parallel"};
    char name[64];

    KVF_TRY(kvf__lineage_add(c->ctx, lineage, "compose_mode", kvf_json_new_str(MODES[c->o->mode])));
    for (size_t i = 0; i < c->n; i++) {
        snprintf(name, sizeof name, "part_%zu_hash", i);
        KVF_TRY(kvf__lineage_add_hash(c->ctx, lineage, name, c->o->parts[i]));
        snprintf(name, sizeof name, c->average ? "part_%zu_weight" : "part_%zu_length", i);
        KVF_TRY(kvf__lineage_add(c->ctx, lineage, name,
                                 c->average ? kvf_json_new_real(c->weight[i])
                                            : kvf_json_new_int(c->part[i]->file.id.P)));
    }
    return KVF_OK;
}

static kvf_status common_items(composing *c, kvf_json **options, kvf_json **lineage)
{
    const kvf_json *all_options[KVF_MAX_PARTS], *all_lineages[KVF_MAX_PARTS];

    for (size_t i = 0; i < c->n; i++) {
        all_options[i] = c->part[i]->file.options;
        all_lineages[i] = c->part[i]->file.lineage;
    }
    /* the joined length is that of no part */
    KVF_TRY(
        kvf__json_common(c->ctx, all_options, c->n, c->average ? NULL : "prefix-length", options));
    KVF_TRY(kvf__json_common(c->ctx, all_lineages, c->n, NULL, lineage));
    return write_lineage(c, lineage);
}

static void forget_form(kvf_prefix *part)
{
    kvf__free(part->file.id.row_form);
    kvf__free(part->file.id.example_prompt);
    part->file.id.row_form = part->file.id.example_prompt = NULL;
}

/* Turns the first part into the new prefix, which takes over the values. */
static kvf_status become(composing *c, kvf__prefix *values, int64_t position_start)
{
    kvf_prefix *whole = c->part[0];
    kvf_json *options = NULL, *lineage = NULL;
    char *direct = NULL;
    bool same = true;

    for (size_t i = 1; i < c->n; i++)
        same = same && !strcmp(c->part[i]->file.id.method, whole->file.id.method);
    for (size_t i = 1; i < c->n; i++)
        if (strcmp(kvf__prefix_row_form(c->part[i]), kvf__prefix_row_form(whole)))
            forget_form(whole);
    kvf_status st = common_items(c, &options, &lineage);
    kvf_json_free(whole->file.options);
    kvf_json_free(whole->file.lineage);
    whole->file.options = options;
    whole->file.lineage = lineage;
    if (!st && !same) st = kvf__strdup(c->ctx, "direct", &direct);
    if (st) return st;
    if (direct) {
        kvf__free(whole->file.id.method);
        whole->file.id.method = direct;
    }
    memcpy(values->layer_mask, whole->file.prefix.layer_mask, (size_t)values->L);
    kvf__prefix_done(&whole->file.prefix);
    whole->file.prefix = *values;
    *values = (kvf__prefix){0};
    whole->file.id.P = whole->file.prefix.P;
    whole->file.id.neurons = whole->file.prefix.neurons.shape;
    whole->file.id.position_start = position_start;
    return KVF_OK;
}

static kvf_status make(composing *c, kvf__prefix *values, kvf_compose_result *r)
{
    KVF_TRY(open_parts(c));
    if (c->average) KVF_TRY(normalize_weights(c));
    for (size_t i = 0; i < c->n; i++)
        r->documents += kvf_json_get(c->part[i]->file.lineage, "document_hash") != NULL;
    KVF_TRY((c->average ? average : join)(c, values, &r->position_start));
    KVF_TRY(become(c, values, r->position_start));
    KVF_TRY(kvf__kv_prefix_write(c->ctx, c->part[0], c->o->out, c->o->force,
                                 kvf__prefix_dtype(c->o->dtype), &r->bytes, &r->max_abs_diff));
    kvf__kv_prefix_shape(c->part[0], r->shape);
    return KVF_OK;
}

static kvf_status compose_parts(kvf_ctx *ctx, const kvf_compose_options *options,
                                kvf_compose_result *result)
{
    composing c = {.ctx = ctx, .o = options, .average = options->mode == KVF_COMPOSE_AVERAGE};
    kvf__prefix values = {0};
    kvf_compose_result r = {0};

    if (options->n < 2 || options->n > KVF_MAX_PARTS)
        return kvf__fail(ctx, KVF_EUSAGE, "%zu prefixes, want 2 to %d", options->n, KVF_MAX_PARTS);
    if (options->weights && !c.average)
        return kvf__fail(ctx, KVF_EUSAGE, "--weights is for --mode average");
    kvf_status st = make(&c, &values, &r);
    if (!st) *result = r;
    kvf__prefix_done(&values);
    for (size_t i = 0; i < c.n; i++)
        kvf_prefix_free(c.part[i]);
    kvf__free(c.part);
    kvf__free(c.weight);
    kvf_base_free(c.base);
    return st;
}

kvf_status kvf_compose(kvf_ctx *ctx, const kvf_compose_options *options, kvf_compose_result *result)
{
    KVF_TRY(KVF__NEED(ctx, options, result));
    KVF_TRY(KVF__NEED(ctx, options->parts, options->out));
    for (size_t i = 0; i < options->n && i < KVF_MAX_PARTS; i++)
        KVF_TRY(KVF__NEED(ctx, options->parts[i]));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->mode, KVF_COMPOSE_PARALLEL));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->dtype, KVF_DTYPE_INT8));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->checkpoint, KVF_CHECKPOINT_LAST));
    KVF__RETURN(ctx, compose_parts(ctx, options, result));
}
