/* A loaded prefix, ready for requests (prefix_ref.c). */
#ifndef KVF_PREFIX_REF_H
#define KVF_PREFIX_REF_H

#include <kvfold/serve.h>

#include "completion.h"
#include "renderer.h"

/* A loaded prefix and the rendering of its prompts; freed after its last use. */
typedef struct kvf__prefix_ref {
    kvf_prefix *prefix; /* NULL: the bare base */
    kvf__head *head;    /* language-model head of the prefix; NULL: none */
    kvf_base *own_base; /* base with the values of a prefix that changes it; NULL: the server's base
                         */
    /* owner of the classification head: the prefix, or the base file; NULL: none */
    kvf_prefix *classifier;
    double train_loss, valid_loss; /* losses of a run at the served step; NaN: unknown */
    kvf__renderer renderer;
    kvf__ends ends;
    uint64_t hash[2]; /* of all values before a row's own tokens */
    size_t bytes;     /* memory counted against prefix_memory; 0: a prefix of the command line */
    /* protected by the cache's lock */
    int64_t uses;
    bool kept; /* the table has it: one of its uses */
} kvf__prefix_ref;

/* Opens the base without a prefix, with one use. */
kvf_status kvf__prefix_ref_base(kvf_ctx *ctx, const kvf_base *base,
                                const kvf_serve_options *options, kvf__prefix_ref **out);
/* Opens a prefix file (head: as in kvf_serve_prefix) for a base, with one use. Warns if model
 * `name` was trained on chats but cannot render them. */
kvf_status kvf__prefix_ref_open(kvf_ctx *ctx, const kvf_base *base,
                                const kvf_serve_options *options, const char *name,
                                const char *path, const char *head, kvf__prefix_ref **out);
void kvf__prefix_ref_free(kvf__prefix_ref *ref);
/* Returns the memory of a prefix with its head and a base of its own. */
size_t kvf__prefix_ref_bytes(const kvf__prefix_ref *ref);

#endif
