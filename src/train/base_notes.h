/* What a run says of its base alone (base_notes.c). */
#ifndef KVF_BASE_NOTES_H
#define KVF_BASE_NOTES_H

#include "train_rows.h"

/* With --precision int8: the bare base's loss in it and in bf16. */
kvf_status kvf__note_int8(kvf__run *run, const kvf__train_rows *rows);
/* After the first step, whose batch is the batcher's: a note where the frozen base seems never
 * pretrained. */
kvf_status kvf__note_untrained(kvf__run *run, const kvf__train_rows *rows, kvf__pass *pass);

#endif
