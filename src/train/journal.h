/* Events of a run: passed to the caller and written to log files (--log and --tensorboard, rows of
 * one table). The files do not influence the run. A file that can no longer be written is given up
 * with a note. */
#ifndef KVF_JOURNAL_H
#define KVF_JOURNAL_H

#include "event_file.h"
#include "history.h"

#include <kvfold/train.h>

struct kvf__run;

/* Sizes of a run, for its log. */
typedef struct kvf__run_size {
    int64_t rows, labels;
    int64_t trained, parameters; /* numbers of values: trained; in all */
} kvf__run_size;

typedef struct kvf__journal {
    bool is_open;
    unsigned on;  /* bit i: sink i of the table is written to */
    double began; /* seconds since 1970 */
    kvf__run_size size;
    kvf__buf early; /* notes from before it was open, each ending in NUL */
    kvf__buf line;  /* of the log, kept from one to the next */
    kvf__appendfile log;
    kvf__event_file scalars;
} kvf__journal;

/* Refuses a log that cannot be begun, before anything is loaded. EEXIST, EUSAGE. */
kvf_status kvf__journal_check(struct kvf__run *run);
kvf_status kvf__journal_open(struct kvf__run *run, const kvf__run_size *size);
/* Last line: how the call ended, with the context's line where it failed. */
void kvf__journal_end(struct kvf__run *run, kvf_status status);
void kvf__journal_close(kvf__journal *journal);
/* Every event passes here on its way to the caller. */
void kvf__run_emit(struct kvf__run *run, const kvf_event *event);
/* Emit a note. A detail is shown with --verbose only. */
void kvf__run_note(struct kvf__run *run, const char *fmt, ...) KVF__PRINTF(2, 3);
void kvf__run_detail(struct kvf__run *run, const char *fmt, ...) KVF__PRINTF(2, 3);

/* The columns of the history that an event carries. */
typedef struct kvf__event_columns {
    bool has[KVF__COLUMNS];
    double value[KVF__COLUMNS];
} kvf__event_columns;

/* journal_log.c: JSONL. */
kvf_status kvf__log_open(struct kvf__run *run);
kvf_status kvf__log_event(struct kvf__run *run, const kvf_event *event,
                          const kvf__event_columns *columns);
kvf_status kvf__log_end(struct kvf__run *run, kvf_status status, const char *error);
/* journal_scalars.c: TensorBoard. */
kvf_status kvf__scalars_open(struct kvf__run *run);
kvf_status kvf__scalars_event(struct kvf__run *run, const kvf_event *event,
                              const kvf__event_columns *columns);

#endif
