/* Axes: the numbers at the side of a chart, and the position of a value. */
#include "report_priv.h"

#include <math.h>

/* Returns 1, 2 or 5 times a power of ten, not below x > 0. */
static double round_step(double x)
{
    double power = pow(10, floor(log10(x)));
    double part = x / power;
    return (part <= 1.0 + 1e-9 ? 1 : part <= 2.0 + 1e-9 ? 2 : part <= 5.0 + 1e-9 ? 5 : 10) * power;
}

/* Widens a range without extent. */
static void widen(double *low, double *high)
{
    double more = fabs(*low) * 0.1;
    if (*high - *low > fabs(*high) * 1e-9) return;
    if (more < 1e-12) more = 1;
    *low -= more;
    *high += more;
}

kvf__axis kvf__axis_linear(double low, double high, int about)
{
    kvf__axis axis = {0};

    widen(&low, &high);
    double step = round_step((high - low) / (about > 0 ? about : 1));
    double first = floor(low / step + 1e-9), last = ceil(high / step - 1e-9);
    for (double k = first; k <= last && axis.n < KVF__TICKS; k++)
        axis.tick[axis.n++] = k == 0 ? 0 : k * step; /* no -0 */
    axis.low = axis.tick[0];
    axis.high = axis.tick[axis.n - 1];
    return axis;
}

/* Returns the largest of 1, 2, 5 times a power of ten up to x, or with `up` the smallest from x on.
 */
static double around(double x, bool up)
{
    static const double PARTS[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(x))), part = x / power;
    int i = 0;

    while (i < 3 && PARTS[i] < part * (1 - 1e-9))
        i++;
    if (!up && i && PARTS[i] > part * (1 + 1e-9)) i--;
    return PARTS[i] * power;
}

kvf__axis kvf__axis_log(double low, double high)
{
    static const double PARTS[] = {1, 2, 5};
    kvf__axis axis = {.log = true, .low = around(low, false), .high = around(high, true)};

    if (axis.high <= axis.low) axis.high = axis.low * 10;
    int first = (int)floor(log10(axis.low)), last = (int)ceil(log10(axis.high));
    int parts = last - first <= 3 ? 3 : 1, stride = (last - first) / 8 + 1;
    for (int k = first; k <= last; k += stride)
        for (int i = 0; i < parts; i++) {
            double tick = PARTS[i] * pow(10, k);
            bool inside = tick >= axis.low * (1 - 1e-9) && tick <= axis.high * (1 + 1e-9);
            if (inside && axis.n < KVF__TICKS) axis.tick[axis.n++] = tick;
        }
    return axis;
}

double kvf__axis_at(const kvf__axis *axis, double value)
{
    if (axis->log) return log(value / axis->low) / log(axis->high / axis->low);
    return (value - axis->low) / (axis->high - axis->low);
}
