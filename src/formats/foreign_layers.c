/* What foreign encoders are made of: linear layers of torch, taken from a table, checked, and run
 * once in f64, for those that kvfold's own encoder has no form for. */
#include "foreign.h"

#include <math.h>
#include <string.h>
#include <strings.h>

kvf_status kvf__foreign_check_view(kvf_ctx *ctx, const char *where, const char *name,
                                   const kvf__view *view, int rank)
{
    char text[128];
    if (!view) return kvf__fail(ctx, KVF_EFORMAT, "%s: tensor \"%s\" is missing", where, name);
    if (!kvf__dtype_is_float(view->dtype))
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: \"%s\" is %s, want a float type", where, name,
                         kvf__view_type_name(view));
    if (view->rank != rank || kvf__view_count(view) < 1)
        return kvf__fail(ctx, KVF_ESHAPE, "%s: \"%s\" is %s, want rank %d and not empty", where,
                         name, kvf__shape_text(text, view->rank, view->dim), rank);
    return KVF_OK;
}

kvf_status kvf__foreign_add_layer(kvf_ctx *ctx, const char *where, const char *stem,
                                  const kvf__view *weight, const kvf__view *bias, kvf__foreign *f)
{
    char name[192];
    int64_t in = f->layers ? f->layer[f->layers - 1].weight.dim[0] : f->table.dim[1];

    snprintf(name, sizeof name, "%.170s.weight", stem);
    KVF_TRY(kvf__foreign_check_view(ctx, where, name, weight, 2));
    if (weight->dim[1] != in)
        return kvf__fail(ctx, KVF_ESHAPE, "%s: \"%s\" is [%lld, %lld], want %lld columns", where,
                         name, (long long)weight->dim[0], (long long)weight->dim[1], (long long)in);
    snprintf(name, sizeof name, "%.170s.bias", stem);
    KVF_TRY(kvf__foreign_check_view(ctx, where, name, bias, 1));
    if (bias->dim[0] != weight->dim[0])
        return kvf__fail(ctx, KVF_ESHAPE, "%s: \"%s\" has %lld elements, want %lld", where, name,
                         (long long)bias->dim[0], (long long)weight->dim[0]);
    f->layer[f->layers].weight = *weight;
    f->layer[f->layers].bias = *bias;
    f->layers++;
    return KVF_OK;
}

static double act_relu(double x)
{
    return x > 0 ? x : 0;
}

static double act_gelu(double x)
{
    return 0.5 * x * (1 + erf(x / sqrt(2.0)));
}

static double act_silu(double x)
{
    return x / (1 + exp(-x));
}

/* As the get_activation() of transformers names them. */
static const struct {
    const char *name;
    double (*fn)(double);
} ACTS[] = {{"tanh", tanh},
            {"relu", act_relu},
            {"gelu", act_gelu},
            {"silu", act_silu},
            {"swish", act_silu}};
enum { N_ACTS = sizeof ACTS / sizeof ACTS[0] };

static kvf_status to_f32(kvf_ctx *ctx, const kvf__view *view, float **out)
{
    int64_t n = kvf__view_count(view);
    KVF_TRY(kvf__alloc_array(ctx, (size_t)n, sizeof **out, out));
    kvf__to_f32(view->dtype, view->data, *out, n);
    return KVF_OK;
}

/* y [P, out] = x [P, in] w^T + b, then fn (NULL: nothing). */
static void run_layer(double *y, const double *x, const float *w, const float *b, int64_t P,
                      int64_t in, int64_t out, double (*fn)(double))
{
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < out; o++)
        for (int64_t p = 0; p < P; p++) {
            double sum = b[o];
            for (int64_t i = 0; i < in; i++)
                sum += x[p * in + i] * (double)w[o * in + i];
            y[p * out + o] = fn ? fn(sum) : sum;
        }
}

/* *x [P, in] goes through layer i and becomes [P, out]. */
static kvf_status step(kvf_ctx *ctx, const kvf__foreign *f, int i, int64_t P, double **x,
                       double (*fn)(double))
{
    int64_t out = f->layer[i].weight.dim[0], in = f->layer[i].weight.dim[1];
    float *w = NULL, *b = NULL;
    double *y = NULL;
    size_t n = 0;

    if (!kvf__mul((size_t)P, (size_t)out, &n)) return kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    kvf_status st = to_f32(ctx, &f->layer[i].weight, &w);
    if (!st) st = to_f32(ctx, &f->layer[i].bias, &b);
    if (!st) st = kvf__alloc_array(ctx, n, sizeof *y, &y);
    if (!st) {
        run_layer(y, *x, w, b, P, in, out, i + 1 < f->layers ? fn : NULL);
        kvf__free(*x);
        *x = y;
    }
    kvf__free(w);
    kvf__free(b);
    return st;
}

/* rows: of the table, the input of the first layer. */
static kvf_status run_layers(kvf_ctx *ctx, const kvf__foreign *f, const float *rows, int64_t P,
                             int64_t n, double (*fn)(double), float *flat)
{
    const int64_t count = kvf__view_count(&f->table);
    double *x = NULL;

    KVF_TRY(kvf__alloc_array(ctx, (size_t)count, sizeof *x, &x));
    for (int64_t i = 0; i < count; i++)
        x[i] = rows[i];
    kvf_status st = KVF_OK;
    for (int i = 0; i < f->layers && !st; i++)
        st = step(ctx, f, i, P, &x, fn);
    for (int64_t i = 0; !st && i < P * n; i++)
        flat[i] = (float)x[i];
    kvf__free(x);
    return st;
}

kvf_status kvf__foreign_emit(kvf_ctx *ctx, const kvf__foreign *f, int64_t P, int64_t n, float *flat)
{
    double (*fn)(double) = NULL;
    float *rows = NULL;

    for (int i = 0; i < N_ACTS && !fn; i++)
        if (f->activation && !strcasecmp(ACTS[i].name, f->activation)) fn = ACTS[i].fn;
    if (f->layers && !fn)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "the non-linearity is \"%.40s\"; known: tanh, relu, gelu, silu",
                         f->activation ? f->activation : "");
    if (!f->layers) {
        kvf__to_f32(f->table.dtype, f->table.data, flat, P * n);
        return KVF_OK;
    }
    KVF_TRY(to_f32(ctx, &f->table, &rows));
    kvf_status st = run_layers(ctx, f, rows, P, n, fn, flat);
    kvf__free(rows);
    return st;
}
