/* What the kernels of ops_vec.c share: when to work in parallel, and the choice by act type, made
 * once per row or block, inside the parallel region, where the compiler still sees it. */
#ifndef KVF_OPS_ROW_H
#define KVF_OPS_ROW_H

#include "kernels.h"
#include "vec_act.h"

enum {
    OPS_BLOCK = 4096, /* elements of an elementwise block: both types fit the first cache */
    SERIAL = 32768    /* less work than this is done before other threads have woken up */
};

/* f(half, ...) with the type as a constant. */
#define BY_TYPE(act, f, ...) ((act) == KVF__BF16 ? f(true, __VA_ARGS__) : f(false, __VA_ARGS__))

VEC_INLINE int64_t block_end(int64_t at, int64_t n)
{
    return n - at < OPS_BLOCK ? n : at + OPS_BLOCK;
}

#endif
