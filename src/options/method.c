/* The table of methods, see method.h. */
#include "method.h"

#include <string.h>

static const kvf__method METHODS[] = {
#define ROW(name, port, lr, beta1, folds_to, reads_base)                                           \
    {name, KVF__PORT_##port, lr, beta1, folds_to, reads_base},
    KVF__METHOD_LIST(ROW)
#undef ROW
};
#define N_METHODS (sizeof METHODS / sizeof METHODS[0])

const kvf__method *kvf__method_at(size_t index)
{
    return index < N_METHODS ? &METHODS[index] : NULL;
}

const kvf__method *kvf__method_find(const char *name)
{
    for (size_t i = 0; i < N_METHODS; i++)
        if (!strcmp(METHODS[i].name, name)) return &METHODS[i];
    return NULL;
}

bool kvf__method_has_length(const char *name)
{
    const kvf__method *method = name ? kvf__method_find(name) : NULL;
    return !method || method->port == KVF__PORT_KV || method->port == KVF__PORT_EMBED;
}
