/* A task head in a base's folder, as stored by transformers' class for it. */
#ifndef KVF_FOLDER_HEAD_H
#define KVF_FOLDER_HEAD_H

#include "open_base.h"
#include "task.h"

/* The labels of the new head; n = 0: unnamed outputs. */
typedef struct kvf__head_labels {
    char *const *names; /* [n] */
    size_t n;
} kvf__head_labels;

/* Copies the folder's head into the parameters of a new head, if it is of this task, and sets
 * *taken. Otherwise they are unchanged, and why [bytes] explains the mismatch; "": the folder has
 * no such head. Outputs are matched by the names of id2label, ignoring case, or by a label that is
 * their number; without names in id2label by their order. ENUMERIC: a value is not finite. */
kvf_status kvf__folder_head(kvf_ctx *ctx, const kvf_base *base, kvf__task task,
                            const kvf__head_labels *labels, kvf__params *head, char *why,
                            size_t bytes, bool *taken);

#endif
