/* Training methods (docs/methods.md). Each row of the list below is a value of --method, which run
 * files store. The port of a method is the place where its trained values enter the base. `kv`
 * emits a prefix, and `embed` emits vectors in place of token embeddings. `block` trains parameters
 * that the model itself publishes. `none` trains only the task's head. Code that needs to know more
 * than the port asks the row or the encoder. */
#ifndef KVF_METHOD_H
#define KVF_METHOD_H

#include <stdbool.h>
#include <stddef.h>

typedef enum kvf__port { KVF__PORT_KV, KVF__PORT_EMBED, KVF__PORT_BLOCK, KVF__PORT_NONE } kvf__port;

/* name, port, default --lr and --beta1, kind of the merged file, whether the encoder reads the base
 */
#define KVF__METHOD_LIST(X)                                                                        \
    X("mlp", KV, 3e-2, 0.5, "prefix", false)                                                       \
    X("direct", KV, 3e-2, 0.5, "prefix", false)                                                    \
    X("projected", KV, 3e-2, 0.9, "prefix", true)                                                  \
    X("prompt", EMBED, 0.3, 0.9, "embeddings", false)                                              \
    X("p-tuning", EMBED, 1e-3, 0.9, "embeddings", false)                                           \
    X("adapter", BLOCK, 1e-3, 0.9, "adapter", false)                                               \
    X("full", BLOCK, 2e-5, 0.9, "base", false)                                                     \
    X("head", NONE, 1e-2, 0.9, "base", false)

typedef struct kvf__method {
    const char *name;
    kvf__port port;
    double default_lr, default_beta1;
    const char *folds_to; /* "prefix", "embeddings", "adapter" or "base" */
    bool reads_base;      /* merging or using one of its runs needs the base */
} kvf__method;

/* True if the method has virtual tokens. For the ports block and none P = 0. */
bool kvf__method_has_length(const char *name);
/* Returns NULL for an unknown name. */
const kvf__method *kvf__method_find(const char *name);
/* Returns the method at an index, or NULL past the last. */
const kvf__method *kvf__method_at(size_t index);

/* All names, as string constants: "mlp, direct" for errors and "mlp|direct" for option tables. */
#define KVF__METHOD_COMMA(name, port, lr, beta1, folds_to, reads_base) ", " name
#define KVF__METHOD_BAR(name, port, lr, beta1, folds_to, reads_base)   "|" name
#define KVF__METHOD_NAMES                                              (&("" KVF__METHOD_LIST(KVF__METHOD_COMMA))[2])
#define KVF__METHOD_CHOICES                                            (&("" KVF__METHOD_LIST(KVF__METHOD_BAR))[1])

#endif
