/* Metrics of the server, and their text for Prometheus (prometheus.c). */
#ifndef KVF_PROMETHEUS_H
#define KVF_PROMETHEUS_H

#include "access.h"
#include "engine.h"
#include "prefix_cache.h"

enum { KVF__BUCKETS = 12 };
typedef struct kvf__histogram {
    int64_t count[KVF__BUCKETS + 1];
    double sum;
} kvf__histogram;
void kvf__histogram_add(kvf__histogram *histogram, double value, bool seconds);

typedef struct kvf__server_metrics {
    int64_t answered, failed, refused, gone; /* requests by status: 200; 5xx; 4xx; abandoned by the
                                              * client */
    int64_t connections, evicted;            /* open; closed because their request was late */
    int64_t queued, queued_bytes;
    int64_t reloads, failed_reloads;
    kvf__prefix_counts prefixes;
    kvf__engine_stats engine;
    int64_t max_rows;
    kvf__histogram waited, first_token, whole; /* seconds since arrival */
    kvf__histogram batch;                      /* rows per step */
} kvf__server_metrics;
/* Prints the counts of each tenant; those after the first hundred are added up. */
kvf_status kvf__tenants_print(const kvf__tenants *tenants, kvf__buf *out);
kvf_status kvf__server_metrics_print(const kvf__server_metrics *metrics, kvf__buf *out);

#endif
