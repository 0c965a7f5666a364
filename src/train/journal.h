/* What a run leaves for people to look at while it goes on: --log and --tensorboard, rows of one
 * table. Private to src/train. Neither decides anything: a run with them has the bits of one
 * without, and one that can no longer be written to is given up with a note. */
#ifndef KVF_JOURNAL_H
#define KVF_JOURNAL_H

#include "event_file.h"

struct kvf__trainer;

typedef struct kvf__journal {
    bool is_open;
    unsigned on;    /* bit i: sink i of the table is written to */
    double began;   /* seconds since 1970 */
    kvf__buf early; /* notes from before it was open, each ending in NUL */
    kvf__buf line;  /* of the log, kept from one to the next */
    kvf__appendfile log;
    kvf__event_file scalars;
} kvf__journal;

/* Refuses a log that cannot be begun, before anything is loaded. EEXIST, EUSAGE. */
kvf_status kvf__journal_check(struct kvf__trainer *trainer);
kvf_status kvf__journal_open(struct kvf__trainer *trainer);
/* Last line: how the call ended, with the context's line where it failed. */
void kvf__journal_end(struct kvf__trainer *trainer, kvf_status status);
void kvf__journal_close(kvf__journal *journal);
/* Every event passes here on its way to the caller. */
void kvf__trainer_emit(struct kvf__trainer *trainer, const kvf_event *event);

/* Does the event carry this column of the history? *value: what it is. */
bool kvf__journal_column(const struct kvf__trainer *trainer, int column, const kvf_event *event,
                         double *value);

/* journal_log.c: JSONL. */
kvf_status kvf__log_open(struct kvf__trainer *trainer);
kvf_status kvf__log_event(struct kvf__trainer *trainer, const kvf_event *event);
kvf_status kvf__log_end(struct kvf__trainer *trainer, kvf_status status, const char *error);
/* journal_scalars.c: TensorBoard. */
kvf_status kvf__scalars_open(struct kvf__trainer *trainer);
kvf_status kvf__scalars_event(struct kvf__trainer *trainer, const kvf_event *event);

#endif
