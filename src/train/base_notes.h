/* Notes about the base of a run (base_notes.c). */
#ifndef KVF_BASE_NOTES_H
#define KVF_BASE_NOTES_H

#include "train_rows.h"

/* --precision int8: reports the loss of the bare base in int8 and in bf16. */
kvf_status kvf__note_int8(kvf__run *run, const kvf__train_rows *rows);
/* Reports a frozen base that seems never pretrained. Call after the first step, while the batcher
 * still holds its last batch. */
kvf_status kvf__note_untrained(kvf__run *run, const kvf__train_rows *rows, kvf__pass *pass);

#endif
