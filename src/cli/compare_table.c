/* The table of kvfold compare: a line for the bare base and one for each method, over its seeds. */
#include "cli_compare.h"

#include <math.h>
#include <string.h>

/* Formats "0.8123 (0.8000 to 0.8200)", for draws "0.8123 (sd 0.0081)"; only the number for one run
 * or equal ones. */
static const char *spread_text(const kvf_json *spread, char buf[64])
{
    const double mean = kvf__real_at(spread, "mean"), low = kvf__real_at(spread, "min"),
                 high = kvf__real_at(spread, "max"), sd = kvf__real_at(spread, "sd");
    if (!isfinite(mean)) return "-";
    if (isfinite(sd))
        snprintf(buf, 64, "%.4f (sd %.4f)", mean, sd);
    else if (high > low)
        snprintf(buf, 64, "%.4f (%.4f to %.4f)", mean, low, high);
    else
        snprintf(buf, 64, "%.4f", mean);
    return buf;
}

/* Formats "+0.0123 +- 0.0045". */
static const char *difference_text(const kvf_json *difference, char buf[64])
{
    const double mean = kvf__real_at(difference, "mean"),
                 error = kvf__real_at(difference, "standard_error");
    if (!isfinite(mean)) return "-";
    int n = snprintf(buf, 64, "%+.4f", mean);
    if (isfinite(error)) snprintf(buf + n, 64 - (size_t)n, " +- %.4f", error);
    return buf;
}

/* Returns the width of names, at least `least`. */
static int width_of(const kvf_json *rows, int least)
{
    int width = least;
    for (size_t i = 0; i < kvf_json_size(rows); i++) {
        const int n = (int)strlen(kvf__text_at(kvf_json_at(rows, i), "name"));
        if (n > width) width = n;
    }
    return width;
}

static void print_method(const kvf_json *m, int width, bool scored, bool several)
{
    char stored[32], memory[32], loss[64], score[64], difference[64];
    const int64_t bytes = kvf__int_at(m, "bytes");
    const int wide = several ? 25 : 10;
    printf("%-*s %10lld %8.4f%% %10s %8.0f %10s  %-*s", width, kvf__text_at(m, "name"),
           kvf__int_at(m, "trainable_parameters"), 100 * kvf__real_at(m, "share"),
           bytes ? cli_bytes_text(bytes, stored) : "-", kvf__real_at(m, "tokens_per_second"),
           cli_bytes_text(kvf__int_at(m, "peak_rss_bytes"), memory), wide,
           spread_text(kvf_json_get(m, "loss"), loss));
    if (scored) printf("  %-*s", wide, spread_text(kvf_json_get(m, "score"), score));
    printf("  %s\n", difference_text(kvf_json_get(m, "difference"), difference));
}

static void print_bare(const kvf_json *bare, int width)
{
    const double loss = kvf__real_at(bare, "loss");
    printf("%-*s %10d %8.4f%% ", width, "bare base", 0, 0.0);
    if (isfinite(loss))
        printf("%10s %8s %10s  %.4f\n", "-", "-", "-", loss);
    else
        printf("    %s\n", kvf__text_at(bare, "reason"));
}

/* Prints a line for each failed run, with the reason. */
static void print_failed(const kvf_json *failed, int width)
{
    for (size_t i = 0; i < kvf_json_size(failed); i++) {
        const kvf_json *run = kvf_json_at(failed, i);
        printf("%-*s  seed %lld failed: %s\n", width, kvf__text_at(run, "name"),
               kvf__int_at(run, "seed"), kvf__text_at(run, "line"));
    }
}

static void print_ensembles(const kvf_json *ensembles)
{
    const int width = width_of(ensembles, (int)strlen("ensemble"));
    char score[64];
    if (!kvf_json_size(ensembles)) return;
    printf("%-*s  %s\n", width, "ensemble", kvf__text_at(kvf_json_at(ensembles, 0), "best_metric"));
    for (size_t i = 0; i < kvf_json_size(ensembles); i++) {
        const kvf_json *one = kvf_json_at(ensembles, i);
        printf("%-*s  %s\n", width, kvf__text_at(one, "name"),
               spread_text(kvf_json_get(one, "score"), score));
    }
}

/* Returns the metric of the scores; NULL: there are only losses. */
static const char *metric_of(const kvf_json *methods)
{
    for (size_t i = 0; i < kvf_json_size(methods); i++) {
        const char *metric = kvf__text_at(kvf_json_at(methods, i), "best_metric");
        if (*metric) return metric;
    }
    return NULL;
}

void cli_comparison_print(const kvf_json *object)
{
    const kvf_json *methods = kvf_json_get(object, "methods");
    const char *metric = metric_of(methods);
    const bool several = kvf__int_at(object, "seeds") > 1;
    const kvf_json *failed = kvf_json_get(object, "failed");
    const int width = width_of(failed, width_of(methods, (int)strlen("bare base")));
    const int wide = several ? 25 : 10;
    printf("%-*s %10s %9s %10s %8s %10s  %-*s", width, "method", "trained", "share", "stored",
           "tokens/s", "memory", wide, "valid loss");
    if (metric) printf("  %-*s", wide, metric);
    printf("  to %s\n", kvf__text_at(object, "reference"));
    print_bare(kvf_json_get(object, "bare"), width);
    for (size_t i = 0; i < kvf_json_size(methods); i++)
        print_method(kvf_json_at(methods, i), width, metric != NULL, several);
    print_failed(failed, width);
    print_ensembles(kvf_json_get(object, "ensembles"));
    printf("%lld %s%s of %lld steps, %lld parameters in the base; curves: %s\n",
           kvf__int_at(object, "seeds"), kvf_json_get(object, "draws") ? "draw" : "seed",
           several ? "s" : "", kvf__int_at(object, "steps"), kvf__int_at(object, "base_parameters"),
           kvf__text_at(object, "page"));
}
