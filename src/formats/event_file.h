/* TensorBoard's event files (event.proto, record_writer.py): records of a checksummed length and a
 * checksummed protobuf message, each appended by one write. There is one file per process. Readers
 * take a folder's files in the order of their names and drop steps that a later file repeats. */
#ifndef KVF_EVENT_FILE_H
#define KVF_EVENT_FILE_H

#include "base_int.h"
#include "outfile.h"

typedef struct kvf__event_file {
    kvf__appendfile file;
    kvf__buf value, summary, event, record; /* reused between records */
} kvf__event_file;

typedef struct kvf__event_scalar {
    const char *tag; /* "train/loss" */
    double value;    /* stored as f32 */
} kvf__event_scalar;

/* Creates the folder if necessary, and a file whose name sorts after all others. wall: seconds
 * since 1970, in every record. Steps from first_step on in other files of the folder become
 * invalid. */
kvf_status kvf__event_file_open(kvf_ctx *ctx, const char *folder, double wall, int64_t first_step,
                                kvf__event_file *out);
kvf_status kvf__event_file_scalars(kvf_ctx *ctx, kvf__event_file *file, double wall, int64_t step,
                                   const kvf__event_scalar *scalars, size_t n);
/* Adds Markdown for the text plugin. */
kvf_status kvf__event_file_text(kvf_ctx *ctx, kvf__event_file *file, double wall, int64_t step,
                                const char *tag, const char *text);
void kvf__event_file_close(kvf__event_file *file); /* {0} is allowed */

/* Appends a record with a message; also used by tests. */
kvf_status kvf__event_record(kvf_ctx *ctx, kvf__buf *out, const void *message, size_t n);

#endif
