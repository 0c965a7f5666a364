/* Events of a run, passed to the caller and written to log files (--log and --tensorboard, rows of
 * one table). The files do not influence the run. If writing a file fails, it is closed with a
 * note. */
#ifndef KVF_JOURNAL_H
#define KVF_JOURNAL_H

#include "event_file.h"
#include "history.h"

#include <kvfold/train.h>

struct kvf__run;

/* Sizes of a run, for its log. */
typedef struct kvf__run_size {
    int64_t rows, labels;
    int64_t trained, parameters; /* numbers of trained values, and of all values */
} kvf__run_size;

typedef struct kvf__journal {
    bool is_open;
    unsigned on;  /* bit i: sink i of the table is open */
    double began; /* start time in seconds since 1970 */
    kvf__run_size size;
    kvf__buf early; /* notes from before the log was open, each ending in NUL */
    kvf__buf line;  /* line buffer of the log */
    kvf__appendfile log;
    kvf__event_file scalars;
} kvf__journal;

/* Refuses a log file that cannot be created, before anything is loaded. EEXIST, EUSAGE. */
kvf_status kvf__journal_check(struct kvf__run *run);
kvf_status kvf__journal_open(struct kvf__run *run, const kvf__run_size *size);
/* Writes the last line: how the call ended, with the error line if it failed. */
void kvf__journal_end(struct kvf__run *run, kvf_status status);
void kvf__journal_close(kvf__journal *journal);
/* Passes an event to the log files and the caller. */
void kvf__run_emit(struct kvf__run *run, const kvf_event *event);
/* Emits a note. A detail is shown with --verbose only. */
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
