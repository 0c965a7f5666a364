/* A head that a base's folder has for a task, as transformers' class for it stores one. */
#ifndef KVF_FOLDER_HEAD_H
#define KVF_FOLDER_HEAD_H

#include "open_base.h"
#include "task.h"

/* The labels of the new head; n = 0: its outputs have no names. */
typedef struct kvf__head_labels {
    char *const *names; /* [n] */
    size_t n;
} kvf__head_labels;

/* Gives the parameters of a new head the values of the folder's, where that is of this task, and
 * says so in *taken. Else they stay as they are, and why [bytes] says for a person what does not
 * fit; "": the folder has no such head. Outputs go by the names of id2label, in any case of
 * letters, or by a label that is their number; by their order, where id2label has no names.
 * ENUMERIC: a value is not finite. */
kvf_status kvf__folder_head(kvf_ctx *ctx, const kvf_base *base, kvf__task task,
                            const kvf__head_labels *labels, kvf__params *head, char *why,
                            size_t bytes, bool *taken);

#endif
