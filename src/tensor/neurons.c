/* Virtual neurons and their flat form, see neurons.h: two layouts of the same numbers. */
#include "neurons.h"

#include <string.h>

bool kvf__neuron_shape_same(const kvf__neuron_shape *a, const kvf__neuron_shape *b)
{
    return a->L == b->L && a->N == b->N && a->C == b->C && a->gated == b->gated &&
           a->biased == b->biased;
}

int64_t kvf__neuron_values(const kvf__neuron_shape *shape)
{
    return (shape->gated ? 3 : 2) * shape->C + shape->biased;
}

size_t kvf__neurons_count(const kvf__neurons *neurons)
{
    const kvf__neuron_shape *s = &neurons->shape;
    return (size_t)(s->L * s->N * kvf__neuron_values(s));
}

int kvf__neuron_arrays(const kvf__neurons *neurons, kvf__neuron_array out[KVF__NEURON_ARRAYS])
{
    const kvf__neuron_shape *s = &neurons->shape;
    const char *const names[] = {s->gated ? "gate" : "key", "up", "value"};
    const int64_t n = s->L * s->N * s->C;
    int arrays = 0;

    for (int i = 0; i < 3; i++)
        if (i != 1 || s->gated) out[arrays++] = (kvf__neuron_array){names[i], NULL, s->C};
    if (s->biased) out[arrays++] = (kvf__neuron_array){"bias", NULL, 1};
    for (int i = 0; neurons->w && i < arrays; i++)
        out[i].at = neurons->w + i * n;
    return arrays;
}

kvf__neurons_layer kvf__neurons_at(const kvf__neurons *neurons, int64_t l)
{
    const kvf__neuron_shape *s = &neurons->shape;
    const int64_t all = s->L * s->N * s->C, at = l * s->N * s->C;
    float *values = neurons->w + (s->gated ? 2 : 1) * all;

    return (kvf__neurons_layer){.key = neurons->w + at,
                                .up = s->gated ? neurons->w + all + at : NULL,
                                .value = values + at,
                                .bias = s->biased ? values + all + l * s->N : NULL};
}

kvf_status kvf__neurons_create(kvf_ctx *ctx, kvf__neurons *out, const kvf__neuron_shape *shape)
{
    kvf__neurons made = {.shape = *shape};
    size_t count;

    if (!kvf__mul((size_t)shape->L, (size_t)shape->N, &count) ||
        !kvf__mul(count, (size_t)kvf__neuron_values(shape), &count))
        return kvf__fail(ctx, KVF_ENOMEM, "%lld neurons are more than memory can address",
                         (long long)shape->N);
    kvf_status st = kvf__alloc_array(ctx, count, sizeof *made.w, &made.w);
    if (!st)
        st = kvf__alloc_array(ctx, (size_t)shape->L, sizeof *made.layer_mask, &made.layer_mask);
    if (!st) memset(made.layer_mask, 1, (size_t)shape->L);
    KVF__GIVE(st, out, made, kvf__neurons_done(&made));
    return st;
}

void kvf__neurons_take(kvf__neurons *to, const kvf__neurons *from)
{
    if (!from->shape.N) return;
    memcpy(to->w, from->w, kvf__neurons_count(from) * sizeof *to->w);
    memcpy(to->layer_mask, from->layer_mask, (size_t)from->shape.L);
}

void kvf__neurons_done(kvf__neurons *neurons)
{
    kvf__free(neurons->w);
    kvf__free(neurons->layer_mask);
    *neurons = (kvf__neurons){0};
}

void kvf__neurons_place(kvf__neurons *to, int64_t at, const kvf__neurons *from)
{
    const int64_t N = from->shape.N;
    kvf__neuron_array own[KVF__NEURON_ARRAYS], into[KVF__NEURON_ARRAYS];
    const int arrays = N ? kvf__neuron_arrays(from, own) : 0;

    kvf__neuron_arrays(to, into);
    for (int64_t l = 0; l < from->shape.L; l++) {
        if (from->layer_mask[l]) to->layer_mask[l] = 1;
        for (int i = 0; i < arrays; i++)
            memcpy(into[i].at + (l * to->shape.N + at) * own[i].columns,
                   own[i].at + l * N * own[i].columns,
                   (size_t)(N * own[i].columns) * sizeof(float));
    }
}

/* ---- the flat form --------------------------------------------------------------------------- */

/* Copies n values of a neuron and advances. */
static void copy(float *own, int64_t n, float **to_flat, const float **flat)
{
    if (to_flat) {
        memcpy(*to_flat, own, (size_t)n * sizeof *own);
        *to_flat += n;
    } else {
        memcpy(own, *flat, (size_t)n * sizeof *own);
        *flat += n;
    }
}

static void copy_all(const kvf__neurons *neurons, float *to_flat, const float *flat)
{
    const int64_t C = neurons->shape.C;
    float **to = to_flat ? &to_flat : NULL;

    for (int64_t i = 0; i < neurons->shape.N; i++)
        for (int64_t l = 0; l < neurons->shape.L; l++) {
            const kvf__neurons_layer at = kvf__neurons_at(neurons, l);
            copy(at.key + i * C, C, to, &flat);
            if (at.up) copy(at.up + i * C, C, to, &flat);
            if (at.bias) copy(at.bias + i, 1, to, &flat);
            copy(at.value + i * C, C, to, &flat);
        }
}

void kvf__neurons_from_flat(kvf__neurons *neurons, const float *flat)
{
    copy_all(neurons, NULL, flat);
}

void kvf__neurons_to_flat(const kvf__neurons *neurons, float *flat)
{
    copy_all(neurons, flat, NULL);
}

void kvf__neurons_clear_masked(kvf__neurons *neurons)
{
    const int64_t L = neurons->shape.L, N = neurons->shape.N;
    kvf__neuron_array array[KVF__NEURON_ARRAYS];
    const int arrays = N ? kvf__neuron_arrays(neurons, array) : 0;

    for (int i = 0; i < arrays; i++)
        for (int64_t l = 0; l < L; l++)
            if (!neurons->layer_mask[l])
                memset(array[i].at + l * N * array[i].columns, 0,
                       (size_t)(N * array[i].columns) * sizeof(float));
}
