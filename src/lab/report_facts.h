/* A report in progress: inputs and collected facts. Private to src/lab. */
#ifndef KVF_REPORT_FACTS_H
#define KVF_REPORT_FACTS_H

#include <kvfold/lab.h>

#include "renderer.h"

typedef struct kvf__report_facts {
    kvf_ctx *ctx;
    const kvf_report_options *options;
    kvf_json *facts; /* facts for the page */
    kvf_json *notes; /* member of facts */
    kvf__history history;
    kvf_prefix *prefix; /* NULL: cannot be computed without its base */
    kvf_base *base;     /* NULL: not given */
} kvf__report_facts;

void kvf__report_note(kvf__report_facts *r, const char *fmt, ...) KVF__PRINTF(2, 3);
/* Returns the options for reading the data. */
kvf_eval_options kvf__report_data(const kvf_report_options *options);
/* Adds the answers of a classifier or tagger on the data (report_answers.c); nothing for other
 * tasks. */
kvf_status kvf__report_answers(kvf__report_facts *r);
/* Adds words, shares and samples, as options and method allow. Another base, or none, may be open
 * afterwards. */
kvf_status kvf__report_with_base(kvf__report_facts *r);

#endif
