/* Metrics of the server as text for Prometheus (exposition format 0.0.4). */
#include "prometheus.h"

#include <stddef.h>
#include <string.h>

enum { MOST_SHOWN = 100 };

static const double SECONDS[KVF__BUCKETS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                             0.5,   1,    2.5,   5,    10,  30};
static const double ROWS[KVF__BUCKETS] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128};

void kvf__histogram_add(kvf__histogram *histogram, double value, bool seconds)
{
    const double *bounds = seconds ? SECONDS : ROWS;
    int i = 0;
    while (i < KVF__BUCKETS && value > bounds[i])
        i++;
    histogram->count[i]++;
    histogram->sum += value;
}

static kvf_status head(kvf__buf *out, const char *name, const char *type, const char *help)
{
    return kvf__buf_printf(NULL, out, "# HELP kvfold_%s %s\n# TYPE kvfold_%s %s\n", name, help,
                           name, type);
}

static kvf_status histogram(kvf__buf *out, const char *name, const char *help,
                            const kvf__histogram *h, bool seconds)
{
    const double *bounds = seconds ? SECONDS : ROWS;
    int64_t sum = 0;
    KVF_TRY(head(out, name, "histogram", help));
    for (int i = 0; i < KVF__BUCKETS; i++) {
        sum += h->count[i];
        KVF_TRY(kvf__buf_printf(NULL, out, "kvfold_%s_bucket{le=\"%g\"} %lld\n", name, bounds[i],
                                (long long)sum));
    }
    sum += h->count[KVF__BUCKETS];
    return kvf__buf_printf(NULL, out,
                           "kvfold_%s_bucket{le=\"+Inf\"} %lld\nkvfold_%s_sum %.17g\n"
                           "kvfold_%s_count %lld\n",
                           name, (long long)sum, name, h->sum, name, (long long)sum);
}

kvf_status kvf__tenants_print(const kvf__tenants *tenants, kvf__buf *out)
{
    static const struct {
        const char *name, *type, *help;
        size_t at;
    } rows[] = {
        {"tenant_requests_total", "counter", "Accepted requests by line of the token file.",
         offsetof(kvf__tenant, accepted)},
        {"tenant_refused_total", "counter", "Requests above a limit of tenants.",
         offsetof(kvf__tenant, refused)},
        {"tenant_prompt_tokens_total", "counter", "Prompt tokens by tenant.",
         offsetof(kvf__tenant, prompt_tokens)},
        {"tenant_generated_tokens_total", "counter", "Generated tokens by tenant.",
         offsetof(kvf__tenant, new_tokens)},
        {"tenant_rows", "gauge", "Rows by tenant.", offsetof(kvf__tenant, rows)},
    };
    for (size_t r = 0; tenants->n && r < sizeof rows / sizeof rows[0]; r++) {
        int64_t rest = 0;
        KVF_TRY(head(out, rows[r].name, rows[r].type, rows[r].help));
        for (size_t i = 0; i < tenants->n; i++) {
            const kvf__tenant *tenant = &tenants->item[i];
            int64_t value;
            memcpy(&value, (const char *)tenant + rows[r].at, sizeof value);
            if (i < MOST_SHOWN)
                KVF_TRY(kvf__buf_printf(NULL, out, "kvfold_%s{tenant=\"%lld\"} %lld\n",
                                        rows[r].name, (long long)tenant->line, (long long)value));
            else
                rest += value;
        }
        if (tenants->n > MOST_SHOWN)
            KVF_TRY(kvf__buf_printf(NULL, out, "kvfold_%s{tenant=\"others\"} %lld\n", rows[r].name,
                                    (long long)rest));
    }
    return KVF_OK;
}

static kvf_status numbers(const kvf__server_metrics *m, kvf__buf *out)
{
    const kvf__engine_stats *e = &m->engine;
    const struct {
        const char *name, *type, *help; /* NULL: as in the previous row, with another label */
        double value;
        const char *label;
    } rows[] = {
        {"requests_total", "counter", "Requests by result.", (double)m->answered,
         "{result=\"answered\"}"},
        {"requests_total", NULL, NULL, (double)m->refused, "{result=\"refused\"}"},
        {"requests_total", NULL, NULL, (double)m->failed, "{result=\"failed\"}"},
        {"requests_total", NULL, NULL, (double)m->gone, "{result=\"gone\"}"},
        {"connections", "gauge", "Open connections.", (double)m->connections, ""},
        {"late_connections_total", "counter",
         "Connections closed because no complete request arrived in time.", (double)m->evicted, ""},
        {"queue_length", "gauge", "Requests waiting for a row.", (double)m->queued, ""},
        {"queue_bytes", "gauge", "Memory of waiting requests.", (double)m->queued_bytes, ""},
        {"rows", "gauge", "Requests being computed.", (double)(e->rows + e->waiting), ""},
        {"rows_limit", "gauge", "Largest number of requests computed together.",
         (double)m->max_rows, ""},
        {"prompt_tokens_total", "counter", "Prompt tokens computed.", (double)e->prompt_tokens, ""},
        {"cached_prompt_tokens_total", "counter", "Prompt tokens taken from --cache-memory.",
         (double)e->cached_tokens, ""},
        {"cache_bytes", "gauge", "Memory of prompts kept by --cache-memory.",
         (double)e->cached_bytes, ""},
        {"generated_tokens_total", "counter", "Tokens generated.", (double)e->new_tokens, ""},
        {"steps_total", "counter", "Decoding steps, one token for every row.", (double)e->steps,
         ""},
        {"prefill_seconds_total", "counter", "Time spent on prompts.", e->prefill_seconds, ""},
        {"decode_seconds_total", "counter", "Time spent on decoding steps.", e->decode_seconds, ""},
        {"prefix_reloads_total", "counter", "Prefix files read again after a change.",
         (double)m->reloads, ""},
        {"prefix_reload_failures_total", "counter", "Changed prefix files that were refused.",
         (double)m->failed_reloads, ""},
        {"models", "gauge", "Names of models.", (double)m->prefixes.names, ""},
        {"prefix_loads_total", "counter", "Files of --prefix-dir that were read.",
         (double)m->prefixes.loads, ""},
        {"prefix_load_failures_total", "counter", "Files of --prefix-dir that were refused.",
         (double)m->prefixes.failed_loads, ""},
        {"prefix_drops_total", "counter", "Prefixes dropped to make room for others.",
         (double)m->prefixes.dropped, ""},
        {"prefix_bytes", "gauge", "Memory of prefixes of --prefix-dir.", (double)m->prefixes.bytes,
         ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].help) KVF_TRY(head(out, rows[i].name, rows[i].type, rows[i].help));
        KVF_TRY(kvf__buf_printf(NULL, out, "kvfold_%s%s %.17g\n", rows[i].name, rows[i].label,
                                rows[i].value));
    }
    return KVF_OK;
}

kvf_status kvf__server_metrics_print(const kvf__server_metrics *m, kvf__buf *out)
{
    const struct {
        const char *name, *help;
        const kvf__histogram *values;
        bool seconds;
    } histograms[] = {
        {"queue_seconds", "Time from arrival to a free row.", &m->waited, true},
        {"first_token_seconds", "Time from arrival to the first token.", &m->first_token, true},
        {"request_seconds", "Time from arrival to the last token.", &m->whole, true},
        {"batch_rows", "Rows per decoding step.", &m->batch, false},
    };
    KVF_TRY(numbers(m, out));
    for (size_t i = 0; i < sizeof histograms / sizeof histograms[0]; i++)
        KVF_TRY(histogram(out, histograms[i].name, histograms[i].help, histograms[i].values,
                          histograms[i].seconds));
    return KVF_OK;
}
