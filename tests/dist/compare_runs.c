/* Compares two run files of the same steps. Losses are compared by relative difference. AdamW's
 * first moments, which after one step are the gradient times 1 - beta1, are compared relative to
 * their norm for each parameter.
 *
 * Usage: compare_runs A.h5 B.h5 TOLERANCE [losses|gradients] */
#include "artifact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool close_losses(const kvf__history *a, const kvf__history *b, double tolerance)
{
    bool good = a->n == b->n && a->n > 0;
    if (!good) printf("%lld and %lld steps\n", (long long)a->n, (long long)b->n);
    for (int64_t i = 0; good && i < a->n; i++) {
        double off = fabs(a->train_loss[i] - b->train_loss[i]) / fabs(a->train_loss[i]);
        if (off <= tolerance) continue;
        printf("loss of step %lld: %.9g, %.9g\n", (long long)i + 1, a->train_loss[i],
               b->train_loss[i]);
        good = false;
    }
    return good;
}

static double distance(const float *a, const float *b, int64_t n)
{
    double off = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        off += d * d;
        size += (double)a[i] * (double)a[i];
    }
    return size > 0 ? sqrt(off / size) : sqrt(off);
}

static bool close_moments(const kvf__params *a, const kvf__params *b, double tolerance)
{
    bool good = a->n == b->n && a->n > 0;
    double worst = 0, size = 0;
    for (size_t i = 0; good && i < a->n; i++) {
        const kvf__param *p = &a->item[i], *q = &b->item[i];
        good = !strcmp(p->name, q->name) && p->n == q->n;
        double off = good ? distance(p->value, q->value, p->n) : INFINITY;
        for (int64_t k = 0; good && k < p->n; k++)
            size += fabs((double)p->value[k]);
        worst = fmax(worst, off);
        if (off <= tolerance) continue;
        printf("gradient of %s: relative difference %.3g\n", p->name, off);
        good = false;
    }
    if (good && size == 0) printf("the gradients are zero\n");
    printf("gradients differ by %.2g at most\n", worst);
    return good && size > 0;
}

int main(int argc, char **argv)
{
    kvf_ctx *ctx = NULL;
    kvf__artifact a = {0}, b = {0};
    if (argc < 4 || kvf_ctx_create(NULL, &ctx)) return 2;
    double tolerance = atof(argv[3]);
    if (kvf__artifact_read_all(ctx, argv[1], KVF__KIND_RUN, &a) ||
        kvf__artifact_read_all(ctx, argv[2], KVF__KIND_RUN, &b)) {
        printf("%s\n", kvf_ctx_error(ctx));
        return 1;
    }
    bool good = true;
    if (argc < 5 || !strcmp(argv[4], "losses"))
        good = close_losses(&a.history, &b.history, tolerance);
    if (argc < 5 || !strcmp(argv[4], "gradients"))
        good = close_moments(&a.m.params, &b.m.params, tolerance) && good;
    kvf__artifact_done(&a);
    kvf__artifact_done(&b);
    kvf_ctx_free(ctx);
    return good ? 0 : 1;
}
