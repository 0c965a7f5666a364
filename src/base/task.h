/* The task that a base is tuned for, as named by --task, files and transformers' auto classes. */
#ifndef KVF_TASK_H
#define KVF_TASK_H

typedef enum kvf__task {
    KVF__TASK_LM,
    KVF__TASK_SEQ_CLS,   /* one label (or number) per text or pair of texts */
    KVF__TASK_TOKEN_CLS, /* one tag per word */
    KVF__TASK_QA,        /* a span of the context, or none */
    KVF__TASK_CHOICE     /* one of several texts */
} kvf__task;

/* "lm", "seq-cls", "token-cls", "qa", "multiple-choice". */
static inline const char *kvf__task_name(kvf__task task)
{
    static const char *const names[] = {"lm", "seq-cls", "token-cls", "qa", "multiple-choice"};
    return names[task];
}

/* Most bytes of the example prompt that a file of task lm stores. */
enum { KVF__MOST_EXAMPLE = 400 };

#endif
