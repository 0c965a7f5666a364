/* Reference values for a run's validation (baselines.c). */
#ifndef KVF_BASELINES_H
#define KVF_BASELINES_H

#include "tuned.h"

/* Measures the baselines. Does nothing for a resumed run, several tasks, or a run without
 * validation. */
kvf_status kvf__baselines_measure(kvf__run *run, kvf__tuned *tuned, const kvf__train_rows *rows);
/* Writes the baselines to the lineage of a run file, and reads them back. */
void kvf__baselines_store(const kvf__baselines *baselines, kvf_json *lineage);
kvf__baselines kvf__baselines_stored(const kvf_json *lineage);

#endif
