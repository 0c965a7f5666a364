/* Sections: rows of several runs in one batch, each section with its own prefix (or vectors),
 * prefix length and gradient target. Products run over the whole batch; only attention, embeddings
 * and the loss scale depend on sections. An input without sections is treated as one section of all
 * rows. */
#include "pass_priv.h"

/* ---- taking them from the input -------------------------------------------------------------- */

static kvf_status check_neurons(kvf_ctx *ctx, const kvf__model *model, const kvf__neurons *neurons,
                                int64_t N)
{
    const kvf__neuron_shape *have = &neurons->shape,
                            want = kvf__desc_neurons(&model->desc, have->N);

    if (!have->N) return KVF_OK;
    if (!kvf__neuron_shape_same(have, &want))
        return kvf__fail(ctx, KVF_ESHAPE,
                         "neurons: %lld layers of width %lld with %lld values a neuron, the base "
                         "wants %lld layers of width %lld with %lld",
                         (long long)have->L, (long long)have->C,
                         (long long)kvf__neuron_values(have), (long long)want.L, (long long)want.C,
                         (long long)kvf__neuron_values(&want));
    if (have->N > N)
        return kvf__fail(ctx, KVF_ESHAPE, "batch: %lld neurons, the pass was made for at most %lld",
                         (long long)have->N, (long long)N);
    return KVF_OK;
}

kvf_status kvf__prefix_check(kvf_ctx *ctx, const kvf__model *model, const kvf__prefix *p, int64_t P,
                             int64_t N)
{
    const kvf__kv_shape want = kvf__desc_kv(&model->desc);
    const kvf__kv_shape have = p ? kvf__prefix_shape(p) : want;
    char found[KVF__KV_TEXT], wanted[KVF__KV_TEXT];

    if (!kvf__kv_same(&have, &want))
        return kvf__fail(ctx, KVF_ESHAPE, "prefix: %s, but the base needs %s",
                         kvf__kv_text(found, &have, p->P), kvf__kv_text(wanted, &want, -1));
    if (p && p->P > P)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "batch: %lld prefix positions, the pass was made for at most %lld",
                         (long long)p->P, (long long)P);
    const int64_t states = kvf__mixer_state_at(&model->desc, model->desc.L);
    if (p && p->states && p->states != states)
        return kvf__fail(ctx, KVF_ESHAPE, "prefix: a state of %lld values, but the base's has %lld",
                         (long long)p->states, (long long)states);
    return p ? check_neurons(ctx, model, &p->neurons, N) : KVF_OK;
}

static kvf_status check_condition(kvf_ctx *ctx, const kvf__pass *pass, const kvf__condition *c)
{
    KVF_TRY(kvf__prefix_check(ctx, pass->model, c->prefix, pass->limits.P, pass->limits.neurons));
    if (c->vectors && c->vectors->C != pass->model->desc.C)
        return kvf__fail(ctx, KVF_ESHAPE, "vectors: [%lld, %lld], but the base needs [P, %lld]",
                         (long long)c->vectors->P, (long long)c->vectors->C,
                         (long long)pass->model->desc.C);
    if (c->position_start < 0)
        return kvf__fail(ctx, KVF_ESHAPE, "position_start is %lld, expected 0 or more",
                         (long long)c->position_start);
    return KVF_OK;
}

static kvf_status set_section(kvf_ctx *ctx, kvf__pass *pass, const kvf__section *from,
                              int64_t index, int64_t first)
{
    KVF_TRY(check_condition(ctx, pass, &from->condition));
    kvf__pass_section *s = &pass->sections.at[index];
    *s = (kvf__pass_section){
        .first = first,
        .end = first + from->rows,
        .condition = from->condition,
        .loss_sum = from->loss_sum,
        .seg = -1,
    };
    if (from->condition.prefix && from->condition.prefix->neurons.shape.N)
        s->neurons = &from->condition.prefix->neurons;
    if (from->condition.prefix) s->state = from->condition.prefix->state;
    if (s->condition.prefix && !s->condition.prefix->P) s->condition.prefix = NULL;
    return KVF_OK;
}

static kvf_status check_excluded(kvf_ctx *ctx, const kvf__pass *pass, const kvf__input *input)
{
    const kvf__row_dropout *rows = input->row_dropout, *base = input->base_dropout;

    if (input->n_sections > pass->limits.sections)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "batch: %lld sections, the pass was made for at most %lld",
                         (long long)input->n_sections, (long long)pass->limits.sections);
    if (input->batch->infix_at || (rows && rows->p > 0) || (base && base->p > 0))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "batch: sections exclude a prefix inside rows and dropout by rows");
    return KVF_OK;
}

/* Labels ascend with their tokens, so those of a section are consecutive. */
static void scale_labels(kvf__pass *pass, const kvf__batch *b, const kvf__section *sections)
{
    int64_t j = 0;

    for (int64_t i = 0; i < pass->sections.n; i++)
        for (; j < b->n_labels && b->label_at[j] < b->start[pass->sections.at[i].end]; j++)
            pass->sections.label_scale[j] = sections[i].loss_scale;
}

static kvf_status set_all(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input)
{
    const kvf__batch *b = input->batch;
    int64_t first = 0;

    KVF_TRY(check_excluded(ctx, pass, input));
    for (int64_t i = 0; i < input->n_sections; i++) {
        const kvf__section *s = &input->sections[i];
        if (s->rows < 0 || s->rows > b->n_rows - first)
            return kvf__fail(ctx, KVF_ESHAPE,
                             "batch: section %lld has %lld rows, expected at most %lld",
                             (long long)i, (long long)s->rows, (long long)(b->n_rows - first));
        KVF_TRY(set_section(ctx, pass, s, i, first));
        for (int64_t r = first; b->parent && r < first + s->rows; r++)
            if (b->parent[r] >= 0 && b->parent[r] < first)
                return kvf__fail(ctx, KVF_ESHAPE,
                                 "batch row %lld: its common prefix is row %ld, of another section",
                                 (long long)r, (long)b->parent[r]);
        first += s->rows;
    }
    if (first != b->n_rows)
        return kvf__fail(ctx, KVF_ESHAPE, "batch: sections have %lld rows, the batch %lld",
                         (long long)first, (long long)b->n_rows);
    pass->sections.n = input->n_sections;
    scale_labels(pass, b, input->sections);
    return KVF_OK;
}

kvf_status kvf__pass_set_sections(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input)
{
    const kvf__section all = {
        .rows = input->batch->n_rows, .condition = input->condition, .loss_scale = 1};

    pass->sections.given = input->n_sections > 0;
    pass->prefix = NULL;
    if (pass->sections.given) return set_all(ctx, pass, input);
    KVF_TRY(set_section(ctx, pass, &all, 0, 0));
    pass->sections.n = 1;
    pass->prefix = pass->sections.at[0].condition.prefix;
    return KVF_OK;
}

/* ---- gradients ------------------------------------------------------------------------------- */

static kvf_status check_gradient(kvf_ctx *ctx, const kvf__pass_section *s, const kvf__grads *into)
{
    const kvf__prefix *p = s->condition.prefix, *d = into->prefix;
    const kvf__vectors *x = s->condition.vectors, *dx = into->vectors;

    if (dx && !(x && x->P == dx->P && x->C == dx->C))
        return kvf__fail(
            ctx, KVF_ESHAPE, "vectors' gradient: [%lld, %lld], the vectors are [%lld, %lld]",
            (long long)dx->P, (long long)dx->C, x ? (long long)x->P : 0, x ? (long long)x->C : 0);
    if ((p || s->neurons) && !d)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "pass: no memory was given for the gradient of the prefix");
    if (d && d->state && !s->state)
        return kvf__fail(ctx, KVF_EUSAGE, "prefix gradient: the prefix has no state");
    if (s->neurons && !kvf__neuron_shape_same(&s->neurons->shape, &d->neurons.shape))
        return kvf__fail(ctx, KVF_ESHAPE, "prefix gradient: its neurons have another shape");
    if (!p) return KVF_OK;
    const kvf__kv_shape have = kvf__prefix_shape(d), want = kvf__prefix_shape(p);
    char found[KVF__KV_TEXT], wanted[KVF__KV_TEXT];
    if (d->P != p->P || !kvf__kv_same(&have, &want))
        return kvf__fail(ctx, KVF_ESHAPE, "prefix gradient: %s, the prefix is %s",
                         kvf__kv_text(found, &have, d->P), kvf__kv_text(wanted, &want, p->P));
    return KVF_OK;
}

kvf_status kvf__pass_set_grads(kvf_ctx *ctx, kvf__pass *pass, const kvf__grads *into)
{
    if (pass->sections.given && !into->sections)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "pass: no memory was given for the gradients of the sections");
    for (int64_t i = 0; i < pass->sections.n; i++) {
        const kvf__grads *own = pass->sections.given ? &into->sections[i] : into;
        KVF_TRY(check_gradient(ctx, &pass->sections.at[i], own));
        pass->sections.at[i].dprefix = own->prefix;
        pass->sections.at[i].dneurons = own->prefix ? &own->prefix->neurons : NULL;
        pass->sections.at[i].dvectors = own->vectors;
    }
    return KVF_OK;
}

/* ---- asking ---------------------------------------------------------------------------------- */

bool kvf__section_has_prefix(const kvf__pass_section *s, int64_t l)
{
    const kvf__prefix *prefix = s->condition.prefix;

    return prefix && (!prefix->layer_mask || prefix->layer_mask[l]) && kvf__prefix_at(prefix, l).n;
}

bool kvf__pass_has_prefix(const kvf__pass *pass, int64_t l)
{
    l = kvf__desc_layer(&pass->model->desc, l).from;
    for (int64_t i = 0; i < pass->sections.n; i++)
        if (kvf__section_has_prefix(&pass->sections.at[i], l)) return true;
    return false;
}

bool kvf__pass_trains_state(const kvf__pass *pass)
{
    for (int64_t i = 0; i < pass->sections.n; i++)
        if (pass->sections.at[i].dprefix && pass->sections.at[i].dprefix->state) return true;
    return false;
}

const kvf__pass_section *kvf__pass_section_of(const kvf__pass *pass, int64_t r)
{
    int64_t i = 0;

    while (r >= pass->sections.at[i].end)
        i++;
    return &pass->sections.at[i];
}

static const kvf__pass_section *section_at(const kvf__pass *pass, int64_t token)
{
    int64_t i = 0;

    while (token >= pass->batch->start[pass->sections.at[i].end])
        i++;
    return &pass->sections.at[i];
}

const kvf__vectors *kvf__pass_vectors_at(const kvf__pass *pass, int64_t token)
{
    return section_at(pass, token)->condition.vectors;
}

void kvf__pass_add_loss(const kvf__pass *pass, int64_t label, double loss)
{
    if (!pass->sections.given) return;
    double *sum = section_at(pass, pass->batch->label_at[label])->loss_sum;
    if (sum) *sum += loss;
}
