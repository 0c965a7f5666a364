/* What a run's validation is held against (baselines.c). */
#ifndef KVF_BASELINES_H
#define KVF_BASELINES_H

#include "tuned.h"

/* Before the first step of a run with one task and a validation; of a resumed one those of its
 * file. */
kvf_status kvf__baselines_measure(kvf__run *run, kvf__tuned *tuned, const kvf__train_rows *rows);
/* In a run file's lineage. */
void kvf__baselines_store(const kvf__baselines *baselines, kvf_json *lineage);
kvf__baselines kvf__baselines_stored(const kvf_json *lineage);

#endif
