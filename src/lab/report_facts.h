/* One report on its way: what is being looked at, and what was found. Private to src/lab. */
#ifndef KVF_REPORT_FACTS_H
#define KVF_REPORT_FACTS_H

#include <kvfold/lab.h>

#include "renderer.h"

typedef struct kvf__report_facts {
    kvf_ctx *ctx;
    const kvf_report_options *options;
    kvf_json *facts; /* as src/lab wants them */
    kvf_json *notes; /* a member of facts */
    kvf__history history;
    kvf_prefix *prefix; /* NULL: not to be had without its base */
    kvf_base *base;     /* NULL: none was named */
} kvf__report_facts;

/* The last part of a path. */
const char *kvf__path_end(const char *path);
void kvf__report_note(kvf__report_facts *r, const char *fmt, ...) KVF__PRINTF(2, 3);
/* How rows of the data are read. */
kvf_eval_options kvf__report_data(const kvf_report_options *options);
/* What a classifier or tagger answers on the data (report_answers.c); nothing of other tasks. */
kvf_status kvf__report_answers(kvf__report_facts *r);
/* Words, shares and samples, as far as the options and the method go. May end with another base
 * open, or none. */
kvf_status kvf__report_with_base(kvf__report_facts *r);

#endif
