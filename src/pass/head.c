/* Common functions of all heads, and the assignment of labels to rows. */
#include "head_priv.h"

void kvf__head_free(kvf__head *head)
{
    if (!head) return;
    kvf__params_done(&head->params);
    kvf__free(head->vocab);
    kvf__free(head->values);
    kvf__free(head->word_ids);
    kvf__free(head->weights);
    kvf__free(head->grads);
    kvf__free(head->work.memory);
    kvf__free(head);
}

kvf__params *kvf__head_params(kvf__head *head)
{
    return &head->params;
}

int64_t kvf__head_width(const kvf__head *head)
{
    return head->width;
}

bool kvf__head_is_lm(const kvf__head *head)
{
    return !head || !head->kind;
}

bool kvf__head_is_phrases(const kvf__head *head)
{
    return head && head->vocab && head->kind;
}

int64_t kvf__label_row(const kvf__batch *batch, int64_t j, int64_t r)
{
    while (batch->start[r + 1] <= batch->label_at[j])
        r++;
    return r;
}

int64_t kvf__label_end(const kvf__batch *batch, int64_t from, int64_t r)
{
    int64_t j = from;
    while (j < batch->n_labels && batch->label_at[j] < batch->start[r + 1])
        j++;
    return j;
}
